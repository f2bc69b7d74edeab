//! `--memory-control FILE`: the budget while the program runs, as a small file that holds its bytes.
//!
//! What is no number is ignored: somebody may be writing. So is what is too little. A process makes room when it enters
//! the kernel or faults; one that does neither is asked to by a signal that it does not see ([`MAKE_ROOM`]), in a thread
//! that is running, so that no call is disturbed.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use refault_pager::Budget;
use refault_paging::Shared;
use refault_paging::account::MAKE_ROOM;

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

    /// Takes the budget over if it has changed.
    pub(super) fn look(&mut self, shared: &Shared) {
        if self.looked.elapsed() < EVERY {
            return;
        }
        self.looked = Instant::now();
        let wanted = std::fs::read_to_string(self.path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        if let Some(bytes) = wanted.filter(|bytes| *bytes >= Budget::LEAST_OF_A_PROGRAM)
            && self.last.replace(bytes) != Some(bytes)
        {
            shared.set_limit(bytes);
        }
        if shared.is_over() {
            let processes = shared.living().map(|(slot, _)| slot.process.load(Ordering::Relaxed));
            processes.for_each(ask_for_room);
        }
    }
}

/// Asks a thread of a process that runs at this moment, if there is one.
fn ask_for_room(process: i32) {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return };
    let running = tasks.flatten().find(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
    });
    if let Some(thread) = running.and_then(|task| task.file_name().to_str()?.parse().ok()) {
        super::child::queue(process, thread, libc::SIGSYS, MAKE_ROOM);
    }
}
