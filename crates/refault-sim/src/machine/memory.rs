//! The machine's memory: pages, files, swap slots, address spaces with page tables, nodes and groups.
//!
//! Page ids are handed out in *segments*: the anonymous memory of one address space, or one file. Each segment starts
//! on a 2 MiB boundary, so an id's region and owner are found by index.
//!
//! ```text
//! memory.rs            pages: bits, frames, contents
//! ├─ address_space.rs  mappings and page-table entries
//! ├─ swap.rs           slots
//! └─ answers.rs        what the policy asks
//! ```
//!
//! Invariants: a page-table entry is present only while its page is resident; a resident page is charged to exactly one
//! group and takes one frame of one node; a page has a swap slot iff [`state::SLOT`] is set; every change of these goes
//! through this module. Cost: O(1) per page.
//!
//! ```
//! use refault_core::textbook::Clock;
//! use refault_sim::machine::Machine;
//! use refault_sim::machine::scenario::Scenario;
//!
//! let scenario = Scenario::parse(
//!     r#"
//!     [machine]
//!     memory = "16M"
//!     swap = "64M"
//!     swap_device = "zram-lz4"
//!     [[task]]
//!     name = "reader"
//!     [[task.workload]]
//!     spec = "uniform:pages=8192,accesses=20000,kind=anon"
//!     "#,
//!     "example.toml",
//! )?;
//! let machine = Machine::new(scenario.config, Clock::default())?;
//! assert!(machine.memory().page_ids() >= 8192 && !machine.memory().is_file(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address_space;
mod answers;
mod swap;

pub use address_space::{AddressSpace, Mapping, entry};
pub use swap::SwapSpace;

use refault_core::{Counters, LruvecId, PageId, Shadow};

use super::costs::{Costs, Ledger, Work};
use super::device::{Device, Direction};
use super::frames::MachineFrames;
use super::group::{GroupId, Groups};
use super::node::Node;
use super::tree_lock::Removed;

/// Pages that files and tasks may have together: 1 TiB, which costs the host some 2 GiB. More would be found out by an
/// allocation that fails.
pub const MAX_PAGES: usize = 1 << 28;

/// Pages of a 2 MiB region.
pub const REGION_PAGES: usize = 512;

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
    /// Accessed since the bit was last taken, by whatever means: for policies that want to know of each access by a
    /// bit.
    pub const TOUCHED: u16 = 1 << 7;
    /// Read ahead and not used yet.
    pub const AHEAD: u16 = 1 << 8;
    /// Came back as part of the working set: waiting for it is waiting for memory.
    pub const WORKINGSET: u16 = 1 << 9;
    /// Not accessed since the monitor made it old, as far as reclaim's reference checks know.
    pub const IDLE: u16 = 1 << 10;
    /// The monitor took an accessed bit: reclaim's next reference check counts it.
    pub const HINT: u16 = 1 << 11;
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
    /// Pages of each segment that reclaim has evicted since it was last asked for them, and the segments that have any.
    pub removed: Removed,
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
    /// CPU time that callbacks have cost, to be charged to the policy's caller.
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
    /// Reclaim found nothing but dirty file pages: the flusher is to write.
    pub flushers_woken: bool,
    /// Ticks that the reclaimer is to sleep because of congestion.
    pub congestion_ticks: u64,
    /// The frames of all nodes, where they are more than counted.
    pub frames: Option<Box<MachineFrames>>,
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
            removed: Removed::default(),
            segments: Vec::new(),
            mappings: Vec::new(),
            address_spaces: Vec::new(),
            next_region: 0,
            joinings: 0,
            walked: vec![0; lruvecs],
            nodes,
            groups,
            swap: SwapSpace::new(if swap_device.is_some() { swap_pages } else { 0 }),
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
            flushers_woken: false,
            congestion_ticks: 0,
            frames: None,
        }
    }

    /// Adds a segment of `pages` and returns its index; `None` if there would be more than [`MAX_PAGES`].
    pub fn add_segment(&mut self, pages: u32, file: bool) -> Option<usize> {
        let first = self.segment_of.len() * REGION_PAGES;
        let regions = (pages as usize).div_ceil(REGION_PAGES);
        if first + regions * REGION_PAGES > MAX_PAGES {
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
            self.swap.keep_positions(ids);
        }
    }

    /// Page ids are below this.
    pub fn page_ids(&self) -> usize {
        self.segment_of.len() * REGION_PAGES
    }

    /// Notes that a page was taken out of its segment's tree.
    #[inline]
    pub(super) fn note_removed(&mut self, page: PageId) {
        let segment = self.segment_of[page as usize / REGION_PAGES];
        self.removed.add(segment);
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
        let nodes = self.nodes.len() as LruvecId;
        // Most machines have one node, and a division takes longer than everything else here.
        usize::from(if nodes == 1 { lruvec } else { lruvec / nodes })
    }

    /// Node of an lruvec.
    #[inline]
    pub fn node_of(&self, lruvec: LruvecId) -> usize {
        let nodes = self.nodes.len() as LruvecId;
        usize::from(if nodes == 1 { 0 } else { lruvec % nodes })
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
        if let Some(frames) = &mut self.frames {
            frames.take(node, page);
        }
        self.lruvec[page as usize] = lruvec;
        self.file_pages += u64::from(self.is_file(page));
        let kept = self.state[page as usize] & state::SLOT;
        self.state[page as usize] = state::RESIDENT | state::SEEN | kept | bits;
        if kept != 0 && self.swap_device.as_ref().is_some_and(Device::is_synchronous) {
            self.release_slot(page);
        }
    }

    /// The node on which an evicted page's frame still holds its contents.
    #[inline]
    pub fn cached_on(&self, page: PageId) -> Option<usize> {
        self.frames.as_ref()?.cached_on(page)
    }

    /// A page that is cached on its lruvec's node becomes resident in the frame it had; it must have been charged.
    pub fn reactivate(&mut self, page: PageId, lruvec: LruvecId, bits: u16) {
        let node = self.node_of(lruvec);
        let back = self.frames.as_mut().is_some_and(|frames| frames.reactivate(node, page));
        debug_assert!(back, "page {page} is not cached on node {node}");
        self.insert(page, lruvec, bits);
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
        if let Some(frames) = &mut self.frames {
            frames.forget(page);
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
        if let Some(frames) = &mut self.frames {
            frames.give_back(node, page, bits & state::SEEN != 0);
        }
        self.groups.charge(group, -1);
    }

    /// Bytes of bookkeeping.
    pub fn metadata_bytes(&self) -> usize {
        self.state.len() * 2
            + self.lruvec.len() * 2
            + self.shadows.len() * 8
            + self.frames.as_ref().map_or(0, |frames| frames.metadata_bytes())
            + self.mappings.iter().map(|m| m.entries.len() + m.regions.len()).sum::<usize>()
    }
}
