//! Evicting without losing a write.
//!
//! A batch of pages is owned as [`State::Evicting`]. The evicting thread write-protects them, so that a writer waits
//! instead of racing. It reads them from the memfd's descriptor and compresses or writes them out. It punches them out
//! of the memfd, says where they are now, and wakes the threads that waited. A reader that comes between sees the right
//! contents. A page that is equal to its slot is already protected and needs no write. Neighbours share each of the
//! calls.
//!
//! Two things keep this cheap on several processors. Reading through the descriptor leaves no page-table entry behind,
//! so that punching needs no TLB shoot-down (a victim's own entry was dropped by the scan). And the protection is not
//! lifted after the punch: what is left of it is a marker in an empty entry, which the next fill overwrites
//! (`UFFDIO_COPY` and `UFFDIO_ZEROPAGE` may; `UFFDIO_POISON` may not, see [`Inner::fill`]).
//!
//! If a page cannot be stored it stays where it is and goes back to the policy; nothing is lost by a store that fails.

use std::sync::atomic::Ordering;

use refault_core::PageId;
use refault_store::{PAGE_SIZE, Page, Slot, StoreError, Tier};

use crate::engine::for_runs;
use crate::fault_scratch::{BATCH, FaultScratch};
use crate::pager::Inner;
use crate::pte_lock::PteLock;
use crate::state::{NO_SLOT, State};

impl Inner {
    /// Evicts owned pages (sorted), but those that system calls are using; returns how many left memory.
    pub(crate) fn evict(&self, victims: &mut [PageId], worker: &mut FaultScratch) -> u64 {
        let left = self.pass_over_pinned(victims);
        victims[..left].chunks(BATCH).map(|batch| self.evict_batch(batch, worker)).sum()
    }

    fn evict_batch(&self, batch: &[PageId], worker: &mut FaultScratch) -> u64 {
        self.store_batch(batch, worker);
        let (mut left, mut left_count) = ([0; BATCH], 0);
        let (mut stays, mut stays_count) = ([0; BATCH], 0);
        for (page, outcome) in batch.iter().zip(&worker.outcomes) {
            let (list, count) =
                if outcome.is_ok() { (&mut left, &mut left_count) } else { (&mut stays, &mut stays_count) };
            list[*count] = *page;
            *count += 1;
        }
        let left = &left[..left_count];
        let mut lock = PteLock::lock();
        for_runs(left, |first, pages| {
            if let Err(error) = self.arena.punch(&lock, first, pages) {
                crate::report::end_for("freeing evicted pages", &error);
            }
            lock.bump();
        });
        for_runs(&stays[..stays_count], |first, pages| {
            let _ = self.uffd.unprotect(&lock, self.arena.address(first), pages as usize * PAGE_SIZE);
            lock.bump();
        });
        drop(lock);
        // Before another thread sees them as stored: one that discards all that is resident then finds nothing
        // resident.
        self.budget.uncharge(left.len() as u64);
        for (page, outcome) in batch.iter().zip(&worker.outcomes) {
            let word = self.word(*page);
            if outcome.is_ok() {
                self.distances.evicted(*page);
            }
            let waited = match outcome {
                Ok(slot) if slot.bits() == NO_SLOT => word.finish(State::Fresh, 0, false),
                Ok(slot) => word.finish(State::Stored, slot.bits(), false),
                Err(_) => word.finish(State::Resident, 0, false),
            };
            if waited {
                let _ = self.uffd.wake(self.arena.address(*page), PAGE_SIZE);
            }
            if let Err(error) = outcome {
                self.note_full(*error);
                self.report(*page);
            }
        }
        if stays_count > 0 {
            self.give_up_copies();
        }
        left.len() as u64
    }

    /// Protects and stores the pages of a batch and puts the outcome of each into the worker's outcomes.
    fn store_batch(&self, batch: &[PageId], worker: &mut FaultScratch) {
        let (mut dirty, mut places, mut count) = ([0; BATCH], [0; BATCH], 0);
        for (place, page) in batch.iter().enumerate() {
            let seen = self.word(*page).load();
            if seen.kept() {
                worker.outcomes[place] = Ok(Slot::from_bits(seen.slot()));
                self.counts.clean_evictions.fetch_add(1, Ordering::Relaxed);
                if worker.outcomes[place].is_ok_and(|slot| slot.tier() == Tier::Pool) {
                    self.copies.left_clean(*page);
                }
            } else {
                dirty[count] = *page;
                places[count] = place;
                count += 1;
            }
        }
        let mut lock = PteLock::lock();
        for_runs(&dirty[..count], |first, pages| {
            // Going on after a failure would risk a lost write.
            if let Err(error) = self.uffd.protect(&lock, self.arena.address(first), pages as usize * PAGE_SIZE) {
                crate::report::end_for("write-protecting a page for eviction", &error);
            }
            lock.bump();
        });
        drop(lock);
        let mut at = 0;
        for_runs(&dirty[..count], |first, pages| {
            // The pages are resident and protected, so their bytes do not change while they are read.
            if let Err(error) = self.arena.read(first, &mut worker.pages[at..at + pages as usize]) {
                crate::report::end_for("reading a page for eviction", &error);
            }
            at += pages as usize;
        });
        let contents: [&Page; BATCH] = std::array::from_fn(|index| &worker.pages[index]);
        let mut slots = [Err(StoreError::Full("")); BATCH];
        self.store.write(&contents[..count], &mut worker.scratch, &mut slots[..count]);
        for (slot, place) in slots[..count].iter().zip(&places) {
            worker.outcomes[*place] = *slot;
            if slot.is_ok() {
                self.counts.stored.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
