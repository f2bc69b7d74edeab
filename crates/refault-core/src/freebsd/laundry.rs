//! The laundry queue, and the controller that says how many pages an inactive scan is to free (spec: freebsd §0, §9).
//!
//! Since 12 the inactive scan writes nothing. It frees clean pages and sends dirty ones to a queue of their own, from
//! which another thread writes them. It writes in the background when dirty pages are many beside clean ones: the more
//! memory was freed since, the fewer dirty pages it takes. It writes at once when clean pages alone do not meet the
//! shortage. What is written goes back to the inactive queue, clean.
//!
//! The number of pages that a scan is to free is not the distance to the target. It is the output of a controller with
//! a proportional, an integral and a derivative part. The controller keeps freeing a little while demand is steady
//! instead of waiting until memory is short. The specification does not say its gains; [`GAINS`] are this model's.
//!
//! Invariants: a page on the laundry queue was dirty when it came there; the controller's output is never negative.
//! Cost: O(1) per step; laundering is O(pages looked at).
//!
//! Kernel: `vm_pageout_laundry_worker`, `vm_pageout_launder` in `sys/vm/vm_pageout.c`; `pidctrl_daemon` in
//! `sys/kern/subr_pidctrl.c`.

use super::Freebsd;
use super::queues::{ACT_ADVANCE, Queue};
use crate::memory::{Eviction, IoState, Memory, in_use, launder, needs_write};
use crate::page::{PageId, Shadow};

/// Divisors of the error, of its sum and of its change. Assumed.
const GAINS: [i64; 3] = [3, 4, 8];
/// The sum of errors is at most this many times the set point, and never below zero: what was freed too much is not
/// held against a later shortage. Assumed.
const INTEGRAL_BOUND: i64 = 4;
/// The clean pages that a dirty one is worth: pages in the laundry count for a third of inactive ones, and what is
/// wanted of the active queue counts three times.
pub(super) const LAUNDRY_WEIGHT: i64 = 3;
/// Pages written by the second in the background: least, 4 MiB, and most, 20 MiB.
const RATES: [u64; 2] = [1024, 5120];

/// A proportional, integral and derivative controller.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Controller {
    integral: i64,
    last_error: i64,
}

impl Controller {
    /// Pages to free, given that there are `available` of the `set_point` that there should be.
    pub fn output(&mut self, set_point: u64, available: u64) -> i64 {
        let error = set_point as i64 - available as i64;
        let bound = INTEGRAL_BOUND * set_point as i64;
        self.integral = (self.integral + error).clamp(0, bound);
        let change = error - std::mem::replace(&mut self.last_error, error);
        let [proportional, integral, derivative] = GAINS;
        (error / proportional + self.integral / integral + change / derivative).max(0)
    }
}

/// What the thread that writes knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Launderer {
    /// Pages freed since it last began to write in the background.
    pub freed: u64,
    /// Pages that are to be written still.
    target: u64,
    /// Nanoseconds that have not been worth a page yet.
    unused: u64,
}

impl Freebsd {
    /// Whether background writing is worth while: the more was freed, the fewer dirty pages it takes.
    fn wants_laundering(&self) -> bool {
        let dirty = self.queues.len(Queue::Laundry) as u64;
        let clean = self.queues.len(Queue::Inactive) as u64 + self.available();
        let span = (self.targets.free_target - self.targets.free_min).max(1);
        let rounds = (self.launderer.freed + 1).div_ceil(span);
        dirty > 0 && dirty * rounds.isqrt() >= clean
    }

    /// Writes in the background what `elapsed` nanoseconds allow.
    pub(super) fn launder_in_background<M: Memory>(&mut self, elapsed: u64, memory: &mut M) {
        if self.launderer.target == 0 && self.wants_laundering() {
            self.launderer.target = ((self.targets.free_target - self.targets.free_min) / 10).max(1);
            self.launderer.freed = 0;
        }
        if self.launderer.target == 0 {
            return;
        }
        // Twice as fast where twice as much is behind the target, within the bounds.
        let behind = self.targets.free_target.saturating_sub(self.available());
        let rate = (RATES[0] + RATES[1] * behind / self.targets.free_target.max(1)).min(RATES[1]);
        let time = self.launderer.unused + elapsed;
        let pages = (u128::from(time) * u128::from(rate) / 1_000_000_000) as u64;
        self.launderer.unused = if pages > 0 { 0 } else { time };
        let pages = pages.min(self.launderer.target);
        let written = self.launder(pages, memory).written;
        self.launderer.target = if written < pages { 0 } else { self.launderer.target - pages };
    }

    /// Takes pages from the oldest of the laundry until `pages` were written: referenced ones become active, clean ones
    /// inactive.
    pub(super) fn launder<M: Memory>(&mut self, pages: u64, memory: &mut M) -> Laundered {
        let mut laundered = Laundered::default();
        let mut visits = self.queues.len(Queue::Laundry);
        while laundered.written < pages
            && visits > 0
            && let Some(page) = self.queues.oldest(Queue::Laundry)
        {
            visits -= 1;
            self.vm.page_daemon_pages += 1;
            if memory.io_state(page).any(IoState::LOCKED.with(IoState::WRITEBACK).with(IoState::UNEVICTABLE)) {
                self.queues.requeue(page, Queue::Laundry);
                continue;
            }
            let in_use = in_use(memory, page);
            let references = self.take_references(page, in_use, memory);
            if references > 0 && in_use {
                self.activate(page);
                let record = self.queues.record_mut(page);
                record.act_count = record.act_count.saturating_add(references + ACT_ADVANCE);
            } else if references > 0 {
                self.queues.requeue(page, Queue::Laundry);
            } else if !needs_write(memory, page) {
                // A neighbour's cluster had it.
                self.queues.requeue(page, Queue::Inactive);
            } else {
                self.write(page, memory, &mut laundered);
            }
        }
        laundered
    }

    /// Writes a page of the laundry with its cluster, or, where pages are only written as they go, lets it go.
    fn write<M: Memory>(&mut self, page: PageId, memory: &mut M, laundered: &mut Laundered) {
        let written = launder(memory, page);
        let eviction = match written {
            Some(0) => Eviction::Refused,
            Some(_) => Eviction::WriteStarted,
            None => memory.evict(page, Shadow::NONE),
        };
        match eviction {
            Eviction::Freed { .. } => {
                self.let_go(page);
                laundered.freed += 1;
            }
            Eviction::WriteStarted => self.queues.requeue(page, Queue::Inactive),
            Eviction::Kept | Eviction::Refused => return self.queues.requeue(page, Queue::Laundry),
        }
        laundered.written += u64::from(written.unwrap_or(1));
    }
}

/// What became of pages of the laundry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Laundered {
    pub written: u64,
    /// Of these, those that have gone.
    pub freed: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_shortage_is_answered_with_more_and_more() {
        let mut controller = Controller::default();
        let outputs: Vec<i64> = (0..4).map(|_| controller.output(1000, 700)).collect();
        // 300 short: a third of it, a quarter of the sum, and an eighth of the change at first.
        assert_eq!(outputs, [100 + 75 + 37, 100 + 150, 100 + 225, 100 + 300]);
        let mut bounded = Controller::default();
        let last = (0..100).map(|_| bounded.output(1000, 0)).last();
        assert_eq!(last, Some(1000 / 3 + 4000 / 4), "the sum of errors is bounded");
    }

    #[test]
    fn plenty_is_answered_with_nothing_and_forgets_a_shortage() {
        let mut controller = Controller::default();
        controller.output(1000, 0);
        assert_eq!(controller.output(1000, 5000), 0);
        assert_eq!(controller.output(1000, 900), 33 + 25 + 4100 / 8, "only the last error and the change are known");
    }

    /// Steady demand is met at the set point, where the distance to a target would free nothing.
    #[test]
    fn steady_demand_leaves_no_lasting_shortage() {
        for demand in [10, 60, 120] {
            let mut controller = Controller::default();
            let mut left = 1000;
            let short: Vec<i64> = (0..200)
                .map(|_| {
                    left -= demand;
                    let short = 1000 - left;
                    left += controller.output(1000, left as u64);
                    short
                })
                .collect();
            assert!(short[150..].iter().all(|short| short.abs() <= 8), "{demand} a pass: {:?}", &short[150..]);
        }
    }
}
