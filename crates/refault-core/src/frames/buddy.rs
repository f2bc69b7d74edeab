//! The buddy allocator (spec: freebsd §4).
//!
//! Rules that decide everything else: coalescing ignores pools, and the frame being freed gives the merged block its
//! pool; stealing takes the largest block of any other pool and re-labels all of it; what is freed goes to the tail of
//! its queue, what a split leaves over goes to the head.
//!
//! Invariants: every frame is either allocated or inside exactly one free block; a free block of order k starts at a
//! multiple of 2^k; no two free buddies of the same order exist below the largest order; a free block belongs to one
//! pool, whatever its frames were labelled with before.
//!
//! Cost: 5 bytes per frame with three pools (4 of its block's place in a queue, the rest see `states`). Each block
//! beyond the first that a queue ever held costs 4 to 16 bytes. Allocating and freeing a single frame take one step per
//! order that is split or joined; a larger block also writes half a byte per frame when it is handed out.
//!
//! Kernel: `vm_phys_alloc_pages`, `vm_phys_free_pages`, `vm_phys_unfree_page`, `vm_phys_split_pages`,
//! `vm_phys_set_pool` in `sys/vm/vm_phys.c`.

use super::queue::BlockQueue;
use super::states::FrameStates;

/// Number of a frame, `0..frames`.
pub type Frame = u32;

/// No frame.
pub const NO_FRAME: Frame = u32::MAX;

/// The largest order there is: 2^12 frames, 16 MiB.
pub const MAX_ORDER: u32 = 12;

const ORDERS: usize = MAX_ORDER as usize + 1;
pub(super) const POOLS: usize = 3;

/// What a frame is used for, as far as keeping like with like is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FreePool {
    /// Pages of files and anonymous memory.
    Default,
    /// Pages without an object: the kernel's own memory, reached through the direct map.
    Direct,
    /// Free frames that still hold the contents of an evicted page.
    Cache,
}

/// Which pools are kept apart; a pool that is not is the default pool. (spec: freebsd §4)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FreePools {
    /// [`FreePool::Direct`] has queues of its own (machines with a direct map of all memory).
    pub direct: bool,
    /// [`FreePool::Cache`] has queues of its own: what was retired in 2015.
    pub cache: bool,
}

impl FreePools {
    /// Three pools: 64-bit machines before the cache pool was retired.
    pub const THREE: FreePools = FreePools { direct: true, cache: true };
    /// Two pools: 64-bit machines after.
    pub const TWO: FreePools = FreePools { direct: true, cache: false };
    /// One pool: 32-bit machines after.
    pub const ONE: FreePools = FreePools { direct: false, cache: false };

    /// Number of pools.
    pub const fn count(self) -> usize {
        1 + self.direct as usize + self.cache as usize
    }

    /// The queues' index of a pool.
    pub const fn index(self, pool: FreePool) -> usize {
        match pool {
            FreePool::Direct if self.direct => 1,
            FreePool::Cache if self.cache => 1 + self.direct as usize,
            _ => 0,
        }
    }

    /// The pool of an index below [`FreePools::count`].
    const fn pool(self, index: usize) -> FreePool {
        match index {
            1 if self.direct => FreePool::Direct,
            1 | 2 => FreePool::Cache,
            _ => FreePool::Default,
        }
    }
}

/// Where a contiguous allocation may lie. All in frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The allocation lies inside.
    pub range: std::ops::Range<Frame>,
    /// Its first frame is a multiple of this; a power of two.
    pub alignment: u32,
    /// It does not cross a multiple of this; a power of two, or 0 for no such limit.
    pub boundary: u32,
}

impl Placement {
    /// Anywhere.
    pub const ANYWHERE: Placement = Placement { range: 0..NO_FRAME, alignment: 1, boundary: 0 };

    fn allows(&self, first: Frame, frames: u32) -> bool {
        let (start, end) = (u64::from(first), u64::from(first) + u64::from(frames));
        let crosses = self.boundary != 0 && start / u64::from(self.boundary) != (end - 1) / u64::from(self.boundary);
        start >= u64::from(self.range.start)
            && end <= u64::from(self.range.end)
            && first.is_multiple_of(self.alignment.max(1))
            && !crosses
    }
}

/// What happened at one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderStatistics {
    /// Blocks of this order asked for and handed out.
    pub allocations: u64,
    /// Blocks of this order given back.
    pub frees: u64,
    /// Free blocks of this order halved.
    pub splits: u64,
    /// Free blocks of this order joined with their buddy.
    pub merges: u64,
    /// Free blocks of this order taken from another pool.
    pub steals: u64,
}

/// See the module.
pub struct FrameAllocator {
    /// Where the free block that starts at a frame stands in its queue.
    places: Vec<u32>,
    /// Where free blocks start, and the label of each allocated frame by its index.
    states: FrameStates,
    queues: [[BlockQueue; ORDERS]; POOLS],
    /// Bit k: the pool's queue of order k is not empty.
    occupied: [u16; POOLS],
    pools: FreePools,
    largest: u32,
    free_frames: u32,
    statistics: [OrderStatistics; ORDERS],
}

impl FrameAllocator {
    /// `frames` free frames (below [`NO_FRAME`]), all in the default pool, in the largest blocks that fit.
    /// `largest_order` is clipped to [`MAX_ORDER`].
    pub fn new(frames: u32, pools: FreePools, largest_order: u32) -> FrameAllocator {
        let largest = largest_order.min(MAX_ORDER);
        let mut allocator = FrameAllocator {
            places: vec![0; frames as usize],
            states: FrameStates::new(frames, pools.count(), largest),
            queues: Default::default(),
            occupied: [0; POOLS],
            pools,
            largest,
            free_frames: frames,
            statistics: Default::default(),
        };
        let mut first = 0;
        while first < frames {
            let order = allocator.largest.min(first.trailing_zeros()).min((frames - first).ilog2());
            allocator.put_last(first, order, 0);
            first += 1 << order;
        }
        allocator
    }

    /// Frames, free or not.
    pub fn frames(&self) -> u32 {
        self.states.frames()
    }

    /// Free frames.
    #[inline]
    pub fn free_frames(&self) -> u32 {
        self.free_frames
    }

    /// The largest order of a block.
    pub fn largest_order(&self) -> u32 {
        self.largest
    }

    /// Which pools are kept apart.
    pub fn pools(&self) -> FreePools {
        self.pools
    }

    /// Free blocks of one order in one pool.
    pub fn blocks(&self, pool: FreePool, order: u32) -> usize {
        self.queues[self.pools.index(pool)][order as usize].len()
    }

    /// The first frames of the free blocks of one order in one pool, in the order in which they will be taken.
    /// O(length).
    pub fn queue(&self, pool: FreePool, order: u32) -> impl Iterator<Item = Frame> + '_ {
        self.queues[self.pools.index(pool)][order as usize].iter()
    }

    /// Counts of what happened at each order.
    pub fn statistics(&self, order: u32) -> &OrderStatistics {
        &self.statistics[order as usize]
    }

    /// The pool that a frame is labelled with, or that its free block is in. One look per order and pool at most.
    pub fn pool(&self, frame: Frame) -> FreePool {
        let free = self.block_of(frame).map(|(_, _, pool)| pool);
        self.pools.pool(free.unwrap_or_else(|| self.states.label(frame)))
    }

    /// Labels an allocated block: it will be freed into this pool.
    #[inline]
    pub fn set_pool(&mut self, frame: Frame, order: u32, pool: FreePool) {
        debug_assert!(!self.is_free(frame), "the pool of a free frame is its block's");
        self.states.set_label(frame, order, self.pools.index(pool));
    }

    /// Whether the frame is free. One look per order and pool at most.
    pub fn is_free(&self, frame: Frame) -> bool {
        self.block_of(frame).is_some()
    }

    /// Bytes held; see the module.
    pub fn metadata_bytes(&self) -> usize {
        let queues: usize = self.queues.iter().flatten().map(BlockQueue::metadata_bytes).sum();
        self.places.capacity() * 4 + self.states.metadata_bytes() + queues
    }

    /// Takes a block of 2^order frames, labelled with `pool`; `None` if no free block is large enough.
    #[inline]
    pub fn allocate(&mut self, pool: FreePool, order: u32) -> Option<Frame> {
        let index = self.pools.index(pool);
        let suitable = self.occupied[index] >> order;
        let (frame, found) = if suitable != 0 {
            let found = order + suitable.trailing_zeros();
            (self.take_first(index, found), found)
        } else {
            self.steal(index, order)?
        };
        self.split(frame, found, index, order);
        self.states.set_label(frame, order, index);
        self.free_frames -= 1 << order;
        self.statistics[order as usize].allocations += 1;
        Some(frame)
    }

    /// Gives back a block that [`FrameAllocator::allocate`] handed out, or an aligned part of one. It must not be free.
    /// It joins its free buddies, and the whole becomes the pool's that `frame` is labelled with.
    #[inline]
    pub fn free(&mut self, frame: Frame, order: u32) {
        debug_assert!(!self.is_free(frame), "frame {frame} is free already");
        debug_assert!(frame.is_multiple_of(1 << order));
        self.statistics[order as usize].frees += 1;
        self.free_frames += 1 << order;
        self.coalesce(frame, order);
    }

    /// Takes one given frame out of the free block that holds it; the rest of the block stays free. False if the frame
    /// is not free. The frame is labelled with the pool it was in.
    pub fn unfree(&mut self, frame: Frame) -> bool {
        let Some((mut start, order, index)) = self.block_of(frame) else { return false };
        self.unlink(start, order, index);
        for half in (0..order).rev() {
            self.statistics[half as usize + 1].splits += 1;
            let upper = start + (1 << half);
            if frame < upper {
                self.put_first(upper, half, index);
            } else {
                self.put_first(start, half, index);
                start = upper;
            }
        }
        self.states.set_label(frame, 0, index);
        self.free_frames -= 1;
        true
    }

    /// Takes `frames` frames in a row that lie where `placement` allows, labelled with the default pool. Searches from
    /// the smallest sufficient order up, and for more frames than the largest block has, runs of adjacent largest
    /// blocks; within an order pool by pool. Cost: one look a free block of the orders searched.
    pub fn allocate_contiguous(&mut self, frames: u32, placement: &Placement) -> Option<Frame> {
        if frames == 0 || frames > self.frames() {
            return None;
        }
        let wanted = frames.next_power_of_two().ilog2();
        let lowest = wanted.min(self.largest);
        let (first, order) = (lowest..=self.largest).find_map(|order| {
            (0..self.pools.count()).find_map(|index| {
                let mut blocks = self.queues[index][order as usize].iter();
                blocks.find(|first| self.run_is_free(*first, order, frames, placement)).map(|first| (first, order))
            })
        })?;
        let mut end = first;
        while end < first + frames {
            let index = self.states.block(end, order, 0).expect("invariant: the run was found free");
            self.unlink(end, order, index);
            self.states.set_label(end, order, 0);
            end += 1 << order;
        }
        // What is more than asked for goes back; the rest is one run of allocated frames.
        self.free_frames -= end - first;
        self.statistics[lowest as usize].allocations += 1;
        self.free_range(first + frames, end);
        Some(first)
    }

    /// Gives back the frames `first..end`, in the largest aligned blocks they contain. None of them may be free.
    pub fn free_range(&mut self, mut first: Frame, end: Frame) {
        while first < end {
            let order = self.largest.min(first.trailing_zeros()).min((end - first).ilog2());
            self.free(first, order);
            first += 1 << order;
        }
    }

    /// Whether the run of blocks of `order` from `first` on covers `frames` frames, all free and rightly placed.
    fn run_is_free(&self, first: Frame, order: u32, frames: u32, placement: &Placement) -> bool {
        placement.allows(first, frames)
            && (first..first + frames).step_by(1 << order).all(|start| self.states.block(start, order, 0).is_some())
    }

    /// The free block that holds a frame: first frame, order and index of its pool.
    fn block_of(&self, frame: Frame) -> Option<(Frame, u32, usize)> {
        (0..=self.largest).find_map(|order| {
            let start = frame & !((1 << order) - 1);
            self.states.block(start, order, 0).map(|pool| (start, order, pool))
        })
    }

    #[cold]
    fn steal(&mut self, thief: usize, order: u32) -> Option<(Frame, u32)> {
        let (found, victim) = (0..self.pools.count())
            .filter(|victim| *victim != thief && self.occupied[*victim] >> order != 0)
            .map(|victim| (self.occupied[victim].ilog2(), victim))
            .max_by_key(|(found, victim)| (*found, std::cmp::Reverse(*victim)))?;
        let frame = self.take_first(victim, found);
        self.statistics[found as usize].steals += 1;
        Some((frame, found))
    }

    /// Halves a block that is on no queue until it has the order wanted.
    #[inline]
    fn split(&mut self, frame: Frame, mut order: u32, index: usize, wanted: u32) {
        if order == wanted {
            return;
        }
        self.occupied[index] |= (1 << order) - (1 << wanted);
        while order > wanted {
            self.statistics[order as usize].splits += 1;
            order -= 1;
            let upper = frame + (1 << order);
            self.states.start(upper, order, index);
            self.queues[index][order as usize].push_front(upper, &mut self.places);
        }
    }

    #[inline]
    fn coalesce(&mut self, mut frame: Frame, mut order: u32) {
        let index = self.states.label(frame);
        while order < self.largest {
            let buddy = frame ^ (1 << order);
            let Some(pool) = self.states.block(buddy, order, index) else { break };
            self.unlink(buddy, order, pool);
            self.statistics[order as usize].merges += 1;
            order += 1;
            frame &= buddy;
        }
        self.put_last(frame, order, index);
    }

    #[inline]
    fn put_first(&mut self, first: Frame, order: u32, index: usize) {
        self.states.start(first, order, index);
        self.queues[index][order as usize].push_front(first, &mut self.places);
        self.occupied[index] |= 1 << order;
    }

    #[inline]
    fn put_last(&mut self, first: Frame, order: u32, index: usize) {
        self.states.start(first, order, index);
        self.queues[index][order as usize].push_back(first, &mut self.places);
        self.occupied[index] |= 1 << order;
    }

    #[inline]
    fn take_first(&mut self, index: usize, order: u32) -> Frame {
        let queue = &mut self.queues[index][order as usize];
        let first = queue.pop_front().expect("invariant: occupied queues have blocks");
        if queue.is_empty() {
            self.occupied[index] &= !(1 << order);
        }
        self.states.end(first, order, index);
        first
    }

    #[inline]
    fn unlink(&mut self, first: Frame, order: u32, index: usize) {
        self.states.end(first, order, index);
        let queue = &mut self.queues[index][order as usize];
        queue.remove(first, &self.places);
        if queue.is_empty() {
            self.occupied[index] &= !(1 << order);
        }
    }
}
