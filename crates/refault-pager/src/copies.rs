//! Copies that pages keep in the compressed pool while they pass through memory.
//!
//! A page that comes back from the pool gives up its compressed copy, or each page would take its space twice. But a
//! sequence of faults may bring in a page that is only read, and soon evicted again. That page need not be compressed a
//! second time if it keeps the copy meanwhile. It is write-protected then, so that the first write is seen, and gives
//! the copy up.
//!
//! Whether that pays is found out while running. One page in [`PROBE_EVERY`] that sequences bring in keeps its copy as
//! a probe. A page that goes unwritten while it still has its copy counts for keeping; one that is written counts
//! against it, as the fault costs more than compressing, and so does one whose copy grows old. Where enough has counted
//! for it, all pages that sequences bring in keep their copies. Pages in a range of [`RANGE`] in which one was written
//! do not.
//!
//! Invariants: at most a [`PART`]th of the budget's pages have a copy. That holds because a copy is given up when that
//! number of pages has come in after its own. Nothing is allocated after construction. Cost: a lock per piece that
//! comes in, and per page as long as any has a copy; a bit per range.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use refault_core::PageId;
use refault_store::{PAGE_SIZE, Slot, Tier};

use crate::accessed::AccessSource;
use crate::engine::for_runs;
use crate::options::FaultMode;
use crate::pager::Inner;
use crate::pte_lock::PteLock;
use crate::state::State;

/// Pages that come in to one that keeps its copy as a probe.
const PROBE_EVERY: u32 = 64;
/// The same in ranges where one was written.
const PROBE_WRITTEN_EVERY: u32 = 1024;

/// Pages of a range.
const RANGE: u32 = 512;

/// One page in this many may have a copy.
const PART: u64 = 8;
/// And no more than that.
const MAX_KEPT: usize = 8192;

/// What counts for keeping copies and against it, from which sum on they are kept, and the largest sum: a round of
/// eviction that comes late, so that some hundred copies grow old, does not end it.
const CLEAN: i32 = 2;
const WRITTEN: i32 = -12;
const OLD: i32 = -1;
const WORTH_IT: i32 = 16;
const MAX_WORTH: i32 = 512;

/// Copies that are given up in one go at most.
const TOGETHER: usize = 32;

pub(crate) struct Copies {
    worth: AtomicI32,
    since_probe: AtomicU32,
    /// Pages that came in, by sequences or by themselves.
    clock: AtomicU32,
    /// A page may have a copy that grows old.
    some_kept: AtomicBool,
    /// A bit per range: a page of it that had kept its copy was written.
    written: Vec<AtomicU64>,
    kept: Mutex<Kept>,
}

struct Kept {
    /// Pages that came in with their copy, and when.
    pages: VecDeque<(PageId, u32)>,
}

impl Copies {
    pub(crate) fn new(pages: u32) -> Copies {
        let mut written = Vec::new();
        written.resize_with(pages.div_ceil(RANGE * u64::BITS) as usize, || AtomicU64::new(0));
        Copies {
            worth: AtomicI32::new(0),
            since_probe: AtomicU32::new(0),
            clock: AtomicU32::new(0),
            some_kept: AtomicBool::new(false),
            written,
            kept: Mutex::new(Kept { pages: VecDeque::with_capacity(MAX_KEPT + TOGETHER) }),
        }
    }

    fn mark(&self, page: PageId) -> (&AtomicU64, u64) {
        let range = page / RANGE;
        (&self.written[(range / u64::BITS) as usize], 1 << (range % u64::BITS))
    }

    fn count(&self, score: i32) {
        let counted = |worth: i32| Some((worth + score).clamp(0, MAX_WORTH));
        let _ = self.worth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
    }

    /// How many of `count` pages from `page` on are to come in now, and whether they keep their copies.
    fn wanted(&self, page: PageId, count: u32) -> (u32, bool) {
        let (word, bit) = self.mark(page);
        let was_written = word.load(Ordering::Relaxed) & bit != 0;
        let every = if was_written { PROBE_WRITTEN_EVERY } else { PROBE_EVERY };
        if !was_written && self.worth.load(Ordering::Relaxed) >= WORTH_IT {
            return (count, true);
        }
        if self.since_probe.fetch_add(count, Ordering::Relaxed) + count < every {
            return (count, false);
        }
        self.since_probe.store(0, Ordering::Relaxed);
        (1, true)
    }

    /// A page left memory unwritten, with its copy.
    pub(crate) fn left_clean(&self, page: PageId) {
        let (word, bit) = self.mark(page);
        if word.load(Ordering::Relaxed) & bit != 0 {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        self.count(CLEAN);
    }

    /// A page that had kept its copy was written.
    pub(crate) fn was_written(&self, page: PageId) {
        let (word, bit) = self.mark(page);
        word.fetch_or(bit, Ordering::Relaxed);
        self.count(WRITTEN);
    }

    /// Notes pages that came in, and takes pages off the list whose copies are old, that is, older than `limit` pages.
    fn came_in(&self, first: PageId, count: u32, keep: bool, limit: u32, old: &mut [PageId; TOGETHER]) -> usize {
        let clock = self.clock.fetch_add(count, Ordering::Relaxed).wrapping_add(count);
        if !keep && !self.some_kept.load(Ordering::Relaxed) {
            return 0;
        }
        let mut kept = self.kept.lock().expect("invariant: nothing panics under this lock");
        if keep {
            kept.pages.extend((first..first + count).map(|page| (page, clock)));
        }
        let mut taken = 0;
        while taken < TOGETHER
            && let Some((page, since)) = kept.pages.front().copied()
            // Another thread may have listed pages since the clock was read.
            && (clock.wrapping_sub(since).cast_signed() > limit.cast_signed() || kept.pages.len() > MAX_KEPT)
        {
            kept.pages.pop_front();
            old[taken] = page;
            taken += 1;
        }
        self.some_kept.store(!kept.pages.is_empty(), Ordering::Relaxed);
        taken
    }

    /// Takes any pages off the list.
    fn take(&self, pages: &mut [PageId; TOGETHER]) -> usize {
        let mut kept = self.kept.lock().expect("invariant: nothing panics under this lock");
        let taken = kept.pages.len().min(TOGETHER);
        for (page, (known, _)) in pages.iter_mut().zip(kept.pages.drain(..taken)) {
            *page = known;
        }
        taken
    }

    /// Bytes; the same from the beginning on.
    pub(crate) fn bytes(&self) -> u64 {
        let kept = self.kept.lock().expect("invariant: nothing panics under this lock");
        (self.written.capacity() * size_of::<AtomicU64>() + kept.pages.capacity() * size_of::<(PageId, u32)>()) as u64
    }
}

impl Inner {
    /// How many of `count` pages from `page` on a sequence of faults brings in now, and whether they keep their copies.
    /// In-thread faults cannot serve system calls that write into protected pages.
    pub(crate) fn wanted_copies(&self, page: PageId, count: u32) -> (u32, bool) {
        let possible = matches!(self.options.fault_mode, FaultMode::Handler { .. })
            && self.options.access_source != AccessSource::Exact
            && self.copies_limit() > 0
            && !self.is_full();
        if possible { self.copies.wanted(page, count) } else { (count, false) }
    }

    fn copies_limit(&self) -> u32 {
        (self.budget.tightest().0.maximum_pages() / PART).min(MAX_KEPT as u64) as u32
    }

    /// Pages came in, by a sequence of faults or by a fault alone: copies of others are older by `count` pages.
    pub(crate) fn note_copies(&self, first: PageId, count: u32, keep: bool) {
        let mut old = [0; TOGETHER];
        let taken = self.copies.came_in(first, count, keep, self.copies_limit(), &mut old);
        if taken > 0 {
            let given_up = self.give_up(&mut old[..taken]);
            self.copies.count(OLD * given_up as i32);
        }
    }

    /// Makes space in the store: no page keeps its copy.
    pub(crate) fn give_up_copies(&self) {
        let mut pages = [0; TOGETHER];
        loop {
            let taken = self.copies.take(&mut pages);
            if taken == 0 {
                return;
            }
            self.give_up(&mut pages[..taken]);
        }
    }

    /// Gives up the copies of those pages that have one, and lets them be written. How many there were.
    fn give_up(&self, pages: &mut [PageId]) -> usize {
        pages.sort_unstable();
        let mut count = 0;
        for index in 0..pages.len() {
            let word = self.word(pages[index]);
            let seen = word.load();
            if seen.state() == State::Resident
                && seen.kept()
                && Slot::from_bits(seen.slot()).tier() != Tier::File
                && word.begin(seen, State::Moving)
            {
                self.give_up_slot(seen);
                pages[count] = pages[index];
                count += 1;
            }
        }
        let mut lock = PteLock::lock();
        for_runs(&pages[..count], |first, pages| {
            let _ = self.uffd.unprotect(&lock, self.arena.address(first), pages as usize * PAGE_SIZE);
            lock.bump();
        });
        drop(lock);
        for page in &pages[..count] {
            if self.word(*page).finish(State::Resident, 0, false) {
                let _ = self.uffd.wake(self.arena.address(*page), PAGE_SIZE);
            }
            // The policy may have looked while the page was owned.
            self.report(*page);
        }
        self.counts.copies_given_up.fetch_add(count as u64, Ordering::Relaxed);
        count
    }
}
