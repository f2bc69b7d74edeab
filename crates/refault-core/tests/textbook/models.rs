//! The reference models: each policy in the words of its page, with plain vectors and linear searches.

use std::collections::VecDeque;

use refault_core::PageId;

use crate::harness::Model;

#[path = "models/clock_pro.rs"]
mod clock_pro;
#[path = "models/counted.rs"]
mod counted;
#[path = "models/learning.rs"]
mod learning;
#[path = "models/lrfu.rs"]
mod lrfu;
#[path = "models/mq.rs"]
mod mq;
#[path = "models/sampled.rs"]
mod sampled;
#[path = "models/stack_and_sketch.rs"]
mod stack_and_sketch;

pub use clock_pro::ClockPro;
pub use counted::{Lfu, LruK, Slru};
pub use learning::{Cacheus, LeCar};
pub use lrfu::Lrfu;
pub use mq::{Gdsf, Mq};
pub use sampled::{Hyperbolic, Lhd};
pub use stack_and_sketch::{Lirs, WTinyLfu};

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
