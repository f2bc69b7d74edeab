//! What a machine asks of a policy beyond limits: lruvecs of groups and nodes, reclaim of whole nodes, ends of writes.
//!
//! A machine also runs policies that know nothing of this; what it does then stands here once: [`add_lruvec`] refuses,
//! [`reclaim_nodes`] and [`background_pass`] reclaim as for a limit of the root.
//!
//! Kernel: `balance_pgdat`, `shrink_node` in `mm/vmscan.c`.
//! Source: spec: overview §4.1, §4.2; mglru §15.
//!
//! ```
//! use refault_core::policy::node::add_lruvec;
//! use refault_core::textbook::Fifo;
//! use refault_core::{Classic, ClassicParams};
//!
//! assert_eq!(add_lruvec(&mut Classic::new(ClassicParams::default()), Some(0)), Some(1)); // a group below the root
//! assert_eq!(add_lruvec(&mut Fifo::default(), Some(0)), None); // tells no groups apart
//! ```

use super::{Absent, Policy, ReclaimRequest};
use crate::memory::{Eviction, Memory};
use crate::page::{LruvecId, PageId, Shadow};

/// Pages that direct reclaim asks for at least.
const MIN_DIRECT_GOAL: u32 = 32;
/// Pages that one background pass asks for at most of a policy that does not know nodes.
const MAX_BACKGROUND_GOAL: u64 = 256;

/// One pass of background reclaim over a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundPass {
    /// The root lruvec of the node; everything below it is reclaimed from.
    pub root: LruvecId,
    /// Pages wanted: the high watermark.
    pub goal: u64,
    /// Pressure, 12 (least) to 1.
    pub priority: u8,
    /// Generations younger than this, in the front-end's time, are the working set: if no lruvec of the node has an
    /// older one, the pass says so. 0 for none (`lru_gen/min_ttl_ms`).
    pub min_ttl: u64,
    /// Anonymous memory is not spared because there are plenty of cold file pages: an attempt that spared it freed
    /// nothing.
    pub no_cache_trim: bool,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassOutcome {
    /// Pages freed.
    pub reclaimed: u64,
    /// Pages that entered the batch stage.
    pub scanned: u64,
    /// The priority that the pass ended with: policies may start harder than asked.
    pub priority: u8,
    /// Everything is younger than `min_ttl`: a task should be killed rather than the working set evicted.
    pub starved: bool,
    /// Anonymous memory was spared because there are plenty of cold file pages, and nothing was freed.
    pub cache_trim_failed: bool,
    /// Reclaim came round to pages whose write has not ended: wait for writes before the next pass.
    pub waits_for_writes: bool,
}

/// Reclaim that a user asked for (`memory.reclaim`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProactiveRequest {
    /// The lruvec of the group; its whole subtree is reclaimed from.
    pub target: LruvecId,
    /// Pages wanted.
    pub goal: u32,
    /// How willingly anonymous memory is swapped, 0..=200, for this request; none for the policy's own.
    pub swappiness: Option<u16>,
}

/// A kernel's policy: it knows groups and nodes, and hears of writes that end.
pub trait NodeReclaim {
    /// Adds an lruvec below `parent` (none: the root of another node) and returns its id, one more than the last; there
    /// is one, id 0, from the start.
    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> LruvecId;

    /// Direct reclaim: an allocation found no frame, and all groups of some nodes give. Returns the pages freed.
    /// `roots` are the root lruvecs of the nodes, preferred first.
    fn reclaim_nodes<M: Memory>(&mut self, roots: &[LruvecId], memory: &mut M) -> u32;

    /// One pass of a node's background reclaim.
    fn background_pass<M: Memory>(&mut self, pass: &BackgroundPass, memory: &mut M) -> PassOutcome;

    /// A balance attempt of background reclaim (several passes) is over; `balanced`: because the node is.
    fn background_done(&mut self, root: LruvecId, balanced: bool) {
        let _ = (root, balanced);
    }

    /// Reclaim that a user asked for (spec: overview §4.3). Returns the pages freed.
    fn reclaim_proactively<M: Memory>(&mut self, request: &ProactiveRequest, memory: &mut M) -> u32;

    /// A resident page is to go by request (DAMON's page-out): it leaves its list and passes the batch stage,
    /// where its references do not count, and leaves a shadow entry as any other (spec: damos §3.2, overview §5).
    /// Returns whether it went. A page that is on no list stays.
    fn page_out<M: Memory>(&mut self, page: PageId, memory: &mut M) -> bool;

    /// The write of a page whose eviction answered [`crate::memory::Eviction::WriteStarted`] has ended.
    fn write_finished(&mut self, page: PageId);

    /// A page that [`crate::memory::IoState::UNEVICTABLE`] was said of can be evicted again. Reclaim takes unevictable
    /// pages off the lists when it meets them and never looks at them again (spec: overview §5 row 3); this puts such a
    /// page back, inactive, at the young end. Does nothing to other pages.
    fn made_evictable(&mut self, page: PageId) {
        let _ = page;
    }

    /// Whether a resident page came back as part of the working set: waiting for its contents is waiting for memory
    /// (spec: workingset §9).
    fn is_workingset(&self, page: PageId) -> bool;
}

/// [`NodeReclaim::add_lruvec`]; `None`: this policy knows neither groups nor nodes.
pub fn add_lruvec<P: Policy>(policy: &mut P, parent: Option<LruvecId>) -> Option<LruvecId> {
    policy.nodes().map(|nodes| nodes.add_lruvec(parent))
}

/// [`NodeReclaim::reclaim_nodes`], or reclaim as for a limit of the first root.
pub fn reclaim_nodes<P: Policy, M: Memory>(
    policy: &mut P,
    roots: &[LruvecId],
    incoming: Option<PageId>,
    memory: &mut M,
) -> u32 {
    if let Some(nodes) = policy.nodes() {
        return nodes.reclaim_nodes(roots, memory);
    }
    let goal = P::RECLAIM_BATCH.max(MIN_DIRECT_GOAL);
    policy.reclaim(&ReclaimRequest { target: roots[0], goal, incoming }, memory)
}

/// [`NodeReclaim::background_pass`], or reclaim as for a limit of the root.
pub fn background_pass<P: Policy, M: Memory>(policy: &mut P, pass: &BackgroundPass, memory: &mut M) -> PassOutcome {
    if let Some(nodes) = policy.nodes() {
        return nodes.background_pass(pass, memory);
    }
    let goal = pass.goal.min(MAX_BACKGROUND_GOAL) as u32;
    let reclaimed = u64::from(policy.reclaim(&ReclaimRequest { target: pass.root, goal, incoming: None }, memory));
    PassOutcome { reclaimed, scanned: reclaimed, priority: pass.priority, ..PassOutcome::default() }
}

/// [`NodeReclaim::reclaim_proactively`], or reclaim as for a limit of the target.
pub fn reclaim_proactively<P: Policy, M: Memory>(policy: &mut P, request: &ProactiveRequest, memory: &mut M) -> u32 {
    match policy.nodes() {
        Some(nodes) => nodes.reclaim_proactively(request, memory),
        None => {
            let ProactiveRequest { target, goal, .. } = *request;
            policy.reclaim(&ReclaimRequest { target, goal: goal.max(P::RECLAIM_BATCH), incoming: None }, memory)
        }
    }
}

/// [`NodeReclaim::page_out`]. Other policies hear that the page was freed: it was not they who chose it, and they know
/// nothing of shadow entries.
pub fn page_out<P: Policy, M: Memory>(policy: &mut P, page: PageId, memory: &mut M) -> bool {
    if let Some(nodes) = policy.nodes() {
        return nodes.page_out(page, memory);
    }
    let gone = matches!(memory.evict(page, Shadow::NONE), Eviction::Freed { .. });
    if gone {
        policy.freed(page);
    }
    gone
}

/// [`NodeReclaim::is_workingset`]; policies without a memory of evicted pages have no working set.
pub fn is_workingset<P: Policy>(policy: &mut P, page: PageId) -> bool {
    policy.nodes().is_some_and(|nodes| nodes.is_workingset(page))
}

impl NodeReclaim for Absent {
    fn add_lruvec(&mut self, _parent: Option<LruvecId>) -> LruvecId {
        match *self {}
    }
    fn reclaim_nodes<M: Memory>(&mut self, _roots: &[LruvecId], _memory: &mut M) -> u32 {
        match *self {}
    }
    fn background_pass<M: Memory>(&mut self, _pass: &BackgroundPass, _memory: &mut M) -> PassOutcome {
        match *self {}
    }
    fn background_done(&mut self, _root: LruvecId, _balanced: bool) {
        match *self {}
    }
    fn reclaim_proactively<M: Memory>(&mut self, _request: &ProactiveRequest, _memory: &mut M) -> u32 {
        match *self {}
    }
    fn page_out<M: Memory>(&mut self, _page: PageId, _memory: &mut M) -> bool {
        match *self {}
    }
    fn write_finished(&mut self, _page: PageId) {
        match *self {}
    }
    fn is_workingset(&self, _page: PageId) -> bool {
        match *self {}
    }
}
