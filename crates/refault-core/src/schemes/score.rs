//! Which of the fitting regions come first under a quota (spec: damos §7.5).
//!
//! Kernel: `damon_hot_score`, `damon_cold_score` in `mm/damon/ops-common.c`.

use super::action::Action;
use crate::monitor::{Attributes, Profile, Region, View};

/// The highest score.
pub const MAX_SCORE: u32 = 99;

/// How much each property counts; only the ratio matters. The weight of the size is accepted and never used, as in
/// the kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Of the size: ignored.
    pub size: u32,
    /// Of the frequency.
    pub nr_accesses: u32,
    /// Of the age.
    pub age: u32,
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The hottest.
    Hot,
    /// The coldest.
    Cold,
    /// Whatever comes first by address.
    Equal,
}

impl Priority {
    /// The priority that goes with an action in a view.
    pub fn of(action: &Action, view: View) -> Priority {
        match action {
            Action::Pageout | Action::MigrateCold { .. } => Priority::Cold,
            Action::MigrateHot { .. } => Priority::Hot,
            Action::LruDeprio if view == View::Physical => Priority::Cold,
            Action::LruPrio if view == View::Physical => Priority::Hot,
            _ => Priority::Equal,
        }
    }

    /// The score of a region, 0..=99.
    pub fn score(self, region: &Region, weights: &Weights, attributes: &Attributes, profile: Profile) -> u32 {
        match self {
            Priority::Hot => hotness(region, weights, attributes, profile),
            Priority::Cold => MAX_SCORE - hotness(region, weights, attributes, profile),
            Priority::Equal => MAX_SCORE,
        }
    }
}

fn hotness(region: &Region, weights: &Weights, attributes: &Attributes, profile: Profile) -> u32 {
    // 6.12 scores the running aggregation although its pattern looks at the moving sum.
    let count = if profile.is_current() { region.frequency(profile) } else { region.nr_accesses };
    let frequency = u64::from(count) * 100 / u64::from(attributes.max_nr_accesses());
    let seconds = u128::from(region.age) * u128::from(attributes.aggr_interval) / 1_000_000;
    let log = if seconds > 0 { (seconds.ilog2() + 1).min(32) as i64 } else { 0 };
    let log = if frequency == 0 { -log } else { log };
    let age = ((log + 32) * 100 / 32 / 2) as u64;
    let (by_frequency, by_age) = (u64::from(weights.nr_accesses), u64::from(weights.age));
    let sum = by_frequency * frequency + by_age * age;
    let hotness = sum.checked_div(by_frequency + by_age).unwrap_or(0);
    (hotness * u64::from(MAX_SCORE) / 100).min(u64::from(MAX_SCORE)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_follow_the_worked_table() {
        let table = [
            (20, 600, 1, 1, 78),
            (10, 30, 1, 1, 50),
            (1, 0, 1, 1, 26),
            (0, 5, 1, 1, 24),
            (0, 1200, 1, 1, 18),
            (0, 36_000, 1, 1, 14),
            (0, 1200, 1, 0, 0),
            (0, 1200, 0, 1, 38),
            (0, 864_000, 0, 1, 22),
            (20, 600, 0, 0, 0),
        ];
        let attributes = Attributes::default();
        for (count, age, nr_accesses, by_age, hot) in table {
            let region =
                Region { nr_accesses: count, nr_accesses_bp: u64::from(count) * 10_000, age, ..Region::new(0, 4096) };
            let weights = Weights { size: 5, nr_accesses, age: by_age };
            for profile in Profile::ALL {
                assert_eq!(Priority::Hot.score(&region, &weights, &attributes, profile), hot);
                assert_eq!(Priority::Cold.score(&region, &weights, &attributes, profile), 99 - hot);
            }
        }
    }
}
