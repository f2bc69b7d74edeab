//! MQ and GDSF, each from its paper's formulas over one vector.

use refault_core::PageId;

use crate::harness::Model;

struct Block {
    page: PageId,
    accesses: u64,
    queue: u32,
    /// When it came to its queue; the least is the queue's oldest.
    arrived: u64,
    expires: u64,
}

/// MQ: blocks carry the number of their queue.
pub struct Mq {
    pub capacity: usize,
    pub queues: u32,
    pub lifetime: u64,
    pub history_limit: usize,
    now: u64,
    arrivals: u64,
    blocks: Vec<Block>,
    /// Evicted pages with their accesses, the oldest first.
    history: Vec<(PageId, u64)>,
}

impl Mq {
    pub fn new(capacity: usize, queues: u32, lifetime: u64, history_limit: usize) -> Mq {
        let (blocks, history) = (Vec::new(), Vec::new());
        Mq { capacity, queues, lifetime, history_limit, now: 0, arrivals: 0, blocks, history }
    }

    /// Number of doublings that fit into the accesses.
    fn queue_of(&self, accesses: u64) -> u32 {
        (0..self.queues).rev().find(|queue| accesses >= 1 << queue).expect("at least one access")
    }

    fn oldest_of(&self, queue: u32) -> Option<usize> {
        let blocks = self.blocks.iter().enumerate();
        blocks.filter(|(_, b)| b.queue == queue).min_by_key(|(_, b)| b.arrived).map(|(index, _)| index)
    }
}

impl Model for Mq {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        let mut victims = Vec::new();
        let mut accesses = 0;
        if let Some(index) = self.blocks.iter().position(|b| b.page == page) {
            accesses = self.blocks.remove(index).accesses;
        } else {
            if let Some(index) = self.history.iter().position(|(evicted, _)| *evicted == page) {
                accesses = self.history.remove(index).1;
            }
            if self.blocks.len() == self.capacity {
                let victim = (0..self.queues).find_map(|queue| self.oldest_of(queue)).expect("memory is full");
                let victim = self.blocks.remove(victim);
                victims.push(victim.page);
                self.history.push((victim.page, victim.accesses));
                if self.history.len() > self.history_limit {
                    self.history.remove(0);
                }
            }
        }
        accesses += 1;
        self.arrivals += 1;
        let (queue, expires) = (self.queue_of(accesses), self.now + self.lifetime);
        self.blocks.push(Block { page, accesses, queue, arrived: self.arrivals, expires });
        self.now += 1;
        for queue in 1..self.queues {
            if let Some(index) = self.oldest_of(queue)
                && self.blocks[index].expires < self.now
            {
                self.arrivals += 1;
                let (arrived, expires) = (self.arrivals, self.now + self.lifetime);
                let block = &mut self.blocks[index];
                (block.queue, block.arrived, block.expires) = (queue - 1, arrived, expires);
            }
        }
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.blocks.iter().any(|b| b.page == page)
    }

    fn free(&mut self, page: PageId) {
        self.blocks.retain(|b| b.page != page);
    }
}

/// Greedy-Dual-Size-Frequency: priority = clock + frequency × cost / size.
pub struct Gdsf {
    pub capacity: usize,
    clock: f64,
    now: u64,
    /// Page, frequency, priority, last access.
    files: Vec<(PageId, f64, f64, u64)>,
}

impl Gdsf {
    const COST: f64 = 1.0;
    const SIZE: f64 = 1.0;

    pub fn new(capacity: usize) -> Gdsf {
        Gdsf { capacity, clock: 0.0, now: 0, files: Vec::new() }
    }
}

impl Model for Gdsf {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        self.now += 1;
        let mut victims = Vec::new();
        let known = self.files.iter().position(|file| file.0 == page).map(|index| self.files.remove(index));
        if known.is_none() && self.files.len() == self.capacity {
            self.files.sort_by(|a, b| a.2.total_cmp(&b.2).then(a.3.cmp(&b.3)));
            let victim = self.files.remove(0);
            self.clock = victim.2;
            victims.push(victim.0);
        }
        let frequency = known.map_or(0.0, |file| file.1) + 1.0;
        self.files.push((page, frequency, self.clock + frequency * Self::COST / Self::SIZE, self.now));
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.files.iter().any(|file| file.0 == page)
    }

    fn free(&mut self, page: PageId) {
        self.files.retain(|file| file.0 != page);
    }
}
