//! MQ, the multi-queue: LRU queues by the logarithm of a page's accesses, which it climbs down when it is not used.
//!
//! A page with f accesses stands at the head of queue min(log2 f, m − 1). The oldest page of the lowest queue that has
//! one is evicted; its accesses are remembered in a FIFO history. At each access the oldest page of each queue but the
//! lowest moves one queue down, if it was not accessed for a lifetime.
//!
//! The paper sets the lifetime to the trace's peak temporal distance, which must be known; here it is a parameter, with
//! the reference simulator's default. A page that comes back is looked up in the history before room is made for it, as
//! there.
//!
//! Cost: 24 bytes per page id, O(m) for each access.
//! Source: Zhou, Philbin and Li, *The Multi-Queue Replacement Algorithm for Second Level Buffer Caches*, USENIX ATC
//! 2001, section 5.

use super::evict_oldest;
use super::slot::Slot;
use crate::counters::Counters;
use crate::lists::linked::List;
use crate::memory::Memory;
use crate::page::PageId;
use crate::parameter::{Parameter, ParameterError, Parameters, parse_whole};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

const MAX_QUEUES: u64 = 32;
const MAX_LIFETIME: u64 = 1 << 40;
const MAX_HISTORY: f64 = 100.0;

/// The queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MqParams {
    /// m, 1 to 32.
    pub queues: u32,
    /// Accesses without one of the page until it moves a queue down, 1 to 2^40.
    pub lifetime: u64,
    /// Evicted pages remembered, in memory sizes, 0 to 100.
    pub history: f64,
}

impl Default for MqParams {
    fn default() -> MqParams {
        MqParams { queues: 8, lifetime: 10_000, history: 4.0 }
    }
}

impl Parameters for MqParams {
    const LIST: &'static [Parameter] = &[
        Parameter { name: "queues", default: "8", values: "1 to 32", meaning: "number of LRU queues" },
        Parameter {
            name: "lifetime",
            default: "10000",
            values: "1 to 1099511627776",
            meaning: "accesses after which a page that was not accessed moves one queue down",
        },
        Parameter {
            name: "history",
            default: "4",
            values: "0 to 100",
            meaning: "evicted pages whose accesses are remembered, in memory sizes",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let wrong = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "queues" => self.queues = parse_whole(value, 1, MAX_QUEUES).ok_or_else(wrong)? as u32,
            "lifetime" => self.lifetime = parse_whole(value, 1, MAX_LIFETIME).ok_or_else(wrong)?,
            "history" => {
                let history = value.parse().ok().filter(|history| (0.0..=MAX_HISTORY).contains(history));
                self.history = history.ok_or_else(wrong)?;
            }
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Queue(u8),
    History,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Mq {
    params: MqParams,
    slots: Vec<Slot<Place>>,
    /// Accesses of a page in memory or in the history; 0 for others.
    accesses: Vec<u32>,
    /// When a page in memory moves down.
    expiry: Vec<u64>,
    queues: Vec<List>,
    history: List,
    history_limit: usize,
    now: u64,
    counters: Counters,
}

impl Default for Mq {
    fn default() -> Mq {
        Mq::new(MqParams::default())
    }
}

impl Mq {
    /// Empty queues.
    pub fn new(params: MqParams) -> Mq {
        Mq {
            params,
            slots: Vec::new(),
            accesses: Vec::new(),
            expiry: Vec::new(),
            queues: vec![List::default(); params.queues as usize],
            history: List::default(),
            history_limit: 0,
            now: 0,
            counters: Counters::default(),
        }
    }

    /// An access to a page that is on no list.
    fn enqueue(&mut self, page: PageId) {
        let accesses = &mut self.accesses[page as usize];
        *accesses = accesses.saturating_add(1);
        let queue = accesses.ilog2().min(self.params.queues - 1);
        self.put(page, queue as u8);
        self.now += 1;
        for queue in 1..self.params.queues as u8 {
            let oldest = self.queues[queue as usize].tail();
            if let Some(page) = oldest.filter(|page| self.expiry[*page as usize] < self.now) {
                self.queues[queue as usize].remove(&mut self.slots, page);
                self.put(page, queue - 1);
            }
        }
    }

    /// Puts a page at the head of a queue, for a lifetime.
    fn put(&mut self, page: PageId, queue: u8) {
        self.queues[queue as usize].push_head(&mut self.slots, page);
        self.slots[page as usize].state = Place::Queue(queue);
        self.expiry[page as usize] = self.now + self.params.lifetime;
    }

    /// A page that comes in leaves the history; its accesses stay known.
    fn leave_history(&mut self, page: PageId) {
        if self.slots[page as usize].state == Place::History {
            self.history.remove(&mut self.slots, page);
            self.slots[page as usize].state = Place::Nowhere;
        }
    }

    fn evict_one<M: Memory>(&mut self, memory: &mut M) -> bool {
        let (slots, counters) = (&mut self.slots, &mut self.counters);
        let victim = self.queues.iter_mut().find_map(|queue| evict_oldest(queue, slots, memory, counters));
        if let Some(page) = victim {
            self.history.push_head(&mut self.slots, page);
            self.slots[page as usize].state = Place::History;
            self.trim_history();
        }
        victim.is_some()
    }

    fn trim_history(&mut self) {
        while self.history.len() > self.history_limit {
            let Some(page) = self.history.pop_tail(&mut self.slots) else { break };
            self.slots[page as usize].state = Place::Nowhere;
            self.accesses[page as usize] = 0;
        }
    }
}

impl Policy for Mq {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.leave_history(page);
        self.enqueue(page);
    }

    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        if let Place::Queue(queue) = self.slots[page as usize].state {
            self.queues[queue as usize].remove(&mut self.slots, page);
            self.enqueue(page);
        }
    }

    fn freed(&mut self, page: PageId) {
        match self.slots[page as usize].state {
            Place::Nowhere => {}
            Place::Queue(queue) => self.queues[queue as usize].remove(&mut self.slots, page),
            Place::History => self.history.remove(&mut self.slots, page),
        }
        self.slots[page as usize].state = Place::Nowhere;
        self.accesses[page as usize] = 0;
    }

    fn forgotten(&mut self, page: PageId) {
        self.freed(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        if let Some(page) = request.incoming {
            self.leave_history(page);
        }
        let mut freed = 0;
        while freed < request.goal && self.evict_one(memory) {
            freed += 1;
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        let pages = pages.max(self.slots.len());
        self.slots.resize(pages, Slot::default());
        self.accesses.resize(pages, 0);
        self.expiry.resize(pages, 0);
    }

    fn set_capacity(&mut self, pages: usize) {
        self.history_limit = (pages as f64 * self.params.history) as usize;
        self.trim_history();
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<Place>>()
            + self.accesses.capacity() * size_of::<u32>()
            + self.expiry.capacity() * size_of::<u64>()
    }
}
