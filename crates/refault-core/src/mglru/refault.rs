//! Shadow entries of the multi-gen LRU and what a refault tells (spec: workingset §6, §7).
//!
//! Profile M stores the generation a page was evicted from: a refault while that generation is still being evicted is
//! recent, and feeds the controller. Profile MK stores a clock of evictions instead and grades the distance against the
//! size of memory. So pages whose reuse distance exceeds memory are protected too. Both O(1).
//!
//! Kernel: `lru_gen_eviction`, `lru_gen_test_recent`, `lru_gen_refault` in `mm/workingset.c`.

use crate::memory::{Memory, free_swap};
use crate::mglru::generation::Lruvec;
use crate::mglru::{Mglru, RefaultDistance};
use crate::page::{LruvecId, PageId, PageType, Shadow};
use crate::reclaim::record::{ACTIVE, REFS_MASK, REFS_MAX, WORKINGSET};
use crate::workingset::shadow::{ShadowFields, VALUE_BITS, VALUE_MASK, distance};

/// Bits of a shadow entry's value that count references.
const REFS_WIDTH: u32 = 2;
const CLOCK_BITS: u32 = VALUE_BITS - REFS_WIDTH;

/// How far out a page was when it came back, in shares of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Short,
    Middle,
    Long,
    Beyond,
}

impl Mglru {
    /// The shadow entry of a page that is evicted now. Counts the eviction in its tier.
    pub(super) fn eviction_shadow(&self, page: PageId) -> Shadow {
        let record = &self.records[page as usize];
        let t = record.page_type().index();
        let lruvec = &self.lruvecs[record.lruvec as usize];
        let refs = u64::from(self.refs(record));
        let workingset = if self.is_7_2() { record.has(WORKINGSET) } else { refs != 0 };
        let refs = refs.saturating_sub(1);
        let value = match self.params.refault {
            RefaultDistance::Generation => lruvec.min_seq[t] << REFS_WIDTH | refs,
            _ => refs << CLOCK_BITS | lruvec.evictions[t] & ((1 << CLOCK_BITS) - 1),
        };
        ShadowFields { workingset, lruvec: record.lruvec, value: value & VALUE_MASK }.pack()
    }

    /// The page went: its tier and the clock are told.
    #[inline]
    pub(super) fn count_eviction(&mut self, page: PageId) {
        let record = self.records[page as usize];
        let t = record.page_type().index();
        let tier = self.tier(&record);
        self.lruvecs[record.lruvec as usize].history[t].evicted[tier] += 1;
        if self.params.refault != RefaultDistance::Generation {
            for &above in self.hierarchy.ancestors(record.lruvec) {
                self.lruvecs[above as usize].evictions[t] += 1;
            }
        }
    }

    /// Judges a page that comes back, before it is inserted.
    pub(super) fn judge_refault<M: Memory>(&mut self, page: PageId, shadow: Shadow, in_fault: bool, memory: &mut M) {
        let fields = ShadowFields::unpack(shadow);
        let record = &self.records[page as usize];
        if fields.lruvec != record.lruvec {
            return;
        }
        let page_type = record.page_type();
        match page_type {
            PageType::Anon => self.counters.workingset_refault_anon += 1,
            PageType::File => self.counters.workingset_refault_file += 1,
        }
        match self.params.refault {
            RefaultDistance::Generation if self.is_7_2() => self.judge_7_2(page, fields, in_fault),
            RefaultDistance::Generation => self.judge_by_generation(page, fields, in_fault),
            _ => self.judge_by_distance(page, fields, in_fault, memory),
        }
    }

    #[inline]
    fn judge_by_generation(&mut self, page: PageId, fields: ShadowFields, in_fault: bool) {
        let record = &self.records[page as usize];
        let page_type = record.page_type();
        let t = page_type.index();
        let lruvec = &mut self.lruvecs[record.lruvec as usize];
        if fields.value >> REFS_WIDTH != lruvec.min_seq[t] & ((1 << CLOCK_BITS) - 1) {
            return;
        }
        let refs = (fields.value & 3) as u16 + u16::from(fields.workingset);
        self.count_recent(page, refs, fields.workingset, in_fault);
    }

    /// A refault of the generation that is still being evicted (spec: workingset §7).
    fn count_recent(&mut self, page: PageId, refs: u16, workingset: bool, in_fault: bool) {
        let tier = self.tier_of(refs, workingset);
        let record = &mut self.records[page as usize];
        let page_type = record.page_type();
        self.lruvecs[record.lruvec as usize].history[page_type.index()].refaulted[tier] += 1;
        if in_fault || refs >= REFS_MAX {
            record.set(REFS_MASK | WORKINGSET);
            self.count_restore(page_type);
        }
        self.count_activate(page_type);
    }

    fn judge_7_2(&mut self, page: PageId, fields: ShadowFields, in_fault: bool) {
        let record = &self.records[page as usize];
        let page_type = record.page_type();
        let t = page_type.index();
        let lruvec = &self.lruvecs[record.lruvec as usize];
        let then = fields.value >> REFS_WIDTH;
        let now = lruvec.max_seq & ((1 << CLOCK_BITS) - 1);
        if now.abs_diff(then) >= lruvec.window.max {
            return;
        }
        let refs = (fields.value & 3) as u16 + 1;
        let tier = self.tier_of(refs, fields.workingset);
        let record = &mut self.records[page as usize];
        self.lruvecs[record.lruvec as usize].history[t].refaulted[tier] += 1;
        if fields.workingset {
            record.set(WORKINGSET);
            if in_fault {
                self.count_activate(page_type);
            }
            self.count_restore(page_type);
        } else {
            record.set_refs(refs - 1);
        }
    }

    fn judge_by_distance<M: Memory>(&mut self, page: PageId, fields: ShadowFields, in_fault: bool, memory: &mut M) {
        let record = &self.records[page as usize];
        let (page_type, id) = (record.page_type(), record.lruvec);
        let t = page_type.index();
        let lruvec = &self.lruvecs[id as usize];
        let distance = distance(lruvec.evictions[t], fields.value, 0, CLOCK_BITS);
        let recent = distance <= lruvec.history[t].evicted.iter().sum();
        let reach = self.reach(distance, id, memory);
        let refs = (fields.value >> CLOCK_BITS) as u16 + u16::from(fields.workingset);
        if reach == Reach::Beyond {
            if recent && self.params.refault == RefaultDistance::Unified {
                // The unified form knows no other grades: what is not close is judged by its generation.
                self.count_recent(page, refs, fields.workingset, in_fault);
            }
            if !recent || self.params.refault == RefaultDistance::Unified {
                return;
            }
        }
        let tier = self.tier_of(refs, fields.workingset);
        if in_fault || refs >= REFS_MAX {
            self.restore_flags(page, refs, u16::from(fields.workingset), in_fault, recent, reach);
            self.count_restore(page_type);
        }
        let mut judged = tier;
        if reach == Reach::Short && tier == 0 {
            // One extra reference earned while outside.
            self.records[page as usize].set(WORKINGSET);
            judged = 1;
            self.count_activate(page_type);
        }
        let judged = judged.min(self.params.tiers - 1);
        let history = &mut self.lruvecs[id as usize].history[t];
        if judged == tier && recent {
            history.refaulted[tier] += 1;
        } else {
            history.avg_total[judged] += 1;
            history.avg_refaulted[judged] += 1;
        }
    }

    fn reach<M: Memory>(&self, distance: u64, id: LruvecId, memory: &mut M) -> Reach {
        // Groups below are part of what a page competes with, as their evictions are part of the clock.
        let size = |of: fn(&Lruvec, PageType) -> u64, page_type| -> u64 {
            self.hierarchy.subtree(id).iter().map(|below| of(&self.lruvecs[*below as usize], page_type)).sum()
        };
        let types = if free_swap(memory, id) > 0 { &PageType::ALL[..] } else { &[PageType::File] };
        let total: u64 = types.iter().map(|t| size(Lruvec::total, *t)).sum();
        if self.params.refault == RefaultDistance::Unified {
            let active: u64 = types.iter().map(|t| size(Lruvec::active, *t)).sum();
            return if distance < active.min(total - active) { Reach::Short } else { Reach::Beyond };
        }
        let window = self.lruvecs[id as usize].window;
        if distance <= total / window.max {
            Reach::Short
        } else if distance <= total / window.min {
            Reach::Middle
        } else if distance <= total {
            Reach::Long
        } else {
            Reach::Beyond
        }
    }

    /// What a page that had earned it before gets back (spec: workingset §6).
    fn restore_flags(&mut self, page: PageId, refs: u16, workingset: u16, in_fault: bool, recent: bool, reach: Reach) {
        let record = &mut self.records[page as usize];
        let earned = |bits: u16, record: &mut crate::reclaim::record::PageRecord| {
            record.set_refs(record.refs() | bits.min(REFS_MAX));
        };
        match reach {
            Reach::Short => {
                if in_fault {
                    earned(refs, record);
                } else {
                    record.set(ACTIVE);
                }
                record.set(WORKINGSET);
            }
            _ if recent || reach == Reach::Middle => {
                earned(refs - workingset.min(refs), record);
                record.set(WORKINGSET);
            }
            _ => earned(1, record),
        }
    }

    fn count_activate(&mut self, page_type: PageType) {
        match page_type {
            PageType::Anon => self.counters.workingset_activate_anon += 1,
            PageType::File => self.counters.workingset_activate_file += 1,
        }
    }

    fn count_restore(&mut self, page_type: PageType) {
        match page_type {
            PageType::Anon => self.counters.workingset_restore_anon += 1,
            PageType::File => self.counters.workingset_restore_file += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Eviction, References};
    use crate::mglru::MglruParams;

    /// A memory that has nothing.
    struct Nothing;

    impl Memory for Nothing {
        fn take_references(&mut self, _page: PageId) -> References {
            References::default()
        }

        fn evict(&mut self, _page: PageId, _shadow: Shadow) -> Eviction {
            Eviction::Kept
        }

        fn is_resident(&self, _page: PageId) -> bool {
            true
        }
    }

    /// One file page, not inserted yet.
    fn policy(refault: RefaultDistance) -> Mglru {
        let mut policy = Mglru::new(MglruParams { refault, ..MglruParams::default() });
        policy.records.resize(1, Default::default());
        policy.records[0].set(crate::reclaim::record::FILE);
        policy
    }

    #[test]
    fn a_refault_is_recent_while_its_generation_is_the_oldest() {
        let shadow = ShadowFields { workingset: true, lruvec: 0, value: 41 << 2 | 2 }.pack();
        for (min_seq, recent) in [(41, 1), (42, 0)] {
            let mut policy = policy(RefaultDistance::Generation);
            policy.lruvecs[0].max_seq = 44;
            policy.lruvecs[0].min_seq = [min_seq; 2];
            policy.judge_refault(0, shadow, false, &mut Nothing);
            let counters = policy.counters;
            assert_eq!(counters.workingset_refault_file, 1);
            assert_eq!((counters.workingset_activate_file, counters.workingset_restore_file), (recent, recent));
            assert_eq!(policy.lruvecs[0].history[1].refaulted[2], recent, "three references are tier 2");
            assert_eq!(policy.records[0].has(WORKINGSET), recent == 1);
        }
    }

    #[test]
    fn a_short_distance_earns_a_reference() {
        let mut policy = policy(RefaultDistance::Evictions);
        policy.lruvecs[0].evictions[1] = 9000;
        policy.lruvecs[0].size[0][1] = 40_000;
        let shadow = ShadowFields { workingset: false, lruvec: 0, value: 0 }.pack();
        policy.judge_refault(0, shadow, false, &mut Nothing);
        let history = &policy.lruvecs[0].history[1];
        assert_eq!((history.avg_total[1], history.avg_refaulted[1]), (1, 1));
        assert!(policy.records[0].has(WORKINGSET));
        assert_eq!(policy.counters.workingset_activate_file, 1);
        let reaches = [10_000, 10_001, 20_000, 20_001, 40_000, 40_001].map(|d| policy.reach(d, 0, &mut Nothing));
        use Reach::{Beyond, Long, Middle, Short};
        assert_eq!(reaches, [Short, Middle, Middle, Long, Long, Beyond]);
    }
}
