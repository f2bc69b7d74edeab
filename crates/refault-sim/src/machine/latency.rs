//! Latencies in simulated time: of reclaim, by the context that waits for it, and of tasks' operations.
//!
//! ```
//! use refault_sim::machine::latency::OperationLatency;
//!
//! let mut latency = OperationLatency::default();
//! (0..99).for_each(|_| latency.record(1_000));
//! latency.record(2_000_000);
//! let summary = latency.summary();
//! assert_eq!((summary.count, summary.p50_ns, summary.p99_ns), (100, 1_000, 1_000));
//! assert_eq!(summary.max_ns / 10_000, 200); // three digits are kept
//! ```

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer latencies count as this long: three hours.
const MAX_NS: u64 = 10_000_000_000_000;

/// Latencies of one kind of event, in nanoseconds, to three digits.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Latency {
        Latency(Histogram::new_with_bounds(1, MAX_NS, 3).expect("invariant: the bounds are in order"))
    }
}

impl Latency {
    /// One more event.
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Its percentiles.
    pub fn summary(&self) -> LatencySummary {
        summary(&self.0)
    }
}

/// A latency in a few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// Events.
    pub count: u64,
    /// Median, nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile, nanoseconds.
    pub p90_ns: u64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: u64,
    /// 99.9th percentile, nanoseconds.
    pub p999_ns: u64,
    /// Longest, nanoseconds.
    pub max_ns: u64,
}

fn summary(histogram: &Histogram<u64>) -> LatencySummary {
    // The end of the longest one's step may lie beyond it.
    let at = |quantile| histogram.value_at_quantile(quantile).min(histogram.max());
    LatencySummary {
        count: histogram.len(),
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: histogram.max(),
    }
}

/// Latencies of reclaim by the context that waits for it.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// An allocation that reclaims for itself.
    pub direct: Latency,
    /// A charge beyond a limit.
    pub limit: Latency,
}

/// Latencies of a task's operations, in nanoseconds, to three digits.
///
/// Cost: an addition for one that is as long as the one before, as hits are; some 100 KiB where the longest takes
/// milliseconds, less where all are short.
#[derive(Clone, Debug)]
pub struct OperationLatency {
    histogram: Histogram<u64>,
    /// The last ones that were equally long, and how many they are.
    last: u64,
    times: u64,
}

impl Default for OperationLatency {
    fn default() -> OperationLatency {
        OperationLatency {
            histogram: Histogram::new(3).expect("invariant: three digits can be kept"),
            last: 0,
            times: 0,
        }
    }
}

impl OperationLatency {
    /// One more operation.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        if nanoseconds != self.last {
            self.settle();
            self.last = nanoseconds;
        }
        self.times += 1;
    }

    /// Takes those of another task in.
    pub fn add(&mut self, other: &OperationLatency) {
        self.settle();
        // The histogram grows as it must; three hours are far below what it can grow to.
        let _ = self.histogram.add(&other.histogram);
        let _ = self.histogram.record_n(other.last.min(MAX_NS), other.times);
    }

    /// Percentiles of all so far.
    pub fn summary(&mut self) -> LatencySummary {
        self.settle();
        summary(&self.histogram)
    }

    fn settle(&mut self) {
        if self.times > 0 {
            let _ = self.histogram.record_n(self.last.min(MAX_NS), self.times);
            self.times = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_tasks_are_as_if_one_task_had_done_all() {
        let (mut all, mut parts) =
            (OperationLatency::default(), [OperationLatency::default(), OperationLatency::default()]);
        for operation in 0..10_000u64 {
            let nanoseconds = if operation % 3 == 0 { operation * 1_000 } else { 100 };
            all.record(nanoseconds);
            parts[(operation % 2) as usize].record(nanoseconds);
        }
        let mut sum = OperationLatency::default();
        parts.iter().for_each(|part| sum.add(part));
        assert_eq!(sum.summary(), all.summary());
        assert_eq!((all.summary().count, all.summary().p50_ns), (10_000, 100));
        let p999 = all.summary().p999_ns as f64;
        // The thousandth part of the operations that take longest begins here.
        assert!((p999 / 9_970_000.0 - 1.0).abs() < 0.002, "{p999}");
    }
}
