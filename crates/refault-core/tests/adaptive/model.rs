//! The policy in the words of its page, with plain vectors, linear searches, and a stack that is really there.

use std::collections::{HashMap, VecDeque};

use refault_core::PageId;

use crate::harness::Model;

const RECENCY: usize = 0;
const REUSE: usize = 1;
const FREQUENCY: usize = 2;
/// Where the clock of departures starts.
const FIRST_CLOCK: i64 = 1 << 16;

/// See the module.
pub struct Adaptive {
    capacity: usize,
    guarded: bool,
    /// Share of memory that may be lost once.
    pub head_start: f64,
    resident: Vec<PageId>,
    /// Every page that was used and not freed, oldest use first: LIRS's stack, and LRU's order.
    by_use: Vec<PageId>,
    held: [Vec<PageId>; 3],
    outsiders: [VecDeque<PageId>; 3],
    low: Vec<PageId>,
    /// Pages whose last reference was close, and which did not become low by that.
    close: Vec<PageId>,
    probation: VecDeque<PageId>,
    frequency: Frequency,
    leader: usize,
    recent: [f64; 3],
    misses: [f64; 3],
    own_misses: f64,
    sees_hits: bool,
    /// Pages that recency held and memory did not: those asked for, and those that recency let go unasked for.
    missed: u64,
    unmissed: u64,
}

#[derive(Default)]
struct Frequency {
    window: VecDeque<PageId>,
    /// Pages by list, lowest first; each in order of arrival.
    lists: Vec<(i64, PageId)>,
    /// Rank, and part of an interval in which a reference counted.
    worth: HashMap<PageId, (i64, i64)>,
    departures: i64,
}

impl Adaptive {
    pub fn new(capacity: usize, guarded: bool) -> Adaptive {
        Adaptive {
            capacity,
            guarded,
            head_start: 0.0,
            resident: Vec::new(),
            by_use: Vec::new(),
            held: Default::default(),
            outsiders: Default::default(),
            low: Vec::new(),
            close: Vec::new(),
            probation: VecDeque::new(),
            frequency: Frequency::default(),
            leader: REUSE,
            recent: [0.0; 3],
            misses: [0.0; 3],
            own_misses: 0.0,
            sees_hits: true,
            missed: 0,
            unmissed: 0,
        }
    }

    /// The form for memory without accessed bits: it is told nothing of a page that is in memory.
    pub fn without_bits(capacity: usize, guarded: bool) -> Adaptive {
        Adaptive { sees_hits: false, ..Adaptive::new(capacity, guarded) }
    }

    fn refer(&mut self, page: PageId) {
        let before = self.by_use.iter().position(|p| *p == page);
        let missed = [0, 1, 2].map(|way| !self.held[way].contains(&page));
        if !self.resident.contains(&page) {
            self.own_misses += 1.0;
            if !missed[RECENCY] {
                self.missed += 1;
                self.forget_old();
            }
        }
        self.frequency.count(page, self.capacity as i64);
        // The page is not moved in the order of uses before it is known what stood below it.
        let oldest_low = self.by_use.iter().position(|p| self.low.contains(p));
        let close = matches!((before, oldest_low), (Some(at), Some(oldest)) if at > oldest);
        self.by_use.retain(|p| *p != page);
        self.by_use.push(page);
        for way in [RECENCY, REUSE, FREQUENCY] {
            if missed[way] {
                self.held[way].push(page);
            }
            match way {
                REUSE => self.judge_reuse(page, missed[REUSE], close),
                FREQUENCY if missed[FREQUENCY] => self.frequency.enter(page, self.capacity),
                _ => {}
            }
            if self.held[way].len() > self.capacity {
                self.shed(way);
            }
        }
        if missed.contains(&true) {
            self.lead(missed);
        }
    }

    fn judge_reuse(&mut self, page: PageId, missed: bool, close: bool) {
        let low_limit = self.capacity - self.capacity.div_ceil(100);
        if self.low.contains(&page) {
            return;
        }
        self.probation.retain(|p| *p != page);
        let twice = close && self.close.contains(&page);
        self.close.retain(|p| *p != page);
        if missed && self.low.len() < low_limit || twice {
            self.low.push(page);
            if self.low.len() > low_limit {
                let oldest = *self.by_use.iter().find(|p| self.low.contains(p)).unwrap();
                self.low.retain(|p| *p != oldest);
                self.probation.push_back(oldest);
            }
        } else {
            self.close.extend(close.then_some(page));
            self.probation.push_back(page);
        }
    }

    fn shed(&mut self, way: usize) {
        let page = match way {
            RECENCY => *self.by_use.iter().find(|p| self.held[RECENCY].contains(p)).unwrap(),
            REUSE => self.probation.pop_front().unwrap(),
            _ => self.frequency.leave(self.capacity as i64),
        };
        self.held[way].retain(|p| *p != page);
        if self.resident.contains(&page) {
            if !self.outsiders[way].contains(&page) {
                self.outsiders[way].push_back(page);
            }
        } else if way == RECENCY {
            self.unmissed += 1;
            self.forget_old();
        }
    }

    fn forget_old(&mut self) {
        if self.missed + self.unmissed > self.capacity as u64 {
            self.missed /= 2;
            self.unmissed /= 2;
        }
    }

    fn lead(&mut self, missed: [bool; 3]) {
        let fading = 1.0 - 1.0 / (2.0 * self.capacity as f64).min(50_000.0);
        for (way, missed) in missed.into_iter().enumerate() {
            let miss = if missed { 1.0 } else { 0.0 };
            self.misses[way] += miss;
            self.recent[way] = self.recent[way] * fading + miss;
        }
        let least = self.recent.iter().copied().fold(f64::INFINITY, f64::min);
        if least + 4.0 < self.recent[self.leader] {
            self.leader = self.recent.iter().position(|r| *r == least).unwrap();
        }
    }

    /// The leader, or recency if more would be at stake than was won.
    fn chooser(&self) -> usize {
        let absent = self.held[RECENCY].iter().filter(|p| !self.resident.contains(p)).count() as f64;
        let lru = self.misses[RECENCY];
        let too_much = if self.sees_hits {
            self.own_misses + 1.0 + absent - lru > 0.02 * lru + self.head_start * self.capacity as f64
        } else {
            let share = (2.0 * (self.missed as f64 + 2.0) / ((self.missed + self.unmissed) as f64 + 2.0)).min(1.0);
            let lead = (lru - self.misses[self.leader]).max(0.0);
            self.own_misses + 1.0 - lru + share * absent > 0.01 * lru + 0.5 * lead
        };
        if self.guarded && too_much { RECENCY } else { self.leader }
    }

    /// What goes where the guard forbids what the leader wants.
    fn evict_held_back(&mut self) -> Option<PageId> {
        let outside = |page: &PageId| self.resident.contains(page) && !self.held[RECENCY].contains(page);
        // Entries at the ends that mean nothing are gone once they were met there.
        let from = self.outsiders[RECENCY].iter().position(outside).unwrap_or(self.outsiders[RECENCY].len());
        let to = self.outsiders[RECENCY].iter().rposition(outside).map_or(from, |at| at + 1);
        self.outsiders[RECENCY] = self.outsiders[RECENCY].range(from..to).copied().collect();
        let (first, last) = (*self.outsiders[RECENCY].front()?, *self.outsiders[RECENCY].back()?);
        let wanted = |page: PageId| self.held[self.leader].contains(&page);
        let worth = |page: PageId| self.frequency.worth[&page].0;
        let page = if !wanted(first) || wanted(last) && worth(last) > worth(first) + 8 { first } else { last };
        self.outsiders[RECENCY].retain(|p| *p != page);
        self.resident.retain(|p| *p != page);
        Some(page)
    }

    fn evict(&mut self) -> PageId {
        let way = self.chooser();
        if way != self.leader
            && let Some(page) = self.evict_held_back()
        {
            return page;
        }
        loop {
            match self.outsiders[way].pop_front() {
                Some(page) if self.resident.contains(&page) && !self.held[way].contains(&page) => {
                    self.resident.retain(|p| *p != page);
                    return page;
                }
                Some(_) => {}
                None => self.shed(way),
            }
        }
    }
}

impl Frequency {
    fn clock(&self, capacity: i64) -> i64 {
        FIRST_CLOCK + self.departures * 64 / (8 * capacity)
    }

    fn count(&mut self, page: PageId, capacity: i64) {
        let (clock, part) = (self.clock(capacity), self.departures * 1600 / (15 * capacity));
        let (rank, counted) = self.worth.get(&page).copied().unwrap_or((0, i64::MIN / 2));
        if part - counted >= 16 {
            let apart = (rank - clock).abs() as f64 / 64.0;
            let more = ((1.0 + (-apart).exp2()).log2() * 64.0).round() as i64;
            self.worth.insert(page, (rank.max(clock) + more, part));
        }
    }

    fn list_of(&self, page: PageId, capacity: i64) -> i64 {
        let bottom = self.clock(capacity) / 4 - 64;
        (self.worth[&page].0 / 4).clamp(bottom, bottom + 255)
    }

    fn put_on_list(&mut self, page: PageId, capacity: i64) {
        let list = self.list_of(page, capacity);
        let behind = self.lists.iter().position(|(other, _)| *other > list).unwrap_or(self.lists.len());
        self.lists.insert(behind, (list, page));
    }

    fn enter(&mut self, page: PageId, capacity: usize) {
        self.window.push_back(page);
        if self.window.len() > (capacity / 10).max(1) {
            let oldest = self.window.pop_front().unwrap();
            self.put_on_list(oldest, capacity as i64);
        }
    }

    fn leave(&mut self, capacity: i64) -> PageId {
        loop {
            let (list, page) = self.lists.remove(0);
            if self.list_of(page, capacity) > list {
                self.put_on_list(page, capacity);
                continue;
            }
            self.departures += 1;
            // What has fallen below the lists joins the lowest.
            let bottom = self.clock(capacity) / 4 - 64;
            self.lists.iter_mut().for_each(|(list, _)| *list = (*list).max(bottom));
            return page;
        }
    }
}

impl Model for Adaptive {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if !self.sees_hits && self.resident.contains(&page) {
            return Vec::new();
        }
        self.refer(page);
        let mut evicted = Vec::new();
        if !self.resident.contains(&page) {
            if self.resident.len() == self.capacity {
                evicted.push(self.evict());
            }
            self.resident.push(page);
        }
        evicted
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.resident.contains(&page)
    }

    fn free(&mut self, _page: PageId) {
        unreachable!("only sequences without frees are compared")
    }
}
