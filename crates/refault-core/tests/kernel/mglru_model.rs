//! The multi-gen LRU in the words of its pages (spec: mglru, workingset §6 and §7): deques of pages with plain flags,
//! sizes recounted each time.
//!
//! The front of a deque is the head of the list (newest), the back its tail (next victim).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use refault_core::memory::{Eviction, IoState, LookAround, Memory, PageTables, RegionKey, SwapSpace, Walk, free_swap};
use refault_core::mglru::{MglruParams, RefaultDistance, Version};
use refault_core::policy::{
    Admission, BackgroundPass, GenerationSize, HitReport, Lists, NodeReclaim, PassOutcome, Policy, ProactiveRequest,
    ReclaimRequest, SortRule, Sorting,
};
use refault_core::{Counters, LruvecId, PageId, PageType, Shadow};

use super::tree::Tree;

#[path = "mglru_model/aging.rs"]
mod aging;
#[path = "mglru_model/eviction.rs"]
mod eviction;
#[path = "mglru_model/refault.rs"]
mod refault;
#[path = "mglru_model/walk.rs"]
mod walk;

const ANON: usize = 0;
const FILE: usize = 1;
/// Isolation quantum, and the refaults below which a tier is never protected.
const BATCH: u64 = 64;
/// Pages one scan looks at.
const SCAN_LIMIT: u64 = 4096;

#[derive(Clone, Debug)]
struct Page {
    page_type: usize,
    lruvec: LruvecId,
    /// Sequence number modulo the widest window while on a list.
    generation: Option<u64>,
    refs: u64,
    referenced: bool,
    workingset: bool,
    active: bool,
    reclaim: bool,
    swapcache: bool,
    /// Unevictable, and found to be by reclaim: on no list.
    culled: bool,
}

impl Page {
    fn clear_references(&mut self) {
        self.refs = 0;
        self.referenced = false;
        self.workingset = false;
    }
}

#[derive(Clone, Debug, Default)]
struct Lruvec {
    max_seq: u64,
    min_seq: [u64; 2],
    /// `lists[seq % max_generations][type]`.
    lists: Vec<[VecDeque<PageId>; 2]>,
    avg_refaulted: [[u64; 4]; 2],
    avg_total: [[u64; 4]; 2],
    refaulted: [[u64; 4]; 2],
    evicted: [[u64; 4]; 2],
    protected: [[u64; 4]; 2],
    walks_done: u64,
    filters: [Option<BTreeSet<RegionKey>>; 2],
    /// Evictions of each type, for refault distances.
    clock: [u64; 2],
    walk_position: usize,
}

#[derive(Clone, Copy, Debug)]
struct Evicted {
    min_seq: u64,
    time: u64,
    refs: u64,
    workingset: bool,
    lruvec: LruvecId,
}

/// What one side of the controller's comparison says.
struct Position {
    refaulted: u64,
    total: u64,
    gain: u64,
}

struct Scan {
    target: LruvecId,
    goal: u64,
    reclaimed: u64,
    priority: u32,
}

pub struct MglruModel {
    params: MglruParams,
    pages: BTreeMap<PageId, Page>,
    lruvecs: Vec<Lruvec>,
    tree: Tree,
    adding: Vec<PageId>,
    activating: Vec<PageId>,
    evicted: Vec<Evicted>,
    /// The current visit has walked page tables.
    walk_context: bool,
    /// A user asked for the reclaim under way.
    proactive: bool,
    counters: Counters,
}

fn order_base_2(n: u64) -> u64 {
    let mut order = 0;
    while 1 << order < n {
        order += 1;
    }
    order
}

/// Whether the second position refaults no more than the first, weighted.
fn refaults_no_more(first: &Position, second: &Position) -> bool {
    let wide = u128::from;
    second.refaulted < BATCH
        || wide(second.refaulted) * wide(first.total + BATCH) * wide(first.gain)
            <= wide(first.refaulted + 1) * wide(second.total) * wide(second.gain)
}

impl MglruModel {
    pub fn new(params: MglruParams) -> MglruModel {
        let mut model = MglruModel {
            params,
            pages: BTreeMap::new(),
            lruvecs: Vec::new(),
            tree: Tree(Vec::new()),
            adding: Vec::new(),
            activating: Vec::new(),
            evicted: Vec::new(),
            walk_context: false,
            proactive: false,
            counters: Counters::default(),
        };
        model.add_lruvec(None);
        model
    }

    /// Asserts that every known page is in exactly one place, on its own generation's list unless it was promoted.
    /// Asserts that the window is as wide as it may be.
    pub fn check(&self) {
        for (id, page) in &self.pages {
            let lists = &self.lruvecs[page.lruvec as usize].lists;
            let on_lists: usize = lists.iter().map(|g| g[page.page_type].iter().filter(|p| *p == id).count()).sum();
            let waiting = self.adding.iter().filter(|p| *p == id).count();
            let places = usize::from(!page.culled);
            assert_eq!(on_lists + waiting, places, "page {id} is in {on_lists} lists and {waiting} batches");
            assert_eq!(page.generation.is_some(), on_lists == 1, "page {id} has a generation iff it is listed");
            assert!(page.generation.is_none() || !page.active, "page {id} is listed and ACTIVE");
        }
        for lruvec in &self.lruvecs {
            for t in [ANON, FILE] {
                let generations = lruvec.max_seq - lruvec.min_seq[t] + 1;
                let window = self.params.min_generations..=self.params.max_generations;
                assert!(window.contains(&generations), "{generations} generations of type {t}");
            }
        }
    }

    fn is_7_2(&self) -> bool {
        self.params.version == Version::V7_2
    }

    fn follows_swap_cache(&self) -> bool {
        self.is_7_2() && self.params.swap_cache
    }

    /// Where a generation stands (mglru §1).
    fn slot(&self, seq: u64) -> u64 {
        seq % self.params.max_generations
    }

    fn page(&mut self, id: PageId) -> &mut Page {
        self.pages.get_mut(&id).unwrap()
    }

    fn lruvec(&mut self, lruvec: LruvecId) -> &mut Lruvec {
        &mut self.lruvecs[lruvec as usize]
    }

    /// Pages of a generation and type, wherever they stand.
    fn size(&self, lruvec: LruvecId, page_type: usize, seq: u64) -> u64 {
        let here = |p: &&Page| p.lruvec == lruvec && p.page_type == page_type && p.generation == Some(self.slot(seq));
        self.pages.values().filter(here).count() as u64
    }

    /// The two youngest generations and the rest, descendants included: what the kernel exports as active and inactive.
    fn active_and_inactive(&self, lruvec: LruvecId, page_type: usize) -> [u64; 2] {
        let mut sums = [0; 2];
        for l in self.tree.subtree(lruvec) {
            let max_seq = self.lruvecs[l as usize].max_seq;
            sums[0] += self.size(l, page_type, max_seq) + self.size(l, page_type, max_seq - 1);
            sums[1] += self.inactive(l, page_type);
        }
        sums
    }

    /// Pages of all generations but the two youngest.
    fn inactive(&self, lruvec: LruvecId, page_type: usize) -> u64 {
        let max_seq = self.lruvecs[lruvec as usize].max_seq;
        (2..self.params.max_generations)
            .map(|back| self.size(lruvec, page_type, max_seq + self.params.max_generations - back))
            .sum()
    }

    pub fn list_sizes(&self, lruvec: LruvecId, page_type: PageType) -> (u64, u64) {
        let max_seq = self.lruvecs[lruvec as usize].max_seq;
        let size = |back| self.size(lruvec, page_type.index(), max_seq - back);
        (self.inactive(lruvec, page_type.index()), size(0) + size(1))
    }

    // --- references (mglru §2, §3, §16.4) ---

    /// Accesses through descriptors, as far as they are told apart.
    fn references(&self, id: PageId) -> u64 {
        let page = &self.pages[&id];
        if self.is_7_2() {
            if page.referenced { page.refs + 1 } else { 0 }
        } else {
            page.refs + u64::from(page.workingset)
        }
    }

    fn tier(&self, references: u64, workingset: bool) -> usize {
        let tier = match self.is_7_2() {
            true if workingset => 3,
            true => order_base_2(references),
            false => order_base_2(references + 1),
        };
        (tier as usize).min(self.params.tiers - 1)
    }

    fn page_tier(&self, id: PageId) -> usize {
        self.tier(self.references(id), self.pages[&id].workingset)
    }

    /// Protected whatever the controller says.
    fn always_protected(&self, id: PageId) -> bool {
        let page = &self.pages[&id];
        let full = if self.is_7_2() { 5 } else { 4 };
        let sum = if self.is_7_2() { self.references(id) + u64::from(page.workingset) } else { self.references(id) };
        self.params.protects_frequent && self.params.tiers > 1 && sum == full
    }

    fn mark_accessed(&mut self, id: PageId) {
        let new_rules = self.is_7_2();
        let page = self.page(id);
        if page.culled {
            return;
        }
        if !page.referenced {
            page.referenced = true;
            if new_rules {
                page.refs = 0;
            }
        } else if new_rules {
            if page.refs < 3 {
                page.refs += 1;
            } else {
                page.workingset = true;
            }
        } else if !page.workingset {
            page.workingset = true;
        } else {
            page.refs = (page.refs + 1).min(3);
        }
    }

    // --- insertion (mglru §4, §16.6) ---

    fn insertion_seq(&self, id: PageId, rotating: bool, in_flight: bool) -> u64 {
        let page = &self.pages[&id];
        let lruvec = &self.lruvecs[page.lruvec as usize];
        let (max_seq, min_seq) = (lruvec.max_seq, lruvec.min_seq[page.page_type]);
        let (min, max) = (self.params.min_generations, self.params.max_generations);
        let second_youngest = page.page_type == ANON && !page.swapcache || page.reclaim && in_flight;
        if self.is_7_2() {
            let back = if page.active {
                min - u64::from(page.workingset)
            } else if rotating {
                max
            } else if second_youngest {
                min
            } else {
                max - u64::from(page.workingset || page.referenced)
            };
            return (max_seq + 1).saturating_sub(back).max(min_seq);
        }
        if page.active {
            max_seq
        } else if second_youngest {
            max_seq - 1
        } else if rotating || self.params.reads_start_oldest || min_seq + min >= max_seq {
            min_seq
        } else {
            min_seq + 1
        }
    }

    /// `in_flight`: the page is dirty or being written.
    fn insert(&mut self, id: PageId, rotating: bool, in_flight: bool) {
        let generation = self.slot(self.insertion_seq(id, rotating, in_flight));
        let page = self.page(id);
        assert!(page.generation.is_none());
        page.generation = Some(generation);
        page.active = false;
        let (page_type, lruvec) = (page.page_type, page.lruvec);
        let list = &mut self.lruvec(lruvec).lists[generation as usize][page_type];
        if rotating { list.push_back(id) } else { list.push_front(id) }
    }

    fn cull(&mut self, id: PageId) {
        let page = self.page(id);
        (page.culled, page.generation, page.active) = (true, None, false);
    }

    /// Takes a page off whatever list it stands on.
    fn unlist(&mut self, id: PageId) {
        let (page_type, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        for generation in &mut self.lruvec(lruvec).lists {
            generation[page_type].retain(|p| *p != id);
        }
        self.page(id).generation = None;
    }

    fn is_listed(&self, id: PageId) -> bool {
        self.pages.get(&id).is_some_and(|p| p.generation.is_some())
    }

    fn drain(&mut self) {
        self.drain_additions();
        self.drain_activations();
    }

    fn drain_additions(&mut self) {
        for id in std::mem::take(&mut self.adding) {
            self.insert(id, false, false);
        }
    }

    fn drain_activations(&mut self) {
        for id in std::mem::take(&mut self.activating) {
            if self.is_listed(id) {
                self.unlist(id);
                self.page(id).active = true;
                self.insert(id, false, false);
                self.counters.pgactivate += 1;
            }
        }
    }

    fn activate_later(&mut self, id: PageId) {
        self.activating.push(id);
        if self.activating.len() >= self.params.batch {
            self.drain_activations();
        }
    }

    // --- the two ends of the window (mglru §6, §16.1) ---
}

impl Policy for MglruModel {
    const HITS: HitReport = HitReport::Kernel;
    const RECLAIM_BATCH: u32 = 32;

    fn admit<M: Memory>(&mut self, id: PageId, admission: &Admission, memory: &mut M) {
        let page = Page {
            page_type: admission.page_type.index(),
            lruvec: admission.lruvec,
            generation: None,
            refs: 0,
            referenced: false,
            workingset: false,
            active: false,
            reclaim: false,
            swapcache: admission.keeps_slot,
            culled: false,
        };
        assert!(self.pages.insert(id, page).is_none());
        if let Some(shadow) = admission.shadow.filter(|_| !admission.overwrites) {
            let old = self.evicted[(shadow.0 / 2) as usize];
            let free_swap = free_swap(memory, old.lruvec) > 0;
            self.refault(id, old, admission.in_fault, free_swap);
        }
        if admission.in_fault {
            if !self.is_7_2() || self.pages[&id].workingset {
                self.page(id).active = true;
            } else {
                self.mark_accessed(id);
            }
        }
        self.adding.push(id);
        if self.adding.len() >= self.params.batch {
            // Not yet mapped, so in the swap cache if it comes from there (mglru §16.6).
            let from_swap = admission.page_type == PageType::Anon && admission.shadow.is_some();
            if self.follows_swap_cache() && self.params.batch > 1 && from_swap {
                self.page(id).swapcache = true;
            }
            self.drain_additions();
            self.page(id).swapcache = admission.keeps_slot;
        }
    }

    fn accessed<M: Memory>(&mut self, id: PageId, _memory: &mut M) {
        self.mark_accessed(id);
    }

    fn freed(&mut self, id: PageId) {
        self.drain();
        self.unlist(id);
        self.pages.remove(&id);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let goal = u64::from(request.goal).max(32);
        let mut scan = Scan { target: request.target, goal, reclaimed: 0, priority: 12 };
        for full_walk in [false, true] {
            for priority in (0..=12).rev() {
                scan.priority = priority;
                self.pass(&mut scan, full_walk, memory);
                if scan.reclaimed >= scan.goal {
                    break;
                }
            }
            if scan.reclaimed > 0 {
                break;
            }
        }
        scan.reclaimed as u32
    }

    fn grow(&mut self, _pages: usize) {}

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        0
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

impl NodeReclaim for MglruModel {
    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> LruvecId {
        self.tree.0.push(parent);
        let min = self.params.min_generations;
        let lists = vec![Default::default(); self.params.max_generations as usize];
        self.lruvecs.push(Lruvec { max_seq: min + 1, walks_done: min, lists, ..Lruvec::default() });
        self.lruvecs.len() as LruvecId - 1
    }

    fn reclaim_nodes<M: Memory>(&mut self, _roots: &[LruvecId], _memory: &mut M) -> u32 {
        unreachable!("the driver reclaims for limits only")
    }

    fn background_pass<M: Memory>(&mut self, _pass: &BackgroundPass, _memory: &mut M) -> PassOutcome {
        unreachable!("the driver reclaims for limits only")
    }

    fn reclaim_proactively<M: Memory>(&mut self, request: &ProactiveRequest, memory: &mut M) -> u32 {
        let own = self.params.swappiness;
        self.params.swappiness = request.swappiness.unwrap_or(own);
        self.proactive = true;
        let request = ReclaimRequest { target: request.target, goal: request.goal, incoming: None };
        let freed = self.reclaim(&request, memory);
        self.proactive = false;
        self.params.swappiness = own;
        freed
    }

    /// Off its list, its reference forgotten, through the batch stage (damos §3.2, classic §12).
    fn page_out<M: Memory>(&mut self, id: PageId, memory: &mut M) -> bool {
        if self.pages[&id].generation.is_none() || self.activating.contains(&id) {
            return false;
        }
        self.unlist(id);
        self.page(id).active = false;
        self.page(id).referenced = false;
        let gone = self.batch_stage(id, false, memory);
        if !gone && memory.io_state(id).any(IoState::UNEVICTABLE) {
            self.cull(id);
        } else if !gone {
            self.adding.push(id);
            if self.adding.len() >= self.params.batch {
                self.drain_additions();
            }
        }
        gone
    }

    fn made_evictable(&mut self, id: PageId) {
        self.drain();
        if std::mem::take(&mut self.page(id).culled) {
            self.insert(id, false, false);
        }
    }

    fn is_workingset(&self, id: PageId) -> bool {
        self.pages[&id].workingset
    }

    fn write_finished(&mut self, id: PageId) {
        if !std::mem::take(&mut self.page(id).reclaim) || !self.is_listed(id) || self.activating.contains(&id) {
            return;
        }
        self.unlist(id);
        self.page(id).active = false;
        self.insert(id, true, false);
        self.counters.pgrotated += 1;
    }
}

impl Sorting for MglruModel {
    fn prioritise<M: Memory>(&mut self, id: PageId, rule: SortRule, _memory: &mut M) {
        if !self.is_listed(id) || self.activating.contains(&id) {
            return;
        }
        match rule {
            SortRule::MarkAccessed => self.mark_accessed(id),
            SortRule::Activate => self.activate_later(id),
        }
    }

    fn deprioritise<M: Memory>(&mut self, id: PageId, _rule: SortRule, memory: &mut M) {
        if !self.is_listed(id) || self.activating.contains(&id) {
            return;
        }
        let new_rules = self.is_7_2();
        if new_rules {
            self.page(id).clear_references();
            let page = self.pages[&id].clone();
            let oldest = self.lruvec(page.lruvec).min_seq[page.page_type];
            if page.generation == Some(self.slot(oldest)) {
                return;
            }
        }
        self.unlist(id);
        self.page(id).active = false;
        self.page(id).referenced = false;
        let io = memory.io_state(id);
        self.insert(id, false, io.any(IoState::DIRTY) || io.any(IoState::WRITEBACK));
        self.counters.pgdeactivate += 1;
    }
}

impl Lists for MglruModel {
    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize> {
        let l = &self.lruvecs[lruvec as usize];
        let first = l.min_seq[ANON].min(l.min_seq[FILE]);
        let of_type = |t: usize, seq| if seq < l.min_seq[t] { 0 } else { self.size(lruvec, t, seq) };
        (first..=l.max_seq)
            .map(|seq| GenerationSize { seq, birth: 0, pages: [of_type(ANON, seq), of_type(FILE, seq)] })
            .collect()
    }
}
