//! What a front-end may ask of a policy.
//!
//! The order of one missing page is fixed, because it decides distances (spec: overview §4.6): room is made first
//! ([`Policy::reclaim`], which cannot pick the page that is coming), then the page is admitted with the shadow of its
//! slot ([`Policy::admit`]), then the access itself happens (an accessed bit, or [`Policy::accessed`]).

use crate::counters::Counters;
use crate::frames::FreePools;
use crate::global_reclaim::{BackgroundPass, EvictGenerations, GenerationError, NewGeneration, PassOutcome};
use crate::memory::Memory;
use crate::page::{LruvecId, PageId, PageType, Shadow};

/// How a policy learns of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitReport {
    /// Of accesses through file descriptors by [`Policy::accessed`]; of accesses through mappings only by the
    /// accessed bit, when it asks [`Memory`]. The policies of real kernels.
    Kernel,
    /// Only by the accessed bit, whatever the kind of access (Clock).
    AccessedBit,
    /// Of each hit by [`Policy::accessed`] (textbook LRU and its relatives): only a simulator can do that.
    EachAccess,
    /// Of nothing (FIFO).
    Never,
}

/// How a page comes in.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Anonymous or file.
    pub page_type: PageType,
    /// The lruvec the page is charged to.
    pub lruvec: LruvecId,
    /// The page is brought in by a page fault on a mapping with recency.
    pub in_fault: bool,
    /// The insertion overwrites the slot: the shadow is lost without being looked at.
    pub overwrites: bool,
    /// The page keeps its swap slot (it is in the swap cache). False on synchronous swap devices.
    pub keeps_slot: bool,
    /// What the slot held, if the page was evicted before.
    pub shadow: Option<Shadow>,
}

/// How proactive sorting of the lists works on one page: the kernels changed it (spec: lru_sort §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortRule {
    /// Up to 6.x: prioritising marks the page accessed, so an inactive page moves at the second time.
    MarkAccessed,
    /// 7.0 and later: prioritising activates the page at once.
    #[default]
    Activate,
}

/// A request to free pages because a limit was reached.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimRequest {
    /// The lruvec of the group whose limit was reached; its whole subtree is reclaimed from.
    pub target: LruvecId,
    /// Pages wanted. Policies may free more (they work in batches) or fewer.
    pub goal: u32,
    /// The page for which room is made, if known. Only textbook policies with ghost lists look at it.
    pub incoming: Option<PageId>,
}

/// One generation of an lruvec, oldest first, as the kernel's debugging interface lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationSize {
    /// Sequence number.
    pub seq: u64,
    /// Time of creation, in the front-end's clock.
    pub birth: u64,
    /// Pages by type (anon, file).
    pub pages: [u64; 2],
}

/// What an evicted page must be worth to come in, in the policy's own terms and as of one moment ([`Policy::STAYS_OUT`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// The policy's clock.
    pub now: u64,
    /// What is asked for at least; 0: every page comes in.
    pub least: u64,
}

/// Decides which pages stay. See the module for the order of calls.
///
/// Cost: every method but `reclaim` is O(1); `reclaim` is amortised O(1) a page freed for the textbook policies and
/// as the kernels' for theirs.
pub trait Policy {
    /// How this policy learns of hits.
    const HITS: HitReport;

    /// Whether [`Policy::keeps_evicted`] may answer otherwise than `None`. A constant, so that front-ends pay for findable
    /// pages only under policies that have them.
    const REACTIVATES: bool = false;

    /// Decides about a reference to an evicted page that the front-end can serve while the page stays evicted: what the page's
    /// shadow entry becomes if it is worth less than the bar even with this reference; `None` if the page is to come in. Needs
    /// nothing but its arguments, so that it can be asked while the policy is at work. `None` altogether, the default: this policy lets every page in.
    const STAYS_OUT: Option<fn(Shadow, Bar) -> Option<Shadow>> = None;

    /// What [`Policy::STAYS_OUT`] is to be given from now on.
    fn bar(&self) -> Bar {
        Bar::default()
    }

    /// So many references were served to pages that stayed evicted since this was last called.
    fn referenced_outside<M: Memory>(&mut self, references: usize, memory: &mut M) {
        let _ = (references, memory);
    }

    /// The free pools with which the front-end keeps evicted pages findable ([`crate::frames::CachedFrames`]) until their
    /// frame is reused; `None`: what is evicted is gone. A page that comes back this way is admitted as any other, only
    /// that nothing is read and no shadow is handed over.
    fn keeps_evicted(&self) -> Option<FreePools> {
        None
    }

    /// Resident pages at which the front-end asks for room, given its limit; the limit itself by default. A policy
    /// that keeps a reserve of free frames asks earlier: then one call of [`Policy::reclaim`] is enough.
    fn reclaim_threshold(&self, limit: usize) -> usize {
        limit
    }

    /// Pages to ask for when one page must be freed: 1 for policies that evict one by one, 32 for the kernels'.
    fn reclaim_goal(&self) -> u32 {
        1
    }

    /// The page will be admitted or accessed soon: see [`Memory::fetch`].
    #[inline]
    fn fetch(&self, page: PageId) -> u64 {
        let _ = page;
        0
    }

    /// A page was brought in. It must not be resident already.
    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, memory: &mut M);

    /// A resident page was accessed (see [`Policy::HITS`] for when this is called). The first access, the one that
    /// brought the page in, is reported too for [`HitReport::Kernel`], and is not for [`HitReport::EachAccess`].
    fn accessed<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        let _ = (page, memory);
    }

    /// A resident page is gone for other reasons than eviction (unmapped, truncated). No shadow is left.
    fn freed(&mut self, page: PageId);

    /// The monitor found a resident page hot: move it away from the eviction end as `rule` says
    /// (spec: lru_sort §4). Policies without a meaning for it ignore it, which is the default.
    fn prioritise<M: Memory>(&mut self, page: PageId, rule: SortRule, memory: &mut M) {
        let _ = (page, rule, memory);
    }

    /// The monitor found a resident page cold: move it towards the eviction end as `rule` says
    /// (spec: lru_sort §4). Policies without a meaning for it ignore it, which is the default.
    fn deprioritise<M: Memory>(&mut self, page: PageId, rule: SortRule, memory: &mut M) {
        let _ = (page, rule, memory);
    }

    /// Whether [`Policy::prioritise`] and [`Policy::deprioritise`] do anything here; a front-end refuses sorting schemes
    /// otherwise.
    fn sorts(&self) -> bool {
        false
    }

    /// Pages on the active and on the inactive lists, both types together, for the goals that balance them
    /// (spec: damos §7.3). `None` without such lists.
    fn active_inactive(&self) -> Option<[u64; 2]> {
        None
    }

    /// The write of a page whose eviction answered [`crate::memory::Eviction::WriteStarted`] has ended.
    fn write_finished(&mut self, page: PageId) {
        let _ = page;
    }

    /// Frees pages through [`Memory::evict`] and returns how many were freed.
    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32;

    /// Adds an lruvec below `parent` (none: the root of another node) and returns its id, one more than the last; there
    /// is one, id 0, from the start. `None`, the default: this policy knows neither groups nor nodes.
    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> Option<LruvecId> {
        let _ = parent;
        None
    }

    /// Direct reclaim: an allocation found no frame, and all groups of some nodes give. Returns the pages freed.
    /// `roots` are the root lruvecs of the nodes, preferred first. The default reclaims as for a limit of the first.
    fn reclaim_nodes<M: Memory>(&mut self, roots: &[LruvecId], incoming: Option<PageId>, memory: &mut M) -> u32 {
        let goal = self.reclaim_goal().max(32);
        self.reclaim(&ReclaimRequest { target: roots[0], goal, incoming }, memory)
    }

    /// One pass of a node's background reclaim. The default reclaims as for a limit of the root.
    fn background_pass<M: Memory>(&mut self, pass: &BackgroundPass, memory: &mut M) -> PassOutcome {
        let goal = pass.goal.min(256) as u32;
        let request = ReclaimRequest { target: pass.root, goal, incoming: None };
        let reclaimed = u64::from(self.reclaim(&request, memory));
        PassOutcome { reclaimed, scanned: reclaimed, priority: pass.priority, starved: false }
    }

    /// A balance attempt of background reclaim (several passes) is over.
    fn background_done(&mut self, root: LruvecId) {
        let _ = root;
    }

    /// Whether a resident page came back as part of the working set: waiting for its contents is waiting for memory
    /// (spec: workingset §9).
    fn is_workingset(&self, page: PageId) -> bool {
        let _ = page;
        false
    }

    /// Makes a generation, as the kernel's debugging interface does.
    ///
    /// # Errors
    /// See [`GenerationError`].
    fn new_generation<M: Memory>(&mut self, request: &NewGeneration, memory: &mut M) -> Result<(), GenerationError> {
        let _ = (request, memory);
        Err(GenerationError::Unsupported)
    }

    /// Evicts generations, as the kernel's debugging interface does. Returns the pages freed.
    ///
    /// # Errors
    /// See [`GenerationError`].
    fn evict_generations<M: Memory>(
        &mut self,
        request: &EvictGenerations,
        memory: &mut M,
    ) -> Result<u64, GenerationError> {
        let _ = (request, memory);
        Err(GenerationError::Unsupported)
    }

    /// Tells the policy that memory now has this many page ids (it only grows).
    fn grow(&mut self, pages: usize);

    /// Tells the policy how many pages may be resident. Called before the first page and at each change of the limit.
    fn set_capacity(&mut self, pages: usize) {
        let _ = pages;
    }

    /// What happened so far, in the field's own names. The front-end adds what only it can count (faults, swap I/O).
    fn counters(&self) -> Counters;

    /// The generations of an lruvec, oldest first; empty for policies without generations.
    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize> {
        let _ = lruvec;
        Vec::new()
    }

    /// Bytes of metadata the policy holds, for the price list in the documentation.
    fn metadata_bytes(&self) -> usize;
}
