//! Refault distances: how much more memory would have spared the pages that came back.
//!
//! A clock counts evictions. A page that comes back after `d` further evictions would have stayed had there been room
//! for `d` more pages. That is the number of pages evicted after it (spec: overview §5; the distance of an inactive
//! list). One page in [`SAMPLE`] is followed, chosen by a hash of its address so that no stride of a program decides
//! it. The distance is an upper bound: a page that was evicted twice in between counts twice.
//!
//! Cost: one atomic addition per eviction; a store and a load for each followed page; 4 bytes for every [`SAMPLE`]
//! pages.

use std::sync::atomic::{AtomicU32, Ordering};

use refault_core::PageId;

use crate::latency::Histogram;

/// One page in this many is followed.
pub(crate) const SAMPLE: u32 = 32;

pub(crate) struct Distances {
    clock: AtomicU32,
    /// For each group of [`SAMPLE`] pages the clock, plus one, when its followed page was evicted; 0: it was not.
    evicted_at: Vec<AtomicU32>,
    histogram: Histogram,
}

impl Distances {
    /// For an arena of `pages` pages. The table is zeroed memory that is not touched before it is used.
    pub(crate) fn new(pages: u32) -> Distances {
        let mut evicted_at = Vec::new();
        evicted_at.resize_with(pages.div_ceil(SAMPLE) as usize, || AtomicU32::new(0));
        Distances { clock: AtomicU32::new(0), evicted_at, histogram: Histogram::default() }
    }

    fn followed(page: PageId) -> bool {
        (page / SAMPLE).wrapping_mul(0x9e37_79b9) >> 27 == page % SAMPLE
    }

    /// The page left memory.
    pub(crate) fn evicted(&self, page: PageId) {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        if Distances::followed(page) {
            self.evicted_at[(page / SAMPLE) as usize].store(now.wrapping_add(1).max(1), Ordering::Relaxed);
        }
    }

    /// The page came back.
    pub(crate) fn returned(&self, page: PageId) {
        if Distances::followed(page) {
            let at = self.evicted_at[(page / SAMPLE) as usize].swap(0, Ordering::Relaxed);
            if at != 0 {
                self.histogram.add(u64::from(self.clock.load(Ordering::Relaxed).wrapping_sub(at)));
            }
        }
    }

    pub(crate) fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    pub(crate) fn bytes(&self, pages: u64) -> u64 {
        pages.div_ceil(u64::from(SAMPLE)) * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_of_each_group_is_followed_and_its_distance_is_the_evictions_in_between() {
        let distances = Distances::new(SAMPLE * 64);
        for group in 0..64 {
            let pages = group * SAMPLE..(group + 1) * SAMPLE;
            assert_eq!(pages.filter(|page| Distances::followed(*page)).count(), 1, "group {group}");
        }
        // A cyclic scan over 2048 pages: each page comes back after the 2047 others left.
        (0..2048).for_each(|page| distances.evicted(page));
        for page in 0..2048 {
            distances.returned(page);
            distances.evicted(page);
        }
        let histogram = distances.histogram();
        assert_eq!(histogram.count(), 64);
        let (low, high) = (histogram.quantile(0.0), histogram.quantile(1.0));
        assert!(low >= 2047 && high <= 2048 + 2048 / 8, "{low} {high}");
    }
}
