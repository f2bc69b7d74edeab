//! ARC, the adaptive replacement cache: recency and frequency in balance, learnt from ghosts.
//!
//! `T1` holds pages seen once, `T2` pages seen again, both in LRU order; `B1` and `B2` are the ghosts of each. The
//! target size of `T1`, called `p`, grows when a ghost of `B1` comes back. It shrinks when one of `B2` does. Each step
//! is the ratio of the ghost lists' lengths, and at least 1. `p` is a real number between 0, where it starts, and the
//! memory. `T1` and `B1` together never exceed the memory, all four lists never twice the memory.
//!
//! The reference simulator follows the paper; only when `T2` is empty `T1` gives up a page whatever `p` says, which the
//! paper leaves open.
//!
//! Cost: 12 bytes per page id.
//! Source: Megiddo and Modha, *ARC: A Self-Tuning, Low Overhead Replacement Cache*, FAST 2003, figure 4.

use super::evict_oldest;
use super::slot::Slot;
use crate::counters::Counters;
use crate::lists::linked::List;
use crate::memory::Memory;
use crate::page::{NO_PAGE, PageId};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    T1,
    T2,
    B1,
    B2,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Arc {
    slots: Vec<Slot<Place>>,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
    capacity: usize,
    /// Target length of `t1`, `p` in the paper.
    target: f64,
    /// A page taken off a ghost list because it is coming in.
    returning: PageId,
    /// Which ghost list that was: `b2` rather than `b1`.
    returning_from_b2: bool,
    counters: Counters,
}

impl Default for Arc {
    fn default() -> Arc {
        Arc {
            slots: Vec::new(),
            t1: List::default(),
            t2: List::default(),
            b1: List::default(),
            b2: List::default(),
            capacity: 0,
            target: 0.0,
            returning: NO_PAGE,
            returning_from_b2: false,
            counters: Counters::default(),
        }
    }
}

impl Arc {
    /// A page is coming in: if it is a ghost, the target adapts and it stops being one (cases II and III).
    fn expect(&mut self, page: PageId) {
        if self.returning == page {
            return;
        }
        self.returning = NO_PAGE;
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        match self.slots[page as usize].state {
            Place::B1 => {
                self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64);
                self.b1.remove(&mut self.slots, page);
                self.returning_from_b2 = false;
            }
            Place::B2 => {
                self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
                self.b2.remove(&mut self.slots, page);
                self.returning_from_b2 = true;
            }
            _ => return,
        }
        self.slots[page as usize].state = Place::Nowhere;
        self.returning = page;
    }

    /// Frees one page for a page on no list (case IV), or returns false.
    fn evict_for_new<M: Memory>(&mut self, memory: &mut M) -> bool {
        if self.t1.len() + self.b1.len() >= self.capacity {
            if self.b1.is_empty() {
                let Some(page) = evict_oldest(&mut self.t1, &mut self.slots, memory, &mut self.counters) else {
                    return self.evict_t2(memory);
                };
                self.slots[page as usize].state = Place::Nowhere;
                return true;
            }
            self.drop_b1();
        } else if self.t1.len() + self.b1.len() + self.t2.len() + self.b2.len() >= 2 * self.capacity {
            self.drop_b2();
        }
        self.replace(false, memory)
    }

    /// Moves the oldest page of `t1` or `t2` to its ghosts (REPLACE in the paper).
    fn replace<M: Memory>(&mut self, returning_from_b2: bool, memory: &mut M) -> bool {
        let length = self.t1.len() as f64;
        let from_t1 = length > 0.0 && (length > self.target || (length == self.target && returning_from_b2));
        let t1_first = from_t1 || self.t2.is_empty();
        (t1_first && self.evict_t1(memory)) || self.evict_t2(memory) || self.evict_t1(memory)
    }

    fn evict_t1<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = evict_oldest(&mut self.t1, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.b1.push_head(&mut self.slots, page);
        self.slots[page as usize].state = Place::B1;
        true
    }

    fn evict_t2<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = evict_oldest(&mut self.t2, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.b2.push_head(&mut self.slots, page);
        self.slots[page as usize].state = Place::B2;
        true
    }

    fn drop_b1(&mut self) {
        if let Some(ghost) = self.b1.pop_tail(&mut self.slots) {
            self.slots[ghost as usize].state = Place::Nowhere;
        }
    }

    fn drop_b2(&mut self) {
        if let Some(ghost) = self.b2.pop_tail(&mut self.slots) {
            self.slots[ghost as usize].state = Place::Nowhere;
        }
    }

    /// Keeps the ghost lists' bounds where the paper's order of steps does not: where pages were freed, evictions
    /// refused, several pages evicted in one call, or the limit changed.
    fn trim_ghosts(&mut self) {
        while self.t1.len() + self.b1.len() > self.capacity && !self.b1.is_empty() {
            self.drop_b1();
        }
        while self.t1.len() + self.b1.len() + self.t2.len() + self.b2.len() > 2 * self.capacity && !self.b2.is_empty() {
            self.drop_b2();
        }
    }
}

impl Policy for Arc {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.expect(page);
        let (list, place) = if self.returning == page { (&mut self.t2, Place::T2) } else { (&mut self.t1, Place::T1) };
        list.push_head(&mut self.slots, page);
        self.slots[page as usize].state = place;
        self.returning = NO_PAGE;
        self.trim_ghosts();
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        match self.slots[page as usize].state {
            Place::T1 => {
                self.t1.remove(&mut self.slots, page);
                self.t2.push_head(&mut self.slots, page);
                self.slots[page as usize].state = Place::T2;
            }
            Place::T2 => self.t2.move_to_head(&mut self.slots, page),
            _ => {}
        }
    }

    fn freed(&mut self, page: PageId) {
        let list = match self.slots[page as usize].state {
            Place::Nowhere => return,
            Place::T1 => &mut self.t1,
            Place::T2 => &mut self.t2,
            Place::B1 => &mut self.b1,
            Place::B2 => &mut self.b2,
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
        let returns = request.incoming.is_some_and(|page| {
            self.expect(page);
            self.returning == page
        });
        let mut freed = 0;
        while freed < request.goal {
            let done = if returns { self.replace(self.returning_from_b2, memory) } else { self.evict_for_new(memory) };
            if !done {
                break;
            }
            freed += 1;
        }
        self.trim_ghosts();
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.slots.resize(pages.max(self.slots.len()), Slot::default());
    }

    fn set_capacity(&mut self, pages: usize) {
        self.capacity = pages;
        self.target = self.target.min(pages as f64);
        self.trim_ghosts();
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<Place>>()
    }
}
