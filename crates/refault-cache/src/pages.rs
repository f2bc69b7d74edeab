//! What the policy sees of the cache's pages.
//!
//! Pages are always clean (writes go through) and never mapped: accesses reach the policy by a call, or as the accessed
//! bit of those that want it so. Cost: 9 bytes per page that ever was asked for, in steps of a segment (2 MiB of file).

use std::time::Instant;

use refault_core::memory::{Eviction, Memory, References};
use refault_core::{PageId, Shadow};

/// In a frame, and the policy knows it.
const RESIDENT: u8 = 1;
/// Being filled or written: other users wait.
const BUSY: u8 = 2;
/// Accessed since the policy last looked.
const ACCESSED: u8 = 4;

pub(crate) struct Pages {
    flags: Vec<u8>,
    shadows: Vec<u64>,
    start: Instant,
}

impl Pages {
    pub(crate) fn new() -> Pages {
        Pages { flags: Vec::new(), shadows: Vec::new(), start: Instant::now() }
    }

    pub(crate) fn grow(&mut self, pages: usize) {
        self.flags.resize(pages, 0);
        self.shadows.resize(pages, 0);
    }

    pub(crate) fn is_resident(&self, page: PageId) -> bool {
        self.flags[page as usize] & RESIDENT != 0
    }

    pub(crate) fn is_busy(&self, page: PageId) -> bool {
        self.flags[page as usize] & BUSY != 0
    }

    pub(crate) fn set_busy(&mut self, page: PageId, busy: bool) {
        let flags = &mut self.flags[page as usize];
        *flags = if busy { *flags | BUSY } else { *flags & !BUSY };
    }

    pub(crate) fn set_resident(&mut self, page: PageId, resident: bool) {
        let flags = &mut self.flags[page as usize];
        *flags = if resident { *flags | RESIDENT } else { *flags & !(RESIDENT | ACCESSED) };
    }

    pub(crate) fn set_accessed(&mut self, page: PageId) {
        self.flags[page as usize] |= ACCESSED;
    }

    pub(crate) fn take_shadow(&mut self, page: PageId) -> Option<Shadow> {
        let word = std::mem::take(&mut self.shadows[page as usize]);
        (word != 0).then_some(Shadow(word))
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.flags.capacity() + self.shadows.capacity() * 8
    }
}

impl Memory for Pages {
    fn take_references(&mut self, page: PageId) -> References {
        let flags = &mut self.flags[page as usize];
        let accessed = *flags & ACCESSED != 0;
        *flags &= !ACCESSED;
        References { mappings: u32::from(accessed), executable: false, locked: false }
    }

    #[inline]
    fn is_resident(&self, page: PageId) -> bool {
        Pages::is_resident(self, page)
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        debug_assert!(self.is_resident(page), "invariant: only what was admitted is evicted");
        self.set_resident(page, false);
        self.shadows[page as usize] = shadow.0;
        Eviction::Freed { pages_written: 0 }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}
