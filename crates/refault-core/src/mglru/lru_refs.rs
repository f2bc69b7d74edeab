//! What accesses leave on a page, and how many they were (spec: mglru §2, §3; §16.4, §16.5 for 7.2).
//!
//! 6.12: REFERENCED, then WORKINGSET, then the refs bits count up to five accesses. 7.2: REFERENCED, then the refs
//! bits, then WORKINGSET, which also survives a change of generation.
//!
//! Kernel: `folio_inc_refs` in `mm/swap.c`; `folio_lru_refs`, `lru_tier_from_refs` in `include/linux/mm_inline.h`.

use crate::memory::{Memory, References};
use crate::mglru::Mglru;
use crate::mglru::generation::MAX_TIERS;
use crate::page::PageId;
use crate::reclaim::batch_stage::{Verdict, check_references};
use crate::reclaim::record::{PageRecord, REFERENCED, REFS_MASK, REFS_MAX, WORKINGSET};

impl Mglru {
    /// Notes an access through a descriptor. Nothing moves.
    #[inline]
    pub(super) fn mark_accessed(&mut self, page: PageId) {
        let seven = self.is_7_2();
        let record = &mut self.records[page as usize];
        if record.is_culled() {
            return;
        }
        if !record.has(REFERENCED) {
            record.set(REFERENCED);
            if seven {
                record.set_refs(0);
            }
        } else if seven {
            count_access_7_2(record);
        } else if !record.has(WORKINGSET) {
            record.set(WORKINGSET);
        } else {
            record.set_refs((record.refs() + 1).min(REFS_MAX));
        }
    }

    /// The page's accesses beyond the first, as tiers and shadow entries count them.
    #[inline]
    pub(super) fn refs(&self, record: &PageRecord) -> u16 {
        if self.is_7_2() {
            if record.has(REFERENCED) { record.refs() + 1 } else { 0 }
        } else {
            record.refs() + u16::from(record.has(WORKINGSET))
        }
    }

    /// The tier a page belongs to, below the number of tiers in use.
    #[inline]
    pub(super) fn tier(&self, record: &PageRecord) -> usize {
        self.tier_of(self.refs(record), record.has(WORKINGSET))
    }

    /// The tier of a page with that many references.
    #[inline]
    pub(super) fn tier_of(&self, refs: u16, workingset: bool) -> usize {
        let tier = if self.is_7_2() {
            if workingset { MAX_TIERS - 1 } else { order_base_2(refs) }
        } else {
            order_base_2(refs + 1)
        };
        tier.min(self.params.tiers - 1)
    }

    /// Whether the page is moved on whatever the controller says.
    #[inline]
    pub(super) fn always_protected(&self, record: &PageRecord) -> bool {
        let full = if self.is_7_2() {
            record.has(WORKINGSET) && record.has(REFERENCED) && record.refs() == REFS_MAX
        } else {
            record.has(WORKINGSET) && record.refs() == REFS_MAX
        };
        full && self.params.tiers > 1 && self.params.protects_frequent
    }

    /// A young page-table entry was found for a page in 7.2: false the first time, true if the page is to move up.
    pub(super) fn second_look_7_2(record: &mut PageRecord) -> bool {
        if !record.has(REFERENCED | WORKINGSET) {
            record.clear(REFS_MASK);
            record.set(REFERENCED);
            return false;
        }
        true
    }

    /// The reference check of the batch stage.
    #[inline]
    pub(super) fn judge_references(&mut self, page: PageId, references: References) -> Verdict {
        if !self.is_7_2() {
            return check_references(&mut self.records[page as usize], references);
        }
        let record = &mut self.records[page as usize];
        if references.locked {
            return Verdict::Activate;
        }
        if references.mappings == 0 {
            return Verdict::Reclaim;
        }
        if note_young_7_2(record) { Verdict::Activate } else { Verdict::Keep }
    }

    pub(super) fn take_references<M: Memory>(&mut self, page: PageId, memory: &mut M) -> References {
        self.counters.reference_checks += u64::from(memory.is_mapped(page));
        memory.take_references(page)
    }
}

/// A young entry was found without a walk, in 7.2: false the first time. Later ones count as accesses, and the third
/// reference makes the page part of the working set.
pub(super) fn note_young_7_2(record: &mut PageRecord) -> bool {
    if !Mglru::second_look_7_2(record) {
        return false;
    }
    if !record.has(REFERENCED) {
        record.set(REFERENCED);
        record.clear(REFS_MASK);
    } else if record.refs() > 0 {
        record.clear(REFERENCED | REFS_MASK);
        record.set(WORKINGSET);
    } else {
        count_access_7_2(record);
    }
    true
}

/// An access to a page that is REFERENCED already.
fn count_access_7_2(record: &mut PageRecord) {
    if record.refs() == REFS_MAX {
        record.set(WORKINGSET);
    } else {
        record.set_refs(record.refs() + 1);
    }
}

/// ceil(log2 n), with 0 for 0 and 1.
const fn order_base_2(n: u16) -> usize {
    if n < 2 { 0 } else { (u16::BITS - (n - 1).leading_zeros()) as usize }
}

#[cfg(test)]
mod tests {
    use super::order_base_2;

    #[test]
    fn accesses_map_to_tiers() {
        // Accesses 1, 2, 3, 4, 5 are references 0, 1, 2, 3, 4 (spec: mglru §3).
        let tiers: Vec<_> = (0..5).map(|refs| order_base_2(refs + 1)).collect();
        assert_eq!(tiers, [0, 1, 2, 2, 3]);
    }
}
