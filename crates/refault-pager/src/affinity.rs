//! Keeps the only handler on the processor of the thread that faults.
//!
//! Where they are on different processors, each wakes the other's processor for every fault: 60 µs in place of 13 on a
//! virtual machine whose idle processors halt. The scheduler moves a thread that is woken to a processor that is idle,
//! and finds one as long as both wait for each other. So the handler looks where the thread is as soon as a few faults
//! come late, and follows it there. Once both are on one processor, that one is busy and the scheduler leaves them
//! alone.
//!
//! Several threads that fault by turns are not followed. A program that works for long between its faults looks the
//! same as one that waits: there the handler looks less and less often. Cost: a look is some microseconds, a move some
//! ten.

use std::time::{Duration, Instant};

use crate::proc_stat::processor_of;

/// From one fault served to the next: with both on one processor it takes some 5 µs.
const LATE: Duration = Duration::from_micros(20);

/// Late faults of one thread before the handler looks where it is: at first, and at most.
const LOOK_AFTER: u32 = 4;
const MAX_LOOK_AFTER: u32 = 256;

/// When to look.
struct Lateness {
    late: u32,
    look_after: u32,
}

impl Lateness {
    const NONE: Lateness = Lateness { late: 0, look_after: LOOK_AFTER };

    /// Whether to look, now that a fault came `gap` after the one before.
    fn is_due(&mut self, gap: Duration) -> bool {
        self.late += u32::from(gap > LATE);
        self.late >= self.look_after
    }

    /// The handler has looked, and the thread was where it was thought to be, or not.
    fn looked(&mut self, had_moved: bool) {
        self.late = 0;
        self.look_after = if had_moved { LOOK_AFTER } else { (2 * self.look_after).min(MAX_LOOK_AFTER) };
    }
}

/// Where a handler is, and when it was done last.
pub(crate) struct HandlerAffinity {
    enabled: bool,
    thread: u32,
    processor: usize,
    served: Option<Instant>,
    lateness: Lateness,
}

impl HandlerAffinity {
    /// `alone`: there is no other handler; otherwise nothing is done.
    pub(crate) fn new(alone: bool) -> HandlerAffinity {
        HandlerAffinity { enabled: alone, thread: 0, processor: usize::MAX, served: None, lateness: Lateness::NONE }
    }

    /// A fault of a thread was served, which the handler began with at `began`.
    pub(crate) fn saw(&mut self, thread: u32, began: Instant) {
        if !self.enabled || thread == 0 {
            return;
        }
        if thread != self.thread {
            (self.thread, self.lateness) = (thread, Lateness::NONE);
        } else if let Some(served) = self.served
            && self.lateness.is_due(began.saturating_duration_since(served))
        {
            let moved = self.follow();
            self.lateness.looked(moved);
        }
        self.served = Some(Instant::now());
    }

    /// Goes to the thread's processor. False if the handler is there, or cannot go or look.
    fn follow(&mut self) -> bool {
        let Some(processor) = processor_of(self.thread).filter(|processor| *processor != self.processor) else {
            return false;
        };
        let mut set = rustix::thread::CpuSet::new();
        set.set(processor);
        let moved = rustix::thread::sched_setaffinity(None, &set).is_ok();
        if moved {
            self.processor = processor;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults with such a gap until the handler looks.
    fn until_due(lateness: &mut Lateness, gap: Duration) -> Option<u32> {
        (1..10_000).find(|_| lateness.is_due(gap))
    }

    #[test]
    fn late_faults_are_looked_into_and_prompt_ones_are_not() {
        let mut lateness = Lateness::NONE;
        assert_eq!(until_due(&mut lateness, LATE), None);
        for _ in 0..5 {
            assert_eq!(until_due(&mut lateness, 2 * LATE), Some(LOOK_AFTER));
            lateness.looked(true);
        }
    }

    #[test]
    fn a_program_that_works_between_its_faults_is_looked_at_less_and_less_often() {
        let mut lateness = Lateness::NONE;
        let looks: Vec<u32> = std::iter::from_fn(|| {
            let after = until_due(&mut lateness, 10 * LATE);
            lateness.looked(false);
            after
        })
        .take(8)
        .collect();
        assert_eq!(looks, [4, 8, 16, 32, 64, 128, 256, 256]);
        lateness.looked(true);
        assert_eq!(until_due(&mut lateness, 10 * LATE), Some(LOOK_AFTER));
    }
}
