//! Pages that stay in memory because somebody said so.
//!
//! Invariants: a pinned page is resident or on its way in, and its state word says that it is pinned; [`Pins`] counts such words. All pins
//! together leave some of the budget to other pages, or nothing else could ever come in. Cost: a page-table walk of the range.

use std::sync::atomic::{AtomicU64, Ordering};

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::fault::Streams;
use crate::pager::{Inner, PagerError};
use crate::state::State;
use crate::worker::Worker;

/// Share of the budget that is never pinned.
const LEFT: u64 = 8;

/// How many pages are pinned, or are just being.
#[derive(Default)]
pub(crate) struct Pins(AtomicU64);

impl Pins {
    /// Makes room for some more, if there are no more than `most` then.
    fn reserve(&self, pages: u64, most: u64) -> bool {
        let fits = |pinned: u64| pinned.checked_add(pages).filter(|pinned| *pinned <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn add(&self, pages: u64) {
        self.0.fetch_add(pages, Ordering::Relaxed);
    }

    fn take(&self, pages: u64) {
        self.0.fetch_sub(pages, Ordering::Relaxed);
    }
}

impl Inner {
    /// Brings a run of pages in and keeps it. Fails if too much would be pinned, or if a page is lost; then none of the run is.
    pub(crate) fn pin(&self, first: PageId, pages: u32) -> Result<(), PagerError> {
        let run = first..first + pages;
        let wanted = run.clone().filter(|page| !self.word(*page).load().pinned()).count() as u64;
        let maximum = self.budget.maximum_pages();
        let most = (maximum - maximum / LEFT).saturating_sub(self.reserve() as u64);
        if !self.pins.reserve(wanted, most) {
            return Err(PagerError::StillResident {
                resident: u64::from(pages) * PAGE_SIZE as u64,
                wanted: self.budget.maximum_bytes(),
                why: "more is to be pinned than the budget allows",
            });
        }
        let mut worker = self.spare_worker.borrow();
        let mut newly = 0;
        let outcome = run.into_iter().try_for_each(|page| {
            newly += u64::from(!self.word(page).set_pinned(true).pinned());
            self.bring_in_pinned(page, &mut worker).map_err(|error| (page, error))
        });
        // Somebody else may have pinned or unpinned some of them meanwhile.
        self.pins.add(newly);
        self.pins.take(wanted);
        outcome.map_err(|(lost, error)| {
            self.unpin(first, lost - first + 1);
            error
        })
    }

    /// Says that a page is pinned, whatever it is.
    pub(crate) fn mark_pinned(&self, page: PageId) {
        if !self.word(page).set_pinned(true).pinned() {
            self.pins.add(1);
        }
    }

    fn bring_in_pinned(&self, page: PageId, worker: &mut Worker) -> Result<(), PagerError> {
        let mut streams = Streams::default();
        loop {
            match self.word(page).load().state() {
                State::Resident => break,
                State::Lost => {
                    let error = refault_store::StoreError::Checksum("store");
                    return Err(PagerError::Lost { address: self.arena.address(page), error });
                }
                State::Fresh | State::Stored => self.fault(page, true, worker, &mut streams),
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
                self.pins.take(1);
                self.report(page);
            }
        }
    }
}
