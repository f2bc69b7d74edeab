//! The classic two-list LRU: an active and an inactive list for each type, with refault detection.
//!
//! Pages start inactive; a second reference makes them active; the active lists are shrunk into the inactive ones when
//! these run low or refaults say that the active set is stale. Two rules judge a refault: the mainline refault distance
//! and the "Shadow LRU" redesign ([`RefaultRule`]).
//!
//! Invariants: every known page is on exactly one of its lruvec's four lists or waits in the batch of additions; ACTIVE
//! of a listed page says which. Cost: 8 bytes per page id and 4 to 16 per listed page; admission and fd
//! accesses O(1); reclaim as the kernel's.
//!
//! Kernel: `folio_mark_accessed`, `folio_activate`, `folio_deactivate`, `folio_rotate_reclaimable` in `mm/swap.c`;
//! `shrink_lruvec`, `kswapd_age_node` in `mm/vmscan.c`.
//! Source: spec: classic (profile C), workingset §3–§5 (profiles W and S), normative version 6.12.
//!
//! ```
//! use refault_core::policy::{Admission, FrontEnd, registry::build};
//! use refault_core::{Classic, ClassicParams, Policy};
//!
//! let mut policy = Classic::new(ClassicParams::default());
//! policy.grow(1000);
//! policy.set_capacity(100);
//! assert!(policy.metadata_bytes() > 0);
//! // By name, with the Shadow LRU redesign of the refault distance:
//! assert!(refault_core::policy::PolicySpec::parse("classic-shadow{per_type_age=yes}").is_ok());
//! ```

mod balance;
mod lruvec;
mod params;
mod refault;
mod shrink;

pub use params::{ClassicParams, RefaultRule};

use crate::counters::Counters;
use crate::memory::{IoState, Memory, has_swap};
use crate::page::{LruvecId, PageId, PageType};
use crate::policy::{
    Admission, BackgroundPass, HitReport, Lists, NodeReclaim, PassOutcome, Policy, ProactiveRequest, ReclaimRequest,
    SortRule, Sorting,
};
use crate::reclaim::batch_stage::{self, Caller};
use crate::reclaim::control::{
    ReclaimEngine, SWAP_CLUSTER_MAX, ScanControl, background_pass, direct_reclaim, limit_reclaim,
};
use crate::reclaim::record::{
    ACTIVE, FILE, IN_ACTIVATE, IN_ADD, KNOWN, LRU, PageRecord, RECLAIM, REFERENCED, SWAPCACHE, WORKINGSET,
};
use crate::reclaim::{CpuBatch, Hierarchy};
use crate::switching::Handover;
use lruvec::{Lruvec, NodePressure};

/// See the module.
pub struct Classic {
    params: ClassicParams,
    records: Vec<PageRecord>,
    lruvecs: Vec<Lruvec>,
    hierarchy: Hierarchy,
    add_batch: CpuBatch,
    activate_batch: CpuBatch,
    /// Pages taken off a list for the batch stage, and what the stage left; kept to avoid allocation.
    isolated: Vec<PageId>,
    survivors: Vec<PageId>,
    /// What the current pass found out before visiting lruvecs.
    pass: shrink::Pass,
    /// Whose shadow entries the current reclaim writes.
    reclaim_target: LruvecId,
    counters: Counters,
}

impl Classic {
    /// An empty list system with one lruvec.
    pub fn new(params: ClassicParams) -> Classic {
        Classic {
            add_batch: CpuBatch::new(params.batch),
            activate_batch: CpuBatch::new(params.batch),
            params,
            records: Vec::new(),
            lruvecs: vec![Lruvec::default()],
            hierarchy: Hierarchy::new(),
            isolated: Vec::new(),
            survivors: Vec::new(),
            pass: shrink::Pass::default(),
            reclaim_target: 0,
            counters: Counters::default(),
        }
    }

    /// Sizes of inactive and active list of a type in one lruvec, without its children.
    pub fn list_sizes(&self, lruvec: LruvecId, page_type: PageType) -> (u64, u64) {
        let lruvec = &self.lruvecs[lruvec as usize];
        (lruvec.size(page_type, false), lruvec.size(page_type, true))
    }

    /// Marks a page accessed through a descriptor (spec: classic §3).
    #[inline]
    pub fn mark_accessed(&mut self, page: PageId) {
        let record = &mut self.records[page as usize];
        if !record.has(REFERENCED) {
            record.set(REFERENCED);
        } else if !record.has(ACTIVE) && !record.is_culled() {
            record.clear(REFERENCED);
            if record.has(LRU) {
                record.clear(LRU);
                record.set(IN_ACTIVATE);
                if self.activate_batch.push(page) {
                    self.drain_activations();
                }
            } else if record.has(IN_ADD) {
                record.set(ACTIVE);
            }
            if self.params.rule == RefaultRule::Mainline {
                let lruvec = self.records[page as usize].lruvec;
                self.advance_age(lruvec, 1);
            }
        }
    }

    /// Moves a listed page, if inactive, to the head of its active list at once, as 7.0 and later prioritise (spec:
    /// lru_sort §4.1).
    fn activate(&mut self, page: PageId) {
        let record = &mut self.records[page as usize];
        if record.has(ACTIVE) {
            return;
        }
        record.clear(LRU);
        record.set(IN_ACTIVATE);
        if self.activate_batch.push(page) {
            self.drain_activations();
        }
    }

    /// Moves an active page to the head of its inactive list without looking at references (spec: classic §12).
    pub fn deactivate(&mut self, page: PageId) {
        let record = &mut self.records[page as usize];
        if !record.has(LRU) || !record.has(ACTIVE) {
            return;
        }
        let (page_type, lruvec) = (record.page_type(), record.lruvec);
        record.clear(ACTIVE | REFERENCED);
        let lruvec = &mut self.lruvecs[lruvec as usize];
        lruvec.list_mut(page_type, true).remove(&self.records, page);
        lruvec.list_mut(page_type, false).push_head(&mut self.records, page);
        self.counters.pgdeactivate += 1;
    }

    /// Takes every page off its list, for the generations (spec: mglru §15, `lru_gen/enabled`). Clocks and costs stay
    /// for the return.
    pub(crate) fn leave(&mut self) -> Handover {
        self.drain_batches();
        let mut pages = Vec::new();
        for lruvec in &self.lruvecs {
            for (page_type, active) in PageType::ALL.into_iter().flat_map(|t| [(t, false), (t, true)]) {
                pages.extend(lruvec.list(page_type, active).iter());
            }
        }
        for page in &pages {
            let record = &mut self.records[*page as usize];
            record.clear(LRU);
            let (page_type, active, lruvec) = (record.page_type(), record.has(ACTIVE), record.lruvec);
            self.lruvecs[lruvec as usize].list_mut(page_type, active).remove(&self.records, *page);
        }
        Handover { records: std::mem::take(&mut self.records), pages }
    }

    /// Takes over pages; ACTIVE says onto which list each goes.
    pub(crate) fn enter(&mut self, handover: Handover) {
        self.records = handover.records;
        for page in handover.pages {
            self.list(page);
        }
    }

    /// Puts what waits in this CPU's batches on the lists.
    fn drain_batches(&mut self) {
        self.drain_additions();
        self.drain_activations();
    }

    fn drain_additions(&mut self) {
        let pages = self.add_batch.take();
        for &page in &pages {
            let record = &mut self.records[page as usize];
            record.clear(IN_ADD);
            record.set(LRU);
            let (page_type, active, lruvec) = (record.page_type(), record.has(ACTIVE), record.lruvec);
            self.lruvecs[lruvec as usize].list_mut(page_type, active).push_head(&mut self.records, page);
        }
        self.add_batch.restore(pages);
    }

    fn drain_activations(&mut self) {
        let pages = self.activate_batch.take();
        for &page in &pages {
            let record = &mut self.records[page as usize];
            record.clear(IN_ACTIVATE);
            record.set(LRU | ACTIVE);
            let (page_type, lruvec) = (record.page_type(), record.lruvec);
            let lruvec = &mut self.lruvecs[lruvec as usize];
            lruvec.list_mut(page_type, false).remove(&self.records, page);
            lruvec.list_mut(page_type, true).push_head(&mut self.records, page);
            self.counters.pgactivate += 1;
        }
        self.activate_batch.restore(pages);
    }
}

impl Policy for Classic {
    const HITS: HitReport = HitReport::Kernel;
    const RECLAIM_BATCH: u32 = SWAP_CLUSTER_MAX;

    /// A memory that is no larger than a batch would wait in it whole, and nothing could be evicted: half of it may
    /// wait there. The kernel has no such memory; it keeps its batches and ends programs.
    fn set_capacity(&mut self, pages: usize) {
        let batch = if pages < self.params.batch { pages / 2 } else { self.params.batch };
        self.add_batch.set_capacity(batch);
        self.activate_batch.set_capacity(batch);
    }

    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        u64::from(self.records[page as usize].flags)
    }

    #[inline]
    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, memory: &mut M) {
        let record = &mut self.records[page as usize];
        debug_assert!(!record.has(KNOWN));
        record.flags = IN_ADD;
        record.lruvec = admission.lruvec;
        if admission.page_type == PageType::File {
            record.set(FILE);
        }
        if admission.keeps_slot {
            record.set(SWAPCACHE);
        }
        if let Some(shadow) = admission.shadow
            && !admission.overwrites
        {
            self.judge_refault(page, shadow, memory);
        }
        if self.add_batch.push(page) {
            self.drain_additions();
        }
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        self.mark_accessed(page);
    }

    /// A zap drains the batches of its CPU first (spec: overview §4.6).
    fn freed(&mut self, page: PageId) {
        self.drain_batches();
        let record = self.records[page as usize];
        if !record.is_culled() {
            self.lruvecs[record.lruvec as usize]
                .list_mut(record.page_type(), record.has(ACTIVE))
                .remove(&self.records, page);
        }
        self.records[page as usize].flags = 0;
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let control = ScanControl::for_limit(request.target, request.goal);
        limit_reclaim(self, control, memory) as u32
    }

    fn grow(&mut self, pages: usize) {
        if pages > self.records.len() {
            self.records.resize(pages, PageRecord::default());
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.records.capacity() * size_of::<PageRecord>() + self.lruvecs.iter().map(Lruvec::bytes).sum::<usize>()
    }

    fn nodes(&mut self) -> Option<&mut impl NodeReclaim> {
        Some(self)
    }

    fn sorting(&mut self) -> Option<&mut impl Sorting> {
        Some(self)
    }

    fn lists(&self) -> Option<&impl Lists> {
        Some(self)
    }
}

impl NodeReclaim for Classic {
    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> LruvecId {
        self.lruvecs.push(Lruvec::default());
        self.hierarchy.add(parent)
    }

    fn reclaim_nodes<M: Memory>(&mut self, roots: &[LruvecId], memory: &mut M) -> u32 {
        direct_reclaim(self, roots, memory) as u32
    }

    fn background_pass<M: Memory>(&mut self, pass: &BackgroundPass, memory: &mut M) -> PassOutcome {
        background_pass(self, pass, memory)
    }

    fn background_done(&mut self, root: LruvecId, balanced: bool) {
        let root = &mut self.lruvecs[root as usize];
        root.snapshot = root.workingset_activate;
        if balanced {
            root.pressure = NodePressure::default();
        }
    }

    fn reclaim_proactively<M: Memory>(&mut self, request: &ProactiveRequest, memory: &mut M) -> u32 {
        limit_reclaim(self, ScanControl::for_user(request), memory) as u32
    }

    fn page_out<M: Memory>(&mut self, page: PageId, memory: &mut M) -> bool {
        let record = &mut self.records[page as usize];
        if !record.has(LRU) {
            return false;
        }
        let (page_type, active, lruvec) = (record.page_type(), record.has(ACTIVE), record.lruvec);
        record.clear(LRU | ACTIVE | REFERENCED);
        self.lruvecs[lruvec as usize].list_mut(page_type, active).remove(&self.records, page);
        // No group's limit is meant: the shadow entry is the node's root's (spec: workingset §1).
        let root = *self.hierarchy.ancestors(lruvec).last().expect("invariant: an lruvec is among its ancestors");
        let target = std::mem::replace(&mut self.reclaim_target, root);
        let caller = Caller { ignores_references: true, ..Caller::default() };
        let mut survivors = std::mem::take(&mut self.survivors);
        let gone = batch_stage::run(self, &[page], &mut survivors, caller, memory).reclaimed > 0;
        self.reclaim_target = target;
        // A page that stays comes back through the batch of additions (spec: classic §12), which culls it where it
        // must.
        let stays = survivors.pop().is_some();
        if stays && memory.io_state(page).any(IoState::UNEVICTABLE) {
            self.records[page as usize].cull();
        } else if stays {
            self.records[page as usize].set(IN_ADD);
            if self.add_batch.push(page) {
                self.drain_additions();
            }
        }
        self.survivors = survivors;
        gone
    }

    /// A page whose write has ended goes to the tail of its inactive list, to be freed next (spec: overview §5, end).
    /// One that waits in a batch stays where it is.
    fn write_finished(&mut self, page: PageId) {
        let record = &mut self.records[page as usize];
        let rotates = record.has(RECLAIM) && record.has(LRU);
        record.clear(RECLAIM);
        if !rotates {
            return;
        }
        let (page_type, active, lruvec) = (record.page_type(), record.has(ACTIVE), record.lruvec);
        record.clear(ACTIVE);
        let lruvec = &mut self.lruvecs[lruvec as usize];
        lruvec.list_mut(page_type, active).remove(&self.records, page);
        lruvec.list_mut(page_type, false).push_tail(&mut self.records, page);
        self.counters.pgrotated += 1;
    }

    fn made_evictable(&mut self, page: PageId) {
        self.drain_batches();
        if self.records[page as usize].rescue() {
            self.list(page);
        }
    }

    fn is_workingset(&self, page: PageId) -> bool {
        self.records[page as usize].has(WORKINGSET)
    }
}

impl Sorting for Classic {
    fn prioritise<M: Memory>(&mut self, page: PageId, rule: SortRule, _memory: &mut M) {
        // A monitor does not see pages that are on no list yet (spec: lru_sort §4).
        if !self.records[page as usize].has(LRU) {
            return;
        }
        match rule {
            SortRule::MarkAccessed => self.mark_accessed(page),
            SortRule::Activate => self.activate(page),
        }
    }

    fn deprioritise<M: Memory>(&mut self, page: PageId, _rule: SortRule, _memory: &mut M) {
        self.deactivate(page);
    }
}

impl Lists for Classic {
    fn active_inactive(&self) -> Option<[u64; 2]> {
        let sizes = |active| {
            let lists =
                PageType::ALL.into_iter().flat_map(|t| self.lruvecs.iter().map(move |lruvec| lruvec.size(t, active)));
            lists.sum()
        };
        Some([sizes(true), sizes(false)])
    }
}

impl ReclaimEngine for Classic {
    fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    fn walk_position(&mut self, target: LruvecId) -> &mut usize {
        &mut self.lruvecs[target as usize].walk_position
    }

    fn begin_pass<M: Memory>(&mut self, control: &mut ScanControl, memory: &mut M) {
        self.reclaim_target = control.target;
        self.prepare_pass(control, memory);
    }

    fn shrink_lruvec<M: Memory>(&mut self, lruvec: LruvecId, control: &mut ScanControl, memory: &mut M) {
        self.shrink(lruvec, control, memory);
    }

    fn pages_for_shadows(&self, lruvec: LruvecId) -> Option<u64> {
        self.params.shadow_nodes.then(|| self.lruvecs[lruvec as usize].total())
    }

    fn end_pass<M: Memory>(&mut self, control: &mut ScanControl, reclaimed: u64, memory: &mut M) {
        self.note_pass(control, reclaimed, memory);
    }

    fn end_attempt(&mut self, control: &ScanControl) {
        let target = &mut self.lruvecs[control.target as usize];
        target.snapshot = target.workingset_activate;
        target.group_congested = false;
    }

    /// Background reclaim keeps the inactive anonymous lists of all groups filled (spec: classic §10).
    fn age_node<M: Memory>(&mut self, control: &mut ScanControl, _min_ttl: u64, memory: &mut M) -> bool {
        if has_swap(memory) && self.inactive_is_low(control.target, PageType::Anon) {
            for at in 0..self.hierarchy.subtree(control.target).len() {
                let member = self.hierarchy.subtree(control.target)[at];
                self.shrink_active(member, PageType::Anon, u64::from(SWAP_CLUSTER_MAX), memory);
            }
        }
        false
    }
}
