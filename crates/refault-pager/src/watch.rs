//! A monitor and its schemes over a pager's memory.
//!
//! A [`Watch`] is driven by a thread of its caller: each [`Watch::step`] ends a sampling interval, begins the next and says
//! how long to wait. A check is drop-and-scan on one page: an entry that is there is dropped (all of an interval by one
//! call where the kernel allows it) and looked for again at the interval's end. The policy loses no accessed bit by that, nor
//! the monitor by the policy's drops ([`crate::engine`]). Addresses are the program's; pages that are not in memory are not
//! accessed.
//!
//! The cost is bounded by what the caller allows: the share of one processor that the thread used is measured, and when
//! it exceeds the bound the intervals are stretched, results converted, until it does not. Cost of a check: one scan of
//! one page and, if it was accessed, a drop and one more kernel-resolved fault of the program.

use std::ops::Range;
use std::time::{Duration, Instant};

use refault_core::PageId;
use refault_core::monitor::{AccessSampler, Attributes, IntervalsGoal, Profile, View, three_areas};
use refault_core::policy::SortRule;
use refault_core::schemes::{Action, Folio, Kdamond, Next, Observer, SchemeActor};
use refault_store::PAGE_SIZE;

use crate::accessed::AccessSource;
use crate::dropper::drop_pages;
use crate::pager::{Inner, Pager};
use crate::state::State;
use crate::turn::Turn;
use crate::worker::{BATCH, Worker as Buffers};

/// How often the share of the processor is looked at …
const GOVERN_EVERY: Duration = Duration::from_secs(1);
/// … and how often in the first seconds, in which nothing is known yet.
const GOVERN_FIRST: Duration = Duration::from_millis(200);
const FIRST: Duration = Duration::from_secs(2);
/// Intervals are never stretched beyond this, in µs.
const LONGEST_SAMPLE: u64 = 10_000_000;

/// Why an action has no effect on a program's memory under a policy, as the end of a sentence;
/// `None` if it has one.
pub fn refusal(action: &Action, policy: &str) -> Option<&'static str> {
    match action {
        Action::Stat | Action::Pageout | Action::Willneed => None,
        Action::LruPrio | Action::LruDeprio | Action::Cold if crate::policies::sorts(policy) => None,
        Action::LruPrio | Action::LruDeprio | Action::Cold => {
            Some("needs a policy with lists to sort; use mglru or classic")
        }
        Action::Hugepage | Action::Nohugepage => Some("has no effect here: managed memory has small pages only"),
        Action::MigrateHot { .. } | Action::MigrateCold { .. } => {
            Some("has no effect here: managed memory knows no nodes")
        }
    }
}

/// A monitor at work over a pager. See the module.
pub struct Watch {
    pager: Pager,
    kdamond: Kdamond,
    rule: SortRule,
    /// Share of one processor that may be used, above 0.
    most_cpu: f64,
    wanted: Attributes,
    start: Instant,
    sampling: bool,
    ended: bool,
    drops: Vec<PageId>,
    buffers: Buffers,
    batch: Vec<PageId>,
    governed: (Instant, u64),
    first_cpu: u64,
}

impl Watch {
    /// Watches a pager with a kdamond made over [`Pager::ranges`]. To be called, as [`Watch::step`], by the thread whose
    /// processor time is to be bounded by `most_cpu` (0.01: one percent of one processor).
    ///
    /// # Errors
    /// The end of a sentence that says why nothing can be watched.
    pub fn new(pager: &Pager, kdamond: Kdamond, most_cpu: f64) -> Result<Watch, &'static str> {
        let inner = pager.inner();
        {
            let _gate = inner.enter();
            let mut engine = inner.engine();
            if engine.source() != AccessSource::DropAndScan {
                return Err("this kernel does not show which pages were accessed");
            }
            engine.bits().watch();
        }
        let rule =
            if kdamond.monitor().profile() == Profile::K72 { SortRule::Activate } else { SortRule::MarkAccessed };
        let now = (Instant::now(), thread_cpu_ns());
        Ok(Watch {
            pager: pager.clone(),
            rule,
            most_cpu: most_cpu.max(1e-6),
            wanted: *kdamond.monitor().attributes(),
            kdamond,
            start: now.0,
            sampling: false,
            ended: false,
            drops: Vec::with_capacity(1024),
            buffers: Buffers::new(),
            batch: Vec::with_capacity(BATCH),
            governed: now,
            first_cpu: now.1,
        })
    }

    /// The monitor and its schemes.
    pub fn kdamond(&self) -> &Kdamond {
        &self.kdamond
    }

    /// Nanoseconds of processor time that the watching thread has used since the start. Only for that thread.
    pub fn cpu_ns(&self) -> u64 {
        thread_cpu_ns() - self.first_cpu
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Ends the sampling interval that has passed and begins the next. Returns how long to wait before the next call;
    /// `None` if there is nothing left to watch.
    pub fn step<O: Observer>(&mut self, observer: &mut O) -> Option<Duration> {
        if self.ended {
            return None;
        }
        self.govern();
        let inner = self.pager.inner().clone();
        let _gate = inner.enter();
        let mut hands = Hands {
            inner: &inner,
            rule: self.rule,
            drops: &mut self.drops,
            buffers: &mut self.buffers,
            batch: &mut self.batch,
        };
        if self.sampling {
            if !self.kdamond.schemes().is_empty() {
                inner.take_reports(&mut inner.engine());
            }
            self.kdamond.finish(self.start.elapsed().as_micros() as u64, &mut hands, observer);
        }
        let next = self.kdamond.begin(&mut hands);
        hands.flush_drops();
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
        let now = Instant::now();
        let passed = now - self.governed.0;
        let whole = now - self.start;
        if passed < if whole < FIRST { GOVERN_FIRST } else { GOVERN_EVERY } {
            return;
        }
        let cpu = thread_cpu_ns();
        let share = (cpu - self.governed.1) as f64 / passed.as_nanos() as f64;
        // What was too much at first is made up for, so that the share holds for the whole run.
        let since_start = (cpu - self.first_cpu) as f64 / whole.as_nanos() as f64;
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

/// The attributes with intervals changed by a factor, never below those wanted. Self-tuned intervals get a new lower bound.
fn stretched(now: &Attributes, wanted: &Attributes, factor: f64) -> Attributes {
    let scale = |value: u64, least: u64| ((value as f64 * factor) as u64).clamp(least, LONGEST_SAMPLE.max(least));
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

fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Pager {
    /// Where the program's managed memory lies now: sorted, without overlap; in the view of a process its three areas,
    /// where it has as many.
    pub fn ranges(&self, view: View) -> Vec<Range<u64>> {
        let inner = self.inner();
        let _gate = inner.enter();
        inner.ranges_in(view)
    }

    /// Collects the runs of pages (first page, length) that were accessed since the last call, and forgets it: a record at
    /// the granularity of the calls. For memory that is not limited, because the policy sees no accesses then. False where
    /// the kernel does not show accesses. Cost: 20 ns an accessed page to find it and 0.25 µs to forget it, and a fault that
    /// the kernel resolves (1.4 µs) when it is touched again.
    pub fn take_accessed(&self, runs: &mut Vec<(PageId, u32)>) -> bool {
        const AT_ONCE: u32 = 512;
        let inner = self.inner();
        let taken = {
            let _gate = inner.enter();
            inner.arena.taken()
        };
        for (first, pages) in taken {
            let mut at = first;
            while at < first + pages {
                let end = (at / AT_ONCE * AT_ONCE + AT_ONCE).min(first + pages);
                let _gate = inner.enter();
                let engine = inner.engine();
                if engine.source() != AccessSource::DropAndScan {
                    return false;
                }
                engine.for_present_runs(at, end, &mut |first, pages| {
                    inner.arena.drop_entries(&Turn::take(), first, pages);
                    runs.push((first, pages));
                });
                at = end;
            }
        }
        true
    }
}

impl Inner {
    fn ranges_in(&self, view: View) -> Vec<Range<u64>> {
        let address = |page: PageId| self.arena.address(page) as u64;
        let taken = self.arena.taken();
        let mut runs: Vec<Range<u64>> =
            taken.into_iter().map(|(first, pages)| address(first)..address(first + pages)).collect();
        if view == View::Virtual
            && let Some(areas) = three_areas(&runs, PAGE_SIZE as u64)
        {
            runs = areas.to_vec();
        }
        if runs.is_empty() {
            runs.push(address(0)..address(1));
        }
        runs
    }
}

/// What a monitor sees of a pager, and what its schemes can do there.
pub struct Hands<'a> {
    inner: &'a Inner,
    rule: SortRule,
    drops: &'a mut Vec<PageId>,
    buffers: &'a mut Buffers,
    batch: &'a mut Vec<PageId>,
}

impl Hands<'_> {
    fn page(&self, address: u64) -> Option<PageId> {
        let page = self.inner.arena.page_at(usize::try_from(address).ok()?)?;
        (self.inner.word(page).load().state() == State::Resident).then_some(page)
    }

    /// Drops the entries of the pages under check, all by one call where the kernel takes it.
    fn flush_drops(&mut self) {
        self.drops.sort_unstable();
        self.drops.dedup();
        // SAFETY: the pages lie in the arena's mapping, which is shared.
        unsafe { drop_pages(self.inner.arena.base(), self.drops) };
        self.drops.clear();
    }

    fn pages(&self, range: &Range<u64>) -> (PageId, u32) {
        let base = self.inner.arena.base() as u64;
        let end = ((range.end.saturating_sub(base)).div_ceil(PAGE_SIZE as u64)).min(u64::from(self.inner.arena.high()));
        let first = (range.start.saturating_sub(base) / PAGE_SIZE as u64).min(end);
        (first as PageId, (end - first) as u32)
    }

    fn evict_batch(&mut self) -> u64 {
        let freed = self.inner.evict(self.batch, self.buffers);
        self.batch.iter().for_each(|page| self.inner.report(*page));
        self.batch.clear();
        freed * PAGE_SIZE as u64
    }
}

impl AccessSampler for Hands<'_> {
    fn prepare(&mut self, _: usize, address: u64) {
        if let Some(page) = self.page(address)
            && self.inner.engine().bits().begin_check(page)
        {
            self.drops.push(page);
        }
    }

    fn accessed(&mut self, _: usize, address: u64) -> bool {
        self.page(address).is_some_and(|page| self.inner.engine().bits().end_check(page))
    }

    fn ranges(&mut self, _: usize) -> Option<Vec<Range<u64>>> {
        Some(self.inner.ranges_in(View::Virtual))
    }

    fn work_ns(&self) -> u64 {
        thread_cpu_ns()
    }
}

impl SchemeActor for Hands<'_> {
    fn refuses(&self, action: &Action) -> Option<&'static str> {
        refusal(action, &self.inner.options.policy)
    }

    fn folio(&mut self, _: usize, address: u64) -> Option<Folio> {
        let page = self.page(address)?;
        let anon = !self.inner.ranges.has_file(page);
        Some(Folio { page, size: PAGE_SIZE as u64, at_head: true, anon, active: false, mapped: true, memcg: Some(0) })
    }

    fn is_young(&mut self, folio: &Folio) -> bool {
        self.inner.engine().bits().is_present(folio.page)
    }

    fn make_old(&mut self, folio: &Folio) {
        if self.inner.engine().bits().lend(folio.page) {
            self.inner.arena.drop_entries(&Turn::take(), folio.page, 1);
        }
    }

    fn act(&mut self, action: &Action, folio: &Folio) -> u64 {
        match action {
            Action::LruPrio | Action::LruDeprio => {
                let mut engine = self.inner.engine();
                if !engine.has(folio.page) {
                    return 0;
                }
                engine.sort(folio.page, *action == Action::LruPrio, self.rule);
                folio.size
            }
            Action::Pageout => {
                let word = self.inner.word(folio.page);
                let seen = word.load();
                if seen.state() == State::Resident && !seen.pinned() && word.begin(seen, State::Evicting) {
                    self.batch.push(folio.page);
                }
                if self.batch.len() == BATCH { self.evict_batch() } else { 0 }
            }
            _ => 0,
        }
    }

    fn finish(&mut self, action: &Action) -> u64 {
        if *action == Action::Pageout && !self.batch.is_empty() { self.evict_batch() } else { 0 }
    }

    fn advise(&mut self, action: &Action, _: usize, range: Range<u64>) -> bool {
        let (first, pages) = self.pages(&range);
        match action {
            Action::Willneed => _ = self.inner.prefetch(first, pages),
            Action::Pageout => _ = self.inner.evict_range(first, pages),
            Action::Cold => {
                for page in first..first + pages {
                    let mut engine = self.inner.engine();
                    if engine.has(page) {
                        engine.sort(page, false, self.rule);
                    }
                }
            }
            _ => return false,
        }
        true
    }

    fn free_permille(&self) -> u64 {
        let (most, used) = (self.inner.budget.maximum_pages(), self.inner.budget.used_pages());
        most.saturating_sub(used) * 1000 / most.max(1)
    }

    fn psi_some_us(&self) -> u64 {
        self.inner.pressure.some_ns() / 1000
    }

    fn node_memory(&self, node: u32) -> Option<(u64, u64)> {
        let (most, used) = (self.inner.budget.maximum_pages(), self.inner.budget.used_pages());
        (node == 0).then_some((most, most.saturating_sub(used)))
    }

    fn active_inactive(&self) -> Option<[u64; 2]> {
        self.inner.engine().active_inactive()
    }

    fn node_of(&self, _: u64) -> Option<u32> {
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_stretched_together_and_come_back_to_what_was_wanted() {
        let wanted = Attributes::default();
        let longer = stretched(&wanted, &wanted, 3.0);
        assert_eq!((longer.sample_interval, longer.aggr_interval), (15_000, 300_000));
        assert_eq!(stretched(&longer, &wanted, 0.1), wanted);
        let longest = stretched(&longer, &wanted, 1e9);
        assert_eq!((longest.sample_interval, longest.max_nr_accesses()), (LONGEST_SAMPLE, wanted.max_nr_accesses()));
        let goal = IntervalsGoal { access_bp: 40, aggrs: 3, min_sample_us: 5000, max_sample_us: 20_000 };
        let tuned = Attributes { intervals_goal: Some(goal), ..wanted };
        let bounded = stretched(&tuned, &tuned, 100.0);
        assert_eq!(
            (bounded.sample_interval, bounded.intervals_goal.map(|goal| goal.min_sample_us)),
            (20_000, Some(20_000))
        );
        assert_eq!(bounded.check(Profile::K72), Ok(()));
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
