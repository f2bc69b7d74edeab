//! SLRU, LFU with and without aging, and LRU-K in plain vectors.

use std::collections::{HashMap, VecDeque};

use refault_core::PageId;

use super::remove;
use crate::harness::Model;

/// Segmented LRU. Queues: the front is the oldest.
pub struct Slru {
    pub capacity: usize,
    pub protected_limit: usize,
    pub probationary: VecDeque<PageId>,
    pub protected: VecDeque<PageId>,
}

impl Model for Slru {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if remove(&mut self.protected, page) {
            self.protected.push_back(page);
            return Vec::new();
        }
        if remove(&mut self.probationary, page) {
            self.protected.push_back(page);
            if self.protected.len() > self.protected_limit {
                self.probationary.extend(self.protected.pop_front());
            }
            return Vec::new();
        }
        let mut victims = Vec::new();
        if self.probationary.len() + self.protected.len() == self.capacity {
            victims.extend(self.probationary.pop_front().or_else(|| self.protected.pop_front()));
        }
        self.probationary.push_back(page);
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.probationary.contains(&page) || self.protected.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        remove(&mut self.probationary, page);
        remove(&mut self.protected, page);
    }
}

/// LFU: of each page its accesses, its worth and its last access.
pub struct Lfu {
    pub capacity: usize,
    pub aging: bool,
    pub age: u64,
    pub now: u64,
    pub pages: HashMap<PageId, (u64, u64, u64)>,
}

impl Model for Lfu {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        self.now += 1;
        let mut victims = Vec::new();
        if !self.pages.contains_key(&page) && self.pages.len() == self.capacity {
            let (victim, worth) = self
                .pages
                .iter()
                .map(|(page, (_, worth, last))| ((*worth, *last), *page))
                .min()
                .map(|((worth, _), page)| (page, worth))
                .expect("memory is full");
            if self.aging {
                self.age = worth;
            }
            self.pages.remove(&victim);
            victims.push(victim);
        }
        let count = self.pages.get(&page).map_or(0, |page| page.0) + 1;
        self.pages.insert(page, (count, count + self.age, self.now));
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.pages.contains_key(&page)
    }

    fn free(&mut self, page: PageId) {
        self.pages.remove(&page);
    }
}

/// LRU-K: every access of every page, and the pages in memory.
pub struct LruK {
    pub capacity: usize,
    pub k: usize,
    pub now: u64,
    pub accesses: HashMap<PageId, Vec<u64>>,
    pub resident: Vec<PageId>,
}

impl Model for LruK {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        self.now += 1;
        let mut victims = Vec::new();
        if !self.resident.contains(&page) {
            if self.resident.len() == self.capacity {
                let worth = |page: &PageId| {
                    let times = &self.accesses[page];
                    let kth = times.len().checked_sub(self.k).map(|index| times[index]);
                    // None, the time of the K-th last access being unknown, is the least.
                    (kth, times.last().copied())
                };
                let victim = self.resident.iter().copied().min_by_key(worth).expect("memory is full");
                self.resident.retain(|page| *page != victim);
                victims.push(victim);
            }
            self.resident.push(page);
        }
        self.accesses.entry(page).or_default().push(self.now);
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.resident.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        self.resident.retain(|other| *other != page);
        self.accesses.remove(&page);
    }
}
