//! Monitoring only: how long memory has been idle and how much is moved (spec: lru_sort §3).
//!
//! Kernel: `damon_stat_set_estimated_memory_bandwidth`, `damon_stat_set_idletime_percentiles` in `mm/damon/stat.c`.
//!
//! ```
//! use refault_core::monitor::Region;
//! use refault_core::schemes::modules::stat::{estimated_memory_bandwidth, memory_idle_ms_percentiles};
//!
//! let regions = [Region { nr_accesses: 10, ..Region::new(0, 4096) }, Region { age: 9, ..Region::new(4096, 8192) }];
//! assert_eq!(estimated_memory_bandwidth(&regions, 100_000), 409_600); // 40 KiB in a tenth of a second
//! // The idlest has been idle for ten aggregations.
//! assert_eq!(memory_idle_ms_percentiles(&regions, 100_000)[100], 1000);
//! ```

use crate::monitor::{Attributes, IntervalsGoal, Region};

/// The module `stat`: no parameters but whether it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat;

impl Stat {
    /// The monitor's attributes: defaults with self-tuned intervals.
    pub fn attributes() -> Attributes {
        Attributes { intervals_goal: Some(IntervalsGoal::RECOMMENDED), ..Attributes::default() }
    }
}

/// Estimated bytes per second that are accessed, from the counts of one aggregation.
pub fn estimated_memory_bandwidth(regions: &[Region], aggr_interval_us: u64) -> u64 {
    let bytes: u128 = regions.iter().map(|region| u128::from(region.size()) * u128::from(region.nr_accesses)).sum();
    u64::try_from((bytes * 1_000_000).checked_div(u128::from(aggr_interval_us)).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// For each percent of the memory, least idle first, how long it has been idle in ms; negative: for how long it has
/// been accessed. Empty memory gives zeros. Cost: a sort of the regions.
pub fn memory_idle_ms_percentiles(regions: &[Region], aggr_interval_us: u64) -> [i64; 101] {
    let idle = |region: &Region| {
        let intervals = i64::from(region.age) + 1;
        if region.nr_accesses > 0 { -intervals } else { intervals }
    };
    let mut sorted: Vec<(i64, u64)> = regions.iter().map(|region| (idle(region), region.size())).collect();
    sorted.sort_by_key(|(idle, _)| *idle);
    let total: u128 = sorted.iter().map(|(_, size)| u128::from(*size)).sum();
    let mut percentiles = [0; 101];
    let (mut seen, mut next) = (0u128, 0);
    for (idle, size) in sorted {
        seen += u128::from(size);
        while next <= 100 && next as u128 <= seen * 100 / total {
            percentiles[next] = idle * aggr_interval_us as i64 / 1000;
            next += 1;
        }
    }
    percentiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_bandwidth_of_the_worked_example() {
        const MIB: u64 = 1 << 20;
        let region =
            |start: u64, end: u64, nr_accesses, age| Region { nr_accesses, age, ..Region::new(start * MIB, end * MIB) };
        let regions = [region(0, 60, 0, 9), region(60, 90, 0, 99), region(90, 100, 7, 4)];
        let percentiles = memory_idle_ms_percentiles(&regions, 100_000);
        assert!(percentiles[..=10].iter().all(|&ms| ms == -500));
        assert!(percentiles[11..=70].iter().all(|&ms| ms == 1000));
        assert!(percentiles[71..].iter().all(|&ms| ms == 10_000));
        assert_eq!(estimated_memory_bandwidth(&regions, 100_000), 700 * MIB);
        assert_eq!(memory_idle_ms_percentiles(&[], 100_000), [0; 101]);
        assert!(Stat::attributes().check(crate::monitor::Profile::K72).is_ok());
    }
}
