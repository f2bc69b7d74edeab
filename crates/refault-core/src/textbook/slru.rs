//! Segmented LRU: a page is protected once it was hit, and what is hit once only goes first.
//!
//! New pages enter the probationary segment. A hit moves a page to the head of the protected segment. When that segment
//! outgrows its share, its oldest page goes back to the head of the probationary one. The oldest probationary page is
//! evicted; if there is none, the oldest protected one.
//!
//! Cost: 12 bytes per page id, O(1) for each access.
//! Source: Karedla, Love and Wherry, *Caching Strategies to Improve Disk System Performance*, IEEE Computer 27(3),
//! 1994.

use super::evict_oldest;
use super::slot::Slot;
use crate::counters::Counters;
use crate::lists::linked::List;
use crate::memory::Memory;
use crate::page::PageId;
use crate::parameter::{Parameter, ParameterError, Parameters, parse_share};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// The sizes of the segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlruParams {
    /// Share of memory that protected pages may take, 0 to 1.
    pub protected: f64,
}

impl Default for SlruParams {
    fn default() -> SlruParams {
        SlruParams { protected: 0.8 }
    }
}

impl Parameters for SlruParams {
    const LIST: &'static [Parameter] = &[Parameter {
        name: "protected",
        default: "80%",
        values: "a share, 0% to 100% or 0 to 1",
        meaning: "share of memory that pages hit at least once may take before the oldest of them loses its protection",
    }];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        match name {
            "protected" => {
                self.protected = parse_share(value).ok_or_else(|| ParameterError::invalid(name, value, Self::LIST))?;
                Ok(())
            }
            _ => Err(ParameterError::unknown(name, Self::LIST)),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Probationary,
    Protected,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Slru {
    params: SlruParams,
    slots: Vec<Slot<Place>>,
    probationary: List,
    protected: List,
    protected_limit: usize,
    counters: Counters,
}

impl Slru {
    /// Empty segments.
    pub fn new(params: SlruParams) -> Slru {
        Slru { params, ..Slru::default() }
    }

    fn demote(&mut self) {
        while self.protected.len() > self.protected_limit {
            let Some(page) = self.protected.pop_tail(&mut self.slots) else { break };
            self.probationary.push_head(&mut self.slots, page);
            self.slots[page as usize].state = Place::Probationary;
        }
    }
}

impl Policy for Slru {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.probationary.push_head(&mut self.slots, page);
        self.slots[page as usize].state = Place::Probationary;
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        match self.slots[page as usize].state {
            Place::Nowhere => {}
            Place::Protected => self.protected.move_to_head(&mut self.slots, page),
            Place::Probationary => {
                self.probationary.remove(&mut self.slots, page);
                self.protected.push_head(&mut self.slots, page);
                self.slots[page as usize].state = Place::Protected;
                self.demote();
            }
        }
    }

    fn freed(&mut self, page: PageId) {
        let list = match self.slots[page as usize].state {
            Place::Nowhere => return,
            Place::Probationary => &mut self.probationary,
            Place::Protected => &mut self.protected,
        };
        list.remove(&mut self.slots, page);
        self.slots[page as usize].state = Place::Nowhere;
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        while freed < request.goal {
            let victim = evict_oldest(&mut self.probationary, &mut self.slots, memory, &mut self.counters)
                .or_else(|| evict_oldest(&mut self.protected, &mut self.slots, memory, &mut self.counters));
            let Some(page) = victim else { break };
            self.slots[page as usize].state = Place::Nowhere;
            freed += 1;
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.slots.resize(pages.max(self.slots.len()), Slot::default());
    }

    fn set_capacity(&mut self, pages: usize) {
        self.protected_limit = (pages as f64 * self.params.protected) as usize;
        self.demote();
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<Place>>()
    }
}
