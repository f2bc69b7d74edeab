//! Which resident pages of this process others have too, as the kernel says it of each.
//!
//! Cost: three system calls for a look at neighbours in a row.

use refault_linux::calls::SYS_mincore;
use refault_linux::pagemap::{self, is_exclusive, is_present, is_there};
use refault_linux::{PAGE, sys};

/// Pages that are asked for at once at most.
const MAX_PAGES: usize = 64;

/// See the module. Where there is no page map, all pages that are present are taken for shared.
pub(crate) struct Pagemap(Option<pagemap::Pagemap>);

impl Pagemap {
    pub(crate) fn open() -> Pagemap {
        Pagemap(pagemap::Pagemap::open().ok())
    }

    /// A bit for each of the pages (64 at most) from an address on: in memory, and of others too.
    pub(crate) fn shared(&self, first: usize, pages: usize) -> u64 {
        self.bits(first, pages, |entry| is_present(entry) && !is_exclusive(entry))
    }

    /// A bit for each of the pages (64 at most) from an address on: there is an entry for it in the page tables. Where
    /// there is no page map, as after a change of the user, `mincore` says it.
    pub(crate) fn there(&self, first: usize, pages: usize) -> u64 {
        if self.0.is_some() {
            return self.bits(first, pages, is_there);
        }
        let mut entries = [0u8; MAX_PAGES];
        let pages = pages.min(MAX_PAGES);
        // SAFETY: mincore writes a byte for each page.
        let error = unsafe { sys::call(SYS_mincore, [first, pages * PAGE, entries.as_mut_ptr() as usize, 0, 0, 0]) };
        if error < 0 {
            return u64::MAX >> (MAX_PAGES - pages);
        }
        entries[..pages].iter().enumerate().fold(0, |bits, (index, entry)| bits | u64::from(entry & 1) << index)
    }

    fn bits(&self, first: usize, pages: usize, has: impl Fn(u64) -> bool) -> u64 {
        const SHARED: u64 = pagemap::entry(true, false, false, 0);
        let mut entries = [SHARED; MAX_PAGES];
        let entries = &mut entries[..pages.min(MAX_PAGES)];
        if let Some(map) = &self.0
            && map.read(first, entries).is_err()
        {
            entries.fill(SHARED);
        }
        entries.iter().enumerate().fold(0, |bits, (index, entry)| bits | u64::from(has(*entry)) << index)
    }
}

#[cfg(test)]
mod tests {
    use refault_linux::PAGE;
    use refault_linux::calls::{SYS_fork, SYS_kill, SYS_wait4};
    use refault_linux::signals::SIGKILL;
    use refault_linux::sys;

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
        let child = unsafe { sys::call(SYS_fork, [0; 6]) };
        if child == 0 {
            loop {
                sys::sleep(100_000_000);
            }
        }
        assert!(child > 0);
        // SAFETY: mapped above.
        unsafe { ((at + PAGE) as *mut u8).write_volatile(2) };
        let shared = Pagemap::open().shared(at, 4);
        // SAFETY: ends the child and waits for it.
        unsafe {
            sys::call(SYS_kill, [child as usize, SIGKILL as usize, 0, 0, 0, 0]);
            sys::call(SYS_wait4, [child as usize, 0, 0, 0, 0, 0]);
        }
        assert_eq!(shared, 0b1001);
        assert_eq!(Pagemap(None).shared(at, 2), 0b11);
        assert_eq!((Pagemap::open().there(at, 4), Pagemap(None).there(at, 4)), (0b1011, 0b1011));
    }
}
