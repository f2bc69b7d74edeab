//! Dropping page-table entries of many pages with few TLB shoot-downs.
//!
//! Entries of pages that were filled or written are dirty, and the kernel flushes the TLB of every processor for each range
//! of dirty entries that is dropped: some 3 µs a range, however short, and 0.2 µs a page. So [`crate::accessed`] makes few
//! ranges of many entries.
//!
//! `process_madvise` on the calling process takes a list of ranges (Linux 6.13 for `MADV_DONTNEED`); where it does not, each
//! range is a call of its own. Which of the two works is found out by the first use.

use std::sync::atomic::{AtomicBool, Ordering};

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::engine::for_runs;
use crate::turn::Turn;

/// Ranges in one call: no more, because others that change entries wait for it.
const RANGES: usize = 32;

/// Runs that are collected at most. Nothing is allocated after construction.
const COLLECTED: usize = 1 << 14;

/// The process itself, where a descriptor of a process is wanted (`PIDFD_SELF_THREAD_GROUP`); in the child of a fork it means
/// the child.
const SELF: libc::c_int = -10_001;

static ONE_BY_ONE: AtomicBool = AtomicBool::new(false);

/// A range of addresses, as the kernel takes it (`struct iovec`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Range {
    start: usize,
    len: usize,
}

/// Runs of pages whose entries are to be dropped: first page and the page after the last. A run is at most 2 MiB: it is dropped
/// under one flush, and while others wait.
pub(crate) struct Drops {
    pub(crate) runs: Vec<(PageId, PageId)>,
}

impl Drops {
    pub(crate) fn new() -> Drops {
        Drops { runs: Vec::with_capacity(COLLECTED) }
    }

    /// No list, to be left in the place of one that is in use. Takes no run.
    pub(crate) fn none() -> Drops {
        Drops { runs: Vec::new() }
    }

    /// Adds a run. False if there is no room.
    pub(crate) fn add(&mut self, first: PageId, end: PageId) -> bool {
        if self.runs.len() == self.runs.capacity() {
            return false;
        }
        self.runs.push((first, end));
        true
    }

    /// Drops the entries of all runs, in an arena at `base`.
    ///
    /// # Safety
    /// The runs lie in a shared mapping, where dropping entries changes no contents.
    pub(crate) unsafe fn drop_entries(&self, base: usize) {
        for runs in self.runs.chunks(RANGES) {
            let mut ranges = [Range::default(); RANGES];
            for (range, (first, end)) in ranges.iter_mut().zip(runs) {
                let start = base + *first as usize * PAGE_SIZE;
                *range = Range { start, len: (end - first) as usize * PAGE_SIZE };
            }
            // SAFETY: promised by the caller.
            unsafe { drop_ranges(&Turn::take(), &ranges[..runs.len()]) };
        }
    }
}

/// Drops the entries of pages (sorted) in an arena at `base`, and no others.
///
/// # Safety
/// The pages lie in a shared mapping, where dropping entries changes no contents.
pub(crate) unsafe fn drop_pages(base: usize, pages: &[PageId]) {
    for pages in pages.chunks(RANGES) {
        let (mut ranges, mut count) = ([Range::default(); RANGES], 0);
        for_runs(pages, |first, pages| {
            ranges[count] = Range { start: base + first as usize * PAGE_SIZE, len: pages as usize * PAGE_SIZE };
            count += 1;
        });
        // SAFETY: promised by the caller.
        unsafe { drop_ranges(&Turn::take(), &ranges[..count]) };
    }
}

/// # Safety
/// The ranges lie in shared mappings.
unsafe fn drop_ranges(_turn: &Turn, ranges: &[Range]) {
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
