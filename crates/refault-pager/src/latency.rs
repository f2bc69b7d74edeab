//! Histograms that can be counted into from a fault: atomics only, nothing is allocated.
//!
//! Buckets are logarithmic with eight steps an octave, so a quantile is exact to 12.5 %.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const STEPS: usize = 8;
const BUCKETS: usize = 40 * STEPS;

/// Counts by magnitude.
pub(crate) struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Histogram {
    pub(crate) fn add(&self, value: u64) {
        self.0[bucket(value)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The value that a share `quantile` (0..=1) of all does not exceed, rounded up to its bucket; 0 if there is none.
    pub(crate) fn quantile(&self, quantile: f64) -> u64 {
        self.counts().quantile(quantile)
    }

    /// The counts now.
    pub(crate) fn counts(&self) -> Counts {
        Counts(self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }
}

/// A histogram at one moment, in logarithmic buckets of an eighth of an octave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(Vec<u64>);

impl Counts {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let before = earlier.0.iter().copied().chain(std::iter::repeat(0));
        Counts(self.0.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect())
    }

    /// The value that a share `quantile` (0..=1) of all does not exceed, rounded up to its bucket; 0 if there is none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let total = self.count();
        if total == 0 {
            return 0;
        }
        let wanted = ((total as f64 * quantile).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        for (index, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_bound(index);
            }
        }
        0
    }
}

impl Counts {
    /// The buckets that hold something, smallest first: the largest value that belongs there, and how many there are.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, count)| (upper_bound(index), *count))
    }
}

/// Of values and how many there are of each; the way back from [`Counts::buckets`].
impl FromIterator<(u64, u64)> for Counts {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(values: T) -> Counts {
        let mut counts = vec![0; BUCKETS];
        values.into_iter().for_each(|(value, count)| counts[bucket(value)] += count);
        Counts(counts)
    }
}

/// Counts by duration.
#[derive(Default)]
pub struct Latencies(Histogram, AtomicU64);

impl Latencies {
    /// Counts one.
    pub fn record(&self, duration: Duration) {
        let nanos = duration.as_nanos().min(1 << 40) as u64;
        self.0.add(nanos);
        self.1.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Counts everything that another histogram has counted.
    pub fn add(&self, other: &Latencies) {
        for (mine, theirs) in self.0.0.iter().zip(&other.0.0) {
            mine.fetch_add(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.1.fetch_max(other.maximum(), Ordering::Relaxed);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// The counts now.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }

    /// The duration that a share `quantile` (0..=1) of all does not exceed, in nanoseconds; 0 if there is none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.0.quantile(quantile).min(self.maximum())
    }

    /// The longest, in nanoseconds.
    pub fn maximum(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let octave = nanos.ilog2() as usize - 3;
    (octave * STEPS + STEPS + ((nanos >> octave) as usize - STEPS)).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (octave, step) = (bucket / STEPS - 1, bucket % STEPS);
    (((STEPS + step + 1) as u64) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_right_to_an_eighth(mut nanos in proptest::collection::vec(0u64..1 << 36, 1..300), quantile in 0.0f64..=1.0) {
            let latencies = Latencies::default();
            nanos.iter().for_each(|n| latencies.record(Duration::from_nanos(*n)));
            nanos.sort_unstable();
            let exact = nanos[((nanos.len() as f64 * quantile).ceil() as usize).clamp(1, nanos.len()) - 1];
            let found = latencies.quantile(quantile);
            prop_assert!(found >= exact && found <= exact + exact / 8 + 1, "{found} for {exact}");
            prop_assert_eq!(latencies.maximum(), *nanos.last().expect("not empty"));
            let counts = latencies.counts();
            prop_assert_eq!(&counts.buckets().collect::<Counts>(), &counts);
        }
    }
}
