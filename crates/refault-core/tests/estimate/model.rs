//! Caches of objects with sizes, as slowly and plainly as can be: what estimates must equal while nothing is left out.

use std::collections::{HashMap, VecDeque};

/// One policy at one size. The front of a queue is the oldest.
pub struct Model {
    policy: &'static str,
    capacity: u64,
    sizes: HashMap<u64, u64>,
    /// The only queue, but for S3-FIFO its main one.
    queue: VecDeque<u64>,
    small: VecDeque<u64>,
    ghosts: VecDeque<u64>,
    hits: HashMap<u64, u8>,
    has_evicted: bool,
    pub misses: u64,
    pub missed_bytes: u64,
}

impl Model {
    pub fn new(policy: &'static str, capacity: u64) -> Model {
        Model {
            policy,
            capacity,
            sizes: HashMap::new(),
            queue: VecDeque::new(),
            small: VecDeque::new(),
            ghosts: VecDeque::new(),
            hits: HashMap::new(),
            has_evicted: false,
            misses: 0,
            missed_bytes: 0,
        }
    }

    fn bytes(&self, queue: &VecDeque<u64>) -> u64 {
        queue.iter().map(|object| self.sizes[object]).sum()
    }

    fn small_share(&self) -> u64 {
        ((self.capacity as f64 * 0.1) as u64).max(1)
    }

    pub fn access(&mut self, object: u64, size: u64) {
        self.sizes.insert(object, size);
        if self.queue.contains(&object) || self.small.contains(&object) {
            let hits = self.hits.entry(object).or_default();
            *hits = (*hits + 1).min(3);
            if self.policy == "lru" {
                self.queue.retain(|other| *other != object);
                self.queue.push_back(object);
            }
            return;
        }
        self.misses += 1;
        self.missed_bytes += size;
        if size > self.capacity {
            return;
        }
        let returns = self.ghosts.contains(&object);
        self.ghosts.retain(|other| *other != object);
        while self.bytes(&self.queue) + self.bytes(&self.small) + size > self.capacity {
            self.has_evicted = true;
            if self.policy == "s3fifo" { self.evict_s3fifo() } else { self.evict() }
        }
        self.hits.insert(object, 0);
        let overflows = !self.has_evicted && self.bytes(&self.small) >= self.small_share();
        if self.policy == "s3fifo" && !returns && !overflows {
            self.small.push_back(object);
        } else {
            self.queue.push_back(object);
        }
    }

    fn evict(&mut self) {
        let oldest = self.queue.pop_front().expect("what fits has been evicted for");
        if self.policy == "clock" && self.hits[&oldest] > 0 {
            self.hits.insert(oldest, 0);
            self.queue.push_back(oldest);
        }
    }

    fn evict_s3fifo(&mut self) {
        let from_small = self.bytes(&self.queue) <= self.capacity - self.small_share();
        let from_small = if from_small { !self.small.is_empty() } else { self.queue.is_empty() };
        if !from_small {
            let oldest = self.queue.pop_front().expect("one of the queues has objects");
            if self.hits[&oldest] > 0 {
                *self.hits.get_mut(&oldest).expect("it was just read") -= 1;
                self.queue.push_back(oldest);
                // A second chance is not an eviction: the same queue goes on.
                self.evict_main();
            }
            return;
        }
        while let Some(oldest) = self.small.pop_front() {
            if self.hits.insert(oldest, 0) >= Some(2) {
                self.queue.push_back(oldest);
                continue;
            }
            self.ghosts.push_back(oldest);
            while self.bytes(&self.ghosts) > (self.capacity as f64 * 0.9) as u64 {
                self.ghosts.pop_front();
            }
            return;
        }
        self.evict_main();
    }

    fn evict_main(&mut self) {
        while let Some(oldest) = self.queue.pop_front() {
            let hits = self.hits[&oldest];
            if hits == 0 {
                return;
            }
            self.hits.insert(oldest, hits - 1);
            self.queue.push_back(oldest);
        }
    }
}
