//! Which resident pages of this process others have too, as the kernel says it of each.
//!
//! Cost: three system calls for a look at neighbours in a row. Source: the kernel's documentation of `pagemap`.

use crate::PAGE;
use crate::sys::{self, nr};

/// The page is in memory; the kernel has written it to its swap; nobody else has it.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const EXCLUSIVE: u64 = 1 << 56;
/// Pages that are asked for at once at most.
const MAX_PAGES: usize = 64;

/// See the module.
pub(crate) struct Pagemap(isize);

impl Pagemap {
    /// Where there is no `/proc`, all pages are taken for there and shared.
    pub(crate) fn open() -> Pagemap {
        // SAFETY: opens a file: O_CLOEXEC.
        Pagemap(unsafe { sys::call(2, [c"/proc/self/pagemap".as_ptr() as usize, 0o2_000_000, 0, 0, 0, 0]) })
    }

    /// A bit for each of the pages (64 at most) from an address on: in memory, and of others too.
    pub(crate) fn shared(&self, first: usize, pages: usize) -> u64 {
        self.bits(first, pages, |entry| entry & PRESENT != 0 && entry & EXCLUSIVE == 0)
    }

    /// A bit for each of the pages (64 at most) from an address on: there is an entry for it in the page tables.
    pub(crate) fn there(&self, first: usize, pages: usize) -> u64 {
        self.bits(first, pages, |entry| entry & (PRESENT | SWAPPED) != 0)
    }

    fn bits(&self, first: usize, pages: usize, has: impl Fn(u64) -> bool) -> u64 {
        const PREAD: usize = 17;
        let mut entries = [PRESENT; MAX_PAGES];
        let pages = pages.min(MAX_PAGES);
        if self.0 >= 0 {
            // SAFETY: writes into `entries`.
            unsafe {
                sys::call(PREAD, [self.0 as usize, entries.as_mut_ptr() as usize, pages * 8, first / PAGE * 8, 0, 0])
            };
        }
        entries[..pages].iter().enumerate().fold(0, |bits, (index, entry)| bits | u64::from(has(*entry)) << index)
    }
}

impl Drop for Pagemap {
    fn drop(&mut self) {
        if self.0 >= 0 {
            // SAFETY: it was opened above.
            unsafe { sys::call(nr::CLOSE, [self.0 as usize, 0, 0, 0, 0, 0]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_has_too_is_told_from_what_it_has_not() {
        let at = sys::map(4 * PAGE);
        assert_ne!(at, 0);
        for page in [0, 1, 3] {
            // SAFETY: mapped above.
            unsafe { ((at + page * PAGE) as *mut u8).write_volatile(1) };
        }
        assert_eq!(Pagemap::open().shared(at, 4), 0);
        // SAFETY: the child only waits to be killed.
        let child = unsafe { sys::call(57, [0; 6]) };
        if child == 0 {
            loop {
                sys::nap(100_000_000);
            }
        }
        assert!(child > 0);
        // SAFETY: mapped above.
        unsafe { ((at + PAGE) as *mut u8).write_volatile(2) };
        let shared = Pagemap::open().shared(at, 4);
        // SAFETY: ends the child and waits for it.
        unsafe {
            sys::call(62, [child as usize, 9, 0, 0, 0, 0]);
            sys::call(61, [child as usize, 0, 0, 0, 0, 0]);
        }
        assert_eq!(shared, 0b1001);
        assert_eq!(Pagemap(-1).shared(at, 2), 0b11);
    }
}
