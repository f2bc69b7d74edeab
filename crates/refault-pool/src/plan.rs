//! Which hosts jobs go onto, so that as few accesses miss as possible: each job's misses by memory are known, from the
//! miss-ratio curve of a recording.
//!
//! Memory is divided in whole units. For jobs on one host the best division is found exactly, by adding one job after
//! the other (a min-plus product of their curves). So curves need not be convex. Which job goes where is searched.
//! First each job is put on the host where it costs least, the one that profits most from memory first. Then come moves
//! and swaps as long as they help, and the same from a few placements drawn at random. Then comes every placement, as
//! long as [`MAX_NODES`] steps allow, with bounds. [`Plan::proved`] says whether that was all of them. Packing crates
//! do not fit: they know sizes, not curves.
//!
//! Invariants: each job is on one host and has at least one unit; the units of a host's jobs are at most its own. Cost:
//! with `U` units, a step of the search takes `U²` additions; a round of moves and swaps some `jobs² × U² × jobs per
//! host`.
//!
//! ```
//! use refault_pool::plan::Packing;
//!
//! // The misses of three jobs with 1, 2 and 3 units of memory, on two hosts of three units.
//! let misses = [vec![100, 10, 10], vec![100, 100, 100], vec![50, 50, 0]];
//! let plan = Packing { hosts: 2, misses: &misses }.solve()?;
//! assert_eq!((plan.misses, plan.proved), (110, true)); // the first beside the second, the third alone
//! # Ok::<(), refault_pool::plan::PlanError>(())
//! ```

/// Steps of the search through all placements, after which the best found so far is the answer.
pub const MAX_NODES: u32 = 20_000;
/// Placements drawn at random from which moves and swaps start too.
const MORE_STARTS: u32 = 7;
/// No such division.
const IMPOSSIBLE: u64 = u64::MAX;

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Packing<'a> {
    /// Hosts, all alike.
    pub hosts: usize,
    /// For each job its misses with 1, 2, … units of memory, up to all that a host has. Where more memory is worse
    /// (Belady's anomaly), the job gets less and leaves the rest unused.
    pub misses: &'a [Vec<u64>],
}

/// Where a job goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The host, from 0.
    pub host: usize,
    /// Units of memory.
    pub units: usize,
    /// Its misses with them.
    pub misses: u64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One for each job, in their order.
    pub placements: Vec<Placement>,
    /// The misses of all.
    pub misses: u64,
    /// No plan is better: every placement was looked at or ruled out.
    pub proved: bool,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing to place, or nowhere.
    #[error("no jobs or no hosts")]
    Empty,
    /// Each job needs one unit at least.
    #[error("{jobs} jobs do not fit on {hosts} hosts with room for {units} each")]
    TooMany {
        /// Jobs to place.
        jobs: usize,
        /// Hosts.
        hosts: usize,
        /// Units of a host.
        units: usize,
    },
    /// The jobs' curves are not equally long.
    #[error("the curves of the jobs differ in length")]
    Lengths,
}

/// The least misses of some jobs together with at most 0, 1, … units.
type Curve = Vec<u64>;

impl Packing<'_> {
    /// Finds a plan.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn solve(&self) -> Result<Plan, PlanError> {
        self.solve_within(MAX_NODES)
    }

    /// The same with at most `max_nodes` steps of the search through all placements; 0: moves and swaps alone.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn solve_within(&self, max_nodes: u32) -> Result<Plan, PlanError> {
        let (jobs, hosts) = (self.misses.len(), self.hosts);
        let units = self.misses.first().map_or(0, Vec::len);
        if jobs == 0 || hosts == 0 || units == 0 {
            return Err(PlanError::Empty);
        }
        if self.misses.iter().any(|misses| misses.len() != units) {
            return Err(PlanError::Lengths);
        }
        if jobs > hosts.saturating_mul(units) {
            return Err(PlanError::TooMany { jobs, hosts, units });
        }
        let curves = self.misses.iter().map(|misses| at_most(misses)).collect();
        let mut search = Search { curves, hosts: hosts.min(jobs), units, nodes: 0, max_nodes };
        let (assigned, proved) = search.run();
        Ok(search.plan(&assigned, self.misses, proved))
    }
}

/// Least misses with at most as many units as the index says; none at all is impossible.
fn at_most(misses: &[u64]) -> Curve {
    let least = misses.iter().scan(IMPOSSIBLE, |least, misses| {
        *least = (*least).min(*misses);
        Some(*least)
    });
    std::iter::once(IMPOSSIBLE).chain(least).collect()
}

/// Least misses of the jobs of both curves together.
fn together(one: &[u64], other: &[u64]) -> Curve {
    let best = |units: usize| (0..=units).map(|mine| one[mine].saturating_add(other[units - mine])).min();
    (0..one.len()).map(|units| best(units).unwrap_or(IMPOSSIBLE)).collect()
}

/// The next of a fixed sequence of numbers, so that a plan is always the same.
fn step(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

struct Search {
    curves: Vec<Curve>,
    hosts: usize,
    units: usize,
    nodes: u32,
    max_nodes: u32,
}

/// An assignment being made, host by host.
struct Best {
    assigned: Vec<usize>,
    misses: u64,
}

impl Search {
    fn run(&mut self) -> (Vec<usize>, bool) {
        let order = self.order();
        let mut assigned = self.greedy(&order);
        self.improve(&mut assigned);
        let mut best = Best { misses: self.total(&assigned), assigned };
        let mut random = 1;
        for _ in 0..MORE_STARTS {
            let mut assigned: Vec<usize> =
                best.assigned.iter().map(|_| step(&mut random) as usize % self.hosts).collect();
            self.improve(&mut assigned);
            let misses = self.total(&assigned);
            if misses < best.misses {
                best = Best { assigned, misses };
            }
        }
        let nothing: Curve = vec![0; self.units + 1];
        let mut placed = vec![nothing; self.hosts];
        let mut path = vec![0; self.curves.len()];
        let proved = self.look_at_all(&order, 0, &mut placed, &mut path, &mut best);
        (best.assigned, proved)
    }

    /// The jobs that profit most from memory first.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.curves.len()).collect();
        order.sort_by_key(|job| std::cmp::Reverse(self.curves[*job][1] - self.curves[*job][self.units]));
        order
    }

    fn greedy(&self, order: &[usize]) -> Vec<usize> {
        let mut placed: Vec<Option<Curve>> = vec![None; self.hosts];
        let mut assigned = vec![0; self.curves.len()];
        for job in order {
            let with_it = |host: &Option<Curve>| {
                host.as_ref().map_or(self.curves[*job].clone(), |jobs| together(jobs, &self.curves[*job]))
            };
            let added = |host: &Option<Curve>| {
                let before = host.as_ref().map_or(0, |jobs| jobs[self.units]);
                with_it(host)[self.units].saturating_sub(before)
            };
            let cheapest = (0..self.hosts).min_by_key(|host| added(&placed[*host])).unwrap_or(0);
            placed[cheapest] = Some(with_it(&placed[cheapest]));
            assigned[*job] = cheapest;
        }
        assigned
    }

    /// The misses of one host's jobs, the best division of its memory taken.
    fn cost(&self, assigned: &[usize], host: usize) -> u64 {
        self.host_curve(assigned, host).map_or(0, |curve| curve[self.units])
    }

    fn host_curve(&self, assigned: &[usize], host: usize) -> Option<Curve> {
        let mut jobs = (0..assigned.len()).filter(|job| assigned[*job] == host).map(|job| &self.curves[job]);
        let first = jobs.next()?.clone();
        Some(jobs.fold(first, |sum, curve| together(&sum, curve)))
    }

    fn total(&self, assigned: &[usize]) -> u64 {
        (0..self.hosts).fold(0, |sum: u64, host| sum.saturating_add(self.cost(assigned, host)))
    }

    /// Moves one job, or swaps two, as long as that helps.
    fn improve(&self, assigned: &mut Vec<usize>) {
        let mut costs: Vec<u64> = (0..self.hosts).map(|host| self.cost(assigned, host)).collect();
        loop {
            let mut improved = false;
            for job in 0..assigned.len() {
                for host in 0..self.hosts {
                    improved |= self.try_change(assigned, &mut costs, &[(job, host)]);
                }
                for other in 0..job {
                    let swap = [(job, assigned[other]), (other, assigned[job])];
                    improved |= self.try_change(assigned, &mut costs, &swap);
                }
            }
            if !improved {
                return;
            }
        }
    }

    fn try_change(&self, assigned: &mut Vec<usize>, costs: &mut [u64], moves: &[(usize, usize)]) -> bool {
        let (from, to) = (assigned[moves[0].0], moves[0].1);
        if from == to {
            return false;
        }
        let before = assigned.clone();
        moves.iter().for_each(|(job, host)| assigned[*job] = *host);
        let new = [self.cost(assigned, from), self.cost(assigned, to)];
        if new[0].saturating_add(new[1]) < costs[from].saturating_add(costs[to]) {
            (costs[from], costs[to]) = (new[0], new[1]);
            return true;
        }
        *assigned = before;
        false
    }

    /// Places the jobs from `next` on in every way that could be better than the best. False: there was no time.
    fn look_at_all(
        &mut self,
        order: &[usize],
        next: usize,
        placed: &mut [Curve],
        path: &mut [usize],
        best: &mut Best,
    ) -> bool {
        let so_far = placed.iter().fold(0, |sum: u64, host| sum.saturating_add(host[self.units]));
        let alone = order[next..].iter().fold(0, |sum: u64, job| sum.saturating_add(self.curves[*job][self.units]));
        if so_far.saturating_add(alone) >= best.misses {
            return true;
        }
        let Some(job) = order.get(next).copied() else {
            *best = Best { assigned: path.to_vec(), misses: so_far };
            return true;
        };
        // Empty hosts are alike.
        let used = order[..next].iter().map(|job| path[*job] + 1).max().unwrap_or(0);
        for host in 0..(used + 1).min(self.hosts) {
            if self.nodes == self.max_nodes {
                return false;
            }
            self.nodes += 1;
            let with_it = together(&placed[host], &self.curves[job]);
            let before = std::mem::replace(&mut placed[host], with_it);
            path[job] = host;
            let looked = self.look_at_all(order, next + 1, placed, path, best);
            placed[host] = before;
            if !looked {
                return false;
            }
        }
        true
    }

    /// The plan of an assignment: divides the memory of each host.
    fn plan(&self, assigned: &[usize], misses: &[Vec<u64>], proved: bool) -> Plan {
        let mut placements = vec![Placement { host: 0, units: 0, misses: 0 }; assigned.len()];
        for host in 0..self.hosts {
            let jobs: Vec<usize> = (0..assigned.len()).filter(|job| assigned[*job] == host).collect();
            // The sums of the first 0, 1, … jobs, taken apart again from the last on.
            let mut sums = vec![vec![0; self.units + 1]];
            for job in &jobs {
                let sum = together(&sums[sums.len() - 1], &self.curves[*job]);
                sums.push(sum);
            }
            let mut left = self.units;
            for (at, job) in jobs.iter().enumerate().rev() {
                let total = sums[at + 1][left];
                let given = (0..=left)
                    .find(|given| sums[at][left - given].saturating_add(self.curves[*job][*given]) == total)
                    .expect("invariant: the sum was made of some division");
                // The least memory that does.
                let units = (1..=given).find(|units| misses[*job][units - 1] == self.curves[*job][given]);
                let units = units.expect("invariant: a job has one unit at least");
                placements[*job] = Placement { host, units, misses: misses[*job][units - 1] };
                left -= given;
            }
        }
        let misses = placements.iter().map(|placement| placement.misses).sum();
        Plan { placements, misses, proved }
    }
}
