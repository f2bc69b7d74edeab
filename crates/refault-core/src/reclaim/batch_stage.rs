//! The batch stage: isolated pages are checked one by one and evicted, kept or activated (spec: overview §5).
//!
//! Rows that need no answer from a memory without locks or congestion collapse into what [`Memory::io_state`] and
//! [`Memory::evict`] say; the order of the tests is the table's.
//!
//! Kernel: `shrink_folio_list`, `folio_check_references` in `mm/vmscan.c`.

use crate::counters::Counters;
use crate::memory::{Eviction, IoState, Memory, References, SwapSpace};
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
    /// Whether the list system itself holds a reference to the page, so that it cannot go yet.
    fn is_held(&mut self, page: PageId) -> bool {
        let _ = page;
        false
    }
    /// The word to leave behind if the page goes now.
    fn shadow(&mut self, page: PageId) -> Shadow;
    /// The page went, leaving that word.
    fn evicted(&mut self, page: PageId);
}

/// For whom the stage runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// References do not count: the pages go by request.
    pub ignores_references: bool,
    /// The node's background reclaimer.
    pub background: bool,
    /// Its last pass met nothing but pages whose write was in flight.
    pub node_in_writeback: bool,
    /// Its last pass met no file page but dirty ones, so that it may write those that it comes round to again.
    pub node_dirty: bool,
}

/// Sums of one run of the stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchOutcome {
    /// Pages freed.
    pub reclaimed: u64,
    /// Pages looked at: all but those that are locked.
    pub scanned: u64,
    /// Pages whose contents were written, or began to be.
    pub pages_written: u64,
    /// File pages that are dirty or whose write is in flight.
    pub dirty: u64,
    /// Dirty file pages without a write in flight.
    pub unqueued_dirty: u64,
    /// File pages in flight that are to be rotated when their write ends.
    pub congested: u64,
    /// Pages in flight that were marked to be rotated when their write ends.
    pub writeback: u64,
    /// Pages in flight that background reclaim met marked already, on a node full of such pages.
    pub immediate: u64,
}

/// Runs the stage over `pages`, oldest first. Survivors are appended to `survivors` in the same order; those that are
/// to be activated have ACTIVE set in their record.
pub fn run<E: BatchEngine, M: Memory>(
    engine: &mut E,
    pages: &[PageId],
    survivors: &mut Vec<PageId>,
    caller: Caller,
    memory: &mut M,
) -> BatchOutcome {
    let mut outcome = BatchOutcome::default();
    std::hint::black_box(pages.iter().fold(0, |sum, page| sum ^ memory.prefetch_hint(*page)));
    for &page in pages {
        let kept = match decide(engine, page, caller, memory, &mut outcome) {
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
    caller: Caller,
    memory: &mut M,
    outcome: &mut BatchOutcome,
) -> Fate {
    let io = memory.io_state(page);
    if io.any(IoState::LOCKED) {
        return Fate::Keep;
    }
    outcome.scanned += 1;
    let check = !caller.ignores_references;
    if io.any(IoState::UNEVICTABLE) {
        // Row 3: the list system culls it when it comes back.
        return Fate::Keep;
    }
    if check && engine.promoted_while_isolated(page, memory) {
        return Fate::Keep;
    }
    let file = engine.record(page).page_type() == PageType::File;
    let (dirty, in_flight) = (io.any(IoState::DIRTY), io.any(IoState::WRITEBACK));
    let marked = engine.record(page).has(RECLAIM);
    if file && (dirty || in_flight) {
        outcome.dirty += 1;
        outcome.unqueued_dirty += u64::from(!in_flight);
        outcome.congested += u64::from(in_flight && marked);
    }
    if in_flight {
        if caller.background && caller.node_in_writeback && marked {
            outcome.immediate += 1;
        } else {
            engine.record(page).set(RECLAIM);
            outcome.writeback += 1;
        }
        return Fate::Activate;
    }
    let verdict = if check { engine.check_references(page, memory) } else { Verdict::Reclaim };
    match verdict {
        Verdict::Activate => return Fate::Activate,
        Verdict::Keep => return Fate::Keep,
        Verdict::Reclaim | Verdict::ReclaimClean => {}
    }
    if file && dirty && !(caller.background && caller.node_dirty && marked) {
        // Row 13: reclaim does not write ordinary file pages; they are rotated when their write ends.
        engine.record(page).set(RECLAIM);
        engine.counters().nr_vmscan_immediate_reclaim += 1;
        return Fate::Activate;
    }
    if dirty && verdict == Verdict::ReclaimClean {
        return Fate::Keep;
    }
    let eviction = if engine.is_held(page) {
        memory.swap().map_or(Eviction::Kept, |swap| swap.evict_held(page))
    } else {
        let shadow = engine.shadow(page);
        memory.evict(page, shadow)
    };
    match eviction {
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
