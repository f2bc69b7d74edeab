//! How much of the truth a monitor finds: its regions held against the exact access history. Only an observer of every
//! access can keep that (a simulator, a recorded trace).
//!
//! Truth of a page in one aggregation: in how many of its sampling intervals the page was accessed at least once,
//! which is what the monitor estimates. Cost: one counter per page; a comparison is linear in pages.
//!
//! ```
//! use refault_core::monitor::Region;
//! use refault_core::monitor::accuracy::ExactHistory;
//!
//! let mut truth = ExactHistory::new(0..16 * 4096, 4096);
//! truth.access(4096);
//! truth.next_interval();
//! assert_eq!(truth.counts()[1], 1);
//! let accuracy = truth.compare(&[Region::new(0, 16 * 4096)], 1, 1);
//! assert_eq!(accuracy.events_found(), Some(0.0)); // the region says that nothing was accessed
//! ```

use std::ops::Range;

use super::Region;

/// Per page of one address range, the sampling intervals of the running aggregation in which it was accessed.
#[derive(Clone, Debug)]
pub struct ExactHistory {
    base: u64,
    page_size: u64,
    counts: Vec<u32>,
    /// The sampling interval, plus one, in which the page was last counted.
    counted_in: Vec<u64>,
    interval: u64,
}

impl ExactHistory {
    /// An empty history of the pages in `range`.
    pub fn new(range: Range<u64>, page_size: u64) -> ExactHistory {
        let pages = (range.end - range.start).div_ceil(page_size) as usize;
        ExactHistory { base: range.start, page_size, counts: vec![0; pages], counted_in: vec![0; pages], interval: 1 }
    }

    /// An access to the page at `address`, which must lie in the range.
    #[inline]
    pub fn access(&mut self, address: u64) {
        let page = ((address - self.base) / self.page_size) as usize;
        if self.counted_in[page] != self.interval {
            self.counted_in[page] = self.interval;
            self.counts[page] += 1;
        }
    }

    /// The sampling interval is over.
    pub fn next_interval(&mut self) {
        self.interval += 1;
    }

    /// Sampling intervals with an access, by page.
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// The aggregation is over.
    pub fn reset(&mut self) {
        self.counts.fill(0);
    }

    /// Holds `regions` against the truth of the aggregation that ends now; `window` is its number of checks, `hot` the
    /// count from which a page is called hot. Pages outside all regions count as found idle.
    pub fn compare(&self, regions: &[Region], window: u32, hot: u32) -> Accuracy {
        let mut accuracy = Accuracy { window, ..Accuracy::default() };
        let mut at = 0;
        for (page, &truth) in self.counts.iter().enumerate() {
            let address = self.base + page as u64 * self.page_size;
            while at < regions.len() && regions[at].end <= address {
                at += 1;
            }
            let found = regions.get(at).filter(|region| region.start <= address).map_or(0, |region| region.nr_accesses);
            accuracy.add(truth, found, hot);
        }
        accuracy
    }
}

/// Sums over pages and aggregations; the shares are what people read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accuracy {
    /// Checks of an aggregation.
    pub window: u32,
    /// Pages compared.
    pub pages: u64,
    /// Intervals with an access, over all pages.
    pub true_events: u64,
    /// The same as the monitor has it.
    pub found_events: u64,
    /// Events that both have: page by page the smaller of the two counts.
    pub common_events: u64,
    /// Sum of the distances of the two counts.
    pub distance: u64,
    /// Hot pages.
    pub true_hot: u64,
    /// Pages that the monitor calls hot.
    pub found_hot: u64,
    /// Hot pages that the monitor calls hot.
    pub common_hot: u64,
}

impl Accuracy {
    #[inline]
    fn add(&mut self, truth: u32, found: u32, hot: u32) {
        self.pages += 1;
        self.true_events += u64::from(truth);
        self.found_events += u64::from(found);
        self.common_events += u64::from(truth.min(found));
        self.distance += u64::from(truth.abs_diff(found));
        self.true_hot += u64::from(truth >= hot);
        self.found_hot += u64::from(found >= hot);
        self.common_hot += u64::from(truth >= hot && found >= hot);
    }

    /// Adds another aggregation of the same window.
    pub fn merge(&mut self, other: &Accuracy) {
        self.window = other.window;
        self.pages += other.pages;
        self.true_events += other.true_events;
        self.found_events += other.found_events;
        self.common_events += other.common_events;
        self.distance += other.distance;
        self.true_hot += other.true_hot;
        self.found_hot += other.found_hot;
        self.common_hot += other.common_hot;
    }

    /// Share of the true events that the monitor has, 0..=1; `None` if there were none.
    pub fn events_found(&self) -> Option<f64> {
        share(self.common_events, self.true_events)
    }

    /// Share of the monitor's events that are true, 0..=1.
    pub fn events_right(&self) -> Option<f64> {
        share(self.common_events, self.found_events)
    }

    /// Share of the hot pages that the monitor calls hot.
    pub fn hot_found(&self) -> Option<f64> {
        share(self.common_hot, self.true_hot)
    }

    /// Share of the pages called hot that are.
    pub fn hot_right(&self) -> Option<f64> {
        share(self.common_hot, self.found_hot)
    }

    /// Mean distance of the two frequencies, as a share of the highest frequency, 0..=1.
    pub fn mean_error(&self) -> f64 {
        share(self.distance, self.pages * u64::from(self.window)).unwrap_or(0.0)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_counts_once_an_interval() {
        let mut history = ExactHistory::new(8192..8192 + 3 * 4096, 4096);
        for _ in 0..2 {
            history.access(8192);
            history.access(8192 + 4095);
            history.access(8192 + 2 * 4096);
            history.next_interval();
        }
        assert_eq!(history.counts(), [2, 0, 2]);
        let regions = [
            Region { nr_accesses: 2, ..Region::new(8192, 8192 + 2 * 4096) },
            Region { nr_accesses: 1, ..Region::new(8192 + 2 * 4096, 8192 + 3 * 4096) },
        ];
        let accuracy = history.compare(&regions, 2, 2);
        assert_eq!((accuracy.true_events, accuracy.found_events, accuracy.common_events), (4, 5, 3));
        assert_eq!((accuracy.true_hot, accuracy.found_hot, accuracy.common_hot), (2, 2, 1));
        assert_eq!(accuracy.events_found(), Some(0.75));
        assert!((accuracy.mean_error() - 0.5).abs() < 1e-12);
        history.reset();
        assert_eq!(history.compare(&regions, 2, 2).events_found(), None);
    }
}
