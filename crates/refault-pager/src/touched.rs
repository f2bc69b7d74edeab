//! Memory that system calls are given: resident before the call, and not evicted until it returns.
//!
//! Where faults are served in the thread that takes them, a system call that touches an evicted page fails with EFAULT. Whoever
//! makes such calls can name the memory first ([`Pager::hold`]): what is not resident is brought in by the calling thread, without
//! a fault, and the evictor passes over it until the hold ends ([`crate::holds`]).
//!
//! Invariant: no lock is held while the caller makes its call. Cost: some 20 ns where all is resident.

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::holds::{Place, RANGES};
use crate::options::FaultMode;
use crate::pager::{Inner, Pager};
use crate::state::State;

/// Holds at once; a thread that waits in a system call has one.
pub(crate) const PLACES: usize = 512;

/// Pages of a hold at most, and share of the budget that they may be: ranges that go beyond are brought in and not held.
const MOST_PAGES: u32 = 256;
const SHARE: u64 = 16;

/// Keeps memory resident until it is dropped.
pub struct Held<'a>(Option<&'a Place>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.give_back();
        }
    }
}

/// Memory that a system call is given.
#[derive(Clone, Copy, Debug)]
pub struct Touched {
    /// First byte.
    pub address: usize,
    /// Bytes.
    pub len: usize,
    /// The call writes to it.
    pub written: bool,
}

impl Pager {
    /// Brings memory in and keeps it resident until the result is dropped, for a system call that is given it. Memory outside
    /// of regions is passed over. Does nothing where handlers serve faults, because they serve those of system calls too.
    /// Ranges that go beyond 1 MiB or a sixteenth of the budget in all are brought in and not held.
    pub fn hold(&self, touched: impl Iterator<Item = Touched>) -> Held<'_> {
        let inner = self.inner();
        let mut held_at = Held(None);
        if inner.options.fault_mode == FaultMode::InThread {
            let (mut held, mut held_pages) = (0, 0);
            let most = MOST_PAGES.min((inner.budget.maximum_pages() / SHARE) as u32);
            for touched in touched {
                let Some((first, end)) = inner.pages_of(touched) else { continue };
                if held < RANGES && held_pages + (end - first) <= most {
                    held_at.0 = held_at.0.or_else(|| inner.holds.take(this_thread(), (&raw const held) as usize));
                    if let Some(place) = held_at.0 {
                        place.put(held, first, end);
                        held += 1;
                        held_pages += end - first;
                    }
                }
                (first..end).for_each(|page| inner.make_resident(page, touched.written));
            }
        }
        held_at
    }
}

fn this_thread() -> usize {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as usize }
}

impl Inner {
    fn pages_of(&self, touched: Touched) -> Option<(PageId, PageId)> {
        let first = self.arena.page_at(touched.address)?;
        if touched.len == 0 {
            return None;
        }
        let last =
            self.arena.page_at(touched.address.saturating_add(touched.len - 1)).unwrap_or(self.arena.pages() - 1);
        Some((first, (last + 1).min(self.arena.high()).max(first)))
    }

    /// Brings a page in, if it is not there, and lets it be written if it is to be.
    fn make_resident(&self, page: PageId, written: bool) {
        loop {
            let seen = self.word(page).load();
            match seen.state() {
                State::Resident if !written || !seen.kept() => return,
                // The call says EFAULT.
                State::Lost => return,
                State::Evicting | State::Filling | State::Moving => std::thread::yield_now(),
                _ => crate::in_thread::serve_uninterrupted(self, page, written),
            }
        }
    }

    /// Gives those of some pages back that somebody holds, which the caller owns as [`State::Evicting`]; how many are left, which
    /// are the first.
    pub(crate) fn pass_over_held(&self, pages: &mut [PageId]) -> usize {
        if self.holds.never_used() {
            return pages.len();
        }
        let mut left = 0;
        for index in 0..pages.len() {
            let page = pages[index];
            if self.holds.has(page) {
                let word = self.word(page);
                let seen = word.load();
                if word.finish(State::Resident, seen.slot(), seen.kept()) {
                    let _ = self.uffd.wake(self.arena.address(page), PAGE_SIZE);
                }
                let _ = self.table.take_shadow(page);
                self.report(page);
            } else {
                pages[left] = page;
                left += 1;
            }
        }
        left
    }
}
