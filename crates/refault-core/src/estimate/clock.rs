//! FIFO, and Clock as FIFO with reinsertion: one queue per size of the cache.
//!
//! Cost: 2 bytes for each object that is in a cache, and 4 for each there is.

use super::lists::{Id, Ring, grow};
use super::miniature::{Mask, Miniature, Room, bits};

pub(super) struct Clock {
    queues: Vec<Ring>,
    resident: Vec<Mask>,
    /// Asked for since it came, or since its last second chance.
    accessed: Vec<Mask>,
    /// FIFO has none.
    second_chance: bool,
}

impl Clock {
    pub(super) fn new(sizes: usize, second_chance: bool) -> Clock {
        Clock { queues: vec![Ring::default(); sizes], resident: Vec::new(), accessed: Vec::new(), second_chance }
    }
}

impl Miniature for Clock {
    fn grow(&mut self, objects: usize) {
        grow(&mut self.resident, objects, 0);
        grow(&mut self.accessed, objects, 0);
    }

    #[inline]
    fn access(&mut self, id: Id, sizes: &[u64], room: &Room) -> Mask {
        let size = sizes[usize::from(id)];
        let resident = self.resident[usize::from(id)];
        if self.second_chance {
            self.accessed[usize::from(id)] |= resident;
        }
        let missed = room.all & !resident;
        for cache in bits(missed).filter(|cache| size <= room.whole[*cache]) {
            let queue = &mut self.queues[cache];
            let bit = 1 << cache;
            while queue.bytes.saturating_add(size) > room.scaled[cache] {
                let Some(oldest) = queue.pop() else { break };
                let its_size = sizes[usize::from(oldest)];
                queue.subtract(its_size);
                let accessed = &mut self.accessed[usize::from(oldest)];
                if *accessed & bit != 0 {
                    *accessed &= !bit;
                    queue.push(oldest, its_size);
                } else {
                    self.resident[usize::from(oldest)] &= !bit;
                }
            }
            queue.push(id, size);
            self.resident[usize::from(id)] |= bit;
        }
        missed
    }

    fn holds(&self, id: Id) -> bool {
        self.resident[usize::from(id)] != 0
    }

    fn retain(&mut self, kept: &[bool], sizes: &[u64]) {
        self.queues.iter_mut().for_each(|queue| queue.retain(kept));
        for id in (0..self.resident.len()).filter(|id| !kept[*id]) {
            self.accessed[id] = 0;
            bits(std::mem::take(&mut self.resident[id])).for_each(|cache| self.queues[cache].subtract(sizes[id]));
        }
    }

    fn resize(&mut self, id: Id, from: u64, to: u64) {
        for cache in bits(self.resident[usize::from(id)]) {
            self.queues[cache].resize(from, to);
        }
    }

    fn footprint(&self) -> usize {
        let masks = (self.resident.capacity() + self.accessed.capacity()) * size_of::<Mask>();
        self.queues.iter().map(Ring::footprint).sum::<usize>() + masks
    }
}
