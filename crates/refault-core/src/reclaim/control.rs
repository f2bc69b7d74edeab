//! From "a limit was reached" to "these lruvecs are shrunk, this hard" (spec: overview §4.1, §4.4, §4.6).
//!
//! Reclaim makes passes of rising pressure: at priority `p` a list of `n` pages is scanned by about `n >> p`. A pass
//! visits the lruvecs of the target's subtree; passes end when the goal is met, and only the end of a pass looks at it.
//!
//! Kernel: `try_to_free_mem_cgroup_pages`, `do_try_to_free_pages`, `shrink_node_memcgs` in `mm/vmscan.c`.

use crate::memory::{Memory, ShadowNodes, low_event, protection};
use crate::page::LruvecId;
use crate::policy::giving::Standing;
use crate::policy::{BackgroundPass, PassOutcome, ProactiveRequest};
use crate::reclaim::batch_stage::BatchOutcome;
use crate::reclaim::hierarchy::Hierarchy;

/// The gentlest priority, at which reclaim starts.
pub const DEFAULT_PRIORITY: u8 = 12;
/// Pages that a limit hit asks for at least, and the unit in which the classic lists are scanned.
pub const SWAP_CLUSTER_MAX: u32 = 32;

/// One reclaim request on its way through the passes.
#[derive(Clone, Debug)]
pub struct ScanControl {
    /// The lruvec whose limit was hit, or the root of a node for global reclaim.
    pub target: LruvecId,
    /// Reclaim because of a limit or on a user's request, rather than because free memory ran out.
    pub targeted: bool,
    /// Pages wanted.
    pub goal: u64,
    /// Pressure of the current pass: 12 (least) to 0.
    pub priority: u8,
    /// Anonymous memory may be swapped out.
    pub may_swap: bool,
    /// Replaces the engine's swappiness for this request (0..=200).
    pub swappiness: Option<u16>,
    /// Pages freed so far, over all passes.
    pub reclaimed: u64,
    /// Pages that the batch stage looked at in this pass; those that are locked do not count.
    pub scanned: u64,
    /// What the batch stage met in this node pass.
    pub met: Met,
    /// Every pass walks the whole subtree.
    pub full_walk: bool,
    /// Active lists are shrunk whatever the workingset says.
    pub force_deactivate: bool,
    /// Some active list was spared in this attempt.
    pub skipped_deactivate: bool,
    /// A node's background reclaimer is at work.
    pub background: bool,
    /// A user asked for it (`memory.reclaim`).
    pub proactive: bool,
    /// Plenty of cold file pages is no reason to spare anonymous memory.
    pub no_cache_trim: bool,
    /// A node pass that spared anonymous memory for that reason freed nothing.
    pub cache_trim_failed: bool,
    /// Soft protection no longer counts.
    pub low_reclaim: bool,
    /// Some group was spared in this attempt because of its soft protection.
    pub low_skipped: bool,
}

impl ScanControl {
    /// Reclaim on behalf of a limit of `target`.
    pub fn for_limit(target: LruvecId, goal: u32) -> ScanControl {
        ScanControl {
            target,
            targeted: true,
            goal: u64::from(goal.max(SWAP_CLUSTER_MAX)),
            priority: DEFAULT_PRIORITY,
            may_swap: true,
            swappiness: None,
            reclaimed: 0,
            scanned: 0,
            met: Met::default(),
            full_walk: false,
            force_deactivate: false,
            skipped_deactivate: false,
            background: false,
            proactive: false,
            no_cache_trim: false,
            cache_trim_failed: false,
            low_reclaim: false,
            low_skipped: false,
        }
    }

    /// Reclaim that a user asked for, with a swappiness for this request if the user gave one (spec: overview §4.3).
    pub fn for_user(request: &ProactiveRequest) -> ScanControl {
        let swappiness = request.swappiness;
        ScanControl { proactive: true, swappiness, ..ScanControl::for_limit(request.target, request.goal) }
    }

    /// Direct reclaim from whole nodes. The target is set node by node.
    pub fn for_nodes(goal: u32) -> ScanControl {
        ScanControl { targeted: false, ..ScanControl::for_limit(0, goal) }
    }

    /// One pass of background reclaim.
    pub fn for_background(pass: &BackgroundPass) -> ScanControl {
        ScanControl {
            targeted: false,
            background: true,
            full_walk: true,
            goal: pass.goal,
            priority: pass.priority,
            no_cache_trim: pass.no_cache_trim,
            ..ScanControl::for_limit(pass.root, SWAP_CLUSTER_MAX)
        }
    }

    /// Adds what one run of the batch stage over `taken` isolated pages met. `file`: they are file pages.
    #[inline]
    pub fn note_batch(&mut self, outcome: &BatchOutcome, taken: u64, file: bool) {
        self.scanned += outcome.scanned;
        let met = &mut self.met;
        met.taken += taken;
        met.file_taken += if file { taken } else { 0 };
        met.dirty += outcome.dirty;
        met.unqueued_dirty += outcome.unqueued_dirty;
        met.congested += outcome.congested;
        met.writeback += outcome.writeback;
        met.immediate += outcome.immediate;
    }

    /// The part of an lruvec's pages that its group's protection spares, as a fraction; `None` without protection
    /// (spec: classic §9).
    pub fn spared_share<M: Memory>(&mut self, lruvec: LruvecId, memory: &mut M) -> Option<(u64, u64)> {
        if lruvec == self.target {
            return None;
        }
        let protection = protection(memory, lruvec).filter(|p| p.min > 0 || p.low > 0)?;
        self.low_skipped |= !self.low_reclaim && protection.low > protection.min;
        let spared = protection.spared(if self.low_reclaim { Standing::Low } else { Standing::Open });
        Some((spared, protection.usage.max(spared) + 1))
    }

    /// Whether an lruvec may be visited, given its group's protection; notes what was spared.
    #[inline]
    pub fn may_visit<M: Memory>(&mut self, lruvec: LruvecId, memory: &mut M) -> bool {
        if lruvec == self.target {
            return true;
        }
        let Some(protection) = protection(memory, lruvec) else { return true };
        match protection.standing() {
            Standing::Min => return false,
            Standing::Low if !self.low_reclaim => {
                self.low_skipped = true;
                return false;
            }
            Standing::Low => low_event(memory, lruvec),
            Standing::Open => {}
        }
        true
    }

    /// What to do after an attempt that freed nothing: true to try again (spec: overview §4.1).
    fn tries_again(&mut self) -> bool {
        if !self.full_walk {
            self.full_walk = true;
        } else if self.skipped_deactivate {
            self.force_deactivate = true;
            self.skipped_deactivate = false;
        } else if self.low_skipped {
            self.force_deactivate = false;
            self.low_reclaim = true;
            self.low_skipped = false;
        } else {
            return false;
        }
        true
    }
}

/// What the batch stage met in one pass over a node, in pages (spec: classic §10, step 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Isolated.
    pub taken: u64,
    /// File pages among them.
    pub file_taken: u64,
    /// File pages that are dirty or whose write is in flight.
    pub dirty: u64,
    /// Dirty file pages whose write has not begun.
    pub unqueued_dirty: u64,
    /// File pages in flight that an earlier scan marked already.
    pub congested: u64,
    /// Pages whose write is in flight.
    pub writeback: u64,
    /// Pages in flight that background reclaim came round to before their write ended.
    pub immediate: u64,
}

/// What is left of a list of `size` pages when its group's protection spares the fraction (spec: classic §9).
#[inline]
pub fn unspared(size: u64, spared: Option<(u64, u64)>) -> u64 {
    match spared {
        None => size,
        Some((part, whole)) => (size - size * part / whole).max(u64::from(SWAP_CLUSTER_MAX)),
    }
}

/// A list system that can be shrunk lruvec by lruvec.
pub trait ReclaimEngine {
    /// The tree of lruvecs.
    fn hierarchy(&self) -> &Hierarchy;

    /// Where the shared walk below `target` stopped: an index into its subtree.
    fn walk_position(&mut self, target: LruvecId) -> &mut usize;

    /// Called before the lruvecs of a pass are visited.
    fn begin_pass<M: Memory>(&mut self, control: &mut ScanControl, memory: &mut M);

    /// Shrinks one lruvec at the pass's priority.
    fn shrink_lruvec<M: Memory>(&mut self, lruvec: LruvecId, control: &mut ScanControl, memory: &mut M);

    /// Of the pages on an lruvec's lists, those that allow its group to keep shadow entries (spec: workingset §8).
    /// `None`: all entries are kept.
    fn pages_for_shadows(&self, lruvec: LruvecId) -> Option<u64> {
        let _ = lruvec;
        None
    }

    /// Called after the lruvecs of a pass were visited; `reclaimed`: pages that this pass freed.
    fn end_pass<M: Memory>(&mut self, control: &mut ScanControl, reclaimed: u64, memory: &mut M) {
        let _ = (control, reclaimed, memory);
    }

    /// Called when an attempt (up to 13 passes) is over.
    fn end_attempt(&mut self, control: &ScanControl);

    /// One pass over a whole node, whose root lruvec is the target.
    fn shrink_node<M: Memory>(&mut self, control: &mut ScanControl, memory: &mut M)
    where
        Self: Sized,
    {
        shrink_subtree(self, control, memory);
    }

    /// What background reclaim does before each of its passes. True if everything is younger than `min_ttl`.
    fn age_node<M: Memory>(&mut self, control: &mut ScanControl, min_ttl: u64, memory: &mut M) -> bool {
        let _ = (control, min_ttl, memory);
        false
    }
}

/// Reclaims for a limit. Returns the pages freed: possibly fewer than asked for, possibly many more.
pub fn limit_reclaim<E: ReclaimEngine, M: Memory>(engine: &mut E, mut control: ScanControl, memory: &mut M) -> u64 {
    let start = control.priority;
    loop {
        for priority in (0..=start).rev() {
            control.priority = priority;
            control.scanned = 0;
            shrink_subtree(engine, &mut control, memory);
            if control.reclaimed >= control.goal {
                break;
            }
        }
        engine.end_attempt(&control);
        if control.reclaimed > 0 {
            return control.reclaimed;
        }
        if !control.tries_again() {
            return 0;
        }
    }
}

/// Direct reclaim: an allocation found no frame on any of the nodes with these root lruvecs (spec: overview §4.1).
/// Returns the pages freed.
pub fn direct_reclaim<E: ReclaimEngine, M: Memory>(engine: &mut E, roots: &[LruvecId], memory: &mut M) -> u64 {
    let mut control = ScanControl::for_nodes(SWAP_CLUSTER_MAX);
    loop {
        for priority in (0..=DEFAULT_PRIORITY).rev() {
            control.priority = priority;
            control.scanned = 0;
            // All nodes, even if the first one gives enough.
            for &root in roots {
                control.target = root;
                engine.shrink_node(&mut control, memory);
            }
            if control.reclaimed >= control.goal {
                break;
            }
        }
        for &root in roots {
            control.target = root;
            engine.end_attempt(&control);
        }
        if control.reclaimed > 0 || !control.tries_again() {
            return control.reclaimed;
        }
    }
}

/// One pass of a node's background reclaim: aging, then reclaim (spec: overview §4.2).
pub fn background_pass<E: ReclaimEngine, M: Memory>(
    engine: &mut E,
    pass: &BackgroundPass,
    memory: &mut M,
) -> PassOutcome {
    let mut control = ScanControl::for_background(pass);
    let starved = engine.age_node(&mut control, pass.min_ttl, memory);
    engine.shrink_node(&mut control, memory);
    PassOutcome {
        reclaimed: control.reclaimed,
        scanned: control.scanned,
        priority: control.priority,
        starved,
        cache_trim_failed: control.cache_trim_failed,
        waits_for_writes: control.met.immediate > 0,
    }
}

/// Before a pass, which may be the first that evicts: has the memory follow where shadow entries lie, if they are to be
/// taken back.
pub fn follow_shadows<E: ReclaimEngine, M: Memory>(engine: &E, target: LruvecId, memory: &mut M) {
    if engine.pages_for_shadows(target).is_some()
        && let Some(nodes) = memory.shadow_nodes()
    {
        nodes.follow();
    }
}

/// After the visit of an lruvec: takes back shadow entries that its group has too many of (spec: workingset §8).
pub fn shrink_shadows<E: ReclaimEngine, M: Memory>(
    engine: &E,
    lruvec: LruvecId,
    control: &ScanControl,
    memory: &mut M,
) {
    if let Some(pages) = engine.pages_for_shadows(lruvec)
        && let Some(nodes) = memory.shadow_nodes()
    {
        nodes.visited(lruvec, control.priority, pages);
    }
}

/// One pass: the whole subtree, or from where the last pass stopped until the goal is met.
fn shrink_subtree<E: ReclaimEngine, M: Memory>(engine: &mut E, control: &mut ScanControl, memory: &mut M) {
    control.met = Met::default();
    let before = control.reclaimed;
    follow_shadows(engine, control.target, memory);
    engine.begin_pass(control, memory);
    let members = engine.hierarchy().subtree(control.target).len();
    let first = if control.full_walk { 0 } else { *engine.walk_position(control.target) % members };
    let mut next = first;
    while next < members {
        let lruvec = engine.hierarchy().subtree(control.target)[next];
        next += 1;
        if !control.may_visit(lruvec, memory) {
            continue;
        }
        engine.shrink_lruvec(lruvec, control, memory);
        shrink_shadows(engine, lruvec, control, memory);
        if !control.full_walk && control.reclaimed >= control.goal {
            break;
        }
    }
    if !control.full_walk {
        *engine.walk_position(control.target) = next % members;
    }
    let reclaimed = control.reclaimed - before;
    engine.end_pass(control, reclaimed, memory);
}
