//! The reference models: each policy in the words of its page, with plain vectors and linear searches.

use std::collections::VecDeque;

use refault_core::PageId;

use crate::harness::Model;

fn remove(queue: &mut VecDeque<PageId>, page: PageId) -> bool {
    let before = queue.len();
    queue.retain(|p| *p != page);
    before != queue.len()
}

/// Pages in order; the front goes first.
pub struct Fifo {
    pub capacity: usize,
    pub queue: VecDeque<PageId>,
    pub moves_on_hit: bool,
}

impl Model for Fifo {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if self.queue.contains(&page) {
            if self.moves_on_hit {
                remove(&mut self.queue, page);
                self.queue.push_back(page);
            }
            return Vec::new();
        }
        let victims = if self.queue.len() == self.capacity { self.queue.pop_front() } else { None };
        self.queue.push_back(page);
        victims.into_iter().collect()
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.queue.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        remove(&mut self.queue, page);
    }
}

/// A ring of frames with a hand: another formulation than the queue of the implementation. Freed frames are closed up.
pub struct ClockRing {
    pub capacity: usize,
    /// Page and accessed bit; the hand is at index 0, and new pages go to the end, just behind the hand.
    pub frames: Vec<(PageId, bool)>,
}

impl Model for ClockRing {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if let Some(frame) = self.frames.iter_mut().find(|f| f.0 == page) {
            frame.1 = true;
            return Vec::new();
        }
        let mut victims = Vec::new();
        if self.frames.len() == self.capacity {
            let first_clear = self.frames.iter().position(|f| !f.1);
            let passed = first_clear.unwrap_or(self.frames.len());
            self.frames[..passed].iter_mut().for_each(|f| f.1 = false);
            self.frames.rotate_left(passed);
            victims.push(self.frames.remove(0).0);
        }
        self.frames.push((page, false));
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.frames.iter().any(|f| f.0 == page)
    }

    fn free(&mut self, page: PageId) {
        self.frames.retain(|f| f.0 != page);
    }
}

/// 2Q, full version. Queues: the front is the oldest.
pub struct TwoQueue {
    pub capacity: usize,
    pub a1in: VecDeque<PageId>,
    pub a1out: VecDeque<PageId>,
    pub am: VecDeque<PageId>,
}

impl TwoQueue {
    pub fn new(capacity: usize) -> TwoQueue {
        TwoQueue { capacity, a1in: VecDeque::new(), a1out: VecDeque::new(), am: VecDeque::new() }
    }
}

impl Model for TwoQueue {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if self.a1in.contains(&page) {
            return Vec::new();
        }
        if remove(&mut self.am, page) {
            self.am.push_back(page);
            return Vec::new();
        }
        let remembered = remove(&mut self.a1out, page);
        let mut victims = Vec::new();
        if self.a1in.len() + self.am.len() == self.capacity {
            if self.a1in.len() > self.capacity / 4 || self.am.is_empty() {
                let victim = self.a1in.pop_front().unwrap();
                self.a1out.push_back(victim);
                if self.a1out.len() > self.capacity / 2 {
                    self.a1out.pop_front();
                }
                victims.push(victim);
            } else {
                victims.push(self.am.pop_front().unwrap());
            }
        }
        if remembered {
            self.am.push_back(page)
        } else {
            self.a1in.push_back(page)
        }
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.a1in.contains(&page) || self.am.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        remove(&mut self.a1in, page);
        remove(&mut self.am, page);
    }
}

/// ARC, in the cases of the paper's figure 4. Queues: the front is the LRU end.
pub struct Arc {
    pub c: usize,
    pub p: f64,
    pub t1: VecDeque<PageId>,
    pub t2: VecDeque<PageId>,
    pub b1: VecDeque<PageId>,
    pub b2: VecDeque<PageId>,
}

impl Arc {
    pub fn new(c: usize) -> Arc {
        let empty = VecDeque::new;
        Arc { c, p: 0.0, t1: empty(), t2: empty(), b1: empty(), b2: empty() }
    }

    fn is_full(&self) -> bool {
        self.t1.len() + self.t2.len() == self.c
    }

    fn replace(&mut self, in_b2: bool) -> PageId {
        let t1 = self.t1.len() as f64;
        if (t1 >= 1.0 && ((in_b2 && t1 == self.p) || t1 > self.p)) || self.t2.is_empty() {
            let victim = self.t1.pop_front().unwrap();
            self.b1.push_back(victim);
            victim
        } else {
            let victim = self.t2.pop_front().unwrap();
            self.b2.push_back(victim);
            victim
        }
    }
}

impl Model for Arc {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if remove(&mut self.t1, page) || remove(&mut self.t2, page) {
            self.t2.push_back(page);
            return Vec::new();
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        let mut victims = Vec::new();
        if remove(&mut self.b1, page) {
            let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
            self.p = (self.p + delta).min(self.c as f64);
            if self.is_full() {
                victims.push(self.replace(false));
            }
            self.t2.push_back(page);
            return victims;
        }
        if remove(&mut self.b2, page) {
            let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
            self.p = (self.p - delta).max(0.0);
            if self.is_full() {
                victims.push(self.replace(true));
            }
            self.t2.push_back(page);
            return victims;
        }
        if self.is_full() {
            let l1 = self.t1.len() + self.b1.len();
            if l1 == self.c {
                if self.t1.len() < self.c {
                    self.b1.pop_front();
                    victims.push(self.replace(false));
                } else {
                    victims.push(self.t1.pop_front().unwrap());
                }
            } else {
                if l1 + self.t2.len() + self.b2.len() == 2 * self.c {
                    self.b2.pop_front();
                }
                victims.push(self.replace(false));
            }
        }
        self.t1.push_back(page);
        // Frees make room without REPLACE, so the bounds must be kept here too.
        while self.t1.len() + self.b1.len() > self.c {
            self.b1.pop_front();
        }
        while self.t1.len() + self.b1.len() + self.t2.len() + self.b2.len() > 2 * self.c {
            self.b2.pop_front();
        }
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.t1.contains(&page) || self.t2.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        remove(&mut self.t1, page);
        remove(&mut self.t2, page);
    }
}

/// SIEVE with the queue as a vector, oldest first, and the hand as an index.
pub struct Sieve {
    pub capacity: usize,
    pub queue: Vec<(PageId, bool)>,
    pub hand: usize,
}

impl Model for Sieve {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if let Some(entry) = self.queue.iter_mut().find(|e| e.0 == page) {
            entry.1 = true;
            return Vec::new();
        }
        let mut victims = Vec::new();
        if self.queue.len() == self.capacity {
            while self.queue[self.hand].1 {
                self.queue[self.hand].1 = false;
                self.hand = (self.hand + 1) % self.queue.len();
            }
            // The hand now rests on the page after the victim; past the newest it returns to the oldest, even if a
            // new page comes.
            victims.push(self.queue.remove(self.hand).0);
            if self.hand == self.queue.len() {
                self.hand = 0;
            }
        }
        self.queue.push((page, false));
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.queue.iter().any(|e| e.0 == page)
    }

    fn free(&mut self, page: PageId) {
        let at = self.queue.iter().position(|e| e.0 == page).unwrap();
        self.queue.remove(at);
        if at < self.hand {
            self.hand -= 1;
        }
        if self.hand == self.queue.len() {
            self.hand = 0;
        }
    }
}

/// S3-FIFO in both variants. Queues: the front is the oldest.
pub struct S3Fifo {
    pub capacity: usize,
    pub paper: bool,
    pub small: VecDeque<PageId>,
    pub main: VecDeque<PageId>,
    pub ghosts: VecDeque<PageId>,
    pub hits: Vec<u32>,
    pub has_evicted: bool,
}

impl S3Fifo {
    pub fn new(capacity: usize, paper: bool) -> S3Fifo {
        let empty = VecDeque::new;
        let hits = vec![0; crate::harness::PAGES as usize];
        S3Fifo { capacity, paper, small: empty(), main: empty(), ghosts: empty(), hits, has_evicted: false }
    }

    fn small_share(&self) -> usize {
        (self.capacity / 10).max(1)
    }

    fn main_share(&self) -> usize {
        self.capacity - self.small_share()
    }

    fn evict_main(&mut self, victims: &mut Vec<PageId>) {
        while let Some(page) = self.main.pop_front() {
            if self.hits[page as usize] == 0 {
                victims.push(page);
                return;
            }
            self.hits[page as usize] = self.hits[page as usize].min(3) - 1;
            self.main.push_back(page);
        }
    }

    fn evict_small(&mut self, victims: &mut Vec<PageId>) {
        while let Some(page) = self.small.pop_front() {
            if self.hits[page as usize] < 2 {
                victims.push(page);
                self.ghosts.push_back(page);
                if self.ghosts.len() > self.capacity * 9 / 10 {
                    self.ghosts.pop_front();
                }
                return;
            }
            self.hits[page as usize] = 0;
            self.main.push_back(page);
            if self.paper && self.main.len() > self.main_share() {
                self.evict_main(victims);
            }
        }
    }
}

impl Model for S3Fifo {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if self.is_resident(page) {
            self.hits[page as usize] += 1;
            return Vec::new();
        }
        let remembered_before = !self.paper && remove(&mut self.ghosts, page);
        let mut victims = Vec::new();
        while self.small.len() + self.main.len() >= self.capacity {
            self.has_evicted = true;
            let from_small = if self.paper {
                self.small.len() >= self.small_share()
            } else {
                self.main.len() <= self.main_share() && !self.small.is_empty()
            };
            if from_small { self.evict_small(&mut victims) } else { self.evict_main(&mut victims) }
        }
        let remembered = remembered_before || self.paper && remove(&mut self.ghosts, page);
        let overflows = !self.paper && !self.has_evicted && self.small.len() >= self.small_share();
        self.hits[page as usize] = 0;
        if remembered || overflows {
            self.main.push_back(page)
        } else {
            self.small.push_back(page)
        }
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.small.contains(&page) || self.main.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        remove(&mut self.small, page);
        remove(&mut self.main, page);
    }
}

/// Belady's MIN: looks through the rest of the sequence for each resident page.
pub struct Opt {
    pub capacity: usize,
    pub sequence: Vec<PageId>,
    pub now: usize,
    /// Pages in memory, in order of last use.
    pub resident: Vec<PageId>,
}

impl Model for Opt {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        assert_eq!(self.sequence[self.now], page);
        self.now += 1;
        let mut victims = Vec::new();
        if !self.is_resident(page) && self.resident.len() == self.capacity {
            let rest = &self.sequence[self.now..];
            let next_use = |p: &PageId| rest.iter().position(|q| q == p).unwrap_or(usize::MAX);
            // `max_by_key` takes the last of equals: of the pages never used again the one used last.
            let victim = *self.resident.iter().max_by_key(|p| next_use(p)).unwrap();
            self.resident.retain(|p| *p != victim);
            victims.push(victim);
        }
        self.resident.retain(|p| *p != page);
        self.resident.push(page);
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.resident.contains(&page)
    }

    fn free(&mut self, page: PageId) {
        self.resident.retain(|p| *p != page);
    }
}

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
        WTinyLfu { capacity, main_limit, window, probation, protected, sketch, counted: 0, paper, doorkeeper }
    }

    /// The ten counters of a page.
    fn counters(&self, page: PageId) -> Vec<usize> {
        let hash = |seed| xxhash_rust::xxh64::xxh64(&u64::from(page).to_le_bytes(), seed) as u32;
        let (first, step) = (hash(0x1234_5678), hash(0x1234_4321));
        (0..10).map(|i: u32| first.wrapping_add(i.wrapping_mul(step)) as usize % self.sketch.len()).collect()
    }

    fn door(&self, page: PageId) -> Vec<usize> {
        let hash = |seed| xxhash_rust::xxh64::xxh64(&u64::from(page).to_le_bytes(), seed);
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
    }
}
