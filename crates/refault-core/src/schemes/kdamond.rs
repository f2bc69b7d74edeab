//! The loop: samples, merges, acts, resets, splits, in the kernels' order (spec: damon §2).
//!
//! The caller owns time. It calls [`Kdamond::begin`], waits as long as told, calls [`Kdamond::finish`], and so on:
//!
//! ```text
//! loop {
//!     match kdamond.begin(now, &mut memory) {
//!         Next::Sample { wait } => { now += wait; kdamond.finish(now, &mut memory, &mut observer) }
//!         Next::Inactive { wait } => now += wait,      // watermarks: no monitoring meanwhile
//!         Next::Ended => break,
//!     }
//! }
//! ```
//!
//! Kernel: `kdamond_fn`, `kdamond_wait_activation` in `mm/damon/core.c`.

use std::ops::Range;

use super::actor::SchemeActor;
use super::apply::{Pass, TriedRegion, apply_schemes};
use super::scheme::Scheme;
use crate::monitor::{AccessSampler, Attributes, AttributesError, Monitor, RangeError, Region, View};

/// What to do after [`Kdamond::begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait this many µs, then call [`Kdamond::finish`].
    Sample {
        /// The sampling interval.
        wait: u64,
    },
    /// No scheme may run: wait this many µs, then call [`Kdamond::begin`] again.
    Inactive {
        /// The shortest interval of the schemes' watermarks.
        wait: u64,
    },
    /// Every target is gone.
    Ended,
}

/// What may be traced of a kdamond, by name as the kernels' trace events. `()` traces nothing.
pub trait Observer {
    /// An aggregation ended: the regions of a target, merged, before their counts start anew.
    fn aggregated(&mut self, target: usize, regions: &[Region]) {
        let _ = (target, regions);
    }

    /// The tuner set a new sampling interval, in µs.
    fn intervals_tuned(&mut self, sample_interval: u64) {
        let _ = sample_interval;
    }

    /// A scheme is about to act on a region.
    fn before_apply(&mut self, scheme: usize, target: usize, region: &Region) {
        let _ = (scheme, target, region);
    }

    /// The byte quota in force for a scheme's pass.
    fn effective_size(&mut self, scheme: usize, bytes: u64) {
        let _ = (scheme, bytes);
    }
}

impl Observer for () {}

/// A monitor with its schemes. Cost as their modules say; nothing of its own.
pub struct Kdamond {
    monitor: Monitor,
    view: View,
    schemes: Vec<Scheme>,
    passed: u64,
    next_aggregation: u64,
    next_update: u64,
    next_tuning: u64,
    /// Deadlines as they stood when the sampling interval began: changes count from the next one on.
    deadlines: (u64, u64),
    /// For profiles that keep elapsed time: the last aggregation and update, in µs.
    last: (u64, u64),
    tried: Option<Vec<TriedRegion>>,
    /// Schemes whose interval the open request for tried regions still waits for.
    tried_waits: Vec<bool>,
    schemes_ns: u64,
}

impl Kdamond {
    /// A kdamond that starts at `now` (µs, any origin).
    pub fn new(monitor: Monitor, view: View, schemes: Vec<Scheme>, now: u64) -> Kdamond {
        let attributes = *monitor.attributes();
        let mut kdamond = Kdamond {
            monitor,
            view,
            schemes,
            passed: 0,
            next_aggregation: 0,
            next_update: 0,
            next_tuning: 0,
            deadlines: (0, 0),
            last: (now, now),
            tried: None,
            tried_waits: Vec::new(),
            schemes_ns: 0,
        };
        kdamond.restart_deadlines();
        kdamond.next_tuning =
            kdamond.next_aggregation.saturating_mul(attributes.intervals_goal.map_or(0, |goal| goal.aggrs));
        kdamond
    }

    /// The monitor.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// How addresses are understood.
    pub fn view(&self) -> View {
        self.view
    }

    /// The schemes, in order.
    pub fn schemes(&self) -> &[Scheme] {
        &self.schemes
    }

    /// Nanoseconds spent in the schemes, by the clock of [`AccessSampler::work_ns`].
    pub fn schemes_ns(&self) -> u64 {
        self.schemes_ns
    }

    /// Nanoseconds spent in all, by the same clock.
    pub fn work_ns(&self) -> u64 {
        self.monitor.work_ns() + self.schemes_ns
    }

    /// Puts new intervals and bounds in force; results are converted. Refused ones change nothing.
    pub fn set_attributes(&mut self, attributes: Attributes) -> Result<(), AttributesError> {
        let open = self.passed < self.next_aggregation;
        if self.monitor.set_attributes(attributes, open)? && self.monitor.profile().has_apply_interval() {
            self.restart_deadlines();
        }
        Ok(())
    }

    /// Puts other schemes in force, from the next pass on.
    pub(crate) fn replace_schemes(&mut self, schemes: Vec<Scheme>) {
        self.schemes = schemes;
    }

    /// Sets where the memory of the first target lies; what is known of regions that stay is kept.
    pub(crate) fn set_ranges(&mut self, ranges: &[Range<u64>]) -> Result<(), RangeError> {
        let unit = self.monitor.attributes().min_region_size;
        self.monitor.targets.first_mut().map_or(Ok(()), |target| target.set_ranges(ranges, unit))
    }

    /// Asks for the regions that the schemes act upon, for one full interval of each.
    pub fn request_tried_regions(&mut self) {
        self.tried = Some(Vec::new());
        self.tried_waits = vec![true; self.schemes.len()];
    }

    /// The regions asked for, once every scheme had its interval.
    pub fn take_tried_regions(&mut self) -> Option<Vec<TriedRegion>> {
        if self.tried_waits.contains(&true) { None } else { self.tried.take() }
    }

    /// Begins a sampling interval.
    pub fn begin<E: AccessSampler + SchemeActor>(&mut self, env: &mut E) -> Next {
        self.deadlines = (self.next_aggregation, self.next_update);
        let targets = self.monitor.targets().len();
        if targets > 0 && (0..targets).all(|target| !env.is_valid(target)) {
            return Next::Ended;
        }
        let free = env.free_permille();
        let waits = self.schemes.iter_mut().map(|scheme| {
            let (activated, wait) = scheme.settings.watermarks.next(scheme.activated, free);
            scheme.activated = activated;
            wait
        });
        // Every scheme is asked, whatever the others say.
        let wait = waits.fold(None, |least: Option<u64>, wait| Some(least.map_or(wait, |least| least.min(wait))));
        if let Some(wait) = wait.filter(|&wait| wait > 0) {
            self.tried = None;
            return Next::Inactive { wait };
        }
        self.monitor.prepare(env);
        Next::Sample { wait: self.monitor.attributes().sample_interval }
    }

    /// Ends the sampling interval at `now` (µs).
    pub fn finish<E, O>(&mut self, now: u64, env: &mut E, observer: &mut O)
    where
        E: AccessSampler + SchemeActor,
        O: Observer,
    {
        let profile = self.monitor.profile();
        self.passed += 1;
        let highest = self.monitor.check(env);
        let aggregates = self.is_aggregation_over(now);
        if aggregates {
            self.monitor.merge_regions(highest, env);
            if profile.enforces_size_limit() {
                self.monitor.limit_sizes();
            }
        }
        if aggregates || profile.has_apply_interval() {
            self.apply_schemes(now, env, observer);
        }
        if aggregates {
            self.end_aggregation(now, env, observer);
        }
        if self.is_update_over(now) {
            let interval = self.monitor.attributes().ops_update_interval;
            self.next_update = self.deadlines.1.saturating_add(self.monitor.attributes().samples(interval));
            self.last.1 = now;
            self.monitor.update_layout(env);
        }
    }

    /// Takes up where the targets' memory lies now, between two sampling intervals: for an environment that knows that
    /// it has changed, and need not wait for the update interval to find out. Deadlines stay as they are. Cost: as an
    /// update of the layout, a pass over the ranges and the regions.
    pub fn update_layout<E: AccessSampler>(&mut self, env: &mut E) {
        self.monitor.update_layout(env);
    }

    fn is_aggregation_over(&self, now: u64) -> bool {
        if self.monitor.profile().keeps_elapsed_time() {
            return now.saturating_sub(self.last.0) >= self.monitor.attributes().aggr_interval;
        }
        self.passed >= self.deadlines.0
    }

    fn is_update_over(&self, now: u64) -> bool {
        if self.monitor.profile().keeps_elapsed_time() {
            return now.saturating_sub(self.last.1) >= self.monitor.attributes().ops_update_interval;
        }
        self.passed >= self.deadlines.1
    }

    fn end_aggregation<E, O>(&mut self, now: u64, env: &mut E, observer: &mut O)
    where
        E: AccessSampler + SchemeActor,
        O: Observer,
    {
        let window = u64::from(self.monitor.attributes().max_nr_accesses());
        if let Some(goal) = self.monitor.attributes().intervals_goal
            && self.passed >= self.next_tuning
        {
            self.next_tuning = self.next_tuning.saturating_add(window.saturating_mul(goal.aggrs));
            if self.monitor.tune_intervals() {
                self.restart_deadlines();
                observer.intervals_tuned(self.monitor.attributes().sample_interval);
            }
        }
        let attributes = self.monitor.attributes();
        self.next_aggregation = self.deadlines.0.saturating_add(attributes.samples(attributes.aggr_interval));
        self.last.0 = now;
        for (index, target) in self.monitor.targets().iter().enumerate() {
            observer.aggregated(index, target.regions());
        }
        self.monitor.reset_aggregated();
        self.monitor.split_regions(env);
    }

    fn apply_schemes<E, O>(&mut self, now: u64, env: &mut E, observer: &mut O)
    where
        E: AccessSampler + SchemeActor,
        O: Observer,
    {
        let profile = self.monitor.profile();
        let due = |scheme: &Scheme| !profile.has_apply_interval() || self.passed >= scheme.next_apply;
        let pass = Pass {
            profile,
            view: self.view,
            attributes: *self.monitor.attributes(),
            now_ms: now / 1000,
            due: self.schemes.iter().map(due).collect(),
        };
        if !pass.due.contains(&true) {
            return;
        }
        let before = env.work_ns();
        let ran = apply_schemes(&mut self.monitor, &mut self.schemes, &pass, env, observer, &mut self.tried);
        self.schemes_ns += env.work_ns() - before;
        for (index, scheme) in self.schemes.iter_mut().enumerate().filter(|(index, _)| pass.due[*index]) {
            if ran {
                scheme.next_apply = self.passed.saturating_add(apply_samples(scheme, &pass.attributes));
            }
            if let Some(wait) = self.tried_waits.get_mut(index) {
                *wait = false;
            }
        }
    }

    fn restart_deadlines(&mut self) {
        let attributes = *self.monitor.attributes();
        self.next_aggregation = self.passed.saturating_add(attributes.samples(attributes.aggr_interval));
        self.next_update = self.passed.saturating_add(attributes.samples(attributes.ops_update_interval));
        for scheme in &mut self.schemes {
            scheme.next_apply = self.passed.saturating_add(apply_samples(scheme, &attributes));
        }
    }
}

/// A scheme's interval in sampling intervals.
fn apply_samples(scheme: &Scheme, attributes: &Attributes) -> u64 {
    let interval = scheme.settings.apply_interval;
    attributes.samples(if interval == 0 { attributes.aggr_interval } else { interval })
}
