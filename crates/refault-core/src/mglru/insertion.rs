//! Where a page starts, and every move of a listed page between generations (spec: mglru §4, §5; §16.6 for 7.2).
//!
//! Kernel: `lru_gen_add_folio`, `lru_gen_del_folio`, `lru_gen_update_size` in `include/linux/mm_inline.h`;
//! `folio_inc_gen`, `folio_update_gen` in `mm/vmscan.c`.

use crate::memory::{IoState, Memory, SwapSpace};
use crate::mglru::Mglru;
use crate::mglru::generation::Lruvec;
use crate::page::{PageId, PageType};
use crate::policy::Admission;
use crate::reclaim::record::{
    ACTIVE, IN_ACTIVATE, IN_ADD, LRU, PageRecord, RECLAIM, REFERENCED, REFS_MASK, SWAPCACHE, WORKINGSET,
};

/// Whether an insertion is a rotation, or of a page whose contents are on their way out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Insertion {
    Plain,
    Rotated,
    /// RECLAIM is set and the contents are dirty or being written.
    BeingWritten,
}

impl Mglru {
    /// The generation that an insertion leads to now.
    #[inline]
    pub(super) fn insertion_seq(&self, page: PageId, insertion: Insertion) -> u64 {
        let record = &self.records[page as usize];
        let lruvec = &self.lruvecs[record.lruvec as usize];
        if self.is_7_2() {
            return seq_7_2(record, lruvec, insertion);
        }
        // Windows wider than this have pages of the last row start one generation above the oldest.
        let width = if self.params.reads_start_oldest { lruvec.window.max } else { lruvec.window.min };
        seq_6_12(record, lruvec, insertion, width)
    }

    /// Puts a page that is on no list into a generation; ACTIVE has done its work then.
    #[inline]
    pub(super) fn insert(&mut self, page: PageId, insertion: Insertion) {
        let seq = self.insertion_seq(page, insertion);
        let record = &mut self.records[page as usize];
        let generation = self.lruvecs[record.lruvec as usize].slot(seq);
        record.set(LRU);
        record.set_generation(generation);
        record.set_standing(generation); // clears ACTIVE
        let page_type = record.page_type();
        let lruvec = &mut self.lruvecs[record.lruvec as usize];
        lruvec.size[generation][page_type.index()] += 1;
        let list = &mut lruvec.lists[generation][page_type.index()];
        match insertion {
            Insertion::Rotated => list.push_tail(&mut self.records, page),
            _ => list.push_head(&mut self.records, page),
        }
    }

    pub(super) fn insert_rotated(&mut self, page: PageId) {
        self.insert(page, Insertion::Rotated);
    }

    /// Inserts a page that the batch stage has left, knowing what its contents are doing. An unevictable page is
    /// culled.
    pub(super) fn put_back<M: Memory>(&mut self, page: PageId, memory: &M) {
        if memory.io_state(page).any(IoState::UNEVICTABLE) {
            self.records[page as usize].cull();
            return;
        }
        self.insert(page, self.insertion(page, memory));
    }

    /// In 7.2 a page may have entered or left the swap cache without being evicted or admitted (spec: mglru §16.5).
    pub(super) fn note_swap_cache<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        if self.follows_swap_cache()
            && let Some(inside) = memory.swap().and_then(|swap| swap.in_swap_cache(page))
        {
            let record = &mut self.records[page as usize];
            if inside { record.set(SWAPCACHE) } else { record.clear(SWAPCACHE) }
        }
    }

    /// How a page goes back on a list, given what its contents are doing.
    pub(super) fn insertion<M: Memory>(&self, page: PageId, memory: &M) -> Insertion {
        if self.is_being_written(page, memory) { Insertion::BeingWritten } else { Insertion::Plain }
    }

    /// RECLAIM is set and the contents are dirty or being written.
    pub(super) fn is_being_written<M: Memory>(&self, page: PageId, memory: &M) -> bool {
        self.records[page as usize].has(RECLAIM) && memory.io_state(page).any(IoState::DIRTY.with(IoState::WRITEBACK))
    }

    /// Takes a page off its list and out of its generation, which is returned.
    #[inline]
    pub(super) fn unlink(&mut self, page: PageId) -> Option<usize> {
        let record = self.records[page as usize];
        let generation = record.generation()?;
        let t = record.page_type().index();
        let lruvec = &mut self.lruvecs[record.lruvec as usize];
        lruvec.size[generation][t] -= 1;
        lruvec.lists[record.standing()][t].remove(&self.records, page);
        let record = &mut self.records[page as usize];
        record.leave_generation();
        record.clear(LRU);
        Some(generation)
    }

    /// Moves a listed page to the head of the youngest generation (spec: mglru §5, "activate").
    pub(super) fn activate(&mut self, page: PageId) {
        self.unlink(page);
        self.records[page as usize].set(ACTIVE);
        self.insert(page, Insertion::Plain);
        self.counters.pgactivate += 1;
    }

    /// Moves a listed page towards the old end (spec: mglru §5, "deactivate"). 7.2 leaves a page of the oldest
    /// generation where it is and only forgets its references (spec: lru_sort §4.2).
    pub(super) fn deactivate<M: Memory>(&mut self, page: PageId, memory: &M) {
        let record = self.records[page as usize];
        if !record.has(LRU) {
            return;
        }
        let seven = self.is_7_2();
        let forgotten = if seven { REFERENCED | REFS_MASK | WORKINGSET } else { REFERENCED };
        self.records[page as usize].clear(forgotten);
        let oldest = self.lruvecs[record.lruvec as usize].oldest(record.page_type());
        if seven && record.generation() == Some(oldest) {
            return;
        }
        self.unlink(page);
        self.insert(page, self.insertion(page, memory));
        self.counters.pgdeactivate += 1;
    }

    /// Puts what waits in this CPU's batches on the lists.
    pub(super) fn drain_batches(&mut self) {
        self.drain_additions();
        self.drain_activations();
    }

    /// The batch of additions is full. In 7.2 what comes back from swap is in the swap cache until it is mapped. So the
    /// page that fills the batch is inserted as one of those; the others have left it (spec: mglru §16.6).
    pub(super) fn batch_filled_by(&mut self, page: PageId, admission: &Admission) {
        let from_swap = admission.page_type == PageType::Anon && admission.shadow.is_some();
        let in_swap_cache = self.follows_swap_cache() && self.params.batch > 1 && from_swap;
        if in_swap_cache {
            self.records[page as usize].set(SWAPCACHE);
        }
        self.drain_additions();
        if in_swap_cache && !admission.keeps_slot {
            self.records[page as usize].clear(SWAPCACHE);
        }
    }

    pub(super) fn drain_additions(&mut self) {
        let pages = self.add_batch.take();
        for &page in &pages {
            self.records[page as usize].clear(IN_ADD);
            self.insert(page, Insertion::Plain);
        }
        self.add_batch.restore(pages);
    }

    pub(super) fn drain_activations(&mut self) {
        let pages = self.activate_batch.take();
        for &page in &pages {
            let record = &mut self.records[page as usize];
            if record.is_culled() {
                continue;
            }
            record.clear(IN_ACTIVATE);
            // Where the swap cache is followed: what was isolated meanwhile stays where it is.
            if record.generation().is_some() {
                self.activate(page);
            }
        }
        self.activate_batch.restore(pages);
    }

    /// A neighbour of a young page, found without a walk: it is activated when the batch is drained. It is out of
    /// reach until then; where the swap cache is followed it can still be isolated, but not go.
    pub(super) fn queue_activation(&mut self, page: PageId) {
        let reachable = self.follows_swap_cache();
        let record = &mut self.records[page as usize];
        if !record.has(LRU) {
            return;
        }
        if !reachable {
            record.clear(LRU);
        }
        record.set(IN_ACTIVATE);
        if self.activate_batch.push(page) {
            self.drain_activations();
        }
    }
}

fn is_new_anon(record: &PageRecord) -> bool {
    record.page_type() == PageType::Anon && !record.has(SWAPCACHE)
}

#[inline]
fn seq_6_12(record: &PageRecord, lruvec: &Lruvec, insertion: Insertion, width: u64) -> u64 {
    let min_seq = lruvec.min_seq[record.page_type().index()];
    if record.has(ACTIVE) {
        lruvec.max_seq
    } else if is_new_anon(record) || insertion == Insertion::BeingWritten {
        lruvec.max_seq - 1
    } else if insertion == Insertion::Rotated || min_seq + width >= lruvec.max_seq {
        min_seq
    } else {
        min_seq + 1
    }
}

#[inline]
fn seq_7_2(record: &PageRecord, lruvec: &Lruvec, insertion: Insertion) -> u64 {
    let window = lruvec.window;
    let back = if record.has(ACTIVE) {
        window.min - u64::from(record.has(WORKINGSET))
    } else if insertion == Insertion::Rotated {
        window.max
    } else if is_new_anon(record) || insertion == Insertion::BeingWritten {
        window.min
    } else {
        window.max - u64::from(record.has(WORKINGSET | REFERENCED))
    };
    (lruvec.max_seq + 1).saturating_sub(back).max(lruvec.min_seq[record.page_type().index()])
}
