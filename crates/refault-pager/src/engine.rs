//! The policy over the pager's memory: accessed bits by drop-and-scan, victims as a batch.
//!
//! Everything here is under one lock, which is held for decisions only: a victim is marked as being evicted and put
//! on a list; compressing and writing it happens after the lock is released ([`crate::evict`]).
//!
//! Accessed bits come from [`crate::accessed`].
//!
//! Invariant: a page is in the policy if and only if its bit in `known` is set. What the fault path reports is only
//! "look at this page": [`Engine::reconcile`] compares the state word with the bit, so reports may come late or twice.

use std::time::Instant;

use crate::accessed::{AccessSource, AccessedBits, PageSet, REGION_PAGES};
use crate::state::{PageWord, State};
use crate::table::PageTable;
use crate::zap::Run;
use refault_core::memory::{Eviction, LookAround, Neighbourhood, PageTables, References, SwapSpace, Walk};
use refault_core::policy::{AccessPattern, Admission, CyclicScans, GenerationSize, HitReport, ReclaimRequest};
use refault_core::{Counters, LruvecId, Memory, PageId, PageType, Shadow};

use crate::policies::PagerPolicy;

const WINDOW: u32 = 64;

/// The pager's memory as a policy sees it.
pub(crate) struct PagedMemory {
    table: std::sync::Arc<PageTable>,
    bits: AccessedBits,
    known: PageSet,
    known_pages: u32,
    victims: Vec<PageId>,
    pages: u32,
    walked: bool,
    start: Instant,
    /// The store takes no more pages.
    full: bool,
    /// Pages that were read ahead of the program.
    unread: u32,
}

impl Memory for PagedMemory {
    fn take_references(&mut self, page: PageId) -> References {
        let young = self.bits.take(page);
        References { mappings: u32::from(young), executable: false, locked: false }
    }

    #[inline]
    fn is_resident(&self, page: PageId) -> bool {
        self.known.has(page)
    }

    fn is_mapped(&self, _page: PageId) -> bool {
        self.bits.source() != AccessSource::RefaultOnly
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let word = self.table.word(page);
        let seen = word.load();
        // A page that is equal to its slot needs no room in the store.
        if self.full && !seen.kept() {
            return Eviction::Refused;
        }
        if seen.state() != State::Resident || seen.pinned() || !word.begin(seen, State::Evicting) {
            // Discarded or pinned meanwhile: the report about it is on its way.
            return Eviction::Kept;
        }
        self.table.set_shadow(page, shadow);
        self.known.remove(page);
        self.bits.left(page);
        self.known_pages -= 1;
        self.victims.push(page);
        Eviction::Freed { pages_written: u32::from(!seen.kept()) }
    }

    fn unread(&self) -> u32 {
        self.unread
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        Some(self)
    }

    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }
}

impl SwapSpace for PagedMemory {
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        if self.full { 0 } else { u64::from(u32::MAX) }
    }
}

impl PageTables for PagedMemory {
    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        if self.bits.source() == AccessSource::RefaultOnly {
            return None;
        }
        let region = page / REGION_PAGES;
        let start = (region * REGION_PAGES).max(page.saturating_sub(WINDOW / 2));
        let end = (start + WINDOW).min((region + 1) * REGION_PAGES).min(self.pages);
        let start = start.min(end.saturating_sub(WINDOW).max(region * REGION_PAGES));
        let mut found = [(0, false); WINDOW as usize];
        let mut count = 0;
        self.bits.accessed(start, end, |neighbour, present| {
            if neighbour != page && self.known.has(neighbour) {
                found[count] = (neighbour, present);
                count += 1;
            }
        });
        let mut young = 1;
        for &(neighbour, present) in &found[..count] {
            if visitor.eligible(neighbour) {
                self.bits.taken(neighbour, present);
                visitor.young(neighbour);
                young += 1;
            }
        }
        Some(Neighbourhood { region: u64::from(region), entries: end - start, young })
    }

    fn walk<V: Walk>(&mut self, lruvec: LruvecId, visitor: &mut V) -> bool {
        self.walk_part(lruvec, 0, 1, visitor)
    }

    fn walk_part<V: Walk>(&mut self, _lruvec: LruvecId, part: u32, parts: u32, visitor: &mut V) -> bool {
        if self.bits.source() == AccessSource::RefaultOnly {
            return false;
        }
        // A replay's page tables are not divided.
        let (part, parts) = match (self.bits.exact(), part) {
            (None, _) => (part, parts),
            (Some(_), 0) => (0, 1),
            (Some(_), _) => return true,
        };
        let forced = match self.bits.exact().map(|exact| exact.begin_walk(visitor)) {
            Some(Some(forced)) => forced,
            Some(None) => return true,
            None => {
                visitor.starts();
                !std::mem::replace(&mut self.walked, true)
            }
        };
        let regions = self.pages.div_ceil(REGION_PAGES);
        let bound = |part: u32| (u64::from(regions) * u64::from(part) / u64::from(parts)) as u32;
        for region in bound(part)..bound(part + 1) {
            let first = region * REGION_PAGES;
            let end = (first + REGION_PAGES).min(self.pages);
            let (accessed, has_pages) = match self.bits.exact().map(|exact| exact.take_region(region)) {
                None => (None, !self.known.is_empty_around(first, end)),
                Some(accessed) => (accessed, accessed.is_some()),
            };
            if !has_pages || !visitor.enters(u64::from(region), accessed, forced) {
                continue;
            }
            let mut found = [(0, false); REGION_PAGES as usize];
            let mut count = 0;
            self.bits.accessed(first, end, |page, present| {
                if self.known.has(page) {
                    found[count] = (page, present);
                    count += 1;
                }
            });
            let mut young = 0;
            for &(page, present) in &found[..count] {
                if visitor.eligible(page) {
                    self.bits.taken(page, present);
                    visitor.young(page);
                    young += 1;
                }
            }
            visitor.leaves(u64::from(region), end - first, young);
        }
        self.bits.walked();
        true
    }
}

/// The policy and its memory.
pub(crate) struct Engine {
    policy: PagerPolicy,
    memory: PagedMemory,
}

impl Engine {
    pub(crate) fn new(
        policy: PagerPolicy,
        table: std::sync::Arc<PageTable>,
        base: usize,
        wanted: AccessSource,
        start: Instant,
    ) -> Engine {
        let memory = PagedMemory {
            table,
            bits: AccessedBits::new(base, wanted),
            known: PageSet::default(),
            known_pages: 0,
            victims: Vec::with_capacity(4096),
            pages: 0,
            walked: false,
            start,
            full: false,
            unread: 0,
        };
        Engine { policy, memory }
    }

    /// How accesses are found out.
    pub(crate) fn source(&self) -> AccessSource {
        self.memory.bits.source()
    }

    /// The accessed bits, which a monitor shares with the policy.
    pub(crate) fn bits(&mut self) -> &mut AccessedBits {
        &mut self.memory.bits
    }

    /// Makes room in all tables for page ids below `pages`. Allocates; never called on the fault path.
    pub(crate) fn grow(&mut self, pages: u32) {
        if let Some(exact) = self.memory.bits.exact() {
            exact.reaches(pages);
        }
        if pages <= self.memory.pages {
            return;
        }
        // In steps, so that a heap that grows page by page does not copy the tables each time.
        let pages = pages.next_multiple_of(1 << 14);
        self.policy.grow(pages as usize);
        self.memory.known.grow(pages as usize);
        self.memory.bits.grow(pages);
        self.memory.pages = pages;
    }

    /// `pages` pages were read ahead and wait for the program.
    pub(crate) fn set_unread(&mut self, pages: u32) {
        self.memory.unread = pages;
    }

    pub(crate) fn set_capacity(&mut self, pages: usize) {
        self.policy.set_capacity(pages);
    }

    /// Brings the policy up to date with a page that changed. `pattern`: what the program has said about its accesses.
    pub(crate) fn reconcile(&mut self, page: PageId, pattern: AccessPattern) {
        let word: &PageWord = self.memory.table.word(page);
        let seen = word.load();
        let belongs = seen.state() == State::Resident && !seen.pinned();
        let known = self.memory.known.has(page);
        if belongs && !known {
            self.memory.known.insert(page);
            self.memory.known_pages += 1;
            self.memory.bits.came_in(page);
            let shadow = self.memory.table.take_shadow(page);
            let admission = Admission::fault(PageType::Anon).with_shadow(shadow).with_pattern(pattern);
            self.policy.admit(page, &admission, &mut self.memory);
        } else if !belongs && known {
            self.memory.known.remove(page);
            self.memory.bits.left(page);
            self.memory.known_pages -= 1;
            self.policy.freed(page);
        }
    }

    /// Whether the policy takes the access that brings a page in for a reference.
    pub(crate) fn counts_fills(&self) -> bool {
        self.policy.hits() == HitReport::Kernel
    }

    /// Chooses some `goal` victims, marks them as being evicted and moves them to `victims`. The entries of the pages
    /// that were found accessed are to be dropped afterwards, see [`Engine::collect_drops`]. `incoming`: the page that
    /// needs the room.
    pub(crate) fn choose(&mut self, goal: u32, incoming: Option<PageId>, full: bool, victims: &mut Vec<PageId>) {
        self.memory.full = full;
        self.memory.bits.forget_look();
        let goal = match self.memory.bits.exact() {
            None => goal,
            Some(exact) => {
                exact.runs();
                self.policy.reclaim_batch()
            }
        };
        self.policy.reclaim(&ReclaimRequest { target: 0, goal, incoming }, &mut self.memory);
        victims.append(&mut self.memory.victims);
    }

    /// Moves runs of entries that are to be dropped, without this lock, to an empty list, if it is time for that; they
    /// are given back with [`AccessedBits::finish_drops`].
    pub(crate) fn collect_drops(&mut self, runs: &mut Vec<Run>) {
        self.memory.bits.collect_drops(self.memory.known_pages, runs);
    }

    pub(crate) fn counters(&self) -> Counters {
        self.policy.counters()
    }

    pub(crate) fn generations(&self) -> Vec<GenerationSize> {
        self.policy.generations(0)
    }

    pub(crate) fn now(&self) -> u64 {
        self.memory.now()
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.policy.metadata_bytes() + self.memory.known.bytes() + self.memory.bits.bytes()
    }

    /// What the policy has found out about cyclic scans, if it looks for them.
    pub(crate) fn cyclic_scans(&self) -> Option<&CyclicScans> {
        self.policy.cyclic_scans()
    }
}

/// Calls `run` with the first page and the length of each run of neighbours in a sorted list.
pub(crate) fn for_runs(pages: &[PageId], mut run: impl FnMut(PageId, u32)) {
    let mut start = 0;
    for end in 1..=pages.len() {
        if end == pages.len() || pages[end] != pages[end - 1] + 1 {
            run(pages[start], (end - start) as u32);
            start = end;
        }
    }
}
