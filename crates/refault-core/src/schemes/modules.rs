//! Ready-made monitors with schemes, as the kernels ship them: sorting LRU lists, reclaiming cold memory, and
//! monitoring only (spec: lru_sort §1–§3).
//!
//! Each module is a struct of parameters under the kernels' names with the kernels' defaults, from which it makes
//! attributes and schemes; statistics come back under the kernels' names.
//!
//! ```
//! use refault_core::monitor::Profile;
//! use refault_core::schemes::modules::lru_sort::LruSort;
//!
//! let (attributes, [hot, cold]) = LruSort::default().build(Profile::default()).expect("defaults are legal");
//! assert!(attributes.check(Profile::default()).is_ok());
//! assert_ne!(hot.settings().action, cold.settings().action);
//! ```

pub mod loaded;
pub mod lru_sort;
pub mod reclaim;
pub mod stat;

use super::SchemeError;
use super::watermark::{WatermarkMetric, Watermarks};
use crate::monitor::{Attributes, AttributesError, IntervalsGoal, Profile};

/// The parameters that every module shares. Times in µs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// Between two checks of a region.
    pub sample_interval: u64,
    /// Between two looks at the counts.
    pub aggr_interval: u64,
    /// Fewest regions.
    pub min_nr_regions: usize,
    /// Most regions.
    pub max_nr_regions: usize,
    /// First monitored address; both 0: all memory.
    pub monitor_region_start: u64,
    /// The address after the last.
    pub monitor_region_end: u64,
    /// Let the intervals tune themselves towards 0.4 % of the events.
    pub autotune_monitoring_intervals: bool,
}

impl Default for Common {
    fn default() -> Common {
        Common {
            sample_interval: 5000,
            aggr_interval: 100_000,
            min_nr_regions: 10,
            max_nr_regions: 1000,
            monitor_region_start: 0,
            monitor_region_end: 0,
            autotune_monitoring_intervals: false,
        }
    }
}

impl Common {
    /// The goal that the modules use when asked to tune: a tenth of the recommended share.
    const INTERVALS_GOAL: IntervalsGoal =
        IntervalsGoal { access_bp: 40, aggrs: 3, min_sample_us: 5000, max_sample_us: 10_000_000 };

    /// The attributes of the monitor, checked.
    pub fn attributes(&self, profile: Profile) -> Result<Attributes, AttributesError> {
        if self.monitor_region_start > self.monitor_region_end {
            return Err(AttributesError { key: "monitor_region_start", reason: "is above monitor_region_end" });
        }
        let base = Attributes {
            ops_update_interval: 0,
            min_nr_regions: self.min_nr_regions,
            max_nr_regions: self.max_nr_regions,
            ..Attributes::default()
        };
        let attributes = if self.autotune_monitoring_intervals {
            // Tuning starts from the defaults, whatever was configured.
            Attributes { intervals_goal: Some(Self::INTERVALS_GOAL), ..base }
        } else {
            Attributes { sample_interval: self.sample_interval, aggr_interval: self.aggr_interval, ..base }
        };
        attributes.check(profile)?;
        Ok(attributes)
    }

    /// The monitored addresses, given the addresses of all memory.
    pub fn range(&self, memory: std::ops::Range<u64>) -> std::ops::Range<u64> {
        if self.monitor_region_start == 0 && self.monitor_region_end == 0 {
            return memory;
        }
        self.monitor_region_start..self.monitor_region_end
    }
}

/// The watermarks of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleWatermarks {
    /// Check period in µs.
    pub wmarks_interval: u64,
    /// Off above, in 1/1000 of memory free.
    pub wmarks_high: u64,
    /// On again below.
    pub wmarks_mid: u64,
    /// Off below.
    pub wmarks_low: u64,
}

impl ModuleWatermarks {
    /// As a scheme takes them.
    pub fn watermarks(&self) -> Watermarks {
        Watermarks {
            metric: WatermarkMetric::FreeMemRate,
            interval: self.wmarks_interval,
            high: self.wmarks_high,
            mid: self.wmarks_mid,
            low: self.wmarks_low,
        }
    }
}

/// Why a module's parameters are refused: the key and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleError {
    /// Of the monitor.
    Attributes(AttributesError),
    /// Of a scheme.
    Scheme(SchemeError),
    /// Of the module itself.
    Parameter {
        /// Which parameter.
        key: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl std::fmt::Display for ModuleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ModuleError::Attributes(error) => error.fmt(f),
            ModuleError::Scheme(error) => error.fmt(f),
            ModuleError::Parameter { key, reason } => write!(f, "{key}: {reason}"),
        }
    }
}

impl std::error::Error for ModuleError {}

impl From<AttributesError> for ModuleError {
    fn from(error: AttributesError) -> ModuleError {
        ModuleError::Attributes(error)
    }
}

impl From<SchemeError> for ModuleError {
    fn from(error: SchemeError) -> ModuleError {
        ModuleError::Scheme(error)
    }
}
