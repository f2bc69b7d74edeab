//! Where free blocks start, in which pool each is, and which pool each allocated frame is labelled with.
//!
//! Freeing a single frame asks for its label and whether its neighbour is a free single frame. Both stand in one byte,
//! the lower half for the even frame and the upper half for the odd one. In each half bits 0–1 are the pool. Bit 2 says
//! whether a free block of this one frame starts here. Larger blocks have a bit each in a map per order and pool. The
//! maps of large orders are small enough to stay in the processor's nearest cache. Joining a block with its buddy
//! changes no label of its frames.
//!
//! Invariants: a frame is marked as a free single frame or lies in at most one marked larger block; labels mean
//! something for allocated frames and free single frames only. Cost: O(1) but for labelling a block, which writes half
//! a byte per frame; half a byte per frame, and an eighth for each pool.

use super::buddy::{Frame, MAX_ORDER, POOLS};

/// A free block of a single frame starts here.
const SINGLE: u8 = 1 << 2;
const POOL: u8 = 3;
const HALF: u8 = 0x0f;

pub(super) struct FrameStates {
    pairs: Vec<u8>,
    /// Of each pool and order from 1 on: a bit for each place where a block can start.
    blocks: [[Vec<u64>; MAX_ORDER as usize]; POOLS],
    pools: usize,
    frames: u32,
}

impl FrameStates {
    /// No free block, everything labelled with pool 0.
    pub(super) fn new(frames: u32, pools: usize, largest: u32) -> FrameStates {
        let mut blocks: [[Vec<u64>; MAX_ORDER as usize]; POOLS] = Default::default();
        for maps in &mut blocks[..pools] {
            for order in 1..=largest {
                maps[order as usize - 1] = vec![0; (frames >> order).div_ceil(64) as usize];
            }
        }
        FrameStates { pairs: vec![0; frames.div_ceil(2) as usize], blocks, pools, frames }
    }

    #[inline]
    pub(super) fn frames(&self) -> u32 {
        self.frames
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.pairs.capacity() + self.blocks.iter().flatten().map(|map| map.capacity() * 8).sum::<usize>()
    }

    /// The label of an allocated frame or a free single frame.
    #[inline]
    pub(super) fn label(&self, frame: Frame) -> usize {
        usize::from(self.pairs[frame as usize >> 1] >> shift(frame) & POOL)
    }

    /// The pool of the free block of exactly this order that starts at a frame. `likely` is looked at first.
    #[inline]
    pub(super) fn block(&self, frame: Frame, order: u32, likely: usize) -> Option<usize> {
        if order == 0 {
            let half = *self.pairs.get(frame as usize >> 1)? >> shift(frame);
            return (half & SINGLE != 0).then_some(usize::from(half & POOL));
        }
        if self.bit(frame, order, likely) {
            return Some(likely);
        }
        (0..self.pools).find(|pool| *pool != likely && self.bit(frame, order, *pool))
    }

    /// A free block starts here.
    #[inline]
    pub(super) fn start(&mut self, frame: Frame, order: u32, pool: usize) {
        if order == 0 {
            let pair = &mut self.pairs[frame as usize >> 1];
            *pair = *pair & !(HALF << shift(frame)) | (SINGLE | pool as u8) << shift(frame);
        } else {
            self.blocks[pool][order as usize - 1][frame as usize >> order >> 6] |= 1 << (frame >> order & 63);
        }
    }

    /// The free block that started here is none any more; what its frames are labelled with is open.
    #[inline]
    pub(super) fn end(&mut self, frame: Frame, order: u32, pool: usize) {
        if order == 0 {
            self.pairs[frame as usize >> 1] &= !(SINGLE << shift(frame));
        } else {
            self.blocks[pool][order as usize - 1][frame as usize >> order >> 6] &= !(1 << (frame >> order & 63));
        }
    }

    /// Labels all frames of a block, which is not free.
    #[inline]
    pub(super) fn set_label(&mut self, first: Frame, order: u32, pool: usize) {
        if order == 0 {
            let pair = &mut self.pairs[first as usize >> 1];
            *pair = *pair & !(HALF << shift(first)) | (pool as u8) << shift(first);
        } else {
            let start = first as usize >> 1;
            self.pairs[start..start + (1 << (order - 1))].fill(pool as u8 * 0x11);
        }
    }

    #[inline]
    fn bit(&self, frame: Frame, order: u32, pool: usize) -> bool {
        let map = &self.blocks[pool][order as usize - 1];
        map.get(frame as usize >> order >> 6).is_some_and(|word| word >> (frame >> order & 63) & 1 != 0)
    }
}

/// Where a frame's half begins.
#[inline]
fn shift(frame: Frame) -> u32 {
    (frame & 1) * 4
}
