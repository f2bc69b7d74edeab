//! What one thread needs to resolve faults and to evict: buffers and codec tables, allocated once.

use crate::dropper::Drops;
use refault_core::PageId;
use refault_store::{Page, Scratch, Slot, StoreError};
use rustix::mm::Advice;

/// Pages that are brought in or evicted together at most.
pub(crate) const BATCH: usize = 64;

pub(crate) struct Worker {
    pub(crate) scratch: Scratch,
    /// Contents on their way in.
    pub(crate) pages: Vec<Page>,
    pub(crate) victims: Vec<PageId>,
    pub(crate) drops: Drops,
    pub(crate) outcomes: Vec<Result<Slot, StoreError>>,
}

impl Worker {
    pub(crate) fn new() -> Worker {
        let pages = vec![Page::ZERO; BATCH];
        // Copies of evicted pages have no place in a core dump, which is to hold what is resident.
        advise(&pages, Advice::LinuxDontDump);
        Worker {
            scratch: Scratch::new(),
            pages,
            victims: Vec::with_capacity(4096),
            drops: Drops::new(),
            outcomes: vec![Err(StoreError::Full("")); BATCH],
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        advise(&self.pages, Advice::LinuxDoDump);
    }
}

/// Whether the pages belong into core dumps. What fails is left as it is.
fn advise(pages: &[Page], advice: Advice) {
    // SAFETY: the range is the pages' own, whole pages by their alignment, and the advice changes no contents.
    let _ = unsafe { rustix::mm::madvise(pages.as_ptr() as *mut _, size_of_val(pages), advice) };
}
