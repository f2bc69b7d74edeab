//! LRU-K: the page whose K-th last access is longest ago goes.
//!
//! A page with fewer than K accesses has none, and goes before all that have; among such pages, and of equal ones, the
//! one used longest ago goes. The times of a page's last K accesses are kept while it is evicted, so that a page that
//! comes back is known. There is no correlated reference period: each access counts.
//!
//! Cost: that of [`super::ranked`], and 8 K bytes per page id.
//! Source: O'Neil, O'Neil and Weikum, *The LRU-K Page Replacement Algorithm for Database Disk Buffering*, SIGMOD 1993,
//! section 2. The correlated reference period is 0 and the retained information period is without end.

use super::ranked::Ranked;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::page::PageId;
use crate::parameter::{Parameter, ParameterError, Parameters};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

const MAX_K: usize = 8;

/// Which access counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LruKParams {
    /// From 1, which is LRU, to 8.
    pub k: usize,
}

impl Default for LruKParams {
    fn default() -> LruKParams {
        LruKParams { k: 2 }
    }
}

impl Parameters for LruKParams {
    const LIST: &'static [Parameter] = &[Parameter {
        name: "k",
        default: "2",
        values: "1 to 8",
        meaning: "which of a page's last accesses counts; 1 is LRU",
    }];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        match name {
            "k" => {
                let k = value.parse().ok().filter(|k| (1..=MAX_K).contains(k));
                self.k = k.ok_or_else(|| ParameterError::invalid(name, value, Self::LIST))?;
                Ok(())
            }
            _ => Err(ParameterError::unknown(name, Self::LIST)),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct LruK {
    params: LruKParams,
    ranked: Ranked,
    /// The times of each page's last K accesses, the latest first; 0 is none.
    history: Vec<u64>,
}

impl LruK {
    /// An empty cache.
    pub fn new(params: LruKParams) -> LruK {
        LruK { params, ..LruK::default() }
    }

    fn used(&mut self, page: PageId) {
        let (k, time) = (self.params.k, self.ranked.tick());
        let times = &mut self.history[page as usize * k..][..k];
        times.rotate_right(1);
        times[0] = time;
        let worth = times[k - 1];
        self.ranked.put(page, worth, time);
    }
}

impl Policy for LruK {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.used(page);
    }

    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        if self.ranked.contains(page) {
            self.used(page);
        }
    }

    fn freed(&mut self, page: PageId) {
        self.ranked.remove(page);
        self.history[page as usize * self.params.k..][..self.params.k].fill(0);
    }

    fn forgotten(&mut self, page: PageId) {
        self.freed(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        self.ranked.evict(request.goal, memory, |_, _| {})
    }

    fn grow(&mut self, pages: usize) {
        self.ranked.grow(pages);
        self.history.resize((pages * self.params.k).max(self.history.len()), 0);
    }

    fn counters(&self) -> Counters {
        self.ranked.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.ranked.metadata_bytes() + self.history.capacity() * size_of::<u64>()
    }
}
