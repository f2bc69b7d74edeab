//! How usable free frames are for large requests (spec: freebsd §8).
//!
//! A count of free blocks by order, over all pools or some; every index follows from it. Cost: O(orders).
//!
//! Kernel: `sysctl_vm_phys_free` in `sys/vm/vm_phys.c`.

use super::buddy::{FrameAllocator, FreePool, MAX_ORDER};

/// Free blocks by order, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Number of free blocks of each order.
    pub blocks: [u64; MAX_ORDER as usize + 1],
}

impl FrameAllocator {
    /// Free blocks of all pools. With cached frames among them: they are blocks like others.
    pub fn fragmentation(&self) -> Fragmentation {
        self.fragmentation_of(&[FreePool::Default, FreePool::Direct, FreePool::Cache])
    }

    /// Free blocks of some pools. Pools that share their queues count once.
    pub fn fragmentation_of(&self, pools: &[FreePool]) -> Fragmentation {
        let mut wanted = [false; 3];
        pools.iter().for_each(|pool| wanted[self.pools().index(*pool)] = true);
        let mut fragmentation = Fragmentation::default();
        for pool in [FreePool::Default, FreePool::Direct, FreePool::Cache] {
            if std::mem::take(&mut wanted[self.pools().index(pool)]) {
                for (order, blocks) in fragmentation.blocks.iter_mut().enumerate() {
                    *blocks += self.blocks(pool, order as u32) as u64;
                }
            }
        }
        fragmentation
    }
}

impl Fragmentation {
    /// Free frames.
    pub fn free_frames(&self) -> u64 {
        self.frames_from(0)
    }

    /// Free contiguity: the share of the free frames that lie in blocks of this order; 0 if nothing is free.
    pub fn share(&self, order: u32) -> f64 {
        ratio(self.blocks[order as usize] << order, self.free_frames())
    }

    /// Unusable free index: the share of the free frames that lie in blocks too small for a request of this order.
    /// 0 means that all can be used, 1 that none can; 0 if nothing is free.
    pub fn unusable_free_index(&self, order: u32) -> f64 {
        let free = self.free_frames();
        ratio(free - self.frames_from(order), free)
    }

    /// Mean size of a free block, in frames.
    pub fn mean_block(&self) -> f64 {
        ratio(self.free_frames(), self.blocks.iter().sum())
    }

    /// The largest order with a free block.
    pub fn largest_order(&self) -> Option<u32> {
        self.blocks.iter().rposition(|blocks| *blocks > 0).map(|order| order as u32)
    }

    /// Free blocks of 2 MiB (order 9) that the free blocks of that size or larger contain.
    pub fn superpages(&self) -> u64 {
        self.frames_from(9) >> 9
    }

    /// Free frames in blocks of at least this order.
    pub fn frames_from(&self, order: u32) -> u64 {
        self.blocks.iter().enumerate().skip(order as usize).map(|(order, blocks)| blocks << order).sum()
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_example_of_the_specification() {
        let mut f = Fragmentation::default();
        (f.blocks[0], f.blocks[2]) = (4, 1);
        assert_eq!(f.free_frames(), 8);
        assert_eq!((f.share(0), f.share(2)), (0.5, 0.5));
        assert_eq!([1, 2, 3].map(|order| f.unusable_free_index(order)), [0.5, 0.5, 1.0]);
        assert_eq!(f.mean_block(), 1.6);
        assert_eq!((f.largest_order(), f.superpages()), (Some(2), 0));
    }
}
