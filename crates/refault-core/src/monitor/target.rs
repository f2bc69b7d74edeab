//! An address space that is monitored, and how its layout is set (spec: damon §4, §8).
//!
//! Kernel: `struct damon_target` in `include/linux/damon.h`; `damon_set_regions` in `mm/damon/core.c`; `damon_va_init`,
//! `damon_va_update` in `mm/damon/vaddr.c`.

use std::ops::Range;

use super::profile::Profile;
use super::region::Region;

/// How addresses are to be understood: which layer answers the checks (spec: damon §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum View {
    /// A process; its three areas are found and followed.
    Virtual,
    /// A process; only the given ranges.
    FixedVirtual,
    /// Physical memory.
    Physical,
}

impl View {
    /// All views.
    pub const ALL: [View; 3] = [View::Virtual, View::FixedVirtual, View::Physical];

    /// The name used in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            View::Virtual => "vaddr",
            View::FixedVirtual => "fvaddr",
            View::Physical => "paddr",
        }
    }

    /// The view of a name.
    pub fn from_name(name: &str) -> Option<View> {
        View::ALL.into_iter().find(|view| view.name() == name)
    }
}

/// Why ranges are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// A range ends where it starts, or before.
    Empty(Range<u64>),
    /// A range starts before the one in front of it ends, both rounded to the smallest region.
    Overlap(Range<u64>, Range<u64>),
}

impl std::fmt::Display for RangeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RangeError::Empty(r) => write!(f, "the range {}-{} is empty", r.start, r.end),
            RangeError::Overlap(a, b) => {
                write!(f, "the ranges {}-{} and {}-{} overlap or are out of order", a.start, a.end, b.start, b.end)
            }
        }
    }
}

impl std::error::Error for RangeError {}

/// The regions of one address space, in address order and without overlap. Gaps are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    regions: Vec<Region>,
}

impl Target {
    /// A target over `ranges`, one region each, borders rounded outwards to `min_region_size`.
    pub fn new(ranges: &[Range<u64>], min_region_size: u64) -> Result<Target, RangeError> {
        let mut target = Target::default();
        target.set_ranges(ranges, min_region_size)?;
        Ok(target)
    }

    /// A target over one range.
    pub fn over(range: Range<u64>, min_region_size: u64) -> Result<Target, RangeError> {
        Target::new(std::slice::from_ref(&range), min_region_size)
    }

    /// The regions, in address order.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    pub(crate) fn regions_mut(&mut self) -> &mut Vec<Region> {
        &mut self.regions
    }

    /// A target of given regions, in order and without overlap.
    #[cfg(test)]
    pub(crate) fn from_regions(regions: Vec<Region>) -> Target {
        debug_assert!(regions.windows(2).all(|pair| pair[0].end <= pair[1].start));
        Target { regions }
    }

    /// Monitored bytes.
    pub fn size(&self) -> u64 {
        self.regions.iter().map(Region::size).sum()
    }

    /// Sets where the target's memory lies: regions that meet no range go, those that do are stretched or shrunk to it
    /// and keep their history, gaps become new regions. Ranges must be sorted; an overlap is judged after rounding,
    /// because regions may not overlap. Cost: linear in regions times ranges.
    pub fn set_ranges(&mut self, ranges: &[Range<u64>], min_region_size: u64) -> Result<(), RangeError> {
        let highest = u64::MAX / min_region_size * min_region_size;
        let round = |r: &Range<u64>| {
            let end = r.end.checked_next_multiple_of(min_region_size).unwrap_or(highest);
            r.start / min_region_size * min_region_size..end
        };
        if let Some(empty) = ranges.iter().find(|r| r.start >= r.end || round(r).is_empty()) {
            return Err(RangeError::Empty(empty.clone()));
        }
        if let Some(pair) = ranges.windows(2).find(|pair| round(&pair[0]).end > round(&pair[1]).start) {
            return Err(RangeError::Overlap(pair[0].clone(), pair[1].clone()));
        }
        let meets = |region: &Region, range: &Range<u64>| region.start < range.end && range.start < region.end;
        self.regions.retain(|region| ranges.iter().any(|range| meets(region, range)));
        for range in ranges {
            let rounded = round(range);
            let first = self.regions.iter().position(|region| meets(region, range));
            let Some(first) = first else {
                let at = self.regions.partition_point(|region| region.start < rounded.start);
                self.regions.insert(at, Region::new(rounded.start, rounded.end));
                continue;
            };
            let count = self.regions[first..].iter().take_while(|region| meets(region, range)).count();
            self.regions[first].start = rounded.start;
            self.regions[first + count - 1].end = rounded.end;
            self.fill_gaps(first, first + count);
        }
        Ok(())
    }

    /// Puts a new region into each gap between neighbours of `first..end`.
    fn fill_gaps(&mut self, first: usize, end: usize) {
        let tail = self.regions.split_off(end.min(self.regions.len()));
        let known = self.regions.split_off(first);
        for region in known {
            if let Some(last) = self.regions[first..].last().map(|last| last.end)
                && last < region.start
            {
                self.regions.push(Region::new(last, region.start));
            }
            self.regions.push(region);
        }
        self.regions.extend(tail);
    }

    /// Cuts fresh areas into `min_nr_regions` pieces in all, as kernels without size enforcement start
    /// (spec: damon §4.1). With it the areas stay as they are and [`super::Monitor`] cuts them.
    pub fn start_in_pieces(&mut self, profile: Profile, min_nr_regions: usize, min_region_size: u64) {
        if profile.enforces_size_limit() {
            return;
        }
        let piece = (self.size() / min_nr_regions as u64).max(min_region_size);
        let areas = std::mem::take(&mut self.regions);
        for area in areas {
            let parts = (area.size() / piece).max(1);
            let size = area.size() / parts / min_region_size * min_region_size;
            for part in 0..parts {
                let start = area.start + part * size;
                let end = if part + 1 == parts { area.end } else { start + size };
                self.regions.push(Region::new(start, end));
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]
mod tests {
    use super::*;

    fn bounds(target: &Target) -> Vec<(u64, u64)> {
        target.regions().iter().map(|r| (r.start, r.end)).collect()
    }

    #[test]
    fn known_regions_are_shrunk_and_gaps_filled() {
        let mut target = Target::from_regions(vec![Region::new(4, 16), Region::new(24, 32)]);
        target.set_ranges(&[8..28], 1).unwrap();
        assert_eq!(bounds(&target), [(8, 16), (16, 24), (24, 28)]);
    }

    #[test]
    fn ranges_are_handled_one_after_the_other() {
        let mut target = Target::from_regions(vec![Region { age: 7, ..Region::new(0, 100) }]);
        target.set_ranges(&[0..30, 60..100], 1).unwrap();
        assert_eq!(bounds(&target), [(0, 30), (60, 100)]);
        assert_eq!([target.regions()[0].age, target.regions()[1].age], [7, 0]);
    }

    #[test]
    fn bad_ranges_are_refused_and_change_nothing() {
        let mut target = Target::new(&[0..4096], 4096).unwrap();
        assert_eq!(target.set_ranges(&[5..5], 4096), Err(RangeError::Empty(5..5)));
        assert_eq!(target.set_ranges(&[0..5000, 6000..9000], 4096), Err(RangeError::Overlap(0..5000, 6000..9000)));
        assert_eq!(target.set_ranges(&[8192..9000, 0..100], 4096), Err(RangeError::Overlap(8192..9000, 0..100)));
        assert_eq!(bounds(&target), [(0, 4096)]);
    }

    #[test]
    fn the_end_of_the_address_space_is_rounded_down() {
        let end = u64::MAX / 4096 * 4096;
        assert_eq!(bounds(&Target::over(5..u64::MAX, 4096).unwrap()), [(0, end)]);
        assert!(Target::over(end + 1..u64::MAX, 4096).is_err());
    }

    #[test]
    fn older_profiles_start_in_pieces() {
        let mut target = Target::new(&[0..400, 1000..1100], 10).unwrap();
        target.start_in_pieces(Profile::K612, 10, 10);
        assert_eq!(target.regions().len(), 10);
        let mut target = Target::new(&[0..70, 1000..1000 + 25], 10).unwrap();
        target.start_in_pieces(Profile::K60, 4, 10);
        assert_eq!(bounds(&target), [(0, 30), (30, 70), (1000, 1030)]);
    }
}
