//! What one thread needs to resolve faults and to evict: buffers and codec tables, allocated once.

use crate::dropper::Drops;
use refault_core::PageId;
use refault_store::{Page, Scratch, Slot, StoreError};

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
        Worker {
            scratch: Scratch::new(),
            pages: vec![Page::ZERO; BATCH],
            victims: Vec::with_capacity(4096),
            drops: Drops::new(),
            outcomes: vec![Err(StoreError::Full("")); BATCH],
        }
    }
}
