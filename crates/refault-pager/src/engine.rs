//! The policy over the pager's memory: accessed bits by drop-and-scan, victims as a batch.
//!
//! Everything here is under one lock, which is held for decisions only: a victim is marked as being evicted and put
//! on a list; compressing and writing it happens after the lock is released ([`crate::evict`]).
//!
//! Accessed bits: a page counts as accessed if it has a page-table entry. Taking the bit drops the entry; the contents
//! stay in the memfd, and the next touch brings the entry back without the pager (1.2 µs). Because each drop costs a TLB
//! shoot-down, entries are only noted as *spent* at first (they count as not there) and dropped together, neighbours with one
//! call, after a walk or when there are many, after the lock is released ([`crate::dropper`]). What is accessed in
//! between is not seen.
//!
//! Invariant: a page is in the policy if and only if its bit in `known` is set. What the fault path reports is only
//! "look at this page": [`Engine::reconcile`] compares the state word with the bit, so reports may come late or twice.

use std::time::Instant;

use refault_core::memory::{Eviction, LookAround, Neighbourhood, References, Walk};
use refault_core::policy::{Admission, GenerationSize, ReclaimRequest, SortRule};
use refault_core::{Counters, LruvecId, Memory, PageId, PageType, Policy, Shadow};
use refault_store::PAGE_SIZE;

use crate::dropper::{Drops, GAP};
use crate::pagemap::PageMap;
use crate::state::{PageWord, State};
use crate::table::PageTable;

/// Pages a page-table walk asks about at once: 2 MiB.
const REGION_PAGES: u32 = 512;
const WINDOW: u32 = 64;

/// Spent entries below which dropping them is put off.
const MANY_SPENT: u32 = 512;

/// How the pager learns which pages were accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessSource {
    /// Dropping page-table entries and scanning for those that came back.
    DropAndScan,
    /// Not at all: what is evicted and comes back is the only information.
    RefaultOnly,
}

/// A policy without its type.
pub(crate) trait Reclaimer: Send {
    fn admit(&mut self, page: PageId, shadow: Option<Shadow>, memory: &mut PagedMemory);
    fn freed(&mut self, page: PageId);
    fn reclaim(&mut self, goal: u32, memory: &mut PagedMemory) -> u32;
    fn grow(&mut self, pages: usize);
    fn set_capacity(&mut self, pages: usize);
    fn counters(&self) -> Counters;
    fn generations(&self) -> Vec<GenerationSize>;
    fn metadata_bytes(&self) -> usize;
    fn sort(&mut self, page: PageId, hot: bool, rule: SortRule, memory: &mut PagedMemory);
    fn active_inactive(&self) -> Option<[u64; 2]>;
}

pub(crate) struct Reclaiming<P>(pub(crate) P);

impl<P: Policy + Send> Reclaimer for Reclaiming<P> {
    fn admit(&mut self, page: PageId, shadow: Option<Shadow>, memory: &mut PagedMemory) {
        let admission = Admission {
            page_type: PageType::Anon,
            lruvec: 0,
            in_fault: true,
            overwrites: false,
            keeps_slot: false,
            shadow,
        };
        self.0.admit(page, &admission, memory);
    }
    fn freed(&mut self, page: PageId) {
        self.0.freed(page);
    }
    fn reclaim(&mut self, goal: u32, memory: &mut PagedMemory) -> u32 {
        self.0.reclaim(&ReclaimRequest { target: 0, goal, incoming: None }, memory)
    }
    fn grow(&mut self, pages: usize) {
        self.0.grow(pages);
    }
    fn set_capacity(&mut self, pages: usize) {
        self.0.set_capacity(pages);
    }
    fn counters(&self) -> Counters {
        self.0.counters()
    }
    fn generations(&self) -> Vec<GenerationSize> {
        self.0.generations(0)
    }
    fn metadata_bytes(&self) -> usize {
        self.0.metadata_bytes()
    }
    fn sort(&mut self, page: PageId, hot: bool, rule: SortRule, memory: &mut PagedMemory) {
        if hot {
            self.0.prioritise(page, rule, memory);
        } else {
            self.0.deprioritise(page, rule, memory);
        }
    }
    fn active_inactive(&self) -> Option<[u64; 2]> {
        self.0.active_inactive()
    }
}

/// One bit a page.
#[derive(Default)]
struct PageSet(Vec<u64>);

impl PageSet {
    fn grow(&mut self, pages: usize) {
        self.0.resize(pages.div_ceil(64), 0);
    }
    fn has(&self, page: PageId) -> bool {
        self.0[page as usize / 64] >> (page % 64) & 1 != 0
    }
    fn insert(&mut self, page: PageId) {
        self.0[page as usize / 64] |= 1 << (page % 64);
    }
    fn remove(&mut self, page: PageId) {
        self.0[page as usize / 64] &= !(1 << (page % 64));
    }
    fn take(&mut self, page: PageId) -> bool {
        let had = self.has(page);
        self.remove(page);
        had
    }
    fn remove_runs(&mut self, drops: &Drops) {
        for (first, end) in drops.runs.iter().copied() {
            (first..end).for_each(|page| self.remove(page));
        }
    }
}

/// What keeps a monitor and the policy from taking each other's accessed bits. There only while a monitor runs.
#[derive(Default)]
struct Watched {
    /// Pages whose entry the monitor dropped: accessed, as far as the policy is concerned.
    lent: PageSet,
    /// Pages under a monitor's check …
    checked: PageSet,
    /// … and those of them whose entry the policy dropped meanwhile: accessed, as far as the monitor is concerned.
    seen: PageSet,
}

impl Watched {
    fn grow(&mut self, pages: usize) {
        self.lent.grow(pages);
        self.checked.grow(pages);
        self.seen.grow(pages);
    }
    fn bytes(&self) -> usize {
        3 * self.lent.0.len() * 8
    }
}

/// The pager's memory as a policy sees it.
pub(crate) struct PagedMemory {
    table: std::sync::Arc<PageTable>,
    base: usize,
    source: AccessSource,
    pagemap: Option<PageMap>,
    known: PageSet,
    known_pages: u32,
    /// Pages whose access was taken and whose entry is not dropped yet: it means nothing.
    spent: PageSet,
    spent_pages: u32,
    /// A walk has looked at everything since the entries were last dropped.
    walked_since: bool,
    victims: Vec<PageId>,
    pages: u32,
    walked: bool,
    start: Instant,
    /// The store takes no more pages.
    full: bool,
    watched: Option<Box<Watched>>,
}

impl PagedMemory {
    fn address(&self, page: PageId) -> usize {
        self.base + page as usize * PAGE_SIZE
    }

    /// Calls `visit` for each page of a range that was accessed: it has an entry, or a monitor took it.
    fn accessed(&self, first: PageId, end: PageId, mut visit: impl FnMut(PageId)) {
        let Some(watched) = &self.watched else { return self.present(first, end, visit) };
        for word in first / 64..end.div_ceil(64) {
            let mut bits = watched.lent.0[word as usize];
            while bits != 0 {
                let page = word * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if (first..end).contains(&page) && !self.spent.has(page) {
                    visit(page);
                }
            }
        }
        self.present(first, end, |page| {
            if !watched.lent.has(page) {
                visit(page);
            }
        });
    }

    /// Calls `visit` for each page of a range that has a page-table entry that is not about to be dropped.
    fn present(&self, first: PageId, end: PageId, mut visit: impl FnMut(PageId)) {
        let Some(pagemap) = &self.pagemap else { return };
        let scan = pagemap.scan(self.address(first), self.address(end), &mut |from, to| {
            for address in (from..to).step_by(PAGE_SIZE) {
                let page = ((address - self.base) / PAGE_SIZE) as PageId;
                if !self.spent.has(page) {
                    visit(page);
                }
            }
        });
        // A scan that fails in the middle has reported what it saw; the rest counts as not accessed.
        drop(scan);
    }

    fn drop_later(&mut self, page: PageId) {
        if let Some(watched) = &mut self.watched {
            watched.lent.remove(page);
            if watched.checked.has(page) {
                watched.seen.insert(page);
            }
        }
        self.spent.insert(page);
        self.spent_pages += 1;
    }

    /// Collects spent entries once there are enough of them for neighbours to share a call. As far as there is room.
    fn collect_drops(&mut self, drops: &mut Drops) {
        if !std::mem::take(&mut self.walked_since) && self.spent_pages < MANY_SPENT.max(self.known_pages / 4) {
            return;
        }
        self.spent_pages = 0;
        // What lies in a gap would be lost to a monitor.
        drops.gap = if self.watched.is_some() { 0 } else { GAP };
        for (index, word) in self.spent.0.iter().enumerate() {
            let mut bits = *word;
            while bits != 0 {
                if !drops.add(index as PageId * 64 + bits.trailing_zeros()) {
                    return;
                }
                bits &= bits - 1;
            }
        }
    }
}

impl Memory for PagedMemory {
    fn take_references(&mut self, page: PageId) -> References {
        let mut young = false;
        self.accessed(page, page + 1, |_| young = true);
        if young {
            self.drop_later(page);
        }
        References { mappings: u32::from(young), executable: false, locked: false }
    }

    fn is_mapped(&self, _page: PageId) -> bool {
        self.source == AccessSource::DropAndScan
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
        if let Some(watched) = &mut self.watched {
            watched.lent.remove(page);
        }
        self.known_pages -= 1;
        self.victims.push(page);
        Eviction::Freed { pages_written: u32::from(!seen.kept()) }
    }

    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        self.pagemap.as_ref()?;
        let region = page / REGION_PAGES;
        let start = (region * REGION_PAGES).max(page.saturating_sub(WINDOW / 2));
        let end = (start + WINDOW).min((region + 1) * REGION_PAGES).min(self.pages);
        let start = start.min(end.saturating_sub(WINDOW).max(region * REGION_PAGES));
        let mut found = [0; WINDOW as usize];
        let mut count = 0;
        self.accessed(start, end, |neighbour| {
            if neighbour != page && self.known.has(neighbour) {
                found[count] = neighbour;
                count += 1;
            }
        });
        let mut young = 1;
        for &neighbour in &found[..count] {
            if visitor.eligible(neighbour) {
                self.drop_later(neighbour);
                visitor.young(neighbour);
                young += 1;
            }
        }
        Some(Neighbourhood { region: u64::from(region), entries: end - start, young })
    }

    fn walk<V: Walk>(&mut self, _lruvec: LruvecId, visitor: &mut V) -> bool {
        if self.pagemap.is_none() {
            return false;
        }
        let forced = !std::mem::replace(&mut self.walked, true);
        for region in 0..self.pages.div_ceil(REGION_PAGES) {
            let first = region * REGION_PAGES;
            let end = (first + REGION_PAGES).min(self.pages);
            if self.known.0[first as usize / 64..(end as usize).div_ceil(64)].iter().all(|word| *word == 0)
                || !visitor.enters(u64::from(region), None, forced)
            {
                continue;
            }
            let mut found = [0; REGION_PAGES as usize];
            let mut count = 0;
            self.accessed(first, end, |page| {
                if self.known.has(page) {
                    found[count] = page;
                    count += 1;
                }
            });
            let mut young = 0;
            for &page in &found[..count] {
                if visitor.eligible(page) {
                    self.drop_later(page);
                    visitor.young(page);
                    young += 1;
                }
            }
            visitor.leaves(u64::from(region), end - first, young);
        }
        self.walked_since = true;
        true
    }

    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        if self.full { 0 } else { u64::from(u32::MAX) }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// The policy and its memory.
pub(crate) struct Engine {
    reclaimer: Box<dyn Reclaimer>,
    memory: PagedMemory,
}

impl Engine {
    pub(crate) fn new(
        reclaimer: Box<dyn Reclaimer>,
        table: std::sync::Arc<PageTable>,
        base: usize,
        wanted: AccessSource,
        start: Instant,
    ) -> Engine {
        let pagemap = if wanted == AccessSource::DropAndScan { PageMap::open().ok() } else { None };
        let source = if pagemap.is_some() { AccessSource::DropAndScan } else { AccessSource::RefaultOnly };
        let memory = PagedMemory {
            table,
            base,
            source,
            pagemap,
            known: PageSet::default(),
            known_pages: 0,
            spent: PageSet::default(),
            spent_pages: 0,
            walked_since: false,
            victims: Vec::with_capacity(4096),
            pages: 0,
            walked: false,
            start,
            full: false,
            watched: None,
        };
        Engine { reclaimer, memory }
    }

    pub(crate) fn source(&self) -> AccessSource {
        self.memory.source
    }

    /// The page map of the parent describes the parent: open the child's.
    pub(crate) fn reopen_after_fork(&mut self) {
        if self.memory.pagemap.as_mut().is_some_and(|pagemap| pagemap.reopen().is_err()) {
            self.memory.pagemap = None;
        }
    }

    /// Makes room in all tables for page ids below `pages`. Allocates; never called on the fault path.
    pub(crate) fn grow(&mut self, pages: u32) {
        if pages <= self.memory.pages {
            return;
        }
        // In steps, so that a heap that grows page by page does not copy the tables each time.
        let pages = pages.next_multiple_of(1 << 14);
        self.reclaimer.grow(pages as usize);
        self.memory.known.grow(pages as usize);
        self.memory.spent.grow(pages as usize);
        if let Some(watched) = &mut self.memory.watched {
            watched.grow(pages as usize);
        }
        self.memory.pages = pages;
    }

    pub(crate) fn set_capacity(&mut self, pages: usize) {
        self.reclaimer.set_capacity(pages);
    }

    /// Brings the policy up to date with a page that changed.
    pub(crate) fn reconcile(&mut self, page: PageId) {
        let word: &PageWord = self.memory.table.word(page);
        let seen = word.load();
        let belongs = seen.state() == State::Resident && !seen.pinned();
        let known = self.memory.known.has(page);
        if belongs && !known {
            self.memory.known.insert(page);
            self.memory.known_pages += 1;
            // The entry is new.
            self.memory.spent.remove(page);
            let shadow = self.memory.table.take_shadow(page);
            self.reclaimer.admit(page, shadow, &mut self.memory);
        } else if !belongs && known {
            self.memory.known.remove(page);
            if let Some(watched) = &mut self.memory.watched {
                watched.lent.remove(page);
            }
            self.memory.known_pages -= 1;
            self.reclaimer.freed(page);
        }
    }

    /// Which of some pages (sorted) were accessed since they became findable. None if that cannot be found out.
    pub(crate) fn touched(&self, pages: &[PageId], touched: &mut [bool]) {
        for_runs(pages, |first, count| {
            self.memory.accessed(first, first + count, |page| {
                if let Ok(at) = pages.binary_search(&page) {
                    touched[at] = true;
                }
            });
        });
    }

    /// The entries of these pages are gone, and were not to be dropped any more for an access that was taken.
    pub(crate) fn forget_spent(&mut self, pages: &[PageId]) {
        pages.iter().for_each(|page| self.memory.spent.remove(*page));
    }

    /// Chooses some `goal` victims, marks them as being evicted and moves them to `victims`. The entries of the pages that
    /// were found accessed are to be dropped by the caller, without this lock, and given back with
    /// [`Engine::finish_drops`]; `drops` is empty.
    pub(crate) fn choose(&mut self, goal: u32, full: bool, victims: &mut Vec<PageId>, drops: &mut Drops) {
        self.memory.full = full;
        self.reclaimer.reclaim(goal, &mut self.memory);
        victims.append(&mut self.memory.victims);
        self.memory.collect_drops(drops);
    }

    /// These entries are gone: one that is found from now on was accessed since. Empties the list.
    pub(crate) fn finish_drops(&mut self, drops: &mut Drops) {
        self.memory.spent.remove_runs(drops);
        drops.runs.clear();
    }

    pub(crate) fn counters(&self) -> Counters {
        self.reclaimer.counters()
    }

    pub(crate) fn generations(&self) -> Vec<GenerationSize> {
        self.reclaimer.generations()
    }

    pub(crate) fn now(&self) -> u64 {
        self.memory.now()
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        let watched = self.memory.watched.as_ref().map_or(0, |watched| watched.bytes());
        self.reclaimer.metadata_bytes() + (self.memory.known.0.len() + self.memory.spent.0.len()) * 8 + watched
    }

    /// A monitor is there: from now on it and the policy leave each other their accessed bits.
    pub(crate) fn watch(&mut self) {
        let pages = self.memory.known.0.len() * 64;
        self.memory.watched.get_or_insert_default().grow(pages);
    }

    /// A check of a page begins. True if its entry is to be dropped for that.
    pub(crate) fn begin_check(&mut self, page: PageId) -> bool {
        if let Some(watched) = &mut self.memory.watched {
            watched.checked.insert(page);
            watched.seen.remove(page);
        }
        self.lend(page)
    }

    /// The monitor takes a page for old from now on; the policy does not. True if its entry is to be dropped for that.
    pub(crate) fn lend(&mut self, page: PageId) -> bool {
        if self.memory.spent.take(page) {
            // The policy has taken this access already and left the entry to be dropped later.
            return true;
        }
        let young = self.is_young(page);
        if let Some(watched) = self.memory.watched.as_mut().filter(|_| young) {
            watched.lent.insert(page);
        }
        young
    }

    /// The check ends: whether the page was accessed.
    pub(crate) fn end_check(&mut self, page: PageId) -> bool {
        let Some(watched) = &mut self.memory.watched else { return false };
        watched.checked.remove(page);
        watched.seen.take(page) || self.is_young(page)
    }

    /// Whether the page was accessed since its entry was dropped, by whomever.
    pub(crate) fn is_young(&self, page: PageId) -> bool {
        let mut young = false;
        self.memory.present(page, page + 1, |_| young = true);
        young
    }

    /// Whether the policy has the page.
    pub(crate) fn has(&self, page: PageId) -> bool {
        page < self.memory.pages && self.memory.known.has(page)
    }

    /// Moves a page that the policy has towards or away from the end that is evicted.
    pub(crate) fn sort(&mut self, page: PageId, hot: bool, rule: SortRule) {
        self.reclaimer.sort(page, hot, rule, &mut self.memory);
    }

    /// Pages on active and on inactive lists.
    pub(crate) fn active_inactive(&self) -> Option<[u64; 2]> {
        self.reclaimer.active_inactive()
    }

    /// Calls `run` for each run of pages of a range that have an entry.
    pub(crate) fn for_present_runs(&self, first: PageId, end: PageId, run: &mut dyn FnMut(PageId, u32)) {
        let mut start = first;
        let mut next = first;
        self.memory.present(first, end, |page| {
            if page != next {
                if next > start {
                    run(start, next - start);
                }
                start = page;
            }
            next = page + 1;
        });
        if next > start {
            run(start, next - start);
        }
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
