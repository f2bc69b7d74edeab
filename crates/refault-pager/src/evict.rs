//! Evicting without losing a write.
//!
//! For a batch of pages that are owned as [`State::Evicting`]: write-protect them, so that a writer waits instead of racing;
//! compress or write them out through the alias, which never faults; punch them out of the memfd; lift the protection; say
//! where they are now; wake whoever waited. A reader that comes between sees the right contents. A page that is equal to
//! its slot is already protected and needs no write. Neighbours share each of the calls.
//!
//! If a page cannot be stored it stays where it is and goes back to the policy; nothing is lost by a store that fails.

use std::sync::atomic::Ordering;

use refault_core::PageId;
use refault_store::{PAGE_SIZE, Page, Slot, StoreError};

use crate::engine::for_runs;
use crate::pager::Inner;
use crate::state::{NO_SLOT, State};
use crate::worker::{BATCH, Worker};

impl Inner {
    /// Evicts owned pages (sorted); returns how many left memory.
    pub(crate) fn evict(&self, victims: &[PageId], worker: &mut Worker) -> u64 {
        victims.chunks(BATCH).map(|batch| self.evict_batch(batch, worker)).sum()
    }

    fn evict_batch(&self, batch: &[PageId], worker: &mut Worker) -> u64 {
        for_runs(batch, |first, pages| {
            if let Err(error) = self.uffd.protect(self.arena.address(first), pages as usize * PAGE_SIZE) {
                // Going on would risk a lost write.
                crate::report::end_with(format_args!("write-protecting a page for eviction failed: {error}"));
            }
        });
        self.store_batch(batch, worker);
        let mut left = [0; BATCH];
        let mut count = 0;
        for (page, outcome) in batch.iter().zip(&worker.outcomes) {
            if outcome.is_ok() {
                left[count] = *page;
                count += 1;
            }
        }
        for_runs(&left[..count], |first, pages| {
            if let Err(error) = self.arena.punch(first, pages) {
                crate::report::end_with(format_args!("freeing evicted pages failed: {error}"));
            }
        });
        for_runs(batch, |first, pages| {
            let _ = self.uffd.unprotect(self.arena.address(first), pages as usize * PAGE_SIZE);
        });
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
        self.budget.uncharge(count as u64);
        count as u64
    }

    /// Puts the outcome of each page of a batch into the worker's outcomes.
    fn store_batch(&self, batch: &[PageId], worker: &mut Worker) {
        let mut dirty: [&Page; BATCH] = [&Page::ZERO; BATCH];
        let mut places = [0; BATCH];
        let mut count = 0;
        for (place, page) in batch.iter().enumerate() {
            let seen = self.word(*page).load();
            if seen.kept() {
                worker.outcomes[place] = Ok(Slot::from_bits(seen.slot()));
                self.counts.clean_evictions.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            // SAFETY: the page is resident and write-protected, so its bytes do not change while they are read; the alias
            // maps it for as long as the arena lives.
            dirty[count] = unsafe { &*self.arena.alias(*page).cast::<Page>() };
            places[count] = place;
            count += 1;
        }
        let mut slots = [Err(StoreError::Full("")); BATCH];
        self.store.write(&dirty[..count], &mut worker.scratch, &mut slots[..count]);
        for (slot, place) in slots[..count].iter().zip(&places) {
            worker.outcomes[*place] = *slot;
            if slot.is_ok() {
                self.counts.stored.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
