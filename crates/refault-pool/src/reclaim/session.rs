//! Reclaim step by step: a target, what to reach, and what was done so far.
//!
//! Each step looks, decides and acts once; the caller sleeps [`Session::interval`] between two. A dry run looks and
//! decides alike, and moves nothing. It sees the same memory idle again at each look, so what ages choose at two of its
//! steps must not be added up ([`Session::would_have_gone_bytes`]). Looks at ages clear accessed bits, in a dry run
//! too.
//! Cost of a step: that of the look, see [`crate::mappings`], and of the kernel's reclaim.
//!
//! ```
//! use refault_pool::reclaim::session::{Goal, Session, Target};
//!
//! # fn main() -> std::io::Result<()> {
//! let goal = Goal::Pressure(0.001);
//! let mut session = match Session::new(&Target::Process(std::process::id()), goal, true) {
//!     Ok(session) => session,
//!     Err(error) => return Ok(println!("this kernel keeps no pressure: {error}")),
//! };
//! println!("{}, a step every {:?}", session.words(), session.interval());
//! let step = session.step()?;
//! assert!(step.pressure.is_some() && step.reclaimed_bytes == 0); // a dry run takes nothing
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use refault_core::monitor::Profile;
use refault_core::schemes::SchemeSettings;

use super::cgroup::Cgroup;
use super::generations::{Generations, evictions};
use super::idle::{Aged, Ages};
use super::pages::Pages;
use super::probe::Hand;
use super::process::{Advice, Process};
use super::regions::{Regions, cut};
use super::schemes::Schemes;
use super::{Addresses, groups, swap};
use crate::mappings::{Sums, mappings};
use crate::pressure::{Controller, Stalls};

/// Between two steps towards a target of pressure: a phase change is answered within a few of them.
pub const PRESSURE_EVERY: Duration = Duration::from_secs(1);
const PAGE: u64 = refault_linux::PAGE as u64;
/// Between two looks at accessed bits.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// By how much the kernel's ages, which it rounds, may be shorter than ours.
const CLOCK: Duration = Duration::from_millis(20);

/// Whose memory is reclaimed.
#[derive(Clone, Debug)]
pub enum Target {
    /// One process.
    Process(u32),
    /// The control group of a directory.
    Cgroup(PathBuf),
}

/// What is to be reached.
#[derive(Clone, Debug)]
pub enum Goal {
    /// This share of time (0 to 1) in which something waits for memory.
    Pressure(f64),
    /// What no process accessed for at least this time is out of memory.
    Idle(Duration),
    /// What these schemes say, with the time of one aggregation and whose rules hold.
    Schemes(Vec<SchemeSettings>, Duration, Profile),
}

/// What a step saw and did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Bytes in memory before it.
    pub resident_bytes: u64,
    /// Bytes in swap before it; 0 for a control group whose processes were not looked at.
    pub swap_bytes: u64,
    /// Share of time since the step before in which something waited.
    pub pressure: Option<f64>,
    /// Bytes that were to go: without what other processes map too, and without what is no file's where swap has no
    /// room for it.
    pub chosen_bytes: u64,
    /// Bytes by which resident memory fell; 0 in a dry run.
    pub reclaimed_bytes: u64,
}

struct Member {
    process: Process,
    ages: Option<Known>,
    hand: Option<Hand>,
}

/// Where ages come from.
enum Known {
    Mappings(Ages),
    Regions(Box<dyn Regions>),
    Pages(Box<Pages>),
}

impl Member {
    /// Ages, which begin now if they have not.
    fn begin(&mut self, pid: u32, by_page: bool) -> io::Result<&mut Known> {
        if self.ages.is_none() {
            self.ages = Some(if by_page {
                let mut pages = Pages::open(pid)?;
                pages.look(&mappings(pid)?)?;
                Known::Pages(Box::new(pages))
            } else {
                Known::Mappings(Ages::begin(pid)?)
            });
        }
        Ok(self.ages.as_mut().expect("invariant: just set"))
    }
}

impl Known {
    /// What is how old, and how much there is in all.
    fn look(&mut self, pid: u32) -> io::Result<(Vec<Aged>, Sums)> {
        let mappings = match self {
            Known::Mappings(ages) => {
                let aged = ages.look()?;
                let sums = aged.iter().map(|aged| Sums::of(std::slice::from_ref(&aged.mapping)));
                let sums = sums.fold(Sums::default(), |sum, one| sum + one);
                return Ok((aged, sums));
            }
            Known::Regions(_) | Known::Pages(_) => mappings(pid)?,
        };
        let aged = match self {
            Known::Regions(regions) => cut(&mappings, &regions.look()?),
            Known::Pages(pages) => pages.look(&mappings)?,
            Known::Mappings(_) => Vec::new(),
        };
        Ok((aged, Sums::of(&mappings)))
    }
}

/// See the module.
pub struct Session {
    members: BTreeMap<u32, Member>,
    group: Option<Cgroup>,
    goal: Goal,
    controller: Option<(Controller, Stalls)>,
    schemes: Option<Schemes>,
    dry_run: bool,
    /// What a dry run would have taken so far.
    would_have_gone_bytes: u64,
    begun: Instant,
    /// Who else knows ages, in words.
    source: Option<String>,
    /// The kernel's generations of the group.
    generations: Option<Generations>,
    /// Ages are by page.
    by_page: bool,
}

impl Session {
    /// Begins.
    ///
    /// # Errors
    /// The target is not there, or may not be reclaimed from (which a dry run does not ask).
    pub fn new(target: &Target, goal: Goal, dry_run: bool) -> io::Result<Session> {
        let (group, stalls): (_, io::Result<Stalls>) = match target {
            Target::Process(pid) => (None, Stalls::of_process(*pid)),
            Target::Cgroup(path) => {
                let group = Cgroup::open(path)?;
                // Of a group of version 1 the kernel keeps none, but perhaps of where its processes are in version 2.
                let first = group.processes()?.first().copied();
                let elsewhere = |_| first.map_or_else(Stalls::of_host, Stalls::of_process);
                (Some(group), Stalls::of_cgroup(path).or_else(elsewhere))
            }
        };
        let controller = match goal {
            Goal::Pressure(target) => Some((Controller::new(target), stalls?)),
            _ => None,
        };
        let schemes = match &goal {
            Goal::Schemes(settings, aggregation, profile) => {
                Some(Schemes::new(settings.clone(), *aggregation, *profile))
            }
            _ => None,
        };
        let begun = Instant::now();
        let (members, source) = (BTreeMap::new(), None);
        let mut session = Session {
            members,
            group,
            goal,
            controller,
            schemes,
            dry_run,
            would_have_gone_bytes: 0,
            begun,
            source,
            generations: None,
            by_page: false,
        };
        if let Target::Process(pid) = target {
            session.add(*pid)?;
        }
        Ok(session)
    }

    /// Takes ages from a monitor that sees more than mappings show, for a process; where pressure decides, ages are not
    /// asked for.
    pub fn take_ages_from(&mut self, regions: Box<dyn Regions>) {
        if let (None, None, Some(member)) = (&self.controller, &self.group, self.members.values_mut().next()) {
            self.source = Some(regions.words());
            member.ages = Some(Known::Regions(regions));
        }
    }

    /// Takes ages from the kernel's idle-page bitmap, for each process, if [`Pages::open`] takes the target.
    pub fn take_ages_by_page(&mut self) {
        if self.controller.is_none() {
            self.source = Some(Pages::words());
            self.by_page = true;
        }
    }

    /// Takes ages from the kernel's generations, which also take away what is idle: for a control group and
    /// [`Goal::Idle`], not otherwise.
    pub fn take_ages_from_generations(&mut self, generations: Generations) {
        if let (Some(_), Goal::Idle(_)) = (&self.group, &self.goal) {
            self.source = Some(generations.words());
            self.generations = Some(generations);
        }
    }

    /// Begins to look at ages now; otherwise the first step does.
    ///
    /// # Errors
    /// The target has ended, or it belongs to another user.
    pub fn begin(&mut self) -> io::Result<()> {
        if self.controller.is_some() {
            return Ok(());
        }
        if let Some(generations) = &self.generations {
            return generations.age(Duration::ZERO);
        }
        self.follow_group()?;
        for (pid, member) in &mut self.members {
            match member.begin(*pid, self.by_page) {
                Err(error) if self.group.is_some() && is_gone(&error) => {}
                begun => drop(begun?),
            }
        }
        Ok(())
    }

    /// What a dry run would have taken so far, in bytes. Towards a pressure, that is all that its steps chose. By ages
    /// it is the most that one step chose, because idle pages stay idle and are chosen again.
    pub fn would_have_gone_bytes(&self) -> u64 {
        self.would_have_gone_bytes
    }

    /// What looks change, in words: where ages decide, a dry run changes that too.
    pub fn looks_change(&self) -> Option<&'static str> {
        match (&self.controller, &self.source) {
            (Some(_), _) => None,
            (None, Some(_)) if self.generations.is_some() => {
                Some("accessed bits were cleared and generations made, which the kernel's own reclaim goes by too")
            }
            (None, Some(_)) => Some("accessed bits were cleared; the kernel's own reclaim was told which had been set"),
            (None, None) => Some(
                "accessed bits were cleared, so the kernel's own reclaim takes pages for idle that are not used again",
            ),
        }
    }

    /// How long to sleep between two steps.
    pub fn interval(&self) -> Duration {
        match &self.goal {
            Goal::Pressure(_) => PRESSURE_EVERY,
            // The kernel keeps four generations, of which a look makes one: the oldest ends two looks ago.
            Goal::Idle(idle) if self.generations.is_some() => (*idle / 2 + CLOCK).max(LOOK_EVERY.0),
            Goal::Idle(idle) => (*idle / 4).clamp(LOOK_EVERY.0, LOOK_EVERY.1),
            Goal::Schemes(_, aggregation, _) => (*aggregation).max(LOOK_EVERY.0),
        }
    }

    /// Where ages or pressure come from and what takes pages away, in words.
    pub fn words(&self) -> String {
        let how = self.group.as_ref().filter(|_| self.controller.is_some());
        let others = if self.generations.is_some() { "evicting generations" } else { "process_madvise" };
        let by = how.map_or(others, Cgroup::means);
        match &self.controller {
            Some((_, stalls)) => format!("pressure from {}; by {by}", stalls.path().display()),
            None => {
                let source = self.source.as_deref().unwrap_or("clear_refs and smaps, by mapping");
                format!("ages from {source}; by {by}")
            }
        }
    }

    /// Pages that came back after they went, as far as they were looked at, in bytes.
    pub fn came_back_bytes(&self) -> u64 {
        if self.dry_run {
            return 0; // Nothing went.
        }
        self.members.values().filter_map(|member| member.hand.as_ref()).map(|hand| hand.came_back() * 4096).sum()
    }

    fn add(&mut self, pid: u32) -> io::Result<()> {
        let process = Process::open(pid)?;
        if !self.dry_run {
            process.check()?;
        }
        let hand = if self.controller.is_some() { Some(Hand::new(pid)?) } else { None };
        self.members.insert(pid, Member { process, ages: None, hand });
        Ok(())
    }

    /// Takes up processes that have come into the group.
    fn follow_group(&mut self) -> io::Result<()> {
        let Some(group) = self.group.as_ref().filter(|_| self.controller.is_none()) else { return Ok(()) };
        for pid in group.processes()? {
            if !self.members.contains_key(&pid) {
                match self.add(pid) {
                    Err(error) if !is_gone(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Looks, decides and acts once.
    ///
    /// # Errors
    /// The target has ended, or it belongs to another user by now.
    pub fn step(&mut self) -> io::Result<Step> {
        if self.controller.is_some() {
            let step = self.towards_pressure()?;
            self.would_have_gone_bytes += step.chosen_bytes;
            return Ok(step);
        }
        let step = if self.generations.is_some() { self.by_generation()? } else { self.by_age()? };
        self.would_have_gone_bytes = self.would_have_gone_bytes.max(step.chosen_bytes);
        Ok(step)
    }

    fn towards_pressure(&mut self) -> io::Result<Step> {
        let Some((_, stalls)) = &mut self.controller else { return Ok(Step::default()) };
        let pressure = stalls.share()?;
        // What a dry run would have taken is not there to be taken again.
        let gone = if self.dry_run { self.would_have_gone_bytes } else { 0 };
        let swap_bytes = self.swap_bytes()?;
        let Some((controller, _)) = &mut self.controller else { return Ok(Step::default()) };
        if let Some(group) = &self.group {
            let resident_bytes = group.usage_bytes()?;
            let can_go = (resident_bytes - group.needs_swap_bytes().min(resident_bytes)).saturating_add(swap_bytes);
            let wanted = controller.step(resident_bytes.saturating_sub(gone), pressure);
            let chosen_bytes = wanted.min(can_go.saturating_sub(gone));
            let acts = chosen_bytes > 0 && !self.dry_run;
            let reclaimed_bytes = if acts { group.reclaim(chosen_bytes)? } else { 0 };
            return Ok(Step { resident_bytes, swap_bytes: 0, pressure: Some(pressure), chosen_bytes, reclaimed_bytes });
        }
        let Some((pid, member)) = self.members.iter_mut().next() else { return Err(io::ErrorKind::NotFound.into()) };
        let mappings = mappings(*pid)?;
        let before = alive(Sums::of(&mappings))?;
        let can_go = (before.resident_bytes - before.anonymous_bytes).saturating_add(swap_bytes);
        let wanted = controller.step(before.resident_bytes.saturating_sub(gone), pressure);
        let wanted = wanted.min(can_go.saturating_sub(gone));
        let hand = member.hand.as_mut().expect("invariant: there is one where pressure decides");
        let ranges = hand.choose(&mappings, wanted)?;
        let mut step = Step {
            resident_bytes: before.resident_bytes,
            swap_bytes: before.swap_bytes,
            pressure: Some(pressure),
            chosen_bytes: bytes_of(&ranges),
            reclaimed_bytes: 0,
        };
        if !self.dry_run && !ranges.is_empty() {
            member.process.advise(&ranges, Advice::PageOut)?;
            step.reclaimed_bytes = fallen(*pid, before)?;
        }
        Ok(step)
    }

    /// Bytes that may go to swap: as the host has room for them, and as the group may have there, or that of the
    /// process. None where the kernel does not swap for the group.
    fn swap_bytes(&self) -> io::Result<u64> {
        let host = swap::Swap::of_host()?.free_bytes();
        let Some(group) = &self.group else {
            let directory = self.members.keys().next().and_then(|pid| groups::of_process(*pid));
            let room = directory.and_then(|directory| groups::swap_room_bytes(&directory));
            return Ok(host.min(room.unwrap_or(u64::MAX)));
        };
        let reclaims = self.controller.is_some() || self.generations.is_some();
        if reclaims && groups::swappiness(group.directory()) == 0 {
            return Ok(0);
        }
        Ok(host.min(groups::swap_room_bytes(group.directory()).unwrap_or(u64::MAX)))
    }

    fn by_generation(&mut self) -> io::Result<Step> {
        let (Some(generations), Some(group), Goal::Idle(idle)) = (&self.generations, &self.group, &self.goal) else {
            return Ok(Step::default());
        };
        // The kernel may have made one by itself just now.
        generations.age(self.interval() / 2)?;
        let evictions = evictions(&generations.lists()?, *idle, self.swap_bytes()? / PAGE);
        let resident_bytes = group.usage_bytes()?;
        let chosen_bytes = evictions.iter().map(|eviction| eviction.pages * PAGE).sum();
        let mut step = Step { resident_bytes, chosen_bytes, ..Step::default() };
        if !self.dry_run && !evictions.is_empty() {
            generations.evict(&evictions, groups::swappiness(group.directory()))?;
            step.reclaimed_bytes = resident_bytes.saturating_sub(group.usage_bytes()?);
        }
        Ok(step)
    }

    fn by_age(&mut self) -> io::Result<Step> {
        self.follow_group()?;
        let mut sum = Step::default();
        let mut gone = Vec::new();
        let now = self.begun.elapsed();
        let mut swap_bytes = self.swap_bytes()?;
        for (pid, member) in &mut self.members {
            let (aged, before) = match member.begin(*pid, self.by_page).and_then(|ages| ages.look(*pid)) {
                Err(error) if is_gone(&error) && self.group.is_some() => {
                    gone.push(*pid);
                    continue;
                }
                other => other?,
            };
            if self.group.is_none() {
                alive(before)?;
            }
            let chosen = match (&self.goal, &mut self.schemes) {
                (Goal::Idle(idle), _) => vec![(Advice::PageOut, idle_longer(&aged, *idle))],
                (_, Some(schemes)) => schemes.choose(&aged, now),
                _ => Vec::new(),
            };
            sum.resident_bytes += before.resident_bytes;
            sum.swap_bytes += before.swap_bytes;
            for (advice, ranges) in chosen {
                sum.chosen_bytes += can_go(&aged, &ranges, advice, &mut swap_bytes);
                if !self.dry_run && !ranges.is_empty() {
                    member.process.advise(&ranges, advice)?;
                }
            }
            if !self.dry_run && sum.chosen_bytes > 0 {
                sum.reclaimed_bytes += fallen(*pid, before)?;
            }
        }
        gone.iter().for_each(|pid| drop(self.members.remove(pid)));
        Ok(sum)
    }
}

/// Mappings that can go and were idle for at least `idle`; what lies side by side is one range.
fn idle_longer(aged: &[Aged], idle: Duration) -> Vec<Addresses> {
    let fits = |aged: &&Aged| aged.mapping.reclaimable && aged.mapping.resident_bytes > 0 && aged.idle >= idle;
    let mut ranges: Vec<Addresses> = Vec::new();
    for mapping in aged.iter().filter(fits).map(|aged| &aged.mapping) {
        match ranges.last_mut().filter(|range| range.end == mapping.start) {
            Some(range) => range.end = mapping.end,
            None => ranges.push(mapping.start..mapping.end),
        }
    }
    ranges
}

/// Bytes of the mappings that begin in ranges, which ascend, which no other process maps: those of files, and, if they
/// are to go, as much of the rest as swap has room for, which is taken off.
fn can_go(aged: &[Aged], ranges: &[Addresses], advice: Advice, swap_bytes: &mut u64) -> u64 {
    let within = |aged: &&Aged| {
        let after = ranges.partition_point(|range| range.start <= aged.mapping.start);
        after > 0 && ranges[after - 1].contains(&aged.mapping.start)
    };
    aged.iter()
        .filter(within)
        .map(|aged| {
            let alone = aged.mapping.resident_bytes.saturating_sub(aged.mapping.shared_bytes);
            let needs_swap = aged.mapping.anonymous_bytes.min(alone);
            if advice == Advice::Cold {
                return alone;
            }
            let swapped = needs_swap.min(*swap_bytes);
            *swap_bytes -= swapped;
            alone - needs_swap + swapped
        })
        .sum()
}

fn bytes_of(ranges: &[Addresses]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// By how much resident memory is less than before.
fn fallen(pid: u32, before: Sums) -> io::Result<u64> {
    Ok(before.resident_bytes.saturating_sub(Sums::of(&mappings(pid)?).resident_bytes))
}

/// What is left of a process that has ended, and was not waited for, has no memory.
fn alive(sums: Sums) -> io::Result<Sums> {
    if sums == Sums::default() { Err(io::ErrorKind::NotFound.into()) } else { Ok(sums) }
}

/// Whether an error says that a process has ended.
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::Mapping;

    #[test]
    fn what_others_map_does_not_go_and_what_is_no_files_needs_swap() {
        let aged = |start, resident_bytes, anonymous_bytes, shared_bytes| Aged {
            mapping: Mapping {
                start,
                end: start + 9,
                resident_bytes,
                anonymous_bytes,
                shared_bytes,
                ..Mapping::default()
            },
            idle: Duration::ZERO,
        };
        let all = [aged(0, 100, 0, 30), aged(10, 50, 50, 0), aged(20, 40, 30, 20), aged(30, 1000, 0, 0)];
        let go =
            |ranges: &[Addresses], advice, mut swap_bytes| (can_go(&all, ranges, advice, &mut swap_bytes), swap_bytes);
        let three = [0..9, 10..29];
        assert_eq!(go(&three, Advice::PageOut, 1000), (70 + 50 + 20, 930));
        assert_eq!(go(&three, Advice::PageOut, 60), (70 + 50 + 10, 0));
        assert_eq!(go(&three, Advice::PageOut, 0), (70, 0));
        assert_eq!(go(&three, Advice::Cold, 0), (140, 0));
        assert_eq!(go(&[], Advice::PageOut, 7), (0, 7));
    }
}
