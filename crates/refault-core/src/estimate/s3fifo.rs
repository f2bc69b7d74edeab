//! S3-FIFO, as [`crate::textbook::S3Fifo`] has it by default, with shares of bytes instead of pages.
//!
//! A ghost that returns leaves its entry in the ring of ghosts, which is passed over when it comes to the end.
//!
//! Cost: 2 bytes for each object in a queue or among the ghosts, and 12 for each there is.

use super::lists::{Id, Ring, grow};
use super::miniature::{Mask, Miniature, Room, bits};
use crate::textbook::S3FifoParams;

#[derive(Clone, Default)]
struct Queues {
    small: Ring,
    main: Ring,
    ghosts: Ring,
    /// Room was made at least once.
    has_evicted: bool,
}

/// Where an object is, and how often it was asked for, a bit per size of the cache.
#[derive(Clone, Copy, Default)]
struct State {
    small: Mask,
    main: Mask,
    ghost: Mask,
    /// It was a ghost, and its entry is still there.
    returned: Mask,
    /// Hits, 0 to 3, in binary.
    hits: [Mask; 2],
}

impl State {
    fn resident(&self) -> Mask {
        self.small | self.main
    }

    #[inline]
    fn hit(&mut self) {
        let counted = self.resident() & !(self.hits[0] & self.hits[1]);
        self.hits[1] ^= counted & self.hits[0];
        self.hits[0] ^= counted;
    }

    fn has_hits(&self, bit: Mask) -> bool {
        (self.hits[0] | self.hits[1]) & bit != 0
    }

    fn has_two_hits(&self, bit: Mask) -> bool {
        self.hits[1] & bit != 0
    }

    fn take_back_hit(&mut self, bit: Mask) {
        self.hits[1] ^= bit & !self.hits[0];
        self.hits[0] ^= bit;
    }

    fn clear_hits(&mut self, bit: Mask) {
        self.hits.iter_mut().for_each(|hits| *hits &= !bit);
    }
}

pub(super) struct S3Fifo {
    params: S3FifoParams,
    caches: Vec<Queues>,
    states: Vec<State>,
}

impl S3Fifo {
    pub(super) fn new(sizes: usize) -> S3Fifo {
        S3Fifo { params: S3FifoParams::default(), caches: vec![Queues::default(); sizes], states: Vec::new() }
    }
}

/// What one cache needs to know of the objects and of its own size.
struct Shares<'a> {
    states: &'a mut [State],
    sizes: &'a [u64],
    bit: Mask,
    main: u64,
    ghosts: u64,
}

impl Queues {
    /// Evicts one object; false if there is none.
    fn evict(&mut self, shares: &mut Shares<'_>) -> bool {
        let small_first = self.main.bytes <= shares.main;
        (small_first && self.evict_small(shares)) || self.evict_main(shares) || self.evict_small(shares)
    }

    fn evict_small(&mut self, shares: &mut Shares<'_>) -> bool {
        let bit = shares.bit;
        while let Some(oldest) = self.small.pop() {
            let (state, size) = (&mut shares.states[usize::from(oldest)], shares.sizes[usize::from(oldest)]);
            self.small.subtract(size);
            state.small &= !bit;
            let is_promoted = state.has_two_hits(bit);
            state.clear_hits(bit);
            if is_promoted {
                state.main |= bit;
                self.main.push(oldest, size);
                continue;
            }
            state.ghost |= bit;
            self.ghosts.push(oldest, size);
            while self.ghosts.bytes > shares.ghosts {
                let Some(ghost) = self.ghosts.pop() else { break };
                let state = &mut shares.states[usize::from(ghost)];
                if state.returned & bit != 0 {
                    state.returned &= !bit;
                } else {
                    state.ghost &= !bit;
                    self.ghosts.subtract(shares.sizes[usize::from(ghost)]);
                }
            }
            return true;
        }
        false
    }

    fn evict_main(&mut self, shares: &mut Shares<'_>) -> bool {
        while let Some(oldest) = self.main.pop() {
            let (state, size) = (&mut shares.states[usize::from(oldest)], shares.sizes[usize::from(oldest)]);
            self.main.subtract(size);
            if !state.has_hits(shares.bit) {
                state.main &= !shares.bit;
                return true;
            }
            state.take_back_hit(shares.bit);
            self.main.push(oldest, size);
        }
        false
    }

    /// A ghost comes back. Only one entry of an object may be passed over at a time.
    fn returns(&mut self, id: Id, size: u64, state: &mut State, bit: Mask) {
        if state.returned & bit != 0 {
            self.ghosts.remove(id);
        }
        state.returned |= bit;
        state.ghost &= !bit;
        self.ghosts.subtract(size);
    }
}

impl Miniature for S3Fifo {
    fn grow(&mut self, objects: usize) {
        grow(&mut self.states, objects, State::default());
    }

    #[inline]
    fn access(&mut self, id: Id, sizes: &[u64], room: &Room) -> Mask {
        let size = sizes[usize::from(id)];
        let state = &mut self.states[usize::from(id)];
        let missed = room.all & !state.resident();
        state.hit();
        for cache in bits(missed).filter(|cache| size <= room.whole[*cache]) {
            let (queues, bit, scaled) = (&mut self.caches[cache], 1 << cache, room.scaled[cache]);
            let small_share = ((scaled as f64 * self.params.small) as u64).max(1);
            let is_ghost = self.states[usize::from(id)].ghost & bit != 0;
            if is_ghost {
                queues.returns(id, size, &mut self.states[usize::from(id)], bit);
            }
            let mut shares = Shares {
                states: &mut self.states,
                sizes,
                bit,
                main: scaled.saturating_sub(small_share),
                ghosts: (scaled as f64 * self.params.ghosts) as u64,
            };
            while queues.small.bytes.saturating_add(queues.main.bytes).saturating_add(size) > scaled {
                queues.has_evicted = true;
                if !queues.evict(&mut shares) {
                    break;
                }
            }
            let state = &mut self.states[usize::from(id)];
            state.clear_hits(bit);
            let overflows = !queues.has_evicted && queues.small.bytes >= small_share;
            if is_ghost || overflows {
                state.main |= bit;
                queues.main.push(id, size);
            } else {
                state.small |= bit;
                queues.small.push(id, size);
            }
        }
        missed
    }

    fn holds(&self, id: Id) -> bool {
        let state = &self.states[usize::from(id)];
        state.resident() | state.ghost | state.returned != 0
    }

    fn retain(&mut self, kept: &[bool], sizes: &[u64]) {
        for queues in &mut self.caches {
            let rings = [&mut queues.small, &mut queues.main, &mut queues.ghosts];
            rings.into_iter().for_each(|ring| ring.retain(kept));
        }
        for id in (0..self.states.len()).filter(|id| !kept[*id]) {
            let state = std::mem::take(&mut self.states[id]);
            bits(state.small).for_each(|cache| self.caches[cache].small.subtract(sizes[id]));
            bits(state.main).for_each(|cache| self.caches[cache].main.subtract(sizes[id]));
            bits(state.ghost).for_each(|cache| self.caches[cache].ghosts.subtract(sizes[id]));
        }
    }

    fn resize(&mut self, id: Id, from: u64, to: u64) {
        let state = self.states[usize::from(id)];
        bits(state.small).for_each(|cache| self.caches[cache].small.resize(from, to));
        bits(state.main).for_each(|cache| self.caches[cache].main.resize(from, to));
        bits(state.ghost).for_each(|cache| self.caches[cache].ghosts.resize(from, to));
    }

    fn footprint(&self) -> usize {
        let rings = |queues: &Queues| [&queues.small, &queues.main, &queues.ghosts].map(Ring::footprint);
        let rings: usize = self.caches.iter().flat_map(rings).sum();
        rings + self.states.capacity() * size_of::<State>()
    }
}
