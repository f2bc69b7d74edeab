//! The lock of a file's tree, which reclaim holds while it takes a page out, and for which several kswapds wait.
//!
//! A pass of kswapd takes effect at once and its time passes afterwards. So contention is worked out pass by pass, from
//! the passes of other kswapds that are under way over the same file. Each takes the lock, holds it for a page, and
//! does something else until the next page: a closed queue with one server, whose waiting time follows from the mean
//! number in it, one customer after the other (mean value analysis). Others are taken to be like the one that asks.
//! Readers that put pages in, and reclaim by tasks, take the lock too; their share is left out.
//!
//! Invariant: on one node no reclaimer waits. Cost: O(files that a pass evicted from, times passes under way).
//!
//! Kernel: `__remove_mapping` in `mm/vmscan.c`, the lock of `struct address_space`.
//!
//! ```
//! use refault_sim::machine::tree_lock::waiting;
//!
//! assert_eq!(waiting(80.0, 150.0, 0.0), 0.0); // no other reclaimer
//! let three = waiting(80.0, 150.0, 3.0);
//! assert!(three > waiting(80.0, 150.0, 1.0) && three < 3.0 * 80.0); // at most once for each of the others
//! assert!(waiting(80.0, 1e6, 3.0) < 0.1); // a file of many: the lock is hardly ever wanted
//! ```

use super::Machine;

/// Pages that reclaim took out of each segment's tree since it was last asked.
#[derive(Clone, Debug, Default)]
pub struct Removed {
    pages: Vec<u32>,
    segments: Vec<u32>,
}

impl Removed {
    /// One more page of a segment.
    #[inline]
    pub(super) fn add(&mut self, segment: u32) {
        let at = segment as usize;
        if at >= self.pages.len() {
            self.pages.resize(at + 1, 0);
        }
        if self.pages[at] == 0 {
            self.segments.push(segment);
        }
        self.pages[at] += 1;
    }

    /// Segments and pages, which are forgotten.
    pub(super) fn take(&mut self) -> Vec<(u32, u32)> {
        let segments = std::mem::take(&mut self.segments);
        segments.into_iter().map(|segment| (segment, std::mem::take(&mut self.pages[segment as usize]))).collect()
    }
}

/// A pass under way over a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    node: usize,
    segment: u32,
    until: u64,
}

/// How long one of `others` + 1 waits for a lock, in the unit of `hold` and `rest`. Each holds it for `hold` and then
/// leaves it alone for `rest`. A part of another is one that is there for a part of the time.
pub fn waiting(hold: f64, rest: f64, others: f64) -> f64 {
    let (mut queue, mut response) = (0.0, hold);
    let whole = others.max(0.0).floor();
    for customers in 1..=whole as u32 + 1 {
        response = hold * (1.0 + queue);
        queue = f64::from(customers) * response / (response + rest);
    }
    let next = hold * (1.0 + queue);
    response + (next - response) * (others.max(0.0) - whole) - hold
}

impl Machine {
    /// A node's kswapd has begun a pass that takes `cost`: how long it waits for locks, nanoseconds.
    pub(super) fn wait_for_trees(&mut self, node: usize, cost: u64) -> u64 {
        let now = self.now;
        self.tree_locks.retain(|hold| hold.until > now);
        let removed = self.memory.removed.take();
        let hold = self.memory.costs.tree_lock as f64;
        let mut waited = 0.0;
        for (segment, pages) in &removed {
            let passes = self.tree_locks.iter().filter(|other| other.segment == *segment && other.node != node);
            let others = passes.map(|other| (other.until.min(now + cost) - now) as f64 / cost.max(1) as f64).sum();
            let pages = f64::from(*pages);
            let rest = (cost as f64 / pages - hold).max(0.0);
            waited += pages * waiting(hold, rest, others);
        }
        let until = now + cost + waited as u64;
        self.tree_locks.extend(removed.iter().map(|(segment, _)| Hold { node, segment: *segment, until }));
        waited as u64
    }
}
