//! Sequences of faults, found out from their addresses: forwards, backwards, and with a stride.
//!
//! Two faults on neighbouring pages begin a sequence. So do three that are equally far apart to the byte (columns of a
//! matrix, fields of large records). The pager then brings in what follows ahead of the program. The window doubles
//! from 2 pages to [`MAX_WINDOW`] as long as the guess holds. Between two windows one page is left out: the fault on it
//! says that the program has come so far. Once a window is as large as it gets, the one after the next is asked for
//! too, for another thread to read ([`crate::read_ahead`]).
//!
//! A fault may lie inside a window that was asked for, because there was no room or it was not read yet. It continues
//! that window and begins no other sequence. [`STREAMS`] sequences are followed at once; the one that was quiet for
//! longest gives way.
//!
//! Pure: it knows addresses and decides nothing about memory.

use refault_store::PAGE_SIZE;

use crate::fault_scratch::BATCH;
use crate::region::Hint;

/// Pages of a window at most.
pub(crate) const MAX_WINDOW: u32 = BATCH as u32 - 1;

/// Pages that are read and mapped together at most: who waits for the first waits for the last.
const PIECE: u32 = 16;

/// Sequences that are followed at once.
const STREAMS: usize = 16;

/// Faults that are this far apart are unrelated, or are those that a sequence leaves out between its windows.
const FAR: usize = 64 * PAGE_SIZE;

/// Steps from an earlier run to a later one of the same sequence at most.
const PASSED: isize = 16 * BATCH as isize;

/// A sequence counts as under way if it was continued within this many faults.
const RECENT: u32 = 64;

/// Addresses that are equally far apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) address: usize,
    pub(crate) step: isize,
    pub(crate) count: u32,
}

impl Run {
    const NONE: Run = Run { address: 0, step: 0, count: 0 };

    /// From the `from`th address behind `address` on. Nothing, where that leaves the address space.
    fn behind(address: usize, step: isize, from: u32, count: u32) -> Run {
        let at = |index: u32| step.checked_mul(index as isize).and_then(|by| address.checked_add_signed(by));
        match (at(from), at(from + count)) {
            (Some(address), Some(_)) => Run { address, step, count },
            _ => Run::NONE,
        }
    }

    /// Whether this run goes on where an earlier one of the same sequence was: who asks for this one has passed that.
    pub(crate) fn supersedes(self, earlier: Run) -> bool {
        let distance = self.address.wrapping_sub(earlier.address) as isize;
        let step = self.step;
        step == earlier.step
            && step != 0
            && distance.checked_rem(step) == Some(0)
            && distance.checked_div(step).is_some_and(|steps| (1..=PASSED).contains(&steps))
    }

    /// Pages that are next to each other, a piece at a time in the run's order: the address of the lowest and how many.
    pub(crate) fn pieces(self) -> impl Iterator<Item = (usize, u32)> {
        let together = if self.step.unsigned_abs() == PAGE_SIZE { PIECE } else { 1 };
        (0..self.count).step_by(together as usize).map(move |first| {
            let pages = together.min(self.count - first);
            let lowest = if self.step < 0 { first + pages - 1 } else { first };
            (self.at(lowest) & !(PAGE_SIZE - 1), pages)
        })
    }

    /// The address of a number below `count`.
    pub(crate) fn at(&self, index: u32) -> usize {
        self.address.wrapping_add_signed(self.step * index as isize)
    }
}

/// What to bring in on a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// At once.
    pub(crate) now: Run,
    /// By another thread, while the program works on what is there.
    pub(crate) later: Run,
}

#[derive(Clone, Copy, Default)]
struct Stream {
    /// Where it was last continued.
    last: usize,
    /// From one fault to the next. Zero: there was one.
    step: isize,
    /// Pages behind `last` that were asked for.
    asked: u32,
    /// Pages of the last window. Zero: the step is a guess.
    window: u32,
    /// The window behind the next fault was asked for.
    ahead: bool,
    /// When it was last continued; zero: free.
    used: u32,
}

impl Stream {
    /// How many steps behind the last fault an address lies, if it is one that this sequence expects.
    fn position(&self, address: usize) -> Option<u32> {
        if self.used == 0 || self.step == 0 {
            return None;
        }
        let (at, from, step) = match self.step.unsigned_abs() == PAGE_SIZE {
            // Neighbouring pages: wherever in the page.
            true => (address / PAGE_SIZE, self.last / PAGE_SIZE, self.step.signum()),
            false => (address, self.last, self.step),
        };
        let distance = at.wrapping_sub(from) as isize;
        let steps = distance / step;
        let expected = distance % step == 0 && (1..=i64::from(self.asked) + 1).contains(&(steps as i64));
        expected.then_some(steps as u32)
    }
}

/// What follows the faults of one thread that serves them.
#[derive(Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u32,
}

impl Streams {
    /// What to bring in, now that there was a fault at `address`. `ahead`: there is a thread that reads ahead.
    pub(crate) fn follow(&mut self, address: usize, hint: Hint, ahead: bool) -> Plan {
        if hint == Hint::Random {
            return Plan::default();
        }
        self.clock = self.clock.wrapping_add(1).max(1);
        let clock = self.clock;
        let expecting = self.streams.iter_mut().find_map(|stream| stream.position(address).map(|at| (stream, at)));
        if let Some((stream, at)) = expecting {
            stream.used = clock;
            return if at <= stream.asked { late(stream, address, at) } else { go_on(stream, address, ahead) };
        }
        let page = address / PAGE_SIZE;
        let neighbour = |stream: &&mut Stream| {
            stream.used != 0 && stream.window == 0 && page.abs_diff(stream.last / PAGE_SIZE) == 1
        };
        if let Some(stream) = self.streams.iter_mut().find(neighbour) {
            let step = if address > stream.last { PAGE_SIZE as isize } else { -(PAGE_SIZE as isize) };
            *stream = Stream { step, used: clock, ..Stream::default() };
            return go_on(stream, address, ahead);
        }
        let near = |stream: &&Stream| {
            let distance = address.abs_diff(stream.last);
            stream.used != 0 && stream.window == 0 && (2 * PAGE_SIZE..FAR).contains(&distance)
        };
        let before = self.streams.iter().filter(near).max_by_key(|stream| stream.used);
        let step = before.map_or(0, |before| address.wrapping_sub(before.last) as isize);
        let mut begun = Stream { last: address, step, used: clock, ..Stream::default() };
        let mut plan = Plan::default();
        if hint != Hint::Normal {
            (begun.step, begun.window, begun.asked) = (PAGE_SIZE as isize, MAX_WINDOW, MAX_WINDOW);
            plan.now = Run::behind(address, begun.step, 1, MAX_WINDOW);
        }
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used).expect("invariant: there are streams");
        *oldest = begun;
        plan
    }

    /// Pages that may have been read ahead and wait for the program.
    pub(crate) fn pages_ahead(&self) -> u32 {
        let recent = |stream: &&Stream| stream.ahead && self.clock.wrapping_sub(stream.used) < RECENT;
        self.streams.iter().filter(recent).count() as u32 * 2 * MAX_WINDOW
    }
}

/// The program has come to the page behind the window.
fn go_on(stream: &mut Stream, address: usize, ahead: bool) -> Plan {
    let window = (stream.window * 2).clamp(2, MAX_WINDOW);
    let mut plan = Plan::default();
    if !stream.ahead {
        plan.now = Run::behind(address, stream.step, 1, window);
    }
    stream.ahead = ahead && window == MAX_WINDOW;
    if stream.ahead {
        plan.later = Run::behind(address, stream.step, MAX_WINDOW + 2, MAX_WINDOW);
    }
    (stream.last, stream.asked, stream.window) = (address, window, window);
    plan
}

/// The program has come to a page of the window that is not there: the rest of it may be missing too.
fn late(stream: &mut Stream, address: usize, at: u32) -> Plan {
    stream.asked -= at;
    stream.last = address;
    Plan { now: Run::behind(address, stream.step, 1, stream.asked), later: Run::NONE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const PAGE: isize = PAGE_SIZE as isize;

    /// Touches addresses in order; what is brought in is there from then on. Returns the faults and the pages that were
    /// brought in.
    fn touch(addresses: impl IntoIterator<Item = usize>, hint: Hint, ahead: bool) -> (usize, HashSet<usize>) {
        let (mut streams, mut there, mut brought, mut faults) = (Streams::default(), HashSet::new(), HashSet::new(), 0);
        for address in addresses {
            if !there.insert(address / PAGE_SIZE) {
                continue;
            }
            faults += 1;
            let plan = streams.follow(address, hint, ahead);
            for run in [plan.now, plan.later] {
                brought.extend((0..run.count).map(|index| run.at(index) / PAGE_SIZE));
            }
            there.extend(&brought);
        }
        (faults, brought)
    }

    fn line(start: usize, step: isize, count: usize) -> impl Iterator<Item = usize> {
        (0..count as isize).map(move |index| start.wrapping_add_signed(step * index))
    }

    #[test]
    fn sequences_in_any_direction_and_stride_cost_a_fault_a_window() {
        let start = 1 << 40;
        for step in [PAGE, -PAGE, 26_624, -26_624, 3 * PAGE, 40 * PAGE + 8] {
            for ahead in [false, true] {
                let (faults, brought) = touch(line(start, step, 64 * 100), Hint::Normal, ahead);
                assert!((100..=110).contains(&faults), "{step} {ahead}: {faults}");
                // What was brought in and not used: two windows at most.
                let used: HashSet<usize> = line(start, step, 64 * 100).map(|address| address / PAGE_SIZE).collect();
                let wasted = brought.difference(&used).count();
                assert!(wasted <= 2 * MAX_WINDOW as usize + 1, "{step} {ahead}: {wasted}");
            }
        }
        // Byte by byte it is the pages that count.
        let (faults, _) = touch(line(start + 100, 1000, 64 * 400), Hint::Normal, true);
        assert!(faults <= 110, "{faults}");
    }

    #[test]
    fn a_later_run_of_a_sequence_supersedes_an_earlier_one_and_no_other() {
        let run = |address: usize, step| Run { address, step, count: MAX_WINDOW };
        let here = 1usize << 40;
        for step in [PAGE, -PAGE, 26_624] {
            let later = here.wrapping_add_signed(step * 64);
            assert!(run(later, step).supersedes(run(here, step)));
            assert!(!run(here, step).supersedes(run(later, step)) && !run(here, step).supersedes(run(here, step)));
            assert!(!run(later, -step).supersedes(run(here, step)));
            assert!(!run(later.wrapping_add_signed(8), step).supersedes(run(here, step)));
            assert!(!run(here.wrapping_add_signed(step * 5000), step).supersedes(run(here, step)));
        }
        assert!(!run(usize::MAX, -1).supersedes(run(0, 0)) && !run(0, -1).supersedes(run(1 << 63, -1)));
    }

    #[test]
    fn what_a_sequence_leaves_out_between_its_windows_is_no_sequence() {
        let left_out = line(1 << 40, (i64::from(MAX_WINDOW) + 1) as isize * PAGE, 20);
        let (faults, brought) = touch(left_out, Hint::Normal, true);
        assert_eq!((faults, brought.len()), (20, 0));
    }

    #[test]
    fn sequences_side_by_side_are_told_apart() {
        let starts = [1usize << 40, (1 << 40) + 10 * PAGE_SIZE, 1 << 41, 1 << 42];
        let steps = [PAGE, -PAGE, 6 * PAGE + 512, 12 * PAGE];
        let mixed = (0..3200isize)
            .flat_map(|index| (0..4).map(move |which| starts[which].wrapping_add_signed(steps[which] * index)));
        let (faults, _) = touch(mixed, Hint::Normal, true);
        assert!(faults <= 4 * 60, "{faults}");
    }

    #[test]
    fn nothing_comes_along_with_accesses_in_no_order() {
        let mut random = refault_testing::Random::new(7);
        let mut addresses = || (1 << 40) + random.index(1 << 30);
        let (faults, brought) = touch(std::iter::repeat_with(&mut addresses).take(50_000), Hint::Normal, true);
        assert!(faults > 40_000 && brought.len() < faults / 200, "{faults} {}", brought.len());
        let (_, brought) = touch(line(1 << 40, PAGE, 1000), Hint::Random, true);
        assert!(brought.is_empty());
    }

    #[test]
    fn what_was_asked_for_and_is_not_there_goes_on_with_its_window() {
        let mut streams = Streams::default();
        // Nothing that is asked for ever comes.
        for index in 0..1000 {
            let plan = streams.follow((1 << 40) + index * PAGE_SIZE, Hint::Normal, true);
            assert!(index < 1 || plan.now.count > 0 || plan.later.count > 0 || streams.streams[0].asked == 0);
        }
        assert_eq!(streams.streams.iter().filter(|stream| stream.used != 0).count(), 1);
        assert_eq!(streams.pages_ahead(), 2 * MAX_WINDOW);
    }

    #[test]
    fn a_hint_brings_in_successors_at_once() {
        for hint in [Hint::Sequential, Hint::Cyclic] {
            let plan = Streams::default().follow(1 << 40, hint, true);
            assert_eq!(plan.now, Run { address: (1 << 40) + PAGE_SIZE, step: PAGE, count: MAX_WINDOW });
        }
        assert_eq!(Streams::default().follow(1 << 40, Hint::Normal, true), Plan::default());
    }

    proptest! {
        /// Whatever the faults, no more is asked for than two windows each, and nothing overflows.
        #[test]
        fn windows_are_bounded(addresses in proptest::collection::vec(any::<usize>(), 1..200), near: bool) {
            let mut streams = Streams::default();
            for address in addresses {
                let address = if near { usize::MAX - address % (20 * PAGE_SIZE) } else { address };
                let plan = streams.follow(address, Hint::Normal, true);
                for run in [plan.now, plan.later] {
                    prop_assert!(run.count <= MAX_WINDOW);
                    if run.count > 0 {
                        prop_assert_eq!(run.at(run.count - 1).abs_diff(run.address), run.step.unsigned_abs() * (run.count as usize - 1));
                    }
                }
            }
        }
    }
}
