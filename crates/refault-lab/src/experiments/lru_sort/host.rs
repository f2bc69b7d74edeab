//! The machine of the experiment: one program in a memory cgroup with classic lists and compressed swap. The group's
//! limit rises and falls, and a monitor of physical memory runs beside it.
//!
//! A simulated page stands for `factor` pages of 4 KiB (a power of two), and every cost of a page counts `factor`
//! times. The limit follows cgroup v1: lowering it evicts until the usage fits or a try frees nothing; only then the
//! new limit is in force. That happens on another CPU while the program goes on, and is not counted as its stall.
//! Physical memory is mostly free; the program's frames lie in chunks of it and are reused in stack order.
//!
//! Cost: proportional to faults, pages examined by reclaim and checks of the monitor; not to accesses.

use refault_core::classic::{Classic, ClassicParams};
use refault_core::memory::{Eviction, Memory, References, SwapSpace};
use refault_core::monitor::{AccessSampler, Attributes, Monitor, Profile, Random, Target, View};
use refault_core::page::{LruvecId, PageId, PageType, Shadow};
use refault_core::policy::room::{MAX_FRUITLESS_CALLS, make_room};
use refault_core::policy::{Admission, Policy, ReclaimRequest, SortRule};
use refault_core::policy::{NodeReclaim, Sorting};
use refault_core::schemes::{Action, Folio, Kdamond, Next, Scheme, SchemeActor, SchemeError, SchemeSettings};

use super::program::Program;
use refault_sim::monitoring::costs::Costs;

const PAGE: u64 = 4096;
/// Physical memory of the published machine.
pub const RAM: u64 = 130 << 30;
/// Compressed swap of the published set-up.
const SWAP: u64 = 4 << 30;
/// Contiguous physical memory that a filling program gets at a time.
pub const CHUNK: u64 = 64 << 20;
/// Tries without a freed page after which the writer of a cgroup-v1 limit gives up: the first, in the kernel of the
/// experiment (`mem_cgroup_resize_max` in `mm/memcontrol.c`, 5.18).
pub const WRITER_TRIES: u32 = 1;
/// What reclaim is asked for at a time.
const BATCH: ReclaimRequest = ReclaimRequest { target: 0, goal: 32, incoming: None };
const SECOND: u64 = 1_000_000_000;
const NOWHERE: u32 = u32::MAX;

/// How the limit moves. Shares are of the table's resident size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitCycle {
    /// Tight limit.
    pub tight: f64,
    /// Seconds that it stays in force.
    pub tight_seconds: f64,
    /// Relaxed limit.
    pub relaxed: f64,
    /// Seconds that it stays.
    pub relaxed_seconds: f64,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// 4 KiB pages that a simulated page stands for; a power of two.
    pub factor: u64,
    /// Resident size in simulated pages from which the limits follow.
    pub resident_size: u64,
    /// Program time of the whole run, in ns.
    pub length: u64,
    /// The limit's cycle; `None`: the relaxed limit all the time.
    pub cycle: Option<LimitCycle>,
    /// Rules and schemes of the monitor; `None`: no monitor.
    pub monitor: Option<(Profile, &'a [SchemeSettings])>,
    /// Tries without a freed page after which the lowering of the limit gives up.
    pub writer_tries: u32,
    /// What things cost.
    pub costs: Costs,
    /// Wall time in s after which the rest is extrapolated.
    pub wall_limit: f64,
    /// Bytes of physical memory, whole chunks.
    pub ram: u64,
    /// The kernel's lists.
    pub lists: ClassicParams,
    /// Seed of placement and monitor.
    pub seed: u64,
}

impl Setup<'_> {
    /// CPU time in ns of a batch of reclaim, from what was done before and after it.
    fn batch_cost(&self, before: ReclaimWork, after: ReclaimWork) -> u64 {
        let work = (after.examined - before.examined) * self.costs.scan
            + (after.evicted - before.evicted) * self.costs.swap_out;
        (work * self.factor).max(1000)
    }
}

/// Pages that reclaim has handled.
#[derive(Clone, Copy, Debug, Default)]
struct ReclaimWork {
    examined: u64,
    evicted: u64,
}

/// What came out of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Wall time in s of the whole run.
    pub runtime: f64,
    /// Pages of 4 KiB swapped in.
    pub major_faults: f64,
    /// Time in µs that the program waited for memory: its own reclaim, and reads of its working set from swap.
    pub stall_us: f64,
    /// The monitor's share of one CPU.
    pub kdamond_share: f64,
    /// The same without the schemes.
    pub monitoring_share: f64,
    /// Mean number of regions.
    pub regions: f64,
    /// Share of the wall time in which the limit was being lowered.
    pub lowering_share: f64,
    /// Bytes prioritised and deprioritised that held pages of the program.
    pub sorted_bytes: [f64; 2],
}

impl Outcome {
    /// The value of one of [`super::pulsed::METRICS`].
    pub fn metric(&self, name: &str) -> Option<f64> {
        match name {
            "runtime_seconds" => Some(self.runtime),
            "pgmajfaults" => Some(self.major_faults),
            "memory_psi_some_us" => Some(self.stall_us),
            "monitor_cpu" => Some(self.kdamond_share * 100.0),
            _ => None,
        }
    }
}

/// Page states, frames, and the program above them.
struct HostMemory {
    program: Program,
    /// Program time.
    now: u64,
    /// Program time at which reclaim last took the accessed bit.
    taken_at: Vec<u64>,
    /// Program time at which the page last came in.
    came_at: Vec<u64>,
    shadows: Vec<Option<Shadow>>,
    resident: u64,
    swap_free: u64,
    frame_of: Vec<u32>,
    page_at: Vec<u32>,
    free_frames: Vec<u32>,
    /// Frames of a chunk, and which chunk of physical memory lies where in them.
    chunk_frames: u64,
    chunks: Vec<u32>,
    work: ReclaimWork,
}

impl HostMemory {
    fn new(program: Program, factor: u64, ram: u64, random: &mut Random) -> HostMemory {
        let pages = program.pages() as usize;
        let chunk_frames = CHUNK / (PAGE * factor);
        let needed = (pages as u64).div_ceil(chunk_frames);
        let mut chunks = vec![NOWHERE; (ram / CHUNK) as usize];
        let mut placed = 0;
        while placed < needed {
            let at = random.within(0, chunks.len() as u64) as usize;
            if chunks[at] == NOWHERE {
                chunks[at] = placed as u32;
                placed += 1;
            }
        }
        let frames = needed * chunk_frames;
        HostMemory {
            program,
            now: 0,
            taken_at: vec![0; pages],
            came_at: vec![0; pages],
            shadows: vec![None; pages],
            resident: 0,
            swap_free: SWAP / (PAGE * factor),
            frame_of: vec![NOWHERE; pages],
            page_at: vec![NOWHERE; frames as usize],
            free_frames: (0..frames as u32).rev().collect(),
            chunk_frames,
            chunks,
            work: ReclaimWork::default(),
        }
    }

    /// The page whose frame is at a physical address.
    #[inline]
    fn page_at(&self, address: u64, unit: u64) -> Option<u32> {
        let chunk = *self.chunks.get((address / CHUNK) as usize)?;
        if chunk == NOWHERE {
            return None;
        }
        let frame = u64::from(chunk) * self.chunk_frames + address % CHUNK / unit;
        let page = self.page_at[frame as usize];
        (page != NOWHERE).then_some(page)
    }

    fn insert(&mut self, page: u32) {
        let frame = self.free_frames.pop().expect("invariant: there is a frame for each page");
        self.frame_of[page as usize] = frame;
        self.page_at[frame as usize] = page;
        self.came_at[page as usize] = self.now;
        // The fault itself leaves the accessed bit set.
        self.taken_at[page as usize] = u64::MAX;
        self.program.set_absent(u64::from(page), false);
        self.resident += 1;
    }
}

impl Memory for HostMemory {
    fn take_references(&mut self, page: PageId) -> References {
        self.work.examined += 1;
        let since = std::mem::replace(&mut self.taken_at[page as usize], self.now);
        let young = since == u64::MAX || self.program.touched(u64::from(page), since, self.now);
        References { mappings: u32::from(young), ..References::default() }
    }

    #[inline]
    fn is_resident(&self, page: PageId) -> bool {
        self.frame_of[page as usize] != NOWHERE
    }

    fn is_mapped(&self, _: PageId) -> bool {
        true
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        if self.swap_free == 0 {
            return Eviction::Refused;
        }
        self.swap_free -= 1;
        self.work.evicted += 1;
        self.resident -= 1;
        self.shadows[page as usize] = Some(shadow);
        let frame = std::mem::replace(&mut self.frame_of[page as usize], NOWHERE);
        self.page_at[frame as usize] = NOWHERE;
        self.free_frames.push(frame);
        self.program.set_absent(u64::from(page), true);
        Eviction::Freed { pages_written: 1 }
    }

    fn now(&self) -> u64 {
        self.now
    }

    #[inline]
    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }
}

impl SwapSpace for HostMemory {
    fn free_swap(&self, _: LruvecId) -> u64 {
        self.swap_free
    }
}

/// Where the limit stands in its cycle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The new limit is not yet in force; the writer's current batch ends at `until`.
    Lowering {
        until: u64,
        fruitless: u32,
    },
    Tight {
        until: u64,
    },
    Relaxed {
        until: u64,
    },
}

/// See the module.
pub struct Host<'a> {
    memory: HostMemory,
    policy: Classic,
    setup: Setup<'a>,
    random: Random,
    wall: u64,
    limit: u64,
    faults: u64,
    stall: u64,
    lowering: u64,
    /// Time the program owes for what the monitor cleared.
    debt: u64,
}

impl<'a> Host<'a> {
    /// A machine about to start `program`, whose pages are simulated ones.
    pub fn new(program: Program, setup: Setup<'a>) -> Host<'a> {
        let mut random = Random::new(setup.seed);
        let mut policy = Classic::new(setup.lists);
        policy.grow(program.pages() as usize);
        let memory = HostMemory::new(program, setup.factor, setup.ram, &mut random);
        let limit = setup.resident_size * 2;
        Host { memory, policy, setup, random, wall: 0, limit, faults: 0, stall: 0, lowering: 0, debt: 0 }
    }

    /// Runs to the end, or to the limit of wall time and extrapolates.
    ///
    /// # Errors
    /// If a scheme is refused.
    pub fn run(mut self) -> Result<Outcome, SchemeError> {
        let mut thread =
            self.setup.monitor.map(|(profile, schemes)| self.start_monitor(profile, schemes)).transpose()?;
        let mut stage = self.start_cycle();
        let end = (self.setup.wall_limit * SECOND as f64) as u64;
        let mut filled = None;
        while self.wall < end && self.memory.now < self.setup.length {
            let limit_event = match stage {
                None => u64::MAX,
                Some(Stage::Lowering { until, .. } | Stage::Tight { until } | Stage::Relaxed { until }) => until,
            };
            let monitor_event = thread.as_ref().map_or(u64::MAX, |thread| thread.next);
            // Program time is at most wall time behind, so this stops no later than the end of the filling.
            let left_to_fill = self.memory.program.filled_at().saturating_sub(self.memory.now);
            let fill_event = if filled.is_none() { self.wall + left_to_fill.max(1) } else { u64::MAX };
            self.run_program(limit_event.min(monitor_event).min(fill_event).min(end));
            if filled.is_none() && self.memory.now >= self.memory.program.filled_at() {
                filled = Some((self.wall, self.memory.now, self.faults, self.stall));
            }
            if self.wall >= limit_event {
                stage = stage.map(|stage| self.advance_cycle(stage));
            }
            if let Some(thread) = thread.as_mut().filter(|thread| self.wall >= thread.next) {
                thread.advance(&mut self);
            }
        }
        Ok(self.outcome(filled.unwrap_or_default(), thread.as_ref()))
    }

    /// Runs the program until a wall time; a fault under way ends later.
    fn run_program(&mut self, until: u64) {
        self.wall += std::mem::take(&mut self.debt);
        while self.wall < until && self.memory.now < self.setup.length {
            let last = (self.memory.now + (until - self.wall)).min(self.setup.length);
            match self.memory.program.next_fault(self.memory.now, last) {
                None => {
                    self.wall += last - self.memory.now;
                    self.memory.now = last;
                }
                Some((time, page)) => {
                    self.wall += time - self.memory.now;
                    self.memory.now = time;
                    self.fault(page as u32);
                }
            }
        }
    }

    fn fault(&mut self, page: u32) {
        if self.memory.resident >= self.limit {
            let (setup, limit) = (&self.setup, self.limit);
            let (mut before, mut cost) = (self.memory.work, 0);
            make_room(&mut self.policy, &BATCH, &mut self.memory, MAX_FRUITLESS_CALLS - 1, |memory| {
                cost += setup.batch_cost(before, memory.work);
                before = memory.work;
                memory.resident < limit
            });
            self.wall += cost;
            self.stall += cost;
        }
        let shadow = self.memory.shadows[page as usize].take();
        let factor = self.setup.factor;
        let cost = factor * if shadow.is_some() { self.setup.costs.swap_in } else { self.setup.costs.zero_fill };
        self.wall += cost;
        let admission = Admission::fault(PageType::Anon).with_shadow(shadow);
        self.policy.admit(page, &admission, &mut self.memory);
        self.memory.insert(page);
        if shadow.is_some() {
            self.memory.swap_free += 1;
            self.faults += factor;
            if self.policy.is_workingset(page) {
                // A stall is the read alone, not the fault around it, and only of the working set.
                self.stall += factor * self.setup.costs.swap_read;
            }
        }
    }

    /// One batch: pages freed, and the CPU time it took.
    fn reclaim(&mut self) -> (u32, u64) {
        let before = self.memory.work;
        let freed = Policy::reclaim(&mut self.policy, &BATCH, &mut self.memory);
        (freed, self.setup.batch_cost(before, self.memory.work))
    }

    fn start_cycle(&mut self) -> Option<Stage> {
        let cycle = self.setup.cycle?;
        self.limit = self.pages(cycle.tight);
        Some(Stage::Tight { until: seconds(cycle.tight_seconds) })
    }

    fn pages(&self, share: f64) -> u64 {
        (self.setup.resident_size as f64 * share) as u64
    }

    fn advance_cycle(&mut self, stage: Stage) -> Stage {
        let cycle = self.setup.cycle.expect("invariant: stages belong to a cycle");
        match stage {
            Stage::Tight { .. } => {
                self.limit = self.pages(cycle.relaxed);
                Stage::Relaxed { until: self.wall + seconds(cycle.relaxed_seconds) }
            }
            Stage::Relaxed { .. } => self.lower(cycle, 0),
            Stage::Lowering { fruitless, .. } => self.lower(cycle, fruitless),
        }
    }

    /// The writer of the limit: puts it in force if it fits, evicts a batch if not.
    fn lower(&mut self, cycle: LimitCycle, fruitless: u32) -> Stage {
        let tight = self.pages(cycle.tight);
        if self.memory.resident <= tight {
            self.limit = tight;
            return Stage::Tight { until: self.wall + seconds(cycle.tight_seconds) };
        }
        if fruitless >= self.setup.writer_tries {
            // Given up: the script sleeps all the same.
            return Stage::Tight { until: self.wall + seconds(cycle.tight_seconds) };
        }
        let (freed, cost) = self.reclaim();
        self.lowering += cost;
        Stage::Lowering { until: self.wall + cost, fruitless: if freed == 0 { fruitless + 1 } else { 0 } }
    }

    fn start_monitor(&mut self, profile: Profile, schemes: &[SchemeSettings]) -> Result<MonitorThread, SchemeError> {
        let attributes = Attributes { min_region_size: PAGE * self.setup.factor, ..Attributes::default() };
        let target =
            Target::over(0..self.setup.ram, attributes.min_region_size).expect("invariant: one range is in order");
        let monitor = Monitor::new(profile, attributes, vec![target], self.random.bits())
            .expect("invariant: the default attributes are legal");
        let schemes = schemes.iter().map(|settings| Scheme::new(settings.clone(), View::Physical, profile));
        let schemes = schemes.collect::<Result<Vec<_>, _>>()?;
        // The monitor is started when the program has been seen, which is looked for once per second.
        Ok(MonitorThread {
            kdamond: Kdamond::new(monitor, View::Physical, schemes, SECOND / 1000),
            started: SECOND,
            next: SECOND,
            sampling: false,
            prepared_at: 0,
            work: 0,
            regions: 0,
            sorted: [0; 2],
        })
    }

    fn outcome(&self, filled: (u64, u64, u64, u64), thread: Option<&MonitorThread>) -> Outcome {
        let (wall_0, now_0, faults_0, stall_0) = filled;
        let done = (self.memory.now - now_0).max(1) as f64;
        let rest = (self.setup.length.saturating_sub(now_0)) as f64 / done;
        let extrapolate = |before: u64, now: u64| before as f64 + (now - before) as f64 * rest;
        let mut outcome = Outcome {
            runtime: extrapolate(wall_0, self.wall) / SECOND as f64,
            major_faults: extrapolate(faults_0, self.faults),
            stall_us: extrapolate(stall_0, self.stall) / 1000.0,
            lowering_share: self.lowering as f64 / self.wall.max(1) as f64,
            ..Outcome::default()
        };
        if let Some(thread) = thread {
            let monitored = self.wall.saturating_sub(thread.started).max(1) as f64;
            outcome.kdamond_share = thread.work as f64 / monitored;
            outcome.monitoring_share = thread.kdamond.monitor().work_ns() as f64 / monitored;
            outcome.regions = thread.regions as f64 / thread.kdamond.monitor().counters().intervals.max(1) as f64;
            outcome.sorted_bytes = thread.sorted.map(|bytes| bytes as f64);
        }
        outcome
    }
}

fn seconds(seconds: f64) -> u64 {
    (seconds * SECOND as f64) as u64
}

/// The monitor beside the program, on a CPU of its own.
struct MonitorThread {
    kdamond: Kdamond,
    started: u64,
    /// When it acts next.
    next: u64,
    /// Whether a sampling interval is open.
    sampling: bool,
    /// Program time at which the open interval began.
    prepared_at: u64,
    /// CPU time in ns.
    work: u64,
    regions: u64,
    sorted: [u64; 2],
}

impl MonitorThread {
    fn advance(&mut self, host: &mut Host) {
        let before = self.work;
        let mut ops = DamonOps {
            unit: PAGE * host.setup.factor,
            ram: host.setup.ram,
            factor: host.setup.factor,
            costs: host.setup.costs,
            prepared_at: self.prepared_at,
            work: self.work,
            found: 0,
            sorted: self.sorted,
            memory: &mut host.memory,
            policy: &mut host.policy,
        };
        if self.sampling {
            self.kdamond.finish(host.wall / 1000, &mut ops, &mut ());
            self.regions += self.kdamond.monitor().nr_regions() as u64;
            ops.work += ops.costs.wake;
            // Merging and splitting touch each region once per aggregation of 20 intervals.
            ops.work += self.kdamond.monitor().nr_regions() as u64 * 2 * ops.costs.region / 20;
            self.sampling = false;
            host.debt += ops.found * ops.costs.accessed_bit;
            (self.work, self.sorted) = (ops.work, ops.sorted);
            self.next = host.wall + (self.work - before);
            return;
        }
        let next = self.kdamond.begin(&mut ops);
        self.prepared_at = ops.memory.now;
        self.work = ops.work;
        self.sampling = matches!(next, Next::Sample { .. });
        let wait = match next {
            Next::Sample { wait } | Next::Inactive { wait } => wait * 1000,
            Next::Ended => u64::MAX / 2,
        };
        self.next = host.wall + (self.work - before) + wait;
    }
}

/// What the monitor sees of the machine, and its hands.
struct DamonOps<'a> {
    memory: &'a mut HostMemory,
    policy: &'a mut Classic,
    unit: u64,
    ram: u64,
    factor: u64,
    costs: Costs,
    prepared_at: u64,
    work: u64,
    found: u64,
    sorted: [u64; 2],
}

impl AccessSampler for DamonOps<'_> {
    fn prepare(&mut self, _: usize, address: u64) {
        let there = self.memory.page_at(address, self.unit).is_some();
        self.work += if there { self.costs.check } else { self.costs.check_nothing } / 2;
    }

    fn accessed(&mut self, _: usize, address: u64) -> bool {
        let Some(page) = self.memory.page_at(address, self.unit) else {
            self.work += self.costs.check_nothing / 2;
            return false;
        };
        self.work += self.costs.check / 2;
        let came = self.memory.came_at[page as usize] > self.prepared_at;
        let accessed = came || self.memory.program.touched(u64::from(page), self.prepared_at, self.memory.now);
        self.found += u64::from(accessed);
        accessed
    }

    fn work_ns(&self) -> u64 {
        self.work
    }
}

impl SchemeActor for DamonOps<'_> {
    fn refuses(&self, action: &Action) -> Option<&'static str> {
        let known = matches!(action, Action::LruPrio | Action::LruDeprio | Action::Stat);
        (!known).then_some("only the lists are sorted here")
    }

    fn folio(&mut self, _: usize, address: u64) -> Option<Folio> {
        let Some(page) = self.memory.page_at(address, self.unit) else {
            self.work += self.costs.sort_nothing * self.factor;
            return None;
        };
        Some(Folio { page, size: self.unit, at_head: true, anon: true, active: false, mapped: true, memcg: Some(0) })
    }

    fn act(&mut self, action: &Action, folio: &Folio) -> u64 {
        self.work += self.costs.sort_page * self.factor;
        let cold = *action == Action::LruDeprio;
        if cold {
            self.policy.deprioritise(folio.page, SortRule::MarkAccessed, self.memory);
        } else {
            self.policy.prioritise(folio.page, SortRule::MarkAccessed, self.memory);
        }
        self.sorted[usize::from(cold)] += folio.size;
        folio.size
    }

    fn free_permille(&self) -> u64 {
        (self.ram - self.memory.resident * self.unit) * 1000 / self.ram
    }
}
