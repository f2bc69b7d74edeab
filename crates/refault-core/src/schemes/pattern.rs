//! Which regions a scheme is for (spec: damos §2).
//!
//! Kernel: `struct damos_access_pattern` in `include/linux/damon.h`; `damos_valid_target` in `mm/damon/core.c`.

use crate::monitor::{Profile, Region};

/// A closed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Smallest value that fits.
    pub min: u64,
    /// Largest value that fits.
    pub max: u64,
}

impl Bounds {
    /// Everything fits.
    pub const ANY: Bounds = Bounds { min: 0, max: u64::MAX };

    /// From `min` up.
    pub const fn at_least(min: u64) -> Bounds {
        Bounds { min, max: u64::MAX }
    }

    /// Whether the value fits.
    #[inline]
    pub const fn contains(&self, value: u64) -> bool {
        self.min <= value && value <= self.max
    }
}

/// Three ranges that a region must be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Bytes.
    pub size: Bounds,
    /// Checks of one aggregation that found an access.
    pub nr_accesses: Bounds,
    /// Aggregations for which the pattern has been kept.
    pub age: Bounds,
}

impl Pattern {
    /// Every region.
    pub const ANY: Pattern = Pattern { size: Bounds::ANY, nr_accesses: Bounds::ANY, age: Bounds::ANY };

    /// Whether a region fits.
    #[inline]
    pub fn matches(&self, region: &Region, profile: Profile) -> bool {
        self.size.contains(region.size())
            && self.nr_accesses.contains(u64::from(region.frequency(profile)))
            && self.age.contains(u64::from(region.age))
    }
}
