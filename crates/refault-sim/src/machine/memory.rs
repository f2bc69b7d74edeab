//! The machine's memory: pages, address spaces with page tables, files, swap slots, nodes and groups.
//!
//! Page ids are handed out in *segments*: the anonymous memory of one address space, or one file. Each segment starts on
//! a 2 MiB boundary, so an id's region and owner are found by index. A *mapping* shows a segment in an address space and
//! has one byte a page for its page-table entries: an access that finds its entry touches nothing else.
//!
//! Invariants: a page-table entry is present only while its page is resident; a resident page is charged to exactly one
//! group and takes one frame of one node; a page has a swap slot iff [`state::SLOT`] is set; every change of these goes
//! through this module.
//!
//! Cost: a hit is one byte; `evict` is O(mappings of the segment); a walk is one byte an entry of the regions entered.

use refault_core::memory::{
    Eviction, IoState, LookAround, Memory, Neighbourhood, NodeFrames, Protection, References, Walk,
};
use refault_core::{Counters, LruvecId, PageId, Shadow};

use super::costs::{Costs, Ledger, Work};
use super::device::{Device, Direction};
use super::group::{GroupId, Groups};
use super::node::Node;

/// Pages of a 2 MiB region.
pub const REGION_PAGES: usize = 512;
/// Entries a window of [`Memory::look_around`] has at most.
const WINDOW: usize = 64;

/// Bits of a page.
pub mod state {
    /// In memory.
    pub const RESIDENT: u16 = 1;
    /// Its contents are being read.
    pub const LOCKED: u16 = 1 << 1;
    /// Its contents differ from its file, or from its swap slot.
    pub const DIRTY: u16 = 1 << 2;
    /// Its contents are being written.
    pub const WRITEBACK: u16 = 1 << 3;
    /// A swap slot holds a copy.
    pub const SLOT: u16 = 1 << 4;
    /// Was in memory before, and has contents worth reading back.
    pub const SEEN: u16 = 1 << 5;
    /// Reading it starts the next readahead.
    pub const MARKER: u16 = 1 << 6;
    /// Accessed since the bit was last taken, by whatever means: for policies that want to know of each access by a bit.
    pub const TOUCHED: u16 = 1 << 7;
    /// Read ahead and not used yet.
    pub const AHEAD: u16 = 1 << 8;
    /// Came back as part of the working set: waiting for it is waiting for memory.
    pub const WORKINGSET: u16 = 1 << 9;
}

/// Bits of a page-table entry.
pub mod entry {
    /// The page is there.
    pub const PRESENT: u8 = 1;
    /// Accessed.
    pub const YOUNG: u8 = 2;
    /// May be written without a fault.
    pub const WRITABLE: u8 = 4;
}

/// A range of page ids with one owner.
#[derive(Debug)]
pub struct Segment {
    /// First id, a multiple of [`REGION_PAGES`].
    pub first: PageId,
    /// Length.
    pub pages: u32,
    /// A file's, or anonymous memory.
    pub file: bool,
    /// Where it is mapped.
    pub mappings: Vec<usize>,
}

/// A segment in an address space.
#[derive(Debug)]
pub struct Mapping {
    /// What is mapped, from its first page to its last.
    pub segment: usize,
    /// Where.
    pub address_space: usize,
    /// Page-table entries; see [`entry`].
    pub entries: Vec<u8>,
    /// Accessed bits of the 2 MiB regions.
    pub regions: Vec<bool>,
    /// Key of the first region.
    pub region_base: u64,
    /// Program text.
    pub executable: bool,
}

/// What a task sees.
#[derive(Debug)]
pub struct AddressSpace {
    /// The group its anonymous memory is charged to.
    pub group: GroupId,
    /// Its mappings.
    pub mappings: Vec<usize>,
    /// Exists.
    pub alive: bool,
    /// Nodes whose walks have not looked at it since it last ran: a bit each.
    pub used: u64,
    /// Number of joinings before it, over all address spaces.
    pub joined: u64,
}

/// Swap space.
#[derive(Debug, Default)]
pub struct SwapSpace {
    /// Slots.
    pub pages: u64,
    /// Slots in use.
    pub used: u64,
    /// Next slot number to try, for devices where position matters.
    next: u32,
    /// Slot of each page, where position matters.
    slot_of: Vec<u32>,
    /// Page of each slot, where position matters.
    page_of: Vec<PageId>,
}

/// Something that ends later.
#[derive(Clone, Copy, Debug)]
pub enum Completion {
    /// Pages `first..first + count` have been read.
    Read {
        /// First page.
        first: PageId,
        /// Number of pages.
        count: u32,
    },
    /// The page has been written.
    Write {
        /// Which.
        page: PageId,
    },
}

/// See the module.
pub struct MachineMemory {
    /// Bits of each page; see [`state`].
    pub state: Vec<u16>,
    /// The lruvec each page is (or was last) charged to.
    pub lruvec: Vec<LruvecId>,
    shadows: Vec<u64>,
    segment_of: Vec<u32>,
    /// All segments.
    pub segments: Vec<Segment>,
    /// All mappings.
    pub mappings: Vec<Mapping>,
    /// All address spaces.
    pub address_spaces: Vec<AddressSpace>,
    next_region: u64,
    joinings: u64,
    /// For each lruvec, the joinings that its last complete walk has seen.
    walked: Vec<u64>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Groups.
    pub groups: Groups,
    /// Swap space.
    pub swap: SwapSpace,
    /// Holds the files.
    pub file_device: Device,
    /// Holds swap; none without swap.
    pub swap_device: Option<Device>,
    /// What work costs.
    pub costs: Costs,
    /// Time now, in nanoseconds.
    pub now: u64,
    /// Requests that end later, to be taken by the event loop.
    pub completions: Vec<(u64, Completion)>,
    /// CPU time that callbacks have cost, to be taken by whoever called the policy.
    pub ledger: Ledger,
    /// Only mappings of this group's subtree count as references, while a limit is reclaimed for.
    pub reference_scope: Option<GroupId>,
    /// Dirty file pages.
    pub dirty: u64,
    /// Pages being written.
    pub writeback: u64,
    /// Front-end's own counts.
    pub counters: Counters,
    /// Pages of files in memory.
    pub file_pages: u64,
    /// Page-table entries cleared by eviction.
    pub unmapped: u64,
}

impl MachineMemory {
    /// Nothing but nodes, groups and devices.
    pub fn new(
        nodes: Vec<Node>,
        groups: Groups,
        file_device: Device,
        swap_device: Option<Device>,
        swap_pages: u64,
        costs: Costs,
    ) -> MachineMemory {
        let lruvecs = nodes.len() * groups.len();
        MachineMemory {
            state: Vec::new(),
            lruvec: Vec::new(),
            shadows: Vec::new(),
            segment_of: Vec::new(),
            segments: Vec::new(),
            mappings: Vec::new(),
            address_spaces: Vec::new(),
            next_region: 0,
            joinings: 0,
            walked: vec![0; lruvecs],
            nodes,
            groups,
            swap: SwapSpace { pages: if swap_device.is_some() { swap_pages } else { 0 }, ..SwapSpace::default() },
            file_device,
            swap_device,
            costs,
            now: 0,
            completions: Vec::new(),
            ledger: Ledger::default(),
            reference_scope: None,
            dirty: 0,
            writeback: 0,
            counters: Counters::default(),
            file_pages: 0,
            unmapped: 0,
        }
    }

    /// Adds a segment of `pages` and returns its index. Ids are exhausted near 2^32: `None`.
    pub fn add_segment(&mut self, pages: u32, file: bool) -> Option<usize> {
        let first = self.segment_of.len() * REGION_PAGES;
        let regions = (pages as usize).div_ceil(REGION_PAGES);
        if first + regions * REGION_PAGES > u32::MAX as usize - REGION_PAGES {
            return None;
        }
        let index = self.segments.len();
        self.segment_of.resize(self.segment_of.len() + regions, index as u32);
        self.segments.push(Segment { first: first as PageId, pages, file, mappings: Vec::new() });
        Some(index)
    }

    /// Allocates the page arrays, once all segments are there. They are zero pages of the host until they are used, so
    /// idle memory costs nothing.
    pub fn seal(&mut self) {
        let ids = self.page_ids();
        self.state = vec![0; ids];
        self.lruvec = vec![0; ids];
        self.shadows = vec![0; ids];
        if self.swap_device.as_ref().is_some_and(|d| d.model().rotating) {
            self.swap.slot_of = vec![u32::MAX; ids];
            self.swap.page_of = vec![PageId::MAX; self.swap.pages as usize];
        }
    }

    /// Page ids are below this.
    pub fn page_ids(&self) -> usize {
        self.segment_of.len() * REGION_PAGES
    }

    /// Adds an address space that charges its memory to `group`.
    pub fn add_address_space(&mut self, group: GroupId) -> usize {
        self.joinings += 1;
        self.address_spaces.push(AddressSpace {
            group,
            mappings: Vec::new(),
            alive: true,
            used: u64::MAX,
            joined: self.joinings,
        });
        self.address_spaces.len() - 1
    }

    /// A killed or ended program starts again in the same place.
    pub fn revive(&mut self, address_space: usize) {
        self.joinings += 1;
        let space = &mut self.address_spaces[address_space];
        (space.alive, space.joined, space.used) = (true, self.joinings, u64::MAX);
    }

    /// Maps a whole segment into an address space.
    pub fn add_mapping(&mut self, address_space: usize, segment: usize, executable: bool) -> usize {
        let pages = self.segments[segment].pages as usize;
        let index = self.mappings.len();
        let regions = pages.div_ceil(REGION_PAGES);
        self.mappings.push(Mapping {
            segment,
            address_space,
            entries: vec![0; pages],
            regions: vec![false; regions],
            region_base: self.next_region,
            executable,
        });
        self.next_region += regions as u64;
        self.segments[segment].mappings.push(index);
        self.address_spaces[address_space].mappings.push(index);
        index
    }

    /// Owner of a page.
    #[inline]
    pub fn segment(&self, page: PageId) -> &Segment {
        &self.segments[self.segment_of[page as usize / REGION_PAGES] as usize]
    }

    /// Whether the page is a file's.
    #[inline]
    pub fn is_file(&self, page: PageId) -> bool {
        self.segment(page).file
    }

    /// Whether all of `bits` are set.
    #[inline]
    pub fn has(&self, page: PageId, bits: u16) -> bool {
        self.state[page as usize] & bits == bits
    }

    /// Group of an lruvec.
    #[inline]
    pub fn group_of(&self, lruvec: LruvecId) -> GroupId {
        usize::from(lruvec) / self.nodes.len()
    }

    /// Node of an lruvec.
    #[inline]
    pub fn node_of(&self, lruvec: LruvecId) -> usize {
        usize::from(lruvec) % self.nodes.len()
    }

    /// The lruvec of a group on a node.
    #[inline]
    pub fn lruvec_of(&self, group: GroupId, node: usize) -> LruvecId {
        (group * self.nodes.len() + node) as LruvecId
    }

    /// Takes the shadow entry out of a page's slot.
    #[inline]
    pub fn take_shadow(&mut self, page: PageId) -> Option<Shadow> {
        let word = std::mem::take(&mut self.shadows[page as usize]);
        (word != 0).then_some(Shadow(word))
    }

    /// A page takes a frame of its lruvec's node; it must have been charged and the frame be free.
    #[inline]
    pub fn insert(&mut self, page: PageId, lruvec: LruvecId, bits: u16) {
        debug_assert!(!self.has(page, state::RESIDENT));
        let node = self.node_of(lruvec);
        self.nodes[node].free -= 1;
        self.lruvec[page as usize] = lruvec;
        self.file_pages += u64::from(self.is_file(page));
        let kept = self.state[page as usize] & state::SLOT;
        self.state[page as usize] = state::RESIDENT | state::SEEN | kept | bits;
        if kept != 0 && self.swap_device.as_ref().is_some_and(Device::is_synchronous) {
            self.release_slot(page);
        }
    }

    /// Gives a page's swap slot back.
    pub fn release_slot(&mut self, page: PageId) {
        debug_assert!(self.has(page, state::SLOT));
        self.state[page as usize] &= !state::SLOT;
        self.swap.used -= 1;
        if !self.swap.slot_of.is_empty() {
            let slot = std::mem::replace(&mut self.swap.slot_of[page as usize], u32::MAX);
            self.swap.page_of[slot as usize] = PageId::MAX;
        }
        let group = self.group_of(self.lruvec[page as usize]);
        self.groups.charge_swap(group, -1);
    }

    fn take_slot(&mut self, page: PageId) -> bool {
        let group = self.group_of(self.lruvec[page as usize]);
        if self.swap.used >= self.swap.pages || self.groups.swap_headroom(group) == 0 {
            return false;
        }
        self.swap.used += 1;
        self.groups.charge_swap(group, 1);
        self.state[page as usize] |= state::SLOT;
        if !self.swap.slot_of.is_empty() {
            let slots = self.swap.page_of.len() as u32;
            let mut slot = self.swap.next;
            while self.swap.page_of[slot as usize] != PageId::MAX {
                slot = (slot + 1) % slots;
            }
            self.swap.next = (slot + 1) % slots;
            self.swap.slot_of[page as usize] = slot;
            self.swap.page_of[slot as usize] = page;
        }
        true
    }

    /// Where a page lies on its swap device.
    pub fn swap_position(&self, page: PageId) -> u64 {
        self.swap.slot_of.get(page as usize).map_or(u64::from(page), |slot| u64::from(*slot))
    }

    /// The page in a swap slot, where positions are kept.
    pub fn page_in_slot(&self, slot: u64) -> Option<PageId> {
        self.swap.page_of.get(slot as usize).copied().filter(|page| *page != PageId::MAX)
    }

    /// Maps a resident page; young, and writable if `write`.
    #[inline]
    pub fn map(&mut self, mapping: usize, page: PageId, write: bool, young: bool) {
        let target = &mut self.mappings[mapping];
        let offset = (page - self.segments[target.segment].first) as usize;
        let mut bits = target.entries[offset] | entry::PRESENT;
        if young {
            bits |= entry::YOUNG;
            target.regions[offset / REGION_PAGES] = true;
        }
        if write {
            bits |= entry::WRITABLE;
        }
        target.entries[offset] = bits;
    }

    /// The contents now differ from what the device holds.
    pub fn mark_dirty(&mut self, page: PageId) -> bool {
        let state = &mut self.state[page as usize];
        if *state & state::DIRTY != 0 {
            return false;
        }
        *state |= state::DIRTY;
        if self.is_file(page) {
            self.dirty += 1;
            return true;
        }
        false
    }

    /// Starts writing a dirty file page. On a synchronous device the time goes to the ledger and the page is clean when
    /// this returns.
    pub fn write_file_page(&mut self, page: PageId) {
        debug_assert!(self.has(page, state::RESIDENT | state::DIRTY));
        self.state[page as usize] &= !state::DIRTY;
        self.dirty -= 1;
        let segment = self.segment_of[page as usize / REGION_PAGES] as usize;
        let offset = (page - self.segments[segment].first) as usize;
        for index in 0..self.segments[segment].mappings.len() {
            let mapping = self.segments[segment].mappings[index];
            self.mappings[mapping].entries[offset] &= !entry::WRITABLE;
        }
        if self.file_device.is_synchronous() {
            let cost = self.file_device.synchronous_cost(Direction::Write, 1);
            self.ledger.book(Work::Write, cost);
        } else {
            self.state[page as usize] |= state::WRITEBACK;
            self.writeback += 1;
            let done = self.file_device.submit(self.now, Direction::Write, u64::from(page), 1);
            self.completions.push((done, Completion::Write { page }));
        }
    }

    /// The write of a page has ended.
    pub fn end_write(&mut self, page: PageId) {
        debug_assert!(self.has(page, state::WRITEBACK));
        self.state[page as usize] &= !state::WRITEBACK;
        self.writeback -= 1;
    }

    /// Gives a resident page's frame back without leaving a shadow entry, and forgets its contents.
    pub fn discard(&mut self, page: PageId) {
        debug_assert!(self.has(page, state::RESIDENT));
        self.unmap(page);
        if self.has(page, state::SLOT) {
            self.release_slot(page);
        }
        self.release_frame(page, 0);
    }

    /// Forgets the contents of a page that is only in swap.
    pub fn discard_swapped(&mut self, page: PageId) {
        if self.has(page, state::SLOT) {
            self.release_slot(page);
        }
        self.state[page as usize] = 0;
        self.shadows[page as usize] = 0;
    }

    fn release_frame(&mut self, page: PageId, bits: u16) {
        if self.is_file(page) {
            self.file_pages -= 1;
            self.dirty -= u64::from(self.has(page, state::DIRTY));
        }
        self.state[page as usize] = bits;
        let lruvec = self.lruvec[page as usize];
        let (group, node) = (self.group_of(lruvec), self.node_of(lruvec));
        self.nodes[node].free += 1;
        self.groups.charge(group, -1);
    }

    /// Clears all entries of a page; how many there were.
    fn unmap(&mut self, page: PageId) -> u64 {
        let segment = self.segment_of[page as usize / REGION_PAGES] as usize;
        let segment = &self.segments[segment];
        let offset = (page - segment.first) as usize;
        let mut cleared = 0;
        for &mapping in &segment.mappings {
            let bits = &mut self.mappings[mapping].entries[offset];
            cleared += u64::from(*bits & entry::PRESENT != 0);
            *bits = 0;
        }
        self.unmapped += cleared;
        cleared
    }

    /// Whether any entry maps the page.
    pub fn mapped(&self, page: PageId) -> bool {
        let segment = self.segment(page);
        let offset = (page - segment.first) as usize;
        segment.mappings.iter().any(|m| self.mappings[*m].entries[offset] & entry::PRESENT != 0)
    }

    /// Writes an anonymous page to its slot; true if it is done already.
    fn swap_out(&mut self, page: PageId) -> bool {
        self.counters.pswpout += 1;
        self.state[page as usize] &= !state::DIRTY;
        let position = self.swap_position(page);
        let device = self.swap_device.as_mut().expect("invariant: a page with a slot has a swap device");
        if device.is_synchronous() {
            let cost = device.synchronous_cost(Direction::Write, 1);
            self.ledger.book(Work::Write, cost);
            return true;
        }
        let done = device.submit(self.now, Direction::Write, position, 1);
        self.ledger.book(Work::Write, self.costs.submit);
        self.state[page as usize] |= state::WRITEBACK;
        self.writeback += 1;
        self.completions.push((done, Completion::Write { page }));
        false
    }

    /// Page-table entries of mapping `mapping` from `start` to `end` whose page is young and wanted: clears the bit and
    /// reports them. Returns how many.
    fn harvest(
        mapping: &mut Mapping,
        first: PageId,
        range: std::ops::Range<usize>,
        mut report: impl FnMut(PageId) -> bool,
    ) -> u32 {
        const WANTED: u8 = entry::PRESENT | entry::YOUNG;
        let mut found = 0;
        for (offset, bits) in mapping.entries[range.clone()].iter_mut().enumerate() {
            if *bits & WANTED == WANTED && report(first + (range.start + offset) as PageId) {
                *bits &= !entry::YOUNG;
                found += 1;
            }
        }
        found
    }

    /// Bytes of bookkeeping.
    pub fn metadata_bytes(&self) -> usize {
        self.state.len() * 2
            + self.lruvec.len() * 2
            + self.shadows.len() * 8
            + self.mappings.iter().map(|m| m.entries.len() + m.regions.len()).sum::<usize>()
    }
}

impl Memory for MachineMemory {
    fn take_references(&mut self, page: PageId) -> References {
        let mut references = References::default();
        let bits = &mut self.state[page as usize];
        if *bits & state::TOUCHED != 0 {
            *bits &= !state::TOUCHED;
            references.mappings = 1;
        }
        let segment = &self.segments[self.segment_of[page as usize / REGION_PAGES] as usize];
        let offset = (page - segment.first) as usize;
        let mut followed = 0;
        for &index in &segment.mappings {
            let mapping = &mut self.mappings[index];
            let bits = mapping.entries[offset];
            if bits & entry::PRESENT == 0 {
                continue;
            }
            if let Some(scope) = self.reference_scope {
                let group = self.address_spaces[mapping.address_space].group;
                if group != scope && !self.groups.is_below(group, scope) {
                    continue;
                }
            }
            followed += 1;
            if bits & entry::YOUNG != 0 {
                mapping.entries[offset] = bits & !entry::YOUNG;
                references.mappings += 1;
                references.executable |= mapping.executable;
            }
        }
        self.ledger.book(Work::ReverseMap, followed * self.costs.reverse_map);
        references
    }

    #[inline]
    fn is_mapped(&self, page: PageId) -> bool {
        self.mapped(page)
    }

    #[inline]
    fn io_state(&self, page: PageId) -> IoState {
        let bits = self.state[page as usize];
        let mut io = IoState::CLEAN;
        if bits & state::LOCKED != 0 {
            io = io.with(IoState::LOCKED);
        }
        if bits & state::WRITEBACK != 0 {
            io = io.with(IoState::WRITEBACK);
        }
        if bits & state::DIRTY != 0 && self.is_file(page) {
            io = io.with(IoState::DIRTY);
        }
        io
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        let bits = self.state[page as usize];
        debug_assert!(bits & state::RESIDENT != 0, "page {page} is evicted twice");
        if bits & (state::LOCKED | state::WRITEBACK) != 0 {
            return Eviction::Kept;
        }
        let mut pages_written = 0;
        if self.is_file(page) {
            if bits & state::DIRTY != 0 {
                self.counters.nr_vmscan_write += 1;
                self.write_file_page(page);
                if self.has(page, state::WRITEBACK) {
                    return Eviction::WriteStarted;
                }
                pages_written = 1;
            }
        } else if bits & state::SLOT == 0 || bits & state::DIRTY != 0 {
            if bits & state::SLOT == 0 && !self.take_slot(page) {
                return Eviction::Refused;
            }
            let cleared = self.unmap(page);
            self.ledger.book(Work::Batch, cleared * self.costs.unmap);
            if !self.swap_out(page) {
                return Eviction::WriteStarted;
            }
            pages_written = 1;
        }
        let cleared = self.unmap(page);
        self.ledger.book(Work::Batch, cleared * self.costs.unmap + self.costs.remove_page);
        let slot = self.state[page as usize] & state::SLOT;
        self.release_frame(page, state::SEEN | slot);
        self.shadows[page as usize] = shadow.0;
        Eviction::Freed { pages_written }
    }

    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        let segment = &self.segments[self.segment_of[page as usize / REGION_PAGES] as usize];
        let (first, at) = (segment.first, (page - segment.first) as usize);
        // The mapping through which the page was found young: the first that has it. For memory that several address
        // spaces share, one of them stands for all.
        let index = segment.mappings.iter().copied().find(|m| self.mappings[*m].entries[at] & entry::PRESENT != 0)?;
        let mapping = &mut self.mappings[index];
        let region = at / REGION_PAGES;
        let (mut start, mut end) = (region * REGION_PAGES, ((region + 1) * REGION_PAGES).min(mapping.entries.len()));
        if end - start > WINDOW {
            if at - start < WINDOW / 2 {
                end = start + WINDOW;
            } else if end - at < WINDOW / 2 {
                start = end - WINDOW;
            } else {
                (start, end) = (at - WINDOW / 2, at + WINDOW / 2);
            }
        }
        if end - start <= 1 {
            return None;
        }
        let young = Self::harvest(mapping, first, start..end, |neighbour| {
            let wanted = neighbour != page && visitor.eligible(neighbour);
            if wanted {
                visitor.young(neighbour);
            }
            wanted
        });
        let entries = (end - start) as u32;
        self.ledger.book(Work::LookAround, u64::from(entries) * self.costs.look_around_entry);
        Some(Neighbourhood { region: mapping.region_base + region as u64, entries, young: young + 1 })
    }

    fn walk<V: Walk>(&mut self, lruvec: LruvecId, visitor: &mut V) -> bool {
        let (group, node_bit) = (self.group_of(lruvec), 1u64 << (self.node_of(lruvec) & 63));
        let seen = self.walked[usize::from(lruvec)];
        let mut entries_seen = 0u64;
        let mut regions_seen = 0u64;
        for space in 0..self.address_spaces.len() {
            let address_space = &mut self.address_spaces[space];
            if !address_space.alive || address_space.group != group {
                continue;
            }
            let forced = address_space.joined > seen;
            if !forced {
                if address_space.used & node_bit == 0 {
                    continue;
                }
                address_space.used &= !node_bit;
            }
            visitor.starts();
            for at in 0..self.address_spaces[space].mappings.len() {
                let index = self.address_spaces[space].mappings[at];
                let mapping = &mut self.mappings[index];
                let first = self.segments[mapping.segment].first;
                for region in 0..mapping.regions.len() {
                    let accessed = std::mem::take(&mut mapping.regions[region]);
                    regions_seen += 1;
                    let key = mapping.region_base + region as u64;
                    if !visitor.enters(key, Some(accessed), forced) {
                        continue;
                    }
                    let start = region * REGION_PAGES;
                    let end = (start + REGION_PAGES).min(mapping.entries.len());
                    entries_seen += (end - start) as u64;
                    let young = Self::harvest(mapping, first, start..end, |page| {
                        let wanted = visitor.eligible(page);
                        if wanted {
                            visitor.young(page);
                        }
                        wanted
                    });
                    visitor.leaves(key, (end - start) as u32, young);
                }
            }
        }
        self.walked[usize::from(lruvec)] = self.joinings;
        self.ledger
            .book(Work::TableWalk, regions_seen * self.costs.table_region + entries_seen * self.costs.table_entry);
        true
    }

    #[inline]
    fn free_swap(&self, lruvec: LruvecId) -> u64 {
        (self.swap.pages - self.swap.used).min(self.groups.swap_headroom(self.group_of(lruvec)))
    }

    #[inline]
    fn protection(&self, lruvec: LruvecId) -> Option<Protection> {
        if !self.groups.are_protected() {
            return None;
        }
        let group = &self.groups[self.group_of(lruvec)];
        group.parent.map(|_| Protection { usage: group.usage, min: group.effective_min, low: group.effective_low })
    }

    fn low_event(&mut self, lruvec: LruvecId) {
        let group = self.group_of(lruvec);
        self.groups.count_event(group, |events| events.low += 1);
    }

    #[inline]
    fn node_frames(&self, lruvec: LruvecId) -> NodeFrames {
        let node = &self.nodes[self.node_of(lruvec)];
        NodeFrames { free: node.free, high_watermark: node.watermarks.high }
    }

    #[inline]
    fn needs_write(&self, page: PageId) -> bool {
        let bits = self.state[page as usize];
        bits & state::DIRTY != 0 || (bits & state::SLOT == 0 && !self.is_file(page))
    }

    #[inline]
    fn has_swap(&self) -> bool {
        self.swap.pages > 0
    }

    #[inline]
    fn now(&self) -> u64 {
        self.now
    }
}
