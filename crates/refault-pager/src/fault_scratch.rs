//! What one thread needs to resolve faults and to evict: buffers and codec tables, allocated once.
//!
//! Threads of the pager have their own. Calls of the program that bring in or evict (prefetch, pin, evict, resize)
//! borrow the spare one; a second call at the same time makes one for itself.

use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

use refault_core::PageId;
use refault_store::{Page, Scratch, Slot, StoreError};
use rustix::mm::Advice;

/// Pages that are brought in or evicted together at most.
pub(crate) const BATCH: usize = 64;

pub(crate) struct FaultScratch {
    pub(crate) scratch: Scratch,
    /// Contents on their way in.
    pub(crate) pages: Vec<Page>,
    pub(crate) victims: Vec<PageId>,
    pub(crate) outcomes: Vec<Result<Slot, StoreError>>,
}

impl FaultScratch {
    pub(crate) fn new() -> FaultScratch {
        let pages = vec![Page::ZERO; BATCH];
        // Copies of evicted pages have no place in a core dump, which is to hold what is resident.
        advise(&pages, Advice::LinuxDontDump);
        FaultScratch {
            scratch: Scratch::new(),
            pages,
            victims: Vec::with_capacity(4096),
            outcomes: vec![Err(StoreError::Full("")); BATCH],
        }
    }
}

impl Drop for FaultScratch {
    fn drop(&mut self) {
        advise(&self.pages, Advice::LinuxDoDump);
    }
}

/// Whether the pages belong into core dumps. What fails is left as it is.
fn advise(pages: &[Page], advice: Advice) {
    // SAFETY: the range is the pages' own, whole pages by their alignment, and the advice changes no contents.
    let _ = unsafe { rustix::mm::madvise(pages.as_ptr() as *mut _, size_of_val(pages), advice) };
}

/// A place for the worker that calls borrow. Made by the first of them.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Option<Box<FaultScratch>>>);

impl Spare {
    /// Lends the spare worker. Never waits: the lock may have been left locked in the child of a fork.
    pub(crate) fn borrow(&self) -> Borrowed<'_> {
        let worker = self.0.try_lock().ok().and_then(|mut spare| spare.take());
        Borrowed { home: self, worker: Some(worker.unwrap_or_else(|| Box::new(FaultScratch::new()))) }
    }
}

/// A worker that goes back when it is dropped.
pub(crate) struct Borrowed<'a> {
    home: &'a Spare,
    /// `None` only while it goes back.
    worker: Option<Box<FaultScratch>>,
}

impl Deref for Borrowed<'_> {
    type Target = FaultScratch;

    fn deref(&self) -> &FaultScratch {
        self.worker.as_ref().expect("invariant: it goes back at the end only")
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut FaultScratch {
        self.worker.as_mut().expect("invariant: it goes back at the end only")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Ok(mut spare) = self.home.0.try_lock()
            && spare.is_none()
        {
            *spare = self.worker.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spare_worker_is_used_again_and_a_second_one_is_not_kept() {
        let spare = Spare::default();
        let buffer = |worker: &FaultScratch| worker.pages.as_ptr();
        let first = {
            let (one, two) = (spare.borrow(), spare.borrow());
            assert_ne!(buffer(&one), buffer(&two));
            let first = buffer(&two);
            drop(two);
            drop(one);
            first
        };
        for _ in 0..3 {
            assert_eq!(buffer(&spare.borrow()), first);
        }
    }
}
