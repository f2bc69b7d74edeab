//! The check: was the page at one address of each region accessed during the interval? (spec: damon §3)
//!
//! Kernel: `damon_pa_prepare_access_checks`, `damon_pa_check_accesses` in `mm/damon/paddr.c`;
//! `damon_va_prepare_access_checks`, `damon_va_check_accesses` in `mm/damon/vaddr.c`.

use std::ops::Range;

use super::{Monitor, random::Random, region::Region};

/// What the monitor asks of a memory. The simulated machine, a replay and the pager implement it over their accessed
/// bits. Targets are numbered as they were given to the monitor.
pub trait AccessSampler {
    /// Makes the page at `address` old: [`AccessSampler::accessed`] will say whether it was used from here on. Nothing
    /// happens where there is no page.
    fn prepare(&mut self, target: usize, address: u64);

    /// Whether the page at `address` was accessed since it was prepared; false where there is no page.
    fn accessed(&mut self, target: usize, address: u64) -> bool;

    /// Whether the target still exists. One that does not counts as never accessed.
    fn is_valid(&self, target: usize) -> bool {
        let _ = target;
        true
    }

    /// Where the target's memory lies now, if that can change: sorted and without overlap.
    fn ranges(&mut self, target: usize) -> Option<Vec<Range<u64>>> {
        let _ = target;
        None
    }

    /// Nanoseconds that the monitoring thread has spent, ever growing: its CPU clock, or a model of it. With the
    /// default of 0 the monitor knows its samples but not its time.
    fn work_ns(&self) -> u64 {
        0
    }
}

impl Monitor {
    /// Chooses an address in each region and makes it old.
    pub fn prepare<S: AccessSampler>(&mut self, sampler: &mut S) {
        let before = sampler.work_ns();
        let profile = self.profile;
        for (index, target) in self.targets.iter_mut().enumerate() {
            if !sampler.is_valid(index) {
                continue;
            }
            for region in target.regions_mut() {
                region.sampling_address = if profile.truncates_offsets() {
                    truncated(&mut self.random, region, profile)
                } else {
                    self.random.within(region.start, region.end)
                };
                sampler.prepare(index, region.sampling_address);
            }
        }
        self.counters.sampling_ns += sampler.work_ns() - before;
    }

    /// Asks for each address chosen by [`Monitor::prepare`] and counts. Returns the highest count so far in this
    /// aggregation, over all targets.
    pub fn check<S: AccessSampler>(&mut self, sampler: &mut S) -> u32 {
        let before = sampler.work_ns();
        let window = self.attributes.max_nr_accesses();
        let mut highest = 0;
        let mut regions = 0;
        for (index, target) in self.targets.iter_mut().enumerate() {
            regions += target.regions().len() as u64;
            let valid = sampler.is_valid(index);
            if !valid && self.profile.keeps_elapsed_time() {
                continue;
            }
            for region in target.regions_mut() {
                let accessed = valid && sampler.accessed(index, region.sampling_address);
                region.count(accessed, window);
                self.counters.checks += u64::from(valid);
                self.counters.accessed += u64::from(accessed);
                highest = highest.max(region.nr_accesses);
            }
        }
        self.counters.intervals += 1;
        self.counters.peak_regions = self.counters.peak_regions.max(regions);
        self.counters.sampling_ns += sampler.work_ns() - before;
        highest
    }
}

/// The draw of the kernels that pass the span as a 32-bit number: a region of 4 GiB and more is only sampled in its
/// first `size mod 2^32` bytes (spec: damon §3).
fn truncated(random: &mut Random, region: &Region, profile: super::Profile) -> u64 {
    let span = region.size() & 0xffff_ffff;
    if span == 0 && profile == super::Profile::K612 {
        return random.within(region.start, region.start + (1 << 32));
    }
    random.within(region.start, region.start + span)
}

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use super::*;

    #[test]
    fn older_profiles_sample_only_the_low_32_bits_of_a_size() {
        let mut random = Random::new(3);
        let ten_gib = Region::new(0, 10 << 30);
        assert!((0..1000).all(|_| truncated(&mut random, &ten_gib, Profile::K60) < 2 << 30));
        let four_gib = Region::new(4096, 4096 + (4 << 30));
        assert_eq!(truncated(&mut random, &four_gib, Profile::K60), 4096);
        assert!((0..100).any(|_| truncated(&mut random, &four_gib, Profile::K612) > 1 << 31));
    }
}
