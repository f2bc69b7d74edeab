//! A memory whose evicted pages stay in their frames.
//!
//! Wraps a front-end's [`Memory`] for the time of a call to the policy. Whatever the policy evicts becomes a cached
//! page in [`CachedFrames`], with its contents, because a page that [`Memory::evict`] freed is clean by then; or, where
//! nothing is kept, its frame is free. Cost: O(1) per eviction.

use super::CachedFrames;
use crate::memory::{Eviction, Groups, IoState, Laundry, Memory, PageTables, References};
use crate::page::{LruvecId, PageId, Shadow};

/// See the module.
pub struct KeepEvicted<'a, M> {
    memory: &'a mut M,
    frames: &'a mut CachedFrames,
    keeps: bool,
}

impl<'a, M: Memory> KeepEvicted<'a, M> {
    /// What is evicted becomes a cached page. Pages resident in `memory` without a frame in `frames` (let in over a
    /// limit) are simply gone.
    pub fn new(memory: &'a mut M, frames: &'a mut CachedFrames) -> KeepEvicted<'a, M> {
        KeepEvicted { memory, frames, keeps: true }
    }

    /// The same if `keeps`; otherwise what is evicted gives its frame back.
    pub fn keeping(keeps: bool, memory: &'a mut M, frames: &'a mut CachedFrames) -> KeepEvicted<'a, M> {
        KeepEvicted { memory, frames, keeps }
    }

    /// The memory below.
    pub fn memory(&self) -> &M {
        self.memory
    }

    /// The frames.
    pub fn frames(&self) -> &CachedFrames {
        self.frames
    }
}

impl<M: Memory> Memory for KeepEvicted<'_, M> {
    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let eviction = self.memory.evict(page, shadow);
        if matches!(eviction, Eviction::Freed { .. }) && self.frames.frame(page).is_some() {
            if self.keeps {
                self.frames.cache(page);
            } else {
                self.frames.free(page);
            }
        }
        eviction
    }

    fn has_accessed_bits(&self) -> bool {
        self.memory.has_accessed_bits()
    }

    #[inline]
    fn take_references(&mut self, page: PageId) -> References {
        self.memory.take_references(page)
    }

    fn evict_held(&mut self, page: PageId) -> Eviction {
        self.memory.evict_held(page)
    }

    fn in_swap_cache(&self, page: PageId) -> Option<bool> {
        self.memory.in_swap_cache(page)
    }

    fn take_references_up_to(&mut self, page: PageId, limit: u32) -> References {
        self.memory.take_references_up_to(page, limit)
    }

    #[inline]
    fn is_resident(&self, page: PageId) -> bool {
        self.memory.is_resident(page)
    }

    #[inline]
    fn is_mapped(&self, page: PageId) -> bool {
        self.memory.is_mapped(page)
    }

    #[inline]
    fn io_state(&self, page: PageId) -> IoState {
        self.memory.io_state(page)
    }

    #[inline]
    fn needs_write(&self, page: PageId) -> bool {
        self.memory.needs_write(page)
    }

    fn free_swap(&self, lruvec: LruvecId) -> u64 {
        self.memory.free_swap(lruvec)
    }

    fn has_swap(&self) -> bool {
        self.memory.has_swap()
    }

    fn now(&self) -> u64 {
        self.memory.now()
    }

    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        self.memory.page_tables()
    }

    fn groups(&self) -> Option<&impl Groups> {
        self.memory.groups()
    }

    fn low_event(&mut self, lruvec: LruvecId) {
        self.memory.low_event(lruvec);
    }

    fn laundry(&mut self) -> Option<&mut impl Laundry> {
        self.memory.laundry()
    }

    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        self.memory.prefetch_hint(page)
    }
}
