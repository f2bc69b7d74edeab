//! The narrow waist: what a front-end may ask of a policy.
//!
//! The order of one missing page is fixed, because it decides distances (spec: overview §4.6). Room is made first
//! ([`room::make_room`]): a policy cannot pick the page that is coming. Then the page is admitted with the shadow of
//! its slot ([`Policy::admit`]). Then the access itself happens (an accessed bit, or [`Policy::accessed`]).
//!
//! [`Policy`] is what every policy has. What only some have are traits of their own, each reached through one method of
//! `Policy` that answers `None` by default. They are [`NodeReclaim`] (groups, nodes, background reclaim) and
//! [`GenerationCommands`], and through the latter [`SwitchLists`] (classic lists or generations). [`Sorting`] is for
//! monitoring schemes, and [`Lists`] has sizes to show. With [`Bypass`] references are served while the page stays
//! evicted. With [`CachedPages`] evicted pages can come back without I/O. A front-end that needs one asks for it and
//! says so if there is none.
//!
//! [`DynPolicy`] is the same without the policy's type, for front-ends where one virtual call per decision costs
//! nothing; the replay is compiled for each policy, and of the simulated machine the loop of hits. [`registry`] makes
//! either from `name{key=value,…}`.
//!
//! ```
//! use refault_core::policy::{FrontEnd, PolicySpec, ReclaimRequest};
//!
//! let spec = PolicySpec::parse_for("mglru{tiers=1}", FrontEnd::Pager)?;
//! assert_eq!(spec.entry.name, "mglru");
//! let request = ReclaimRequest { target: 0, goal: 32, incoming: None };
//! assert_eq!(request.goal, 32); // what a front-end asks a policy for
//! # Ok::<(), refault_core::policy::PolicyError>(())
//! ```

mod access;
mod admission;
mod bypass;
mod cached;
pub mod cyclic;
mod dynamic;
mod error;
pub mod generations;
pub mod giving;
pub mod node;

pub mod registry;
pub mod room;
mod scan_detector;
mod scan_tracker;
mod sorting;

pub use access::{AccessReport, DescriptorReads};
pub use admission::{AccessPattern, Admission};
pub use bypass::{AdmissionFilter, AdmissionThreshold, Bypass};
pub use cached::CachedPages;
pub use cyclic::{Cyclic, CyclicScans};
pub use dynamic::{DynPolicy, Erased};
pub use generations::{
    Enabled, EvictGenerations, GenerationCommands, GenerationDetails, GenerationError, GenerationSize, Lists,
    NewGeneration, SwitchLists, TierHistory, WalkStatistics,
};
pub use node::{BackgroundPass, NodeReclaim, PassOutcome, ProactiveRequest};

pub use error::PolicyError;
pub use registry::{BuildContext, FrontEnd, PolicyEntry, PolicySpec, Visitor};
pub use sorting::{SortRule, Sorting};

use crate::counters::Counters;
use crate::memory::Memory;
use crate::page::{LruvecId, PageId};

/// How a policy learns of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitReport {
    /// Of accesses through file descriptors by [`Policy::accessed`]; of accesses through mappings only by the
    /// accessed bit, when it asks [`Memory`]. The policies of real kernels.
    Kernel,
    /// Only by the accessed bit, whatever the kind of access (Clock).
    AccessedBit,
    /// Of each hit by [`Policy::accessed`] (textbook LRU and its relatives): only a front-end that sees every access
    /// can do that.
    EachAccess,
    /// Of nothing (FIFO).
    Never,
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

/// Decides which pages stay. See the module for the order of calls.
///
/// Cost: every method but `reclaim` is O(1); `reclaim` is amortised O(1) per page freed for the textbook policies and
/// as the kernels' for theirs.
pub trait Policy {
    /// How this policy learns of hits.
    const HITS: HitReport;

    /// Pages to ask for when one page must be freed: 1 for policies that evict one by one, 32 for Linux's.
    const RECLAIM_BATCH: u32 = 1;

    /// Whether [`Policy::cached_pages`] may answer. A constant, so that front-ends compiled for a policy pay for cached
    /// pages only under policies that have them.
    const CACHES_PAGES: bool = false;

    /// A page was brought in. It must not be resident already.
    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, memory: &mut M);

    /// A resident page was accessed (see [`Policy::HITS`] for when this is called). The first access, the one that
    /// brought the page in, is reported too for [`HitReport::Kernel`], and is not for [`HitReport::EachAccess`].
    fn accessed<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        let _ = (page, memory);
    }

    /// A resident page is gone for other reasons than eviction (unmapped, truncated). No shadow is left, and what has
    /// the id next is another page.
    fn freed(&mut self, page: PageId);

    /// The id of a page that is not resident is to stand for another page: what the policy remembers of it, beside its
    /// shadow entry, ends. O(1).
    fn forgotten(&mut self, page: PageId) {
        let _ = page;
    }

    /// Frees pages through [`Memory::evict`] and returns how many were freed.
    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32;

    /// Tells the policy that memory now has this many page ids (it only grows).
    fn grow(&mut self, pages: usize);

    /// Tells the policy how many pages may be resident. Called before the first page and at each change of the limit.
    fn set_capacity(&mut self, pages: usize) {
        let _ = pages;
    }

    /// What happened so far, in the field's own names. The front-end adds what only it can count (faults, swap I/O).
    fn counters(&self) -> Counters;

    /// Bytes of metadata the policy holds now.
    fn metadata_bytes(&self) -> usize;

    /// Groups, nodes and background reclaim. `None`: [`node`] has what a front-end does then.
    fn nodes(&mut self) -> Option<&mut impl NodeReclaim> {
        None::<&mut Absent>
    }

    /// Commands on generations, and the switch between them and the classic lists. `None`: the policy has no
    /// generations.
    fn generation_commands(&mut self) -> Option<&mut impl GenerationCommands> {
        None::<&mut Absent>
    }

    /// Lists that a monitor can sort. `None`: sorting schemes are refused.
    fn sorting(&mut self) -> Option<&mut impl Sorting> {
        None::<&mut Absent>
    }

    /// References to evicted pages can be served without bringing the page in. `None`: every page comes in.
    fn bypass(&mut self) -> Option<&mut impl Bypass> {
        None::<&mut Absent>
    }

    /// The policy keeps a reserve of free frames, in which evicted pages may wait for their return. `None`: it does
    /// not.
    fn cached_pages(&self) -> Option<&impl CachedPages> {
        None::<&Absent>
    }

    /// Sizes of lists and generations, and what is known of scans, to show. `None`: there is nothing to show.
    fn lists(&self) -> Option<&impl Lists> {
        None::<&Absent>
    }

    /// Whether an object of any size is worth too little to come in, where at least `needed` bytes would have to go for
    /// it: policies that know sizes keep it out and evict nothing. `bytes` says the size of each object in memory.
    fn keeps_out(&mut self, admission: &Admission, needed: u64, bytes: &dyn Fn(PageId) -> u64) -> bool {
        let _ = (admission, needed, bytes);
        false
    }

    /// The page will be admitted or accessed soon: a chance to let cache misses overlap. Returns anything that depends
    /// on what was read.
    #[doc(hidden)]
    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        let _ = page;
        0
    }
}

/// Stands for an extension that a policy does not have; there is no value of it.
enum Absent {}
