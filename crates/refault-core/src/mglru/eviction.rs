//! Eviction: the budget of a visit, the step, sorting and isolation (spec: mglru §9, §11; §16.3, §16.8–§16.10 for 7.2).
//!
//! Kernel: `get_nr_to_scan`, `should_abort_scan`, `evict_folios`, `isolate_folios`, `scan_folios`, `sort_folio`,
//! `isolate_folio` in `mm/vmscan.c`.

use crate::counters::Counters;
use crate::memory::{IoState, Memory, free_swap, needs_write, wake_flushers};
use crate::mglru::Mglru;
use crate::mglru::aging::{governing, usable};
use crate::mglru::generation::{MAX_BATCH, MIN_BATCH};
use crate::mglru::memcg_lru::is_below_min;
use crate::page::{LruvecId, PageId, PageType, Shadow};
use crate::reclaim::batch_stage::{self, BatchEngine, Caller, Verdict};
use crate::reclaim::control::{DEFAULT_PRIORITY, ScanControl, unspared};
use crate::reclaim::record::{ACTIVE, IN_ACTIVATE, LRU, PageRecord, RECLAIM, REFERENCED, REFS_MASK, WORKINGSET, fetch};

impl Mglru {
    /// One visit of an lruvec. True if it ended with, or because of, a new generation.
    pub(super) fn shrink<M: Memory>(&mut self, id: LruvecId, control: &mut ScanControl, memory: &mut M) -> bool {
        let swappiness = self.usable_swappiness(id, control, memory);
        let aged = if self.is_7_2() {
            self.shrink_7_2(id, swappiness, control, memory)
        } else {
            self.shrink_6_12(id, swappiness, control, memory)
        };
        // All file pages met were dirty, and no write of them had begun (spec: mglru §11). 7.2 looks at single batches.
        let met = &control.met;
        if !self.is_7_2() && met.unqueued_dirty > 0 && met.unqueued_dirty == met.file_taken {
            wake_flushers(memory);
        }
        aged
    }

    /// 0 if anonymous memory cannot be evicted now.
    pub(super) fn usable_swappiness<M: Memory>(&self, id: LruvecId, control: &ScanControl, memory: &mut M) -> u64 {
        if !control.may_swap || free_swap(memory, id) < MIN_BATCH {
            return 0;
        }
        u64::from(control.swappiness.unwrap_or(self.params.swappiness))
    }

    /// The budget is looked at anew before each step, with the sizes of the moment; it is spent by pages looked at. A
    /// group that has come down to its `min` is left there, and its turn is over (spec: mglru §11).
    fn shrink_6_12<M: Memory>(
        &mut self,
        id: LruvecId,
        swappiness: u64,
        control: &mut ScanControl,
        memory: &mut M,
    ) -> bool {
        let can_anon = swappiness != 0;
        let mut done = 0;
        loop {
            if is_below_min(id, control, memory) {
                return true;
            }
            let (needs_aging, total) = self.should_age(id, can_anon);
            let budget = if !needs_aging || control.priority == DEFAULT_PRIORITY {
                total >> control.priority
            } else {
                return self.try_new_generation(id, can_anon, false, memory);
            };
            if budget == 0 {
                return false;
            }
            let scanned = self.evict_step(id, swappiness, MAX_BATCH, control, memory);
            if scanned == 0 {
                return false;
            }
            done += scanned;
            if done >= budget || self.should_abort(control, memory) {
                return false;
            }
        }
    }

    /// The budget is set once; generations are made on the way.
    fn shrink_7_2<M: Memory>(
        &mut self,
        id: LruvecId,
        swappiness: u64,
        control: &mut ScanControl,
        memory: &mut M,
    ) -> bool {
        let can_anon = swappiness != 0;
        let lruvec = &self.lruvecs[id as usize];
        let total: u64 = usable(can_anon).map(|t| lruvec.in_window(t)).sum();
        let mut left = unspared(total, control.spared_share(id, memory)) >> control.priority;
        let mut aged = false;
        while left > 0 {
            if is_below_min(id, control, memory) {
                return true;
            }
            let ages = self.should_age_7_2(id, can_anon, control.priority);
            if ages {
                aged |= self.try_new_generation(id, can_anon, false, memory);
            }
            let scanned = self.evict_step(id, swappiness, left.min(MIN_BATCH), control, memory);
            let enough = control.reclaimed >= control.goal || self.should_abort(control, memory);
            if scanned == 0 || enough || (ages && !control.targeted) {
                break;
            }
            left = left.saturating_sub(scanned);
        }
        aged
    }

    fn should_age_7_2(&self, id: LruvecId, can_anon: bool, priority: u8) -> bool {
        let lruvec = &self.lruvecs[id as usize];
        let file = lruvec.min_seq[PageType::File.index()];
        let min_seq = if can_anon { file.min(lruvec.min_seq[PageType::Anon.index()]) } else { file };
        if min_seq + lruvec.window.min > lruvec.max_seq {
            return true;
        }
        priority != DEFAULT_PRIORITY && min_seq + lruvec.window.min == lruvec.max_seq
    }

    /// One eviction step: isolate up to a batch, run it through the batch stage, put the survivors back. Returns pages
    /// looked at, or 0 if the caller should stop.
    pub(super) fn evict_step<M: Memory>(
        &mut self,
        id: LruvecId,
        swappiness: u64,
        budget: u64,
        control: &mut ScanControl,
        memory: &mut M,
    ) -> u64 {
        let can_anon = swappiness != 0;
        if self.is_7_2() {
            self.try_advance_min(id, can_anon);
        }
        let (page_type, mut scanned) = self.isolate(id, swappiness, budget, control, memory);
        if !self.is_7_2() {
            scanned += u64::from(self.try_advance_min(id, can_anon));
            if self.lruvecs[id as usize].is_narrow(governing(can_anon)) {
                scanned = 0;
            }
        } else if scanned > 0 {
            self.try_advance_min(id, can_anon);
        }
        if !self.isolated.is_empty() {
            self.evict_isolated(page_type, control, memory);
        }
        scanned
    }

    /// Runs the isolated pages through the batch stage, those it may have missed a second time.
    fn evict_isolated<M: Memory>(&mut self, page_type: PageType, control: &mut ScanControl, memory: &mut M) {
        let mut pages = std::mem::take(&mut self.isolated);
        let mut survivors = std::mem::take(&mut self.survivors);
        for second_pass in [false, true] {
            let caller = Caller { background: control.background, ..Caller::default() };
            let outcome = batch_stage::run(self, &pages, &mut survivors, caller, memory);
            // Isolation has counted the pages taken.
            control.note_batch(&outcome, 0, false);
            // As on the classic lists (spec: mglru §16.8, classic §10).
            if self.is_7_2() && !second_pass && outcome.unqueued_dirty == pages.len() as u64 {
                wake_flushers(memory);
            }
            control.reclaimed += outcome.reclaimed;
            self.counters.pgsteal += outcome.reclaimed;
            match page_type {
                PageType::Anon => self.counters.pgsteal_anon += outcome.reclaimed,
                PageType::File => self.counters.pgsteal_file += outcome.reclaimed,
            }
            pages.clear();
            for &page in &survivors {
                if self.retries(page, second_pass, page_type, memory) {
                    pages.push(page);
                } else {
                    self.put_back(page, memory);
                }
            }
            survivors.clear();
            if pages.is_empty() {
                break;
            }
        }
        self.isolated = pages;
        self.survivors = survivors;
    }

    /// Whether a survivor goes through the batch stage once more; if not, its flags are made ready for its return.
    fn retries<M: Memory>(&mut self, page: PageId, second_pass: bool, page_type: PageType, memory: &mut M) -> bool {
        self.note_swap_cache(page, memory);
        let io = memory.io_state(page);
        if io.any(IoState::UNEVICTABLE) {
            return false; // culled as it is put back (spec: mglru §9)
        }
        let busy = memory.is_mapped(page) || io.any(IoState::DIRTY.with(IoState::WRITEBACK));
        if self.is_7_2() {
            // A page of the swap cache that is not written yet is dirty.
            let busy = busy || self.params.swap_cache && needs_write(memory, page);
            let record = &self.records[page as usize];
            if !second_pass && !record.has(ACTIVE) && !busy {
                return true;
            }
            // Rejected pages do not return to the oldest generation.
            let lruvec = &self.lruvecs[record.lruvec as usize];
            if self.insertion_seq(page, self.insertion(page, memory)) == lruvec.min_seq[page_type.index()] {
                let record = &mut self.records[page as usize];
                record.clear(REFERENCED | REFS_MASK);
                record.set(ACTIVE);
            }
            return false;
        }
        if self.is_being_written(page, memory) {
            let record = &mut self.records[page as usize];
            if record.has(WORKINGSET) {
                record.set(REFERENCED);
            }
            return false;
        }
        let record = &mut self.records[page as usize];
        if second_pass || busy || io.any(IoState::LOCKED) || record.has(ACTIVE | REFERENCED) {
            record.clear(REFERENCED | REFS_MASK | WORKINGSET);
            record.set(ACTIVE);
            return false;
        }
        true
    }

    /// Isolates pages of the type that the controller picks, of the other one if that yields nothing. Returns the type
    /// isolated, and how many pages were looked at.
    fn isolate<M: Memory>(
        &mut self,
        id: LruvecId,
        swappiness: u64,
        budget: u64,
        control: &mut ScanControl,
        memory: &M,
    ) -> (PageType, u64) {
        let (mut page_type, mut limit) = self.type_to_scan(id, swappiness);
        let tries = if swappiness == 0 { 1 } else { 2 };
        let mut looked_at = 0;
        for _ in 0..tries {
            let tier_limit = limit.take().unwrap_or_else(|| self.tier_limit(id, page_type));
            let scanned = self.scan(id, page_type, tier_limit, budget, control, memory);
            looked_at += scanned;
            // 7.2 goes on with the same type where all that it looked at moved on (spec: mglru §16.9).
            if !self.isolated.is_empty() || scanned > 0 && !self.is_7_2() {
                break;
            }
            if scanned == 0 {
                page_type = page_type.other();
            }
        }
        (page_type, looked_at)
    }

    /// Which type to evict from (spec: mglru §9.1).
    fn type_to_scan(&self, id: LruvecId, swappiness: u64) -> (PageType, Option<usize>) {
        let lruvec = &self.lruvecs[id as usize];
        if swappiness == 0 {
            return (PageType::File, None);
        }
        if !self.is_7_2() && lruvec.min_seq[PageType::Anon.index()] < lruvec.min_seq[PageType::File.index()] {
            return (PageType::Anon, None);
        }
        match swappiness {
            1 => (PageType::File, None),
            200.. => (PageType::Anon, None),
            _ => self.choose_type(id, swappiness),
        }
    }

    /// Scans the oldest generation of a type from its tail: sorts pages that moved on, isolates the others.
    fn scan<M: Memory>(
        &mut self,
        id: LruvecId,
        page_type: PageType,
        tier_limit: usize,
        budget: u64,
        control: &mut ScanControl,
        memory: &M,
    ) -> u64 {
        let seven = self.is_7_2();
        let t = page_type.index();
        if self.lruvecs[id as usize].is_narrow(page_type) {
            return 0;
        }
        let oldest = self.lruvecs[id as usize].oldest(page_type);
        let (mut scanned, mut sorted, mut fetched) = (0, 0, 0);
        let mut skipped = Vec::new();
        loop {
            if scanned >= fetched {
                let victims = || self.lruvecs[id as usize].lists[oldest][t].victims(MIN_BATCH as u32);
                fetch(victims(), &self.records);
                std::hint::black_box(victims().fold(IoState::CLEAN, |sum, page| sum.with(memory.io_state(page))));
                fetched = scanned + MIN_BATCH;
            }
            scanned += self.isolate_plain(id, t, oldest, budget - scanned, memory);
            if scanned == budget || self.isolated.len() as u64 >= MIN_BATCH {
                break;
            }
            let Some(page) = self.lruvecs[id as usize].lists[oldest][t].tail() else { break };
            scanned += 1;
            if self.sort(page, page_type, oldest, tier_limit, control, memory) {
                sorted += 1;
            } else if !self.follows_swap_cache() && self.records[page as usize].has(IN_ACTIVATE) {
                // Waits for its activation: out of reach until the batch is drained.
                self.lruvecs[id as usize].lists[oldest][t].remove(&self.records, page);
                skipped.push(page);
            } else {
                self.isolate_page(page);
            }
            if scanned == budget || self.isolated.len().max(skipped.len()) as u64 >= MIN_BATCH {
                break;
            }
        }
        // Set aside one by one at the head of a list of their own, which then joins the head of the zone's.
        for &page in &skipped {
            self.lruvecs[id as usize].lists[oldest][t].push_head(&mut self.records, page);
        }
        let isolated = self.isolated.len() as u64;
        self.counters.pgscan += isolated;
        match page_type {
            PageType::Anon => self.counters.pgscan_anon += isolated,
            PageType::File => self.counters.pgscan_file += isolated,
        }
        self.counters.pgrefill += sorted;
        self.counters.pgskip += skipped.len() as u64;
        control.met.taken += isolated;
        if page_type == PageType::File {
            control.met.file_taken += isolated;
        }
        if seven || isolated > 0 || scanned == budget { scanned } else { 0 }
    }

    /// Isolates pages from the tail as long as they are such that sorting would have nothing to do. Returns how many.
    #[inline]
    fn isolate_plain<M: Memory>(&mut self, id: LruvecId, t: usize, oldest: usize, budget: u64, memory: &M) -> u64 {
        let forgotten = if self.is_7_2() { RECLAIM } else { RECLAIM | REFERENCED };
        let lruvec = &mut self.lruvecs[id as usize];
        let list = &mut lruvec.lists[oldest][t];
        let wanted = budget.min(MIN_BATCH - self.isolated.len() as u64);
        let mut taken = 0;
        while taken < wanted
            && let Some(page) = list.tail()
        {
            let record = &mut self.records[page as usize];
            if !record.is_plain(oldest) || memory.io_state(page) != IoState::CLEAN {
                break;
            }
            record.clear(LRU | forgotten);
            record.leave_generation();
            list.pop_tail();
            self.isolated.push(page);
            taken += 1;
        }
        lruvec.size[oldest][t] -= taken;
        taken
    }

    /// Moves a page on instead of isolating it, if it was promoted, is protected or cannot go now (spec: mglru §9.3).
    fn sort<M: Memory>(
        &mut self,
        page: PageId,
        page_type: PageType,
        oldest: usize,
        tier_limit: usize,
        control: &mut ScanControl,
        memory: &M,
    ) -> bool {
        if !self.is_7_2() && memory.io_state(page).any(IoState::UNEVICTABLE) {
            self.unlink(page);
            self.records[page as usize].cull();
            return true;
        }
        let record = self.records[page as usize];
        let generation = record.generation().expect("invariant: listed pages have a generation");
        if generation != oldest {
            self.move_to(page, generation, true);
            return true;
        }
        let tier = self.tier(&record);
        let always = self.always_protected(&record);
        let next = self.lruvecs[record.lruvec as usize].window.next(oldest);
        if tier > tier_limit || always {
            if !(always && self.is_7_2()) {
                self.lruvecs[record.lruvec as usize].history[page_type.index()].protected[tier] += 1;
            }
            self.age_page(page, page_type, false);
            self.move_to(page, next, self.is_7_2());
            return true;
        }
        if self.is_7_2() {
            return false;
        }
        let io = memory.io_state(page);
        let file = page_type == PageType::File;
        if file && io.any(IoState::DIRTY) {
            control.met.file_taken += 1;
            control.met.unqueued_dirty += u64::from(!io.any(IoState::WRITEBACK));
        }
        if io.any(IoState::LOCKED.with(IoState::WRITEBACK)) || file && io.any(IoState::DIRTY) {
            self.age_page(page, page_type, true);
            self.move_to(page, next, true);
            return true;
        }
        false
    }

    /// Takes a page off its list for the batch stage (spec: mglru §9.4).
    fn isolate_page(&mut self, page: PageId) {
        self.unlink(page);
        let seven = self.is_7_2();
        let record = &mut self.records[page as usize];
        if !record.has(REFERENCED) {
            record.clear(REFS_MASK);
            if !seven {
                record.clear(WORKINGSET);
            }
        }
        if !seven {
            record.clear(REFERENCED | RECLAIM);
        }
        self.isolated.push(page);
    }
}

impl BatchEngine for Mglru {
    #[inline]
    fn record(&mut self, page: PageId) -> &mut PageRecord {
        &mut self.records[page as usize]
    }

    #[inline]
    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    fn check_references<M: Memory>(&mut self, page: PageId, memory: &mut M) -> Verdict {
        let references = self.take_references(page, memory);
        if references.mappings > 0 {
            self.look_around(page, memory);
        }
        self.judge_references(page, references)
    }

    fn promoted_while_isolated<M: Memory>(&mut self, page: PageId, memory: &M) -> bool {
        !self.is_7_2() && self.records[page as usize].has(REFERENCED) && memory.is_mapped(page)
    }

    /// 7.2: a page that waits to be activated is held by the batch that it waits in (spec: mglru §16.5).
    fn is_held(&mut self, page: PageId) -> bool {
        self.follows_swap_cache() && self.records[page as usize].has(IN_ACTIVATE)
    }

    #[inline]
    fn shadow(&mut self, page: PageId) -> Shadow {
        self.eviction_shadow(page)
    }

    #[inline]
    fn evicted(&mut self, page: PageId) {
        self.count_eviction(page);
        self.records[page as usize].flags = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Eviction, References, SwapSpace, Writeback};
    use crate::mglru::{MglruParams, Version};
    use crate::policy::{Admission, Policy};

    /// Unmapped file pages that can be evicted if they are clean.
    #[derive(Default)]
    struct Evicted {
        pages: Vec<PageId>,
        /// What the contents of each page do; those beyond are clean.
        states: Vec<IoState>,
        flushers_woken: u32,
    }

    impl Memory for Evicted {
        fn take_references(&mut self, _: PageId) -> References {
            References::default()
        }
        fn is_resident(&self, page: PageId) -> bool {
            !self.pages.contains(&page)
        }
        fn evict(&mut self, page: PageId, _: Shadow) -> Eviction {
            self.pages.push(page);
            Eviction::Freed { pages_written: 0 }
        }
        fn io_state(&self, page: PageId) -> IoState {
            self.states.get(page as usize).copied().unwrap_or(IoState::CLEAN)
        }
        fn swap(&mut self) -> Option<&mut impl SwapSpace> {
            Some(self)
        }
        fn writeback(&mut self) -> Option<&mut impl Writeback> {
            Some(self)
        }
    }

    impl SwapSpace for Evicted {
        fn free_swap(&self, _: LruvecId) -> u64 {
            1000
        }
    }

    impl Writeback for Evicted {
        fn wake_flushers(&mut self) {
            self.flushers_woken += 1;
        }
    }

    /// One step over 200 pages that were read once, but for those at the old end. These were read often enough to be
    /// protected whatever the controller says. Returns pages looked at, and the first and last evicted.
    fn step_past(protected: u32, version: Version) -> (u64, Option<(PageId, PageId)>) {
        let mut memory = Evicted::default();
        // Pages that were read start in the oldest generation in 7.2; this has 6.12 do so too.
        let params = MglruParams { batch: 0, version, reads_start_oldest: true, ..MglruParams::default() };
        let mut mglru = Mglru::new(params);
        mglru.grow(200);
        for page in 0..200 {
            mglru.admit(page, &Admission::read(PageType::File), &mut memory);
            for _ in 0..if page < protected { 10 } else { 0 } {
                mglru.accessed(page, &mut memory);
            }
        }
        // With swappiness 1 it is the turn of file pages, and anonymous ones may follow.
        let looked_at = mglru.evict_step(0, 1, MIN_BATCH, &mut ScanControl::for_limit(0, 32), &mut memory);
        (looked_at, memory.pages.first().copied().zip(memory.pages.last().copied()))
    }

    #[test]
    fn in_7_2_a_step_whose_pages_all_moved_on_looks_at_the_type_once_more() {
        assert_eq!(step_past(0, Version::V7_2), (64, Some((0, 63))));
        assert_eq!(step_past(63, Version::V7_2), (64, Some((63, 63))), "one isolated page is enough");
        assert_eq!(step_past(64, Version::V7_2), (128, Some((64, 127))));
        assert_eq!(step_past(128, Version::V7_2), (128, None), "once, not until something is found");
        assert_eq!(step_past(64, Version::V6_12), (64, None));
    }

    /// One visit of 128 file pages, the first and the second half of which are as given: how often flushers are woken.
    fn flushers_woken(halves: [IoState; 2], version: Version) -> u32 {
        let states = halves.into_iter().flat_map(|state| [state; 64]).collect();
        let mut memory = Evicted { states, ..Evicted::default() };
        let mut mglru =
            Mglru::new(MglruParams { batch: 0, version, reads_start_oldest: true, ..MglruParams::default() });
        mglru.grow(128);
        for page in 0..128 {
            mglru.admit(page, &Admission::read(PageType::File), &mut memory);
        }
        let mut control = ScanControl { priority: 0, goal: 1000, ..ScanControl::for_limit(0, 32) };
        mglru.shrink(0, &mut control, &mut memory);
        assert!(memory.pages.iter().all(|page| memory.states[*page as usize] == IoState::CLEAN));
        memory.flushers_woken
    }

    #[test]
    fn flushers_are_woken_for_dirty_pages_whose_write_has_not_begun_and_for_no_others() {
        let (clean, dirty) = (IoState::CLEAN, IoState::DIRTY);
        let in_flight = dirty.with(IoState::WRITEBACK);
        // 6.12 looks at all file pages of a visit, 7.2 at each batch of 64 (spec: mglru §11, §16.8).
        for (halves, visit, batches) in [
            ([clean, clean], 0, 0),
            ([dirty, dirty], 1, 2),
            ([dirty, clean], 0, 1),
            ([dirty, in_flight], 0, 1),
            ([in_flight, in_flight], 0, 0),
        ] {
            assert_eq!(flushers_woken(halves, Version::V6_12), visit, "{halves:?}");
            assert_eq!(flushers_woken(halves, Version::V7_2), batches, "{halves:?}");
        }
    }
}
