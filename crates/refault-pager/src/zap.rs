//! Dropping page-table entries of many pages with few TLB shoot-downs.
//!
//! Entries of pages that were filled or written are dirty. For each range of dirty entries that is dropped, the kernel
//! flushes the TLB of every processor. That takes some 3 µs per range, however short, and 0.2 µs per page. So
//! [`crate::accessed`] makes few ranges of many entries.
//!
//! `process_madvise` on the calling process takes a list of ranges (Linux 6.13 for `MADV_DONTNEED`); where it does not,
//! each range is a call of its own. Which of the two works is found out by the first use.

use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::engine::Engine;
use crate::pte_lock::PteLock;

/// Ranges in one call: no more, because others that change entries wait for it.
const RANGES: usize = 16;

/// Runs that are collected at most. Nothing is allocated after construction.
const COLLECTED: usize = 1 << 14;

/// The process itself, where a descriptor of a process is wanted (`PIDFD_SELF_THREAD_GROUP`); in the child of a fork it
/// means the child.
const SELF: libc::c_int = -10_001;

static ONE_BY_ONE: AtomicBool = AtomicBool::new(false);

/// A range of addresses, as the kernel takes it (`struct iovec`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Range {
    start: usize,
    len: usize,
}

/// Pages whose entries are to be dropped: the first and the one after the last. At most 2 MiB: it is dropped under one
/// flush, and while others wait.
pub(crate) type Run = (PageId, PageId);

/// Adds a run to a list that must not grow. False if there is no room.
pub(crate) fn add_run(runs: &mut Vec<Run>, run: Run) -> bool {
    let room = runs.len() < runs.capacity();
    if room {
        runs.push(run);
    }
    room
}

/// The runs of one arena that wait to be dropped. Dropping all that a walk has found takes longer than a reserve of
/// free pages lasts, so it is done in steps.
pub(crate) struct Zapper(Mutex<Vec<Run>>);

/// A few of them: one call.
pub(crate) struct Step {
    runs: [Run; RANGES],
    count: usize,
}

impl Zapper {
    pub(crate) fn new() -> Zapper {
        Zapper(Mutex::new(Vec::with_capacity(COLLECTED)))
    }

    /// Has the engine collect runs, unless earlier ones are left. True if there are some now.
    pub(crate) fn collect(&self, engine: &mut Engine) -> bool {
        let mut runs = self.0.lock().expect("invariant: nothing panics under this lock");
        if runs.is_empty() {
            engine.collect_drops(&mut runs);
        }
        !runs.is_empty()
    }

    /// Takes a few runs off the list.
    pub(crate) fn step(&self) -> Option<Step> {
        let mut runs = self.0.lock().expect("invariant: nothing panics under this lock");
        let mut step = Step { runs: [(0, 0); RANGES], count: 0 };
        while step.count < RANGES
            && let Some(run) = runs.pop()
        {
            step.runs[step.count] = run;
            step.count += 1;
        }
        (step.count > 0).then_some(step)
    }
}

impl Deref for Step {
    type Target = [Run];

    fn deref(&self) -> &[Run] {
        &self.runs[..self.count]
    }
}

impl Step {
    /// Drops the entries, in an arena at `base`.
    ///
    /// # Safety
    /// The runs lie in a shared mapping, where dropping entries changes no contents.
    pub(crate) unsafe fn drop_entries(&self, base: usize) {
        let mut ranges = [Range::default(); RANGES];
        for (range, (first, end)) in ranges.iter_mut().zip(self.iter()) {
            let start = base + *first as usize * PAGE_SIZE;
            *range = Range { start, len: (end - first) as usize * PAGE_SIZE };
        }
        // SAFETY: promised by the caller.
        unsafe { drop_ranges(&PteLock::lock(), &ranges[..self.len()]) };
    }
}

/// # Safety
/// The ranges lie in shared mappings.
unsafe fn drop_ranges(_turn: &PteLock, ranges: &[Range]) {
    let mut done = 0;
    while done < ranges.len() && !ONE_BY_ONE.load(Ordering::Relaxed) {
        let rest = &ranges[done..];
        // SAFETY: the list is a live array of iovecs; what it names may be dropped (promised by the caller).
        let dropped = unsafe {
            libc::syscall(libc::SYS_process_madvise, SELF, rest.as_ptr(), rest.len(), libc::MADV_DONTNEED, 0)
        };
        if dropped <= 0 {
            ONE_BY_ONE.store(true, Ordering::Relaxed);
            break;
        }
        // It may stop in the middle, always between ranges.
        let mut bytes = dropped as usize;
        while done < ranges.len() && bytes >= ranges[done].len {
            bytes -= ranges[done].len;
            done += 1;
        }
    }
    for range in &ranges[done..] {
        // Not by libc's name: in a program with an agent that is the agent's, which gives contents up.
        // SAFETY: promised by the caller.
        unsafe { libc::syscall(libc::SYS_madvise, range.start, range.len, libc::MADV_DONTNEED) };
    }
}
