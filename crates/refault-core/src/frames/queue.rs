//! A queue of free blocks: a ring of first frames, in which a block in the middle is crossed out in place.
//!
//! The allocator takes from the front, frees to the back and takes buddies out of the middle. A linked list would make
//! every allocation wait for a cache miss on the block before it; a ring is read in order. Where each block stands is
//! kept by the allocator, one word a frame, shared by all its queues (a block stands in one queue at most).
//!
//! Invariants: crossed-out places never stand at either end; `live` is the number of the others. The ring's size is a
//! power of two, and at most four times the most blocks it ever held.
//!
//! Cost: O(1) amortised; 4 bytes a place. A full ring is packed or doubled.

use super::buddy::{Frame, NO_FRAME};

/// Smallest ring.
const SMALLEST: usize = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct BlockQueue {
    ring: Vec<Frame>,
    /// Places are counted without end in either direction; their remainder is the index.
    front: u32,
    back: u32,
    live: u32,
}

impl BlockQueue {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.live as usize
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// First frames, in the order in which they will be taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = Frame> + '_ {
        let length = self.back.wrapping_sub(self.front);
        (0..length).map(|at| self.ring[self.index(self.front.wrapping_add(at))]).filter(|frame| *frame != NO_FRAME)
    }

    #[inline]
    pub(super) fn push_front(&mut self, frame: Frame, places: &mut [u32]) {
        self.reserve(places);
        self.front = self.front.wrapping_sub(1);
        self.set(self.front, frame, places);
    }

    #[inline]
    pub(super) fn push_back(&mut self, frame: Frame, places: &mut [u32]) {
        self.reserve(places);
        self.set(self.back, frame, places);
        self.back = self.back.wrapping_add(1);
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Frame> {
        if self.live == 0 {
            return None;
        }
        let frame = self.ring[self.index(self.front)];
        self.front = self.front.wrapping_add(1);
        self.live -= 1;
        self.trim();
        Some(frame)
    }

    /// Crosses out a block that stands in this queue.
    #[inline]
    pub(super) fn remove(&mut self, frame: Frame, places: &[u32]) {
        let index = self.index(places[frame as usize]);
        debug_assert_eq!(self.ring[index], frame);
        self.ring[index] = NO_FRAME;
        self.live -= 1;
        self.trim();
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.ring.capacity() * size_of::<Frame>()
    }

    #[inline]
    fn index(&self, place: u32) -> usize {
        place as usize & (self.ring.len() - 1)
    }

    #[inline]
    fn set(&mut self, place: u32, frame: Frame, places: &mut [u32]) {
        let index = self.index(place);
        self.ring[index] = frame;
        places[frame as usize] = place;
        self.live += 1;
    }

    /// Lets go of crossed-out places at both ends.
    #[inline]
    fn trim(&mut self) {
        while self.front != self.back && self.ring[self.index(self.front)] == NO_FRAME {
            self.front = self.front.wrapping_add(1);
        }
        while self.front != self.back && self.ring[self.index(self.back.wrapping_sub(1))] == NO_FRAME {
            self.back = self.back.wrapping_sub(1);
        }
    }

    #[inline]
    fn reserve(&mut self, places: &mut [u32]) {
        if self.back.wrapping_sub(self.front) as usize == self.ring.len() {
            self.make_room(places);
        }
    }

    /// Packs the ring; doubles it if more than half of it is blocks.
    #[cold]
    fn make_room(&mut self, places: &mut [u32]) {
        let size = if self.live as usize * 2 > self.ring.len() { self.ring.len() * 2 } else { self.ring.len() };
        let mut ring = Vec::with_capacity(size.max(SMALLEST));
        ring.extend(self.iter());
        ring.iter().enumerate().for_each(|(place, frame)| places[*frame as usize] = place as u32);
        (self.front, self.back) = (0, ring.len() as u32);
        ring.resize(size.max(SMALLEST), NO_FRAME);
        self.ring = ring;
    }
}
