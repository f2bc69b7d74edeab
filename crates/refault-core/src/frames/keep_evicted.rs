//! A memory whose evicted pages stay in their frames.
//!
//! Wraps a front-end's [`Memory`] for the time of a call to the policy. Whatever the policy evicts becomes a cached
//! page in [`CachedFrames`], with its contents, because a page that [`Memory::evict`] freed is clean by then; or, where
//! nothing is kept, its frame is free. Cost: O(1) per eviction.

use super::CachedFrames;
use crate::memory::{Eviction, Groups, IoState, Memory, PageTables, References, ShadowNodes, SwapSpace, Writeback};
use crate::page::{PageId, Shadow};

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

    fn unread(&self) -> u32 {
        self.memory.unread()
    }

    #[inline]
    fn now(&self) -> u64 {
        self.memory.now()
    }

    #[inline]
    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        self.memory.page_tables()
    }

    #[inline]
    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        self.memory.swap()
    }

    #[inline]
    fn groups(&mut self) -> Option<&mut impl Groups> {
        self.memory.groups()
    }

    #[inline]
    fn writeback(&mut self) -> Option<&mut impl Writeback> {
        self.memory.writeback()
    }

    #[inline]
    fn shadow_nodes(&mut self) -> Option<&mut impl ShadowNodes> {
        self.memory.shadow_nodes()
    }

    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        self.memory.prefetch_hint(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::FreePools;
    use crate::memory::{
        NodeFrames, Protection, Walk, free_swap, launder, low_event, needs_write, node_frames, protection,
    };
    use crate::page::LruvecId;

    /// Has everything that a memory can have, answers nothing as a memory without it would, and notes what it was told.
    #[derive(Default)]
    struct Everything {
        told: Vec<&'static str>,
    }

    impl Memory for Everything {
        fn take_references(&mut self, _: PageId) -> References {
            References { mappings: 9, ..References::default() }
        }
        fn evict(&mut self, _: PageId, _: Shadow) -> Eviction {
            Eviction::Freed { pages_written: 1 }
        }
        fn is_resident(&self, _: PageId) -> bool {
            true
        }
        fn has_accessed_bits(&self) -> bool {
            false
        }
        fn is_mapped(&self, _: PageId) -> bool {
            true
        }
        fn io_state(&self, _: PageId) -> IoState {
            IoState::LOCKED
        }
        fn unread(&self) -> u32 {
            5
        }
        fn now(&self) -> u64 {
            7
        }
        fn page_tables(&mut self) -> Option<&mut impl PageTables> {
            Some(self)
        }
        fn swap(&mut self) -> Option<&mut impl SwapSpace> {
            Some(self)
        }
        fn groups(&mut self) -> Option<&mut impl Groups> {
            Some(self)
        }
        fn writeback(&mut self) -> Option<&mut impl Writeback> {
            Some(self)
        }
        fn shadow_nodes(&mut self) -> Option<&mut impl ShadowNodes> {
            Some(self)
        }
        fn prefetch_hint(&self, page: PageId) -> u64 {
            u64::from(page) + 1
        }
    }

    impl PageTables for Everything {
        fn walk<V: Walk>(&mut self, _: LruvecId, _: &mut V) -> bool {
            unreachable!("the test walks no page tables")
        }
        fn take_references_up_to(&mut self, _: PageId, limit: u32) -> Option<References> {
            Some(References { mappings: limit, ..References::default() })
        }
    }

    impl SwapSpace for Everything {
        fn free_swap(&self, lruvec: LruvecId) -> u64 {
            u64::from(lruvec)
        }
        fn needs_write(&self, _: PageId) -> bool {
            true
        }
    }

    impl Groups for Everything {
        fn protection(&self, _: LruvecId) -> Option<Protection> {
            Some(Protection { usage: 3, min: 2, low: 1 })
        }
        fn node_frames(&self, _: LruvecId) -> NodeFrames {
            NodeFrames { free: 5, high_watermark: 4 }
        }
        fn low_event(&mut self, _: LruvecId) {
            self.told.push("low");
        }
    }

    impl Writeback for Everything {
        fn wake_flushers(&mut self) {
            self.told.push("flushers");
        }
        fn congested(&mut self, _: LruvecId) {
            self.told.push("congested");
        }
        fn launder(&mut self, page: PageId) -> Option<u32> {
            Some(page)
        }
    }

    impl ShadowNodes for Everything {
        fn follow(&mut self) {
            self.told.push("follow");
        }
        fn visited(&mut self, _: LruvecId, _: u8, _: u64) {
            self.told.push("visited");
        }
    }

    /// All answers of a memory, and what it was told.
    fn asked<M: Memory>(memory: &mut M) -> String {
        let answers = (
            (memory.take_references(0), memory.evict(0, Shadow::NONE), memory.is_resident(0)),
            (
                memory.has_accessed_bits(),
                memory.is_mapped(0),
                memory.io_state(0),
                memory.unread(),
                memory.now(),
                memory.prefetch_hint(2),
            ),
            memory.page_tables().and_then(|tables| tables.take_references_up_to(0, 5)),
            (free_swap(memory, 6), needs_write(memory, 0)),
            (protection(memory, 0), node_frames(memory, 0)),
            launder(memory, 8),
        );
        low_event(memory, 0);
        if let Some(writeback) = memory.writeback() {
            writeback.wake_flushers();
            writeback.congested(0);
        }
        if let Some(nodes) = memory.shadow_nodes() {
            nodes.follow();
            nodes.visited(0, 12, 0);
        }
        format!("{answers:?}")
    }

    #[test]
    fn everything_but_evictions_reaches_the_memory_below() {
        let (mut alone, mut below) = (Everything::default(), Everything::default());
        let mut frames = CachedFrames::new(1, FreePools::ONE);
        frames.grow(1);
        let wrapped = asked(&mut KeepEvicted::new(&mut below, &mut frames));
        assert_eq!(wrapped, asked(&mut alone));
        assert_eq!(below.told, ["low", "flushers", "congested", "follow", "visited"]);
    }
}
