//! S3-FIFO: a small FIFO filters new pages, a main FIFO keeps what proved useful, ghosts remember what was dropped.
//!
//! New pages enter the small queue, or the main one if they are still remembered as ghosts. A page at the small
//! queue's tail that had enough hits moves to the main queue with its count cleared, others are evicted and
//! remembered. The main queue is a clock with a counter up to 3. Hits only count.
//!
//! Two variants ([`S3FifoVariant`]), which differ in when each queue gives up a page and where pages go until memory
//! is full for the first time.
//!
//! Cost: 12 bytes per page id.
//! Source: Yang et al., *FIFO Queues are All You Need for Cache Eviction*, SOSP 2023, section 4.1 and algorithm 1.

use super::evict;
use super::slot::Slot;
use crate::counters::Counters;
use crate::lists::linked::List;
use crate::memory::Memory;
use crate::page::{NO_PAGE, PageId};
use crate::parameter::{Parameter, ParameterError, Parameters, parse_share};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// The counter's largest value.
const MAX_HITS: u8 = 3;

/// Which published form of the algorithm runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum S3FifoVariant {
    /// The reference simulator's since December 2024. Until the first eviction a full small queue overflows into the
    /// main queue; pages are evicted from the small queue unless it is empty or the main queue exceeds its share.
    #[default]
    LibCacheSim,
    /// Algorithm 1 of the paper. All pages without a ghost enter the small queue; pages are evicted from it while it
    /// has at least its share, else from the main queue. A promotion that overfills the main queue also evicts a page
    /// from it. A returning page is looked up among the ghosts only after room was made.
    Paper,
}

/// Variant, sizes and threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct S3FifoParams {
    /// Which published form.
    pub variant: S3FifoVariant,
    /// Share of memory of the small queue, 0 to 1; at least one page.
    pub small: f64,
    /// Ghosts remembered, as a share of memory in pages, 0 to 1.
    pub ghosts: f64,
    /// Hits in the small queue that move a page to the main queue, 1 to 3.
    pub promote_hits: u8,
}

impl Default for S3FifoParams {
    fn default() -> S3FifoParams {
        S3FifoParams { variant: S3FifoVariant::LibCacheSim, small: 0.1, ghosts: 0.9, promote_hits: 2 }
    }
}

impl Parameters for S3FifoParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "variant",
            default: "libcachesim",
            values: "libcachesim or paper",
            meaning: "libcachesim: a small queue that is full before the first eviction overflows into the main queue, \
                      and pages leave the small queue first; paper: algorithm 1 of the paper",
        },
        Parameter {
            name: "small",
            default: "10%",
            values: "a share, 0% to 100% or 0 to 1",
            meaning: "share of memory of the small queue",
        },
        Parameter {
            name: "ghosts",
            default: "90%",
            values: "a share, 0% to 100% or 0 to 1",
            meaning: "evicted pages remembered, as a share of memory in pages",
        },
        Parameter {
            name: "promote_hits",
            default: "2",
            values: "1, 2 or 3",
            meaning: "hits in the small queue that move a page to the main queue",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let invalid = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "variant" => {
                self.variant = match value {
                    "libcachesim" => S3FifoVariant::LibCacheSim,
                    "paper" => S3FifoVariant::Paper,
                    _ => return Err(invalid()),
                }
            }
            "small" => self.small = parse_share(value).ok_or_else(invalid)?,
            "ghosts" => self.ghosts = parse_share(value).ok_or_else(invalid)?,
            "promote_hits" => {
                let hits = value.parse().ok().filter(|hits| (1..=MAX_HITS).contains(hits));
                self.promote_hits = hits.ok_or_else(invalid)?;
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
    Small,
    Main,
    Ghost,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    place: Place,
    hits: u8,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    params: S3FifoParams,
    slots: Vec<Slot<State>>,
    small: List,
    main: List,
    ghosts: List,
    small_share: usize,
    main_share: usize,
    ghost_limit: usize,
    /// Room was made at least once.
    has_evicted: bool,
    /// A page taken off the ghosts because it is coming in.
    returning: PageId,
    counters: Counters,
}

impl Default for S3Fifo {
    fn default() -> S3Fifo {
        S3Fifo::new(S3FifoParams::default())
    }
}

impl S3Fifo {
    /// Empty queues.
    pub fn new(params: S3FifoParams) -> S3Fifo {
        S3Fifo {
            params,
            slots: Vec::new(),
            small: List::default(),
            main: List::default(),
            ghosts: List::default(),
            small_share: 1,
            main_share: 0,
            ghost_limit: 0,
            has_evicted: false,
            returning: NO_PAGE,
            counters: Counters::default(),
        }
    }

    /// A page is coming in: if it is a ghost, it stops being one and is to enter the main queue.
    fn expect(&mut self, page: PageId) {
        if self.returning == page {
            return;
        }
        self.returning = NO_PAGE;
        if self.slots[page as usize].state.place == Place::Ghost {
            self.ghosts.remove(&mut self.slots, page);
            self.slots[page as usize].state.place = Place::Nowhere;
            self.returning = page;
        }
    }

    /// Frees pages from one queue or the other; returns how many (more than one only in the paper's variant).
    fn evict_some<M: Memory>(&mut self, memory: &mut M) -> u32 {
        let small_first = match self.params.variant {
            S3FifoVariant::LibCacheSim => self.main.len() <= self.main_share,
            S3FifoVariant::Paper => self.small.len() >= self.small_share,
        };
        if small_first {
            let freed = self.evict_small(memory);
            if freed > 0 { freed } else { self.evict_main(memory) }
        } else {
            let freed = self.evict_main(memory);
            if freed > 0 { freed } else { self.evict_small(memory) }
        }
    }

    /// Promotes pages at the small queue's tail until one can be evicted.
    fn evict_small<M: Memory>(&mut self, memory: &mut M) -> u32 {
        let mut freed = 0;
        for _ in 0..self.small.len() {
            let Some(page) = self.small.pop_tail(&mut self.slots) else { break };
            if self.slots[page as usize].state.hits >= self.params.promote_hits {
                self.slots[page as usize].state = State { place: Place::Main, hits: 0 };
                self.main.push_head(&mut self.slots, page);
                if self.params.variant == S3FifoVariant::Paper && self.main.len() > self.main_share {
                    freed += self.evict_main(memory);
                }
            } else if evict(page, memory, &mut self.counters) {
                self.slots[page as usize].state = State { place: Place::Ghost, hits: 0 };
                self.ghosts.push_head(&mut self.slots, page);
                self.trim_ghosts();
                return freed + 1;
            } else {
                self.small.push_head(&mut self.slots, page);
            }
        }
        freed
    }

    fn evict_main<M: Memory>(&mut self, memory: &mut M) -> u32 {
        // A counter takes at most MAX_HITS rounds to run down.
        for _ in 0..(usize::from(MAX_HITS) + 1) * self.main.len() {
            let Some(page) = self.main.pop_tail(&mut self.slots) else { break };
            let hits = self.slots[page as usize].state.hits;
            if hits == 0 && evict(page, memory, &mut self.counters) {
                self.slots[page as usize].state.place = Place::Nowhere;
                return 1;
            }
            self.slots[page as usize].state.hits = hits.saturating_sub(1);
            self.main.push_head(&mut self.slots, page);
        }
        0
    }

    fn trim_ghosts(&mut self) {
        while self.ghosts.len() > self.ghost_limit {
            if let Some(ghost) = self.ghosts.pop_tail(&mut self.slots) {
                self.slots[ghost as usize].state.place = Place::Nowhere;
            }
        }
    }
}

impl Policy for S3Fifo {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.expect(page);
        let overflows = self.params.variant == S3FifoVariant::LibCacheSim
            && !self.has_evicted
            && self.small.len() >= self.small_share;
        let (list, place) = if self.returning == page || overflows {
            (&mut self.main, Place::Main)
        } else {
            (&mut self.small, Place::Small)
        };
        list.push_head(&mut self.slots, page);
        self.slots[page as usize].state = State { place, hits: 0 };
        self.returning = NO_PAGE;
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        let hits = &mut self.slots[page as usize].state.hits;
        *hits = (*hits + 1).min(MAX_HITS);
    }

    fn freed(&mut self, page: PageId) {
        let list = match self.slots[page as usize].state.place {
            Place::Nowhere => return,
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
            Place::Ghost => &mut self.ghosts,
        };
        list.remove(&mut self.slots, page);
        self.slots[page as usize].state = State::default();
    }

    fn forgotten(&mut self, page: PageId) {
        if self.returning == page {
            // Room was made for it, and it did not come.
            self.returning = NO_PAGE;
        }
        self.freed(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        self.has_evicted = true;
        if let (Some(page), S3FifoVariant::LibCacheSim) = (request.incoming, self.params.variant) {
            self.expect(page);
        }
        let mut freed = 0;
        while freed < request.goal {
            let some = self.evict_some(memory);
            if some == 0 {
                break;
            }
            freed += some;
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.slots.resize(pages.max(self.slots.len()), Slot::default());
    }

    fn set_capacity(&mut self, pages: usize) {
        self.small_share = ((pages as f64 * self.params.small) as usize).max(1);
        self.main_share = pages.saturating_sub(self.small_share);
        self.ghost_limit = (pages as f64 * self.params.ghosts) as usize;
        self.trim_ghosts();
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<State>>()
    }
}
