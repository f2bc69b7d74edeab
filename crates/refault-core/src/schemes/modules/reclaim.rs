//! Reclaiming memory that has been idle for long, before a task has to wait for it (spec: lru_sort §2).
//!
//! Kernel: `damon_reclaim_new_scheme`, `damon_reclaim_apply_parameters` in `mm/damon/reclaim.c`.
//!
//! ```
//! use refault_core::monitor::Profile;
//! use refault_core::schemes::modules::reclaim::Reclaim;
//!
//! let (_, scheme) = Reclaim::default().build(Profile::K612)?;
//! assert_eq!(scheme.settings().action.name(), "pageout");
//! # Ok::<(), refault_core::schemes::modules::ModuleError>(())
//! ```

use super::{Common, ModuleError, ModuleWatermarks};
use crate::monitor::{Attributes, Profile, View};
use crate::schemes::{
    Action, Bounds, Filter, FilterKind, Goal, Metric, Pattern, Quota, Scheme, SchemeSettings, SchemeStatistics, Weights,
};

/// The parameters of the module `reclaim`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// Monitoring.
    pub common: Common,
    /// From this idle time on memory is reclaimed, in µs.
    pub min_age: u64,
    /// CPU time per window, in ms.
    pub quota_ms: u64,
    /// Bytes per window.
    pub quota_sz: u64,
    /// The window, in ms.
    pub quota_reset_interval_ms: u64,
    /// Wanted stall time per window in µs; 0: off.
    pub quota_mem_pressure_us: u64,
    /// The user's own measure, wanted to be 10 000; 0: off.
    pub quota_autotune_feedback: u64,
    /// When the scheme runs.
    pub wmarks: ModuleWatermarks,
    /// Leave anonymous pages alone.
    pub skip_anon: bool,
}

impl Default for Reclaim {
    fn default() -> Reclaim {
        Reclaim {
            common: Common::default(),
            min_age: 120_000_000,
            quota_ms: 10,
            quota_sz: 128 << 20,
            quota_reset_interval_ms: 1000,
            quota_mem_pressure_us: 0,
            quota_autotune_feedback: 0,
            wmarks: ModuleWatermarks { wmarks_interval: 5_000_000, wmarks_high: 500, wmarks_mid: 400, wmarks_low: 200 },
            skip_anon: false,
        }
    }
}

impl Reclaim {
    /// The monitor's attributes and the scheme.
    pub fn build(&self, profile: Profile) -> Result<(Attributes, Scheme), ModuleError> {
        if self.common.aggr_interval == 0 {
            return Err(ModuleError::Parameter { key: "aggr_interval", reason: "must be above 0" });
        }
        let attributes = self.common.attributes(profile)?;
        let mut settings = SchemeSettings::new(Action::Pageout);
        settings.pattern = Pattern {
            size: Bounds::at_least(4096),
            nr_accesses: Bounds { min: 0, max: 0 },
            age: Bounds::at_least(self.min_age / attributes.aggr_interval),
        };
        settings.quota = Quota {
            time_ms: self.quota_ms,
            size: self.quota_sz,
            reset_interval_ms: self.quota_reset_interval_ms,
            weights: Weights { size: 0, nr_accesses: 0, age: 1 },
            ..Quota::default()
        };
        if self.quota_mem_pressure_us != 0 {
            settings.quota.goals.push(Goal::new(Metric::SomeMemPsiUs, self.quota_mem_pressure_us, 0));
        }
        if self.quota_autotune_feedback != 0 {
            settings.quota.goals.push(Goal::new(Metric::UserInput, 10_000, self.quota_autotune_feedback));
        }
        settings.watermarks = self.wmarks.watermarks();
        if self.skip_anon {
            settings.filters.push(Filter::reject(FilterKind::Anon));
        }
        Ok((attributes, Scheme::new(settings, View::Physical, profile)?))
    }

    /// The module's statistics under the kernels' names.
    pub fn statistics(scheme: &SchemeStatistics) -> [(&'static str, u64); 5] {
        [
            ("nr_reclaim_tried_regions", scheme.nr_tried),
            ("bytes_reclaim_tried_regions", scheme.sz_tried),
            ("nr_reclaimed_regions", scheme.nr_applied),
            ("bytes_reclaimed_regions", scheme.sz_applied),
            ("nr_quota_exceeds", scheme.qt_exceeds),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_make_the_documented_scheme() {
        let (attributes, scheme) = Reclaim::default().build(Profile::K72).unwrap();
        assert_eq!(attributes.aggr_interval, 100_000);
        let settings = scheme.settings();
        assert_eq!(settings.action, Action::Pageout);
        assert_eq!((settings.pattern.age, settings.pattern.nr_accesses.max), (Bounds::at_least(1200), 0));
        assert_eq!((settings.quota.time_ms, settings.quota.size), (10, 134_217_728));
        assert_eq!(settings.quota.weights, Weights { size: 0, nr_accesses: 0, age: 1 });
        assert!(settings.quota.goals.is_empty() && settings.filters.is_empty());
    }

    #[test]
    fn goals_and_filter_follow_their_parameters() {
        let module =
            Reclaim { quota_mem_pressure_us: 500, quota_autotune_feedback: 42, skip_anon: true, ..Reclaim::default() };
        let (_, scheme) = module.build(Profile::K72).unwrap();
        assert_eq!(
            scheme.settings().quota.goals,
            [Goal::new(Metric::SomeMemPsiUs, 500, 0), Goal::new(Metric::UserInput, 10_000, 42)]
        );
        assert_eq!(scheme.settings().filters, [Filter::reject(FilterKind::Anon)]);
        assert!(module.build(Profile::K60).is_err(), "6.1 has neither goals nor filters");
    }
}
