//! Refault detection for the classic lists (spec: workingset §3–§5).
//!
//! Mainline: the distance between eviction and refault, on a clock that advances with evictions and activations, is
//! compared with the size of the lists that the page would have had to outlive. Shadow LRU: the clock advances with
//! evictions only and the distance, a position in an imaginary list beyond the tail, is compared with the smaller of
//! the active and inactive sizes. Both comparisons are O(1).

use crate::classic::{Classic, RefaultRule};
use crate::memory::Memory;
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

    fn is_close<M: Memory>(&self, distance: u64, page_type: PageType, lruvec: LruvecId, memory: &M) -> bool {
        let size = |page_type, active| self.subtree_size(lruvec, page_type, active);
        let swap = memory.free_swap(lruvec) > 0;
        let (active_file, inactive_file) = (size(PageType::File, true), size(PageType::File, false));
        let (active_anon, inactive_anon) =
            if swap { (size(PageType::Anon, true), size(PageType::Anon, false)) } else { (0, 0) };
        match (self.params.rule, page_type) {
            (RefaultRule::Mainline, PageType::File) => distance <= active_file + active_anon + inactive_anon,
            (RefaultRule::Mainline, PageType::Anon) => distance <= active_file + inactive_file + active_anon,
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
