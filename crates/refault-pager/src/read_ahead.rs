//! Bringing in ahead of the program: by the thread that serves the fault, and by one that reads while the program
//! works.
//!
//! The reader, a thread of its own, reads the window after the next of a sequence of faults that has held for some
//! windows ([`crate::streams`]). So one processor decompresses what the program is about to need, and makes room for
//! it, while the program works on another. Where the reader is late, the program may fault on a page that is on its
//! way, and is woken with it. Or it faults on one that no thread has begun with. Then the thread that serves the fault
//! goes on from there; the reader finds those pages owned and passes over them.
//!
//! Pages come in by pieces ([`Run::pieces`]), so that a thread that waits for the first need not wait for the last. The
//! thread that serves a fault brings successors in as far as the budget has room. The reader evicts for them, because a
//! sequence of more than a hundred pages asked for what it reads.
//!
//! Invariants: what is asked for is a guess and may be forgotten. Fresh pages come in only at addresses that are taken.
//! The list has a fixed length, nothing is allocated.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use refault_core::PageId;
use refault_store::PAGE_SIZE;
use rustix::thread::futex;

use crate::accessed::AccessSource;
use crate::fault_scratch::FaultScratch;
use crate::options::FaultMode;
use crate::pager::{DIRECT_GOAL, Inner};
use crate::state::State;
use crate::streams::{MAX_WINDOW, Run, Streams};

/// Runs that wait to be read at most. A program that asks for more outruns the reader, and is served by its faults.
const WAITING: usize = 16;

/// One page in this many of the budget may have been read ahead, before another window is begun.
const PART: u64 = 16;

/// The sequences, and what the reader is to read.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// One for all threads that serve faults: those of one program's thread come to any of them.
    streams: Mutex<Streams>,
    asked: Mutex<Asked>,
    /// Futex: 1 while something was asked for.
    signal: AtomicU32,
    /// Pages that were read ahead and wait for the program, by the sequences under way.
    pages: AtomicU32,
}

#[derive(Default)]
struct Asked {
    runs: [Run; WAITING],
    /// The oldest is at `first`.
    first: usize,
    count: usize,
}

impl ReadAhead {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().expect("invariant: nothing panics under this lock")
    }

    /// Has a run read, unless too much waits already. One of the same sequence that still waits is not read any more:
    /// the program has passed it, and its pages may be gone again.
    fn ask(&self, run: Run) {
        {
            let mut asked = self.asked();
            let (first, count) = (asked.first, asked.count);
            if let Some(at) = (0..count).map(|at| (first + at) % WAITING).find(|at| run.supersedes(asked.runs[*at])) {
                asked.runs[at] = run;
                return;
            }
            if asked.count == WAITING {
                return;
            }
            let at = (asked.first + asked.count) % WAITING;
            asked.runs[at] = run;
            asked.count += 1;
        }
        self.wake();
    }

    fn take(&self) -> Option<Run> {
        let mut asked = self.asked();
        if asked.count == 0 {
            return None;
        }
        let run = asked.runs[asked.first];
        asked.first = (asked.first + 1) % WAITING;
        asked.count -= 1;
        Some(run)
    }

    /// Lets the reader look.
    pub(crate) fn wake(&self) {
        if self.signal.swap(1, Ordering::SeqCst) == 0 {
            let _ = futex::wake(&self.signal, futex::Flags::PRIVATE, 1);
        }
    }

    /// Forgets what was asked for: in a child after a fork.
    pub(crate) fn forget(&self) {
        while self.take().is_some() {}
        self.signal.store(0, Ordering::SeqCst);
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().expect("invariant: nothing panics under this lock")
    }

    /// Pages that were read ahead and wait for the program.
    pub(crate) fn pages(&self) -> u32 {
        self.pages.load(Ordering::Relaxed)
    }
}

/// What is done when there is no room for what comes in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NoRoom {
    Stop,
    Evict,
}

impl Inner {
    /// Whether there is a thread that reads ahead.
    pub(crate) fn reads_ahead(&self) -> bool {
        self.options.bring_successors
            && matches!(self.options.fault_mode, FaultMode::Handler { .. })
            && self.options.access_source != AccessSource::Exact
    }

    /// Whether another window may be read ahead, where `pages` pages are under way: not in a small budget.
    fn may_read_ahead(&self, pages: u32) -> bool {
        let most = self.budget.tightest().0.maximum_pages() / PART;
        self.reads_ahead() && u64::from(pages.max(2 * MAX_WINDOW)) <= most
    }

    /// Brings in what follows a fault at an address inside a page, if that goes on with a sequence.
    pub(crate) fn bring_what_follows(&self, page: PageId, address: usize, worker: &mut FaultScratch) {
        let hint = self.ranges.hint(page);
        let plan = {
            let mut streams = self.read_ahead.streams();
            let ahead = self.may_read_ahead(streams.pages_ahead());
            let plan = streams.follow(address, hint, ahead);
            self.read_ahead.pages.store(streams.pages_ahead(), Ordering::Relaxed);
            plan
        };
        // First, so that both work at the same time.
        if plan.later.count > 0 {
            self.read_ahead.ask(plan.later);
        }
        for (address, pages) in plan.now.pieces() {
            if !self.bring_piece(address, pages, NoRoom::Stop, worker) {
                return;
            }
        }
    }

    /// Reads what is asked for until the pager stops.
    pub(crate) fn keep_reading(self: &Arc<Self>, mut worker: FaultScratch) {
        while !self.stopping.load(Ordering::SeqCst) {
            // Taken inside the gate, so that no thread holds the list's lock while a process forks.
            let gate = self.enter();
            let run = self.read_ahead.take();
            drop(gate);
            match run {
                Some(run) => self.read_asked(&run, &mut worker),
                None => {
                    self.read_ahead.signal.store(0, Ordering::SeqCst);
                    // A thread that asked between the look and the store is seen here; later ones find the signal down.
                    let gate = self.enter();
                    let nothing = self.read_ahead.asked().count == 0;
                    drop(gate);
                    if nothing && !self.stopping.load(Ordering::SeqCst) {
                        let _ = futex::wait(&self.read_ahead.signal, futex::Flags::PRIVATE, 0, None);
                    }
                }
            }
        }
    }

    fn read_asked(&self, run: &Run, worker: &mut FaultScratch) {
        for (address, pages) in run.pieces() {
            let _gate = self.enter();
            let more = !self.stopping.load(Ordering::SeqCst) && self.bring_piece(address, pages, NoRoom::Evict, worker);
            if !more {
                return;
            }
        }
    }

    /// Brings in what is missing of some neighbours. False if there was no room.
    fn bring_piece(&self, address: usize, pages: u32, no_room: NoRoom, worker: &mut FaultScratch) -> bool {
        // A run may leave the arena at either end.
        let (Some(mut page), Some(last)) =
            (self.arena.page_at(address), self.arena.page_at(address + (pages as usize - 1) * PAGE_SIZE))
        else {
            return true;
        };
        while page <= last {
            // Fresh pages need no reading, so nothing is evicted for them.
            let comes = match self.word(page).load().state() {
                State::Stored => true,
                State::Fresh => no_room == NoRoom::Stop,
                _ => false,
            };
            if !comes {
                page += 1;
                continue;
            }
            if self.budget.tightest().1 <= 1 && (no_room == NoRoom::Stop || self.make_room(worker) == 0) {
                return false;
            }
            let (count, copies) = self.wanted_copies(page, last + 1 - page);
            let filled = self.fill_following(page, count, copies, worker);
            self.note_copies(page, filled, copies);
            if no_room == NoRoom::Evict {
                self.counts.read_ahead.fetch_add(u64::from(filled), Ordering::Relaxed);
            }
            page += filled.max(1);
        }
        true
    }

    fn make_room(&self, worker: &mut FaultScratch) -> u64 {
        self.count_stored();
        let budget = self.budget.tightest().0;
        budget.victim().map_or(0, |victim| victim.reclaim(DIRECT_GOAL, worker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_the_program_has_passed_is_not_read_any_more() {
        let read_ahead = ReadAhead::default();
        let run = |page: usize| Run { address: page * PAGE_SIZE, step: PAGE_SIZE as isize, count: MAX_WINDOW };
        for page in [64, 1 << 20, 128, 192, (1 << 20) + 64] {
            read_ahead.ask(run(page));
        }
        let taken: Vec<Run> = std::iter::from_fn(|| read_ahead.take()).collect();
        assert_eq!(taken, [run(192), run((1 << 20) + 64)]);
        (0..2 * WAITING).for_each(|number| read_ahead.ask(run(number << 20)));
        assert_eq!(std::iter::from_fn(|| read_ahead.take()).count(), WAITING);
    }
}
