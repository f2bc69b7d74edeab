//! The ready-made modules by name, with their parameters under the kernels' names (spec: lru_sort §1–§3).

use refault_core::schemes::modules::{Common, ModuleWatermarks, lru_sort::LruSort, reclaim::Reclaim, stat::Stat};

use super::Config;
use super::tree::{ConfigError, Node};

/// A ready-made monitor with its schemes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Module {
    /// Sorts LRU lists.
    LruSort(LruSort),
    /// Reclaims cold memory.
    Reclaim(Reclaim),
    /// Monitors.
    Stat,
}

const COMMON: [&str; 7] = [
    "sample_interval",
    "aggr_interval",
    "min_nr_regions",
    "max_nr_regions",
    "monitor_region_start",
    "monitor_region_end",
    "autotune_monitoring_intervals",
];
const WMARKS: [&str; 4] = ["wmarks_interval", "wmarks_high", "wmarks_mid", "wmarks_low"];
const LRU_SORT: [&str; 6] = [
    "hot_thres_access_freq",
    "cold_min_age",
    "quota_ms",
    "quota_reset_interval_ms",
    "active_mem_bp",
    "filter_young_pages",
];
const RECLAIM: [&str; 7] = [
    "min_age",
    "quota_ms",
    "quota_sz",
    "quota_reset_interval_ms",
    "quota_mem_pressure_us",
    "quota_autotune_feedback",
    "skip_anon",
];

impl Module {
    /// The names on the command line.
    pub const NAMES: [&'static str; 3] = ["lru-sort", "reclaim", "stat"];

    /// The module of a name with its defaults.
    pub fn from_name(name: &str) -> Option<Module> {
        match name {
            "lru-sort" => Some(Module::LruSort(LruSort::default())),
            "reclaim" => Some(Module::Reclaim(Reclaim::default())),
            "stat" => Some(Module::Stat),
            _ => None,
        }
    }

    pub(super) fn read(name: &Node, parameters: Option<&Node>) -> Result<Module, ConfigError> {
        let mut module = Module::from_name(name.text()?)
            .ok_or_else(|| name.error("is not a module; use lru-sort, reclaim or stat"))?;
        let Some(node) = parameters else { return Ok(module) };
        match &mut module {
            Module::Stat => node.only(&[])?,
            Module::LruSort(module) => {
                node.only(&[&COMMON[..], &WMARKS, &LRU_SORT].concat())?;
                read_common(node, &mut module.common)?;
                read_wmarks(node, &mut module.wmarks)?;
                node.read("hot_thres_access_freq", Node::permille, &mut module.hot_thres_access_freq)?;
                node.read("cold_min_age", Node::micros, &mut module.cold_min_age)?;
                node.read("quota_ms", Node::millis, &mut module.quota_ms)?;
                node.read("quota_reset_interval_ms", Node::millis, &mut module.quota_reset_interval_ms)?;
                node.read("active_mem_bp", Node::basis_points, &mut module.active_mem_bp)?;
                read_flag(node, "filter_young_pages", &mut module.filter_young_pages)?;
            }
            Module::Reclaim(module) => {
                node.only(&[&COMMON[..], &WMARKS, &RECLAIM].concat())?;
                read_common(node, &mut module.common)?;
                read_wmarks(node, &mut module.wmarks)?;
                node.read("min_age", Node::micros, &mut module.min_age)?;
                node.read("quota_ms", Node::millis, &mut module.quota_ms)?;
                node.read("quota_sz", Node::size, &mut module.quota_sz)?;
                node.read("quota_reset_interval_ms", Node::millis, &mut module.quota_reset_interval_ms)?;
                node.read("quota_mem_pressure_us", Node::micros, &mut module.quota_mem_pressure_us)?;
                node.read("quota_autotune_feedback", Node::integer, &mut module.quota_autotune_feedback)?;
                read_flag(node, "skip_anon", &mut module.skip_anon)?;
            }
        }
        Ok(module)
    }

    /// The configuration the module stands for.
    pub(super) fn into_config(self, mut config: Config, node: &Node) -> Result<Config, ConfigError> {
        let profile = config.profile;
        let refuse =
            |error: refault_core::schemes::modules::ModuleError| node.error_at("parameters", &error.to_string());
        let common = match self {
            Module::LruSort(module) => {
                let (attributes, schemes) = module.build(profile).map_err(refuse)?;
                config.attributes = attributes;
                config.schemes = schemes.iter().map(|scheme| scheme.settings().clone()).collect();
                module.common
            }
            Module::Reclaim(module) => {
                let (attributes, scheme) = module.build(profile).map_err(refuse)?;
                config.attributes = attributes;
                config.schemes = vec![scheme.settings().clone()];
                module.common
            }
            Module::Stat => {
                config.attributes = Stat::attributes();
                config.attributes.check(profile).map_err(|error| node.error_at("module", &error.to_string()))?;
                return Ok(config);
            }
        };
        if common.monitor_region_end != 0 {
            let range = common.monitor_region_start..common.monitor_region_end;
            if range.is_empty() {
                return Err(node.error_at("parameters.monitor_region_end", "is not above monitor_region_start"));
            }
            config.targets = vec![super::TargetConfig { pid: None, ranges: vec![range] }];
        }
        Ok(config)
    }
}

fn read_common(node: &Node, common: &mut Common) -> Result<(), ConfigError> {
    node.read("sample_interval", Node::micros, &mut common.sample_interval)?;
    node.read("aggr_interval", Node::micros, &mut common.aggr_interval)?;
    for (key, bound) in [("min_nr_regions", &mut common.min_nr_regions), ("max_nr_regions", &mut common.max_nr_regions)]
    {
        let mut value = *bound as u64;
        node.read(key, Node::integer, &mut value)?;
        *bound = usize::try_from(value).unwrap_or(usize::MAX);
    }
    node.read("monitor_region_start", Node::size, &mut common.monitor_region_start)?;
    node.read("monitor_region_end", Node::size, &mut common.monitor_region_end)?;
    read_flag(node, "autotune_monitoring_intervals", &mut common.autotune_monitoring_intervals)
}

fn read_wmarks(node: &Node, wmarks: &mut ModuleWatermarks) -> Result<(), ConfigError> {
    node.read("wmarks_interval", Node::micros, &mut wmarks.wmarks_interval)?;
    node.read("wmarks_high", Node::permille, &mut wmarks.wmarks_high)?;
    node.read("wmarks_mid", Node::permille, &mut wmarks.wmarks_mid)?;
    node.read("wmarks_low", Node::permille, &mut wmarks.wmarks_low)
}

fn read_flag(node: &Node, key: &str, flag: &mut bool) -> Result<(), ConfigError> {
    if let Some(value) = node.get(key) {
        *flag = value.boolean()?;
    }
    Ok(())
}
