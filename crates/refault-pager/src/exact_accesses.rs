//! Accessed bits that are exact, so that a live region can be held to a replay: [`AccessSource::Exact`].
//!
//! The thread that makes the accesses calls [`Pager::note_accesses`] after each. A page with a page-table entry was
//! accessed: that is noted, and the entry dropped, so that the next access leaves one again. The policy takes what was
//! noted, as it would take the bits that hardware keeps, those of 2 MiB regions included. Nothing happens ahead of a
//! fault: no reserve is kept. A fault that finds no room asks the policy for as many victims as the replay does.
//!
//! Invariant: of one thread, each access is noted once, and none that was not made. Cost: a scan of all entries and two
//! calls per access. For tests.
//!
//! [`AccessSource::Exact`]: crate::AccessSource::Exact

use refault_core::PageId;
use refault_core::memory::Walk;

use crate::accessed::{PageSet, REGION_PAGES};
use crate::pager::Pager;
use crate::pte_lock::PteLock;

/// See the module.
#[derive(Default)]
pub(crate) struct ExactAccesses {
    young: PageSet,
    /// Pages that came in since accesses were last noted.
    came_in: PageSet,
    /// Accessed bits of regions.
    regions: Vec<bool>,
    /// Where what is in use ends: page tables reach so far.
    end: PageId,
    /// There were accesses since the last walk.
    ran: bool,
    walked: bool,
}

impl ExactAccesses {
    pub(crate) fn grow(&mut self, pages: usize) {
        self.young.grow(pages);
        self.came_in.grow(pages);
        self.regions.resize(pages.div_ceil(REGION_PAGES as usize), false);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.young.bytes() + self.came_in.bytes() + self.regions.len()
    }

    /// Pages below `end` are in use.
    pub(crate) fn reaches(&mut self, end: PageId) {
        self.end = self.end.max(end);
    }

    pub(crate) fn came_in(&mut self, page: PageId) {
        self.came_in.insert(page);
    }

    pub(crate) fn left(&mut self, page: PageId) {
        self.young.remove(page);
        self.came_in.remove(page);
    }

    /// A page has an entry. `fills_count`: an access that brings its page in is a reference.
    fn accessed(&mut self, page: PageId, fills_count: bool) {
        if !self.came_in.take(page) || fills_count {
            self.young.insert(page);
            self.regions[(page / REGION_PAGES) as usize] = true;
        }
    }

    pub(crate) fn take(&mut self, page: PageId) -> bool {
        self.young.take(page)
    }

    pub(crate) fn young(&self) -> &PageSet {
        &self.young
    }

    /// A policy is about to be asked for victims.
    pub(crate) fn runs(&mut self) {
        self.ran = true;
    }

    /// Begins a walk over all regions: `None` if there is nothing new, or whether it is the first.
    pub(crate) fn begin_walk<V: Walk>(&mut self, visitor: &mut V) -> Option<bool> {
        if !std::mem::take(&mut self.ran) {
            return None;
        }
        visitor.starts();
        let forced = !std::mem::replace(&mut self.walked, true);
        self.ran = forced;
        Some(forced)
    }

    /// The accessed bit of a region, which is taken, if that has a page table.
    pub(crate) fn take_region(&mut self, region: u32) -> Option<bool> {
        let accessed = std::mem::take(&mut self.regions[region as usize]);
        (region < self.end.div_ceil(REGION_PAGES)).then_some(accessed)
    }
}

impl Pager {
    /// Notes which pages were accessed since the last call, which is exact if one was. Does nothing unless accesses are
    /// [`AccessSource::Exact`](crate::AccessSource::Exact).
    pub fn note_accesses(&self) {
        let inner = self.inner();
        let _gate = inner.enter();
        let mut engine = inner.engine();
        inner.take_reports(&mut engine);
        let fills_count = engine.counts_fills();
        let (high, mut found) = (inner.arena.high(), Vec::new());
        for first in (0..high).step_by(REGION_PAGES as usize) {
            engine.bits().present(first, (first + REGION_PAGES).min(high), |page| found.push(page));
        }
        if let Some(exact) = engine.bits().exact() {
            for page in found {
                exact.accessed(page, fills_count);
                inner.arena.drop_entries(&PteLock::lock(), page, 1);
            }
        }
    }
}
