//! Memory that system calls are given: resident before the call, and not evicted until it returns.
//!
//! Where faults are served in the thread that takes them, a system call that touches an evicted page fails with EFAULT.
//! A caller can name the memory first ([`Pager::pin_user_pages`]): what is not resident is brought in by the calling
//! thread, without a fault, and the evictor passes over it until the pin ends ([`crate::pin_slots`]).
//!
//! Invariant: no lock is held while the caller makes its call. Cost: some 20 ns where all is resident.

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::options::FaultMode;
use crate::pager::{Inner, Pager};
use crate::pin_slots::{PinSlot, RANGES};
use crate::state::State;

/// Pins at once; a thread that waits in a system call has one.
pub(crate) const SLOTS: usize = 512;

/// Pages of a pin at most, and the share of the budget that they may be: ranges that go beyond are brought in and not
/// pinned.
const MAX_PAGES: u32 = 256;
const SHARE: u64 = 16;

/// Keeps memory resident until it is dropped.
pub struct PinGuard<'a>(Option<&'a PinSlot>);

impl Drop for PinGuard<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.give_back();
        }
    }
}

/// Memory that a system call is given.
#[derive(Clone, Copy, Debug)]
pub struct UserBuffer {
    /// First byte.
    pub address: usize,
    /// Bytes.
    pub len: usize,
    /// The call writes to it.
    pub written: bool,
}

impl Pager {
    /// Brings memory in and keeps it resident until the result is dropped, for a system call that is given it. Memory
    /// outside regions is passed over. Does nothing where handlers serve faults, because they serve those of system
    /// calls too. Ranges that go beyond 1 MiB or a sixteenth of the budget in all are brought in and not pinned.
    pub fn pin_user_pages(&self, buffers: impl Iterator<Item = UserBuffer>) -> PinGuard<'_> {
        let inner = self.inner();
        let mut guard = PinGuard(None);
        if inner.options.fault_mode == FaultMode::InThread {
            let (mut pinned, mut pinned_pages) = (0, 0);
            let most = MAX_PAGES.min((inner.budget.maximum_pages() / SHARE) as u32);
            for buffer in buffers {
                let Some((first, end)) = inner.pages_of(buffer) else { continue };
                if pinned < RANGES && pinned_pages + (end - first) <= most {
                    guard.0 = guard.0.or_else(|| inner.pin_slots.take(this_thread(), (&raw const pinned) as usize));
                    if let Some(slot) = guard.0 {
                        slot.put(pinned, first, end);
                        pinned += 1;
                        pinned_pages += end - first;
                    }
                }
                (first..end).for_each(|page| inner.make_resident(page, buffer.written));
            }
        }
        guard
    }
}

fn this_thread() -> usize {
    // SAFETY: the call takes nothing and reads a register that libc has set up for each thread.
    unsafe { libc::pthread_self() as usize }
}

impl Inner {
    fn pages_of(&self, buffer: UserBuffer) -> Option<(PageId, PageId)> {
        let first = self.arena.page_at(buffer.address)?;
        if buffer.len == 0 {
            return None;
        }
        let last = self.arena.page_at(buffer.address.saturating_add(buffer.len - 1)).unwrap_or(self.arena.pages() - 1);
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

    /// Gives those of some pages back that a system call is using, which the caller owns as [`State::Evicting`]; how
    /// many are left, which are the first.
    pub(crate) fn pass_over_pinned(&self, pages: &mut [PageId]) -> usize {
        if self.pin_slots.never_used() {
            return pages.len();
        }
        let mut left = 0;
        for index in 0..pages.len() {
            let page = pages[index];
            if self.pin_slots.has(page) {
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
