//! `--memory-control FILE`: the budget while the program runs, as a small file that holds its bytes.
//!
//! A value that is no number is ignored, because it may be half written, and so is one below the minimum. A process
//! makes room when it enters the kernel or faults; one that does neither is asked to ([`super::ask`]).

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use refault_paging::MIN_PROGRAM_BYTES;
use refault_paging::Shared;

/// Looks at the file.
pub(super) const EVERY: Duration = Duration::from_millis(100);

pub(super) struct Control<'a> {
    path: &'a Path,
    last: Option<u64>,
    looked: Instant,
}

impl<'a> Control<'a> {
    pub(super) fn new(path: &'a Path) -> Control<'a> {
        Control { path, last: None, looked: Instant::now() }
    }

    /// A budget that has been written since the last call.
    pub(super) fn wanted(&mut self) -> Option<u64> {
        let wanted = std::fs::read_to_string(self.path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        wanted.filter(|bytes| *bytes >= MIN_PROGRAM_BYTES && self.last.replace(*bytes) != Some(*bytes))
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.looked.elapsed() >= EVERY;
        if is_due {
            self.looked = Instant::now();
        }
        is_due
    }

    /// Applies a changed budget.
    pub(super) fn look(&mut self, shared: &Shared) {
        if !self.is_due() {
            return;
        }
        if let Some(bytes) = self.wanted() {
            shared.set_limit(bytes);
        }
        make_room(shared);
    }
}

/// Asks the processes of a tree that uses more than it may to make room.
pub(super) fn make_room(shared: &Shared) {
    if shared.is_over() {
        let processes = shared.living().map(|(slot, _)| slot.process.load(Ordering::Relaxed));
        processes.for_each(|process| super::ask::for_room(shared, process));
    }
}
