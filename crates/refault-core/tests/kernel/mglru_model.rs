//! The multi-gen LRU in the words of its pages (spec: mglru, workingset §6 and §7): deques of pages with plain flags,
//! sizes recounted each time.
//!
//! The front of a deque is the head of the list (newest), the back its tail (next victim).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use refault_core::memory::{Eviction, IoState, LookAround, Memory, RegionKey, Walk};
use refault_core::mglru::{MglruParams, RefaultDistance, Version};
use refault_core::policy::{Admission, GenerationSize, HitReport, Policy, ReclaimRequest, SortRule};
use refault_core::{Counters, LruvecId, PageId, PageType, Shadow};

use crate::tree::Tree;

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
    /// Sequence number modulo 4 while on a list.
    generation: Option<u64>,
    refs: u64,
    referenced: bool,
    workingset: bool,
    active: bool,
    reclaim: bool,
    swapcache: bool,
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
    /// `lists[seq % 4][type]`.
    lists: [[VecDeque<PageId>; 2]; 4],
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
            counters: Counters::default(),
        };
        model.add_lruvec(None);
        model
    }

    /// Asserts that every known page is in exactly one place, on its own generation's list unless it was promoted, and
    /// that the window is as wide as it may be.
    pub fn check(&self) {
        for (id, page) in &self.pages {
            let lists = &self.lruvecs[page.lruvec as usize].lists;
            let on_lists: usize = lists.iter().map(|g| g[page.page_type].iter().filter(|p| *p == id).count()).sum();
            let waiting = self.adding.iter().filter(|p| *p == id).count();
            assert_eq!(on_lists + waiting, 1, "page {id} is in {on_lists} lists and {waiting} batches");
            assert_eq!(page.generation.is_some(), on_lists == 1, "page {id} has a generation iff it is listed");
            assert!(page.generation.is_none() || !page.active, "page {id} is listed and ACTIVE");
        }
        for lruvec in &self.lruvecs {
            for t in [ANON, FILE] {
                let generations = lruvec.max_seq - lruvec.min_seq[t] + 1;
                assert!((2..=4).contains(&generations), "{generations} generations of type {t}");
            }
        }
    }

    fn is_7_2(&self) -> bool {
        self.params.version == Version::V7_2
    }

    fn page(&mut self, id: PageId) -> &mut Page {
        self.pages.get_mut(&id).unwrap()
    }

    fn lruvec(&mut self, lruvec: LruvecId) -> &mut Lruvec {
        &mut self.lruvecs[lruvec as usize]
    }

    /// Pages of a generation and type, wherever they stand.
    fn size(&self, lruvec: LruvecId, page_type: usize, seq: u64) -> u64 {
        let here = |p: &&Page| p.lruvec == lruvec && p.page_type == page_type && p.generation == Some(seq % 4);
        self.pages.values().filter(here).count() as u64
    }

    /// The two youngest generations and the rest, descendants included: what the kernel exports as active and inactive.
    fn active_and_inactive(&self, lruvec: LruvecId, page_type: usize) -> [u64; 2] {
        let mut sums = [0; 2];
        for l in self.tree.subtree(lruvec) {
            let max_seq = self.lruvecs[l as usize].max_seq;
            sums[0] += self.size(l, page_type, max_seq) + self.size(l, page_type, max_seq - 1);
            sums[1] += self.size(l, page_type, max_seq - 2) + self.size(l, page_type, max_seq - 3);
        }
        sums
    }

    pub fn list_sizes(&self, lruvec: LruvecId, page_type: PageType) -> (u64, u64) {
        let max_seq = self.lruvecs[lruvec as usize].max_seq;
        let size = |back| self.size(lruvec, page_type.index(), max_seq - back);
        (size(2) + size(3), size(0) + size(1))
    }

    // --- references (§2, §3, §16.4) ---

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
        self.params.tiers > 1 && sum == full
    }

    fn mark_accessed(&mut self, id: PageId) {
        let new_rules = self.is_7_2();
        let page = self.page(id);
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

    // --- insertion (§4, §16.6) ---

    fn insertion_seq(&self, id: PageId, rotating: bool, in_flight: bool) -> u64 {
        let page = &self.pages[&id];
        let lruvec = &self.lruvecs[page.lruvec as usize];
        let (max_seq, min_seq) = (lruvec.max_seq, lruvec.min_seq[page.page_type]);
        let second_youngest = page.page_type == ANON && !page.swapcache || page.reclaim && in_flight;
        if self.is_7_2() {
            let back = if page.active {
                2 - u64::from(page.workingset)
            } else if rotating {
                4
            } else if second_youngest {
                2
            } else {
                4 - u64::from(page.workingset || page.referenced)
            };
            return (max_seq + 1 - back).max(min_seq);
        }
        if page.active {
            max_seq
        } else if second_youngest {
            max_seq - 1
        } else if rotating || self.params.reads_start_oldest || min_seq + 2 >= max_seq {
            min_seq
        } else {
            min_seq + 1
        }
    }

    /// `in_flight`: the page is dirty or being written.
    fn insert(&mut self, id: PageId, rotating: bool, in_flight: bool) {
        let generation = self.insertion_seq(id, rotating, in_flight) % 4;
        let page = self.page(id);
        assert!(page.generation.is_none());
        page.generation = Some(generation);
        page.active = false;
        let (page_type, lruvec) = (page.page_type, page.lruvec);
        let list = &mut self.lruvec(lruvec).lists[generation as usize][page_type];
        if rotating { list.push_back(id) } else { list.push_front(id) }
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

    // --- the two ends of the window (§6, §16.1) ---

    fn fold_averages(&mut self, lruvec: LruvecId, t: usize) {
        let new_rules = self.is_7_2();
        let l = self.lruvec(lruvec);
        for k in 0..4 {
            let protected = if k > 0 || new_rules { l.protected[t][k] } else { 0 };
            l.avg_refaulted[t][k] = (l.avg_refaulted[t][k] + l.refaulted[t][k]) / 2;
            l.avg_total[t][k] = (l.avg_total[t][k] + l.evicted[t][k] + protected) / 2;
            l.refaulted[t][k] = 0;
            l.evicted[t][k] = 0;
            l.protected[t][k] = 0;
        }
    }

    fn try_advance_min(&mut self, lruvec: LruvecId, can_anon: bool) -> bool {
        let new_rules = self.is_7_2();
        let l = &self.lruvecs[lruvec as usize];
        let usable = if can_anon { vec![ANON, FILE] } else { vec![FILE] };
        let mut m = l.min_seq;
        for t in &usable {
            while m[*t] + 2 <= l.max_seq && l.lists[(m[*t] % 4) as usize][*t].is_empty() {
                m[*t] += 1;
            }
        }
        if can_anon && new_rules {
            let third = l.max_seq - 2;
            if m[ANON] > third && m[FILE] < third {
                m[ANON] = third;
            } else if m[FILE] > third && m[ANON] < third {
                m[FILE] = third;
            }
        } else if can_anon {
            m[ANON] = m[ANON].min(m[FILE]);
            m[FILE] = m[ANON].max(l.min_seq[FILE]);
        }
        let mut changed = false;
        for t in usable {
            if m[t] > self.lruvec(lruvec).min_seq[t] {
                self.fold_averages(lruvec, t);
                self.lruvec(lruvec).min_seq[t] = m[t];
                changed = true;
            }
        }
        changed
    }

    /// The page moves to the next generation; the caller puts it on the list.
    fn inc_gen(&mut self, id: PageId, min_seq: u64, reclaim: bool) -> usize {
        let new_rules = self.is_7_2();
        let page = self.page(id);
        if page.generation == Some(min_seq % 4) {
            page.generation = Some((min_seq + 1) % 4);
            page.refs = 0;
            page.referenced = false;
            page.workingset &= new_rules;
            page.reclaim |= reclaim;
        }
        page.generation.unwrap() as usize
    }

    fn new_generation_of(&mut self, lruvec: LruvecId, can_anon: bool) {
        for t in [FILE, ANON] {
            let (max_seq, min_seq) = (self.lruvec(lruvec).max_seq, self.lruvec(lruvec).min_seq[t]);
            if max_seq - min_seq + 1 < 4 {
                continue;
            }
            if t == FILE || can_anon {
                while let Some(id) = self.lruvec(lruvec).lists[(min_seq % 4) as usize][t].pop_back() {
                    let generation = self.inc_gen(id, min_seq, false);
                    self.lruvec(lruvec).lists[generation][t].push_back(id);
                }
            }
            self.fold_averages(lruvec, t);
            self.lruvec(lruvec).min_seq[t] += 1;
        }
        self.lruvec(lruvec).max_seq += 1;
        self.counters.generations_created += 1;
    }

    /// Whether a generation is due, and the pages of the usable types (§6.3, §16.2).
    fn should_age(&self, lruvec: LruvecId, can_anon: bool, priority: u32) -> (bool, u64) {
        let l = &self.lruvecs[lruvec as usize];
        let usable = if can_anon { vec![ANON, FILE] } else { vec![FILE] };
        let pages_of =
            |seq: u64| usable.iter().filter(|t| l.min_seq[**t] <= seq).map(|t| self.size(lruvec, *t, seq)).sum::<u64>();
        if self.is_7_2() {
            let m = usable.iter().map(|t| l.min_seq[*t]).min().unwrap();
            let total = (m..=l.max_seq).map(pages_of).sum();
            let due = m + 2 > l.max_seq || priority != 12 && m + 2 == l.max_seq;
            return (due, total);
        }
        let m = l.min_seq[usable[0]];
        if m + 2 > l.max_seq {
            return (true, 0);
        }
        let first = usable.iter().map(|t| l.min_seq[*t]).min().unwrap();
        let total: u64 = (first..=l.max_seq).map(pages_of).sum();
        let (young, old) = (pages_of(l.max_seq), pages_of(l.max_seq - 2));
        (m + 2 == l.max_seq && (young * 2 > total || old * 4 < total), total)
    }

    fn try_new_generation<M: Memory>(&mut self, lruvec: LruvecId, can_anon: bool, memory: &mut M) -> bool {
        if self.lruvec(lruvec).max_seq <= self.lruvec(lruvec).walks_done {
            return false;
        }
        if self.params.walks {
            let mut walker = Walker { model: self, lruvec, can_anon, took_one: false };
            if memory.walk(lruvec, &mut walker) {
                self.walk_context = true;
            }
        }
        self.lruvec(lruvec).walks_done += 1;
        self.new_generation_of(lruvec, can_anon);
        true
    }

    /// A young entry was found by a walk, or by a look-around that has a walk to account to (§7, §16.5).
    fn promote(&mut self, id: PageId) {
        let new_rules = self.is_7_2();
        let max_seq = self.lruvecs[self.pages[&id].lruvec as usize].max_seq;
        let page = self.page(id);
        if new_rules && !page.referenced && !page.workingset {
            page.referenced = true;
            page.refs = 0;
        } else if page.generation.is_none() {
            page.referenced |= !new_rules;
        } else {
            page.generation = Some(max_seq % 4);
            page.clear_references();
            page.workingset = new_rules;
        }
    }

    /// A young entry was found without a walk (§16.5). False the first time; after that an access is counted, and what
    /// has more than one makes the page part of the working set.
    fn note_young_7_2(&mut self, id: PageId) -> bool {
        let accesses = self.references(id);
        let page = self.page(id);
        if !page.referenced && !page.workingset {
            page.referenced = true;
            page.refs = 0;
            return false;
        }
        if accesses > 1 {
            page.clear_references();
            page.workingset = true;
        } else {
            self.mark_accessed(id);
        }
        true
    }

    /// A young neighbour of a page that was found young (§8).
    fn neighbour(&mut self, id: PageId) {
        if self.walk_context {
            self.promote(id);
            return;
        }
        let new_rules = self.is_7_2();
        let max_seq = self.lruvecs[self.pages[&id].lruvec as usize].max_seq;
        if new_rules {
            if !self.note_young_7_2(id) {
                return;
            }
        } else if !self.is_listed(id) {
            self.page(id).referenced = true;
        }
        if self.pages[&id].generation.is_some_and(|g| g != max_seq % 4) && !self.activating.contains(&id) {
            self.activate_later(id);
        }
    }

    // --- the controller (§10, §16.9) ---

    fn position(&self, lruvec: LruvecId, t: usize, tiers: std::ops::Range<usize>, gain: u64) -> Position {
        let l = &self.lruvecs[lruvec as usize];
        let (mut refaulted, mut total) = (0, 0);
        for k in tiers {
            refaulted += l.avg_refaulted[t][k] + l.refaulted[t][k];
            total += l.avg_total[t][k] + l.evicted[t][k];
            if k > 0 || self.is_7_2() {
                total += l.protected[t][k];
            }
        }
        Position { refaulted, total, gain }
    }

    /// The highest tier that may be evicted, compared with tier 0 of `base`.
    fn tier_limit(&self, lruvec: LruvecId, base: (usize, u64), of: (usize, u64)) -> usize {
        let first = self.position(lruvec, base.0, 0..1, base.1);
        for k in 1..self.params.tiers {
            if !refaults_no_more(&first, &self.position(lruvec, of.0, k..k + 1, of.1)) {
                return k - 1;
            }
        }
        self.params.tiers - 1
    }

    fn own_tier_limit(&self, lruvec: LruvecId, t: usize) -> usize {
        let (base, others) = if self.is_7_2() { (2, 3) } else { (1, 2) };
        self.tier_limit(lruvec, (t, base), (t, others))
    }

    // --- eviction (§9) ---

    /// The type to try first, and its tier limit if the choice came with one.
    fn choose_type(&self, lruvec: LruvecId, s: u64) -> (usize, Option<usize>) {
        let min_seq = self.lruvecs[lruvec as usize].min_seq;
        if self.is_7_2() {
            if s <= 1 {
                return (FILE, None);
            }
            if s >= 200 {
                return (ANON, None);
            }
            let anon = self.position(lruvec, ANON, 0..4, s);
            let file = self.position(lruvec, FILE, 0..4, 200 - s);
            return (if refaults_no_more(&anon, &file) { FILE } else { ANON }, None);
        }
        if s == 0 {
            return (FILE, None);
        }
        if min_seq[ANON] < min_seq[FILE] {
            return (ANON, None);
        }
        if s == 1 {
            return (FILE, None);
        }
        if s == 200 {
            return (ANON, None);
        }
        let gain = [s, 200 - s];
        let anon = self.position(lruvec, ANON, 0..1, gain[ANON]);
        let file = self.position(lruvec, FILE, 0..1, gain[FILE]);
        let (chosen, other) = if refaults_no_more(&anon, &file) { (FILE, ANON) } else { (ANON, FILE) };
        (chosen, Some(self.tier_limit(lruvec, (other, gain[other]), (chosen, gain[chosen]))))
    }

    /// Looks at up to `limit` pages of the oldest generation of a type; isolated ones are appended.
    fn scan<M: Memory>(
        &mut self,
        lruvec: LruvecId,
        t: usize,
        tier_limit: usize,
        limit: u64,
        isolated: &mut Vec<PageId>,
        memory: &M,
    ) -> u64 {
        let (max_seq, min_seq) = (self.lruvec(lruvec).max_seq, self.lruvec(lruvec).min_seq[t]);
        if max_seq - min_seq + 1 == 2 {
            return 0;
        }
        let oldest = (min_seq % 4) as usize;
        let (mut looked_at, mut sorted, mut taken) = (0, 0, 0);
        let mut aside = Vec::new();
        while looked_at < limit && taken < BATCH && (aside.len() as u64) < BATCH {
            let Some(id) = self.lruvec(lruvec).lists[oldest][t].pop_back() else { break };
            looked_at += 1;
            if self.sort(id, min_seq, tier_limit, memory) {
                sorted += 1;
            } else if self.activating.contains(&id) {
                aside.push(id);
            } else {
                self.isolate(id);
                taken += 1;
                isolated.push(id);
            }
        }
        for id in aside {
            self.lruvec(lruvec).lists[oldest][t].push_front(id);
        }
        self.counters.pgscan += taken;
        *[&mut self.counters.pgscan_anon, &mut self.counters.pgscan_file][t] += taken;
        self.counters.pgrefill += sorted;
        if taken > 0 || looked_at == limit || self.is_7_2() { looked_at } else { 0 }
    }

    /// Whether the page was moved instead of being isolated (§9.3, §16.7, §16.8).
    fn sort<M: Memory>(&mut self, id: PageId, min_seq: u64, tier_limit: usize, memory: &M) -> bool {
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        let generation = self.pages[&id].generation.unwrap();
        if generation != min_seq % 4 {
            self.lruvec(lruvec).lists[generation as usize][t].push_front(id);
            return true;
        }
        let tier = self.page_tier(id);
        let always = self.always_protected(id);
        if tier > tier_limit || always {
            if self.is_7_2() {
                self.lruvec(lruvec).protected[t][tier] += u64::from(!always);
            } else {
                self.lruvec(lruvec).protected[t][tier] += 1;
            }
            let next = self.inc_gen(id, min_seq, false);
            let new_rules = self.is_7_2();
            let list = &mut self.lruvec(lruvec).lists[next][t];
            if new_rules {
                list.push_front(id)
            } else {
                list.push_back(id)
            }
            return true;
        }
        let io = memory.io_state(id);
        let busy = io.any(IoState::LOCKED) || io.any(IoState::WRITEBACK) || t == FILE && io.any(IoState::DIRTY);
        if busy && !self.is_7_2() {
            let next = self.inc_gen(id, min_seq, true);
            self.lruvec(lruvec).lists[next][t].push_front(id);
            return true;
        }
        false
    }

    fn isolate(&mut self, id: PageId) {
        let new_rules = self.is_7_2();
        let page = self.page(id);
        page.generation = None;
        if !page.referenced {
            page.refs = 0;
            page.workingset &= new_rules;
        }
        if !new_rules {
            page.reclaim = false;
            page.referenced = false;
        }
    }

    /// One step; the pages looked at.
    fn evict<M: Memory>(&mut self, lruvec: LruvecId, s: u64, limit: u64, scan: &mut Scan, memory: &mut M) -> u64 {
        let can_anon = s != 0;
        if self.is_7_2() {
            self.try_advance_min(lruvec, can_anon);
        }
        let mut isolated = Vec::new();
        let (mut t, mut tier_limit) = self.choose_type(lruvec, s);
        let mut scanned = 0;
        for _ in 0..if can_anon { 2 } else { 1 } {
            let tiers = tier_limit.unwrap_or_else(|| self.own_tier_limit(lruvec, t));
            scanned = self.scan(lruvec, t, tiers, limit, &mut isolated, memory);
            if scanned > 0 {
                break;
            }
            (t, tier_limit) = (1 - t, None);
        }
        if self.is_7_2() {
            if scanned > 0 {
                self.try_advance_min(lruvec, can_anon);
            }
        } else {
            scanned += u64::from(self.try_advance_min(lruvec, can_anon));
            let governing = if can_anon { ANON } else { FILE };
            if self.lruvec(lruvec).max_seq - self.lruvec(lruvec).min_seq[governing] + 1 == 2 {
                scanned = 0;
            }
        }
        let mut second = false;
        while !isolated.is_empty() {
            let mut survivors = Vec::new();
            for id in isolated {
                let page_type = self.pages[&id].page_type;
                if self.batch_stage(id, memory) {
                    scan.reclaimed += 1;
                    self.counters.pgsteal += 1;
                    *[&mut self.counters.pgsteal_anon, &mut self.counters.pgsteal_file][page_type] += 1;
                } else {
                    survivors.push(id);
                }
            }
            isolated = Vec::new();
            for id in survivors {
                if self.put_back(id, second, memory) {
                    continue;
                }
                isolated.push(id);
            }
            second = true;
        }
        scanned
    }

    /// A page that the batch stage left; false if it gets a second chance to be evicted (§9, §16.10).
    fn put_back<M: Memory>(&mut self, id: PageId, second: bool, memory: &M) -> bool {
        let io = memory.io_state(id);
        let in_flight = io.any(IoState::DIRTY) || io.any(IoState::WRITEBACK);
        let page = self.pages[&id].clone();
        if self.is_7_2() {
            if !second && !page.active && !memory.is_mapped(id) && !in_flight {
                return false;
            }
            if self.insertion_seq(id, false, in_flight) == self.lruvec(page.lruvec).min_seq[page.page_type] {
                let page = self.page(id);
                page.active = true;
                page.refs = 0;
                page.referenced = false;
            }
        } else if page.reclaim && in_flight {
            self.page(id).referenced |= page.workingset;
        } else if second
            || page.active
            || page.referenced
            || memory.is_mapped(id)
            || io.any(IoState::LOCKED)
            || in_flight
        {
            self.page(id).clear_references();
            self.page(id).active = true;
        } else {
            return false;
        }
        self.insert(id, false, in_flight);
        true
    }

    /// One page through the batch stage (overview §5). Whether it was freed.
    fn batch_stage<M: Memory>(&mut self, id: PageId, memory: &mut M) -> bool {
        let io = memory.io_state(id);
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        if io.any(IoState::LOCKED) {
            return false;
        }
        if !self.is_7_2() && memory.is_mapped(id) && self.pages[&id].referenced {
            return false;
        }
        if io.any(IoState::WRITEBACK) {
            self.page(id).reclaim = true;
            return self.keep_active(id);
        }
        match self.check_references(id, memory) {
            Check::Keep => return false,
            Check::Activate => return self.keep_active(id),
            Check::Reclaim => {}
        }
        if t == FILE && io.any(IoState::DIRTY) {
            self.page(id).reclaim = true;
            return self.keep_active(id);
        }
        let references = self.references(id);
        let workingset = if self.is_7_2() { self.pages[&id].workingset } else { references != 0 };
        self.evicted.push(Evicted {
            min_seq: self.lruvecs[lruvec as usize].min_seq[t],
            time: self.lruvecs[lruvec as usize].clock[t],
            refs: references.saturating_sub(1),
            workingset,
            lruvec,
        });
        match memory.evict(id, Shadow(self.evicted.len() as u64 * 2 - 1)) {
            Eviction::Freed { .. } => {
                let tier = self.page_tier(id);
                self.lruvec(lruvec).evicted[t][tier] += 1;
                for l in self.tree.ancestors(lruvec) {
                    self.lruvec(l).clock[t] += 1;
                }
                self.pages.remove(&id);
                true
            }
            Eviction::WriteStarted => {
                self.page(id).reclaim = true;
                self.page(id).swapcache |= t == ANON;
                false
            }
            Eviction::Kept => false,
            Eviction::Refused => self.keep_active(id),
        }
    }

    fn keep_active(&mut self, id: PageId) -> bool {
        self.page(id).active = true;
        self.counters.pgactivate += 1;
        false
    }

    fn check_references<M: Memory>(&mut self, id: PageId, memory: &mut M) -> Check {
        let references = memory.take_references(id);
        if references.mappings > 0 {
            self.look_around(id, memory);
        }
        if self.is_7_2() {
            return match references.mappings {
                0 => Check::Reclaim,
                _ if self.note_young_7_2(id) => Check::Activate,
                _ => Check::Keep,
            };
        }
        let page = self.page(id);
        let was_referenced = std::mem::replace(&mut page.referenced, references.mappings > 0);
        if references.mappings == 0 {
            Check::Reclaim
        } else if was_referenced || references.mappings > 1 || page.page_type == FILE && references.executable {
            Check::Activate
        } else {
            Check::Keep
        }
    }

    fn look_around<M: Memory>(&mut self, id: PageId, memory: &mut M) {
        let lruvec = self.pages[&id].lruvec;
        let with_anon = self.pages[&id].page_type == ANON;
        let mut looker = Looker { model: self, lruvec, with_anon };
        let Some(seen) = memory.look_around(id, &mut looker) else { return };
        let l = self.lruvec(lruvec);
        if seen.young * 8 >= seen.entries
            && let Some(filter) = &mut l.filters[(l.max_seq % 2) as usize]
        {
            filter.insert(seen.region);
        }
    }

    // --- visits (§11, §16.2, §16.3) ---

    fn visit<M: Memory>(&mut self, lruvec: LruvecId, scan: &mut Scan, memory: &mut M) {
        self.drain();
        let s = if memory.free_swap(lruvec) < BATCH { 0 } else { u64::from(self.params.swappiness) };
        let can_anon = s != 0;
        if self.is_7_2() {
            let mut budget = self.should_age(lruvec, can_anon, scan.priority).1 >> scan.priority;
            while budget > 0 {
                if self.should_age(lruvec, can_anon, scan.priority).0 {
                    self.try_new_generation(lruvec, can_anon, memory);
                }
                let done = self.evict(lruvec, s, budget.min(BATCH), scan, memory);
                if done == 0 || scan.reclaimed >= scan.goal {
                    break;
                }
                budget = budget.saturating_sub(done);
            }
        } else {
            let mut done = 0;
            loop {
                let (due, total) = self.should_age(lruvec, can_anon, scan.priority);
                if due && scan.priority != 12 {
                    self.try_new_generation(lruvec, can_anon, memory);
                    break;
                }
                let budget = total >> scan.priority;
                if budget == 0 {
                    break;
                }
                let step = self.evict(lruvec, s, SCAN_LIMIT, scan, memory);
                done += step;
                if step == 0 || done >= budget {
                    break;
                }
            }
        }
        self.walk_context = false;
    }

    fn pass<M: Memory>(&mut self, scan: &mut Scan, full_walk: bool, memory: &mut M) {
        let order = self.tree.subtree(scan.target);
        let mut at = if full_walk { 0 } else { self.lruvec(scan.target).walk_position };
        while at < order.len() {
            self.visit(order[at], scan, memory);
            at += 1;
            if !full_walk && scan.reclaimed >= scan.goal {
                break;
            }
        }
        if !full_walk {
            self.lruvec(scan.target).walk_position = at % order.len();
        }
    }

    // --- refaults (workingset §6, §7) ---

    fn refault(&mut self, id: PageId, old: Evicted, in_fault: bool, free_swap: bool) {
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        if old.lruvec != lruvec {
            return;
        }
        *[&mut self.counters.workingset_refault_anon, &mut self.counters.workingset_refault_file][t] += 1;
        if self.is_7_2() {
            self.refault_7_2(id, old, in_fault);
            return;
        }
        let references = old.refs + u64::from(old.workingset);
        let tier = self.tier(references, old.workingset);
        let recent = match self.params.refault {
            RefaultDistance::Generation => old.min_seq == self.lruvec(lruvec).min_seq[t],
            _ => {
                let distance = self.lruvec(lruvec).clock[t] - old.time;
                let recent = distance <= self.lruvec(lruvec).evicted[t].iter().sum::<u64>();
                let class = self.distance_class(lruvec, distance, free_swap);
                let graded = match self.params.refault {
                    RefaultDistance::Evictions => recent || class != Class::None,
                    _ => class == Class::Short,
                };
                if graded {
                    self.refault_by_distance(id, references, old.workingset, class, recent, in_fault);
                    return;
                }
                recent
            }
        };
        if !recent {
            return;
        }
        self.lruvec(lruvec).refaulted[t][tier] += 1;
        self.count_activate(t);
        if in_fault || references >= 3 {
            self.page(id).refs = 3;
            self.page(id).workingset = true;
            self.count_restore(t);
        }
    }

    fn distance_class(&self, lruvec: LruvecId, distance: u64, free_swap: bool) -> Class {
        let [mut active, mut inactive] = self.active_and_inactive(lruvec, FILE);
        if free_swap {
            let anon = self.active_and_inactive(lruvec, ANON);
            active += anon[0];
            inactive += anon[1];
        }
        if self.params.refault == RefaultDistance::Unified {
            return if distance < active.min(inactive) { Class::Short } else { Class::None };
        }
        let total = active + inactive;
        if distance <= total / 4 {
            Class::Short
        } else if distance <= total / 2 {
            Class::Mid
        } else if distance <= total {
            Class::Long
        } else {
            Class::None
        }
    }

    fn refault_by_distance(
        &mut self,
        id: PageId,
        references: u64,
        w: bool,
        class: Class,
        recent: bool,
        in_fault: bool,
    ) {
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        let tier = self.tier(references, w);
        if in_fault || references >= 3 {
            let page = self.page(id);
            if class == Class::Short {
                if in_fault {
                    page.refs |= references.min(3);
                } else {
                    page.active = true;
                }
                page.workingset = true;
            } else if recent || class == Class::Mid {
                page.refs |= (references - u64::from(w)).min(3);
                page.workingset = true;
            } else {
                page.refs |= 1;
            }
            self.count_restore(t);
        }
        let mut counted_tier = tier;
        if class == Class::Short && tier == 0 {
            self.page(id).workingset = true;
            counted_tier = 1.min(self.params.tiers - 1);
            self.count_activate(t);
        }
        let l = self.lruvec(lruvec);
        if counted_tier == tier && recent {
            l.refaulted[t][tier] += 1;
        } else {
            l.avg_total[t][counted_tier] += 1;
            l.avg_refaulted[t][counted_tier] += 1;
        }
    }

    fn refault_7_2(&mut self, id: PageId, old: Evicted, in_fault: bool) {
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        if self.lruvec(lruvec).max_seq.abs_diff(old.min_seq) >= 4 {
            return;
        }
        let tier = self.tier(old.refs + 1, old.workingset);
        self.lruvec(lruvec).refaulted[t][tier] += 1;
        if old.workingset {
            if in_fault {
                self.count_activate(t);
            }
            self.page(id).workingset = true;
            self.count_restore(t);
        } else {
            self.page(id).refs = old.refs;
        }
    }

    fn count_activate(&mut self, t: usize) {
        *[&mut self.counters.workingset_activate_anon, &mut self.counters.workingset_activate_file][t] += 1;
    }

    fn count_restore(&mut self, t: usize) {
        *[&mut self.counters.workingset_restore_anon, &mut self.counters.workingset_restore_file][t] += 1;
    }
}

enum Check {
    Reclaim,
    Keep,
    Activate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Short,
    Mid,
    Long,
    None,
}

struct Walker<'a> {
    model: &'a mut MglruModel,
    lruvec: LruvecId,
    can_anon: bool,
    took_one: bool,
}

impl Walk for Walker<'_> {
    fn starts(&mut self) {
        if !std::mem::replace(&mut self.took_one, true) {
            let l = self.model.lruvec(self.lruvec);
            l.filters[((l.max_seq + 1) % 2) as usize] = Some(BTreeSet::new());
        }
    }

    fn enters(&mut self, region: RegionKey, region_accessed: Option<bool>, forced: bool) -> bool {
        if forced {
            return true;
        }
        if self.model.params.region_bits && region_accessed == Some(false) {
            return false;
        }
        let l = self.model.lruvec(self.lruvec);
        l.filters[(l.max_seq % 2) as usize].as_ref().is_none_or(|filter| filter.contains(&region))
    }

    fn eligible(&mut self, page: PageId) -> bool {
        let page = &self.model.pages[&page];
        page.lruvec == self.lruvec && (page.page_type == FILE || self.can_anon)
    }

    fn young(&mut self, page: PageId) {
        self.model.promote(page);
    }

    fn leaves(&mut self, region: RegionKey, entries: u32, young: u32) {
        let l = self.model.lruvec(self.lruvec);
        if young * 8 >= entries
            && let Some(filter) = &mut l.filters[((l.max_seq + 1) % 2) as usize]
        {
            filter.insert(region);
        }
    }
}

struct Looker<'a> {
    model: &'a mut MglruModel,
    lruvec: LruvecId,
    with_anon: bool,
}

impl LookAround for Looker<'_> {
    fn eligible(&mut self, page: PageId) -> bool {
        let page = &self.model.pages[&page];
        page.lruvec == self.lruvec && (page.page_type == FILE || self.with_anon)
    }

    fn young(&mut self, page: PageId) {
        self.model.neighbour(page);
    }
}

impl Policy for MglruModel {
    const HITS: HitReport = HitReport::Kernel;

    fn reclaim_goal(&self) -> u32 {
        32
    }

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
        };
        assert!(self.pages.insert(id, page).is_none());
        if let Some(shadow) = admission.shadow.filter(|_| !admission.overwrites) {
            let old = self.evicted[(shadow.0 / 2) as usize];
            let free_swap = memory.free_swap(old.lruvec) > 0;
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
            self.drain_additions();
        }
    }

    fn accessed<M: Memory>(&mut self, id: PageId, _memory: &mut M) {
        self.mark_accessed(id);
    }

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
            if page.generation == Some(self.lruvec(page.lruvec).min_seq[page.page_type] % 4) {
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

    fn freed(&mut self, id: PageId) {
        self.drain();
        self.unlist(id);
        self.pages.remove(&id);
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

    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> Option<LruvecId> {
        self.tree.0.push(parent);
        self.lruvecs.push(Lruvec { max_seq: 3, walks_done: 2, ..Lruvec::default() });
        Some(self.lruvecs.len() as LruvecId - 1)
    }

    fn grow(&mut self, _pages: usize) {}

    fn counters(&self) -> Counters {
        self.counters
    }

    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize> {
        let l = &self.lruvecs[lruvec as usize];
        let first = l.min_seq[ANON].min(l.min_seq[FILE]);
        let of_type = |t: usize, seq| if seq < l.min_seq[t] { 0 } else { self.size(lruvec, t, seq) };
        (first..=l.max_seq)
            .map(|seq| GenerationSize { seq, birth: 0, pages: [of_type(ANON, seq), of_type(FILE, seq)] })
            .collect()
    }

    fn metadata_bytes(&self) -> usize {
        0
    }
}
