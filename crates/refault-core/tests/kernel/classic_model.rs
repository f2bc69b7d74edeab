//! The classic lists in the words of their pages (spec: classic, workingset §3–§5): deques of pages with plain flags.
//!
//! The front of a deque is the head of the list (newest), the back its tail (next victim).

#[path = "classic_model/extensions.rs"]
mod extensions;

use std::collections::{BTreeMap, VecDeque};

use refault_core::classic::{ClassicParams, RefaultRule};
use refault_core::memory::{Eviction, IoState, Memory, free_swap, has_swap};
use refault_core::policy::{Admission, HitReport, NodeReclaim, Policy, ReclaimRequest, Sorting};
use refault_core::{Counters, LruvecId, PageId, PageType, Shadow};

use super::tree::Tree;

const ANON: usize = 0;
const FILE: usize = 1;
/// Index of the lists of a type.
const INACTIVE: usize = 0;
const ACTIVE: usize = 1;

#[derive(Clone, Debug)]
struct Page {
    page_type: usize,
    lruvec: LruvecId,
    active: bool,
    referenced: bool,
    workingset: bool,
    reclaim: bool,
    /// Unevictable, and found to be by reclaim: on no list.
    culled: bool,
}

#[derive(Clone, Debug, Default)]
struct Lruvec {
    /// `lists[type][active]`.
    lists: [[VecDeque<PageId>; 2]; 2],
    /// Non-resident age; the second is only used when each type has its own.
    age: [u64; 2],
    cost: [u64; 2],
    activations: [u64; 2],
    snapshot: [u64; 2],
    walk_position: usize,
}

#[derive(Clone, Copy, Debug)]
struct Evicted {
    age: u64,
    workingset: bool,
    by: LruvecId,
}

#[derive(Debug)]
struct Scan {
    target: LruvecId,
    goal: u64,
    reclaimed: u64,
    priority: u32,
    force_deactivate: bool,
    skipped_deactivate: bool,
    may_deactivate: [bool; 2],
    cache_trim: bool,
    cost: [u64; 2],
}

pub struct ClassicModel {
    params: ClassicParams,
    pages: BTreeMap<PageId, Page>,
    lruvecs: Vec<Lruvec>,
    tree: Tree,
    adding: Vec<PageId>,
    activating: Vec<PageId>,
    /// What the shadows in the slots stand for.
    evicted: Vec<Evicted>,
    counters: Counters,
}

impl ClassicModel {
    pub fn new(params: ClassicParams) -> ClassicModel {
        ClassicModel {
            params,
            pages: BTreeMap::new(),
            lruvecs: vec![Lruvec::default()],
            tree: Tree(vec![None]),
            adding: Vec::new(),
            activating: Vec::new(),
            evicted: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Inactive and active pages of one lruvec.
    pub fn list_sizes(&self, lruvec: LruvecId, page_type: PageType) -> (u64, u64) {
        let lists = &self.lruvecs[lruvec as usize].lists[page_type.index()];
        (lists[INACTIVE].len() as u64, lists[ACTIVE].len() as u64)
    }

    /// Asserts that every known page is in exactly one place, and the flag says which.
    pub fn check(&self) {
        for (id, page) in &self.pages {
            let lruvec = &self.lruvecs[page.lruvec as usize];
            let mut places = self.adding.iter().filter(|p| *p == id).count();
            for active in [INACTIVE, ACTIVE] {
                let here = lruvec.lists[page.page_type][active].iter().filter(|p| *p == id).count();
                assert!(here == 0 || page.active == (active == ACTIVE), "page {id} is on the wrong list");
                places += here;
            }
            assert_eq!(places, usize::from(!page.culled), "page {id} is in {places} places");
        }
    }

    fn page(&mut self, id: PageId) -> &mut Page {
        self.pages.get_mut(&id).unwrap()
    }

    fn list(&mut self, lruvec: LruvecId, page_type: usize, active: bool) -> &mut VecDeque<PageId> {
        &mut self.lruvecs[lruvec as usize].lists[page_type][usize::from(active)]
    }

    fn own_list(&mut self, id: PageId) -> &mut VecDeque<PageId> {
        let page = self.pages[&id].clone();
        self.list(page.lruvec, page.page_type, page.active)
    }

    fn is_listed(&mut self, id: PageId) -> bool {
        self.own_list(id).contains(&id)
    }

    /// Size of a list, with those of all descendants.
    fn size(&self, lruvec: LruvecId, page_type: usize, active: usize) -> u64 {
        self.tree.subtree(lruvec).iter().map(|l| self.lruvecs[*l as usize].lists[page_type][active].len() as u64).sum()
    }

    fn advance_age(&mut self, lruvec: LruvecId, page_type: usize) {
        let at = self.age_index(page_type);
        for l in self.tree.ancestors(lruvec) {
            self.lruvecs[l as usize].age[at] += 1;
        }
    }

    fn age_index(&self, page_type: usize) -> usize {
        if self.params.rule == RefaultRule::ShadowLru && self.params.per_type_age { page_type } else { 0 }
    }

    /// Mainline only: the clock also counts activations (workingset §3).
    fn note_activation(&mut self, lruvec: LruvecId, page_type: usize) {
        if self.params.rule == RefaultRule::Mainline {
            self.advance_age(lruvec, page_type);
        }
    }

    // --- per-CPU batches (overview §4.6) ---

    fn drain(&mut self) {
        self.drain_additions();
        self.drain_activations();
    }

    fn drain_additions(&mut self) {
        for id in std::mem::take(&mut self.adding) {
            self.own_list(id).push_front(id);
        }
    }

    fn drain_activations(&mut self) {
        for id in std::mem::take(&mut self.activating) {
            if self.pages[&id].active || !self.is_listed(id) {
                continue;
            }
            self.own_list(id).retain(|p| *p != id);
            self.page(id).active = true;
            self.own_list(id).push_front(id);
            self.counters.pgactivate += 1;
        }
    }

    // --- accesses through file descriptors (classic §3) ---

    fn mark_accessed(&mut self, id: PageId) {
        let page = self.pages[&id].clone();
        if !page.referenced {
            self.page(id).referenced = true;
            return;
        }
        if page.active || page.culled {
            return;
        }
        self.page(id).referenced = false;
        self.note_activation(page.lruvec, page.page_type);
        if self.adding.contains(&id) {
            self.page(id).active = true;
        } else if !self.activating.contains(&id) {
            self.activate_later(id);
        }
    }

    fn activate_later(&mut self, id: PageId) {
        self.activating.push(id);
        if self.activating.len() >= self.params.batch {
            self.drain_activations();
        }
    }

    // --- refaults (workingset §4, §5) ---

    fn refault(&mut self, id: PageId, old: Evicted, free_swap: bool) {
        let (page_type, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        *[&mut self.counters.workingset_refault_anon, &mut self.counters.workingset_refault_file][page_type] += 1;
        let now = self.lruvecs[old.by as usize].age[self.age_index(page_type)];
        let order = self.params.bucket_order;
        let distance = now - (old.age >> order << order);
        let size = |t, active| self.size(old.by, t, active);
        let anon = |active| if free_swap { size(ANON, active) } else { 0 };
        let close = match (self.params.rule, page_type) {
            (RefaultRule::Mainline, FILE) => distance <= size(FILE, ACTIVE) + anon(ACTIVE) + anon(INACTIVE),
            (RefaultRule::Mainline, _) => distance <= size(FILE, ACTIVE) + size(FILE, INACTIVE) + anon(ACTIVE),
            (RefaultRule::Never, _) => false,
            (RefaultRule::ShadowLru, _) => {
                let active = size(FILE, ACTIVE) + anon(ACTIVE);
                let inactive = size(FILE, INACTIVE) + anon(INACTIVE);
                if active < inactive { distance < active } else { distance < inactive }
            }
        };
        if !close {
            return;
        }
        self.page(id).active = true;
        self.note_activation(lruvec, page_type);
        *[&mut self.counters.workingset_activate_anon, &mut self.counters.workingset_activate_file][page_type] += 1;
        for l in self.tree.ancestors(lruvec) {
            self.lruvecs[l as usize].activations[page_type] += 1;
        }
        if old.workingset {
            self.page(id).workingset = true;
            self.note_cost(lruvec, page_type, 1, 0);
            *[&mut self.counters.workingset_restore_anon, &mut self.counters.workingset_restore_file][page_type] += 1;
        }
    }

    fn note_cost(&mut self, lruvec: LruvecId, page_type: usize, io: u64, rotated: u64) {
        let cost = if self.params.plain_costs { io } else { io * 32 + rotated };
        for l in self.tree.ancestors(lruvec) {
            let total: u64 = [ANON, FILE].iter().flat_map(|t| [INACTIVE, ACTIVE].map(|a| self.size(l, *t, a))).sum();
            let costs = &mut self.lruvecs[l as usize].cost;
            costs[page_type] += cost;
            if costs[ANON] + costs[FILE] > total / 4 {
                costs[ANON] /= 2;
                costs[FILE] /= 2;
            }
        }
    }

    // --- scan amounts (classic §6, §8, §9) ---

    fn inactive_is_low(&self, lruvec: LruvecId, page_type: usize) -> bool {
        let (inactive, active) = (self.size(lruvec, page_type, INACTIVE), self.size(lruvec, page_type, ACTIVE));
        let gib = (inactive + active) >> 18;
        let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
        inactive * ratio < active
    }

    fn prepare(&self, scan: &mut Scan) {
        let target = &self.lruvecs[scan.target as usize];
        scan.cost = target.cost;
        for t in [ANON, FILE] {
            let refaulted = target.activations[t] != target.snapshot[t];
            scan.may_deactivate[t] = scan.force_deactivate || refaulted || self.inactive_is_low(scan.target, t);
        }
        let inactive_file = self.size(scan.target, FILE, INACTIVE);
        scan.cache_trim = inactive_file >> scan.priority != 0 && !scan.may_deactivate[FILE];
    }

    /// `[type][active]`.
    fn scan_amounts<M: Memory>(&self, lruvec: LruvecId, scan: &Scan, memory: &mut M) -> [[u64; 2]; 2] {
        let s = u64::from(self.params.swappiness);
        let size = |t: usize, a: usize| self.lruvecs[lruvec as usize].lists[t][a].len() as u64 >> scan.priority;
        let equal = [[size(ANON, INACTIVE), size(ANON, ACTIVE)], [size(FILE, INACTIVE), size(FILE, ACTIVE)]];
        if free_swap(memory, lruvec) == 0 || s == 0 {
            return [[0, 0], equal[FILE]];
        }
        if scan.priority == 0 {
            return equal;
        }
        if scan.cache_trim {
            return [[0, 0], equal[FILE]];
        }
        let total = scan.cost[ANON] + scan.cost[FILE];
        let (anon_cost, file_cost) = (total + scan.cost[ANON], total + scan.cost[FILE]);
        let both = anon_cost + file_cost;
        let anon_share = s * (both + 1) / (anon_cost + 1);
        let file_share = (200 - s) * (both + 1) / (file_cost + 1);
        let parts = anon_share + file_share;
        [equal[ANON].map(|n| n * anon_share / parts), equal[FILE].map(|n| n * file_share / parts)]
    }

    // --- shrinking (classic §7, §10) ---

    /// Up to `n` pages off the tail, oldest first.
    fn isolate(&mut self, lruvec: LruvecId, page_type: usize, active: usize, n: u64) -> Vec<PageId> {
        let list = &mut self.lruvecs[lruvec as usize].lists[page_type][active];
        let mut taken = Vec::new();
        while (taken.len() as u64) < n && !list.is_empty() {
            taken.push(list.pop_back().unwrap());
        }
        taken
    }

    fn shrink_active<M: Memory>(&mut self, lruvec: LruvecId, page_type: usize, n: u64, memory: &mut M) {
        self.drain();
        let taken = self.isolate(lruvec, page_type, ACTIVE, n);
        self.counters.pgrefill += taken.len() as u64;
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for id in taken {
            if memory.io_state(id).any(IoState::UNEVICTABLE) {
                self.cull(id);
                continue;
            }
            let references = memory.take_references(id);
            if references.mappings > 0 && references.executable && page_type == FILE {
                stay.push(id);
            } else {
                self.page(id).active = false;
                self.page(id).workingset = true;
                go.push(id);
            }
        }
        let rotated = stay.len() as u64;
        self.counters.pgdeactivate += go.len() as u64;
        for id in stay {
            self.own_list(id).push_front(id);
            self.note_activation(lruvec, page_type);
        }
        for id in go {
            self.own_list(id).push_front(id);
        }
        if rotated > 0 && !self.params.plain_costs {
            self.note_cost(lruvec, page_type, 0, rotated);
        }
    }

    fn shrink_inactive<M: Memory>(
        &mut self,
        lruvec: LruvecId,
        page_type: usize,
        n: u64,
        scan: &Scan,
        memory: &mut M,
    ) -> u64 {
        self.drain();
        let taken = self.isolate(lruvec, page_type, INACTIVE, n);
        let examined = taken.len() as u64;
        self.counters.pgscan += examined;
        *[&mut self.counters.pgscan_anon, &mut self.counters.pgscan_file][page_type] += examined;
        if examined == 0 {
            return 0;
        }
        let (mut reclaimed, mut written) = (0, 0);
        let mut survivors = Vec::new();
        for id in taken {
            match self.batch_stage(id, scan.target, true, memory, &mut written) {
                true => reclaimed += 1,
                false => survivors.push(id),
            }
        }
        for id in survivors {
            if memory.io_state(id).any(IoState::UNEVICTABLE) {
                self.cull(id);
                continue;
            }
            self.own_list(id).push_front(id);
            if self.pages[&id].active {
                self.note_activation(lruvec, page_type);
            }
        }
        self.counters.pgsteal += reclaimed;
        *[&mut self.counters.pgsteal_anon, &mut self.counters.pgsteal_file][page_type] += reclaimed;
        self.note_cost(lruvec, page_type, written, examined - reclaimed);
        reclaimed
    }

    /// One page through the batch stage (overview §5). Whether it was freed; otherwise its flags say where it goes.
    fn batch_stage<M: Memory>(
        &mut self,
        id: PageId,
        target: LruvecId,
        references_count: bool,
        memory: &mut M,
        written: &mut u64,
    ) -> bool {
        let state = memory.io_state(id);
        let page_type = self.pages[&id].page_type;
        if state.any(IoState::LOCKED) {
            return false;
        }
        if state.any(IoState::UNEVICTABLE) {
            return false;
        }
        if state.any(IoState::WRITEBACK) {
            self.page(id).reclaim = true;
            return self.activate(id);
        }
        if references_count {
            let was_referenced = std::mem::take(&mut self.page(id).referenced);
            let references = memory.take_references(id);
            if references.mappings > 0 {
                self.page(id).referenced = true;
                if was_referenced || references.mappings > 1 || page_type == FILE && references.executable {
                    return self.activate(id);
                }
                return false;
            }
        }
        if page_type == FILE && state.any(IoState::DIRTY) {
            self.page(id).reclaim = true;
            self.counters.nr_vmscan_immediate_reclaim += 1;
            return self.activate(id);
        }
        let at = self.age_index(page_type);
        let old =
            Evicted { age: self.lruvecs[target as usize].age[at], workingset: self.pages[&id].workingset, by: target };
        self.evicted.push(old);
        match memory.evict(id, Shadow(self.evicted.len() as u64 * 2 - 1)) {
            Eviction::Freed { pages_written } => {
                *written += u64::from(pages_written);
                self.advance_age(target, page_type);
                self.pages.remove(&id);
                true
            }
            Eviction::WriteStarted => {
                *written += 1;
                self.page(id).reclaim = true;
                false
            }
            Eviction::Kept => false,
            Eviction::Refused => self.activate(id),
        }
    }

    fn shrink_lruvec<M: Memory>(&mut self, lruvec: LruvecId, scan: &mut Scan, memory: &mut M) {
        let target = self.scan_amounts(lruvec, scan, memory);
        let mut left = target;
        let mut reclaimed = 0;
        while left[ANON][INACTIVE] > 0 || left[FILE][ACTIVE] > 0 || left[FILE][INACTIVE] > 0 {
            for (t, a) in [(ANON, INACTIVE), (ANON, ACTIVE), (FILE, INACTIVE), (FILE, ACTIVE)] {
                let n = left[t][a].min(32);
                left[t][a] -= n;
                if n == 0 {
                    continue;
                }
                if a == INACTIVE {
                    reclaimed += self.shrink_inactive(lruvec, t, n, scan, memory);
                } else if scan.may_deactivate[t] {
                    self.shrink_active(lruvec, t, n, memory);
                } else {
                    scan.skipped_deactivate = true;
                }
            }
            if reclaimed < scan.goal {
                continue;
            }
            let sum = |amounts: [[u64; 2]; 2], t: usize| amounts[t][INACTIVE] + amounts[t][ACTIVE];
            if sum(left, FILE) == 0 || sum(left, ANON) == 0 {
                break;
            }
            let (small, large) = if sum(left, FILE) > sum(left, ANON) { (ANON, FILE) } else { (FILE, ANON) };
            let percent = sum(left, small) * 100 / (sum(target, small) + 1);
            left[small] = [0, 0];
            for a in [INACTIVE, ACTIVE] {
                let scanned = target[large][a] - left[large][a];
                let wanted = target[large][a] * (100 - percent) / 100;
                left[large][a] = wanted - wanted.min(scanned);
            }
        }
        scan.reclaimed += reclaimed;
        if has_swap(memory) && self.inactive_is_low(lruvec, ANON) {
            self.shrink_active(lruvec, ANON, 32, memory);
        }
    }

    /// All lruvecs below the target, from where the last pass stopped (overview §4.4).
    fn pass<M: Memory>(&mut self, scan: &mut Scan, full_walk: bool, memory: &mut M) {
        self.prepare(scan);
        let order = self.tree.subtree(scan.target);
        let mut at = if full_walk { 0 } else { self.lruvecs[scan.target as usize].walk_position };
        if at >= order.len() {
            at = 0;
        }
        while at < order.len() {
            self.shrink_lruvec(order[at], scan, memory);
            at += 1;
            if !full_walk && scan.reclaimed >= scan.goal {
                break;
            }
        }
        if !full_walk {
            self.lruvecs[scan.target as usize].walk_position = at % order.len();
        }
    }
}

impl Policy for ClassicModel {
    const HITS: HitReport = HitReport::Kernel;
    const RECLAIM_BATCH: u32 = 32;

    fn admit<M: Memory>(&mut self, id: PageId, admission: &Admission, memory: &mut M) {
        let page = Page {
            page_type: admission.page_type.index(),
            lruvec: admission.lruvec,
            active: false,
            referenced: false,
            workingset: false,
            reclaim: false,
            culled: false,
        };
        assert!(self.pages.insert(id, page).is_none());
        if let Some(shadow) = admission.shadow.filter(|_| !admission.overwrites) {
            let old = self.evicted[(shadow.0 / 2) as usize];
            let free_swap = free_swap(memory, old.by) > 0;
            self.refault(id, old, free_swap);
        }
        self.adding.push(id);
        if self.adding.len() >= self.params.batch {
            self.drain_additions();
        }
    }

    fn accessed<M: Memory>(&mut self, id: PageId, _memory: &mut M) {
        self.mark_accessed(id);
    }

    fn freed(&mut self, id: PageId) {
        self.drain();
        self.own_list(id).retain(|p| *p != id);
        self.pages.remove(&id);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut scan = Scan {
            target: request.target,
            goal: u64::from(request.goal).max(32),
            reclaimed: 0,
            priority: 12,
            force_deactivate: false,
            skipped_deactivate: false,
            may_deactivate: [false; 2],
            cache_trim: false,
            cost: [0; 2],
        };
        let mut full_walk = false;
        loop {
            for priority in (0..=12).rev() {
                scan.priority = priority;
                self.pass(&mut scan, full_walk, memory);
                if scan.reclaimed >= scan.goal {
                    break;
                }
            }
            let target = &mut self.lruvecs[scan.target as usize];
            target.snapshot = target.activations;
            if scan.reclaimed > 0 {
                return scan.reclaimed as u32;
            }
            if !full_walk {
                full_walk = true;
            } else if scan.skipped_deactivate {
                scan.force_deactivate = true;
                scan.skipped_deactivate = false;
            } else {
                return 0;
            }
        }
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
}
