//! Where pages are: what a policy may ask of the memory that a front-end owns.
//!
//! Invariants: the front-end (or the hardware under it) sets the accessed bit of a page on each access through a
//! mapping. The bit is cleared only here. A page is evicted at most once between two admissions; `evict` that answers
//! [`Eviction::Freed`] has made the frame free and remembered the shadow.
//!
//! [`Memory`] is what every memory has. An extension that a memory lacks answers through [`free_swap`], [`protection`]
//! and the other functions here as they say; a policy that has nothing to do without it asks for the extension itself.
//!
//! Kernel: `folio_referenced`, `try_to_unmap` in `mm/rmap.c`; `lru_gen_look_around`, `walk_mm`, `pageout`,
//! `__remove_mapping`, `reclaim_throttle` in `mm/vmscan.c`; `mem_cgroup_get_nr_swap_pages` in `mm/memcontrol.c`;
//! `wakeup_flusher_threads` in `fs/fs-writeback.c`; `folio_alloc_swap` in `mm/swapfile.c`.
//!
//! ```
//! use refault_core::memory::{Eviction, IoState, Memory, References, free_swap};
//! use refault_core::{PageId, Shadow};
//!
//! /// The least that a front-end's memory is: accessed bits, and frames that can be freed.
//! struct Frames {
//!     accessed: Vec<bool>,
//!     resident: Vec<bool>,
//! }
//!
//! impl Memory for Frames {
//!     fn take_references(&mut self, page: PageId) -> References {
//!         let accessed = std::mem::take(&mut self.accessed[page as usize]);
//!         References { mappings: u32::from(accessed), ..References::default() }
//!     }
//!     fn evict(&mut self, page: PageId, _shadow: Shadow) -> Eviction {
//!         self.resident[page as usize] = false;
//!         Eviction::Freed { pages_written: 0 }
//!     }
//!     fn is_resident(&self, page: PageId) -> bool {
//!         self.resident[page as usize]
//!     }
//! }
//! let mut frames = Frames { accessed: vec![true], resident: vec![true] };
//! assert!(!frames.io_state(0).any(IoState::DIRTY.with(IoState::LOCKED)), "pages are clean unless a front-end says
//! so");
//! assert!(frames.swap().is_none(), "what only some memories have is asked for");
//! assert_eq!(free_swap(&mut frames, 0), 0);
//! ```

pub mod readahead;

use crate::page::{LruvecId, PageId, Shadow};

/// The answer to a reference check of one page (spec: classic §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Number of *mappings* (not page-table entries) in which the accessed bit was set; it is now clear.
    pub mappings: u32,
    /// One of those mappings is executable.
    pub executable: bool,
    /// The page is locked into memory by one of its mappings.
    pub locked: bool,
}

/// What a page's contents are doing, as far as eviction cares (spec: overview §5). A set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoState(pub u8);

impl IoState {
    /// Nothing to write, nothing in flight.
    pub const CLEAN: IoState = IoState(0);
    /// The contents differ from the backing store. Anonymous pages without a swap slot need not say so.
    pub const DIRTY: IoState = IoState(1);
    /// A write of the contents is in flight.
    pub const WRITEBACK: IoState = IoState(2);
    /// The page is locked.
    pub const LOCKED: IoState = IoState(4);
    /// The page must not be evicted (mlock, ramfs).
    pub const UNEVICTABLE: IoState = IoState(8);

    /// Whether any of the bits in `other` is set.
    #[inline]
    pub const fn any(self, other: IoState) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets of bits.
    #[inline]
    pub const fn with(self, other: IoState) -> IoState {
        IoState(self.0 | other.0)
    }
}

/// What became of a page that a policy asked to evict (spec: overview §5, rows 10–19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The frame is free and the shadow is stored. `pages_written` pages went to the backing store on the way
    /// (0 when the contents were clean; at most the folio's size).
    Freed {
        /// Pages written to free this one.
        pages_written: u32,
    },
    /// A write was started; the page stays until it ends and [`crate::policy::NodeReclaim::write_finished`] is called.
    WriteStarted,
    /// Cannot go now (extra references, I/O not allowed): it goes back to where it came from.
    Kept,
    /// Cannot go for long (no swap slot, dirty file page, write refused): it goes back as active.
    Refused,
}

/// A group's effective protection against reclaim by others, in pages (spec: overview §4.4, §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Pages charged to the group and those below it.
    pub usage: u64,
    /// Up to here the group is never reclaimed from.
    pub min: u64,
    /// Up to here it is reclaimed from only if no group has unprotected memory left.
    pub low: u64,
}

/// Frames of a memory node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFrames {
    /// Frames that hold nothing.
    pub free: u64,
    /// Background reclaim stops when more than that are free.
    pub high_watermark: u64,
}

/// A 2 MiB-aligned stretch of virtual memory, the unit of a second-level page-table entry; unique over all address
/// spaces of a front-end. Only equality and hash matter.
pub type RegionKey = u64;

/// Called by [`PageTables::walk`] for what a page-table walk meets.
pub trait Walk {
    /// An address space is about to be walked. Spaces that did not run since the last walk are passed over
    /// unless the walk is [`Walk::forced`].
    fn starts(&mut self);
    /// Nothing is to be passed over: neither address spaces that did not run nor regions that do not look worth it.
    fn forced(&self) -> bool {
        false
    }
    /// Whether to look at the entries of this region. `region_accessed` is the accessed bit of the second-level entry,
    /// which the memory clears when it is asked for (`None`: the machine has no such bit); `forced` means that the
    /// address space joined after the last complete walk.
    fn enters(&mut self, region: RegionKey, region_accessed: Option<bool>, forced: bool) -> bool;
    /// Whether pages of this lruvec and type are of interest; their accessed bit is only cleared if so.
    fn eligible(&mut self, page: PageId) -> bool;
    /// A present page whose accessed bit was set and has been cleared.
    fn young(&mut self, page: PageId);
    /// The region is done: `entries` slots looked at, `young` of them reported by [`Walk::young`].
    fn leaves(&mut self, region: RegionKey, entries: u32, young: u32);
}

/// Called by [`PageTables::look_around`] for the neighbours of a page.
pub trait LookAround {
    /// Whether the neighbour counts; its accessed bit is only cleared if so.
    fn eligible(&mut self, page: PageId) -> bool;
    /// A neighbour whose accessed bit was set and has been cleared.
    fn young(&mut self, page: PageId);
}

/// What [`PageTables::look_around`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbourhood {
    /// The region that the page lies in.
    pub region: RegionKey,
    /// Entries in the window, the page itself included (1..=64).
    pub entries: u32,
    /// Entries that were young, the page itself included (at least 1).
    pub young: u32,
}

/// The memory below a policy: accessed bits, contents, eviction.
///
/// Implemented by the trace replay, the simulated machine, the page cache and the pager. Three methods are required;
/// the others have defaults for a memory whose pages are always clean and never mapped (a page cache). What only some
/// memories have are traits of their own, each reached through one method that answers `None` by default:
/// [`PageTables`], [`SwapSpace`], [`Groups`], [`Writeback`] and [`ShadowNodes`].
///
/// Cost: every method is O(1), or O(mappings of the page) where a page has several.
pub trait Memory {
    /// Tests and clears the accessed bit of every mapping of `page`. Mappings without recency never count.
    fn take_references(&mut self, page: PageId) -> References;

    /// Unmaps, writes if necessary and frees the page, leaving `shadow` in its slot.
    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction;

    /// Whether the page has been admitted and has not gone since.
    fn is_resident(&self, page: PageId) -> bool;

    /// Whether [`Memory::take_references`] can ever find a reference. Where it cannot, a policy learns of the use of
    /// a page only when it is asked for while it is out.
    fn has_accessed_bits(&self) -> bool {
        true
    }

    /// Whether at least one page-table entry maps the page.
    fn is_mapped(&self, page: PageId) -> bool {
        let _ = page;
        false
    }

    /// What the page's contents are doing.
    #[inline]
    fn io_state(&self, page: PageId) -> IoState {
        let _ = page;
        IoState::CLEAN
    }

    /// Resident pages that were read ahead and that no reader has asked for yet; by default there are none.
    #[inline]
    fn unread(&self) -> u32 {
        0
    }

    /// The front-end's time in nanoseconds, for the birth of generations. Any monotonic unit does.
    fn now(&self) -> u64 {
        0
    }

    /// Page tables that can be walked. `None`: accessed bits are only found page by page.
    #[inline]
    fn page_tables(&mut self) -> Option<&mut impl PageTables> {
        None::<&mut Absent>
    }

    /// Swap, for anonymous pages. `None`: there is none, and anonymous pages stay.
    #[inline]
    fn swap(&mut self) -> Option<&mut impl SwapSpace> {
        None::<&mut Absent>
    }

    /// Groups with protections, and nodes. `None`: there is one group, which is not protected.
    #[inline]
    fn groups(&mut self) -> Option<&mut impl Groups> {
        None::<&mut Absent>
    }

    /// Writes of dirty pages without eviction. `None`: pages are only written as they are evicted, and every object
    /// counts as in use.
    #[inline]
    fn writeback(&mut self) -> Option<&mut impl Writeback> {
        None::<&mut Absent>
    }

    /// Nodes of files' trees, which reclaim takes back. `None`: shadow entries are kept until their pages return.
    #[inline]
    fn shadow_nodes(&mut self) -> Option<&mut impl ShadowNodes> {
        None::<&mut Absent>
    }

    /// The page will be checked, evicted or brought in soon: a chance to let its cache misses overlap with those of
    /// others. Returns anything that depends on what was read, so that the reads are not optimised away.
    #[doc(hidden)]
    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        let _ = page;
        0
    }
}

/// A memory with page tables.
pub trait PageTables {
    /// Looks at the up to 64 page-table entries around the one through which `page` was just found young
    /// (spec: mglru §8). `None` where neighbours cannot be looked at, which is the default, or the window is one page.
    fn look_around<V: LookAround>(&mut self, page: PageId, visitor: &mut V) -> Option<Neighbourhood> {
        let _ = (page, visitor);
        None
    }

    /// Walks the page tables of all address spaces that belong to the lruvec's group (spec: mglru §7).
    /// Returns false if page-table walks are not available here.
    fn walk<V: Walk>(&mut self, lruvec: LruvecId, visitor: &mut V) -> bool;

    /// The same for one of `parts` equal parts of the page tables, from 0 on. A memory that cannot divide them walks
    /// all at part 0, which is the default.
    fn walk_part<V: Walk>(&mut self, lruvec: LruvecId, part: u32, parts: u32, visitor: &mut V) -> bool {
        let _ = parts;
        part != 0 || self.walk(lruvec, visitor)
    }

    /// As [`Memory::take_references`], but the walk over the page's mappings stops at the `limit`-th whose accessed bit
    /// is set: bits that it does not reach stay set, and the next walk starts behind it (spec: freebsd §3.1). `None`,
    /// the default: it cannot stop, as is right where a page has one mapping, and nothing was cleared.
    #[inline]
    fn take_references_up_to(&mut self, page: PageId, limit: u32) -> Option<References> {
        let _ = (page, limit);
        None
    }
}

/// A memory with swap.
pub trait SwapSpace {
    /// Swap space, in pages, that the group of this lruvec may still use.
    fn free_swap(&self, lruvec: LruvecId) -> u64;

    /// Whether there is swap at all, full or not. By default: whether the first group may use some.
    #[inline]
    fn has_swap(&self) -> bool {
        self.free_swap(0) > 0
    }

    /// Whether evicting the page costs a write although [`Memory::io_state`] does not call it dirty: above all, it is
    /// anonymous and no slot holds the same contents. By default no such page is.
    #[inline]
    fn needs_write(&self, page: PageId) -> bool {
        let _ = page;
        false
    }

    /// Whether the page has a swap slot, which makes it a page of the swap cache. `None`, the default: it is as its
    /// admission and the batch stage left it.
    fn in_swap_cache(&self, page: PageId) -> Option<bool> {
        let _ = page;
        None
    }

    /// Begins what [`Memory::evict`] does, and gets no further because something else holds a reference to the page:
    /// an anonymous page gets a swap slot, nothing maps the page any more, and it is not written. The answer is
    /// [`Eviction::Kept`], or [`Eviction::Refused`] without a slot. A memory that cannot do this leaves the page as it
    /// is, which is the default.
    fn evict_held(&mut self, page: PageId) -> Eviction {
        let _ = page;
        Eviction::Kept
    }
}

/// A memory that is shared by groups, over one or more nodes.
pub trait Groups {
    /// The protection of an lruvec's group; `None`: this group is not protected.
    fn protection(&self, lruvec: LruvecId) -> Option<Protection>;

    /// Frames of an lruvec's node. Only reclaim of whole nodes asks.
    fn node_frames(&self, lruvec: LruvecId) -> NodeFrames;

    /// A group was reclaimed from although it is below its soft protection. By default it is not counted.
    fn low_event(&mut self, lruvec: LruvecId) {
        let _ = lruvec;
    }
}

/// A memory in which dirty pages are written without being evicted: by flushers, or because a policy asks.
pub trait Writeback {
    /// Reclaim met nothing but dirty file pages whose write has not begun: flushers should begin it.
    fn wake_flushers(&mut self) {}

    /// All dirty pages that reclaim of this lruvec's subtree meets wait for the device: a reclaimer that is not the
    /// background one sleeps for one tick, if the front-end has a clock and thinks it useful.
    fn congested(&mut self, lruvec: LruvecId) {
        let _ = lruvec;
    }

    /// Writes the page and dirty neighbours without evicting it: pages written, 0 if the write is refused. `None`, the
    /// default: pages are only written as they are evicted.
    fn launder(&mut self, page: PageId) -> Option<u32> {
        let _ = page;
        None
    }

    /// Whether the page's object (file, address space) is open or mapped, which it is by default. References to a page
    /// whose object is not used count less (spec: freebsd §3.1).
    fn in_use(&self, page: PageId) -> bool {
        let _ = page;
        true
    }
}

/// A memory in which the shadow entries of evicted file pages take room, 64 neighbouring slots at a time, which reclaim
/// takes back (spec: workingset §8).
pub trait ShadowNodes {
    /// What becomes of these nodes is to be followed. A policy says so before it evicts, and may say it again.
    fn follow(&mut self);

    /// Reclaim of this pressure has visited an lruvec. Of the pages on its lists, `pages` allow its group to keep nodes
    /// without a page.
    fn visited(&mut self, lruvec: LruvecId, priority: u8, pages: u64);
}

/// [`SwapSpace::free_swap`]; 0 without swap.
#[inline]
pub fn free_swap<M: Memory>(memory: &mut M, lruvec: LruvecId) -> u64 {
    memory.swap().map_or(0, |swap| swap.free_swap(lruvec))
}

/// [`SwapSpace::has_swap`]; no without swap.
#[inline]
pub fn has_swap<M: Memory>(memory: &mut M) -> bool {
    memory.swap().is_some_and(|swap| swap.has_swap())
}

/// Whether evicting the page costs a write: it is dirty, or [`SwapSpace::needs_write`].
#[inline]
pub fn needs_write<M: Memory>(memory: &mut M, page: PageId) -> bool {
    memory.io_state(page).any(IoState::DIRTY) || memory.swap().is_some_and(|swap| swap.needs_write(page))
}

/// [`Groups::protection`]; `None` without groups.
#[inline]
pub fn protection<M: Memory>(memory: &mut M, lruvec: LruvecId) -> Option<Protection> {
    memory.groups()?.protection(lruvec)
}

/// [`Groups::node_frames`]; no frames without groups.
pub fn node_frames<M: Memory>(memory: &mut M, lruvec: LruvecId) -> NodeFrames {
    memory.groups().map_or_else(NodeFrames::default, |groups| groups.node_frames(lruvec))
}

/// [`Groups::low_event`]; nothing without groups.
#[inline]
pub fn low_event<M: Memory>(memory: &mut M, lruvec: LruvecId) {
    if let Some(groups) = memory.groups() {
        groups.low_event(lruvec);
    }
}

/// [`Writeback::wake_flushers`]; nothing without writeback.
#[inline]
pub fn wake_flushers<M: Memory>(memory: &mut M) {
    if let Some(writeback) = memory.writeback() {
        writeback.wake_flushers();
    }
}

/// [`Writeback::in_use`]; every object is without writeback.
#[inline]
pub fn in_use<M: Memory>(memory: &mut M, page: PageId) -> bool {
    memory.writeback().is_none_or(|writeback| writeback.in_use(page))
}

/// [`Writeback::launder`]; `None` without writeback.
#[inline]
pub fn launder<M: Memory>(memory: &mut M, page: PageId) -> Option<u32> {
    memory.writeback()?.launder(page)
}

/// Stands for an extension that a memory does not have; there is no value of it.
enum Absent {}

impl PageTables for Absent {
    fn walk<V: Walk>(&mut self, _lruvec: LruvecId, _visitor: &mut V) -> bool {
        match *self {}
    }
}

impl SwapSpace for Absent {
    fn free_swap(&self, _lruvec: LruvecId) -> u64 {
        match *self {}
    }
}

impl Groups for Absent {
    fn protection(&self, _lruvec: LruvecId) -> Option<Protection> {
        match *self {}
    }
    fn node_frames(&self, _lruvec: LruvecId) -> NodeFrames {
        match *self {}
    }
}

impl Writeback for Absent {}

impl ShadowNodes for Absent {
    fn follow(&mut self) {
        match *self {}
    }
    fn visited(&mut self, _lruvec: LruvecId, _priority: u8, _pages: u64) {
        match *self {}
    }
}
