//! Sorting LRU lists by what the monitor finds: hot memory is prioritised, cold memory deprioritised
//! (spec: lru_sort §1).
//!
//! Kernel: `damon_lru_sort_new_hot_scheme`, `damon_lru_sort_new_cold_scheme`, `damon_lru_sort_apply_parameters` in
//! `mm/damon/lru_sort.c`.
//!
//! ```
//! use refault_core::monitor::Profile;
//! use refault_core::schemes::modules::lru_sort::LruSort;
//!
//! let (_, [hot, cold]) = LruSort::default().build(Profile::K72)?;
//! assert_eq!((hot.settings().action.name(), cold.settings().action.name()), ("lru_prio", "lru_deprio"));
//! # Ok::<(), refault_core::schemes::modules::ModuleError>(())
//! ```

use super::{Common, ModuleError, ModuleWatermarks};
use crate::monitor::{Attributes, Profile, View};
use crate::schemes::{
    Action, Bounds, Filter, FilterKind, Goal, Metric, Pattern, Quota, Scheme, SchemeSettings, SchemeStatistics, Weights,
};

/// The parameters of the module `lru-sort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LruSort {
    /// Monitoring.
    pub common: Common,
    /// From this frequency on memory is hot, in 1/1000 of the checks.
    pub hot_thres_access_freq: u64,
    /// From this idle time on memory is cold, in µs.
    pub cold_min_age: u64,
    /// CPU time per window for both schemes together, in ms; halved for each, so 1 means no limit.
    pub quota_ms: u64,
    /// The window, in ms.
    pub quota_reset_interval_ms: u64,
    /// When the schemes run.
    pub wmarks: ModuleWatermarks,
    /// Wanted active share of the lists in 1/10 000; 0: off.
    pub active_mem_bp: u64,
    /// Sort only pages whose accessed bit agrees.
    pub filter_young_pages: bool,
}

impl Default for LruSort {
    fn default() -> LruSort {
        LruSort {
            common: Common::default(),
            hot_thres_access_freq: 500,
            cold_min_age: 120_000_000,
            quota_ms: 10,
            quota_reset_interval_ms: 1000,
            wmarks: ModuleWatermarks { wmarks_interval: 5_000_000, wmarks_high: 200, wmarks_mid: 150, wmarks_low: 50 },
            active_mem_bp: 0,
            filter_young_pages: false,
        }
    }
}

impl LruSort {
    /// The monitor's attributes and the two schemes, hot and cold.
    pub fn build(&self, profile: Profile) -> Result<(Attributes, [Scheme; 2]), ModuleError> {
        let refuse = |key, reason| Err(ModuleError::Parameter { key, reason });
        if self.common.sample_interval == 0 {
            return refuse("sample_interval", "must be above 0");
        }
        if self.common.aggr_interval == 0 {
            return refuse("aggr_interval", "must be above 0");
        }
        if self.active_mem_bp > 10_000 {
            return refuse("active_mem_bp", "is above 10000, all of memory");
        }
        let newer = self.active_mem_bp != 0 || self.filter_young_pages || self.common.autotune_monitoring_intervals;
        if newer && !profile.is_current() {
            return refuse(
                "active_mem_bp, filter_young_pages, autotune_monitoring_intervals",
                "are not known to this profile; use k72",
            );
        }
        let attributes = self.common.attributes(profile)?;
        let scheme = |settings| Scheme::new(settings, View::Physical, profile);
        Ok((attributes, [scheme(self.hot(&attributes, profile))?, scheme(self.cold(&attributes, profile))?]))
    }

    fn hot(&self, attributes: &Attributes, profile: Profile) -> SchemeSettings {
        let least = u64::from(attributes.max_nr_accesses()) * self.hot_thres_access_freq / 1000;
        let mut settings = self.settings(Action::LruPrio, profile);
        settings.pattern =
            Pattern { size: Bounds::at_least(4096), nr_accesses: Bounds::at_least(least), age: Bounds::ANY };
        if self.active_mem_bp != 0 {
            settings.quota.goals.push(Goal::new(Metric::ActiveMemBp, self.active_mem_bp, 0));
        }
        if self.filter_young_pages {
            settings.filters.push(Filter::reject_others(FilterKind::Young));
        }
        settings
    }

    fn cold(&self, attributes: &Attributes, profile: Profile) -> SchemeSettings {
        let mut settings = self.settings(Action::LruDeprio, profile);
        settings.pattern = Pattern {
            size: Bounds::at_least(4096),
            nr_accesses: Bounds { min: 0, max: 0 },
            age: Bounds::at_least(self.cold_min_age / attributes.aggr_interval),
        };
        if self.active_mem_bp != 0 {
            // The two goals overlap by 2/10 000, so that both schemes keep a reason to work.
            settings.quota.goals.push(Goal::new(Metric::InactiveMemBp, 10_002 - self.active_mem_bp, 0));
        }
        if self.filter_young_pages {
            settings.filters.push(Filter::reject(FilterKind::Young));
        }
        settings
    }

    fn settings(&self, action: Action, profile: Profile) -> SchemeSettings {
        let hot = action == Action::LruPrio;
        let (nr_accesses, age) = match profile {
            Profile::K72 => (1, 1),
            Profile::K518 => (u32::from(hot), u32::from(!hot)),
            Profile::K60 | Profile::K612 => (1, 0),
        };
        SchemeSettings {
            quota: Quota {
                time_ms: self.quota_ms / 2,
                reset_interval_ms: self.quota_reset_interval_ms,
                weights: Weights { size: 0, nr_accesses, age },
                ..Quota::default()
            },
            watermarks: self.wmarks.watermarks(),
            ..SchemeSettings::new(action)
        }
    }

    /// The module's statistics under the kernels' names, given those of its two schemes.
    pub fn statistics(hot: &SchemeStatistics, cold: &SchemeStatistics) -> [(&'static str, u64); 10] {
        [
            ("nr_lru_sort_tried_hot_regions", hot.nr_tried),
            ("bytes_lru_sort_tried_hot_regions", hot.sz_tried),
            ("nr_lru_sorted_hot_regions", hot.nr_applied),
            ("bytes_lru_sorted_hot_regions", hot.sz_applied),
            ("nr_hot_quota_exceeds", hot.qt_exceeds),
            ("nr_lru_sort_tried_cold_regions", cold.nr_tried),
            ("bytes_lru_sort_tried_cold_regions", cold.sz_tried),
            ("nr_lru_sorted_cold_regions", cold.nr_applied),
            ("bytes_lru_sorted_cold_regions", cold.sz_applied),
            ("nr_cold_quota_exceeds", cold.qt_exceeds),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_make_the_documented_schemes() {
        let (attributes, [hot, cold]) = LruSort::default().build(Profile::K72).unwrap();
        assert_eq!((attributes.ops_update_interval, attributes.max_nr_accesses()), (0, 20));
        assert_eq!(hot.settings().action, Action::LruPrio);
        assert_eq!(
            (hot.settings().pattern.nr_accesses, hot.settings().pattern.age),
            (Bounds::at_least(10), Bounds::ANY)
        );
        assert_eq!(cold.settings().pattern.nr_accesses, Bounds { min: 0, max: 0 });
        assert_eq!(cold.settings().pattern.age, Bounds::at_least(1200));
        for scheme in [&hot, &cold] {
            assert_eq!((scheme.settings().quota.time_ms, scheme.settings().quota.reset_interval_ms), (5, 1000));
            assert_eq!(scheme.settings().quota.weights, Weights { size: 0, nr_accesses: 1, age: 1 });
            assert_eq!((scheme.settings().watermarks.high, scheme.settings().watermarks.low), (200, 50));
        }
        let (_, [_, cold]) = LruSort::default().build(Profile::K612).unwrap();
        assert_eq!(cold.settings().quota.weights, Weights { size: 0, nr_accesses: 1, age: 0 });
        let (_, [_, cold]) = LruSort::default().build(Profile::K518).unwrap();
        assert_eq!(cold.settings().quota.weights, Weights { size: 0, nr_accesses: 0, age: 1 });
    }

    #[test]
    fn goals_filters_and_tuning_are_set_as_documented() {
        let common = Common { autotune_monitoring_intervals: true, sample_interval: 9000, ..Common::default() };
        let module = LruSort { common, active_mem_bp: 6000, filter_young_pages: true, ..LruSort::default() };
        let (attributes, [hot, cold]) = module.build(Profile::K72).unwrap();
        assert_eq!((attributes.sample_interval, attributes.intervals_goal.unwrap().access_bp), (5000, 40));
        assert_eq!(hot.settings().quota.goals, [Goal::new(Metric::ActiveMemBp, 6000, 0)]);
        assert_eq!(cold.settings().quota.goals, [Goal::new(Metric::InactiveMemBp, 4002, 0)]);
        assert_eq!(hot.settings().filters, [Filter::reject_others(FilterKind::Young)]);
        assert_eq!(cold.settings().filters, [Filter::reject(FilterKind::Young)]);
        assert!(module.build(Profile::K612).is_err());
    }

    #[test]
    fn bad_parameters_are_refused_by_name() {
        let refused = |module: LruSort| module.build(Profile::K72).unwrap_err().to_string();
        let with = |common: Common| LruSort { common, ..LruSort::default() };
        assert!(refused(with(Common { sample_interval: 0, ..Common::default() })).starts_with("sample_interval:"));
        assert!(refused(with(Common { min_nr_regions: 2, ..Common::default() })).starts_with("min_nr_regions:"));
        assert!(
            refused(with(Common { sample_interval: 200_000, ..Common::default() })).starts_with("sample_interval:")
        );
        assert!(
            refused(with(Common { monitor_region_start: 1, ..Common::default() })).starts_with("monitor_region_start:")
        );
        assert!(refused(LruSort { active_mem_bp: 10_001, ..LruSort::default() }).starts_with("active_mem_bp:"));
        let mut module = LruSort::default();
        module.wmarks.wmarks_low = 160;
        assert!(refused(module).starts_with("watermarks.low_permil:"));
    }
}
