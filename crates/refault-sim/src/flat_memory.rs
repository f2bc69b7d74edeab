//! The memory under a trace: one address space, one file, swap; a byte per page, no time.
//!
//! Each page is mapped at most once: an anonymous page by being resident, a file page by its first access through the
//! mapping. Hits on mapped pages set the accessed bit of the entry and of its 2 MiB region, as hardware does.
//! File pages are clean when reclaim looks at them: a write through a descriptor is taken to have been written back in
//! time. Anonymous pages are dirty unless they still have a swap slot with the same contents, which only asynchronous
//! swap devices leave them (spec: overview §10).
//!
//! ```
//! use refault_core::Memory;
//! use refault_sim::flat_memory::Swap;
//! use refault_sim::{FlatMemory, LayoutBuilder};
//! use refault_trace::{Entry, Kind};
//!
//! let mut builder = LayoutBuilder::new();
//! builder.observe(&[Entry::new(7, Kind::Anon, false)]);
//! let mut memory = FlatMemory::new(&builder.finish()?, Swap { pages: 10, synchronous: true });
//! assert!(!memory.is_resident(0));
//! memory.insert(0); // the front-end's side of an admission
//! assert_eq!(memory.resident(), 1);
//! # Ok::<(), refault_sim::layout::LayoutError>(())
//! ```

mod addresses;
mod tree_nodes;

use refault_core::memory::{
    Eviction, LookAround, Memory, Neighbourhood, PageTables, References, ShadowNodes, SwapSpace, Walk,
};
use refault_core::{Counters, LruvecId, PageId, Shadow};

use crate::layout::{Access, Layout, REGION_PAGES};
use crate::shadows::Shadows;
use addresses::{address_or_gap, number_blocks};
use tree_nodes::{Event, TreeNodes};

/// Where anonymous pages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Slots. 0 means that anonymous memory cannot be evicted.
    pub pages: u64,
    /// The device answers at once (zram, RAM disk): a page read back gives up its slot, so it is written again when it
    /// is evicted again. Otherwise it keeps the slot until it is written to.
    pub synchronous: bool,
}

impl Default for Swap {
    fn default() -> Swap {
        Swap { pages: u64::from(u32::MAX), synchronous: true }
    }
}

/// Entries a window of [`PageTables::look_around`] has at most.
const WINDOW: u64 = 64;

mod bits {
    /// The page is in memory.
    pub const RESIDENT: u8 = 1;
    /// A page-table entry maps it.
    pub const MAPPED: u8 = 2;
    /// The entry's accessed bit.
    pub const YOUNG: u8 = 4;
    /// The contents differ from the slot or file.
    pub const DIRTY: u8 = 8;
    /// A swap slot holds a copy.
    pub const SLOT: u8 = 16;
    /// The page was in memory before.
    pub const SEEN: u8 = 32;
    /// The accessed bit was set before the region's was last cleared. A young page without this bit lies in a region
    /// whose bit is set, so another access to it has nothing to do.
    pub const STALE: u8 = 64;
    /// A monitor took the accessed bit, which a reference check still counts.
    pub const WAS_YOUNG: u8 = 128;
}

/// State that leaves an access nothing to do, by [`Access::way`]; no state does for an access through a descriptor.
const NEEDED: [u8; 8] = {
    const READ: u8 = bits::MAPPED | bits::YOUNG;
    const WRITE: u8 = READ | bits::DIRTY;
    [READ, WRITE, u8::MAX, u8::MAX, READ, WRITE, u8::MAX, u8::MAX]
};

/// See the module.
pub struct FlatMemory {
    state: Vec<u8>,
    shadows: Shadows,
    /// Nodes of the file's tree, once a policy has them followed.
    nodes: Option<Box<TreeNodes>>,
    /// Locked pages of the group beside those of the layout.
    locked: u64,
    /// Accessed bits of the regions.
    region_young: Vec<bool>,
    /// Region of each id where it is not `id / 512`.
    region_of: Option<Vec<u32>>,
    /// Address of each id, where ids are not addresses.
    addresses: Option<Vec<u64>>,
    /// The mapping of each type: ids and addresses.
    mappings: [Mapping; 2],
    file_base: PageId,
    resident: usize,
    swap: Swap,
    slots_used: u64,
    now: u64,
    /// The task ran since the last walk.
    ran: bool,
    /// A complete walk has visited the address space.
    walked: bool,
    counters: Counters,
}

#[derive(Clone, Debug, Default)]
struct Mapping {
    /// Ids that lie in it: `ids.start..ids.end`.
    ids: std::ops::Range<PageId>,
    /// Addresses in pages.
    span: std::ops::Range<u64>,
}

impl FlatMemory {
    /// Empty memory for the pages of a layout.
    pub fn new(layout: &Layout, swap: Swap) -> FlatMemory {
        let ids = layout.ids();
        let sparse = layout.is_sparse();
        let addresses = sparse.then(|| (0..ids as PageId).map(|id| address_or_gap(layout, id)).collect::<Vec<_>>());
        let regions = match &addresses {
            None => ids.div_ceil(REGION_PAGES as usize),
            Some(_) => 0,
        };
        let (region_of, regions) = match &addresses {
            None => (None, regions),
            Some(addresses) => {
                let (table, count) = number_blocks(addresses, REGION_PAGES);
                (Some(table), count)
            }
        };
        let file_base = layout.file_base();
        let mapping = |first: PageId, end: PageId, distinct: u64| {
            if distinct == 0 { Mapping::default() } else { Mapping { ids: first..end, span: layout.mapping(first) } }
        };
        FlatMemory {
            state: vec![0; ids],
            shadows: Shadows::default(),
            nodes: None,
            locked: 0,
            region_young: vec![false; regions],
            region_of,
            addresses,
            mappings: [
                mapping(0, file_base, layout.distinct_anon()),
                mapping(file_base, ids as PageId, layout.distinct_file()),
            ],
            file_base,
            resident: 0,
            swap,
            slots_used: 0,
            now: 0,
            ran: true,
            walked: false,
            counters: Counters::default(),
        }
    }

    /// Pages in memory.
    #[inline]
    pub fn resident(&self) -> usize {
        self.resident
    }

    /// Whether the id is a file page's.
    #[inline]
    pub fn is_file(&self, page: PageId) -> bool {
        page >= self.file_base
    }

    /// Whether the page is in memory.
    #[inline]
    pub fn is_resident(&self, page: PageId) -> bool {
        self.state[page as usize] & bits::RESIDENT != 0
    }

    /// Whether a page-table entry maps the page.
    #[inline]
    pub fn has_entry(&self, page: PageId) -> bool {
        self.state[page as usize] & bits::MAPPED != 0
    }

    /// Whether an access changes nothing: it goes through a mapping to a mapped page, the accessed bits of page and
    /// region are set, and a written page is dirty.
    #[inline]
    pub fn is_noop(&self, access: Access) -> bool {
        let needed = NEEDED[access.kind_bits()];
        self.state[access.page() as usize] & (needed | bits::STALE) == needed
    }

    /// Whether the page was in memory at some time before.
    #[inline]
    pub fn was_seen(&self, page: PageId) -> bool {
        self.state[page as usize] & bits::SEEN != 0
    }

    /// Takes the shadow entry out of the page's slot.
    #[inline]
    pub fn take_shadow(&mut self, page: PageId) -> Option<Shadow> {
        let shadow = self.shadows.take(page);
        if shadow.is_some() {
            self.note_slot(page, Event::EntryLeft);
        }
        shadow
    }

    /// The shadow entry in the page's slot.
    #[inline]
    pub fn shadow(&self, page: PageId) -> Option<Shadow> {
        self.shadows.get(page)
    }

    /// Changes the shadow entry of an evicted page.
    pub fn set_shadow(&mut self, page: PageId, shadow: Shadow) {
        if self.shadows.get(page).is_none() {
            self.note_slot(page, Event::EntryCame);
        }
        self.shadows.set(page, shadow, self.state.len());
    }

    /// An access through a page-table entry. Returns false if there is none; then nothing happened.
    #[inline]
    pub fn touch_mapped(&mut self, page: PageId, write: bool) -> bool {
        let found = self.has_entry(page);
        if found {
            self.touch_entry(page, write);
        }
        found
    }

    /// An access through the page-table entry that the page is known to have.
    #[inline]
    pub fn touch_entry(&mut self, page: PageId, write: bool) {
        debug_assert!(self.has_entry(page));
        self.state[page as usize] = self.state[page as usize] & !bits::STALE | bits::YOUNG;
        let region = self.region(page);
        self.region_young[region] = true;
        if write {
            self.dirty(page);
        }
    }

    /// Sets the accessed bit whatever the kind of access: for policies that know no kinds. False if not resident.
    #[inline]
    pub fn touch_any(&mut self, page: PageId) -> bool {
        let state = self.state[page as usize];
        if state & bits::RESIDENT == 0 {
            return false;
        }
        self.state[page as usize] = state | bits::YOUNG;
        true
    }

    /// A resident page gets an entry in the page table that is not young.
    #[inline]
    pub fn map_old(&mut self, page: PageId) {
        self.state[page as usize] |= bits::MAPPED;
    }

    /// Takes the accessed bit for a monitor; the next reference check still counts it (spec: classic §4).
    pub fn make_old(&mut self, page: PageId) {
        let state = &mut self.state[page as usize];
        if *state & bits::YOUNG != 0 {
            *state = *state & !(bits::YOUNG | bits::STALE) | bits::WAS_YOUNG;
        }
    }

    /// Whether the page is in memory and was accessed since it was made old. Accesses through descriptors leave no bit.
    pub fn is_young(&self, page: PageId) -> bool {
        self.is_resident(page) && self.state[page as usize] & bits::YOUNG != 0
    }

    /// A resident page gets an entry in the page table, young (a minor fault).
    pub fn map(&mut self, page: PageId, write: bool) {
        // It was found in the swap cache, and is the only user of its slot.
        if self.swap.synchronous && self.state[page as usize] & bits::SLOT != 0 {
            self.release_slot(page);
        }
        self.state[page as usize] |= bits::MAPPED;
        self.touch_mapped(page, write);
    }

    /// Brings a page in. Not mapped, not accessed yet.
    #[inline]
    pub fn insert(&mut self, page: PageId) {
        debug_assert!(!self.is_resident(page));
        let slot = self.state[page as usize] & bits::SLOT;
        self.state[page as usize] = bits::RESIDENT | bits::SEEN | slot;
        self.resident += 1;
        self.note_slot(page, Event::PageCame);
        if slot != 0 && self.swap.synchronous {
            self.release_slot(page);
        }
    }

    /// Whether swapped-in pages keep their slot.
    pub fn keeps_slots(&self) -> bool {
        !self.swap.synchronous
    }

    /// Sets the clock that dates generations, the replay's access number, and notes that the task ran.
    #[inline]
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
        self.ran = true;
    }

    /// Swap I/O and file reads so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The counters, to add what the front-end knows.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Bytes of metadata: state, shadows, tables of regions and addresses.
    pub fn metadata_bytes(&self) -> usize {
        self.state.capacity()
            + self.shadows.bytes()
            + self.nodes.as_ref().map_or(0, |nodes| nodes.bytes())
            + self.region_young.capacity()
            + self.region_of.as_ref().map_or(0, |r| r.capacity() * 4)
            + self.addresses.as_ref().map_or(0, |a| a.capacity() * 8)
    }

    fn dirty(&mut self, page: PageId) {
        self.state[page as usize] |= bits::DIRTY;
        if self.state[page as usize] & bits::SLOT != 0 {
            self.release_slot(page);
        }
    }

    fn release_slot(&mut self, page: PageId) {
        self.state[page as usize] &= !bits::SLOT;
        self.slots_used -= 1;
    }

    #[inline]
    fn region(&self, page: PageId) -> usize {
        match &self.region_of {
            None => page as usize / REGION_PAGES as usize,
            Some(table) => table[page as usize] as usize,
        }
    }

    #[inline]
    fn address(&self, page: PageId) -> u64 {
        match &self.addresses {
            None => u64::from(page),
            Some(addresses) => addresses[page as usize],
        }
    }

    fn mapping(&self, page: PageId) -> &Mapping {
        &self.mappings[usize::from(self.is_file(page))]
    }

    /// First id of the mapping at or after an address.
    fn id_at(&self, mapping: &Mapping, address: u64) -> PageId {
        match &self.addresses {
            None => address as PageId,
            Some(addresses) => {
                let ids = &addresses[mapping.ids.start as usize..mapping.ids.end as usize];
                mapping.ids.start + ids.partition_point(|a| *a < address) as PageId
            }
        }
    }

    /// The region's accessed bit was cleared while pages in it stayed young.
    fn mark_stale(&mut self, ids: std::ops::Range<PageId>) {
        const { assert!(bits::STALE == bits::YOUNG << 4) };
        for state in &mut self.state[ids.start as usize..ids.end as usize] {
            *state |= (*state & bits::YOUNG) << 4;
        }
    }

    /// Clears the accessed bits of mapped pages in `ids` that are eligible and reports them; returns how many there
    /// were. Looks at eight pages at a time: most of them are not young.
    #[inline]
    fn harvest<V>(
        &mut self,
        ids: std::ops::Range<PageId>,
        visitor: &mut V,
        eligible: impl Fn(&mut V, PageId) -> bool,
        young: impl Fn(&mut V, PageId),
    ) -> u32 {
        let mut found = 0;
        let mut id = ids.start;
        let (groups, rest) = self.state[ids.start as usize..ids.end as usize].as_chunks_mut::<8>();
        for group in groups {
            let mut wanted = young_pages(u64::from_le_bytes(*group));
            while wanted != 0 {
                let at = wanted.trailing_zeros() / 8;
                wanted &= wanted - 1;
                if eligible(visitor, id + at) {
                    group[at as usize] &= !(bits::YOUNG | bits::STALE);
                    found += 1;
                    young(visitor, id + at);
                }
            }
            id += 8;
        }
        for state in rest {
            if young_pages(u64::from(*state)) != 0 && eligible(visitor, id) {
                *state &= !(bits::YOUNG | bits::STALE);
                found += 1;
                young(visitor, id);
            }
            id += 1;
        }
        found
    }
}

/// Of eight states in a word, a bit in each that is mapped and young.
#[inline]
fn young_pages(states: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const { assert!(bits::YOUNG == bits::MAPPED << 1) };
    states & (EACH * bits::YOUNG as u64) & (states & (EACH * bits::MAPPED as u64)) << 1
}

impl Memory for FlatMemory {
    #[inline]
    fn take_references(&mut self, page: PageId) -> References {
        let state = self.state[page as usize];
        self.state[page as usize] = state & !(bits::YOUNG | bits::STALE | bits::WAS_YOUNG);
        let young = state & (bits::YOUNG | bits::WAS_YOUNG) != 0;
        References { mappings: u32::from(young), executable: false, locked: false }
    }

    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        u64::from(self.state[page as usize]) ^ u64::from(self.shadows.peek(page))
    }

    #[inline]
    fn is_resident(&self, page: PageId) -> bool {
        FlatMemory::is_resident(self, page)
    }

    #[inline]
    fn is_mapped(&self, page: PageId) -> bool {
        self.state[page as usize] & bits::MAPPED != 0
    }

    #[inline]
    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let state = self.state[page as usize];
        debug_assert!(state & bits::RESIDENT != 0);
        let mut pages_written = 0;
        let mut slot = state & bits::SLOT;
        if !self.is_file(page) {
            if slot == 0 {
                if self.slots_used >= self.swap.pages {
                    return Eviction::Refused;
                }
                self.slots_used += 1;
                slot = bits::SLOT;
                pages_written = 1;
                self.counters.pswpout += 1;
            } else if state & bits::DIRTY != 0 {
                pages_written = 1;
                self.counters.pswpout += 1;
            }
        }
        self.state[page as usize] = bits::SEEN | slot;
        self.resident -= 1;
        if shadow == Shadow::NONE {
            self.note_slot(page, Event::PageLeft);
        } else {
            self.shadows.set(page, shadow, self.state.len());
            self.note_slot(page, Event::PageLeftEntry);
        }
        Eviction::Freed { pages_written }
    }

    #[inline]
    fn now(&self) -> u64 {
        self.now
    }

    #[inline]
    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        Some(self)
    }

    #[inline]
    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        Some(self)
    }

    #[inline]
    fn shadow_nodes(&mut self) -> Option<&mut impl ShadowNodes> {
        Some(self)
    }
}

impl SwapSpace for FlatMemory {
    #[inline]
    fn needs_write(&self, page: PageId) -> bool {
        let state = self.state[page as usize];
        !self.is_file(page) && (state & bits::SLOT == 0 || state & bits::DIRTY != 0)
    }

    fn evict_held(&mut self, page: PageId) -> Eviction {
        let state = self.state[page as usize];
        debug_assert!(state & bits::RESIDENT != 0);
        let mut stays = state & (bits::SLOT | bits::DIRTY);
        if !self.is_file(page) && stays & bits::SLOT == 0 {
            if self.slots_used >= self.swap.pages {
                return Eviction::Refused;
            }
            self.slots_used += 1;
            stays = bits::SLOT | bits::DIRTY;
        }
        self.state[page as usize] = bits::RESIDENT | bits::SEEN | stays;
        Eviction::Kept
    }

    fn in_swap_cache(&self, page: PageId) -> Option<bool> {
        Some(self.state[page as usize] & bits::SLOT != 0)
    }

    #[inline]
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        self.swap.pages - self.slots_used
    }

    fn has_swap(&self) -> bool {
        self.swap.pages > 0
    }
}

impl PageTables for FlatMemory {
    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        if !self.is_mapped(page) {
            return None;
        }
        let address = self.address(page);
        let region = address / REGION_PAGES;
        let mapping = self.mapping(page);
        let mut start = mapping.span.start.max(region * REGION_PAGES);
        let mut end = mapping.span.end.min((region + 1) * REGION_PAGES);
        if end - start > WINDOW {
            if address - start < WINDOW / 2 {
                end = start + WINDOW;
            } else if end - address < WINDOW / 2 {
                start = end - WINDOW;
            } else {
                start = address - WINDOW / 2;
                end = address + WINDOW / 2;
            }
        }
        if end - start <= 1 {
            return None;
        }
        let ids = self.id_at(mapping, start)..self.id_at(mapping, end);
        let young = self.harvest(ids, visitor, |v, id| id != page && v.eligible(id), |v, id| v.young(id));
        Some(Neighbourhood { region, entries: (end - start) as u32, young: young + 1 })
    }

    fn walk<V: Walk>(&mut self, _lruvec: LruvecId, visitor: &mut V) -> bool {
        if !std::mem::take(&mut self.ran) {
            return true;
        }
        visitor.starts();
        let forced = !std::mem::replace(&mut self.walked, true);
        self.ran = forced;
        for index in 0..self.mappings.len() {
            let mapping = self.mappings[index].clone();
            let mut start = mapping.span.start;
            while start < mapping.span.end {
                let region = start / REGION_PAGES;
                let end = ((region + 1) * REGION_PAGES).min(mapping.span.end);
                let ids = self.id_at(&mapping, start)..self.id_at(&mapping, end);
                // A region without a page has no page table; skip to the next page.
                if ids.is_empty() {
                    start = if ids.start < mapping.ids.end { self.address(ids.start) } else { mapping.span.end };
                    continue;
                }
                let index = self.region(ids.start);
                let accessed = std::mem::take(&mut self.region_young[index]);
                if visitor.enters(region, Some(accessed), forced) {
                    let young = self.harvest(ids.clone(), visitor, V::eligible, V::young);
                    visitor.leaves(region, (end - start) as u32, young);
                }
                if accessed {
                    self.mark_stale(ids);
                }
                start = end;
            }
        }
        true
    }
}
