//! Which pages of a range have a page-table entry: the scan half of the drop-and-scan accessed bit.
//!
//! `PAGEMAP_SCAN` where the kernel has it, otherwise the entries of the page map; [`refault_linux::pagemap`] has the
//! costs.
//!
//! ```
//! use refault_pager::pagemap::PageMap;
//!
//! let map = PageMap::open()?; // of this process; needs no privileges
//! println!("pages are found with {:?}", map.method());
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;

use refault_linux::PAGE;
use refault_linux::pagemap::Pagemap;

use crate::uffd::error_of;

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
    map: Pagemap,
    method: ScanMethod,
    #[cfg(test)]
    scans: std::sync::atomic::AtomicU64,
}

impl PageMap {
    /// Opens the page map and finds out which method works. After a fork it must be opened again.
    ///
    /// # Errors
    /// There is no `/proc`, or no descriptor is left.
    pub fn open() -> io::Result<PageMap> {
        let mut map = PageMap {
            map: Pagemap::open().map_err(error_of)?,
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
        self.map.reopen().map_err(error_of)
    }

    /// The method in use.
    pub fn method(&self) -> ScanMethod {
        self.method
    }

    /// Calls `run` with the start and end address of each run of present pages in a range.
    ///
    /// # Errors
    /// The kernel's. Runs up to there have been told.
    pub fn scan(&self, start: usize, end: usize, run: &mut dyn FnMut(usize, usize)) -> io::Result<()> {
        #[cfg(test)]
        self.scans.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match self.method {
            ScanMethod::Ioctl => self.map.scan(start, end, run),
            ScanMethod::Entries => self.map.scan_entries(start, end, run),
        }
        .map_err(error_of)
    }

    /// How often a range was looked at.
    #[cfg(test)]
    pub(crate) fn scans(&self) -> u64 {
        self.scans.load(std::sync::atomic::Ordering::Relaxed)
    }
}
