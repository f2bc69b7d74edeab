//! Intervals and bounds, and what is refused (spec: damon §1.1).
//!
//! Kernel: `struct damon_attrs` in `include/linux/damon.h`; `damon_set_attrs` in `mm/damon/core.c`.

use super::profile::Profile;

/// Keep the share of observed accesses near a goal by moving the sampling interval (spec: damon §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalsGoal {
    /// Wanted share of access events among the possible ones, in 1/10 000.
    pub access_bp: u64,
    /// Aggregations between two decisions; at least 1.
    pub aggrs: u64,
    /// Shortest sampling interval, in µs.
    pub min_sample_us: u64,
    /// Longest sampling interval, in µs.
    pub max_sample_us: u64,
}

impl IntervalsGoal {
    /// The recommended goal: 4 % over 3 aggregations, 5 ms to 10 s.
    pub const RECOMMENDED: IntervalsGoal =
        IntervalsGoal { access_bp: 400, aggrs: 3, min_sample_us: 5000, max_sample_us: 10_000_000 };
}

/// Intervals in µs and bounds on the number of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Between two checks of a region. 0 is taken for 1 where it divides.
    pub sample_interval: u64,
    /// Between two looks at the counts.
    pub aggr_interval: u64,
    /// Between two readings of the address spaces' layout; 0: each sampling interval.
    pub ops_update_interval: u64,
    /// Fewest regions wanted: the largest region is the total divided by this. At least 3.
    pub min_nr_regions: usize,
    /// Most regions wanted: the bound on the monitor's cost.
    pub max_nr_regions: usize,
    /// Self-tuning of the intervals; `None`: off.
    pub intervals_goal: Option<IntervalsGoal>,
    /// Smallest region in bytes, a power of two: the page size.
    pub min_region_size: u64,
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes {
            sample_interval: 5000,
            aggr_interval: 100_000,
            ops_update_interval: 60_000_000,
            min_nr_regions: 10,
            max_nr_regions: 1000,
            intervals_goal: None,
            min_region_size: 4096,
        }
    }
}

/// Why attributes are refused: the key and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributesError {
    /// Which key is wrong.
    pub key: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl std::fmt::Display for AttributesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}

impl std::error::Error for AttributesError {}

impl Attributes {
    /// Checks of one aggregation: the largest count a region can reach.
    pub fn max_nr_accesses(&self) -> u32 {
        self.samples(self.aggr_interval).clamp(1, u64::from(u32::MAX)) as u32
    }

    /// An interval in sampling intervals.
    pub(crate) fn samples(&self, interval: u64) -> u64 {
        interval / self.sample_interval.max(1)
    }

    /// Whether the attributes make sense under a profile.
    pub fn check(&self, profile: Profile) -> Result<(), AttributesError> {
        let refuse = |key, reason| Err(AttributesError { key, reason });
        if self.min_nr_regions < 3 {
            return refuse("min_nr_regions", "must be at least 3, one region for each area of a process");
        }
        if self.min_nr_regions > self.max_nr_regions {
            return refuse("min_nr_regions", "is above max_nr_regions");
        }
        if self.sample_interval > self.aggr_interval {
            return refuse("sample_interval", "is above aggr_interval");
        }
        if !self.min_region_size.is_power_of_two() {
            return refuse("min_region_size", "must be a power of two");
        }
        let Some(goal) = self.intervals_goal else { return Ok(()) };
        if !profile.tunes_intervals() {
            return refuse("intervals_goal", "is not known to this profile; use k72");
        }
        if goal.aggrs == 0 {
            return refuse("intervals_goal.aggrs", "must be at least 1");
        }
        if goal.min_sample_us > goal.max_sample_us {
            return refuse("intervals_goal.min_sample_us", "is above intervals_goal.max_sample_us");
        }
        if !(goal.min_sample_us..=goal.max_sample_us).contains(&self.sample_interval) {
            return refuse("sample_interval", "is outside intervals_goal.min_sample_us..=max_sample_us");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_legal_and_give_twenty_checks() {
        for profile in Profile::ALL {
            assert_eq!(Attributes::default().check(profile), Ok(()));
        }
        assert_eq!(Attributes::default().max_nr_accesses(), 20);
        assert_eq!(Attributes { sample_interval: 0, aggr_interval: 0, ..Attributes::default() }.max_nr_accesses(), 1);
    }

    #[test]
    fn each_contradiction_names_its_key() {
        let key = |change: fn(&mut Attributes)| {
            let mut attributes = Attributes::default();
            change(&mut attributes);
            attributes.check(Profile::K72).unwrap_err().key
        };
        assert_eq!(key(|a| a.min_nr_regions = 2), "min_nr_regions");
        assert_eq!(key(|a| a.max_nr_regions = 9), "min_nr_regions");
        assert_eq!(key(|a| a.sample_interval = 100_001), "sample_interval");
        assert_eq!(key(|a| a.min_region_size = 3000), "min_region_size");
        let goal = |change: fn(&mut IntervalsGoal)| {
            let mut goal = IntervalsGoal::RECOMMENDED;
            change(&mut goal);
            let attributes = Attributes { intervals_goal: Some(goal), ..Attributes::default() };
            attributes.check(Profile::K72).unwrap_err().key
        };
        assert_eq!(goal(|g| g.aggrs = 0), "intervals_goal.aggrs");
        assert_eq!(goal(|g| g.max_sample_us = 4000), "intervals_goal.min_sample_us");
        assert_eq!(goal(|g| g.min_sample_us = 6000), "sample_interval");
        let attributes = Attributes { intervals_goal: Some(IntervalsGoal::RECOMMENDED), ..Attributes::default() };
        assert_eq!(attributes.check(Profile::K60).unwrap_err().key, "intervals_goal");
    }
}
