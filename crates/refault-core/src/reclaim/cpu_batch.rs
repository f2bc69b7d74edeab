//! The per-CPU batches through which pages reach the lists (spec: overview §4.6, "Add batches").
//!
//! A batch of capacity 31 holds pages back until the 31st arrives or reclaim drains it. Capacity 0 or 1 means that
//! everything is applied at once, which is the exact engine of spec: overview §8.
//!
//! Kernel: `folio_add_lru`, `folio_batch_move_lru`, `lru_add_drain_cpu` in `mm/swap.c`.

use crate::page::PageId;

/// How many pages a batch of the normative kernel holds.
pub const KERNEL_BATCH: usize = 31;

/// Pages waiting, oldest first.
#[derive(Clone, Debug)]
pub struct CpuBatch {
    pages: Vec<PageId>,
    capacity: usize,
}

impl CpuBatch {
    /// An empty batch.
    pub fn new(capacity: usize) -> CpuBatch {
        CpuBatch { pages: Vec::with_capacity(capacity.max(1)), capacity }
    }

    /// Holds back at most `capacity` pages from now on; what waits already is applied with the next one.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    /// Adds a page; true if the batch must now be drained.
    #[inline]
    pub fn push(&mut self, page: PageId) -> bool {
        self.pages.push(page);
        self.pages.len() >= self.capacity
    }

    /// Takes all pages out, to be handed back to [`CpuBatch::restore`] empty so that no allocation is needed.
    #[inline]
    pub fn take(&mut self) -> Vec<PageId> {
        std::mem::take(&mut self.pages)
    }

    /// Gives the buffer back after a drain.
    #[inline]
    pub fn restore(&mut self, mut buffer: Vec<PageId>) {
        buffer.clear();
        self.pages = buffer;
    }
}
