//! The page table of an arena: a state word and a shadow entry per page, 16 bytes.
//!
//! Reserved for the whole arena, takes memory only where pages were used. Lock-free; what the words mean is
//! [`crate::state`]'s business. A shadow is written by the evictor and taken when the page is admitted again.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use refault_core::{PageId, Shadow};
use rustix::mm::{MapFlags, ProtFlags};

use crate::state::PageWord;

pub(crate) struct PageTable {
    words: *mut PageWord,
    shadows: *mut AtomicU64,
    pages: usize,
}

// SAFETY: the tables hold atomics only and live as long as this value.
unsafe impl Send for PageTable {}
// SAFETY: as above.
unsafe impl Sync for PageTable {}

impl PageTable {
    pub(crate) fn new(pages: u32) -> io::Result<PageTable> {
        let pages = pages as usize;
        // SAFETY: a fresh mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                pages * 16,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // SAFETY: the second half of the mapping.
        let shadows = unsafe { base.cast::<u8>().add(pages * 8) };
        Ok(PageTable { words: base.cast(), shadows: shadows.cast(), pages })
    }

    pub(crate) fn word(&self, page: PageId) -> &PageWord {
        assert!((page as usize) < self.pages);
        // SAFETY: inside the table (just checked), which is zeroed memory: a fresh page.
        unsafe { &*self.words.add(page as usize) }
    }

    fn entry(&self, page: PageId) -> &AtomicU64 {
        assert!((page as usize) < self.pages);
        // SAFETY: inside the table (just checked); zero is no entry.
        unsafe { &*self.shadows.add(page as usize) }
    }

    pub(crate) fn set_shadow(&self, page: PageId, shadow: Shadow) {
        self.entry(page).store(shadow.0, Ordering::Relaxed);
    }

    pub(crate) fn take_shadow(&self, page: PageId) -> Option<Shadow> {
        let word = self.entry(page).swap(0, Ordering::Relaxed);
        (word != 0).then_some(Shadow(word))
    }

    /// Bytes per page.
    pub(crate) const BYTES_PER_PAGE: usize = 16;
}

impl Drop for PageTable {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nothing borrows the table any more.
        let _ = unsafe { rustix::mm::munmap(self.words.cast(), self.pages * 16) };
    }
}
