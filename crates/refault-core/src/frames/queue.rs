//! A queue of free blocks: a ring of first frames, in which a block in the middle is crossed out in place, and before
//! it one block outside the ring.
//!
//! What a split leaves over goes to the front and is often the next to be taken or joined again: while it stands
//! outside the ring, neither the ring nor the place of a frame is touched for it. For the rest, the allocator takes
//! from the front, frees to the back and takes buddies out of the middle. A linked list would make every allocation
//! wait for a cache miss on the block before it; a ring is read in order. The allocator keeps where each block stands,
//! one word per frame. All its queues share these words (a block stands in one queue at most).
//!
//! Invariants: the block outside the ring is the first of the queue; crossed-out places never stand at either end;
//! `live` is the number of the others. The ring's size is a power of two, and at most four times the most blocks it
//! ever held.
//!
//! Cost: O(1) amortised; 4 bytes per place. A full ring is packed or doubled.

use super::buddy::{Frame, NO_FRAME};

/// Smallest ring.
const MIN_PLACES: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct BlockQueue {
    /// The block before the ring's, or [`NO_FRAME`].
    top: Frame,
    /// Places are counted without end in either direction; their remainder is the index.
    front: u32,
    back: u32,
    live: u32,
    ring: Vec<Frame>,
}

impl Default for BlockQueue {
    fn default() -> BlockQueue {
        BlockQueue { top: NO_FRAME, front: 0, back: 0, live: 0, ring: Vec::new() }
    }
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
        let top = (self.top != NO_FRAME).then_some(self.top);
        top.into_iter().chain(self.in_ring())
    }

    #[inline]
    pub(super) fn push_front(&mut self, frame: Frame, places: &mut [u32]) {
        let below = std::mem::replace(&mut self.top, frame);
        self.live += 1;
        if below != NO_FRAME {
            self.reserve(places);
            self.front = self.front.wrapping_sub(1);
            self.set(self.front, below, places);
        }
    }

    #[inline]
    pub(super) fn push_back(&mut self, frame: Frame, places: &mut [u32]) {
        self.live += 1;
        if self.live == 1 {
            self.top = frame;
            return;
        }
        self.reserve(places);
        self.set(self.back, frame, places);
        self.back = self.back.wrapping_add(1);
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Frame> {
        self.live = self.live.checked_sub(1)?;
        if self.top != NO_FRAME {
            return Some(std::mem::replace(&mut self.top, NO_FRAME));
        }
        let frame = self.ring[self.index(self.front)];
        self.front = self.front.wrapping_add(1);
        self.trim();
        Some(frame)
    }

    /// Crosses out a block that stands in this queue.
    #[inline]
    pub(super) fn remove(&mut self, frame: Frame, places: &[u32]) {
        self.live -= 1;
        if self.top == frame {
            self.top = NO_FRAME;
            return;
        }
        let index = self.index(places[frame as usize]);
        debug_assert_eq!(self.ring[index], frame);
        self.ring[index] = NO_FRAME;
        self.trim();
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.ring.capacity() * size_of::<Frame>()
    }

    fn in_ring(&self) -> impl Iterator<Item = Frame> + '_ {
        let length = self.back.wrapping_sub(self.front);
        (0..length).map(|at| self.ring[self.index(self.front.wrapping_add(at))]).filter(|frame| *frame != NO_FRAME)
    }

    #[inline]
    fn index(&self, place: u32) -> usize {
        place as usize & (self.ring.len().wrapping_sub(1))
    }

    #[inline]
    fn set(&mut self, place: u32, frame: Frame, places: &mut [u32]) {
        let index = self.index(place);
        self.ring[index] = frame;
        places[frame as usize] = place;
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
        let mut ring: Vec<Frame> = self.in_ring().collect();
        let size = if ring.len() * 2 > self.ring.len() { self.ring.len() * 2 } else { self.ring.len() };
        ring.iter().enumerate().for_each(|(place, frame)| places[*frame as usize] = place as u32);
        (self.front, self.back) = (0, ring.len() as u32);
        ring.resize(size.max(MIN_PLACES), NO_FRAME);
        self.ring = ring;
    }
}
