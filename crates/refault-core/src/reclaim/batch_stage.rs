//! The batch stage: isolated pages are checked one by one and evicted, kept or activated (spec: overview §5).
//!
//! Rows that need no answer from a memory without locks or congestion collapse into what [`Memory::io_state`] and
//! [`Memory::evict`] say; the order of the tests is the table's.
//!
//! Kernel: `shrink_folio_list`, `folio_check_references` in `mm/vmscan.c`.

use crate::counters::Counters;
use crate::memory::{Eviction, IoState, Memory, References};
use crate::page::{PageId, PageType, Shadow};
use crate::reclaim::record::{ACTIVE, PageRecord, RECLAIM, REFERENCED, SWAPCACHE};

/// What a reference check decided (spec: classic §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Goes (back) to the active list or the youngest generation.
    Activate,
    /// Makes one more trip.
    Keep,
    /// May be evicted.
    Reclaim,
    /// May be evicted if it is clean.
    ReclaimClean,
}

/// What a list system brings to the batch stage.
pub trait BatchEngine {
    /// The page's record.
    fn record(&mut self, page: PageId) -> &mut PageRecord;
    /// Where events are counted.
    fn counters(&mut self) -> &mut Counters;
    /// The reference check of one page.
    fn check_references<M: Memory>(&mut self, page: PageId, memory: &mut M) -> Verdict;
    /// Whether a page promoted while isolated is kept without a check (spec: overview §5 row 5).
    fn promoted_while_isolated<M: Memory>(&mut self, page: PageId, memory: &M) -> bool {
        let _ = (page, memory);
        false
    }
    /// The word to leave behind if the page goes now.
    fn shadow(&mut self, page: PageId) -> Shadow;
    /// The page went, leaving that word.
    fn evicted(&mut self, page: PageId);
}

/// Sums of one run of the stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchOutcome {
    /// Pages freed.
    pub reclaimed: u64,
    /// Pages whose contents were written, or began to be.
    pub pages_written: u64,
    /// Dirty file pages without a write in flight.
    pub unqueued_dirty: u64,
}

/// Runs the stage over `pages`, oldest first. Survivors are appended to `survivors` in the same order; those that are
/// to be activated have ACTIVE set in their record.
pub fn run<E: BatchEngine, M: Memory>(
    engine: &mut E,
    pages: &[PageId],
    survivors: &mut Vec<PageId>,
    check: bool,
    memory: &mut M,
) -> BatchOutcome {
    let mut outcome = BatchOutcome::default();
    std::hint::black_box(pages.iter().fold(0, |sum, page| sum ^ memory.prefetch_hint(*page)));
    for &page in pages {
        let kept = match decide(engine, page, check, memory, &mut outcome) {
            Fate::Freed => {
                outcome.reclaimed += 1;
                engine.evicted(page);
                false
            }
            Fate::Keep => true,
            Fate::Activate => {
                engine.record(page).set(ACTIVE);
                engine.counters().pgactivate += 1;
                true
            }
        };
        if kept {
            survivors.push(page);
        }
    }
    outcome
}

enum Fate {
    Freed,
    Keep,
    Activate,
}

fn decide<E: BatchEngine, M: Memory>(
    engine: &mut E,
    page: PageId,
    check: bool,
    memory: &mut M,
    outcome: &mut BatchOutcome,
) -> Fate {
    let io = memory.io_state(page);
    if io.any(IoState::LOCKED) {
        return Fate::Keep;
    }
    if io.any(IoState::UNEVICTABLE) {
        // Row 3: parked on the active side; the mlock owner takes it from there.
        engine.record(page).set(ACTIVE);
        return Fate::Keep;
    }
    if check && engine.promoted_while_isolated(page, memory) {
        return Fate::Keep;
    }
    let file = engine.record(page).page_type() == PageType::File;
    if file && io.any(IoState::DIRTY) && !io.any(IoState::WRITEBACK) {
        outcome.unqueued_dirty += 1;
    }
    if io.any(IoState::WRITEBACK) {
        engine.record(page).set(RECLAIM);
        return Fate::Activate;
    }
    let verdict = if check { engine.check_references(page, memory) } else { Verdict::Reclaim };
    match verdict {
        Verdict::Activate => return Fate::Activate,
        Verdict::Keep => return Fate::Keep,
        Verdict::ReclaimClean if io.any(IoState::DIRTY) && !file => return Fate::Keep,
        Verdict::Reclaim | Verdict::ReclaimClean => {}
    }
    if file && io.any(IoState::DIRTY) {
        // Row 13: reclaim does not write ordinary file pages; they are rotated when their write ends.
        engine.record(page).set(RECLAIM);
        return Fate::Activate;
    }
    let shadow = engine.shadow(page);
    match memory.evict(page, shadow) {
        Eviction::Freed { pages_written } => {
            outcome.pages_written += u64::from(pages_written);
            Fate::Freed
        }
        Eviction::WriteStarted => {
            outcome.pages_written += 1;
            // A page of anonymous memory has got its slot and is in the swap cache now (row 10).
            engine.record(page).set(if file { RECLAIM } else { RECLAIM | SWAPCACHE });
            Fate::Keep
        }
        Eviction::Kept => Fate::Keep,
        Eviction::Refused => Fate::Activate,
    }
}

/// The reference check of 6.12, for both list systems (spec: classic §5). Updates REFERENCED.
#[inline]
pub fn check_references(record: &mut PageRecord, references: References) -> Verdict {
    let referenced = record.has(REFERENCED);
    record.clear(REFERENCED);
    if references.locked {
        return Verdict::Activate;
    }
    let file = record.page_type() == PageType::File;
    if references.mappings > 0 {
        record.set(REFERENCED);
        if referenced || references.mappings > 1 || (file && references.executable) {
            return Verdict::Activate;
        }
        return Verdict::Keep;
    }
    if referenced && file { Verdict::ReclaimClean } else { Verdict::Reclaim }
}
