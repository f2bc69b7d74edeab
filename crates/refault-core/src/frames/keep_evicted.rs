//! A memory whose evicted pages stay findable.
//!
//! Wraps a front-end's [`Memory`] for the time of a call to the policy: whatever the policy evicts goes into
//! [`CachedFrames`] with its contents, because a page that [`Memory::evict`] freed is clean by then. The replay, the page
//! cache and the pager use the same adapter; without it (the option is off) nothing is paid. Cost: O(1) an eviction.

use super::CachedFrames;
use crate::memory::{Eviction, IoState, LookAround, Memory, Neighbourhood, References, Walk};
use crate::page::{LruvecId, PageId, Shadow};

/// See the module.
pub struct KeepEvicted<'a, M> {
    memory: &'a mut M,
    frames: &'a mut CachedFrames,
}

impl<'a, M: Memory> KeepEvicted<'a, M> {
    /// Pages resident in `memory` without a frame in `frames` (let in over a limit) are simply gone when evicted.
    pub fn new(memory: &'a mut M, frames: &'a mut CachedFrames) -> KeepEvicted<'a, M> {
        KeepEvicted { memory, frames }
    }
}

impl<M: Memory> Memory for KeepEvicted<'_, M> {
    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let eviction = self.memory.evict(page, shadow);
        if matches!(eviction, Eviction::Freed { .. }) && self.frames.frame(page).is_some() {
            self.frames.cache(page);
        }
        eviction
    }

    #[inline]
    fn take_references(&mut self, page: PageId) -> References {
        self.memory.take_references(page)
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

    #[inline]
    fn in_use(&self, page: PageId) -> bool {
        self.memory.in_use(page)
    }

    fn launder(&mut self, page: PageId) -> Option<u32> {
        self.memory.launder(page)
    }

    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        self.memory.look_around(page, visitor)
    }

    fn walk<V: Walk>(&mut self, lruvec: LruvecId, visitor: &mut V) -> bool {
        self.memory.walk(lruvec, visitor)
    }

    fn free_swap(&self, lruvec: LruvecId) -> u64 {
        self.memory.free_swap(lruvec)
    }

    fn now(&self) -> u64 {
        self.memory.now()
    }
}
