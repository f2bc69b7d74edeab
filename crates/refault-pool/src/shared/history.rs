//! What members used in the last minutes, so that charts begin with it.
//!
//! Invariant: [`MAX_LOOKS`] looks and [`MAX_MOMENTS`] moments of members at most; the oldest go first. Cost: some two
//! hundred bytes for each moment, and a look at each member every [`EVERY`].
//!
//! ```
//! use refault_pool::shared::history::{EVERY, History};
//! use std::collections::BTreeMap;
//!
//! let mut history = History::default();
//! let second = EVERY.as_nanos() as u64;
//! assert!(history.is_due(5) && history.looks().is_empty());
//! history.note(5, BTreeMap::new());
//! assert!(!history.is_due(5 + second / 2) && history.is_due(5 + second));
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::protocol::AGES;

/// Between two looks.
pub const EVERY: Duration = Duration::from_secs(1);
/// Looks that are kept: ten minutes.
pub const MAX_LOOKS: usize = 600;
/// Moments that are kept, of all members together: ten minutes of twenty.
pub const MAX_MOMENTS: usize = 12_000;

/// A member at a moment, under the names that its status has in JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moment {
    /// Bytes that its programs used.
    pub charge_bytes: u64,
    /// Bytes that it was to keep to.
    pub grant_bytes: u64,
    /// Bytes where they belong.
    pub resident_bytes: u64,
    /// Bytes of compressed memory.
    pub compressed_bytes: u64,
    /// Bytes out of memory, before compression.
    pub stored_bytes: u64,
    /// Faults until then.
    pub faults: u64,
    /// Pages that had come back until then.
    pub refaults: u64,
    /// Nanoseconds that half of the faults did not exceed.
    pub fault_p50_ns: u64,
    /// The same of 99 of 100.
    pub fault_p99_ns: u64,
    /// Share of time in which its threads waited for memory.
    pub pressure: f64,
    /// Bytes by the age of their generation.
    pub bytes_by_age: [u64; AGES.len()],
    /// How many of 100 pages were accessed, by parts of its memory.
    pub heat_percent: Vec<u8>,
}

/// All members at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Nanoseconds on the monotonic clock.
    pub at: u64,
    /// The members by process.
    pub members: BTreeMap<u64, Moment>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct History {
    looks: VecDeque<Look>,
    moments: usize,
}

impl History {
    /// Whether it is time for the next look.
    pub fn is_due(&self, now: u64) -> bool {
        self.looks.back().is_none_or(|last| now.saturating_sub(last.at) >= EVERY.as_nanos() as u64)
    }

    /// Takes down a look, and forgets the oldest of those that are too many.
    pub fn note(&mut self, at: u64, members: BTreeMap<u64, Moment>) {
        self.moments += members.len();
        self.looks.push_back(Look { at, members });
        while self.looks.len() > MAX_LOOKS || self.moments > MAX_MOMENTS && self.looks.len() > 1 {
            self.moments -= self.looks.pop_front().map_or(0, |look| look.members.len());
        }
    }

    /// The looks, oldest first.
    pub fn looks(&self) -> Vec<Look> {
        self.looks.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_within_both_bounds() {
        let crowd = |count: u64| (0..count).map(|pid| (pid, Moment::default())).collect::<BTreeMap<_, _>>();
        for (members, kept) in [(1, MAX_LOOKS), (20, MAX_LOOKS), (100, MAX_MOMENTS / 100), (20_000, 1)] {
            let mut history = History::default();
            for at in 0..1000 {
                history.note(at, crowd(members));
            }
            let looks = history.looks();
            assert_eq!((looks.len(), looks.last().map(|look| look.at)), (kept, Some(999)), "{members}");
            assert_eq!(history.moments, looks.iter().map(|look| look.members.len()).sum::<usize>());
        }
    }
}
