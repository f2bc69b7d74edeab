//! The kernel's page map of a process: an entry of 64 bits per page, and `PAGEMAP_SCAN`, which finds runs of pages.
//!
//! Neither needs privileges for the caller's own memory; frames are shown to root alone. Cost: one system call per
//! [`Pagemap::read`]; a scan makes one call per 256 runs found, and takes some 17 ns per present page and nothing for
//! empty page tables. Source: the kernel's documentation of `pagemap`, `linux/fs.h`.
//!
//! ```
//! use refault_linux::PAGE;
//! use refault_linux::pagemap::{Pagemap, is_present};
//!
//! let here = 0u8;
//! let page = &raw const here as usize / PAGE * PAGE;
//! let mut entries = [0; 1];
//! Pagemap::open().expect("a kernel with /proc").read(page, &mut entries).expect("it is mapped");
//! assert!(is_present(entries[0]));
//! ```

use crate::errno::{EINTR, EIO};
use crate::flags::{O_CLOEXEC, O_RDONLY};
use crate::numbers::own as number;
use crate::{PAGE, sys};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = size_of::<u64>();

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// The page is in memory.
pub const fn is_present(entry: u64) -> bool {
    entry & PRESENT != 0
}

/// The page is in memory or in the kernel's swap: page tables have something for it.
pub const fn is_there(entry: u64) -> bool {
    entry & (PRESENT | SWAPPED) != 0
}

/// The page is a file's, or shared memory.
pub const fn is_of_file(entry: u64) -> bool {
    entry & OF_FILE != 0
}

/// No other process maps the page.
pub const fn is_exclusive(entry: u64) -> bool {
    entry & EXCLUSIVE != 0
}

/// The number of the frame of a page in memory; 0 if the kernel does not show it to this user.
pub const fn frame(entry: u64) -> u64 {
    entry & FRAME
}

/// An entry as the kernel would write it, for tests of what reads entries.
pub const fn entry(present: bool, of_file: bool, exclusive: bool, frame: u64) -> u64 {
    (if present { PRESENT } else { 0 })
        | (if of_file { OF_FILE } else { 0 })
        | (if exclusive { EXCLUSIVE } else { 0 })
        | (frame & FRAME)
}

/// The entries in bytes that were read from a page map.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|entry| u64::from_ne_bytes(*entry))
}

const PAGE_IS_PRESENT: u64 = 1 << 3;
/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: usize = 3 << 30 | size_of::<ScanArguments>() << 16 | (b'f' as usize) << 8 | 16;
const MAX_RUNS: usize = 256;
/// Entries that [`Pagemap::scan_entries`] reads at once.
const MAX_ENTRIES: usize = 512;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Run {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The page map of this process, closed on drop. After a fork it is still the parent's; see [`Pagemap::reopen`].
#[derive(Debug)]
pub struct Pagemap(i32);

impl Pagemap {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's number: no `/proc`, or no descriptor is left.
    pub fn open() -> Result<Pagemap, isize> {
        let descriptor = sys::open(c"/proc/self/pagemap", O_RDONLY);
        if descriptor < 0 { Err(descriptor) } else { Ok(Pagemap(descriptor as i32)) }
    }

    /// In a child after a fork: the child's page map, under the old number where that can be had.
    ///
    /// # Errors
    /// As [`Pagemap::open`]; the value is as it was.
    pub fn reopen(&mut self) -> Result<(), isize> {
        let fresh = Pagemap::open()?;
        // SAFETY: both are descriptors of this process; the old one is this value's.
        if unsafe { sys::call(number::SYS_dup3, [fresh.0 as usize, self.0 as usize, O_CLOEXEC, 0, 0, 0]) } < 0 {
            *self = fresh;
        }
        Ok(())
    }

    /// The entries of pages in a row from an address on, which is a multiple of [`PAGE`].
    ///
    /// # Errors
    /// The kernel's number; EIO if there are fewer entries.
    pub fn read(&self, first: usize, entries: &mut [u64]) -> Result<(), isize> {
        let bytes = size_of_val(entries);
        let arguments = [self.0 as usize, entries.as_mut_ptr() as usize, bytes, first / PAGE * ENTRY_BYTES, 0, 0];
        loop {
            // SAFETY: writes into `entries`.
            match unsafe { sys::call(number::SYS_pread64, arguments) } {
                EINTR => {}
                read if read == bytes as isize => return Ok(()),
                read => return Err(if read < 0 { read } else { EIO }),
            }
        }
    }

    /// Calls `run` with start and end of each run of present pages in a range, by `PAGEMAP_SCAN` (Linux 6.7).
    ///
    /// # Errors
    /// The kernel's number: ENOTTY where it has no such request. Runs up to there have been told.
    pub fn scan(&self, start: usize, end: usize, run: &mut dyn FnMut(usize, usize)) -> Result<(), isize> {
        let mut runs = [Run::default(); MAX_RUNS];
        let mut at = start as u64;
        while at < end as u64 {
            let mut arguments = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                flags: 0,
                start: at,
                end: end as u64,
                walk_end: 0,
                vec: runs.as_mut_ptr() as u64,
                vec_len: MAX_RUNS as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: PAGE_IS_PRESENT,
                category_anyof_mask: 0,
                return_mask: PAGE_IS_PRESENT,
            };
            let request = [self.0 as usize, PAGEMAP_SCAN, &raw mut arguments as usize, 0, 0, 0];
            // SAFETY: the structure is the one this request takes and `vec` has `vec_len` entries.
            let found = unsafe { sys::call(number::SYS_ioctl, request) };
            if found < 0 {
                return Err(found);
            }
            for found in &runs[..found as usize] {
                run(found.start as usize, found.end as usize);
            }
            if arguments.walk_end <= at {
                return Err(EIO);
            }
            at = arguments.walk_end;
        }
        Ok(())
    }

    /// As [`Pagemap::scan`], by reading all entries, which older kernels know too and which is 30 times slower.
    ///
    /// # Errors
    /// The kernel's number. Runs up to there have been told.
    pub fn scan_entries(&self, start: usize, end: usize, run: &mut dyn FnMut(usize, usize)) -> Result<(), isize> {
        let mut entries = [0; MAX_ENTRIES];
        let mut at = start;
        while at < end {
            let pages = ((end - at) / PAGE).min(MAX_ENTRIES);
            self.read(at, &mut entries[..pages])?;
            let mut first = None;
            for page in 0..=pages {
                match (page < pages && is_present(entries[page.min(MAX_ENTRIES - 1)]), first) {
                    (true, None) => first = Some(page),
                    (false, Some(from)) => {
                        run(at + from * PAGE, at + page * PAGE);
                        first = None;
                    }
                    _ => {}
                }
            }
            at += pages * PAGE;
        }
        Ok(())
    }
}

impl Drop for Pagemap {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's.
        unsafe { sys::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn both_scans_and_the_entries_find_exactly_the_touched_pages(
            touched in proptest::collection::btree_set(0usize..1500, 0..300)
        ) {
            let base = sys::map(1500 * PAGE);
            prop_assert_ne!(base, 0);
            // SAFETY: the mapping is this test's; one small page per entry is what is tested.
            unsafe { sys::call(number::SYS_madvise, [base, 1500 * PAGE, crate::advice::MADV_NOHUGEPAGE, 0, 0, 0]) };
            for page in &touched {
                // SAFETY: inside the mapping.
                unsafe { ((base + page * PAGE) as *mut u8).write_volatile(1) };
            }
            let map = Pagemap::open().expect("a kernel with /proc");
            let end = base + 1500 * PAGE;
            let pages = |from: usize, to: usize| (from..to).step_by(PAGE).map(move |at| (at - base) / PAGE);
            let mut found = BTreeSet::new();
            map.scan_entries(base, end, &mut |from, to| found.extend(pages(from, to))).expect("entries can be read");
            prop_assert_eq!(&found, &touched);
            found.clear();
            if map.scan(base, end, &mut |from, to| found.extend(pages(from, to))).is_ok() {
                prop_assert_eq!(&found, &touched);
            }
            let mut entries = [0; 1500];
            map.read(base, &mut entries).expect("entries can be read");
            let present = entries.iter().enumerate().filter(|(_, entry)| is_present(**entry) && is_there(**entry));
            prop_assert_eq!(present.map(|(page, _)| page).collect::<BTreeSet<_>>(), touched);
            // SAFETY: made above, not used any more.
            unsafe { sys::unmap(base, 1500 * PAGE) };
        }
    }

    #[test]
    fn entries_say_what_they_were_made_of() {
        for bits in 0..8u64 {
            let (present, of_file, exclusive) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            let made = entry(present, of_file, exclusive, 77 + bits);
            assert_eq!((is_present(made), is_of_file(made), is_exclusive(made)), (present, of_file, exclusive));
            assert_eq!((frame(made), is_there(made)), (77 + bits, present));
        }
    }
}
