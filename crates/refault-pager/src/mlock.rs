//! mlock: pages that are exempt from eviction.
//!
//! Invariants: the state word of a pinned page says so, and [`Pins`] counts such words. All pins together leave some of
//! the budget to other pages, or nothing else could ever come in. Cost: a page-table walk of the range.

use std::sync::atomic::{AtomicU64, Ordering};

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::fault_scratch::FaultScratch;
use crate::pager::{Inner, PagerError};
use crate::state::State;

/// Share of the budget that is never pinned.
const LEFT: u64 = 8;

/// How many pages are pinned, or are just being.
#[derive(Default)]
pub(crate) struct Pins(AtomicU64);

impl Pins {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one more, if there are no more than `most` then.
    fn add_one_of(&self, most: u64) -> bool {
        let one_more = |pinned: u64| (pinned < most).then_some(pinned + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn take_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inner {
    /// Brings a run of pages in and keeps it. Fails if too much would be pinned, or if a page is lost; then no more of
    /// the run is pinned than before.
    pub(crate) fn pin(&self, first: PageId, pages: u32) -> Result<(), PagerError> {
        let maximum = self.budget.maximum_pages();
        let most = (maximum - maximum / LEFT).saturating_sub(self.reserve() as u64);
        let is_new = |page: &PageId| !self.word(*page).load().pinned();
        // What cannot fit brings nothing in.
        if self.pins.count() + (first..first + pages).filter(is_new).count() as u64 > most {
            return Err(self.too_much(pages));
        }
        let mut worker = self.spare_worker.borrow();
        let mut pinned = Vec::new();
        for page in first..first + pages {
            let outcome = if !is_new(&page) {
                self.bring_in_pinned(page, &mut worker)
            } else if self.pins.add_one_of(most) {
                if self.word(page).set_pinned(true).pinned() {
                    self.pins.take_one();
                } else {
                    pinned.push(page);
                }
                self.bring_in_pinned(page, &mut worker)
            } else {
                Err(self.too_much(pages))
            };
            if let Err(error) = outcome {
                pinned.iter().for_each(|page| self.unpin(*page, 1));
                return Err(error);
            }
        }
        Ok(())
    }

    fn too_much(&self, pages: u32) -> PagerError {
        PagerError::StillResident {
            resident: (self.pins.count() + u64::from(pages)) * PAGE_SIZE as u64,
            wanted: self.budget.maximum_bytes(),
            why: "more is to be pinned than the budget allows",
        }
    }

    /// Waits until a pinned page can be read and written without a fault that a handler has to serve.
    fn bring_in_pinned(&self, page: PageId, worker: &mut FaultScratch) -> Result<(), PagerError> {
        loop {
            let seen = self.word(page).load();
            match seen.state() {
                State::Resident if !seen.kept() => break,
                State::Lost => {
                    let error = refault_store::StoreError::Checksum("store");
                    return Err(PagerError::Lost { address: self.arena.address(page), error });
                }
                State::Resident | State::Fresh | State::Stored => self.fault(page, None, true, worker),
                _ => std::thread::yield_now(),
            }
        }
        self.report(page);
        Ok(())
    }

    /// Ends that for what is pinned of a run.
    pub(crate) fn unpin(&self, first: PageId, pages: u32) {
        for page in first..first + pages {
            if self.word(page).load().pinned() && self.word(page).set_pinned(false).pinned() {
                self.pins.take_one();
                self.report(page);
            }
        }
    }
}
