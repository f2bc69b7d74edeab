//! Refault detection for the classic lists (spec: workingset §3–§5).
//!
//! Mainline: the clock advances with evictions and activations. The distance on it between eviction and refault is
//! compared with the size of the lists that the page would have had to outlive. Shadow LRU: the clock advances with
//! evictions only. The distance, a position in an imaginary list beyond the tail, is compared with the smaller of the
//! active and inactive sizes. Both comparisons are O(1).
//!
//! Kernel: `workingset_eviction`, `workingset_refault`, `workingset_test_recent`, `workingset_activation`,
//! `workingset_age_nonresident` in `mm/workingset.c`.

use crate::classic::{Classic, RefaultRule};
use crate::memory::{Memory, free_swap};
use crate::page::{LruvecId, PageId, PageType, Shadow};
use crate::reclaim::record::{ACTIVE, WORKINGSET};
use crate::workingset::shadow::{ShadowFields, VALUE_BITS, distance};

impl Classic {
    /// Advances the non-resident age of an lruvec and all above it (spec: workingset §3).
    #[inline]
    pub(super) fn advance_age(&mut self, lruvec: LruvecId, pages: u64) {
        for &above in self.hierarchy.ancestors(lruvec) {
            self.lruvecs[above as usize].age[0] += pages;
        }
    }

    /// The clock of evictions of a type: the mainline rule has but one, which activations advance too.
    fn clock(&self, page_type: PageType) -> usize {
        if self.params.per_type_age && self.params.rule == RefaultRule::ShadowLru { page_type.index() } else { 0 }
    }

    /// The shadow entry of a page that is evicted on behalf of the current target.
    #[inline]
    pub(super) fn eviction_shadow(&self, page: PageId) -> Shadow {
        let record = &self.records[page as usize];
        let clock = self.clock(record.page_type());
        ShadowFields {
            workingset: record.has(WORKINGSET),
            lruvec: self.reclaim_target,
            value: self.lruvecs[self.reclaim_target as usize].age[clock] >> self.params.bucket_order,
        }
        .pack()
    }

    /// An eviction advances the clock of the target and of all above it.
    #[inline]
    pub(super) fn count_eviction(&mut self, page_type: PageType) {
        let clock = self.clock(page_type);
        for &above in self.hierarchy.ancestors(self.reclaim_target) {
            self.lruvecs[above as usize].age[clock] += 1;
        }
    }

    /// Judges a page that comes back: close enough means that it starts active.
    pub(super) fn judge_refault<M: Memory>(&mut self, page: PageId, shadow: Shadow, memory: &mut M) {
        let record = &self.records[page as usize];
        let (page_type, lruvec) = (record.page_type(), record.lruvec);
        let fields = ShadowFields::unpack(shadow);
        match page_type {
            PageType::Anon => self.counters.workingset_refault_anon += 1,
            PageType::File => self.counters.workingset_refault_file += 1,
        }
        if fields.lruvec as usize >= self.lruvecs.len() {
            return;
        }
        let now = self.lruvecs[fields.lruvec as usize].age[self.clock(page_type)];
        let distance = distance(now, fields.value, self.params.bucket_order, VALUE_BITS);
        if !self.is_close(distance, page_type, fields.lruvec, memory) {
            return;
        }
        self.records[page as usize].set(ACTIVE);
        if self.params.rule == RefaultRule::Mainline {
            self.advance_age(lruvec, 1);
        }
        self.count_activation(page_type, lruvec);
        if fields.workingset {
            self.records[page as usize].set(WORKINGSET);
            self.note_cost(lruvec, page_type, 1, 0);
            match page_type {
                PageType::Anon => self.counters.workingset_restore_anon += 1,
                PageType::File => self.counters.workingset_restore_file += 1,
            }
        }
    }

    fn is_close<M: Memory>(&self, distance: u64, page_type: PageType, lruvec: LruvecId, memory: &mut M) -> bool {
        let size = |page_type, active| self.subtree_size(lruvec, page_type, active);
        let swap = free_swap(memory, lruvec) > 0;
        let (active_file, inactive_file) = (size(PageType::File, true), size(PageType::File, false));
        let (active_anon, inactive_anon) =
            if swap { (size(PageType::Anon, true), size(PageType::Anon, false)) } else { (0, 0) };
        match (self.params.rule, page_type) {
            (RefaultRule::Mainline, PageType::File) => distance <= active_file + active_anon + inactive_anon,
            (RefaultRule::Mainline, PageType::Anon) => distance <= active_file + inactive_file + active_anon,
            (RefaultRule::Never, _) => false,
            (RefaultRule::ShadowLru, _) => distance < (active_file + active_anon).min(inactive_file + inactive_anon),
        }
    }

    fn count_activation(&mut self, page_type: PageType, lruvec: LruvecId) {
        match page_type {
            PageType::Anon => self.counters.workingset_activate_anon += 1,
            PageType::File => self.counters.workingset_activate_file += 1,
        }
        for &above in self.hierarchy.ancestors(lruvec) {
            self.lruvecs[above as usize].workingset_activate[page_type.index()] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classic::ClassicParams;
    use crate::memory::{Eviction, References, SwapSpace};

    /// A memory that only has swap: the number of its free pages.
    struct FreeSwap(u64);

    impl Memory for FreeSwap {
        fn take_references(&mut self, _page: PageId) -> References {
            References::default()
        }

        fn evict(&mut self, _page: PageId, _shadow: Shadow) -> Eviction {
            Eviction::Kept
        }

        fn is_resident(&self, _page: PageId) -> bool {
            true
        }

        fn swap(&mut self) -> Option<&mut impl SwapSpace> {
            Some(self)
        }
    }

    impl SwapSpace for FreeSwap {
        fn free_swap(&self, _lruvec: LruvecId) -> u64 {
            self.0
        }
    }

    /// Lists of these lengths, in the order of their indices.
    fn lists(rule: RefaultRule, lengths: [usize; 4]) -> Classic {
        let mut classic = Classic::new(ClassicParams { rule, ..ClassicParams::default() });
        classic.records.resize(lengths.iter().sum(), Default::default());
        let mut page = 0;
        for (list, length) in lengths.iter().enumerate() {
            let page_type = PageType::ALL[list / 2];
            for _ in 0..*length {
                classic.lruvecs[0].list_mut(page_type, list % 2 == 1).push_head(&mut classic.records, page);
                page += 1;
            }
        }
        classic
    }

    #[test]
    fn mainline_compares_with_the_lists_to_outlive() {
        // 500 inactive anon, 800 active anon, 2000 active file (spec: workingset §4).
        let classic = lists(RefaultRule::Mainline, [500, 800, 700, 2000]);
        let close = |distance, page_type, swap| classic.is_close(distance, page_type, 0, &mut FreeSwap(swap));
        assert!(close(3000, PageType::File, 1));
        assert!(!close(3000, PageType::File, 0), "without swap only the 2000 active file pages count");
        assert!(close(3300, PageType::File, 1) && !close(3301, PageType::File, 1), "equal activates");
        assert!(close(3500, PageType::Anon, 1) && !close(3501, PageType::Anon, 1));
    }

    #[test]
    fn shadow_lru_compares_with_the_smaller_side() {
        // 2800 active and 4500 inactive, then 6000 active (spec: workingset §5).
        let classic = lists(RefaultRule::ShadowLru, [500, 800, 4000, 2000]);
        let close = |classic: &Classic, distance| classic.is_close(distance, PageType::File, 0, &mut FreeSwap(1));
        assert!(close(&classic, 2300) && close(&classic, 2799) && !close(&classic, 2800));
        let classic = lists(RefaultRule::ShadowLru, [500, 2000, 4000, 4000]);
        assert!(close(&classic, 4499) && !close(&classic, 4500));
    }
}
