//! Choosing a type, scanning, and the batch stage, as the model has them (spec: mglru §9–§11).

use super::walk::Looker;
use super::*;

impl MglruModel {
    pub(super) fn position(&self, lruvec: LruvecId, t: usize, tiers: std::ops::Range<usize>, gain: u64) -> Position {
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
    pub(super) fn tier_limit(&self, lruvec: LruvecId, base: (usize, u64), of: (usize, u64)) -> usize {
        let first = self.position(lruvec, base.0, 0..1, base.1);
        for k in 1..self.params.tiers {
            if !refaults_no_more(&first, &self.position(lruvec, of.0, k..k + 1, of.1)) {
                return k - 1;
            }
        }
        self.params.tiers - 1
    }

    pub(super) fn own_tier_limit(&self, lruvec: LruvecId, t: usize) -> usize {
        let (base, others) = if self.is_7_2() { (2, 3) } else { (1, 2) };
        self.tier_limit(lruvec, (t, base), (t, others))
    }

    // --- eviction (mglru §9) ---

    /// The type to try first, and its tier limit if the choice came with one.
    pub(super) fn choose_type(&self, lruvec: LruvecId, s: u64) -> (usize, Option<usize>) {
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
    pub(super) fn scan<M: Memory>(
        &mut self,
        lruvec: LruvecId,
        t: usize,
        tier_limit: usize,
        limit: u64,
        isolated: &mut Vec<PageId>,
        memory: &M,
    ) -> u64 {
        let (max_seq, min_seq) = (self.lruvec(lruvec).max_seq, self.lruvec(lruvec).min_seq[t]);
        if max_seq - min_seq + 1 == self.params.min_generations {
            return 0;
        }
        let oldest = self.slot(min_seq) as usize;
        let (mut looked_at, mut sorted, mut taken) = (0, 0, 0);
        let mut aside = Vec::new();
        while looked_at < limit && taken < BATCH && (aside.len() as u64) < BATCH {
            let Some(id) = self.lruvec(lruvec).lists[oldest][t].pop_back() else { break };
            looked_at += 1;
            if self.sort(id, min_seq, tier_limit, memory) {
                sorted += 1;
            } else if !self.follows_swap_cache() && self.activating.contains(&id) {
                aside.push(id);
            } else {
                self.isolate(id);
                taken += 1;
                isolated.push(id);
            }
        }
        self.counters.pgskip += aside.len() as u64;
        for id in aside {
            self.lruvec(lruvec).lists[oldest][t].push_front(id);
        }
        self.counters.pgscan += taken;
        *[&mut self.counters.pgscan_anon, &mut self.counters.pgscan_file][t] += taken;
        self.counters.pgrefill += sorted;
        if taken > 0 || looked_at == limit || self.is_7_2() { looked_at } else { 0 }
    }

    /// Whether the page was moved instead of being isolated (mglru §9.3, §16.7, §16.8).
    pub(super) fn sort<M: Memory>(&mut self, id: PageId, min_seq: u64, tier_limit: usize, memory: &M) -> bool {
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        if !self.is_7_2() && memory.io_state(id).any(IoState::UNEVICTABLE) {
            self.cull(id);
            return true;
        }
        let generation = self.pages[&id].generation.unwrap();
        if generation != self.slot(min_seq) {
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

    pub(super) fn isolate(&mut self, id: PageId) {
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
    pub(super) fn evict<M: Memory>(
        &mut self,
        lruvec: LruvecId,
        s: u64,
        limit: u64,
        scan: &mut Scan,
        memory: &mut M,
    ) -> u64 {
        let can_anon = s != 0;
        if self.is_7_2() {
            self.try_advance_min(lruvec, can_anon);
        }
        let mut isolated = Vec::new();
        let (mut t, mut tier_limit) = self.choose_type(lruvec, s);
        let mut scanned = 0;
        for _ in 0..if can_anon { 2 } else { 1 } {
            let tiers = tier_limit.unwrap_or_else(|| self.own_tier_limit(lruvec, t));
            let now = self.scan(lruvec, t, tiers, limit, &mut isolated, memory);
            scanned += now;
            if !isolated.is_empty() || !self.is_7_2() && now > 0 {
                break;
            }
            // The same type again, unless there was nothing of it (mglru §16.9).
            if now == 0 {
                t = 1 - t;
            }
            tier_limit = None;
        }
        if self.is_7_2() {
            if scanned > 0 {
                self.try_advance_min(lruvec, can_anon);
            }
        } else {
            scanned += u64::from(self.try_advance_min(lruvec, can_anon));
            let governing = if can_anon { ANON } else { FILE };
            if self.lruvec(lruvec).max_seq - self.lruvec(lruvec).min_seq[governing] + 1 == self.params.min_generations {
                scanned = 0;
            }
        }
        let mut second = false;
        while !isolated.is_empty() {
            let mut survivors = Vec::new();
            for id in isolated {
                let page_type = self.pages[&id].page_type;
                if self.batch_stage(id, true, memory) {
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

    /// A page that the batch stage left; false if it gets a second chance to be evicted (mglru §9, §16.10).
    pub(super) fn put_back<M: Memory>(&mut self, id: PageId, second: bool, memory: &mut M) -> bool {
        let io = memory.io_state(id);
        if io.any(IoState::UNEVICTABLE) {
            self.cull(id);
            return true;
        }
        let in_flight = io.any(IoState::DIRTY) || io.any(IoState::WRITEBACK);
        if self.follows_swap_cache() {
            self.page(id).swapcache = memory.swap().unwrap().in_swap_cache(id).unwrap();
        }
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
    pub(super) fn batch_stage<M: Memory>(&mut self, id: PageId, references_count: bool, memory: &mut M) -> bool {
        let io = memory.io_state(id);
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        if io.any(IoState::LOCKED) {
            return false;
        }
        if io.any(IoState::UNEVICTABLE) {
            return false;
        }
        if references_count && !self.is_7_2() && memory.is_mapped(id) && self.pages[&id].referenced {
            return false;
        }
        if io.any(IoState::WRITEBACK) {
            self.page(id).reclaim = true;
            return self.keep_active(id);
        }
        let check = if references_count { self.check_references(id, memory) } else { Check::Reclaim };
        match check {
            Check::Keep => return false,
            Check::Activate => return self.keep_active(id),
            Check::Reclaim => {}
        }
        if t == FILE && io.any(IoState::DIRTY) {
            self.counters.nr_vmscan_immediate_reclaim += 1;
            self.page(id).reclaim = true;
            return self.keep_active(id);
        }
        if self.follows_swap_cache() && self.activating.contains(&id) {
            // The batch's reference keeps it, but it is unmapped and has a slot (mglru §16.5).
            return memory.swap().unwrap().evict_held(id) == Eviction::Refused && self.keep_active(id);
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

    pub(super) fn keep_active(&mut self, id: PageId) -> bool {
        self.page(id).active = true;
        self.counters.pgactivate += 1;
        false
    }

    pub(super) fn check_references<M: Memory>(&mut self, id: PageId, memory: &mut M) -> Check {
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

    pub(super) fn look_around<M: Memory>(&mut self, id: PageId, memory: &mut M) {
        if !self.params.look_around {
            return;
        }
        let lruvec = self.pages[&id].lruvec;
        let with_anon = self.pages[&id].page_type == ANON;
        let mut looker = Looker { model: self, lruvec, with_anon };
        let Some(seen) = memory.page_tables().and_then(|tables| tables.look_around(id, &mut looker)) else { return };
        let l = self.lruvec(lruvec);
        if seen.young * 8 >= seen.entries
            && let Some(filter) = &mut l.filters[(l.max_seq % 2) as usize]
        {
            filter.insert(seen.region);
        }
    }

    // --- visits (mglru §11, §16.2, §16.3) ---

    pub(super) fn visit<M: Memory>(&mut self, lruvec: LruvecId, scan: &mut Scan, memory: &mut M) {
        self.drain();
        // Reclaim on request has a walk to account promotions to (mglru §8).
        self.walk_context = self.proactive;
        let s = if free_swap(memory, lruvec) < BATCH { 0 } else { u64::from(self.params.swappiness) };
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

    pub(super) fn pass<M: Memory>(&mut self, scan: &mut Scan, full_walk: bool, memory: &mut M) {
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
}

pub(super) enum Check {
    Reclaim,
    Keep,
    Activate,
}
