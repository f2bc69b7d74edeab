//! Faults: bringing pages in.
//!
//! On a fault, a stored page is read into a private buffer. One step then allocates, fills and maps it (`UFFDIO_COPY`),
//! so no thread ever sees a page half filled. A fault on a page that another thread owns leaves a mark and is
//! forgotten. The owner wakes the faulting thread, which faults again or finds the page there.
//!
//! Faults in sequence bring their successors along ([`crate::streams`], [`crate::read_ahead`]).

use std::sync::atomic::Ordering;

use refault_core::PageId;
use refault_store::{PAGE_SIZE, Slot, StoreError, Tier, same_filled};

use crate::fault_scratch::{BATCH, FaultScratch};
use crate::pager::Inner;
use crate::pte_lock::PteLock;
use crate::state::{NO_SLOT, State, Word};

impl Inner {
    /// Resolves a fault. `address`: where in the page, if what follows is to come along.
    pub(crate) fn fault(&self, page: PageId, address: Option<usize>, write: bool, worker: &mut FaultScratch) {
        loop {
            let word = self.word(page);
            let seen = word.load();
            match seen.state() {
                State::Fresh | State::Stored => {
                    if !word.begin(seen, State::Filling) {
                        continue;
                    }
                    let _stall = (seen.state() == State::Stored).then(|| self.pressure.stall());
                    self.charge(1, Some(page), worker);
                    if self.fill(page, seen, write, worker)
                        && let Some(address) = address.filter(|_| self.options.bring_successors)
                    {
                        self.bring_what_follows(page, address, worker);
                    }
                    return;
                }
                State::Filling | State::Evicting | State::Moving => {
                    if word.mark_waited(seen) {
                        return;
                    }
                }
                State::Resident if write => {
                    // The first write to a page that is equal to its slot, or that was moved to where an eviction had
                    // left its protection. Only an owner may lift it: a thread may be about to evict the page. A page
                    // that came in meanwhile is not protected, and loses nothing.
                    if !word.begin(seen, State::Moving) {
                        continue;
                    }
                    if seen.kept() {
                        self.counts.protect_faults.fetch_add(1, Ordering::Relaxed);
                        if Slot::from_bits(seen.slot()).tier() == Tier::Pool {
                            self.copies.was_written(page);
                        }
                    }
                    self.give_up_slot(seen);
                    let _ = self.uffd.unprotect(&PteLock::lock(), self.arena.address(page), PAGE_SIZE);
                    let _ = word.finish(State::Resident, 0, false);
                    let _ = self.uffd.wake(self.arena.address(page), PAGE_SIZE);
                    // The policy may have looked while the page was owned.
                    self.report(page);
                    return;
                }
                State::Lost => {
                    // Dropping the entries of neighbours takes the mark away with them.
                    let _ = self.uffd.unprotect(&PteLock::lock(), self.arena.address(page), PAGE_SIZE);
                    let _ = self.uffd.poison(self.arena.address(page), PAGE_SIZE);
                    let _ = self.uffd.wake(self.arena.address(page), PAGE_SIZE);
                    return;
                }
                // It came in meanwhile: look again.
                State::Resident => {
                    let _ = self.uffd.wake(self.arena.address(page), PAGE_SIZE);
                    return;
                }
            }
        }
    }

    pub(crate) fn give_up_slot(&self, seen: Word) {
        if seen.kept() && seen.slot() != NO_SLOT {
            self.release(seen.slot());
        }
    }

    /// Whether a page that comes back from `slot` keeps the slot, so that it need not be written again: if it comes
    /// back by a read from the file, whose writes are dear.
    fn keeps(slot: Slot, write: bool) -> bool {
        !write && slot.tier() == Tier::File
    }

    /// Fills an owned and charged page. False if it is lost.
    pub(crate) fn fill(&self, page: PageId, seen: Word, write: bool, worker: &mut FaultScratch) -> bool {
        let address = self.arena.address(page);
        let word = self.word(page);
        let mut kept = false;
        let mut slot = 0;
        let outcome = if seen.state() == State::Fresh {
            self.counts.zero_fills.fetch_add(1, Ordering::Relaxed);
            match self.ranges.read(page, &mut worker.pages[0]) {
                None => self.zero(address, PAGE_SIZE),
                Some(Err(error)) => Err(error),
                Some(Ok(())) => {
                    (kept, slot) = (!write, NO_SLOT);
                    self.copy(address, &worker.pages[..1], kept)
                }
            }
        } else {
            self.counts.fills.fetch_add(1, Ordering::Relaxed);
            self.distances.returned(page);
            let from = Slot::from_bits(seen.slot());
            if from.tier() == Tier::SameFilled && same_filled::value(from) == 0 {
                self.zero(address, PAGE_SIZE)
            } else {
                kept = Inner::keeps(from, write);
                slot = if kept { seen.slot() } else { 0 };
                match self.store.read(from, &mut worker.pages[0], &mut worker.scratch) {
                    Ok(()) => self.copy(address, &worker.pages[..1], kept),
                    Err(error) => Err(error),
                }
            }
        };
        if seen.state() == State::Stored && (outcome.is_err() || !kept) {
            self.release(seen.slot());
        }
        match outcome {
            Ok(()) => {
                if word.finish(State::Resident, slot, kept) {
                    let _ = self.uffd.wake(address, PAGE_SIZE);
                }
                self.report(page);
                if seen.state() == State::Stored {
                    self.note_copies(page, 1, false);
                }
                true
            }
            Err(error) => {
                self.lose(page, error);
                false
            }
        }
    }

    /// Gives a page up whose contents did not come back.
    fn lose(&self, page: PageId, error: StoreError) {
        let address = self.arena.address(page);
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
        crate::report::say(format_args!("the page at {address:#x} is lost and raises SIGBUS when touched: {error}"));
        self.budget.uncharge(1);
        // A marker that an eviction left would stand in the way.
        let _ = self.uffd.unprotect(&PteLock::lock(), address, PAGE_SIZE);
        if let Err(error) = self.uffd.poison(address, PAGE_SIZE) {
            if crate::uffd::is_closed(&error) {
                crate::report::end_for("marking a lost page", &error);
            }
            crate::report::end(
                "this kernel cannot mark a lost page, and the program must not go on with other contents",
            );
        }
        let _ = self.word(page).finish(State::Lost, 0, false);
        let _ = self.uffd.wake(address, PAGE_SIZE);
    }

    fn zero(&self, address: usize, len: usize) -> Result<(), StoreError> {
        mapped(self.uffd.zero(address, len))
    }

    fn copy(&self, address: usize, pages: &[refault_store::Page], protect: bool) -> Result<(), StoreError> {
        // SAFETY: the buffer holds that many pages.
        mapped(unsafe { self.uffd.copy(address, pages.as_ptr().cast(), pages.len() * PAGE_SIZE, protect) })
    }

    /// Brings in up to `count` pages from `first` on, while they are alike and the budget has room. Returns how many.
    /// `copies`: those from the pool keep their copies there.
    pub(crate) fn fill_following(&self, first: PageId, count: u32, copies: bool, worker: &mut FaultScratch) -> u32 {
        let end = (first + count.min(BATCH as u32)).min(self.arena.high());
        // Fresh pages come in only at addresses that are taken; stored ones cannot be anywhere else.
        let (owned, fresh) = self.arena.with_taken(first, |taken| self.own_following(first, end.min(taken)));
        if owned == 0 {
            return 0;
        }
        self.counts.prefetched.fetch_add(u64::from(owned), Ordering::Relaxed);
        let filled =
            if fresh { self.fill_zero_run(first, owned) } else { self.fill_stored_run(first, owned, copies, worker) };
        if self.budget.tightest().1 < self.reserve() {
            crate::threads::wake_evictor(self);
        }
        filled
    }

    /// Takes pages that are alike into the state Filling, charged, as far as there is room. How many, and whether
    /// fresh.
    fn own_following(&self, first: PageId, end: PageId) -> (u32, bool) {
        let spare = self.budget.tightest().1 - 1;
        let mut owned = 0;
        let mut fresh = false;
        while first + owned < end && i64::from(owned) < spare {
            let word = self.word(first + owned);
            let seen = word.load();
            let wanted = match seen.state() {
                State::Fresh => !self.ranges.has_file(first + owned),
                State::Stored => true,
                _ => false,
            };
            if !wanted || (owned > 0 && fresh != (seen.state() == State::Fresh)) || !word.begin(seen, State::Filling) {
                break;
            }
            if self.budget.try_charge(1).is_err() {
                // Back to where it was; a fault that came between has left its mark.
                if word.finish(seen.state(), seen.slot(), false) {
                    let _ = self.uffd.wake(self.arena.address(first + owned), PAGE_SIZE);
                }
                break;
            }
            fresh = seen.state() == State::Fresh;
            owned += 1;
        }
        (owned, fresh)
    }

    fn fill_zero_run(&self, first: PageId, count: u32) -> u32 {
        let address = self.arena.address(first);
        let outcome = self.zero(address, count as usize * PAGE_SIZE);
        for page in first..first + count {
            match outcome {
                Ok(()) => self.finish_resident(page, 0, false),
                Err(error) => self.lose(page, error),
            }
        }
        count
    }

    fn fill_stored_run(&self, first: PageId, count: u32, copies: bool, worker: &mut FaultScratch) -> u32 {
        let mut read = 0;
        // Read until the first that fails: the run before it is mapped as a whole.
        let mut failed = None;
        let mut keep = true;
        for index in 0..count {
            let slot = Slot::from_bits(self.word(first + index).load().slot());
            self.distances.returned(first + index);
            keep &= copies || Inner::keeps(slot, false);
            match self.store.read(slot, &mut worker.pages[index as usize], &mut worker.scratch) {
                Ok(()) => read += 1,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let mapped =
            if read > 0 { self.copy(self.arena.address(first), &worker.pages[..read as usize], keep) } else { Ok(()) };
        for index in 0..count {
            let page = first + index;
            let slot = self.word(page).load().slot();
            if index < read && mapped.is_ok() {
                if keep {
                    self.finish_resident(page, slot, true);
                } else {
                    self.release(slot);
                    self.finish_resident(page, 0, false);
                }
            } else if index == read && failed.is_some() || index < read {
                self.release(slot);
                self.lose(page, failed.or(mapped.err()).expect("invariant: one of them failed"));
            } else {
                // Not read any more: it stays where it was.
                self.budget.uncharge(1);
                if self.word(page).finish(State::Stored, slot, false) {
                    let _ = self.uffd.wake(self.arena.address(page), PAGE_SIZE);
                }
            }
        }
        read
    }

    pub(crate) fn finish_resident(&self, page: PageId, slot: u64, kept: bool) {
        if self.word(page).finish(State::Resident, slot, kept) {
            let _ = self.uffd.wake(self.arena.address(page), PAGE_SIZE);
        }
        self.report(page);
    }
}

/// A mapping call's outcome as a store's. The pager owns the pages, so no other thread can have mapped them.
fn mapped(outcome: std::io::Result<()>) -> Result<(), StoreError> {
    outcome.map_err(|error| StoreError::Io {
        operation: "mapping a page, not reading",
        offset: 0,
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    })
}
