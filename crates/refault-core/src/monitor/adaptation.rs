//! Merging neighbours that look alike and splitting the rest at random (spec: damon §6, §7).
//!
//! Kernel: `kdamond_merge_regions`, `damon_merge_regions_of`, `damon_merge_two_regions`, `kdamond_split_regions`,
//! `damon_split_regions_of`, `damon_split_region_at` in `mm/damon/core.c`.

use super::Monitor;
use super::profile::Profile;
use super::region::Region;
use super::sampling::AccessSampler;
use super::target::Target;

impl Monitor {
    /// The largest region that merging may make: an even share of the total (spec: damon §6.3).
    pub fn region_size_limit(&self) -> u64 {
        (self.size() / self.attributes.min_nr_regions as u64).max(self.attributes.min_region_size)
    }

    /// Renews the size limit and, where the profile enforces it, cuts larger regions at it from their low end.
    pub(crate) fn limit_sizes(&mut self) {
        self.size_limit = self.region_size_limit();
        if !self.profile.enforces_size_limit() {
            return;
        }
        self.size_limit = self.size_limit.next_multiple_of(self.attributes.min_region_size);
        for target in &mut self.targets {
            if target.regions().iter().any(|region| region.size() > self.size_limit) {
                cut_at_limit(target, self.size_limit, self.profile, &mut self.scratch);
            }
        }
    }

    /// Merges after an aggregation whose highest count was `highest`, aging each region first; repeats with a higher
    /// threshold until the bound on regions is met. Cost: linear in regions, times at most log2(checks) passes.
    pub fn merge_regions<S: AccessSampler>(&mut self, highest: u32, sampler: &S) {
        let before = sampler.work_ns();
        let most = self.attributes.samples(self.attributes.aggr_interval);
        let mut threshold = u64::from(highest / 10);
        let mut count_age = true;
        loop {
            let mut regions = 0;
            for target in &mut self.targets {
                let merged = merge_pass(target, threshold, self.size_limit, count_age, self.profile);
                self.counters.merged += merged as u64;
                regions += target.regions().len();
            }
            let over = regions > self.attributes.max_nr_regions;
            if !self.profile.repeats_merge() || !over {
                break;
            }
            if self.profile.ages_in_every_pass() {
                threshold = (2 * threshold).max(1);
                if threshold / 2 >= most {
                    break;
                }
            } else {
                count_age = false;
                if threshold >= most {
                    break;
                }
                threshold = if threshold < most / 2 { (2 * threshold).max(1) } else { most };
            }
        }
        self.counters.aggregations += 1;
        self.counters.adaptation_ns += sampler.work_ns() - before;
    }

    /// Starts the next aggregation's counts.
    pub fn reset_aggregated(&mut self) {
        for target in &mut self.targets {
            for region in target.regions_mut() {
                region.last_nr_accesses = region.nr_accesses;
                if self.profile.is_current() {
                    region.nr_accesses_bp = u64::from(region.nr_accesses) * super::region::BP;
                }
                region.nr_accesses = 0;
            }
        }
    }

    /// Cuts each region in two, or in three when cutting in two found nothing, unless there are many already.
    pub fn split_regions<S: AccessSampler>(&mut self, sampler: &S) {
        let before = sampler.work_ns();
        let regions = self.nr_regions();
        let most = self.attributes.max_nr_regions;
        if regions > most / 2 {
            return;
        }
        let pieces = if self.regions_at_last_split == regions && regions < most / 3 { 3 } else { 2 };
        let min_size = self.attributes.min_region_size;
        for target in &mut self.targets {
            self.scratch.clear();
            for mut region in target.regions_mut().drain(..) {
                let mut cut_off = [None; 2];
                for piece in cut_off.iter_mut().take(pieces - 1) {
                    if region.size() <= 2 * min_size {
                        break;
                    }
                    let tenths = u128::from(self.random.within(1, 10));
                    let cut = (tenths * u128::from(region.size()) / 10) as u64 / min_size * min_size;
                    if cut > 0 && cut < region.size() {
                        *piece = Some(region.split(cut, self.profile));
                        self.counters.split += 1;
                    }
                }
                // The second cut divides the left part again, so it lies in front of the first.
                self.scratch.push(region);
                self.scratch.extend(cut_off.into_iter().rev().flatten());
            }
            std::mem::swap(target.regions_mut(), &mut self.scratch);
        }
        self.regions_at_last_split = regions;
        self.counters.adaptation_ns += sampler.work_ns() - before;
    }

    /// Reads the layout of the address spaces again.
    pub fn update_layout<S: AccessSampler>(&mut self, sampler: &mut S) {
        let before = sampler.work_ns();
        for (index, target) in self.targets.iter_mut().enumerate() {
            if let Some(ranges) = sampler.ranges(index) {
                // A layout that is refused (an unsorted answer) leaves the regions as they are.
                if target.set_ranges(&ranges, self.attributes.min_region_size).is_ok() {
                    self.counters.updates += 1;
                }
            }
        }
        if !self.profile.enforces_size_limit() {
            self.size_limit = self.region_size_limit();
        }
        self.counters.adaptation_ns += sampler.work_ns() - before;
    }
}

/// One pass over a target; returns how many regions were folded away. In place.
fn merge_pass(target: &mut Target, threshold: u64, size_limit: u64, count_age: bool, profile: Profile) -> usize {
    let regions = target.regions_mut();
    let before = regions.len();
    let mut kept = 0;
    for at in 0..before {
        let mut region = regions[at];
        if count_age {
            advance_age(&mut region, threshold, profile);
        }
        if kept > 0 {
            let left = &mut regions[kept - 1];
            if left.end == region.start
                && u64::from(left.nr_accesses.abs_diff(region.nr_accesses)) <= threshold
                && left.size() + region.size() <= size_limit
            {
                left.fold(&region);
                continue;
            }
        }
        regions[kept] = region;
        kept += 1;
    }
    regions.truncate(kept);
    before - kept
}

/// A region whose count changed by more than the threshold starts anew (spec: damon §6.1).
fn advance_age(region: &mut Region, threshold: u64, profile: Profile) {
    let changed = u64::from(region.nr_accesses.abs_diff(region.last_nr_accesses)) > threshold;
    let woke = profile.resets_age_on_zero_change() && (region.nr_accesses == 0) != (region.last_nr_accesses == 0);
    region.age = if changed || woke { 0 } else { region.age.saturating_add(1) };
}

fn cut_at_limit(target: &mut Target, limit: u64, profile: Profile, scratch: &mut Vec<Region>) {
    scratch.clear();
    for mut region in target.regions_mut().drain(..) {
        while region.size() > limit {
            let right = region.split(limit, profile);
            scratch.push(region);
            region = right;
        }
        scratch.push(region);
    }
    std::mem::swap(target.regions_mut(), scratch);
}

#[cfg(test)]
mod tests {
    use super::super::{Attributes, Monitor};
    use super::*;

    fn bounds(target: &Target) -> Vec<(u64, u64)> {
        target.regions().iter().map(|r| (r.start, r.end)).collect()
    }

    fn counted(regions: &[(u64, u64, u32)]) -> Target {
        let region = |&(start, end, nr_accesses)| Region { nr_accesses, ..Region::new(start, end) };
        Target::from_regions(regions.iter().map(region).collect())
    }

    #[test]
    fn merge_joins_what_is_alike_adjacent_and_small_enough() {
        let mut target = counted(&[
            (0, 100, 0),
            (100, 112, 0),
            (114, 122, 10),
            (122, 130, 10),
            (130, 156, 20),
            (156, 170, 30),
            (170, 184, 1),
            (184, 230, 2),
            (230, 10170, 5),
        ]);
        merge_pass(&mut target, 9, 9999, true, Profile::K72);
        assert_eq!(bounds(&target), [(0, 112), (114, 130), (130, 156), (156, 170), (170, 230), (230, 10170)]);
    }

    #[test]
    fn age_starts_anew_on_change_and_on_waking() {
        let aged = |now, last, profile| {
            let mut region = Region { nr_accesses: now, last_nr_accesses: last, age: 4, ..Region::new(0, 4096) };
            advance_age(&mut region, 2, profile);
            region.age
        };
        assert_eq!(aged(5, 3, Profile::K72), 5);
        assert_eq!(aged(6, 3, Profile::K72), 0);
        assert_eq!(aged(0, 2, Profile::K72), 0);
        assert_eq!(aged(0, 2, Profile::K612), 5);
    }

    #[test]
    fn size_limit_cuts_from_the_low_end() {
        for (size, unit, min_nr, limit, regions) in
            [(10, 1, 10, 1, 10), (10, 1, 15, 1, 10), (10, 2, 2, 6, 2), (10, 2, 10, 2, 5)]
        {
            let attributes = Attributes { min_region_size: unit, min_nr_regions: 3, ..Attributes::default() };
            let target = Target::over(0..size, unit).unwrap();
            let mut monitor = Monitor::new(Profile::K72, attributes, vec![target], 0).unwrap();
            // The published vectors use fewer regions than attributes may ask for.
            monitor.attributes.min_nr_regions = min_nr;
            monitor.targets = vec![Target::over(0..size, unit).unwrap()];
            monitor.limit_sizes();
            assert_eq!((monitor.size_limit, monitor.nr_regions()), (limit, regions), "{size} {unit} {min_nr}");
        }
    }
}
