//! A scheme: what the user says, what is refused, and what became of it (spec: damos §1, §10).
//!
//! Kernel: `struct damos`, `struct damos_stat` in `include/linux/damon.h`; `damon_new_scheme` in `mm/damon/core.c`.

use super::action::Action;
use super::filter::{Filter, FilterKind, Filters};
use super::goal::Metric;
use super::pattern::Pattern;
use super::quota::{Quota, QuotaState};
use super::score::Priority;
use super::watermark::{WatermarkMetric, Watermarks};
use crate::monitor::{Profile, View};
use crate::page::PageId;

/// What the user says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemeSettings {
    /// What to do.
    pub action: Action,
    /// To which regions.
    pub pattern: Pattern,
    /// How often, in µs; 0: once per aggregation.
    pub apply_interval: u64,
    /// How much.
    pub quota: Quota,
    /// While how much memory is free.
    pub watermarks: Watermarks,
    /// To which pages, in order.
    pub filters: Vec<Filter>,
    /// After how many passes it stops acting; 0: never.
    pub max_nr_snapshots: u64,
}

impl SchemeSettings {
    /// An action on everything, without limits.
    pub fn new(action: Action) -> SchemeSettings {
        SchemeSettings {
            action,
            pattern: Pattern::ANY,
            apply_interval: 0,
            quota: Quota::default(),
            watermarks: Watermarks::default(),
            filters: Vec::new(),
            max_nr_snapshots: 0,
        }
    }

    /// Whether the settings make sense in a view under a profile.
    pub fn check(&self, view: View, profile: Profile) -> Result<(), SchemeError> {
        let refuse = |key, reason| Err(SchemeError { key, reason });
        if let Some(reason) = self.action.refusal(view, profile) {
            return refuse("action", reason);
        }
        let pattern = [
            ("access_pattern.sz_bytes", self.pattern.size),
            ("access_pattern.nr_accesses", self.pattern.nr_accesses),
            ("access_pattern.age", self.pattern.age),
        ];
        if let Some((key, _)) = pattern.into_iter().find(|(_, bounds)| bounds.min > bounds.max) {
            return refuse(key, "min is above max");
        }
        if self.apply_interval != 0 && !profile.has_apply_interval() {
            return refuse("apply_interval_us", "is not known to this profile; use k612 or k72");
        }
        if self.max_nr_snapshots != 0 && !profile.is_current() {
            return refuse("max_nr_snapshots", "is not known to this profile; use k72");
        }
        self.check_quota(profile)?;
        self.check_watermarks()?;
        self.filters.iter().try_for_each(|filter| check_filter(filter, profile))
    }

    fn check_quota(&self, profile: Profile) -> Result<(), SchemeError> {
        let refuse = |key, reason| Err(SchemeError { key, reason });
        let quota = &self.quota;
        if quota.goals.is_empty() {
            return Ok(());
        }
        if quota.time_ms == 0 && quota.size == 0 {
            return refuse("quotas.goals", "a goal tunes a quota: set time_ms or sz_bytes (max for no other limit)");
        }
        if quota.reset_interval_ms == 0 {
            return refuse("quotas.reset_interval_ms", "must be above 0 where there are goals");
        }
        if quota.goals.iter().any(|goal| goal.target_value == 0) {
            return refuse("quotas.goals.target_value", "must be above 0");
        }
        let known = |metric: &Metric| match profile {
            Profile::K518 | Profile::K60 => false,
            Profile::K612 => matches!(metric, Metric::UserInput | Metric::SomeMemPsiUs),
            Profile::K72 => true,
        };
        if !quota.goals.iter().all(|goal| known(&goal.metric)) {
            return refuse("quotas.goals.metric", "is not known to this profile; use k72");
        }
        Ok(())
    }

    fn check_watermarks(&self) -> Result<(), SchemeError> {
        let marks = &self.watermarks;
        let refuse = |key, reason| Err(SchemeError { key, reason });
        if marks.metric == WatermarkMetric::None {
            return Ok(());
        }
        if marks.low > marks.mid {
            return refuse("watermarks.low_permil", "is above mid_permil");
        }
        if marks.mid > marks.high {
            return refuse("watermarks.mid_permil", "is above high_permil");
        }
        if marks.high > 1000 {
            return refuse("watermarks.high_permil", "is above 1000, all of memory");
        }
        if marks.interval == 0 {
            return refuse("watermarks.interval_us", "must be above 0");
        }
        Ok(())
    }
}

fn check_filter(filter: &Filter, profile: Profile) -> Result<(), SchemeError> {
    let refuse = |key, reason| Err(SchemeError { key, reason });
    match &filter.kind {
        FilterKind::Addr(range) if range.start >= range.end => {
            return refuse("filters.address_range", "is empty");
        }
        FilterKind::HugepageSize { min, max } if min > max => {
            return refuse("filters.hugepage_size", "min is above max");
        }
        _ => {}
    }
    match profile {
        Profile::K518 | Profile::K60 => refuse("filters", "are not known to this profile; use k612 or k72"),
        Profile::K612 if filter.allow => refuse("filters.allow", "is not known to this profile; use k72"),
        Profile::K612
            if matches!(filter.kind, FilterKind::Active | FilterKind::HugepageSize { .. } | FilterKind::Unmapped) =>
        {
            refuse("filters.filter_type", "is not known to this profile; use k72")
        }
        _ => Ok(()),
    }
}

/// Why a scheme is refused: the key and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemeError {
    /// Which key is wrong.
    pub key: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl std::fmt::Display for SchemeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}

impl std::error::Error for SchemeError {}

/// What a scheme did. Sums over passes, not distinct bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemeStatistics {
    /// Regions handed to the action.
    pub nr_tried: u64,
    /// Their bytes.
    pub sz_tried: u64,
    /// Regions where the action had an effect.
    pub nr_applied: u64,
    /// Bytes the action reports.
    pub sz_applied: u64,
    /// Bytes of folios that passed the page filters.
    pub sz_ops_filter_passed: u64,
    /// Windows that ended with a full quota.
    pub qt_exceeds: u64,
    /// Passes over a target.
    pub nr_snapshots: u64,
}

/// A scheme at work.
#[derive(Clone, Debug)]
pub struct Scheme {
    pub(crate) settings: SchemeSettings,
    pub(crate) filters: Filters,
    pub(crate) priority: Priority,
    pub(crate) quota: QuotaState,
    pub(crate) activated: bool,
    pub(crate) next_apply: u64,
    /// The last folio looked at, which may reach into the next region.
    pub(crate) last_applied: Option<PageId>,
    pub(crate) statistics: SchemeStatistics,
}

impl Scheme {
    /// A scheme of checked settings.
    pub fn new(settings: SchemeSettings, view: View, profile: Profile) -> Result<Scheme, SchemeError> {
        settings.check(view, profile)?;
        Ok(Scheme {
            filters: Filters::new(settings.filters.clone()),
            priority: Priority::of(&settings.action, view),
            settings,
            quota: QuotaState::default(),
            activated: true,
            next_apply: 0,
            last_applied: None,
            statistics: SchemeStatistics::default(),
        })
    }

    /// What the user said.
    pub fn settings(&self) -> &SchemeSettings {
        &self.settings
    }

    /// Whether the watermarks let it run.
    pub fn activated(&self) -> bool {
        self.activated
    }

    /// What became of the quota.
    pub fn quota(&self) -> &QuotaState {
        &self.quota
    }

    /// What it did.
    pub fn statistics(&self) -> &SchemeStatistics {
        &self.statistics
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bounds, Goal};
    use super::*;

    fn refused(change: impl FnOnce(&mut SchemeSettings), profile: Profile) -> &'static str {
        let mut settings = SchemeSettings::new(Action::Pageout);
        change(&mut settings);
        settings.check(View::Physical, profile).unwrap_err().key
    }

    #[test]
    fn each_contradiction_names_its_key() {
        let goal = || Goal::new(Metric::UserInput, 10, 0);
        let k72 = Profile::K72;
        assert_eq!(refused(|s| s.action = Action::Willneed, k72), "action");
        assert_eq!(refused(|s| s.pattern.size = Bounds { min: 2, max: 1 }, k72), "access_pattern.sz_bytes");
        assert_eq!(refused(|s| s.pattern.nr_accesses = Bounds { min: 2, max: 1 }, k72), "access_pattern.nr_accesses");
        assert_eq!(refused(|s| s.pattern.age = Bounds { min: 2, max: 1 }, k72), "access_pattern.age");
        assert_eq!(refused(|s| s.quota.goals.push(goal()), k72), "quotas.goals");
        let with_goal = |s: &mut SchemeSettings| {
            s.quota.goals.push(goal());
            s.quota.size = 4096;
        };
        assert_eq!(refused(with_goal, k72), "quotas.reset_interval_ms");
        let zero_target = |s: &mut SchemeSettings| {
            with_goal(s);
            s.quota.reset_interval_ms = 1000;
            s.quota.goals[0].target_value = 0;
        };
        assert_eq!(refused(zero_target, k72), "quotas.goals.target_value");
        let marks =
            |high, mid, low, interval| Watermarks { metric: WatermarkMetric::FreeMemRate, interval, high, mid, low };
        assert_eq!(refused(|s| s.watermarks = marks(200, 150, 160, 1), k72), "watermarks.low_permil");
        assert_eq!(refused(|s| s.watermarks = marks(100, 150, 50, 1), k72), "watermarks.mid_permil");
        assert_eq!(refused(|s| s.watermarks = marks(1001, 150, 50, 1), k72), "watermarks.high_permil");
        assert_eq!(refused(|s| s.watermarks = marks(200, 150, 50, 0), k72), "watermarks.interval_us");
        assert_eq!(refused(|s| s.filters = vec![Filter::reject(FilterKind::Addr(5..5))], k72), "filters.address_range");
        assert_eq!(refused(|s| s.filters = vec![Filter::allow(FilterKind::Anon)], Profile::K612), "filters.allow");
        assert_eq!(refused(|s| s.filters = vec![Filter::reject(FilterKind::Anon)], Profile::K60), "filters");
        assert_eq!(refused(|s| s.apply_interval = 1, Profile::K60), "apply_interval_us");
    }
}
