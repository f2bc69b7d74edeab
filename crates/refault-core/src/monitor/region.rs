//! One stretch of addresses that is taken to be accessed evenly.
//!
//! Kernel: `struct damon_region` in `include/linux/damon.h`; `damon_update_region_access_rate`, `damon_moving_sum` in
//! `mm/damon/core.c`.

use super::profile::Profile;

/// Parts of a check: the unit of the moving sum.
pub(crate) const BP: u64 = 10_000;

/// A half-open stretch of addresses and what is known of it (spec: damon §1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// The address under check in the current sampling interval.
    pub sampling_address: u64,
    /// Positive checks since the last aggregation ended.
    pub nr_accesses: u32,
    /// Pseudo moving sum of the checks over one aggregation, in 1/10 000 of a check (spec: damon §5).
    pub nr_accesses_bp: u64,
    /// `nr_accesses` of the last finished aggregation.
    pub last_nr_accesses: u32,
    /// Aggregation intervals for which the pattern has been kept.
    pub age: u32,
}

impl Region {
    /// A region of which nothing is known.
    pub const fn new(start: u64, end: u64) -> Region {
        Region { start, end, sampling_address: start, nr_accesses: 0, nr_accesses_bp: 0, last_nr_accesses: 0, age: 0 }
    }

    /// Bytes.
    #[inline]
    pub const fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Positive checks of one aggregation as schemes see them (spec: damos §2).
    #[inline]
    pub fn frequency(&self, profile: Profile) -> u32 {
        if profile.has_moving_sum() { (self.nr_accesses_bp / BP) as u32 } else { self.nr_accesses }
    }

    /// Counts one check; `window` is the number of checks of an aggregation (spec: damon §5).
    #[inline]
    pub(crate) fn count(&mut self, accessed: bool, window: u32) {
        let leaving = u64::from(self.last_nr_accesses) * BP / u64::from(window);
        self.nr_accesses_bp = self.nr_accesses_bp.saturating_sub(leaving) + if accessed { BP } else { 0 };
        self.nr_accesses += u32::from(accessed);
    }

    /// Folds the right neighbour in; means are weighted by size and truncated (spec: damon §6.1).
    pub(crate) fn fold(&mut self, right: &Region) {
        let (sl, sr) = (u128::from(self.size()), u128::from(right.size()));
        let mean = |l: u32, r: u32| ((u128::from(l) * sl + u128::from(r) * sr) / (sl + sr)) as u32;
        self.nr_accesses = mean(self.nr_accesses, right.nr_accesses);
        self.age = mean(self.age, right.age);
        self.nr_accesses_bp = u64::from(self.nr_accesses) * BP;
        self.end = right.end;
    }

    /// Cuts the region after `size` bytes (`0 < size < self.size()`) and returns the right part.
    pub(crate) fn split(&mut self, size: u64, profile: Profile) -> Region {
        debug_assert!(0 < size && size < self.size());
        let mut right = Region { start: self.start + size, sampling_address: self.start + size, ..*self };
        if profile.split_forgets_count() {
            right.nr_accesses = 0;
            right.nr_accesses_bp = 0;
        }
        self.end = right.start;
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_sum_follows_the_golden_vector() {
        let mut region = Region { nr_accesses_bp: 50_000, last_nr_accesses: 5, ..Region::new(0, 4096) };
        let sums: Vec<u64> = [1, 0, 1, 0, 0, 0, 1, 0, 0, 0]
            .into_iter()
            .map(|hit| {
                region.count(hit == 1, 10);
                region.nr_accesses_bp
            })
            .collect();
        assert_eq!(sums, [55000, 50000, 55000, 50000, 45000, 40000, 45000, 40000, 35000, 30000]);
    }

    #[test]
    fn moving_sum_keeps_a_residue_where_the_window_does_not_divide() {
        let mut region = Region { nr_accesses_bp: 10_000, last_nr_accesses: 1, ..Region::new(0, 4096) };
        (0..30).for_each(|i| region.count(i == 7, 30));
        assert_eq!(region.nr_accesses_bp, 10_010);
    }

    #[test]
    fn fold_takes_the_truncated_weighted_means() {
        let mut left = Region { nr_accesses: 10, age: 9, last_nr_accesses: 3, ..Region::new(0, 100) };
        left.fold(&Region { nr_accesses: 20, age: 21, last_nr_accesses: 7, ..Region::new(100, 300) });
        assert_eq!((left.start, left.end, left.nr_accesses, left.age), (0, 300, 16, 17));
        assert_eq!((left.nr_accesses_bp, left.last_nr_accesses), (160_000, 3));
    }

    #[test]
    fn split_copies_what_is_known() {
        let known =
            Region { nr_accesses: 4, nr_accesses_bp: 40_000, age: 3, last_nr_accesses: 5, ..Region::new(0, 100) };
        let mut left = known;
        let right = left.split(25, Profile::K72);
        assert_eq!((left.start, left.end, right.start, right.end), (0, 25, 25, 100));
        assert_eq!((right.age, right.nr_accesses, right.last_nr_accesses), (3, 4, 5));
        let mut left = known;
        assert_eq!(left.split(25, Profile::K60).nr_accesses, 0);
    }
}
