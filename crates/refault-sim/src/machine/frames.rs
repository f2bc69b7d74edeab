//! Frames below the machine's pages: a buddy allocator a node, if the configuration asks for it.
//!
//! Without it a node only counts its free frames. With it every resident page has a frame of its own. Blocks of frames
//! can be asked for ([`super::high_order`]), and evicted pages can stay cached until their frame is reused. The policy
//! does not know: it chooses victims as always.
//!
//! Invariants: the free frames of a node are the allocator's; a resident page has exactly one frame, of the node it is
//! charged to; a cached page is not resident. Cost: what `refault_core::frames` costs, a page brought in or let go;
//! nothing where it is off but the test whether it is on.
//!
//! Source: spec: freebsd §3.3, §3.4, §4, §8.
//!
//! ```
//! use refault_core::frames::FreePools;
//! use refault_sim::machine::config::MachineConfig;
//! use refault_sim::machine::frames::KeepsEvicted;
//!
//! // Evicted pages stay cached in their free frames, under whatever policy.
//! let frames = Some(KeepsEvicted::Cached(FreePools::THREE));
//! assert!(MachineConfig { frames, ..MachineConfig::default() }.frames.is_some());
//! assert_eq!(KeepsEvicted::default(), KeepsEvicted::AsPolicy);
//! ```

use refault_core::PageId;
use refault_core::frames::{CachedCounters, CachedFrames, Fragmentation, Frame, FreePool, FreePools, MAX_ORDER};
use serde::Serialize;

use super::report::{Latency, LatencySummary};

/// What is kept of evicted pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepsEvicted {
    /// What the policy says of itself.
    #[default]
    AsPolicy,
    /// Nothing: what is evicted is gone.
    Nothing,
    /// They stay cached, with the free pools given.
    Cached(FreePools),
}

/// Frames of all nodes. See the module.
pub struct MachineFrames {
    nodes: Vec<CachedFrames>,
    keeps_evicted: bool,
    /// Frames held by buffers.
    pub(super) held: u64,
    pub(super) counts: HighOrderCounts,
    pub(super) stalls: Latency,
}

/// Requests for more than one frame, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HighOrderCounts {
    /// Huge pages that faults were given.
    pub thp_fault_alloc: u64,
    /// Huge pages that faults asked for and did not get; a single page was given instead.
    pub thp_fault_fallback: u64,
    /// Of those: enough frames were free, but not in one block.
    pub thp_fault_fragmented: u64,
    /// Buffers asked for.
    pub buffers_asked: u64,
    /// Buffers that were given only after reclaim.
    pub buffers_stalled: u64,
    /// Buffers that were not to be had.
    pub buffers_failed: u64,
    /// Pages that had been evicted and were read again, refaults in the plain sense.
    pub pages_read_again: u64,
}

/// Free memory at one time.
#[derive(Clone, Copy, Debug)]
pub struct FramesSample {
    /// Free blocks by order, all nodes.
    pub free: Fragmentation,
    /// Free frames that still hold an evicted page.
    pub cached: u64,
    /// Frames held by buffers.
    pub held: u64,
    /// Requests so far.
    pub counts: HighOrderCounts,
}

/// Frames at the end of a run.
#[derive(Clone, Copy, Debug)]
pub struct FramesReport {
    /// Free memory.
    pub last: FramesSample,
    /// What became of evicted pages that stayed cached.
    pub evicted: CachedCounters,
    /// Time that buffers waited for reclaim, whether they were given or not.
    pub stalls: LatencySummary,
    /// The same, added up, nanoseconds.
    pub stalled: u64,
    /// Bytes of bookkeeping.
    pub metadata_bytes: usize,
}

impl MachineFrames {
    /// All frames free. `managed` is the number of frames of each node.
    pub(super) fn new(managed: &[u64], page_ids: usize, keeps_evicted: Option<FreePools>) -> MachineFrames {
        let pools = keeps_evicted.unwrap_or(FreePools::TWO);
        let node = |frames: &u64| {
            let mut node = CachedFrames::new(*frames as u32, pools);
            node.grow(page_ids);
            node
        };
        MachineFrames {
            nodes: managed.iter().map(node).collect(),
            keeps_evicted: keeps_evicted.is_some(),
            held: 0,
            counts: HighOrderCounts::default(),
            stalls: Latency::default(),
        }
    }

    /// The frames of a node.
    pub fn node(&self, node: usize) -> &CachedFrames {
        &self.nodes[node]
    }

    /// A page becomes resident on a node that has a free frame. Contents that are still to be found are lost, unless
    /// [`MachineFrames::reactivate`] was called before.
    #[inline]
    pub(super) fn take(&mut self, node: usize, page: PageId) {
        if self.keeps_evicted {
            for (other, frames) in self.nodes.iter_mut().enumerate() {
                if other != node && frames.is_cached(page) {
                    frames.discard(page);
                }
            }
        }
        if self.nodes[node].frame(page).is_none() {
            let frame = self.nodes[node].allocate(page);
            debug_assert!(frame.is_some(), "invariant: a node's free frames are its allocator's");
        }
    }

    /// A resident page goes; `cached` if its contents are worth keeping until the frame is reused.
    #[inline]
    pub(super) fn give_back(&mut self, node: usize, page: PageId, cached: bool) {
        if cached && self.keeps_evicted {
            self.nodes[node].cache(page);
        } else {
            self.nodes[node].free(page);
        }
    }

    /// The node on which an evicted page's frame was not reused.
    #[inline]
    pub(super) fn cached_on(&self, page: PageId) -> Option<usize> {
        if !self.keeps_evicted {
            return None;
        }
        self.nodes.iter().position(|node| node.is_cached(page))
    }

    /// Brings an evicted page back with its contents, if its frame on this node was not reused.
    #[inline]
    pub(super) fn reactivate(&mut self, node: usize, page: PageId) -> bool {
        self.nodes[node].reactivate(page).is_some()
    }

    /// The contents of a page that is not resident are of no use any more.
    pub(super) fn forget(&mut self, page: PageId) {
        self.nodes.iter_mut().filter(|node| node.is_cached(page)).for_each(|node| node.discard(page));
    }

    /// Frames for a huge page: those of the block become frames of the pages from `first` on.
    pub(super) fn take_huge(&mut self, node: usize, first: PageId, order: u32) -> bool {
        self.nodes[node].allocate_pages(first, order).is_some()
    }

    /// A block that belongs to no page.
    pub(super) fn take_block(&mut self, node: usize, order: u32) -> Option<Frame> {
        let block = self.nodes[node].allocate_block(FreePool::Direct, order)?;
        self.held += 1 << order;
        Some(block)
    }

    /// Gives a block back.
    pub(super) fn give_block_back(&mut self, node: usize, block: Frame, order: u32) {
        self.nodes[node].free_block(block, order);
        self.held -= 1 << order;
    }

    /// Free memory now.
    pub(super) fn sample(&self) -> FramesSample {
        let mut free = Fragmentation::default();
        for node in &self.nodes {
            let blocks = node.allocator().fragmentation().blocks;
            free.blocks.iter_mut().zip(blocks).for_each(|(sum, blocks)| *sum += blocks);
        }
        let cached = self.nodes.iter().map(|node| u64::from(node.cached())).sum();
        FramesSample { free, cached, held: self.held, counts: self.counts }
    }

    /// What became of evicted pages, all nodes.
    pub(super) fn evicted(&self) -> CachedCounters {
        self.nodes.iter().fold(CachedCounters::default(), |sum, node| {
            let counters = node.counters();
            CachedCounters {
                cached: sum.cached + counters.cached,
                reactivated: sum.reactivated + counters.reactivated,
                overwritten: sum.overwritten + counters.overwritten,
                discarded: sum.discarded + counters.discarded,
            }
        })
    }

    pub(super) fn report(&self, stalled: u64) -> FramesReport {
        FramesReport {
            last: self.sample(),
            evicted: self.evicted(),
            stalls: self.stalls.summary(),
            stalled,
            metadata_bytes: self.metadata_bytes(),
        }
    }

    /// Bytes of bookkeeping.
    pub fn metadata_bytes(&self) -> usize {
        self.nodes.iter().map(CachedFrames::metadata_bytes).sum()
    }
}

impl FramesSample {
    /// Names of [`FramesSample::columns`].
    pub(super) fn names() -> Vec<String> {
        let each = |name: &'static str| (0..=MAX_ORDER).map(move |order| format!("{name}_order_{order}"));
        let mut names: Vec<String> = each("free_blocks").collect();
        names.extend(each("free_contiguity"));
        names.extend(each("unusable_free_index").skip(1));
        names.extend(["free_block_mean", "pages_in_cache", "frames_in_buffers"].map(String::from));
        names
    }

    /// Free blocks, share of the free frames and unusable free index by order, and the rest of what
    /// [`FramesSample::names`] says.
    pub(super) fn columns(&self) -> Vec<f64> {
        let mut columns: Vec<f64> = self.free.blocks.iter().map(|blocks| *blocks as f64).collect();
        columns.extend((0..=MAX_ORDER).map(|order| self.free.share(order)));
        columns.extend((1..=MAX_ORDER).map(|order| self.free.unusable_free_index(order)));
        columns.extend([self.free.mean_block(), self.cached as f64, self.held as f64]);
        columns
    }
}

impl FramesReport {
    /// Name and value of every scalar.
    pub(super) fn fields(&self) -> Vec<(String, f64)> {
        let counts = &self.last.counts;
        let mut fields: Vec<(String, f64)> = [
            ("thp_fault_alloc", counts.thp_fault_alloc),
            ("thp_fault_fallback", counts.thp_fault_fallback),
            ("thp_fault_fragmented", counts.thp_fault_fragmented),
            ("buffers_asked", counts.buffers_asked),
            ("buffers_stalled", counts.buffers_stalled),
            ("buffers_failed", counts.buffers_failed),
            ("pages_read_again", counts.pages_read_again),
            ("buffer_stall_ns", self.stalled),
            ("buffer_stall_p99_ns", self.stalls.p99_ns),
            ("buffer_stall_max_ns", self.stalls.max_ns),
        ]
        .map(|(name, value)| (name.to_string(), value as f64))
        .into();
        fields.extend(FramesSample::names().into_iter().zip(self.last.columns()));
        fields
    }
}
