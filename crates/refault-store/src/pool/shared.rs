//! The pool after a fork: what parent and child share is only read.
//!
//! A write to a block that both have would make the kernel copy a page of it. The few bytes that say that an object is
//! free are not worth that. So the objects of such a block are not given out again, nor moved. The block is freed as a
//! whole when the last of them is. [`CompressedPool::unshare`] makes ordinary blocks of those that are left, once no
//! other process has them.
//!
//! Invariants: a shared block is on no list of its class and in none of its sums; no memory of it is written to; which
//! of its objects were given back since is noted beside it. Cost: a look at each block that was ever used, at the fork
//! and when nothing is shared any more; some 150 bytes per shared block in which something was given back.

use std::sync::atomic::Ordering;

use super::{CompressedPool, MAX_BLOCK, NO_OBJECT, STEP};
use crate::PAGE_SIZE;

/// The objects of a block that were given back, a bit each.
pub(super) type GivenBack = [u64; MAX_BLOCK / STEP / 64];

impl CompressedPool {
    pub(super) fn is_shared(&self, block: u32) -> bool {
        self.record(block).shared.load(Ordering::Relaxed) != 0
    }

    /// A fork is about to share all objects, in both processes. No other thread may use the pool meanwhile.
    pub fn share(&self) {
        for block in 0..self.fresh_blocks() {
            let record = self.record(block);
            let used = record.used.load(Ordering::Relaxed);
            if used == 0 || self.is_shared(block) {
                continue;
            }
            let class = usize::from(record.class.load(Ordering::Relaxed));
            let step = (class + 1) * STEP;
            let mut state = self.classes[class].lock().expect("invariant: nothing panics under this lock");
            if used < self.objects(class) {
                self.unlink(&mut state, block);
            }
            state.blocks -= 1;
            state.used -= u32::from(used);
            let pages = (usize::from(record.fresh.load(Ordering::Relaxed)) * step).div_ceil(PAGE_SIZE);
            record.shared.store(pages as u8, Ordering::Relaxed);
        }
    }

    /// No other process has the shared blocks any more: what is free in them is used again. No other thread may use the
    /// pool meanwhile.
    pub fn unshare(&self) {
        let given_back =
            std::mem::take(&mut *self.given_back.lock().expect("invariant: nothing panics under this lock"));
        for block in 0..self.fresh_blocks() {
            let record = self.record(block);
            if record.shared.swap(0, Ordering::Relaxed) == 0 {
                continue;
            }
            let class = usize::from(record.class.load(Ordering::Relaxed));
            let given_back = given_back.get(&block).copied().unwrap_or_default();
            for index in 0..record.fresh.load(Ordering::Relaxed) {
                if given_back[usize::from(index) / 64] >> (index % 64) & 1 != 0 {
                    // SAFETY: no caller has its slot any more, and no other thread uses the pool.
                    unsafe { self.free_object(record, self.object(block, class, index), index) };
                }
            }
            let objects = self.objects(class);
            let used = record.used.load(Ordering::Relaxed);
            let mut state = self.classes[class].lock().expect("invariant: nothing panics under this lock");
            state.blocks += 1;
            state.used += u32::from(used);
            let has_room =
                record.free.load(Ordering::Relaxed) != NO_OBJECT || record.fresh.load(Ordering::Relaxed) < objects;
            if has_room {
                self.link(&mut state, block);
            }
        }
    }

    /// Pages of the pool's memory that this process shared and has given back, since it was last asked.
    pub fn take_unshared(&self) -> u64 {
        self.unshared.swap(0, Ordering::Relaxed)
    }

    /// Gives an object of a shared block back.
    pub(super) fn put_back_shared(&self, block: u32, index: u16) {
        let record = self.record(block);
        let mut given_back = self.given_back.lock().expect("invariant: nothing panics under this lock");
        if record.used.fetch_sub(1, Ordering::Relaxed) > 1 {
            given_back.entry(block).or_default()[usize::from(index) / 64] |= 1 << (index % 64);
        } else {
            given_back.remove(&block);
            drop(given_back);
            self.unshared.fetch_add(record.shared.swap(0, Ordering::Relaxed).into(), Ordering::Relaxed);
            self.put_back_block(block);
        }
    }

    /// Blocks that were ever used.
    fn fresh_blocks(&self) -> u32 {
        self.free.lock().expect("invariant: nothing panics under this lock").fresh
    }
}
