//! Cacheus: LeCaR with experts that resist scans and churn, and with a learning rate that adapts.
//!
//! The expert for recency, SR-LRU, has two lists. New pages enter Q, from which it evicts; a page hit there, or
//! remembered, enters S, whose oldest pages are demoted to Q. Q grows when a page comes back that it evicted new, and
//! S when a demoted page is hit. Each grows by the ratio of the numbers of both. The expert for frequency, CR-LFU,
//! evicts of equally frequent pages the one used last. Experts are drawn as in [`super::lecar`]; a page that comes back
//! costs its expert e^(−rate), whenever it was evicted.
//!
//! The details are those of the authors' simulator: histories of half the memory, Q of a hundredth at first; a
//! remembered page keeps its accesses, without the one that brings it back; after a miss with full memory S stays one
//! page below its size. Weights have 64 bits here and 32 there.
//!
//! Cost: 40 bytes per page id, 24 to 48 per page in memory; O(1) for a hit and O(log n)
//! for an eviction, amortised.
//! Source: Rodriguez and others, *Learning Cache Replacement with CACHEUS*, FAST 2021, sections 3 and 4.

use super::rate::LearningRate;
use super::{Expert, Weights};
use crate::counters::Counters;
use crate::lists::linked::List;
use crate::memory::Memory;
use crate::monitor::Random;
use crate::page::PageId;
use crate::parameter::{Parameter, ParameterError, Parameters, parse_share, parse_whole};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};
use crate::textbook::evict_oldest;
use crate::textbook::ranked::Ranked;
use crate::textbook::slot::Slot;

/// The share of memory that Q has at first.
const FIRST_Q: f64 = 0.01;

/// How it remembers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheusParams {
    /// Length of each history as a share of memory, 0 to 1.
    pub history: f64,
    /// What the draws follow from.
    pub seed: u64,
}

impl Default for CacheusParams {
    fn default() -> CacheusParams {
        CacheusParams { history: 0.5, seed: 1 }
    }
}

impl Parameters for CacheusParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "history",
            default: "50%",
            values: "a share, 0% to 100% or 0 to 1",
            meaning: "evicted pages that each expert remembers, as a share of memory",
        },
        Parameter { name: "seed", default: "1", values: "0 to 2^64-1", meaning: "what the random draws follow from" },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let wrong = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "history" => self.history = parse_share(value).ok_or_else(wrong)?,
            "seed" => self.seed = parse_whole(value, 0, u64::MAX).ok_or_else(wrong)?,
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    S,
    Q,
    LruHistory,
    LfuHistory,
    /// It comes in and was remembered.
    Returning,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    place: Place,
    /// In Q, because it was the oldest of S.
    demoted: bool,
    /// It came to full memory, and was not remembered.
    new: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Cacheus {
    params: CacheusParams,
    random: Random,
    weights: Weights,
    rate: LearningRate,
    slots: Vec<Slot<State>>,
    /// Accesses of a page in memory or remembered.
    accesses: Vec<u32>,
    s: List,
    q: List,
    s_limit: usize,
    q_limit: usize,
    lru_history: List,
    lfu_history: List,
    history_limit: usize,
    /// The pages in memory by their accesses; of equal ones, those used last first.
    frequency: Ranked,
    capacity: usize,
    /// Pages of Q that are demoted, and new pages that the history of recency has.
    demoted: usize,
    new_remembered: usize,
    now: u64,
    /// The access that brings a page in has begun, and whether memory was full.
    begun: bool,
    was_full: bool,
}

impl Default for Cacheus {
    fn default() -> Cacheus {
        Cacheus::new(CacheusParams::default())
    }
}

impl Cacheus {
    /// An empty memory, and experts that are believed equally.
    pub fn new(params: CacheusParams) -> Cacheus {
        Cacheus {
            params,
            random: Random::new(params.seed),
            weights: Weights::EVEN,
            rate: LearningRate::default(),
            slots: Vec::new(),
            accesses: Vec::new(),
            s: List::default(),
            q: List::default(),
            s_limit: 0,
            q_limit: 0,
            lru_history: List::default(),
            lfu_history: List::default(),
            history_limit: 0,
            frequency: Ranked::default(),
            capacity: 0,
            demoted: 0,
            new_remembered: 0,
            now: 0,
            begun: false,
            was_full: false,
        }
    }

    fn state(&mut self, page: PageId) -> &mut State {
        &mut self.slots[page as usize].state
    }

    fn tick(&mut self) {
        self.now += 1;
        self.rate.tick(&mut self.random);
    }

    /// The access that brings a page in begins, if it has not yet.
    fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            self.was_full = self.s.len() + self.q.len() >= self.capacity;
            self.tick();
        }
    }

    /// A page comes in: if it is remembered, its expert pays.
    fn expect(&mut self, page: PageId) {
        let expert = match self.state(page).place {
            Place::LruHistory => Expert::Recency,
            Place::LfuHistory => Expert::Frequency,
            Place::Nowhere | Place::S | Place::Q | Place::Returning => return,
        };
        let was_new = self.state(page).new;
        self.take_off(page);
        *self.state(page) = State { place: Place::Returning, ..State::default() };
        if expert == Expert::Recency && was_new {
            let ratio = ratio(self.demoted, self.new_remembered);
            self.q_limit = (self.q_limit + ratio).min(self.capacity.saturating_sub(1));
            self.s_limit = self.capacity - self.q_limit;
        }
        self.weights.punish(expert, self.rate.now());
    }

    /// Takes a page off the list it is on; it is neither demoted nor new then.
    fn take_off(&mut self, page: PageId) {
        let state = *self.state(page);
        match state.place {
            Place::Nowhere | Place::Returning => return,
            Place::S => self.s.remove(&mut self.slots, page),
            Place::Q => self.q.remove(&mut self.slots, page),
            Place::LruHistory => {
                self.lru_history.remove(&mut self.slots, page);
                self.new_remembered -= usize::from(state.new);
            }
            Place::LfuHistory => self.lfu_history.remove(&mut self.slots, page),
        }
        self.demoted -= usize::from(state.demoted);
        *self.state(page) = State { demoted: false, ..state };
        self.state(page).place = Place::Nowhere;
    }

    fn put(&mut self, page: PageId, place: Place) {
        let list = match place {
            Place::S => &mut self.s,
            Place::Q => &mut self.q,
            Place::LruHistory => &mut self.lru_history,
            Place::LfuHistory => &mut self.lfu_history,
            Place::Nowhere | Place::Returning => return,
        };
        list.push_head(&mut self.slots, page);
        self.state(page).place = place;
    }

    fn rank(&mut self, page: PageId) {
        self.frequency.put(page, u64::from(self.accesses[page as usize]), u64::MAX - self.now);
    }

    fn demote_oldest(&mut self) -> bool {
        let Some(page) = self.s.tail() else { return false };
        self.take_off(page);
        self.put(page, Place::Q);
        self.state(page).demoted = true;
        self.demoted += 1;
        true
    }

    fn limit_s(&mut self) {
        while self.s.len() >= self.s_limit && self.demote_oldest() {}
    }

    fn evict_one<M: Memory>(&mut self, memory: &mut M) -> bool {
        let expert = self.weights.draw(&mut self.random);
        let least = self.frequency.least();
        let agreed = self.q.tail().filter(|page| least == Some(*page));
        let mut victim = None;
        if expert == Expert::Recency || agreed.is_some() {
            let counters = &mut self.frequency.counters;
            let oldest = evict_oldest(&mut self.q, &mut self.slots, memory, counters);
            victim = oldest.or_else(|| evict_oldest(&mut self.s, &mut self.slots, memory, counters));
            if let Some(page) = victim {
                self.frequency.remove(page);
                // It is off its list already.
                let state = std::mem::take(self.state(page));
                self.demoted -= usize::from(state.demoted);
                self.state(page).new = state.new;
            }
        } else {
            self.frequency.evict(1, memory, |page, _| victim = Some(page));
            if let Some(page) = victim {
                self.take_off(page);
            }
        }
        let Some(page) = victim else { return false };
        if agreed == Some(page) {
            self.forget(page);
        } else if expert == Expert::Recency {
            self.new_remembered += usize::from(self.state(page).new);
            self.put(page, Place::LruHistory);
        } else {
            self.put(page, Place::LfuHistory);
        }
        self.trim_histories();
        true
    }

    fn forget(&mut self, page: PageId) {
        self.take_off(page);
        *self.state(page) = State::default();
        self.accesses[page as usize] = 0;
    }

    fn trim_histories(&mut self) {
        while self.lru_history.len() > self.history_limit {
            let Some(page) = self.lru_history.tail() else { break };
            self.forget(page);
        }
        while self.lfu_history.len() > self.history_limit {
            let Some(page) = self.lfu_history.tail() else { break };
            self.forget(page);
        }
    }
}

/// How many times a list's limit must move for one page, at least once.
fn ratio(these: usize, those: usize) -> usize {
    ((these as f64 / those.max(1) as f64 + 0.5) as usize).max(1)
}

impl Policy for Cacheus {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.begin();
        self.expect(page);
        self.begun = false;
        if self.state(page).place == Place::Returning {
            self.put(page, Place::S);
            self.limit_s();
        } else {
            self.accesses[page as usize] = 1;
            if !self.was_full && self.q.is_empty() && self.s.len() < self.s_limit {
                self.put(page, Place::S);
            } else if !self.was_full && self.q.len() < self.q_limit {
                self.put(page, Place::Q);
            } else {
                self.put(page, Place::Q);
                self.state(page).new = true;
                self.limit_s();
            }
        }
        self.rank(page);
    }

    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        let State { place, demoted, .. } = *self.state(page);
        if !matches!(place, Place::S | Place::Q) {
            return;
        }
        self.tick();
        self.rate.hit();
        self.accesses[page as usize] = self.accesses[page as usize].saturating_add(1);
        self.rank(page);
        if place == Place::S {
            self.s.move_to_head(&mut self.slots, page);
            return;
        }
        if demoted {
            let ratio = ratio(self.new_remembered, self.demoted);
            self.s_limit = (self.s_limit + ratio).min(self.capacity.saturating_sub(1));
            self.q_limit = self.capacity - self.s_limit;
        }
        self.take_off(page);
        if self.s.len() >= self.s_limit {
            self.demote_oldest();
        }
        self.put(page, Place::S);
    }

    fn freed(&mut self, page: PageId) {
        self.frequency.remove(page);
        self.forget(page);
    }

    fn forgotten(&mut self, page: PageId) {
        self.freed(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        if let Some(page) = request.incoming {
            self.begin();
            self.expect(page);
        }
        let mut freed = 0;
        while freed < request.goal && self.evict_one(memory) {
            freed += 1;
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.frequency.grow(pages);
        let pages = pages.max(self.slots.len());
        self.slots.resize(pages, Slot::default());
        self.accesses.resize(pages, 0);
    }

    fn set_capacity(&mut self, pages: usize) {
        self.capacity = pages;
        self.q_limit = ((FIRST_Q * pages as f64 + 0.5) as usize).clamp(1, pages.max(1));
        self.s_limit = pages.saturating_sub(self.q_limit);
        self.history_limit = (pages as f64 * self.params.history) as usize;
        self.rate.set_period(pages);
        self.trim_histories();
    }

    fn counters(&self) -> Counters {
        self.frequency.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<State>>()
            + self.accesses.capacity() * size_of::<u32>()
            + self.frequency.metadata_bytes()
    }
}
