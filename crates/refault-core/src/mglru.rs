//! The multi-generational LRU.
//!
//! Each lruvec has a window of two to four generations (or as parameters say) shared by anonymous and file pages. Pages
//! enter young or old depending on how they came; page-table walks promote what was accessed to the youngest
//! generation; eviction works on the oldest generation of the type that the refault-driven controller picks, sorting
//! lazily: pages that were promoted meanwhile, or that belong to a tier which refaults more than the base tier, move on
//! instead of being evicted.
//!
//! Invariants: at least two generations of each type; a listed page has a generation, and `size` counts it there even
//! before sorting moves it to that generation's list; ACTIVE of a listed page is clear. Cost: 8 bytes per page id and 4
//! to 16 per listed page; admission and fd accesses O(1), eviction amortised O(1) per page, aging O(page-table entries
//! of regions in use).
//!
//! Kernel: `lru_gen_shrink_lruvec`, `try_to_shrink_lruvec` in `mm/vmscan.c`; `folio_mark_accessed` in `mm/swap.c`;
//! `lru_gen_add_folio`, `lru_gen_del_folio` in `include/linux/mm_inline.h`.
//! Source: spec: mglru (profile M = 6.12), mglru §16 (the 7.2 variant), workingset §6, §7 (profile MK, shadow entries).
//!
//! ```
//! use refault_core::policy::generations::generations;
//! use refault_core::{Mglru, MglruParams, Policy};
//!
//! let mut policy = Mglru::new(MglruParams::default());
//! policy.grow(1000);
//! policy.set_capacity(100);
//! assert!(!generations(&policy, 0).is_empty());
//! ```

mod aging;
mod eviction;
mod generation;
mod handover;
mod insertion;
mod lru_gen_debugfs;
mod lru_refs;
mod memcg_lru;
mod params;
mod refault;
mod tier;
mod walk;

pub use params::{Aging, MglruParams, RefaultDistance, Version};

use crate::counters::Counters;
use crate::memory::{IoState, Memory};
use crate::page::{LruvecId, PageId, PageType};
use crate::policy::{
    Admission, BackgroundPass, EvictGenerations, GenerationCommands, GenerationDetails, GenerationError,
    GenerationSize, HitReport, Lists, NewGeneration, NodeReclaim, PassOutcome, Policy, ProactiveRequest,
    ReclaimRequest, SortRule, Sorting,
};
use crate::reclaim::batch_stage::{self, Caller};
use crate::reclaim::control::{
    Met, ReclaimEngine, SWAP_CLUSTER_MAX, ScanControl, background_pass, direct_reclaim, follow_shadows, limit_reclaim,
};
use crate::reclaim::record::{
    ACTIVE, FILE, IN_ADD, KNOWN, LRU, PageRecord, RECLAIM, REFERENCED, SWAPCACHE, WORKINGSET,
};
use crate::reclaim::{CpuBatch, Hierarchy};
use generation::{Lruvec, Window};
use insertion::Insertion;

/// See the module.
pub struct Mglru {
    params: MglruParams,
    records: Vec<PageRecord>,
    lruvecs: Vec<Lruvec>,
    hierarchy: Hierarchy,
    walk_positions: Vec<usize>,
    add_batch: CpuBatch,
    activate_batch: CpuBatch,
    /// Pages taken off a list for the batch stage, and what the stage left; kept to avoid allocation.
    isolated: Vec<PageId>,
    survivors: Vec<PageId>,
    /// Young neighbours that a look-around found; kept to avoid allocation.
    neighbours: Vec<PageId>,
    /// The current visit has a walk to account promotions to: it has aged, or it is the background reclaimer's.
    walk_context: bool,
    /// The groups of each node in the order of their turns, at the index of the node's root lruvec.
    nodes: Vec<Option<memcg_lru::MemcgLru>>,
    counters: Counters,
}

impl Mglru {
    /// An empty list system with one lruvec.
    pub fn new(params: MglruParams) -> Mglru {
        let window = Window::new(params.min_generations, params.max_generations);
        let mut mglru = Mglru {
            add_batch: CpuBatch::new(params.batch),
            activate_batch: CpuBatch::new(params.batch),
            params,
            records: Vec::new(),
            lruvecs: vec![Lruvec::new(window, 0)],
            hierarchy: Hierarchy::new(),
            walk_positions: vec![0],
            isolated: Vec::new(),
            survivors: Vec::new(),
            neighbours: Vec::new(),
            walk_context: false,
            nodes: Vec::new(),
            counters: Counters::default(),
        };
        mglru.join_node(0);
        mglru
    }

    /// Pages of a type in the two youngest generations and in the older ones, which other parts of a kernel take for
    /// active and inactive. Without children.
    pub fn list_sizes(&self, lruvec: LruvecId, page_type: PageType) -> (u64, u64) {
        let lruvec = &self.lruvecs[lruvec as usize];
        let active = lruvec.active(page_type);
        (lruvec.total(page_type) - active, active)
    }

    fn is_7_2(&self) -> bool {
        self.params.version == Version::V7_2
    }

    /// What the swap cache and the batch of activations do in 7.2 is followed (spec: mglru §16.5, §16.6).
    fn follows_swap_cache(&self) -> bool {
        self.is_7_2() && self.params.swap_cache
    }
}

impl Policy for Mglru {
    const HITS: HitReport = HitReport::Kernel;
    const RECLAIM_BATCH: u32 = SWAP_CLUSTER_MAX;

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
            self.judge_refault(page, shadow, admission.in_fault, memory);
        }
        if admission.in_fault {
            if !self.is_7_2() || self.records[page as usize].has(WORKINGSET) {
                self.records[page as usize].set(ACTIVE);
            } else {
                self.mark_accessed(page);
            }
        }
        if self.add_batch.push(page) {
            self.batch_filled_by(page, admission);
        }
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        self.mark_accessed(page);
    }

    /// A zap drains the batches of its CPU first (spec: overview §4.6).
    fn freed(&mut self, page: PageId) {
        self.drain_batches();
        self.unlink(page);
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

    fn generation_commands(&mut self) -> Option<&mut impl GenerationCommands> {
        Some(self)
    }

    fn sorting(&mut self) -> Option<&mut impl Sorting> {
        Some(self)
    }

    fn lists(&self) -> Option<&impl Lists> {
        Some(self)
    }
}

impl NodeReclaim for Mglru {
    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> LruvecId {
        let window = self.lruvecs[0].window;
        self.lruvecs.push(Lruvec::new(window, 0));
        self.walk_positions.push(0);
        let id = self.hierarchy.add(parent);
        self.join_node(id);
        id
    }

    fn reclaim_nodes<M: Memory>(&mut self, roots: &[LruvecId], memory: &mut M) -> u32 {
        direct_reclaim(self, roots, memory) as u32
    }

    fn background_pass<M: Memory>(&mut self, pass: &BackgroundPass, memory: &mut M) -> PassOutcome {
        background_pass(self, pass, memory)
    }

    fn reclaim_proactively<M: Memory>(&mut self, request: &ProactiveRequest, memory: &mut M) -> u32 {
        limit_reclaim(self, ScanControl::for_user(request), memory) as u32
    }

    fn page_out<M: Memory>(&mut self, page: PageId, memory: &mut M) -> bool {
        if !self.records[page as usize].has(LRU) {
            return false;
        }
        self.unlink(page);
        self.records[page as usize].clear(REFERENCED);
        let caller = Caller { ignores_references: true, ..Caller::default() };
        let mut survivors = std::mem::take(&mut self.survivors);
        let gone = batch_stage::run(self, &[page], &mut survivors, caller, memory).reclaimed > 0;
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

    /// A page whose write has ended goes to the tail of the oldest generation, to be freed next. One that waits in a
    /// batch stays where it is.
    fn write_finished(&mut self, page: PageId) {
        let record = &mut self.records[page as usize];
        let rotates = record.has(RECLAIM) && record.has(LRU);
        record.clear(RECLAIM);
        if !rotates {
            return;
        }
        self.unlink(page);
        self.insert_rotated(page);
        self.counters.pgrotated += 1;
    }

    fn made_evictable(&mut self, page: PageId) {
        self.drain_batches();
        if self.records[page as usize].rescue() {
            self.insert(page, Insertion::Plain);
        }
    }

    fn is_workingset(&self, page: PageId) -> bool {
        self.records[page as usize].has(WORKINGSET)
    }
}

impl GenerationCommands for Mglru {
    fn new_generation<M: Memory>(&mut self, request: &NewGeneration, memory: &mut M) -> Result<(), GenerationError> {
        self.command_new_generation(request, memory)
    }

    fn evict_generations<M: Memory>(
        &mut self,
        request: &EvictGenerations,
        memory: &mut M,
    ) -> Result<u64, GenerationError> {
        self.command_evict(request, memory)
    }
}

impl Sorting for Mglru {
    /// Up to 6.12 only a reference is counted; since 7.0 the page moves to one of the two youngest generations.
    fn prioritise<M: Memory>(&mut self, page: PageId, rule: SortRule, _memory: &mut M) {
        // A monitor does not see pages that are on no list yet (spec: lru_sort §4).
        if !self.records[page as usize].has(LRU) {
            return;
        }
        match rule {
            SortRule::MarkAccessed => self.mark_accessed(page),
            SortRule::Activate => self.queue_activation(page),
        }
    }

    fn deprioritise<M: Memory>(&mut self, page: PageId, _rule: SortRule, memory: &mut M) {
        self.deactivate(page, memory);
    }
}

impl Lists for Mglru {
    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize> {
        self.lruvecs[lruvec as usize].listing()
    }

    fn generation_details(&self, lruvec: LruvecId) -> Vec<GenerationDetails> {
        self.lruvecs[lruvec as usize].details()
    }

    fn active_inactive(&self) -> Option<[u64; 2]> {
        let by_type = |t| self.lruvecs.iter().map(move |lruvec| (lruvec.active(t), lruvec.total(t)));
        let sums = PageType::ALL
            .into_iter()
            .flat_map(by_type)
            .fold([0; 2], |sums, (active, all)| [sums[0] + active, sums[1] + all - active]);
        Some(sums)
    }
}

impl ReclaimEngine for Mglru {
    fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    fn walk_position(&mut self, target: LruvecId) -> &mut usize {
        &mut self.walk_positions[target as usize]
    }

    fn begin_pass<M: Memory>(&mut self, _control: &mut ScanControl, _memory: &mut M) {}

    fn shrink_lruvec<M: Memory>(&mut self, lruvec: LruvecId, control: &mut ScanControl, memory: &mut M) {
        self.drain_batches();
        self.walk_context = control.proactive;
        let aged = self.shrink(lruvec, control, memory);
        self.walk_context = false;
        if aged {
            self.rotate_young(lruvec);
        }
    }

    /// Those of 7.2's generations do not: the sizes that its limit of shadow entries is made of are those of the
    /// classic lists (spec: mglru §16.14).
    fn pages_for_shadows(&self, lruvec: LruvecId) -> Option<u64> {
        let pages = || PageType::ALL.into_iter().map(|t| self.lruvecs[lruvec as usize].total(t)).sum();
        self.params.shadow_nodes.then(|| if self.is_7_2() { 0 } else { pages() })
    }

    fn end_attempt(&mut self, _control: &ScanControl) {}

    fn shrink_node<M: Memory>(&mut self, control: &mut ScanControl, memory: &mut M) {
        control.met = Met::default();
        follow_shadows(self, control.target, memory);
        self.drain_batches();
        self.shrink_groups(control, memory);
    }

    fn age_node<M: Memory>(&mut self, control: &mut ScanControl, min_ttl: u64, memory: &mut M) -> bool {
        self.set_initial_priority(control, memory);
        min_ttl > 0 && self.is_starved(control, min_ttl, memory)
    }
}
