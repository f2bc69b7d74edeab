//! LeCaR and Cacheus as their authors describe them, over vectors of entries. Draws are taken from the same stream.

use refault_core::PageId;
use refault_core::monitor::Random;

use crate::harness::Model;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Entry {
    page: PageId,
    frequency: u32,
    /// The last access, or the eviction.
    time: u64,
    new: bool,
    demoted: bool,
}

fn find(entries: &[Entry], page: PageId) -> Option<usize> {
    entries.iter().position(|entry| entry.page == page)
}

/// Two weights, for recency and frequency.
struct Believed([f64; 2]);

impl Believed {
    fn choose(&self, random: &mut Random) -> usize {
        let drawn = (random.bits() >> 11) as f64 / 2f64.powi(53);
        usize::from(drawn >= self.0[0])
    }

    fn pay(&mut self, expert: usize, amount: f64) {
        let mut weights = [self.0[0], 1.0 - self.0[0]];
        weights[expert] *= libm::exp(-amount);
        let recency = weights[0] / (weights[0] + weights[1]);
        self.0[0] = recency.clamp(1.0 - 0.99, 0.99);
    }
}

pub struct LeCar {
    capacity: usize,
    rate: f64,
    history_limit: usize,
    random: Random,
    believed: Believed,
    now: u64,
    /// In memory, the least recently used first.
    memory: Vec<Entry>,
    /// What each expert evicted, the oldest first.
    histories: [Vec<Entry>; 2],
}

impl LeCar {
    pub fn new(capacity: usize, rate: f64, history_limit: usize, seed: u64) -> LeCar {
        LeCar {
            capacity,
            rate,
            history_limit,
            random: Random::new(seed),
            believed: Believed([0.5; 2]),
            now: 0,
            memory: Vec::new(),
            histories: [Vec::new(), Vec::new()],
        }
    }
}

impl Model for LeCar {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        self.now += 1;
        let mut frequency = 0;
        let mut victims = Vec::new();
        if let Some(index) = find(&self.memory, page) {
            frequency = self.memory.remove(index).frequency;
        } else {
            for expert in [0, 1] {
                if let Some(index) = find(&self.histories[expert], page) {
                    let entry = self.histories[expert].remove(index);
                    frequency = entry.frequency;
                    let regret = libm::pow(0.005, (self.now - entry.time) as f64 / self.capacity as f64);
                    self.believed.pay(expert, self.rate * regret);
                    break;
                }
            }
            if self.memory.len() == self.capacity {
                let expert = self.believed.choose(&mut self.random);
                let rarest = self.memory.iter().map(|entry| (entry.frequency, entry.time)).min();
                let rarest = self.memory.iter().position(|entry| Some((entry.frequency, entry.time)) == rarest);
                let rarest = rarest.expect("memory is full");
                let victim = self.memory.remove([0, rarest][expert]);
                victims.push(victim.page);
                if rarest != 0 {
                    self.histories[expert].push(Entry { time: self.now, ..victim });
                    if self.histories[expert].len() > self.history_limit {
                        self.histories[expert].remove(0);
                    }
                }
            }
        }
        self.memory.push(Entry { page, frequency: frequency + 1, time: self.now, new: false, demoted: false });
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        find(&self.memory, page).is_some()
    }

    fn free(&mut self, page: PageId) {
        self.memory.retain(|entry| entry.page != page);
    }
}

/// The learning rate with the last rates and hit ratios, all that there were.
struct Rate {
    rates: Vec<f64>,
    ratios: Vec<f64>,
    hits: u32,
    zeros: u32,
    losses: u32,
}

impl Rate {
    fn new(capacity: usize) -> Rate {
        let first = (2.0 * 2f64.ln() / capacity as f64).sqrt();
        Rate { rates: vec![0.0, first], ratios: vec![0.0], hits: 0, zeros: 0, losses: 0 }
    }

    fn current(&self) -> f64 {
        *self.rates.last().expect("there is a first")
    }

    fn rounded(value: f64) -> f64 {
        (value * 1000.0).round_ties_even() / 1000.0
    }

    fn next_period(&mut self, capacity: usize, random: &mut Random) {
        let reset = self.rates[1].clamp(0.001, 1.0);
        let ratio = Self::rounded(f64::from(self.hits) / capacity as f64);
        let gained = Self::rounded(ratio - self.ratios[self.ratios.len() - 1]);
        let (rate, previous) = (self.current(), self.rates[self.rates.len() - 2]);
        let moved = Self::rounded(rate) - Self::rounded(previous);
        let mut next = rate;
        if moved != 0.0 && gained != 0.0 && moved * gained != 0.0 {
            let step = (rate * moved).abs();
            next = if (moved > 0.0) == (gained > 0.0) { (rate + step).min(1.0) } else { (rate - step).max(0.001) };
            self.zeros = 0;
            self.losses = 0;
        } else if gained < 0.0 {
            self.losses += 1;
            self.zeros += 1;
            if self.zeros >= 10 {
                next = reset;
                self.zeros = 0;
            } else if self.losses >= 10 {
                next = reset;
                self.losses = 0;
            } else if rate >= 1.0 {
                next = 0.9;
            } else if rate <= 0.001 {
                next = 0.005;
            } else if random.bits() < 1 << 63 {
                next = (rate * 1.25).min(1.0);
            } else {
                next = (rate * 0.75).max(0.001);
            }
        } else if gained == 0.0 && ratio <= 0.0 {
            self.zeros += 1;
            if self.zeros >= 10 {
                next = reset;
                self.zeros = 0;
            }
        }
        self.rates.push(next);
        self.ratios.push(ratio);
        self.hits = 0;
    }
}

pub struct Cacheus {
    capacity: usize,
    history_limit: usize,
    random: Random,
    believed: Believed,
    rate: Rate,
    now: u64,
    /// The oldest first, all four.
    s: Vec<Entry>,
    q: Vec<Entry>,
    histories: [Vec<Entry>; 2],
    s_limit: usize,
    q_limit: usize,
}

impl Cacheus {
    pub fn new(capacity: usize, history_limit: usize, seed: u64) -> Cacheus {
        let q_limit = std::cmp::max(1, (0.01 * capacity as f64 + 0.5) as usize);
        Cacheus {
            capacity,
            history_limit,
            random: Random::new(seed),
            believed: Believed([0.5; 2]),
            rate: Rate::new(capacity),
            now: 0,
            s: Vec::new(),
            q: Vec::new(),
            histories: [Vec::new(), Vec::new()],
            s_limit: capacity - q_limit,
            q_limit,
        }
    }

    fn demoted(&self) -> f64 {
        self.q.iter().filter(|entry| entry.demoted).count() as f64
    }

    fn new_remembered(&self) -> f64 {
        self.histories[0].iter().filter(|entry| entry.new).count() as f64
    }

    fn is_full(&self) -> bool {
        self.s.len() + self.q.len() == self.capacity
    }

    fn demote(&mut self) {
        let entry = self.s.remove(0);
        self.q.push(Entry { demoted: true, ..entry });
    }

    fn limit_s(&mut self) {
        while self.s.len() >= self.s_limit && !self.s.is_empty() {
            self.demote();
        }
    }

    fn evict(&mut self) -> PageId {
        let expert = self.believed.choose(&mut self.random);
        let all = || self.s.iter().chain(&self.q);
        let least = all().map(|entry| entry.frequency).min().expect("memory is full");
        let rarest = *all().filter(|entry| entry.frequency == least).max_by_key(|entry| entry.time).expect("one is");
        let oldest = self.q.first().copied();
        let victim = if expert == 0 { oldest.unwrap_or_else(|| self.s[0]) } else { rarest };
        self.s.retain(|entry| entry.page != victim.page);
        self.q.retain(|entry| entry.page != victim.page);
        if oldest != Some(rarest) {
            self.histories[expert].push(Entry { demoted: false, ..victim });
            if self.histories[expert].len() > self.history_limit {
                self.histories[expert].remove(0);
            }
        }
        victim.page
    }

    fn hit_in_q(&mut self, index: usize) {
        if self.q[index].demoted {
            let step = ((self.new_remembered() / self.demoted() + 0.5) as usize).max(1);
            self.s_limit = (self.s_limit + step).min(self.capacity - 1);
            self.q_limit = self.capacity - self.s_limit;
        }
        let entry = self.q.remove(index);
        if self.s.len() >= self.s_limit && !self.s.is_empty() {
            self.demote();
        }
        self.s.push(Entry { frequency: entry.frequency + 1, time: self.now, demoted: false, ..entry });
    }
}

impl Model for Cacheus {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        self.now += 1;
        if self.now.is_multiple_of(self.capacity as u64) {
            self.rate.next_period(self.capacity, &mut self.random);
        }
        if let Some(index) = find(&self.s, page) {
            self.rate.hits += 1;
            let entry = self.s.remove(index);
            self.s.push(Entry { frequency: entry.frequency + 1, time: self.now, ..entry });
            return Vec::new();
        }
        if let Some(index) = find(&self.q, page) {
            self.rate.hits += 1;
            self.hit_in_q(index);
            return Vec::new();
        }
        let mut victims = Vec::new();
        let fresh = Entry { page, frequency: 1, time: self.now, new: false, demoted: false };
        for expert in [0, 1] {
            let Some(index) = find(&self.histories[expert], page) else { continue };
            let entry = self.histories[expert].remove(index);
            if expert == 0 && entry.new {
                let step = ((self.demoted() / self.new_remembered().max(1.0) + 0.5) as usize).max(1);
                self.q_limit = (self.q_limit + step).min(self.capacity - 1);
                self.s_limit = self.capacity - self.q_limit;
            }
            self.believed.pay(expert, self.rate.current());
            if self.is_full() {
                victims.push(self.evict());
            }
            self.s.push(Entry { frequency: entry.frequency, ..fresh });
            self.limit_s();
            return victims;
        }
        if self.s.len() < self.s_limit && self.q.is_empty() {
            self.s.push(fresh);
        } else if !self.is_full() && self.q.len() < self.q_limit {
            self.q.push(fresh);
        } else {
            if self.is_full() {
                victims.push(self.evict());
            }
            self.q.push(Entry { new: true, ..fresh });
            self.limit_s();
        }
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        find(&self.s, page).or(find(&self.q, page)).is_some()
    }

    fn free(&mut self, page: PageId) {
        self.s.retain(|entry| entry.page != page);
        self.q.retain(|entry| entry.page != page);
    }
}
