//! Changing the intervals while running, and letting them tune themselves (spec: damon §8.1, §9).
//!
//! Kernel: `damon_set_attrs`, `damon_update_monitoring_results`, `kdamond_tune_intervals` in `mm/damon/core.c`.

use super::feedback::{GOAL, feed};
use super::region::BP;
use super::{Attributes, AttributesError, Monitor, Region};

impl Monitor {
    /// Puts new attributes in force and converts the results of the old ones. `window_open` tells that the current
    /// aggregation has not finished. Returns whether deadlines must start anew, which they must not when nothing
    /// changed. Refused attributes change nothing.
    pub fn set_attributes(&mut self, new: Attributes, window_open: bool) -> Result<bool, AttributesError> {
        new.check(self.profile)?;
        let old = std::mem::replace(&mut self.attributes, new);
        if old == new && self.profile.is_current() {
            return Ok(false);
        }
        let intervals = [old.sample_interval, old.aggr_interval, new.sample_interval, new.aggr_interval];
        if self.profile.converts_results() && !intervals.contains(&0) {
            let open = window_open && self.profile.is_current();
            for region in self.targets.iter_mut().flat_map(|target| target.regions_mut()) {
                convert(region, &old, &new, open);
            }
        }
        Ok(true)
    }

    /// Moves the sampling interval towards the goal, the number of checks per aggregation staying what it is.
    /// Returns whether the intervals changed. To be called between the merge and the reset of an aggregation.
    pub fn tune_intervals(&mut self) -> bool {
        let Some(goal) = self.attributes.intervals_goal else { return false };
        let window = u128::from(self.attributes.max_nr_accesses());
        let weighted = |weight: fn(&Region) -> u128| -> u128 {
            let regions = self.targets.iter().flat_map(|target| target.regions());
            regions.map(|region| u128::from(region.size()) * weight(region)).sum()
        };
        let possible = weighted(|_| 1) * window;
        let events = weighted(|region| u128::from(region.nr_accesses));
        let wanted = (possible * u128::from(goal.access_bp) / u128::from(BP)).max(1);
        let score = u64::try_from(events * u128::from(GOAL) / wanted).unwrap_or(u64::MAX);
        let mut factor = feed(100_000_000, score) / 10_000;
        if factor <= 10_000 {
            // Shrinking is gentler than growing: never below half at once.
            factor = 5000 + factor / 2;
        }
        if factor == 10_000 {
            return false;
        }
        let sample = u128::from(self.attributes.sample_interval) * u128::from(factor) / 10_000;
        let sample = u64::try_from(sample).unwrap_or(u64::MAX);
        let sample = sample.clamp(goal.min_sample_us, goal.max_sample_us);
        let tuned = Attributes {
            sample_interval: sample,
            aggr_interval: sample.saturating_mul(u64::from(self.attributes.max_nr_accesses())),
            ..self.attributes
        };
        let changed = self.set_attributes(tuned, false).expect("invariant: tuned intervals stay within checked bounds");
        self.counters.tunings += u64::from(changed);
        changed
    }
}

/// Re-expresses a region's results in new intervals. `open`: the running window's count is dropped and the last
/// finished one converted, otherwise the running count is taken for a finished one.
fn convert(region: &mut Region, old: &Attributes, new: &Attributes, open: bool) {
    let (old_window, new_window) = (u128::from(old.max_nr_accesses()), u128::from(new.max_nr_accesses()));
    let counts = |n: u32| {
        let scaled = u128::from(n) * u128::from(BP) / old_window * new_window / u128::from(BP);
        u32::try_from(scaled).unwrap_or(u32::MAX)
    };
    let age = u128::from(region.age) * u128::from(old.aggr_interval) / u128::from(new.aggr_interval);
    region.age = u32::try_from(age).unwrap_or(u32::MAX);
    let visible = if open {
        region.last_nr_accesses = counts(region.last_nr_accesses);
        region.nr_accesses = 0;
        region.last_nr_accesses
    } else {
        region.nr_accesses = counts(region.nr_accesses);
        region.nr_accesses
    };
    region.nr_accesses_bp = u64::from(visible) * BP;
}

#[cfg(test)]
mod tests {
    use super::super::{IntervalsGoal, Profile, Target};
    use super::*;

    fn intervals(sample_interval: u64, aggr_interval: u64) -> Attributes {
        Attributes { sample_interval, aggr_interval, ..Attributes::default() }
    }

    #[test]
    fn finished_windows_are_converted() {
        for (sample, aggr, expected) in
            [(100, 10_000, (15, 2)), (1, 1000, (150, 20)), (1, 100, (15, 200)), (10, 1000, (15, 20))]
        {
            let mut region = Region { nr_accesses: 15, age: 20, ..Region::new(0, 4096) };
            convert(&mut region, &intervals(10, 1000), &intervals(sample, aggr), false);
            assert_eq!((region.nr_accesses, region.age), expected);
        }
    }

    #[test]
    fn an_open_window_is_dropped() {
        let mut region =
            Region { nr_accesses: 7, last_nr_accesses: 15, nr_accesses_bp: 81_000, age: 20, ..Region::new(0, 4096) };
        convert(&mut region, &intervals(10, 1000), &intervals(1, 1000), true);
        assert_eq!(
            (region.last_nr_accesses, region.nr_accesses_bp, region.nr_accesses, region.age),
            (150, 1_500_000, 0, 20)
        );
    }

    fn tuned(hot_count: u32, sample_interval: u64) -> (bool, u64, u64) {
        const MIB: u64 = 1 << 20;
        let goal = IntervalsGoal { max_sample_us: 1_000_000, ..IntervalsGoal::RECOMMENDED };
        let attributes = Attributes { intervals_goal: Some(goal), ..intervals(sample_interval, 20 * sample_interval) };
        let mut monitor = Monitor::new(Profile::K72, attributes, Vec::new(), 0).unwrap();
        let hot = Region { nr_accesses: hot_count, ..Region::new(900 * MIB, 1000 * MIB) };
        monitor.targets = vec![Target::from_regions(vec![Region::new(0, 900 * MIB), hot])];
        let changed = monitor.tune_intervals();
        (changed, monitor.attributes.sample_interval, monitor.attributes.aggr_interval)
    }

    #[test]
    fn tuning_follows_the_worked_table() {
        assert_eq!(tuned(8, 5000), (false, 5000, 100_000));
        assert_eq!(tuned(2, 5000), (true, 8750, 175_000));
        assert_eq!(tuned(0, 100_000), (true, 200_000, 4_000_000));
        assert_eq!(tuned(12, 100_000), (true, 75_000, 1_500_000));
        assert_eq!(tuned(16, 100_000), (true, 50_000, 1_000_000));
        assert_eq!(tuned(20, 5000), (false, 5000, 100_000), "held at the shortest interval");
    }

    #[test]
    fn the_same_attributes_restart_nothing() {
        let mut monitor = Monitor::new(Profile::K72, Attributes::default(), Vec::new(), 0).unwrap();
        assert_eq!(monitor.set_attributes(Attributes::default(), true), Ok(false));
        assert_eq!(monitor.set_attributes(intervals(10_000, 200_000), true), Ok(true));
        assert!(monitor.set_attributes(intervals(10_000, 5000), true).is_err());
        assert_eq!(monitor.attributes.aggr_interval, 200_000);
    }
}
