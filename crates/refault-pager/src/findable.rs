//! Evicted pages that stay findable: stored, out of the policy's hands, but with their frame until it is needed.
//!
//! With [`crate::PagerOptions::keep_evicted`] an evicted page is written to its slot and write-protected as ever, but not
//! punched out: it waits in a queue, and the oldest of the queue give their frames when there are more than the option
//! allows. One that is read meanwhile is mapped by the kernel, without the pager: no fault is served, nothing is read or
//! decompressed. When its turn comes, its page-table entry gives it away, and it goes back to the policy: it is
//! *reactivated* (spec: freebsd §3.3, §3.4). One that is written goes back at once.
//!
//! This is what [`refault_core::frames::CachedFrames`] does, with the same counters, where the frames are the kernel's: the
//! memfd knows which frame holds which page, and which frame is taken next is ours to say only as "the page that has
//! waited longest".
//!
//! Memory never exceeds the budget: a waiting page is charged until it is punched out. The reserve that is kept empty shrinks to
//! a quarter, because most of what it is for is done by waiting pages, which need only be punched; a queue of up to 1.1 % of the
//! budget takes its room from there, a longer one from the policy.
//!
//! Invariants: in the queue or about to be stands every page whose word says findable; an entry whose word does not is
//! stale. Cost: 4 bytes a page that may wait; its slot besides its frame; a look at its entry when its turn comes (0.5 µs). Where
//! accesses cannot be found out, a page that was only read is punched out all the same.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::engine::for_runs;
use crate::pager::Inner;
use crate::state::{NO_SLOT, State};
use crate::turn::Turn;
use crate::worker::BATCH;

/// The queue. See the module.
pub(crate) struct Findable {
    /// Never grows beyond its first capacity: it is used while faults wait.
    waiting: Mutex<VecDeque<PageId>>,
    /// Of the budget.
    share: f64,
    room: usize,
}

impl Findable {
    /// At most this share of a budget of `maximum` pages, which may shrink later, waits, of `pages` that exist; 0: none.
    pub(crate) fn new(share: f64, maximum: u64, pages: u32) -> Findable {
        let share = if share > 0.0 { share.min(0.5) } else { 0.0 };
        let most = (maximum.min(u64::from(pages)) as f64 * share) as usize;
        let room = if most == 0 { 0 } else { most + 2 * BATCH };
        Findable { waiting: Mutex::new(VecDeque::with_capacity(room)), share, room }
    }

    /// Whether evicted pages wait at all.
    pub(crate) fn is_on(&self) -> bool {
        self.room > 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.room * size_of::<PageId>()) as u64
    }

    /// How many of some pages may wait: all if enough do already, so that others will leave for them, else half.
    fn admits(&self, pages: usize, most: usize) -> usize {
        let waiting = self.waiting.lock().expect("invariant: nothing panics under this lock").len();
        let wanted = if waiting < most { pages / 2 } else { pages };
        wanted.min(self.room.saturating_sub(waiting))
    }

    /// Adds pages; how many, of which the first.
    fn add(&self, pages: &[PageId]) -> usize {
        let mut waiting = self.waiting.lock().expect("invariant: nothing panics under this lock");
        let count = pages.len().min(self.room.saturating_sub(waiting.len()));
        waiting.extend(&pages[..count]);
        count
    }

    /// Takes the oldest out, while more than `most` wait. How many.
    fn take(&self, most: usize, pages: &mut [PageId; BATCH]) -> usize {
        let mut waiting = self.waiting.lock().expect("invariant: nothing panics under this lock");
        let count = waiting.len().saturating_sub(most).min(BATCH);
        for (place, page) in pages.iter_mut().zip(waiting.drain(..count)) {
            *place = page;
        }
        count
    }
}

impl Inner {
    fn most_findable(&self) -> usize {
        let pages = self.budget.tightest().0.maximum_pages();
        ((pages as f64 * self.findable.share) as usize).min(self.findable.room.saturating_sub(2 * BATCH))
    }

    /// How many of some stored and write-protected pages (sorted), owned as [`State::Evicting`], are to wait: the first. Their
    /// entries are dropped, so that a touch can be seen. When their words say findable, [`Inner::wait_findable`] is to be
    /// called.
    pub(crate) fn keep_findable(&self, pages: &[PageId]) -> usize {
        if !self.findable.is_on() {
            return 0;
        }
        let count = self.findable.admits(pages.len(), self.most_findable());
        if count > 0 {
            // SAFETY: the pages lie in the arena's mapping, which is shared; a batch is no more than 256 runs.
            unsafe { crate::dropper::drop_pages(self.arena.base(), &pages[..count]) };
            let mut engine = self.engine();
            pages[..count].iter().for_each(|page| engine.bits().dropped(*page));
        }
        count
    }

    /// Findable pages wait from now on.
    pub(crate) fn wait_findable(&self, pages: &[PageId]) {
        if pages.is_empty() {
            return;
        }
        let count = self.findable.add(pages);
        self.counts.cached.fetch_add(count as u64, Ordering::Relaxed);
        // Others were faster: the rest goes back to the policy.
        pages[count..].iter().for_each(|page| {
            self.take_back(*page);
        });
    }

    /// A findable page is an ordinary one again, and the policy is told. False if it was not findable.
    pub(crate) fn take_back(&self, page: PageId) -> bool {
        loop {
            let seen = self.word(page).load();
            if !seen.findable() || seen.state() != State::Resident {
                return false;
            }
            if self.word(page).reactivate(seen) {
                // Admitted as any other page: no refault, because nothing was read.
                let _ = self.table.take_shadow(page);
                self.report(page);
                return true;
            }
        }
    }

    /// A page that was findable was written, which has made it an ordinary one.
    pub(crate) fn note_reactivated(&self, page: PageId) {
        self.counts.reactivated.fetch_add(1, Ordering::Relaxed);
        let _ = self.table.take_shadow(page);
        self.report(page);
    }

    /// Gives the frames of the oldest waiting pages back, as many as are too many; some in any case if `anyway`, as long as
    /// any wait. Returns how many left memory.
    pub(crate) fn release_findable(&self, anyway: bool) -> u64 {
        if !self.findable.is_on() {
            return 0;
        }
        let most = self.most_findable();
        let mut freed = 0;
        let mut pages = [0; BATCH];
        loop {
            let count = self.findable.take(if anyway && freed == 0 { 0 } else { most }, &mut pages);
            if count == 0 {
                return freed;
            }
            pages[..count].sort_unstable();
            freed += self.release_oldest(&pages[..count]);
        }
    }

    fn release_oldest(&self, pages: &[PageId]) -> u64 {
        let mut touched = [false; BATCH];
        self.engine().touched(pages, &mut touched);
        let mut leaving = [0; BATCH];
        let mut count = 0;
        for (page, touched) in pages.iter().zip(touched) {
            let word = self.word(*page);
            let seen = word.load();
            if !seen.findable() || seen.state() != State::Resident {
                // Written, discarded or evicted meanwhile.
                continue;
            }
            if touched || seen.pinned() || !word.begin(seen, State::Evicting) {
                if self.take_back(*page) {
                    self.counts.reactivated.fetch_add(1, Ordering::Relaxed);
                }
                continue;
            }
            leaving[count] = *page;
            count += 1;
        }
        let leaving = &leaving[..count];
        let turn = Turn::take();
        for_runs(leaving, |first, pages| {
            if let Err(error) = self.arena.punch(&turn, first, pages) {
                crate::report::end_with(format_args!(
                    "freeing evicted pages failed: {}",
                    refault_store::ErrorNumber::from(&error)
                ));
            }
        });
        drop(turn);
        for page in leaving {
            self.distances.evicted(*page);
            let word = self.word(*page);
            let waited = match word.load().slot() {
                NO_SLOT => word.finish(State::Fresh, 0, false),
                slot => word.finish(State::Stored, slot, false),
            };
            if waited {
                let _ = self.uffd.wake(self.arena.address(*page), PAGE_SIZE);
            }
            // A pin that came and went may have made the policy take it.
            self.report(*page);
        }
        self.budget.uncharge(count as u64);
        count as u64
    }
}
