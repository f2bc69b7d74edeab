//! LIRS, which keeps a stack of recency, and W-TinyLFU, which keeps a sketch of frequency.

use std::collections::VecDeque;

use refault_core::PageId;

use super::remove;
use crate::harness::Model;

/// LIRS in both variants. The last page of `stack` is its top, the front of a queue is the next to go.
pub struct Lirs {
    pub capacity: usize,
    pub hir_limit: usize,
    pub paper: bool,
    pub stack: Vec<PageId>,
    pub queue: VecDeque<PageId>,
    pub lir: Vec<PageId>,
    /// Evicted pages that are still in the stack, in order of eviction.
    pub ghosts: VecDeque<PageId>,
    /// Resident pages that lost their place in a queue of one page to the page they displaced.
    pub crowded_out: VecDeque<PageId>,
}

impl Lirs {
    pub fn new(capacity: usize, hir_share: f64, paper: bool) -> Lirs {
        let hir_limit = ((capacity as f64 * hir_share) as usize).max(1);
        let (queue, ghosts, crowded_out) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Lirs { capacity, hir_limit, paper, stack: Vec::new(), queue, lir: Vec::new(), ghosts, crowded_out }
    }

    fn lir_limit(&self) -> usize {
        self.capacity - self.hir_limit
    }

    fn resident(&self) -> usize {
        self.lir.len() + self.queue.len() + self.crowded_out.len()
    }

    fn move_to_top(&mut self, page: PageId) {
        self.stack.retain(|p| *p != page);
        self.stack.push(page);
    }

    fn prune(&mut self) {
        while self.stack.len() > 1 && !self.lir.contains(&self.stack[0]) {
            let page = self.stack.remove(0);
            remove(&mut self.ghosts, page);
            if remove(&mut self.crowded_out, page) {
                self.queue.push_front(page);
            }
        }
    }

    fn demote_bottom(&mut self) -> bool {
        self.prune();
        let Some(page) = self.stack.first().copied().filter(|page| self.lir.contains(page)) else { return false };
        self.stack.remove(0);
        self.lir.retain(|p| *p != page);
        self.queue.push_back(page);
        self.prune();
        true
    }

    fn evict_hir(&mut self, victims: &mut Vec<PageId>) {
        let victim = self.queue.pop_front().unwrap();
        if self.stack.contains(&victim) {
            self.ghosts.push_back(victim);
        }
        victims.push(victim);
    }

    fn make_room_for_lir(&mut self, victims: &mut Vec<PageId>) {
        while self.lir.len() >= self.lir_limit() && self.demote_bottom() {
            while self.queue.len() > self.hir_limit {
                self.evict_hir(victims);
            }
        }
    }

    fn miss(&mut self, page: PageId, victims: &mut Vec<PageId>) {
        if remove(&mut self.ghosts, page) {
            self.move_to_top(page);
            self.make_room_for_lir(victims);
        }
        while self.resident() >= self.capacity {
            if !self.queue.is_empty() {
                self.evict_hir(victims);
            } else if let Some(victim) = self.crowded_out.pop_front() {
                self.ghosts.push_back(victim);
                victims.push(victim);
            } else {
                assert!(self.demote_bottom());
            }
        }
        self.move_to_top(page);
        if self.lir.len() < self.lir_limit() { self.lir.push(page) } else { self.queue.push_back(page) }
    }
}

impl Model for Lirs {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        let mut victims = Vec::new();
        if self.lir.contains(&page) {
            self.move_to_top(page);
            self.prune();
        } else if self.queue.contains(&page) && !self.stack.contains(&page) {
            remove(&mut self.queue, page);
            self.queue.push_back(page);
            if !self.paper && self.lir.len() >= self.lir_limit() {
                if self.queue.len() == 1 && self.hir_limit == 1 {
                    self.crowded_out.push_back(self.queue.pop_front().unwrap());
                }
                self.make_room_for_lir(&mut victims);
            }
            self.move_to_top(page);
        } else if self.is_resident(page) {
            self.move_to_top(page);
            remove(&mut self.queue, page);
            remove(&mut self.crowded_out, page);
            self.make_room_for_lir(&mut victims);
            self.lir.push(page);
        } else {
            self.miss(page, &mut victims);
        }
        while self.stack.len() > 2 * self.capacity {
            let Some(ghost) = self.ghosts.pop_front() else { break };
            self.stack.retain(|p| *p != ghost);
        }
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.lir.contains(&page) || self.queue.contains(&page) || self.crowded_out.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        self.stack.retain(|p| *p != page);
        self.lir.retain(|p| *p != page);
        remove(&mut self.queue, page);
        remove(&mut self.crowded_out, page);
        self.prune();
    }
}

/// W-TinyLFU with its sketch as a plain array. Queues: the front is the LRU end.
pub struct WTinyLfu {
    pub capacity: usize,
    pub main_limit: usize,
    pub window: VecDeque<PageId>,
    pub probation: VecDeque<PageId>,
    pub protected: VecDeque<PageId>,
    pub sketch: Vec<u32>,
    pub counted: usize,
    pub paper: bool,
    pub doorkeeper: Vec<bool>,
    /// How often each page was freed: what comes back then is another one.
    pub freed: Vec<u64>,
}

impl WTinyLfu {
    pub fn new(capacity: usize, paper: bool) -> WTinyLfu {
        let main_limit = capacity - (capacity / 100).max(1);
        let per_entry = 1000f64.ln() / 2f64.ln().powi(2);
        let wanted = (per_entry * main_limit as f64).ceil() as usize;
        let counters = if wanted < 10 { 20 } else { wanted };
        let empty = VecDeque::new;
        let (window, probation, protected) = (empty(), empty(), empty());
        let doorkeeper = vec![false; (10 * capacity * 10).div_ceil(64) * 64];
        let sketch = vec![0; counters];
        let freed = vec![0; 64];
        WTinyLfu { capacity, main_limit, window, probation, protected, sketch, counted: 0, paper, doorkeeper, freed }
    }

    fn key(&self, page: PageId) -> [u8; 8] {
        (u64::from(page) + (self.freed[page as usize] << 48)).to_le_bytes()
    }

    /// The ten counters of a page.
    fn counters(&self, page: PageId) -> Vec<usize> {
        let hash = |seed| xxhash_rust::xxh64::xxh64(&self.key(page), seed) as u32;
        let (first, step) = (hash(0x1234_5678), hash(0x1234_4321));
        (0..10).map(|i: u32| first.wrapping_add(i.wrapping_mul(step)) as usize % self.sketch.len()).collect()
    }

    fn door(&self, page: PageId) -> Vec<usize> {
        let hash = |seed| xxhash_rust::xxh64::xxh64(&self.key(page), seed);
        let (first, step) = (hash(0x1234_5678), hash(0x1234_4321) | 1);
        (0..7)
            .map(|i: u64| (first.wrapping_add(i.wrapping_mul(step)) % self.doorkeeper.len() as u64) as usize)
            .collect()
    }

    fn was_let_in(&self, page: PageId) -> bool {
        self.door(page).into_iter().all(|at| self.doorkeeper[at])
    }

    fn add(&mut self, page: PageId) {
        for at in self.counters(page) {
            self.sketch[at] += 1;
        }
    }

    /// The paper's count of one access.
    fn count_behind_door(&mut self, page: PageId) {
        if self.was_let_in(page) {
            let least = self.counters(page).into_iter().map(|at| self.sketch[at]).min().unwrap();
            if least < 10 {
                let mut smallest: Vec<usize> = self.counters(page);
                smallest.retain(|at| self.sketch[*at] == least);
                smallest.into_iter().for_each(|at| self.sketch[at] = least + 1);
            }
        } else {
            self.door(page).into_iter().for_each(|at| self.doorkeeper[at] = true);
        }
        self.counted += 1;
        if self.counted >= 10 * self.capacity {
            self.counted /= 2;
            self.sketch.iter_mut().for_each(|counter| *counter /= 2);
            self.doorkeeper.fill(false);
        }
    }

    fn estimate(&self, page: PageId) -> u32 {
        let least = self.counters(page).into_iter().map(|at| self.sketch[at]).min().unwrap();
        least + u32::from(self.paper && self.was_let_in(page))
    }

    fn hit_in_main(&mut self, page: PageId, victims: &mut Vec<PageId>) {
        let (probation, protected) = (self.main_limit / 5, self.main_limit * 4 / 5);
        if protected == 0 {
            remove(&mut self.probation, page);
            self.probation.push_back(page);
        } else {
            remove(&mut self.probation, page);
            remove(&mut self.protected, page);
            self.protected.push_back(page);
            if self.protected.len() > protected {
                self.probation.push_back(self.protected.pop_front().unwrap());
                while self.probation.len() > probation {
                    victims.push(self.probation.pop_front().unwrap());
                }
            }
        }
        if self.paper {
            return self.count_behind_door(page);
        }
        self.add(page);
        self.counted += 1;
        if self.counted >= 32 * self.main_limit {
            self.counted = 0;
            self.sketch.iter_mut().for_each(|counter| *counter /= 2);
        }
    }

    fn enter_main(&mut self, page: PageId) {
        let protected_has_room = self.protected.len() < self.main_limit * 4 / 5;
        let to = if self.probation.len() >= self.main_limit / 5 && protected_has_room {
            &mut self.protected
        } else {
            &mut self.probation
        };
        to.push_back(page);
    }

    fn evict(&mut self, victims: &mut Vec<PageId>) {
        while let Some(candidate) = self.window.pop_front() {
            let has_room = self.probation.len() + self.protected.len() < self.main_limit;
            let rival = self.probation.front().or(self.protected.front()).copied();
            let wins = rival.is_some_and(|rival| self.estimate(candidate) > self.estimate(rival));
            if has_room {
                self.enter_main(candidate);
            } else if wins {
                victims.extend(self.probation.pop_front().or_else(|| self.protected.pop_front()));
                self.enter_main(candidate);
            } else {
                victims.push(candidate);
            }
            if !self.paper {
                self.add(candidate);
            }
            if !has_room {
                return;
            }
        }
        victims.extend(self.probation.pop_front().or_else(|| self.protected.pop_front()));
    }
}

impl Model for WTinyLfu {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        let mut victims = Vec::new();
        if remove(&mut self.window, page) {
            self.window.push_back(page);
            if self.paper {
                self.count_behind_door(page);
            }
        } else if self.is_resident(page) {
            self.hit_in_main(page, &mut victims);
        } else {
            while self.window.len() + self.probation.len() + self.protected.len() >= self.capacity {
                self.evict(&mut victims);
            }
            self.window.push_back(page);
            if !self.paper {
                self.add(page);
                return victims;
            }
            self.count_behind_door(page);
            while self.window.len() > (self.capacity / 100).max(1)
                && self.probation.len() + self.protected.len() < self.main_limit
            {
                let oldest = self.window.pop_front().unwrap();
                self.enter_main(oldest);
            }
        }
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.window.contains(&page) || self.probation.contains(&page) || self.protected.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        remove(&mut self.window, page);
        remove(&mut self.probation, page);
        remove(&mut self.protected, page);
        self.freed[page as usize] += 1;
    }
}
