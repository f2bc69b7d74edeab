//! LeCaR: for each eviction LRU or LFU, drawn by weights that the regret of former evictions moves.
//!
//! Each expert has a FIFO history of pages that it evicted, half as long as memory. A page that comes back while it is
//! remembered costs its expert: the weight is multiplied by e^(−rate · d^t), where t is the number of accesses since
//! the eviction and d is 0.005^(1 / memory). What both would evict is remembered by none. Accesses of a remembered page
//! are remembered with it.
//!
//! Histories, and the bounds of the weights, are those of the authors' simulator. Of pages with equal accesses the one
//! used longest ago is the least frequent.
//!
//! Cost: 48 bytes per page id, 24 to 48 per page in memory; O(1) for a hit and O(log n)
//! for an eviction, amortised.
//! Source: Vietri and others, *Driving Cache Replacement with ML-based LeCaR*, HotStorage 2018, algorithms 1 and 2.

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

/// d to the power of the memory's pages.
const DISCOUNT: f64 = 0.005;
const MAX_RATE: f64 = 100.0;

/// How it learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeCarParams {
    /// The learning rate, 0 to 100.
    pub rate: f64,
    /// Length of each history as a share of memory, 0 to 1.
    pub history: f64,
    /// What the draws follow from.
    pub seed: u64,
}

impl Default for LeCarParams {
    fn default() -> LeCarParams {
        LeCarParams { rate: 0.45, history: 0.5, seed: 1 }
    }
}

impl Parameters for LeCarParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "rate",
            default: "0.45",
            values: "0 to 100",
            meaning: "how much a page that comes back costs the expert that evicted it",
        },
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
            "rate" => {
                let rate = value.parse().ok().filter(|rate| (0.0..=MAX_RATE).contains(rate));
                self.rate = rate.ok_or_else(wrong)?;
            }
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
    Memory,
    /// Evicted for the sake of recency.
    LruHistory,
    /// Evicted for the sake of frequency.
    LfuHistory,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct LeCar {
    params: LeCarParams,
    random: Random,
    weights: Weights,
    slots: Vec<Slot<Place>>,
    /// Accesses of a page in memory or remembered; 0 for others.
    accesses: Vec<u32>,
    /// When a remembered page was evicted.
    evicted_at: Vec<u64>,
    /// The pages in memory, by their last access and by their accesses.
    recency: List,
    frequency: Ranked,
    lru_history: List,
    lfu_history: List,
    history_limit: usize,
    capacity: usize,
    now: u64,
}

impl Default for LeCar {
    fn default() -> LeCar {
        LeCar::new(LeCarParams::default())
    }
}

impl LeCar {
    /// An empty memory, and experts that are believed equally.
    pub fn new(params: LeCarParams) -> LeCar {
        LeCar {
            params,
            random: Random::new(params.seed),
            weights: Weights::EVEN,
            slots: Vec::new(),
            accesses: Vec::new(),
            evicted_at: Vec::new(),
            recency: List::default(),
            frequency: Ranked::default(),
            lru_history: List::default(),
            lfu_history: List::default(),
            history_limit: 0,
            capacity: 0,
            now: 0,
        }
    }

    /// A page comes in with the next access: if it is remembered, its expert pays. Its accesses stay known.
    fn expect(&mut self, page: PageId) {
        let (history, expert) = match self.slots[page as usize].state {
            Place::Nowhere | Place::Memory => return,
            Place::LruHistory => (&mut self.lru_history, Expert::Recency),
            Place::LfuHistory => (&mut self.lfu_history, Expert::Frequency),
        };
        history.remove(&mut self.slots, page);
        self.slots[page as usize].state = Place::Nowhere;
        let since = self.now + 1 - self.evicted_at[page as usize];
        let regret = libm::pow(DISCOUNT, since as f64 / self.capacity.max(1) as f64);
        self.weights.punish(expert, self.params.rate * regret);
    }

    fn used(&mut self, page: PageId) {
        self.now = self.frequency.tick();
        let accesses = &mut self.accesses[page as usize];
        *accesses = accesses.saturating_add(1);
        self.frequency.put(page, u64::from(*accesses), self.now);
    }

    fn evict_one<M: Memory>(&mut self, memory: &mut M) -> bool {
        let expert = self.weights.draw(&mut self.random);
        let least = self.frequency.least();
        let agreed = self.recency.tail().filter(|page| least == Some(*page));
        let victim = if expert == Expert::Recency || agreed.is_some() {
            let oldest = evict_oldest(&mut self.recency, &mut self.slots, memory, &mut self.frequency.counters);
            oldest.inspect(|page| self.frequency.remove(*page))
        } else {
            let mut gone = None;
            self.frequency.evict(1, memory, |page, _| gone = Some(page));
            gone.inspect(|page| self.recency.remove(&mut self.slots, *page))
        };
        let Some(page) = victim else { return false };
        self.evicted_at[page as usize] = self.now + 1;
        if agreed == Some(page) {
            self.forget(page);
            return true;
        }
        let (history, place) = match expert {
            Expert::Recency => (&mut self.lru_history, Place::LruHistory),
            Expert::Frequency => (&mut self.lfu_history, Place::LfuHistory),
        };
        history.push_head(&mut self.slots, page);
        self.slots[page as usize].state = place;
        self.trim_histories();
        true
    }

    fn forget(&mut self, page: PageId) {
        self.slots[page as usize].state = Place::Nowhere;
        self.accesses[page as usize] = 0;
    }

    fn trim_histories(&mut self) {
        while self.lru_history.len() > self.history_limit {
            let Some(page) = self.lru_history.pop_tail(&mut self.slots) else { break };
            self.forget(page);
        }
        while self.lfu_history.len() > self.history_limit {
            let Some(page) = self.lfu_history.pop_tail(&mut self.slots) else { break };
            self.forget(page);
        }
    }
}

impl Policy for LeCar {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.expect(page);
        self.recency.push_head(&mut self.slots, page);
        self.slots[page as usize].state = Place::Memory;
        self.used(page);
    }

    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        if self.slots[page as usize].state == Place::Memory {
            self.recency.move_to_head(&mut self.slots, page);
            self.used(page);
        }
    }

    fn freed(&mut self, page: PageId) {
        match self.slots[page as usize].state {
            Place::Nowhere => {}
            Place::Memory => {
                self.recency.remove(&mut self.slots, page);
                self.frequency.remove(page);
            }
            Place::LruHistory => self.lru_history.remove(&mut self.slots, page),
            Place::LfuHistory => self.lfu_history.remove(&mut self.slots, page),
        }
        self.forget(page);
    }

    fn forgotten(&mut self, page: PageId) {
        self.freed(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        if let Some(page) = request.incoming {
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
        self.evicted_at.resize(pages, 0);
    }

    fn set_capacity(&mut self, pages: usize) {
        self.capacity = pages;
        self.history_limit = (pages as f64 * self.params.history) as usize;
        self.trim_histories();
    }

    fn counters(&self) -> Counters {
        self.frequency.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<Place>>()
            + self.accesses.capacity() * size_of::<u32>()
            + self.evicted_at.capacity() * size_of::<u64>()
            + self.frequency.metadata_bytes()
    }
}
