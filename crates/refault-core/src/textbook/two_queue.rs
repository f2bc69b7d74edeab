//! 2Q: a page must prove itself in a FIFO and a list of ghosts before it may enter the LRU list.
//!
//! New pages enter `A1in`, a FIFO in which hits do nothing. What falls out of it is remembered in `A1out` (ghosts: ids
//! without pages); a page that comes back while remembered enters `Am`, an LRU list. `Am` gives up a page while `A1in`
//! is within its share of memory.
//!
//! The reference simulator runs the paper's full version, with the paper's constants. One detail: the returning page
//! leaves `A1out` before the victim enters it.
//!
//! Cost: 12 bytes per page id.
//! Source: Johnson and Shasha, *2Q: A Low Overhead High Performance Buffer Management Replacement Algorithm*,
//! VLDB 1994, section 3 (full version) and section 4 (the constants).

use super::evict_oldest;
use super::slot::Slot;
use crate::counters::Counters;
use crate::lists::linked::List;
use crate::memory::Memory;
use crate::page::{NO_PAGE, PageId};
use crate::parameter::{Parameter, ParameterError, Parameters, parse_share};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// Sizes of the two helper queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoQueueParams {
    /// Share of memory that `A1in` may hold before it gives up pages, 0 to 1.
    pub a1in: f64,
    /// Ghosts remembered in `A1out`, as a share of memory in pages, 0 to 1.
    pub a1out: f64,
}

impl Default for TwoQueueParams {
    fn default() -> TwoQueueParams {
        TwoQueueParams { a1in: 0.25, a1out: 0.5 }
    }
}

impl Parameters for TwoQueueParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "a1in",
            default: "25%",
            values: "a share, 0% to 100% or 0 to 1",
            meaning: "share of memory that the queue of new pages may hold before it gives up pages",
        },
        Parameter {
            name: "a1out",
            default: "50%",
            values: "a share, 0% to 100% or 0 to 1",
            meaning: "evicted new pages remembered, as a share of memory in pages",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let share = || parse_share(value).ok_or_else(|| ParameterError::invalid(name, value, Self::LIST));
        match name {
            "a1in" => self.a1in = share()?,
            "a1out" => self.a1out = share()?,
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    In,
    /// A ghost.
    Out,
    Main,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct TwoQueue {
    params: TwoQueueParams,
    slots: Vec<Slot<Place>>,
    a1in: List,
    a1out: List,
    am: List,
    a1in_limit: usize,
    a1out_limit: usize,
    /// A page taken off `A1out` because it is coming in.
    returning: PageId,
    counters: Counters,
}

impl Default for TwoQueue {
    fn default() -> TwoQueue {
        TwoQueue::new(TwoQueueParams::default())
    }
}

impl TwoQueue {
    /// Empty queues.
    pub fn new(params: TwoQueueParams) -> TwoQueue {
        TwoQueue {
            params,
            slots: Vec::new(),
            a1in: List::default(),
            a1out: List::default(),
            am: List::default(),
            a1in_limit: 0,
            a1out_limit: 0,
            returning: NO_PAGE,
            counters: Counters::default(),
        }
    }

    /// A page is coming in: if it is a ghost, it stops being one and is to enter `Am`.
    fn expect(&mut self, page: PageId) {
        if self.returning == page {
            return;
        }
        self.returning = NO_PAGE;
        if self.slots[page as usize].state == Place::Out {
            self.a1out.remove(&mut self.slots, page);
            self.slots[page as usize].state = Place::Nowhere;
            self.returning = page;
        }
    }

    fn evict_in<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = evict_oldest(&mut self.a1in, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.a1out.push_head(&mut self.slots, page);
        self.slots[page as usize].state = Place::Out;
        self.trim_ghosts();
        true
    }

    fn evict_main<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = evict_oldest(&mut self.am, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.slots[page as usize].state = Place::Nowhere;
        true
    }

    fn trim_ghosts(&mut self) {
        while self.a1out.len() > self.a1out_limit {
            if let Some(ghost) = self.a1out.pop_tail(&mut self.slots) {
                self.slots[ghost as usize].state = Place::Nowhere;
            }
        }
    }
}

impl Policy for TwoQueue {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.expect(page);
        let (list, place) =
            if self.returning == page { (&mut self.am, Place::Main) } else { (&mut self.a1in, Place::In) };
        list.push_head(&mut self.slots, page);
        self.slots[page as usize].state = place;
        self.returning = NO_PAGE;
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        if self.slots[page as usize].state == Place::Main {
            self.am.move_to_head(&mut self.slots, page);
        }
    }

    fn freed(&mut self, page: PageId) {
        let list = match self.slots[page as usize].state {
            Place::Nowhere => return,
            Place::In => &mut self.a1in,
            Place::Out => &mut self.a1out,
            Place::Main => &mut self.am,
        };
        list.remove(&mut self.slots, page);
        self.slots[page as usize].state = Place::Nowhere;
    }

    fn forgotten(&mut self, page: PageId) {
        if self.returning == page {
            // Room was made for it, and it did not come.
            self.returning = NO_PAGE;
        }
        self.freed(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        if let Some(page) = request.incoming {
            self.expect(page);
        }
        let mut freed = 0;
        while freed < request.goal {
            let in_first = self.a1in.len() > self.a1in_limit;
            let done = (in_first && self.evict_in(memory)) || self.evict_main(memory) || self.evict_in(memory);
            if !done {
                break;
            }
            freed += 1;
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.slots.resize(pages.max(self.slots.len()), Slot::default());
    }

    fn set_capacity(&mut self, pages: usize) {
        self.a1in_limit = (pages as f64 * self.params.a1in) as usize;
        self.a1out_limit = (pages as f64 * self.params.a1out) as usize;
        self.trim_ghosts();
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<Place>>()
    }
}
