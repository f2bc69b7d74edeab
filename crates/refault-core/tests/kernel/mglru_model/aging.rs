//! Generations come to be and pages move up, as the model has it (spec: mglru §6).

use super::walk::Walker;
use super::*;
use refault_core::mglru::Aging;

impl MglruModel {
    pub(super) fn fold_averages(&mut self, lruvec: LruvecId, t: usize) {
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

    pub(super) fn try_advance_min(&mut self, lruvec: LruvecId, can_anon: bool) -> bool {
        let new_rules = self.is_7_2();
        let l = &self.lruvecs[lruvec as usize];
        let usable = if can_anon { vec![ANON, FILE] } else { vec![FILE] };
        let mut m = l.min_seq;
        for t in &usable {
            while m[*t] + self.params.min_generations <= l.max_seq && l.lists[self.slot(m[*t]) as usize][*t].is_empty()
            {
                m[*t] += 1;
            }
        }
        if can_anon && new_rules {
            let third = l.max_seq - self.params.min_generations;
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
    pub(super) fn inc_gen(&mut self, id: PageId, min_seq: u64, reclaim: bool) -> usize {
        let new_rules = self.is_7_2();
        let (oldest, next) = (self.slot(min_seq), self.slot(min_seq + 1));
        let page = self.page(id);
        if page.generation == Some(oldest) {
            page.generation = Some(next);
            page.refs = 0;
            page.referenced = false;
            page.workingset &= new_rules;
            page.reclaim |= reclaim;
        }
        page.generation.unwrap() as usize
    }

    pub(super) fn new_generation_of(&mut self, lruvec: LruvecId, can_anon: bool) {
        for t in [FILE, ANON] {
            let (max_seq, min_seq) = (self.lruvec(lruvec).max_seq, self.lruvec(lruvec).min_seq[t]);
            if max_seq - min_seq + 1 < self.params.max_generations {
                continue;
            }
            if t == FILE || can_anon {
                let oldest = self.slot(min_seq) as usize;
                while let Some(id) = self.lruvec(lruvec).lists[oldest][t].pop_back() {
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

    /// Whether a generation is due, and the pages of the usable types (mglru §6.3, §16.2).
    pub(super) fn should_age(&self, lruvec: LruvecId, can_anon: bool, priority: u32) -> (bool, u64) {
        let l = &self.lruvecs[lruvec as usize];
        let min = self.params.min_generations;
        let usable = if can_anon { vec![ANON, FILE] } else { vec![FILE] };
        let pages_of =
            |seq: u64| usable.iter().filter(|t| l.min_seq[**t] <= seq).map(|t| self.size(lruvec, *t, seq)).sum::<u64>();
        if self.is_7_2() {
            let m = usable.iter().map(|t| l.min_seq[*t]).min().unwrap();
            let total = (m..=l.max_seq).map(pages_of).sum();
            let due = m + min > l.max_seq || priority != 12 && m + min == l.max_seq;
            return (due, total);
        }
        let m = l.min_seq[usable[0]];
        if m + min > l.max_seq {
            return (true, 0);
        }
        let first = usable.iter().map(|t| l.min_seq[*t]).min().unwrap();
        let total: u64 = (first..=l.max_seq).map(pages_of).sum();
        let (young, old) = (pages_of(l.max_seq), pages_of(l.max_seq - min));
        let out_of_proportion = young * min > total || old * (min + 2) < total;
        (self.params.aging == Aging::Sizes && m + min == l.max_seq && out_of_proportion, total)
    }

    pub(super) fn try_new_generation<M: Memory>(&mut self, lruvec: LruvecId, can_anon: bool, memory: &mut M) -> bool {
        if self.lruvec(lruvec).max_seq <= self.lruvec(lruvec).walks_done {
            return false;
        }
        if self.params.walks {
            let mut walker = Walker { model: self, lruvec, can_anon, took_one: false };
            if memory.page_tables().is_some_and(|tables| tables.walk(lruvec, &mut walker)) {
                self.walk_context = true;
            }
        }
        self.lruvec(lruvec).walks_done += 1;
        self.new_generation_of(lruvec, can_anon);
        true
    }

    /// A young entry was found by a walk, or by a look-around that has a walk to account to (mglru §7, §16.5).
    pub(super) fn promote(&mut self, id: PageId) {
        let new_rules = self.is_7_2();
        let youngest = self.slot(self.lruvecs[self.pages[&id].lruvec as usize].max_seq);
        let page = self.page(id);
        if new_rules && !page.referenced && !page.workingset {
            page.referenced = true;
            page.refs = 0;
        } else if page.generation.is_none() {
            page.referenced |= !new_rules;
        } else {
            page.generation = Some(youngest);
            page.clear_references();
            page.workingset = new_rules;
        }
    }

    /// A young entry was found without a walk (mglru §16.5). False the first time; after that an access is counted, and
    /// what has more than one makes the page part of the working set.
    pub(super) fn note_young_7_2(&mut self, id: PageId) -> bool {
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

    /// A young neighbour of a page that was found young (mglru §8).
    pub(super) fn neighbour(&mut self, id: PageId) {
        if self.walk_context {
            self.promote(id);
            return;
        }
        let new_rules = self.is_7_2();
        let youngest = self.slot(self.lruvecs[self.pages[&id].lruvec as usize].max_seq);
        if new_rules {
            if !self.note_young_7_2(id) {
                return;
            }
        } else if !self.is_listed(id) {
            self.page(id).referenced = true;
        }
        if self.pages[&id].generation.is_some_and(|g| g != youngest) && !self.activating.contains(&id) {
            self.activate_later(id);
        }
    }

    // --- the controller (mglru §10, §16.9) ---
}
