//! LRU: one order of recency for all sizes, in which each cache ends somewhere else.
//!
//! Cost: 6 bytes per object whatever the number of sizes.

use super::lists::{Id, Links, NONE, grow};
use super::miniature::{Mask, Miniature, Room, bits};

pub(super) struct Lru {
    order: Links,
    resident: Vec<Mask>,
    /// The least recent object of each cache.
    oldest: Vec<Id>,
    used: Vec<u64>,
}

impl Lru {
    pub(super) fn new(sizes: usize) -> Lru {
        Lru { order: Links::new(), resident: Vec::new(), oldest: vec![NONE; sizes], used: vec![0; sizes] }
    }

    /// The next more recent object in the cache of one size.
    #[inline]
    fn newer(&self, cache: usize, mut id: Id) -> Id {
        loop {
            id = self.order.newer(id);
            if id == NONE || self.resident[usize::from(id)] & 1 << cache != 0 {
                return id;
            }
        }
    }

    /// The object leaves its place: caches that end with it end before it.
    #[inline]
    fn take_out(&mut self, id: Id) {
        for cache in bits(self.resident[usize::from(id)]) {
            if self.oldest[cache] == id {
                self.oldest[cache] = self.newer(cache, id);
            }
        }
        self.order.remove(id);
    }

    #[inline]
    fn evict(&mut self, cache: usize, id: Id, size: u64) {
        self.oldest[cache] = self.newer(cache, id);
        self.used[cache] = self.used[cache].saturating_sub(size);
        self.resident[usize::from(id)] &= !(1 << cache);
        if self.resident[usize::from(id)] == 0 {
            self.order.remove(id);
        }
    }
}

impl Miniature for Lru {
    fn grow(&mut self, objects: usize) {
        self.order.grow(objects);
        grow(&mut self.resident, objects, 0);
    }

    #[inline]
    fn access(&mut self, id: Id, sizes: &[u64], room: &Room) -> Mask {
        let size = sizes[usize::from(id)];
        let resident = self.resident[usize::from(id)];
        let missed = room.all & !resident;
        let mut admitted: Mask = 0;
        for cache in bits(missed).filter(|cache| size <= room.whole[*cache]) {
            while self.used[cache].saturating_add(size) > room.scaled[cache] && self.oldest[cache] != NONE {
                let oldest = self.oldest[cache];
                self.evict(cache, oldest, sizes[usize::from(oldest)]);
            }
            self.used[cache] = self.used[cache].saturating_add(size);
            admitted |= 1 << cache;
        }
        if resident != 0 && self.order.head != id {
            self.take_out(id);
            self.order.push_head(id);
        } else if resident == 0 && admitted != 0 {
            self.order.push_head(id);
        }
        self.resident[usize::from(id)] = resident | admitted;
        for cache in bits(resident | admitted) {
            if self.oldest[cache] == NONE {
                self.oldest[cache] = id;
            }
        }
        missed
    }

    fn holds(&self, id: Id) -> bool {
        self.resident[usize::from(id)] != 0
    }

    fn retain(&mut self, kept: &[bool], sizes: &[u64]) {
        for id in (0..self.resident.len() as Id).filter(|id| !kept[usize::from(*id)]) {
            if self.holds(id) {
                self.take_out(id);
            }
            for cache in bits(std::mem::take(&mut self.resident[usize::from(id)])) {
                self.used[cache] = self.used[cache].saturating_sub(sizes[usize::from(id)]);
            }
        }
    }

    fn resize(&mut self, id: Id, from: u64, to: u64) {
        for cache in bits(self.resident[usize::from(id)]) {
            self.used[cache] = self.used[cache].saturating_sub(from).saturating_add(to);
        }
    }

    fn footprint(&self) -> usize {
        self.order.footprint() + self.resident.capacity() * size_of::<Mask>()
    }
}
