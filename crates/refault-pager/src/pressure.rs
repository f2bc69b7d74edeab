//! Pressure: the time in which the program waited for memory (spec: overview §7).
//!
//! *Some* runs while at least one thread waits: a handler brings an evicted page back for it, or evicts because the
//! reserve is used up. First touches and first writes are no pressure, as they are none in the kernel. The clock starts
//! when the fault's message is read, so wake-ups around it are not in it. *Full* needs to know whether other threads
//! could run; that is looked up from time to time by who keeps the statistics ([`crate::Pager::is_stalled`]).
//!
//! Invariant: some never exceeds the time elapsed, however many threads wait. One word holds the number of waits and
//! the moment the first began, or the last ended, so that no interleaving doubles time. Cost: two reads of the clock
//! and two atomic operations a wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const COUNT_SHIFT: u32 = 48;
const SINCE: u64 = (1 << COUNT_SHIFT) - 1;

pub(crate) struct Pressure {
    start: Instant,
    /// Waits under way in the top bits; below, nanoseconds since the start (2^48: three days, then it wraps): when the
    /// first of them began, or when the last one ended, by which it is seen that some came and went.
    state: AtomicU64,
    some_ns: AtomicU64,
}

/// A wait; ends when dropped.
pub(crate) struct Stall<'a>(&'a Pressure);

impl Pressure {
    pub(crate) fn new() -> Pressure {
        Pressure { start: Instant::now(), state: AtomicU64::new(0), some_ns: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64 & SINCE
    }

    /// A thread waits from here on.
    pub(crate) fn stall(&self) -> Stall<'_> {
        // The clock is read after the word, so that a wait does not begin before the last one ended.
        let more = |state: u64| {
            let count = state >> COUNT_SHIFT;
            Some((count + 1) << COUNT_SHIFT | if count == 0 { self.now() } else { state & SINCE })
        };
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        Stall(self)
    }

    fn end(&self) {
        let mut waited = 0;
        let less = |state: u64| {
            let count = state >> COUNT_SHIFT;
            let now = self.now();
            waited = if count == 1 { now.wrapping_sub(state & SINCE) & SINCE } else { 0 };
            Some(if count == 1 { now } else { state - (1 << COUNT_SHIFT) })
        };
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.some_ns.fetch_add(waited, Ordering::Relaxed);
    }

    /// Whether a thread waits now.
    pub(crate) fn is_stalled(&self) -> bool {
        self.state.load(Ordering::Relaxed) >> COUNT_SHIFT != 0
    }

    /// Nanoseconds in which at least one thread waited, waits under way not included.
    pub(crate) fn some_ns(&self) -> u64 {
        self.some_ns.load(Ordering::Relaxed)
    }

    /// In a child after a fork none of the parent's waits are under way.
    pub(crate) fn forget_waits(&self) {
        self.state.store(0, Ordering::Relaxed);
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_at_the_same_time_count_once() {
        let pressure = Pressure::new();
        let before = pressure.start.elapsed();
        let first = pressure.stall();
        let second = pressure.stall();
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(first);
        assert!(pressure.is_stalled() && pressure.some_ns() == 0);
        drop(second);
        let most = (pressure.start.elapsed() - before).as_nanos() as u64;
        assert!(!pressure.is_stalled());
        assert!((20_000_000..=most).contains(&pressure.some_ns()), "{} of {most}", pressure.some_ns());
    }

    #[test]
    fn many_threads_never_wait_longer_than_the_time_that_passed() {
        let pressure = Pressure::new();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| drop(pressure.stall())));
            }
        });
        assert!(!pressure.is_stalled());
        assert!(pressure.some_ns() > 0 && pressure.some_ns() <= start.elapsed().as_nanos() as u64);
    }
}
