//! Region-based monitoring of data accesses: how often, and for how long, which memory is used, at a cost that the
//! user sets.
//!
//! A [`Monitor`] holds [`Target`]s (address spaces) cut into [`Region`]s. Each sampling interval one address per region
//! is checked through an [`AccessSampler`]. After an aggregation interval neighbours that look alike are merged and the
//! rest is split at random. So the borders drift to where the behaviour changes. [`crate::schemes::Kdamond`] is the
//! loop that calls the steps in their order; it alone knows of time.
//!
//! Invariants: the regions of a target are in address order, do not overlap and cover its ranges; merging conserves
//! bytes; a region is never smaller than `min_region_size` unless its range is; after a merge there are at most
//! `max_nr_regions` regions wherever gaps and the size limit allow it.
//!
//! Cost: two calls of the sampler per region and sampling interval, at most `max_nr_regions * 10^6 / sample_interval`
//! checks per second; everything else is linear in regions and happens once per aggregation. Nothing depends on the
//! size of the memory.
//!
//! Kernel: `struct damon_ctx`, `struct damon_operations` in `include/linux/damon.h`; `kdamond_fn` in `mm/damon/core.c`.
//! Source: spec: damon; Park et al., "Profiling Dynamic Data Access Patterns with Controlled Overhead and Quality",
//! Middleware 2019 (industry track).
//!
//! ```
//! use refault_core::monitor::{AccessSampler, Attributes, Monitor, Profile, Target};
//!
//! /// Memory whose first MiB is always accessed.
//! struct Program;
//! impl AccessSampler for Program {
//!     fn prepare(&mut self, _target: usize, _address: u64) {}
//!     fn accessed(&mut self, _target: usize, address: u64) -> bool {
//!         address < 1 << 20
//!     }
//! }
//!
//! let target = Target::over(0..16 << 20, 4096)?;
//! let mut monitor = Monitor::new(Profile::default(), Attributes::default(), vec![target], 1)?;
//! monitor.prepare(&mut Program);
//! monitor.check(&mut Program);
//! assert!(monitor.targets()[0].regions().len() >= Attributes::default().min_nr_regions as usize);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod accuracy;
mod adaptation;
mod areas;
mod attributes;
pub mod feedback;
mod intervals;
mod profile;
mod random;
mod region;
mod sampling;
mod target;
#[cfg(test)]
mod tests;

pub use areas::three_areas;
pub use attributes::{Attributes, AttributesError, IntervalsGoal};
pub use profile::Profile;
pub use random::Random;
pub use region::Region;
pub use sampling::AccessSampler;
pub use target::{RangeError, Target, View};

/// What a monitor did, counted by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorCounters {
    /// Sampling intervals that ended.
    pub intervals: u64,
    /// Addresses checked: the unit of the monitor's cost.
    pub checks: u64,
    /// Checks that found an access.
    pub accessed: u64,
    /// Aggregation intervals that ended.
    pub aggregations: u64,
    /// Regions folded into their left neighbour.
    pub merged: u64,
    /// Regions made by splitting.
    pub split: u64,
    /// Times the layout of the address spaces was read again.
    pub updates: u64,
    /// Times the tuner changed the intervals.
    pub tunings: u64,
    /// The largest number of regions seen at the end of a sampling interval.
    pub peak_regions: u64,
    /// Nanoseconds spent in checks, by the clock of [`AccessSampler::work_ns`].
    pub sampling_ns: u64,
    /// Nanoseconds spent in merging, splitting and updating, by the same clock.
    pub adaptation_ns: u64,
}

/// Regions of some targets, and the state that adapts them. See the module for invariants and cost.
pub struct Monitor {
    profile: Profile,
    attributes: Attributes,
    pub(crate) targets: Vec<Target>,
    random: Random,
    size_limit: u64,
    /// Regions before the last split pass that split: the same number again means that twofold splits found nothing.
    regions_at_last_split: usize,
    counters: MonitorCounters,
    scratch: Vec<Region>,
}

impl Monitor {
    /// A monitor over `targets`; every random choice follows from `seed`.
    pub fn new(
        profile: Profile,
        attributes: Attributes,
        targets: Vec<Target>,
        seed: u64,
    ) -> Result<Monitor, AttributesError> {
        attributes.check(profile)?;
        let mut monitor = Monitor {
            profile,
            attributes,
            targets,
            random: Random::new(seed),
            size_limit: 0,
            regions_at_last_split: 0,
            counters: MonitorCounters::default(),
            scratch: Vec::new(),
        };
        monitor.limit_sizes();
        Ok(monitor)
    }

    /// Whose rules are followed.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Intervals and bounds now in force.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The monitored address spaces.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// What was done so far.
    pub fn counters(&self) -> &MonitorCounters {
        &self.counters
    }

    /// Regions over all targets.
    pub fn nr_regions(&self) -> usize {
        self.targets.iter().map(|target| target.regions().len()).sum()
    }

    /// Monitored bytes over all targets.
    pub fn size(&self) -> u64 {
        self.targets.iter().fold(0, |sum: u64, target| sum.saturating_add(target.size()))
    }

    /// Nanoseconds spent so far, by the clock of [`AccessSampler::work_ns`]; 0 where the sampler has none.
    pub fn work_ns(&self) -> u64 {
        self.counters.sampling_ns + self.counters.adaptation_ns
    }

    /// Bytes of state held, for the price list in the documentation.
    pub fn metadata_bytes(&self) -> usize {
        let regions: usize = self.targets.iter().map(|target| target.regions().len()).sum();
        (regions + self.scratch.capacity()) * size_of::<Region>()
    }
}
