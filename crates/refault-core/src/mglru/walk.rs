//! Page-table walks and the look-around from a young entry (spec: mglru §7, §8).
//!
//! A walk clears the accessed bits of an address space and promotes the pages behind them. Two Bloom filters remember
//! which 2 MiB regions were worth it: one is tested by the current walk while the other collects for the next. The
//! look-around spends the locality that a reference check has just paid for on up to 63 neighbours, and tells the
//! filter.
//!
//! Kernel: `walk_mm`, `walk_pud_range`, `walk_pmd_range`, `walk_pte_range`, `update_bloom_filter`, `test_bloom_filter`,
//! `lru_gen_look_around` in `mm/vmscan.c`.

use crate::memory::{LookAround, Memory, PageTables, RegionKey, Walk};
use crate::mglru::Mglru;
use crate::mglru::generation::Lruvec;
use crate::mglru::lru_refs::note_young_7_2;
use crate::page::{LruvecId, PageId, PageType};
use crate::reclaim::record::{PageRecord, REFERENCED, REFS_MASK, WORKINGSET};

/// Page-table entries that share a cache line: a region is worth walking if one entry per line is young.
const ENTRIES_PER_LINE: u32 = 8;
const FILTER_BITS: usize = 1 << 15;

/// A set of regions that may say yes wrongly: 4 KiB, two bits per region.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    words: Box<[u64; FILTER_BITS / 64]>,
}

impl Filter {
    pub fn new() -> Filter {
        Filter { words: Box::new([0; FILTER_BITS / 64]) }
    }

    pub fn bytes(&self) -> usize {
        FILTER_BITS / 8
    }

    fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Two 15-bit positions from one multiplicative hash.
    fn positions(region: RegionKey) -> [usize; 2] {
        let hash = region.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 34;
        [(hash as usize) % FILTER_BITS, (hash >> 15) as usize % FILTER_BITS]
    }

    pub fn insert(&mut self, region: RegionKey) {
        for bit in Filter::positions(region) {
            self.words[bit / 64] |= 1 << (bit % 64);
        }
    }

    pub fn contains(&self, region: RegionKey) -> bool {
        Filter::positions(region).iter().all(|bit| self.words[bit / 64] >> (bit % 64) & 1 != 0)
    }
}

/// What a walk found worth remembering goes into the filter of the next one; what a look-around found goes into the
/// filter of the next walk too, which is the one tested while `max_seq` stands.
fn filter_of(seq: u64) -> usize {
    (seq % 2) as usize
}

fn is_worth_it(entries: u32, young: u32) -> bool {
    young * ENTRIES_PER_LINE >= entries
}

impl Mglru {
    /// Walks the page tables of the lruvec's group, promoting what was accessed. False where there are none to walk.
    pub(super) fn walk_page_tables<M: Memory>(
        &mut self,
        id: LruvecId,
        can_anon: bool,
        force: bool,
        memory: &mut M,
    ) -> bool {
        let seven = self.is_7_2();
        let lruvec = &mut self.lruvecs[id as usize];
        let mut walker = Walker {
            records: &mut self.records,
            lruvec,
            id,
            can_anon,
            force,
            region_bits: self.params.region_bits,
            filtered: self.params.filters,
            seven,
            started: false,
            entries: 0,
            promoted: 0,
        };
        let walked = memory.page_tables().is_some_and(|tables| tables.walk(id, &mut walker));
        self.counters.walk_entries += walker.entries;
        self.counters.walk_promoted += walker.promoted;
        walked
    }

    /// Checks the neighbours of a page whose entry was young. A caller with a walk to account promotions to promotes
    /// them; limit and direct reclaim, which have none before they age, activate them (spec: mglru §8).
    pub(super) fn look_around<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        if !self.params.look_around {
            return;
        }
        let record = &self.records[page as usize];
        let (id, anon) = (record.lruvec, record.page_type() == PageType::Anon);
        let seven = self.is_7_2();
        let lruvec = &mut self.lruvecs[id as usize];
        let mut neighbours = Neighbours {
            records: &mut self.records,
            youngest: lruvec.youngest(),
            lruvec: self.walk_context.then_some(lruvec),
            id,
            anon,
            seven,
            found: std::mem::take(&mut self.neighbours),
            promoted: 0,
        };
        let seen = memory.page_tables().and_then(|tables| tables.look_around(page, &mut neighbours));
        self.counters.walk_promoted += neighbours.promoted;
        let mut found = neighbours.found;
        for page in found.drain(..) {
            self.queue_activation(page);
        }
        self.neighbours = found;
        let Some(seen) = seen else { return };
        self.counters.look_around_entries += u64::from(seen.entries);
        if is_worth_it(seen.entries, seen.young) {
            let lruvec = &mut self.lruvecs[id as usize];
            if let Some(filter) = &mut lruvec.filters[filter_of(lruvec.max_seq)] {
                filter.insert(seen.region);
            }
        }
    }
}

/// A caller with a walk to account promotions to found a young entry: the page belongs to the youngest
/// generation now, and is moved there when it is met by a scan. True if it changed generation.
#[inline]
fn promote(records: &mut [PageRecord], lruvec: &mut Lruvec, page: PageId, seven: bool) -> bool {
    let record = &mut records[page as usize];
    if seven && !Mglru::second_look_7_2(record) {
        return false;
    }
    let Some(generation) = record.generation() else {
        // Isolated: the batch stage of 6.12 will see the flag and keep the page.
        if !seven {
            record.set(REFERENCED);
        }
        return false;
    };
    record.clear(REFERENCED | REFS_MASK | WORKINGSET);
    if seven {
        record.set(WORKINGSET);
    }
    let youngest = lruvec.youngest();
    if generation == youngest {
        return false;
    }
    record.set_generation(youngest);
    let page_type = record.page_type();
    lruvec.move_size(page_type, generation, youngest);
    true
}

struct Walker<'a> {
    records: &'a mut [PageRecord],
    lruvec: &'a mut Lruvec,
    id: LruvecId,
    can_anon: bool,
    /// Neither filters nor second-level accessed bits are asked.
    force: bool,
    region_bits: bool,
    filtered: bool,
    seven: bool,
    /// The filter for the next walk was cleared.
    started: bool,
    entries: u64,
    promoted: u64,
}

impl Walk for Walker<'_> {
    fn starts(&mut self) {
        if self.filtered && !std::mem::replace(&mut self.started, true) {
            self.lruvec.filters[filter_of(self.lruvec.max_seq + 1)].get_or_insert_with(Filter::new).clear();
        }
    }

    fn forced(&self) -> bool {
        self.force
    }

    fn enters(&mut self, region: RegionKey, region_accessed: Option<bool>, forced: bool) -> bool {
        if forced || self.force {
            return true;
        }
        if self.region_bits && region_accessed == Some(false) {
            return false;
        }
        let Some(filter) = &self.lruvec.filters[filter_of(self.lruvec.max_seq)] else { return true };
        let found = filter.contains(region);
        if found {
            self.lruvec.walks.regions_found += 1;
        }
        found
    }

    #[inline]
    fn eligible(&mut self, page: PageId) -> bool {
        let record = &self.records[page as usize];
        // 7.2 leaves the bit of a page that is on no list yet (spec: mglru §16.5).
        let here = !self.seven || record.generation().is_some();
        here && record.lruvec == self.id && (self.can_anon || record.page_type() == PageType::File)
    }

    #[inline]
    fn young(&mut self, page: PageId) {
        self.promoted += u64::from(promote(self.records, self.lruvec, page, self.seven));
    }

    fn leaves(&mut self, region: RegionKey, entries: u32, young: u32) {
        self.entries += u64::from(entries);
        self.lruvec.walks.leaf_total += u64::from(entries);
        self.lruvec.walks.leaf_young += u64::from(young);
        if is_worth_it(entries, young)
            && let Some(filter) = &mut self.lruvec.filters[filter_of(self.lruvec.max_seq + 1)]
        {
            filter.insert(region);
            self.lruvec.walks.regions_added += 1;
        }
    }
}

struct Neighbours<'a> {
    records: &'a mut [PageRecord],
    /// Where promotions are accounted, if the visit has a walk.
    lruvec: Option<&'a mut Lruvec>,
    id: LruvecId,
    anon: bool,
    seven: bool,
    youngest: usize,
    /// Pages to activate, in the order of their addresses.
    found: Vec<PageId>,
    promoted: u64,
}

impl LookAround for Neighbours<'_> {
    #[inline]
    fn eligible(&mut self, page: PageId) -> bool {
        let record = &self.records[page as usize];
        // 7.2 leaves the bit of a page that is in the batch stage itself to that page's own check (spec: mglru §16.5).
        let here = !self.seven || record.generation().is_some();
        here && record.lruvec == self.id && (self.anon || record.page_type() == PageType::File)
    }

    #[inline]
    fn young(&mut self, page: PageId) {
        if let Some(lruvec) = &mut self.lruvec {
            self.promoted += u64::from(promote(self.records, lruvec, page, self.seven));
            return;
        }
        let record = &mut self.records[page as usize];
        if self.seven && !note_young_7_2(record) {
            return;
        }
        match record.generation() {
            None if !self.seven => record.set(REFERENCED),
            Some(generation) if generation != self.youngest => self.found.push(page),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Eviction, References};
    use crate::mglru::{MglruParams, Version};
    use crate::page::Shadow;
    use crate::policy::{Admission, Policy};

    /// An address space of two pages that asks whether they are eligible.
    #[derive(Default)]
    struct Space(Vec<bool>);

    impl Memory for Space {
        fn take_references(&mut self, _: PageId) -> References {
            References::default()
        }
        fn is_resident(&self, _: PageId) -> bool {
            true
        }
        fn evict(&mut self, _: PageId, _: Shadow) -> Eviction {
            Eviction::Kept
        }
        fn page_tables(&mut self) -> Option<&mut impl PageTables> {
            Some(self)
        }
    }

    impl PageTables for Space {
        fn walk<V: Walk>(&mut self, _: LruvecId, visitor: &mut V) -> bool {
            self.0 = (0..2).map(|page| visitor.eligible(page)).collect();
            true
        }
    }

    #[test]
    fn walks_of_7_2_leave_pages_alone_that_are_on_no_list() {
        for (version, eligible) in [(Version::V6_12, [true, true]), (Version::V7_2, [true, false])] {
            let mut space = Space::default();
            let mut mglru = Mglru::new(MglruParams { version, ..MglruParams::default() });
            mglru.grow(2);
            mglru.admit(0, &Admission::fault(PageType::Anon), &mut space);
            mglru.drain_batches();
            // This one waits in the batch of additions.
            mglru.admit(1, &Admission::fault(PageType::Anon), &mut space);
            mglru.walk_page_tables(0, true, true, &mut space);
            assert_eq!(space.0, eligible, "{version:?}");
        }
    }

    #[test]
    fn filter_contains_what_was_added() {
        let mut filter = Filter::new();
        let regions: Vec<u64> = (0..500).map(|i| i * 7919).collect();
        for region in &regions {
            filter.insert(*region);
        }
        assert!(regions.iter().all(|region| filter.contains(*region)));
        let wrong = (0..10_000u64).filter(|i| filter.contains(1 << 40 | i)).count();
        assert!(wrong < 100, "{wrong} of 10000 strangers known");
        filter.clear();
        assert!(!filter.contains(regions[0]));
    }

    #[test]
    fn one_young_entry_per_cache_line_is_worth_a_walk() {
        assert!(is_worth_it(512, 64));
        assert!(!is_worth_it(512, 63));
    }
}
