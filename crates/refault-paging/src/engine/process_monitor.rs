//! A monitor and its schemes over the memory of a process.
//!
//! A [`ProcessMonitor`] is driven by a thread of its caller: each [`ProcessMonitor::step`] ends a sampling interval,
//! begins the next and says how long to wait. A check sets one page aside ([`crate::moving::aside`]) and looks at the
//! interval's end whether it was moved back. Addresses are the program's; pages that are not in memory are not
//! accessed. The policy's own picture, which comes from what it gave up and what comes back, is not touched by checks.
//!
//! The cost is bounded by what the caller allows. The monitor measures the share of one processor that the thread used.
//! When that exceeds the bound, the monitor stretches the intervals and converts results, until it does not. Cost of a
//! check: moving a page and, if it was accessed, a fault of the program that moves it back.

use core::ops::Range;
use core::time::Duration;

use refault_core::monitor::{AccessSampler, Attributes, IntervalsGoal, Profile, View, three_areas};
use refault_core::policy::SortRule;
use refault_core::schemes::{Action, Folio, Kdamond, Next, Observer, SchemeActor};
use refault_core::{PageId, Shadow};

use super::Engine;
use crate::PAGE;
use crate::choosing::policies;
use crate::page::table::State;
use refault_linux::sys;

/// How often the share of the processor is looked at …
const GOVERN_EVERY: u64 = 1_000_000_000;
/// … and how often in the first seconds, in which nothing is known yet. Nanoseconds.
const GOVERN_FIRST: u64 = 200_000_000;
const FIRST: u64 = 2_000_000_000;
/// Intervals are never stretched beyond this, in µs.
const MAX_SAMPLE: u64 = 10_000_000;
/// Pages that a scheme evicts at once.
const BATCH: usize = 64;

/// Why an action has no effect on a program's memory under a policy, as the end of a sentence; `None` if it has one.
pub fn refusal(action: &Action, policy: &str) -> Option<&'static str> {
    match action {
        Action::Stat | Action::Pageout | Action::Willneed => None,
        Action::LruPrio | Action::LruDeprio | Action::Cold => (!policies::sorts(policy)).then_some(Action::NEEDS_LISTS),
        Action::Hugepage | Action::Nohugepage => Some("has no effect here: managed memory has small pages only"),
        Action::MigrateHot { .. } | Action::MigrateCold { .. } => {
            Some("has no effect here: managed memory knows no nodes")
        }
    }
}

/// A monitor at work over an engine. See the module.
pub struct ProcessMonitor {
    kdamond: Kdamond,
    rule: SortRule,
    /// Share of one processor that may be used, above 0.
    most_cpu: f64,
    wanted: Attributes,
    start: u64,
    sampling: bool,
    ended: bool,
    checked: Vec<usize>,
    /// Pages under check that could not be set aside, sorted: the monitor does not see whether they are accessed.
    unseen: Vec<usize>,
    unseen_checks: u64,
    batch: Vec<(PageId, Shadow)>,
    governed: (u64, u64),
    first_cpu: u64,
    /// Whether the regions follow the memory, or stay where they were put.
    follows: bool,
    /// Where memory lay when regions were last laid over it, and when that was looked at (µs since the start).
    layout: Option<Vec<Range<u64>>>,
    looked: u64,
}

impl ProcessMonitor {
    /// Monitors an engine that notes its accesses ([`Engine::note_accesses_aside`]), with a kdamond made over
    /// [`Engine::ranges_in`]. To be called, as [`ProcessMonitor::step`], by the thread whose processor time is to be
    /// bounded by `most_cpu` (0.01: one percent of one processor). `follows`: the regions are laid over new memory as
    /// it comes, by the end of the aggregation; otherwise they stay where they are.
    pub fn new(kdamond: Kdamond, most_cpu: f64, follows: bool) -> ProcessMonitor {
        let rule =
            if kdamond.monitor().profile() == Profile::K72 { SortRule::Activate } else { SortRule::MarkAccessed };
        let (now, cpu) = (sys::now(), sys::thread_time());
        ProcessMonitor {
            rule,
            most_cpu: most_cpu.max(1e-6),
            wanted: *kdamond.monitor().attributes(),
            kdamond,
            start: now,
            sampling: false,
            ended: false,
            checked: Vec::with_capacity(1024),
            unseen: Vec::new(),
            unseen_checks: 0,
            batch: Vec::with_capacity(BATCH),
            governed: (now, cpu),
            first_cpu: cpu,
            follows,
            layout: None,
            looked: 0,
        }
    }

    /// The monitor and its schemes.
    pub fn kdamond(&self) -> &Kdamond {
        &self.kdamond
    }

    /// Nanoseconds of processor time that the monitoring thread has used since the start. Only for that thread.
    pub fn cpu_ns(&self) -> u64 {
        sys::thread_time() - self.first_cpu
    }

    /// Checks of pages that could not be set aside (shared since a fork, locked, in use by a call): they count as not
    /// accessed, which the monitor cannot know.
    pub fn unseen_checks(&self) -> u64 {
        self.unseen_checks
    }

    /// Nanoseconds since the start.
    pub fn elapsed_ns(&self) -> u64 {
        sys::now() - self.start
    }

    /// Ends the sampling interval that has passed and begins the next. Returns how long to wait before the next call;
    /// `None` if there is nothing left to monitor.
    pub fn step<O: Observer>(&mut self, engine: &mut Engine, observer: &mut O) -> Option<Duration> {
        if self.ended {
            return None;
        }
        self.govern();
        let view = self.follows.then(|| self.kdamond.view());
        let (rule, checked, unseen, batch) = (self.rule, &mut self.checked, &self.unseen, &mut self.batch);
        let mut ops = DamonOps { engine, rule, view, checked, unseen, batch };
        if self.sampling {
            self.kdamond.finish((sys::now() - self.start) / 1000, &mut ops, observer);
        }
        // The kernel finds new mappings at its update interval, a second by default. The engine knows of them, and in
        // the first second of a program nearly all of them are new.
        let now = (sys::now() - self.start) / 1000;
        if now >= self.looked + self.kdamond.monitor().attributes().aggr_interval {
            self.looked = now;
            let layout = ops.ranges(0);
            if layout != self.layout {
                self.kdamond.update_layout(&mut ops);
                self.layout = layout;
            }
        }
        let next = self.kdamond.begin(&mut ops);
        ops.engine.set_aside(ops.checked);
        // It could not be moved: that it is there at the interval's end says nothing.
        self.unseen.clear();
        self.unseen.extend(self.checked.iter().copied().filter(|address| engine.was_touched(*address)));
        self.unseen_checks += self.unseen.len() as u64;
        self.checked.clear();
        self.sampling = matches!(next, Next::Sample { .. });
        match next {
            Next::Sample { wait } | Next::Inactive { wait } => Some(Duration::from_micros(wait.max(1))),
            Next::Ended => {
                self.ended = true;
                None
            }
        }
    }

    /// Stretches the intervals while the thread uses more than it may, and takes that back when it uses much less.
    fn govern(&mut self) {
        let now = sys::now();
        let (passed, whole) = (now - self.governed.0, now - self.start);
        if passed < if whole < FIRST { GOVERN_FIRST } else { GOVERN_EVERY } {
            return;
        }
        let cpu = sys::thread_time();
        let share = (cpu - self.governed.1) as f64 / passed as f64;
        // What was too much at first is made up for, so that the share holds for the whole run.
        let since_start = (cpu - self.first_cpu) as f64 / whole as f64;
        self.governed = (now, cpu);
        let factor = if share > self.most_cpu {
            (share / self.most_cpu * 1.2).min(8.0)
        } else if since_start > self.most_cpu && share > self.most_cpu / 2.0 {
            1.3
        } else if share < self.most_cpu / 2.0 && since_start < self.most_cpu * 0.8 {
            0.7
        } else {
            return;
        };
        let attributes = stretched(self.kdamond.monitor().attributes(), &self.wanted, factor);
        // Intervals that the profile refuses leave things as they are.
        let _ = self.kdamond.set_attributes(attributes);
    }
}

/// The attributes with intervals changed by a factor, never below those wanted. Self-tuned intervals get a new lower
/// bound.
fn stretched(now: &Attributes, wanted: &Attributes, factor: f64) -> Attributes {
    let scale = |value: u64, least: u64| ((value as f64 * factor) as u64).clamp(least, MAX_SAMPLE.max(least));
    match (now.intervals_goal, wanted.intervals_goal) {
        (Some(goal), Some(wanted_goal)) => {
            let least = scale(goal.min_sample_us, wanted_goal.min_sample_us).min(goal.max_sample_us);
            let sample_interval = now.sample_interval.max(least);
            Attributes {
                sample_interval,
                aggr_interval: sample_interval * u64::from(now.max_nr_accesses()),
                intervals_goal: Some(IntervalsGoal { min_sample_us: least, ..goal }),
                ..*now
            }
        }
        _ => {
            let sample_interval = scale(now.sample_interval, wanted.sample_interval);
            // The number of checks of an aggregation stays what the user asked for.
            let aggr_interval = if sample_interval == wanted.sample_interval {
                wanted.aggr_interval
            } else {
                sample_interval * u64::from(wanted.max_nr_accesses())
            };
            Attributes { sample_interval, aggr_interval, ..*now }
        }
    }
}

impl Engine {
    /// Where managed memory lies now: sorted, without overlap; in the view of a process its three areas, where it has
    /// as many. `None` while there is none.
    pub fn ranges_in(&self, view: View) -> Option<Vec<Range<u64>>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (start, end, _) in self.pages.ranges() {
            match runs.last_mut() {
                Some(last) if last.end == start as u64 => last.end = end as u64,
                _ => runs.push(start as u64..end as u64),
            }
        }
        if view == View::Virtual
            && let Some(areas) = three_areas(&runs, PAGE as u64)
        {
            runs = areas.to_vec();
        }
        (!runs.is_empty()).then_some(runs)
    }

    /// Addresses of pages of a range that have or had contents.
    fn known_pages_in(&self, start: usize, end: usize) -> Vec<usize> {
        let mut pages = Vec::new();
        for (from, to, _) in self.pages.parts(start & !(PAGE - 1), end) {
            let mut at = from;
            while let Some((known, chunk_end)) = self.pages.next_known(at, to) {
                let touched = |address: &usize| self.pages.state(*address) != State::Untouched;
                pages.extend((known & !(PAGE - 1)..chunk_end).step_by(PAGE).filter(touched));
                at = chunk_end;
            }
        }
        pages
    }

    /// Bytes of a range that have or had contents, and the smallest range that holds them. Cost: a look at each page
    /// that is known.
    pub fn touched_in(&self, range: Range<usize>) -> (usize, Range<usize>) {
        let pages = self.known_pages_in(range.start, range.end);
        match (pages.first(), pages.last()) {
            (Some(first), Some(last)) => {
                let place = (*first).max(range.start)..(*last + PAGE).min(range.end);
                ((pages.len() * PAGE).min(range.len()), place)
            }
            _ => (0, range.start..range.start),
        }
    }

    /// Pages that may be used, and pages that are.
    fn room(&self) -> (u64, u64) {
        (self.account.limit(), self.charge())
    }

    fn has_room(&self) -> bool {
        let (most, used) = self.room();
        used + 1 < most
    }

    /// Moves pages that the policy has given up out of memory, however hot, and stores them. Returns those that left
    /// where they belong.
    fn page_out(&mut self, pages: &mut Vec<(PageId, Shadow)>) -> usize {
        let parked = self.park_these(pages);
        pages.clear();
        // They are the last of those that wait.
        while self.moving.parked() > 0 && self.store_oldest() > 0 {}
        self.settle();
        parked
    }
}

/// What a monitor sees of an engine, and what its schemes can do there.
struct DamonOps<'a> {
    engine: &'a mut Engine,
    rule: SortRule,
    /// What the regions follow; `None` if they stay where they are.
    view: Option<View>,
    /// Addresses under check.
    checked: &'a mut Vec<usize>,
    /// Addresses whose accesses are not seen, sorted.
    unseen: &'a [usize],
    /// Pages about to be evicted.
    batch: &'a mut Vec<(PageId, Shadow)>,
}

impl DamonOps<'_> {
    /// The page at an address, if it is in memory, and whether it is set aside.
    fn page(&self, address: u64) -> Option<(PageId, bool)> {
        let (page, entry) = self.engine.pages.find(usize::try_from(address).ok()?)?;
        match entry.state() {
            State::Resident => Some((page, false)),
            State::SetAside => Some((page, true)),
            _ => None,
        }
    }

    /// Makes the policy give up a page by request. A kernel's policy leaves a shadow entry as for any other page, so
    /// that the page's return is a refault. It keeps a page that is on no list yet (spec: damos §3.2, overview §5).
    fn choose(&mut self, page: PageId) {
        let engine = &mut *self.engine;
        engine.choosing.page_out(page, engine.pages.table(), self.batch);
    }

    fn evict_batch(&mut self) -> u64 {
        self.engine.page_out(self.batch) as u64 * PAGE as u64
    }
}

impl AccessSampler for DamonOps<'_> {
    fn prepare(&mut self, _: usize, address: u64) {
        self.checked.push(address as usize & !(PAGE - 1));
    }

    fn accessed(&mut self, _: usize, address: u64) -> bool {
        let page = address as usize & !(PAGE - 1);
        self.engine.was_touched(page) && self.unseen.binary_search(&page).is_err()
    }

    fn ranges(&mut self, _: usize) -> Option<Vec<Range<u64>>> {
        self.engine.ranges_in(self.view?)
    }

    fn work_ns(&self) -> u64 {
        sys::thread_time()
    }
}

impl SchemeActor for DamonOps<'_> {
    fn refuses(&self, action: &Action) -> Option<&'static str> {
        refusal(action, self.engine.policy_name())
    }

    fn folio(&mut self, _: usize, address: u64) -> Option<Folio> {
        let (page, _) = self.page(address)?;
        Some(Folio { page, size: PAGE as u64, at_head: true, anon: true, active: false, mapped: true, memcg: Some(0) })
    }

    fn is_young(&mut self, folio: &Folio) -> bool {
        self.engine.pages.entry(folio.page).state() == State::Resident
    }

    fn make_old(&mut self, folio: &Folio) {
        let mut one = vec![self.engine.pages.address(folio.page)];
        self.engine.set_aside(&mut one);
    }

    fn act(&mut self, action: &Action, folio: &Folio) -> u64 {
        let entry = self.engine.pages.entry(folio.page);
        if !matches!(entry.state(), State::Resident | State::SetAside) {
            return 0;
        }
        match action {
            Action::LruPrio | Action::LruDeprio => {
                let engine = &mut *self.engine;
                engine.choosing.sort(folio.page, *action == Action::LruPrio, self.rule, engine.pages.table());
                folio.size
            }
            Action::Pageout if entry.state() == State::Resident && entry.must_stay() => 0,
            Action::Pageout => {
                self.choose(folio.page);
                if self.batch.len() == BATCH { self.evict_batch() } else { 0 }
            }
            _ => 0,
        }
    }

    fn finish(&mut self, action: &Action) -> u64 {
        if *action == Action::Pageout && !self.batch.is_empty() { self.evict_batch() } else { 0 }
    }

    fn advise(&mut self, action: &Action, _: usize, range: Range<u64>) -> bool {
        let known = self.engine.known_pages_in(range.start as usize, range.end as usize);
        let in_memory = |state| matches!(state, State::Resident | State::SetAside);
        for address in known {
            let Some((page, entry)) = self.engine.pages.find(address) else { continue };
            match action {
                Action::Willneed if !in_memory(entry.state()) && self.engine.has_room() => {
                    self.engine.hold(address, 1, false);
                    self.engine.release(address, 1);
                }
                Action::Willneed => {}
                Action::Pageout | Action::Cold if !in_memory(entry.state()) => {}
                Action::Pageout if entry.state() == State::Resident && entry.must_stay() => {}
                Action::Pageout => self.choose(page),
                Action::Cold => {
                    let engine = &mut *self.engine;
                    engine.choosing.sort(page, false, self.rule, engine.pages.table());
                }
                _ => return false,
            }
            if self.batch.len() == BATCH {
                self.evict_batch();
            }
        }
        if !self.batch.is_empty() {
            self.evict_batch();
        }
        matches!(action, Action::Willneed | Action::Pageout | Action::Cold)
    }

    fn free_permille(&self) -> u64 {
        let (most, used) = self.engine.room();
        most.saturating_sub(used) * 1000 / most.max(1)
    }

    fn psi_some_us(&self) -> u64 {
        self.engine.statistics().waited_again / 1000
    }

    fn node_memory(&self, node: u32) -> Option<(u64, u64)> {
        let (most, used) = self.engine.room();
        (node == 0).then_some((most, most.saturating_sub(used)))
    }

    fn active_inactive(&self) -> Option<[u64; 2]> {
        self.engine.choosing.active_inactive()
    }

    fn node_of(&self, _: u64) -> Option<u32> {
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::Stores;
    use crate::{Account, EngineOptions, Outcome, Shared};
    use refault_linux::uffd::Uffd;

    #[test]
    fn intervals_are_stretched_together_and_come_back_to_what_was_wanted() {
        let wanted = Attributes::default();
        let longer = stretched(&wanted, &wanted, 3.0);
        assert_eq!((longer.sample_interval, longer.aggr_interval), (15_000, 300_000));
        assert_eq!(stretched(&longer, &wanted, 0.1), wanted);
        let longest = stretched(&longer, &wanted, 1e9);
        assert_eq!((longest.sample_interval, longest.max_nr_accesses()), (MAX_SAMPLE, wanted.max_nr_accesses()));
        let goal = IntervalsGoal { access_bp: 40, aggrs: 3, min_sample_us: 5000, max_sample_us: 20_000 };
        let tuned = Attributes { intervals_goal: Some(goal), ..wanted };
        let bounded = stretched(&tuned, &tuned, 100.0);
        assert_eq!(
            (bounded.sample_interval, bounded.intervals_goal.map(|goal| goal.min_sample_us)),
            (20_000, Some(20_000))
        );
        assert_eq!(bounded.check(Profile::K72), Ok(()));
    }

    const PAGES: usize = 200;

    /// An engine with room for all of some memory, each page of which was written once, and where that lies; none where
    /// userfaultfd is refused.
    fn engine(policy: &str) -> Option<(Engine, usize)> {
        let uffd = Uffd::open().ok()?;
        // SAFETY: a fresh mapping of atomics, for which zeros are values; it is never given up.
        let shared: &Shared = unsafe { &*(sys::map(Shared::BYTES) as *const Shared) };
        shared.set_limit(64 << 20);
        // SAFETY: the segment stays mapped.
        let account = unsafe { Account::join(shared, None) };
        let store = Stores::new(1 << 30, shared.limit_bytes(), None, 0).ok()?;
        let options = EngineOptions { policy: policy.into(), store, account, resident_only: false };
        let mut engine = Engine::new(uffd, options, || 0).ok()?;
        let start = sys::map(PAGES * PAGE);
        let attributes =
            crate::Attributes { protection: crate::Attributes::READ_WRITE, ..crate::Attributes::default() };
        assert!(engine.manage(start, PAGES * PAGE, attributes));
        for page in 0..PAGES {
            assert_eq!(engine.fault(start + page * PAGE, true), Outcome::Served);
            // SAFETY: the page is there now, and only this test knows of it.
            unsafe { *((start + page * PAGE) as *mut usize) = page + 1 };
        }
        Some((engine, start))
    }

    /// Spec: damos §3.2, overview §5 row 19: page-out leaves a shadow entry as any other eviction, by which the page's
    /// return is a refault. Policies without such entries forget the page.
    #[test]
    fn what_a_scheme_paged_out_is_a_refault_when_it_comes_back() {
        for (policy, refaults) in [("classic{batch=0}", 100), ("mglru{batch=0}", 100), ("fifo", 0)] {
            let Some((mut engine, start)) = engine(policy) else {
                return refault_testing::skip_required("userfaultfd is refused");
            };
            // By the addresses of memory, and by those of a program's mappings.
            for (part, by_call) in [(0..100, false), (100..200, true)] {
                let before = engine.choosing.counters().workingset_refault_anon;
                let (mut checked, mut batch) = (Vec::new(), Vec::new());
                let mut ops = DamonOps {
                    engine: &mut engine,
                    rule: SortRule::MarkAccessed,
                    view: None,
                    checked: &mut checked,
                    unseen: &[],
                    batch: &mut batch,
                };
                let range = (start + part.start * PAGE) as u64..(start + part.end * PAGE) as u64;
                if by_call {
                    assert!(ops.advise(&Action::Pageout, 0, range));
                } else {
                    let mut applied = 0;
                    for address in range.step_by(PAGE) {
                        let folio = ops.folio(0, address).expect("it is in memory");
                        applied += ops.act(&Action::Pageout, &folio);
                    }
                    applied += ops.finish(&Action::Pageout);
                    assert_eq!(applied, 100 * PAGE as u64, "{policy}");
                }
                assert_eq!(engine.usage().resident_pages, PAGES as u64 - 100, "{policy}");
                for page in part {
                    let address = start + page * PAGE;
                    assert_eq!(engine.fault(address, false), Outcome::Served);
                    // SAFETY: the page is there now, and only this test knows of it.
                    assert_eq!(unsafe { *(address as *const usize) }, page + 1, "{policy}");
                }
                let counted = engine.choosing.counters().workingset_refault_anon - before;
                assert_eq!(counted, refaults, "{policy}, {by_call}");
            }
        }
    }

    #[test]
    fn what_has_no_effect_is_refused_in_words() {
        assert_eq!(refusal(&Action::LruPrio, "mglru"), None);
        assert!(refusal(&Action::LruPrio, "fifo").is_some_and(|why| why.contains("lists to sort")));
        assert!(refusal(&Action::Hugepage, "mglru").is_some_and(|why| why.contains("small pages")));
        assert!(refusal(&Action::MigrateHot { node: 0 }, "mglru").is_some_and(|why| why.contains("no nodes")));
        assert_eq!(refusal(&Action::Pageout, "sieve"), None);
    }
}
