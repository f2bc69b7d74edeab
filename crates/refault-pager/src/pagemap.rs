//! Which pages of a range have a page-table entry: the scan half of the drop-and-scan accessed bit.
//!
//! `PAGEMAP_SCAN` where the kernel has it (some 17 ns per present page, nothing for empty page tables), otherwise the
//! 64-bit entries of `/proc/self/pagemap` (30 times slower). Both need no privileges for the caller's own memory.
//!
//! ```
//! use refault_pager::pagemap::PageMap;
//!
//! let map = PageMap::open()?; // of this process; needs no privileges
//! println!("pages are found with {:?}", map.method());
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const PAGE: usize = refault_store::PAGE_SIZE;
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<ScanArguments>() as u64) << 16 | (b'f' as u64) << 8 | 16;
const RUNS: usize = 256;

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

/// How present pages are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanMethod {
    /// The ioctl.
    Ioctl,
    /// Reading the entries.
    Entries,
}

/// An open page map of this process.
pub struct PageMap {
    file: File,
    method: ScanMethod,
    #[cfg(test)]
    scans: std::sync::atomic::AtomicU64,
}

impl PageMap {
    /// Opens the page map and finds out which method works. After a fork it must be opened again.
    pub fn open() -> io::Result<PageMap> {
        let mut map = PageMap {
            file: File::open("/proc/self/pagemap")?,
            method: ScanMethod::Ioctl,
            #[cfg(test)]
            scans: std::sync::atomic::AtomicU64::new(0),
        };
        let probe = 0u64;
        let page = (&raw const probe) as usize & !(PAGE - 1);
        if map.scan(page, page + PAGE, &mut |_, _| {}).is_err() {
            map.method = ScanMethod::Entries;
            map.scan(page, page + PAGE, &mut |_, _| {})?;
        }
        Ok(map)
    }

    /// In a child after a fork: the child's page map, under the old number where that can be had.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        let fresh = File::open("/proc/self/pagemap")?;
        // SAFETY: both are descriptors of this process; the old one is this value's.
        if unsafe { libc::dup3(fresh.as_raw_fd(), self.file.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
            self.file = fresh;
        }
        Ok(())
    }

    /// The method in use.
    pub fn method(&self) -> ScanMethod {
        self.method
    }

    /// Calls `run` with the start and end address of each run of present pages in a range.
    pub fn scan(&self, start: usize, end: usize, run: &mut dyn FnMut(usize, usize)) -> io::Result<()> {
        #[cfg(test)]
        self.scans.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match self.method {
            ScanMethod::Ioctl => self.scan_ioctl(start, end, run),
            ScanMethod::Entries => self.scan_entries(start, end, run),
        }
    }

    fn scan_ioctl(&self, start: usize, end: usize, run: &mut dyn FnMut(usize, usize)) -> io::Result<()> {
        let mut runs = [Run::default(); RUNS];
        let mut at = start as u64;
        while at < end as u64 {
            let mut arguments = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                flags: 0,
                start: at,
                end: end as u64,
                walk_end: 0,
                vec: runs.as_mut_ptr() as u64,
                vec_len: RUNS as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: PAGE_IS_PRESENT,
                category_anyof_mask: 0,
                return_mask: PAGE_IS_PRESENT,
            };
            // SAFETY: the structure is the one this ioctl takes and `vec` has `vec_len` entries.
            let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
            if found < 0 {
                return Err(io::Error::last_os_error());
            }
            for found in &runs[..found as usize] {
                run(found.start as usize, found.end as usize);
            }
            if arguments.walk_end <= at {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            at = arguments.walk_end;
        }
        Ok(())
    }

    fn scan_entries(&self, start: usize, end: usize, run: &mut dyn FnMut(usize, usize)) -> io::Result<()> {
        const PRESENT: u64 = 1 << 63;
        let mut entries = [0u8; 512 * 8];
        let mut at = start;
        while at < end {
            let pages = ((end - at) / PAGE).min(512);
            self.file.read_exact_at(&mut entries[..pages * 8], (at / PAGE * 8) as u64)?;
            let mut first = None;
            for page in 0..=pages {
                let present = page < pages
                    && u64::from_ne_bytes(entries[page * 8..page * 8 + 8].try_into().expect("invariant: 8 bytes"))
                        & PRESENT
                        != 0;
                match (present, first) {
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

    /// How often a range was looked at.
    #[cfg(test)]
    pub(crate) fn scans(&self) -> u64 {
        self.scans.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Uses the slow method, for comparison.
    #[cfg(test)]
    fn with_entries(mut self) -> PageMap {
        self.method = ScanMethod::Entries;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn both_methods_find_exactly_the_touched_pages(touched in proptest::collection::btree_set(0usize..1500, 0..300)) {
            let len = 1500 * PAGE;
            // SAFETY: a fresh private mapping; it is unmapped below.
            let base = unsafe {
                rustix::mm::mmap_anonymous(
                    std::ptr::null_mut(), len,
                    rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::PRIVATE,
                )
            }.expect("maps") as usize;
            // SAFETY: the mapping was just made; one 4 KiB page per entry is what is tested.
            unsafe { rustix::mm::madvise(base as *mut _, len, rustix::mm::Advice::LinuxNoHugepage) }.expect("advises");
            for page in &touched {
                // SAFETY: inside the mapping.
                unsafe { ((base + page * PAGE) as *mut u8).write_volatile(1) };
            }
            let mut maps = vec![PageMap::open().expect("opens").with_entries()];
            let fast = PageMap::open().expect("opens");
            if fast.method() == ScanMethod::Ioctl { maps.push(fast) }
            for map in maps {
                let mut found = std::collections::BTreeSet::new();
                map.scan(base, base + len, &mut |from, to| found.extend((from..to).step_by(PAGE).map(|a| (a - base) / PAGE)))
                    .expect("scans");
                prop_assert_eq!(&found, &touched);
            }
            // SAFETY: made above, not used any more.
            unsafe { rustix::mm::munmap(base as *mut _, len) }.expect("unmaps");
        }
    }
}
