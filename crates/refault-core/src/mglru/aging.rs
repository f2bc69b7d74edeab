//! Aging: when a new generation is made, how, and how the old end follows (spec: mglru §6; §16.1, §16.2 for 7.2).
//!
//! Kernel: `should_run_aging`, `try_to_inc_max_seq`, `inc_max_seq`, `inc_min_seq`, `try_to_inc_min_seq` in
//! `mm/vmscan.c`.

use crate::memory::Memory;
use crate::mglru::{Aging, Mglru};
use crate::page::{LruvecId, PageId, PageType};
use crate::reclaim::record::{RECLAIM, REFERENCED, REFS_MASK, WORKINGSET};

impl Mglru {
    /// Whether eviction needs a younger generation first, and how many pages there are to evict from.
    pub(super) fn should_age(&self, id: LruvecId, can_anon: bool) -> (bool, u64) {
        let lruvec = &self.lruvecs[id as usize];
        let min_generations = lruvec.window.min;
        let min_seq = lruvec.min_seq[governing(can_anon).index()];
        if min_seq + min_generations > lruvec.max_seq {
            return (true, 0);
        }
        let by_sizes = self.params.aging == Aging::Sizes;
        let (mut total, mut young, mut old) = (0, 0, 0);
        for page_type in usable(can_anon) {
            for seq in lruvec.min_seq[page_type.index()]..=lruvec.max_seq {
                let size = lruvec.size[lruvec.slot(seq)][page_type.index()];
                total += size;
                if seq == lruvec.max_seq {
                    young += size;
                } else if seq + min_generations == lruvec.max_seq {
                    old += size;
                }
            }
        }
        // More than one cold generation is plenty; otherwise the youngest should not outgrow half, the oldest not fall
        // below a quarter (with two that stay).
        let needed = by_sizes
            && min_seq + min_generations == lruvec.max_seq
            && (young * min_generations > total || old * (min_generations + 2) < total);
        (needed, total)
    }

    /// Makes a new generation, after a walk that promotes what was accessed since the last one; `force`: all that was
    /// accessed, in every address space and region (spec: mglru §6.2, §7). False if it was made already.
    pub(super) fn try_new_generation<M: Memory>(
        &mut self,
        id: LruvecId,
        can_anon: bool,
        force: bool,
        memory: &mut M,
    ) -> bool {
        let lruvec = &self.lruvecs[id as usize];
        if lruvec.max_seq <= lruvec.walk_seq {
            return false;
        }
        if self.params.walks {
            self.walk_context |= self.walk_page_tables(id, can_anon, force, memory);
        }
        self.lruvecs[id as usize].walk_seq += 1;
        self.new_generation(id, can_anon, memory.now());
        true
    }

    /// Makes room in the window if it is full, then opens it by one at the young end.
    pub(super) fn new_generation(&mut self, id: LruvecId, can_anon: bool, now: u64) {
        for page_type in [PageType::File, PageType::Anon] {
            let lruvec = &self.lruvecs[id as usize];
            if lruvec.generations(page_type) == lruvec.window.max {
                self.drop_oldest(id, page_type, can_anon);
            }
        }
        self.lruvecs[id as usize].open_generation(now);
        self.counters.generations_created += 1;
    }

    /// Moves the oldest generation's pages into the next one. Anonymous pages that cannot be swapped stay where they
    /// are: their list becomes the youngest one's, which is intended (spec: mglru §6.2).
    fn drop_oldest(&mut self, id: LruvecId, page_type: PageType, can_anon: bool) {
        let t = page_type.index();
        if page_type == PageType::File || can_anon {
            let oldest = self.lruvecs[id as usize].oldest(page_type);
            while let Some(page) = self.lruvecs[id as usize].lists[oldest][t].tail() {
                let protects = self.is_7_2() && self.records[page as usize].generation() == Some(oldest);
                if protects {
                    let tier = self.tier(&self.records[page as usize]);
                    self.lruvecs[id as usize].history[t].protected[tier] += 1;
                }
                self.age_page(page, page_type, false);
                let target = self.records[page as usize].generation().expect("invariant: listed pages have one");
                self.move_to(page, target, self.is_7_2());
            }
        }
        let lruvec = &mut self.lruvecs[id as usize];
        lruvec.history[t].fold();
        lruvec.min_seq[t] += 1;
    }

    /// Moves a page one generation up unless a walk has promoted it meanwhile; what its accesses had earned it is
    /// spent.
    pub(super) fn age_page(&mut self, page: PageId, page_type: PageType, reclaiming: bool) {
        let seven = self.is_7_2();
        let record = &mut self.records[page as usize];
        let lruvec = &mut self.lruvecs[record.lruvec as usize];
        let from = lruvec.oldest(page_type);
        if record.generation() != Some(from) {
            return;
        }
        let to = lruvec.window.next(from);
        record.set_generation(to);
        record.clear(REFERENCED | REFS_MASK);
        if !seven {
            record.clear(WORKINGSET);
        }
        if reclaiming {
            record.set(RECLAIM);
        }
        lruvec.move_size(page_type, from, to);
    }

    /// Moves a listed page to the head or tail of a generation's list.
    pub(super) fn move_to(&mut self, page: PageId, generation: usize, head: bool) {
        let record = &mut self.records[page as usize];
        let (from, t) = (record.standing(), record.page_type().index());
        record.set_standing(generation);
        let lruvec = &mut self.lruvecs[record.lruvec as usize];
        lruvec.lists[from][t].remove(&self.records, page);
        let list = &mut lruvec.lists[generation][t];
        if head { list.push_head(&mut self.records, page) } else { list.push_tail(&mut self.records, page) }
    }

    /// Advances the old end over generations whose lists are empty. True if it moved.
    pub(super) fn try_advance_min(&mut self, id: LruvecId, can_anon: bool) -> bool {
        let seven = self.is_7_2();
        let lruvec = &mut self.lruvecs[id as usize];
        let mut min_seq = lruvec.min_seq;
        for page_type in usable(can_anon) {
            let t = page_type.index();
            while min_seq[t] + lruvec.window.min <= lruvec.max_seq
                && lruvec.lists[lruvec.slot(min_seq[t])][t].is_empty()
            {
                min_seq[t] += 1;
            }
        }
        const ANON: usize = PageType::Anon.index();
        const FILE: usize = PageType::File.index();
        if can_anon && !seven {
            min_seq[ANON] = min_seq[ANON].min(min_seq[FILE]);
            min_seq[FILE] = min_seq[ANON].max(lruvec.min_seq[FILE]);
        } else if can_anon {
            let cold = lruvec.max_seq - lruvec.window.min;
            if min_seq[ANON] > cold && min_seq[FILE] < cold {
                min_seq[ANON] = cold;
            } else if min_seq[FILE] > cold && min_seq[ANON] < cold {
                min_seq[FILE] = cold;
            }
        }
        let mut moved = false;
        for page_type in usable(can_anon) {
            let t = page_type.index();
            if min_seq[t] > lruvec.min_seq[t] {
                lruvec.history[t].fold();
                lruvec.min_seq[t] = min_seq[t];
                moved = true;
            }
        }
        moved
    }
}

/// The type whose window limits eviction: anon's never starts later than file's while anon is usable.
pub(super) fn governing(can_anon: bool) -> PageType {
    if can_anon { PageType::Anon } else { PageType::File }
}

/// The types that may be evicted.
pub(super) fn usable(can_anon: bool) -> impl Iterator<Item = PageType> {
    PageType::ALL.into_iter().skip(usize::from(!can_anon))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mglru::{MglruParams, Version};
    use crate::page::PageType::{Anon, File};

    /// A window with pages of both types in the given generations.
    fn window(version: Version, min_seq: [u64; 2], max_seq: u64, populated: &[(PageType, u64)]) -> Mglru {
        let mut policy = Mglru::new(MglruParams { version, ..MglruParams::default() });
        policy.records.resize(populated.len(), Default::default());
        let lruvec = &mut policy.lruvecs[0];
        lruvec.min_seq = min_seq;
        lruvec.max_seq = max_seq;
        for (page, (page_type, seq)) in populated.iter().enumerate() {
            lruvec.lists[lruvec.window.slot(*seq)][page_type.index()].push_head(&mut policy.records, page as PageId);
        }
        policy
    }

    #[test]
    fn a_generation_is_due_by_the_distribution_of_sizes() {
        for (sizes, due) in
            [([250, 350, 400], false), ([250, 150, 600], true), ([249, 351, 400], true), ([3000, 40, 20], false)]
        {
            let mut policy = window(Version::V6_12, [3, 3], 5, &[]);
            for (seq, size) in (3..).zip(sizes) {
                policy.lruvecs[0].size[(seq % 4) as usize][File.index()] = size;
            }
            assert_eq!(policy.should_age(0, false), (due, sizes.iter().sum()), "{sizes:?}");
        }
        assert_eq!(window(Version::V6_12, [2, 2], 3, &[]).should_age(0, true), (true, 0), "nothing is cold");
    }

    #[test]
    fn the_two_ends_move_together() {
        let ends = |min_seq, populated: &[_]| {
            let mut policy = window(Version::V6_12, min_seq, 7, populated);
            policy.try_advance_min(0, true);
            policy.lruvecs[0].min_seq
        };
        assert_eq!(ends([4, 4], &[(Anon, 6), (File, 4)]), [4, 4], "anon's end does not pass file's");
        assert_eq!(ends([4, 4], &[(Anon, 4), (File, 5)]), [4, 4], "file's goes no further than anon's");
        assert_eq!(ends([4, 5], &[(Anon, 5), (File, 5)]), [5, 5], "anon catches up");
    }

    #[test]
    fn in_7_2_one_end_waits_for_the_other_only_at_the_cold_edge() {
        let mut policy = window(Version::V7_2, [4, 4], 7, &[(Anon, 4), (File, 6)]);
        policy.try_advance_min(0, true);
        assert_eq!(policy.lruvecs[0].min_seq, [4, 5]);
    }
}
