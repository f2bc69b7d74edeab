//! Scan amounts and the shrinking of lists (spec: classic §6–§10).
//!
//! Kernel: `prepare_scan_control`, `get_scan_count`, `shrink_lruvec`, `shrink_active_list`, `shrink_inactive_list`,
//! `isolate_lru_folios` in `mm/vmscan.c`; `lru_note_cost` in `mm/swap.c`.

use crate::classic::lruvec::list_index;
use crate::classic::{Classic, RefaultRule, balance};
use crate::counters::Counters;
use crate::memory::{IoState, Memory, References, Writeback, free_swap, has_swap, node_frames, wake_flushers};
use crate::page::{LruvecId, PageId, PageType, Shadow};
use crate::reclaim::batch_stage::{self, BatchEngine, Caller, Verdict, check_references};
use crate::reclaim::control::{DEFAULT_PRIORITY, SWAP_CLUSTER_MAX, ScanControl, unspared};
use crate::reclaim::record::{ACTIVE, FILE, LRU, PageRecord, WORKINGSET, fetch};

/// How many times dearer than a rotation a page of I/O is.
const IO_COST: u64 = 32;

/// What a pass finds out before it visits lruvecs (spec: classic §8).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pass {
    /// Active lists that may be shrunk.
    may_deactivate: [bool; 2],
    /// Enough cold file pages that anonymous memory is left alone.
    cache_trim: bool,
    /// So few file pages on the node that dropping them all would not do: only anonymous memory is scanned.
    file_is_tiny: bool,
    /// Costs as they were when the pass began.
    cost: [u64; 2],
}

/// How a lruvec's scan is divided between the types.
enum Balance {
    FileOnly,
    AnonOnly,
    Equal,
    Fractions { parts: [u64; 2], whole: u64 },
}

impl Classic {
    /// List size of a type, descendants included.
    #[inline]
    pub(super) fn subtree_size(&self, lruvec: LruvecId, page_type: PageType, active: bool) -> u64 {
        self.hierarchy.subtree(lruvec).iter().map(|member| self.lruvecs[*member as usize].size(page_type, active)).sum()
    }

    /// Whether the inactive list of a type is too small beside the active one (spec: classic §6).
    #[inline]
    pub(super) fn inactive_is_low(&self, lruvec: LruvecId, page_type: PageType) -> bool {
        let inactive = self.subtree_size(lruvec, page_type, false);
        let active = self.subtree_size(lruvec, page_type, true);
        balance::inactive_is_low(inactive, active)
    }

    pub(super) fn prepare_pass<M: Memory>(&mut self, control: &ScanControl, memory: &mut M) {
        let target = &self.lruvecs[control.target as usize];
        let may_deactivate = PageType::ALL.map(|page_type| {
            let t = page_type.index();
            control.force_deactivate
                || target.workingset_activate[t] != target.snapshot[t]
                || self.inactive_is_low(control.target, page_type)
        });
        let inactive_file = self.subtree_size(control.target, PageType::File, false);
        let file_is_tiny = !control.targeted && !may_deactivate[PageType::Anon.index()] && {
            let frames = node_frames(memory, control.target);
            let file = inactive_file + self.subtree_size(control.target, PageType::File, true);
            file + frames.free <= frames.high_watermark
                && self.subtree_size(control.target, PageType::Anon, false) >> control.priority != 0
        };
        self.pass = Pass {
            file_is_tiny,
            may_deactivate,
            cache_trim: inactive_file >> control.priority != 0
                && !may_deactivate[PageType::File.index()]
                && !control.no_cache_trim,
            cost: target.cost,
        };
    }

    /// What a node pass has shown: whether sparing anonymous memory was in vain, and, for background reclaim, how the
    /// node's dirty pages stand (spec: classic §10, overview §4.2).
    pub(super) fn note_pass<M: Memory>(&mut self, control: &mut ScanControl, reclaimed: u64, memory: &mut M) {
        // 6.1 makes no second attempt (spec: classic §13).
        if self.pass.cache_trim && reclaimed == 0 && !self.params.plain_costs {
            control.cache_trim_failed = true;
        }
        let (met, target) = (control.met, &mut self.lruvecs[control.target as usize]);
        let congested = met.dirty > 0 && met.dirty == met.congested;
        if control.background {
            target.pressure.writeback |= met.writeback > 0 && met.writeback == met.taken;
            target.pressure.dirty |= met.unqueued_dirty == met.file_taken;
            target.pressure.congested |= congested;
            return;
        }
        target.group_congested |= congested && control.targeted;
        if (target.group_congested || target.pressure.congested)
            && let Some(writeback) = memory.writeback()
        {
            writeback.congested(control.target);
        }
    }

    fn balance<M: Memory>(&self, lruvec: LruvecId, control: &ScanControl, memory: &mut M) -> Balance {
        let swappiness = u64::from(control.swappiness.unwrap_or(self.params.swappiness));
        if !control.may_swap || free_swap(memory, lruvec) == 0 || (control.targeted && swappiness == 0) {
            return Balance::FileOnly;
        }
        if control.priority == 0 && swappiness != 0 {
            return Balance::Equal;
        }
        if self.pass.file_is_tiny {
            return Balance::AnonOnly;
        }
        if self.pass.cache_trim {
            return Balance::FileOnly;
        }
        let parts = balance::shares(swappiness, self.pass.cost);
        Balance::Fractions { parts, whole: parts[0] + parts[1] }
    }

    /// Pages to scan of each list, in the order of [`list_index`] (spec: classic §9).
    fn scan_amounts<M: Memory>(&self, lruvec: LruvecId, control: &mut ScanControl, memory: &mut M) -> [u64; 4] {
        let balance = self.balance(lruvec, control, memory);
        let spared = control.spared_share(lruvec, memory);
        let mut amounts = [0; 4];
        for page_type in PageType::ALL {
            for active in [false, true] {
                let size = self.lruvecs[lruvec as usize].size(page_type, active);
                let scan = unspared(size, spared) >> control.priority;
                amounts[list_index(page_type, active)] = match balance {
                    Balance::Equal => scan,
                    Balance::FileOnly if page_type == PageType::File => scan,
                    Balance::AnonOnly if page_type == PageType::Anon => scan,
                    Balance::FileOnly | Balance::AnonOnly => 0,
                    Balance::Fractions { parts, whole } => scan * parts[page_type.index()] / whole.max(1),
                };
            }
        }
        amounts
    }

    /// Shrinks one lruvec (spec: classic §10).
    pub(super) fn shrink<M: Memory>(&mut self, lruvec: LruvecId, control: &mut ScanControl, memory: &mut M) {
        const INACTIVE_ANON: usize = list_index(PageType::Anon, false);
        const INACTIVE_FILE: usize = list_index(PageType::File, false);
        const ACTIVE_FILE: usize = list_index(PageType::File, true);
        let targets = self.scan_amounts(lruvec, control, memory);
        let mut left = targets;
        let mut reclaimed = 0;
        // The first pass of direct reclaim does not stop early, so that all groups give.
        let stops_early = control.targeted || control.background || control.priority != DEFAULT_PRIORITY;
        while left[INACTIVE_ANON] + left[ACTIVE_FILE] + left[INACTIVE_FILE] > 0 {
            for page_type in PageType::ALL {
                for active in [false, true] {
                    let list = list_index(page_type, active);
                    let chunk = left[list].min(u64::from(SWAP_CLUSTER_MAX));
                    if chunk == 0 {
                        continue;
                    }
                    left[list] -= chunk;
                    if !active {
                        reclaimed += self.shrink_inactive(lruvec, page_type, chunk, control, memory);
                    } else if self.pass.may_deactivate[page_type.index()] {
                        self.shrink_active(lruvec, page_type, chunk, memory);
                    } else {
                        control.skipped_deactivate = true;
                    }
                }
            }
            if reclaimed < control.goal || !stops_early {
                continue;
            }
            match balance::rest_after_goal(&targets, &left) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        control.reclaimed += reclaimed;
        if has_swap(memory) && self.inactive_is_low(lruvec, PageType::Anon) {
            self.shrink_active(lruvec, PageType::Anon, u64::from(SWAP_CLUSTER_MAX), memory);
        }
    }

    /// Takes up to `count` pages off the tail of a list into `self.isolated`, oldest first.
    fn isolate(&mut self, lruvec: LruvecId, page_type: PageType, active: bool, count: u64) {
        debug_assert!(self.isolated.is_empty());
        fetch(self.lruvecs[lruvec as usize].list(page_type, active).victims(count as u32), &self.records);
        let list = self.lruvecs[lruvec as usize].list_mut(page_type, active);
        for _ in 0..count {
            let Some(page) = list.pop_tail() else { break };
            // Batches were drained just before, so every listed page can be isolated.
            self.records[page as usize].clear(LRU);
            self.isolated.push(page);
        }
    }

    /// Puts a page that was isolated back on a list, or takes it off the lists for good if it is unevictable.
    fn put_back<M: Memory>(&mut self, page: PageId, memory: &M) {
        if memory.io_state(page).any(IoState::UNEVICTABLE) {
            self.records[page as usize].cull();
        } else {
            self.list(page);
        }
    }

    /// Puts a page that is on no list at the head of the one that its flags say.
    #[inline]
    pub(super) fn list(&mut self, page: PageId) {
        let record = &mut self.records[page as usize];
        record.set(LRU);
        let (page_type, active, lruvec) = (record.page_type(), record.has(ACTIVE), record.lruvec);
        self.lruvecs[lruvec as usize].list_mut(page_type, active).push_head(&mut self.records, page);
    }

    fn shrink_inactive<M: Memory>(
        &mut self,
        lruvec: LruvecId,
        page_type: PageType,
        count: u64,
        control: &mut ScanControl,
        memory: &mut M,
    ) -> u64 {
        self.drain_batches();
        self.isolate(lruvec, page_type, false, count);
        let examined = self.isolated.len() as u64;
        if examined == 0 {
            return 0;
        }
        let pages = std::mem::take(&mut self.isolated);
        let mut survivors = std::mem::take(&mut self.survivors);
        let pressure = self.lruvecs[control.target as usize].pressure;
        let caller = Caller {
            ignores_references: false,
            background: control.background,
            node_in_writeback: pressure.writeback,
            node_dirty: pressure.dirty,
        };
        let outcome = batch_stage::run(self, &pages, &mut survivors, caller, memory);
        control.note_batch(&outcome, examined, page_type == PageType::File);
        if outcome.unqueued_dirty == examined {
            wake_flushers(memory);
        }
        for &page in &survivors {
            if self.records[page as usize].has(ACTIVE) && self.params.rule == RefaultRule::Mainline {
                self.advance_age(lruvec, 1);
            }
            self.put_back(page, memory);
        }
        self.isolated = pages;
        self.isolated.clear();
        survivors.clear();
        self.survivors = survivors;
        self.count_scan(page_type, examined, outcome.reclaimed);
        self.note_cost(lruvec, page_type, outcome.pages_written, examined - outcome.reclaimed);
        outcome.reclaimed
    }

    fn count_scan(&mut self, page_type: PageType, scanned: u64, stolen: u64) {
        let counters = &mut self.counters;
        counters.pgscan += scanned;
        counters.pgsteal += stolen;
        match page_type {
            PageType::Anon => {
                counters.pgscan_anon += scanned;
                counters.pgsteal_anon += stolen;
            }
            PageType::File => {
                counters.pgscan_file += scanned;
                counters.pgsteal_file += stolen;
            }
        }
    }

    /// Moves pages from the tail of an active list to the inactive one, except young executable file pages
    /// (spec: classic §7).
    pub(super) fn shrink_active<M: Memory>(
        &mut self,
        lruvec: LruvecId,
        page_type: PageType,
        count: u64,
        memory: &mut M,
    ) {
        self.drain_batches();
        self.isolate(lruvec, page_type, true, count);
        let pages = std::mem::take(&mut self.isolated);
        self.counters.pgrefill += pages.len() as u64;
        let mut rotated = 0;
        // Kept pages go back first, as the kernel does; the lists differ, so only the order within each matters.
        for &page in &pages {
            if memory.io_state(page).any(IoState::UNEVICTABLE) {
                self.records[page as usize].cull();
                continue;
            }
            let references = self.take_references(page, memory);
            if references.mappings > 0 && references.executable && self.records[page as usize].has(FILE) {
                rotated += 1;
                if self.params.rule == RefaultRule::Mainline {
                    self.advance_age(lruvec, 1);
                }
            } else {
                let record = &mut self.records[page as usize];
                record.clear(ACTIVE);
                record.set(WORKINGSET);
                self.counters.pgdeactivate += 1;
            }
            self.list(page);
        }
        self.isolated = pages;
        self.isolated.clear();
        // 6.1 noted no cost here, so it did not let the costs decay either (spec: classic §13).
        if rotated > 0 && !self.params.plain_costs {
            self.note_cost(lruvec, page_type, 0, rotated);
        }
    }

    fn take_references<M: Memory>(&mut self, page: PageId, memory: &mut M) -> References {
        self.counters.reference_checks += u64::from(memory.is_mapped(page));
        memory.take_references(page)
    }

    /// Notes what reclaiming a type has cost, in the lruvec and all above (spec: classic §9, "Costs").
    #[inline]
    pub(super) fn note_cost(&mut self, lruvec: LruvecId, page_type: PageType, io: u64, rotated: u64) {
        let cost = if self.params.plain_costs { io } else { io * IO_COST + rotated };
        let above = self.hierarchy.ancestors(lruvec).len();
        for level in 0..above {
            let member = self.hierarchy.ancestors(lruvec)[level];
            let limit =
                self.hierarchy.subtree(member).iter().map(|below| self.lruvecs[*below as usize].total()).sum::<u64>()
                    / 4;
            let costs = &mut self.lruvecs[member as usize].cost;
            costs[page_type.index()] += cost;
            if costs[0] + costs[1] > limit {
                costs[0] /= 2;
                costs[1] /= 2;
            }
        }
    }
}

impl BatchEngine for Classic {
    #[inline]
    fn record(&mut self, page: PageId) -> &mut PageRecord {
        &mut self.records[page as usize]
    }

    #[inline]
    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    #[inline]
    fn check_references<M: Memory>(&mut self, page: PageId, memory: &mut M) -> Verdict {
        let references = self.take_references(page, memory);
        check_references(&mut self.records[page as usize], references)
    }

    #[inline]
    fn shadow(&mut self, page: PageId) -> Shadow {
        self.eviction_shadow(page)
    }

    #[inline]
    fn evicted(&mut self, page: PageId) {
        let page_type = self.records[page as usize].page_type();
        self.records[page as usize].flags = 0;
        self.count_eviction(page_type);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classic::ClassicParams;
    use crate::memory::{Eviction, SwapSpace};
    use crate::policy::{Admission, BackgroundPass, NodeReclaim, PassOutcome, Policy, ReclaimRequest};

    /// Anonymous pages below `file`, file pages from there on, and what the file pages' contents are doing.
    struct Pages {
        file: PageId,
        state: IoState,
        evicted: Vec<PageId>,
        flushers_woken: u32,
    }

    impl Memory for Pages {
        fn take_references(&mut self, _: PageId) -> References {
            References::default()
        }
        fn evict(&mut self, page: PageId, _: Shadow) -> Eviction {
            self.evicted.push(page);
            if page >= self.file && self.state.any(IoState::DIRTY) {
                return Eviction::WriteStarted;
            }
            Eviction::Freed { pages_written: 0 }
        }
        fn is_resident(&self, _: PageId) -> bool {
            true
        }
        fn io_state(&self, page: PageId) -> IoState {
            if page >= self.file { self.state } else { IoState::CLEAN }
        }
        fn swap(&mut self) -> Option<&mut impl SwapSpace> {
            Some(self)
        }
        fn writeback(&mut self) -> Option<&mut impl Writeback> {
            Some(self)
        }
    }

    impl SwapSpace for Pages {
        fn free_swap(&self, _: LruvecId) -> u64 {
            1 << 20
        }
    }

    impl Writeback for Pages {
        fn wake_flushers(&mut self) {
            self.flushers_woken += 1;
        }
    }

    fn filled(anon: PageId, file: PageId, state: IoState) -> (Classic, Pages) {
        let mut memory = Pages { file: anon, state, evicted: Vec::new(), flushers_woken: 0 };
        let mut classic = Classic::new(ClassicParams { batch: 0, ..ClassicParams::default() });
        classic.grow((anon + file) as usize);
        for page in 0..anon + file {
            let page_type = if page < anon { PageType::Anon } else { PageType::File };
            classic.admit(page, &Admission::read(page_type), &mut memory);
        }
        (classic, memory)
    }

    fn pass(classic: &mut Classic, memory: &mut Pages, no_cache_trim: bool) -> PassOutcome {
        let pass = BackgroundPass { root: 0, goal: 32, priority: 1, min_ttl: 0, no_cache_trim };
        classic.background_pass(&pass, memory)
    }

    #[test]
    fn anonymous_memory_is_not_spared_a_second_time_in_vain() {
        // Plenty of inactive file pages, none of which can go: they are locked.
        let (mut classic, mut memory) = filled(200, 200, IoState::LOCKED);
        let outcome = pass(&mut classic, &mut memory, false);
        assert!(outcome.cache_trim_failed && outcome.reclaimed == 0, "{outcome:?}");
        assert_eq!(outcome.scanned, 0, "pages that are locked do not count as scanned (spec: overview §5, rows 1, 2)");
        assert!(classic.counters().pgscan_file > 0);
        let outcome = pass(&mut classic, &mut memory, true);
        assert!(!outcome.cache_trim_failed && outcome.reclaimed > 0, "{outcome:?}");
        assert!(outcome.scanned >= outcome.reclaimed && memory.evicted.iter().all(|page| *page < 200));
    }

    #[test]
    fn background_reclaim_writes_dirty_pages_that_it_comes_round_to_and_limits_never_do() {
        let (mut classic, mut memory) = filled(0, 200, IoState::DIRTY);
        for _ in 0..4 {
            let request = ReclaimRequest { target: 0, goal: 32, incoming: None };
            assert_eq!(classic.reclaim(&request, &mut memory), 0);
        }
        assert!(memory.flushers_woken > 0, "whole batches of dirty pages wake the flushers");
        assert!(classic.counters().nr_vmscan_immediate_reclaim >= 200 && memory.evicted.is_empty());
        // Background reclaim finds nothing else either, says so of the node, and writes what is marked.
        let mut passes = 0;
        while memory.evicted.is_empty() {
            pass(&mut classic, &mut memory, false);
            passes += 1;
            assert!(passes < 10, "no page is written");
        }
        assert!(passes > 1, "the first pass only finds out");
        // A balanced node begins anew.
        classic.background_done(0, true);
        memory.evicted.clear();
        pass(&mut classic, &mut memory, false);
        assert!(memory.evicted.is_empty());
    }

    #[test]
    fn background_reclaim_that_meets_pages_in_flight_again_waits() {
        let (mut classic, mut memory) = filled(0, 200, IoState::DIRTY.with(IoState::WRITEBACK));
        let waits: Vec<bool> = (0..8).map(|_| pass(&mut classic, &mut memory, false).waits_for_writes).collect();
        assert!(!waits[0] && waits.contains(&true), "{waits:?}");
        assert!(memory.evicted.is_empty() && memory.flushers_woken == 0);
    }
}
