//! Free frames that still know which page they hold.
//!
//! The frame of an evicted clean page goes back to the allocator with its contents and its name on it. If the page
//! comes back first, the frame is taken out of its free block again and nothing is read: the page is *reactivated*.
//! If the frame is handed out first, the contents are lost. Front-ends own this beside their memory; the policy need
//! not know, because a reactivated page is admitted like any other (spec: freebsd §3.3, §3.4).
//!
//! Invariants: a cached page's frame is free; a page is cached, has a frame, or neither; the three counts of
//! [`CachedCounters`] and [`CachedFrames::cached`] add up to the pages ever cached.
//!
//! Cost: 4 bytes per frame and 4 bytes per page beside the allocator's; every operation is O(1) beside
//! the allocator's.
//!
//! Kernel: `vm_page_cache`, `vm_page_alloc`, `vm_page_cache_lookup`, `vm_page_cache_remove` in `sys/vm/vm_page.c`.

use super::buddy::{Frame, FrameAllocator, FreePool, FreePools, MAX_ORDER, NO_FRAME, Placement};
use crate::page::{NO_PAGE, PageId};

/// A page's frame is cached.
const CACHED: u32 = 1 << 31;

/// What became of cached pages so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedCounters {
    /// Pages whose frame was freed with their contents in it (`pages cached`).
    pub cached: u64,
    /// Cached pages that came back without I/O (`pages reactivated`).
    pub reactivated: u64,
    /// Cached pages whose frame was handed out to another.
    pub overwritten: u64,
    /// Cached pages that were discarded because their contents are of no use any more.
    pub discarded: u64,
}

/// Frames by page, and free frames that still hold a page. See the module.
pub struct CachedFrames {
    allocator: FrameAllocator,
    /// Page that a frame holds or, if free, still holds.
    page_of: Vec<PageId>,
    /// Frame of a page, with [`CACHED`] if it is free.
    frame_of: Vec<u32>,
    cached: u32,
    counters: CachedCounters,
}

impl CachedFrames {
    /// `frames` free frames (at most 2^31 - 1) and no page.
    pub fn new(frames: u32, pools: FreePools) -> CachedFrames {
        debug_assert!(frames < CACHED);
        CachedFrames {
            allocator: FrameAllocator::new(frames, pools, MAX_ORDER),
            page_of: vec![NO_PAGE; frames as usize],
            frame_of: Vec::new(),
            cached: 0,
            counters: CachedCounters::default(),
        }
    }

    /// Tells how many page ids there are (it only grows).
    pub fn grow(&mut self, pages: usize) {
        self.frame_of.resize(pages, NO_FRAME);
    }

    /// The allocator below.
    pub fn allocator(&self) -> &FrameAllocator {
        &self.allocator
    }

    /// Free frames, those with cached pages included.
    #[inline]
    pub fn available(&self) -> u32 {
        self.allocator.free_frames()
    }

    /// Free frames that still hold a page.
    #[inline]
    pub fn cached(&self) -> u32 {
        self.cached
    }

    /// What became of cached pages so far.
    pub fn counters(&self) -> &CachedCounters {
        &self.counters
    }

    /// The frame of a page that has one and is not cached.
    #[inline]
    pub fn frame(&self, page: PageId) -> Option<Frame> {
        let frame = self.frame_of[page as usize];
        (frame & CACHED == 0).then_some(frame)
    }

    /// Whether the page is cached: its contents are in a free frame.
    #[inline]
    pub fn is_cached(&self, page: PageId) -> bool {
        let frame = self.frame_of[page as usize];
        frame & CACHED != 0 && frame != NO_FRAME
    }

    /// The page that a frame holds.
    pub fn page(&self, frame: Frame) -> Option<PageId> {
        let page = self.page_of[frame as usize];
        (page != NO_PAGE).then_some(page)
    }

    /// Gives a page that has no frame one; a cached page's contents are lost by it. `None` if no frame is free.
    pub fn allocate(&mut self, page: PageId) -> Option<Frame> {
        if self.is_cached(page) {
            self.discard(page);
        }
        let frame = self.allocate_block(FreePool::Default, 0)?;
        self.page_of[frame as usize] = page;
        self.frame_of[page as usize] = frame;
        Some(frame)
    }

    /// Gives the pages `first..first + 2^order`, none of which may have a frame, the frames of one block in order: a
    /// huge page. They can be freed and cached one by one. `None` if no free block is large enough.
    pub fn allocate_pages(&mut self, first: PageId, order: u32) -> Option<Frame> {
        let block = self.allocator.allocate(FreePool::Default, order)?;
        self.overwrite(block, 1 << order);
        for (page, frame) in (first..first + (1 << order)).zip(block..) {
            if self.is_cached(page) {
                self.discard(page);
            }
            self.page_of[frame as usize] = page;
            self.frame_of[page as usize] = frame;
        }
        Some(block)
    }

    /// Takes a block that belongs to no page (the kernel's own memory, a huge page, a buffer). `None` if no free block
    /// is large enough. Cached pages in it are lost.
    pub fn allocate_block(&mut self, pool: FreePool, order: u32) -> Option<Frame> {
        let frame = self.allocator.allocate(pool, order)?;
        self.overwrite(frame, 1 << order);
        Some(frame)
    }

    /// Takes frames in a row that belong to no page; see [`FrameAllocator::allocate_contiguous`].
    pub fn allocate_contiguous(&mut self, frames: u32, placement: &Placement) -> Option<Frame> {
        let first = self.allocator.allocate_contiguous(frames, placement)?;
        self.overwrite(first, frames);
        Some(first)
    }

    /// Gives back a block that belongs to no page.
    pub fn free_block(&mut self, frame: Frame, order: u32) {
        self.allocator.free(frame, order);
    }

    /// Gives back frames in a row that belong to no page.
    pub fn free_range(&mut self, first: Frame, end: Frame) {
        self.allocator.free_range(first, end);
    }

    /// The page's frame is free, and its contents are of no use. The page must have a frame.
    pub fn free(&mut self, page: PageId) {
        let frame = self.frame_of[page as usize];
        debug_assert!(frame & CACHED == 0);
        self.frame_of[page as usize] = NO_FRAME;
        self.page_of[frame as usize] = NO_PAGE;
        self.allocator.free(frame, 0);
    }

    /// The page loses its frame, which stays allocated and belongs to no page until [`CachedFrames::free_block`]:
    /// a reader still uses it. The page must have a frame.
    pub fn detach(&mut self, page: PageId) -> Frame {
        let frame = self.frame_of[page as usize];
        debug_assert!(frame & CACHED == 0);
        self.frame_of[page as usize] = NO_FRAME;
        self.page_of[frame as usize] = NO_PAGE;
        frame
    }

    /// Takes one given free frame, which belongs to no page then; a cached page in it is lost. False if it is not free.
    pub fn take(&mut self, frame: Frame) -> bool {
        let was_free = self.allocator.unfree(frame);
        if was_free {
            self.allocator.set_pool(frame, 0, FreePool::Default);
            self.overwrite(frame, 1);
        }
        was_free
    }

    /// The page moves to a frame that belongs to no page, and its own belongs to none from then on. The page must have
    /// a frame. The caller copies the contents.
    pub fn relocate(&mut self, page: PageId, to: Frame) {
        let from = self.detach(page);
        debug_assert!(self.page_of[to as usize] == NO_PAGE && !self.allocator.is_free(to), "frame {to} is in use");
        debug_assert!(from != to);
        self.page_of[to as usize] = page;
        self.frame_of[page as usize] = to;
    }

    /// Two pages that have frames exchange them. A caller that needs the contents copies them.
    pub fn exchange(&mut self, one: PageId, other: PageId) {
        let (of_one, of_other) = (self.frame_of[one as usize], self.frame_of[other as usize]);
        debug_assert!((of_one | of_other) & CACHED == 0);
        self.frame_of.swap(one as usize, other as usize);
        self.page_of.swap(of_one as usize, of_other as usize);
    }

    /// Pages that have frames have the same frames in ascending order afterwards: the first page has the lowest. The
    /// caller does not need their contents. A read into all of them then takes few pieces. Cost: a sort.
    pub fn sort(&mut self, pages: &[PageId]) {
        let mut frames: Vec<Frame> = pages.iter().map(|&page| self.detach(page)).collect();
        frames.sort_unstable();
        for (&page, frame) in pages.iter().zip(frames) {
            self.page_of[frame as usize] = page;
            self.frame_of[page as usize] = frame;
        }
    }

    /// The page's frame is free, but holds its contents until it is handed out. The page must have a frame and be
    /// clean.
    pub fn cache(&mut self, page: PageId) {
        let frame = self.frame_of[page as usize];
        debug_assert!(frame & CACHED == 0);
        self.frame_of[page as usize] = frame | CACHED;
        self.cached += 1;
        self.counters.cached += 1;
        if self.allocator.pools().cache {
            self.allocator.set_pool(frame, 0, FreePool::Cache);
        }
        self.allocator.free(frame, 0);
    }

    /// Brings a cached page back with its contents: it has a frame again. `None` if it is not cached.
    pub fn reactivate(&mut self, page: PageId) -> Option<Frame> {
        if !self.is_cached(page) {
            return None;
        }
        let frame = self.frame_of[page as usize] & !CACHED;
        let was_free = self.allocator.unfree(frame);
        debug_assert!(was_free, "invariant: cached pages lie in free frames");
        self.allocator.set_pool(frame, 0, FreePool::Default);
        self.frame_of[page as usize] = frame;
        self.cached -= 1;
        self.counters.reactivated += 1;
        Some(frame)
    }

    /// A cached page's contents are of no use any more (truncated, overwritten as a whole, its object is gone). The
    /// frame stays free where it is.
    pub fn discard(&mut self, page: PageId) {
        debug_assert!(self.is_cached(page));
        let frame = self.frame_of[page as usize] & !CACHED;
        self.forget(frame, page);
        self.counters.discarded += 1;
    }

    /// Bytes of metadata.
    pub fn metadata_bytes(&self) -> usize {
        self.allocator.metadata_bytes() + (self.page_of.capacity() + self.frame_of.capacity()) * 4
    }

    /// The frames have been handed out: what they held is lost.
    #[inline]
    fn overwrite(&mut self, first: Frame, frames: u32) {
        for frame in first..first + frames {
            let page = self.page_of[frame as usize];
            if page != NO_PAGE {
                self.forget(frame, page);
                self.counters.overwritten += 1;
            }
        }
    }

    fn forget(&mut self, frame: Frame, page: PageId) {
        self.page_of[frame as usize] = NO_PAGE;
        self.frame_of[page as usize] = NO_FRAME;
        self.cached -= 1;
    }
}
