//! Monitors and schemes as people write them: TOML, the JSON tree of DAMON's user-space tool, and one-line schemes.
//!
//! Both formats hold the same tree (spec: tools §1.3): `ops`, `targets`, `intervals`, `nr_regions`, `schemes`, to which
//! TOML adds `profile`, `seed`, and `module` with its `parameters` for the ready-made ones. Missing keys have the
//! documented defaults, unknown ones are refused by name and place. Values are numbers in the unit of the key's name,
//! or text with a unit (`"5 ms"`, `"4 KiB"`, `"20 %"`, `"max"`).
//!
//! Invariant: a [`Config`] has been checked; building a kdamond from it cannot fail for what it says.
//!
//! ```
//! use refault_config::Config;
//!
//! let config = Config::parse("[intervals]\nsample_us = 5000\naggr_us = 100000\n", "monitor.toml")?;
//! assert_eq!(config.attributes.sample_interval, 5000);
//! let error = Config::parse("nonsense = 1", "monitor.toml").unwrap_err();
//! assert!(error.to_string().contains("monitor.toml"));
//! # Ok::<(), refault_config::ConfigError>(())
//! ```

#![forbid(unsafe_code)]

mod json;
mod module;
mod scheme;
mod tree;
pub mod units;

use std::ops::Range;

use refault_core::monitor::{Attributes, IntervalsGoal, Monitor, Profile, Target, View};
use refault_core::schemes::{Kdamond, Scheme, SchemeSettings};
use serde_json::Value;

pub use module::Module;
pub use tree::ConfigError;
use tree::Node;

/// An address space to monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetConfig {
    /// The process, for virtual addresses.
    pub pid: Option<u64>,
    /// Where to look; empty: everywhere.
    pub ranges: Vec<Range<u64>>,
}

/// A monitor with its schemes, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whose rules.
    pub profile: Profile,
    /// How addresses are understood.
    pub view: View,
    /// Seed of the random choices, if given.
    pub seed: Option<u64>,
    /// Intervals and bounds.
    pub attributes: Attributes,
    /// What is monitored; empty: whatever the front-end has.
    pub targets: Vec<TargetConfig>,
    /// What is done, in order.
    pub schemes: Vec<SchemeSettings>,
    /// Paths of the control groups that filters and goals name by index.
    pub memcg_paths: Vec<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            profile: Profile::default(),
            view: View::Physical,
            seed: None,
            attributes: Attributes::default(),
            targets: Vec::new(),
            schemes: Vec::new(),
            memcg_paths: Vec::new(),
        }
    }
}

impl Config {
    /// Reads TOML or JSON, told apart by the first character. `origin` names the text in errors.
    pub fn parse(text: &str, origin: &str) -> Result<Config, ConfigError> {
        Config::parse_with(text, origin, &[])
    }

    /// The same with flags on top: each `KEY=VALUE`, the key as in errors (`intervals.sample_us=5ms`,
    /// `schemes[0].quotas.time_ms=20`).
    pub fn parse_with(text: &str, origin: &str, overrides: &[String]) -> Result<Config, ConfigError> {
        let is_json = text.trim_start().starts_with(['{', '[']) && !looks_like_toml_table(text);
        let mut tree = if is_json {
            serde_json::from_str(text).map_err(|error| ConfigError::syntax(origin, &error.to_string()))?
        } else {
            tree::from_toml(text, origin)?
        };
        tree = json::to_context(tree, origin)?;
        for line in overrides {
            tree::set(&mut tree, line)?;
        }
        // JSON is what programs write, damo among them.
        let root = if is_json { Node::root_of_program } else { Node::root };
        read(&root(&tree, origin))
    }

    /// Reads the tree itself, of either format.
    pub fn from_tree(tree: Value) -> Result<Config, ConfigError> {
        let tree = json::to_context(tree, "")?;
        read(&Node::root_of_program(&tree, ""))
    }

    /// Adds a scheme written on one line, as flags take it:
    /// `lru_prio sz_bytes=4K.. nr_accesses=20%.. age=..5s quota=20ms,0,1s weights=0,3,7`.
    pub fn add_scheme(&mut self, line: &str) -> Result<(), ConfigError> {
        let tree = scheme::from_line(line)?;
        let settings = scheme::read(&Node::root(&tree, "--scheme"), self)?;
        self.schemes.push(settings);
        Ok(())
    }

    /// The JSON tree that DAMON's user-space tool reads, with the state of the schemes at work if there are any.
    pub fn to_json(&self, at_work: Option<&[Scheme]>) -> Value {
        json::tree(self, at_work)
    }

    /// A kdamond over these targets, or over `memory` where none are named. It starts at `now` (µs).
    pub fn kdamond(&self, memory: Range<u64>, seed: u64, now: u64) -> Result<Kdamond, ConfigError> {
        self.kdamond_over(std::slice::from_ref(&memory), seed, now)
    }

    /// The same over memory that lies in several places, in order of address.
    pub fn kdamond_over(&self, memory: &[Range<u64>], seed: u64, now: u64) -> Result<Kdamond, ConfigError> {
        let fail = |key: &str, reason: String| ConfigError { origin: String::new(), key: key.to_owned(), reason };
        let unit = self.attributes.min_region_size;
        let everywhere = [TargetConfig { pid: None, ranges: memory.to_vec() }];
        let targets = if self.targets.is_empty() { &everywhere[..] } else { &self.targets };
        let mut made = Vec::new();
        for (index, target) in targets.iter().enumerate() {
            let ranges = if target.ranges.is_empty() { memory } else { &target.ranges };
            let made_target = Target::new(ranges, unit);
            let mut made_target =
                made_target.map_err(|error| fail(&format!("targets[{index}].regions"), error.to_string()))?;
            made_target.start_in_pieces(self.profile, self.attributes.min_nr_regions, unit);
            made.push(made_target);
        }
        let monitor = Monitor::new(self.profile, self.attributes, made, self.seed.unwrap_or(seed))
            .map_err(|error| fail(error.key, error.reason.to_owned()))?;
        let schemes = self.schemes.iter().enumerate().map(|(index, settings)| {
            Scheme::new(settings.clone(), self.view, self.profile)
                .map_err(|error| fail(&format!("schemes[{index}].{}", error.key), error.reason.to_owned()))
        });
        Ok(Kdamond::new(monitor, self.view, schemes.collect::<Result<_, _>>()?, now))
    }
}

/// `[intervals]` opens a TOML table, `[{` or `["` a JSON list.
fn looks_like_toml_table(text: &str) -> bool {
    text.trim_start()
        .strip_prefix('[')
        .is_some_and(|rest| rest.trim_start().starts_with(|first: char| first.is_ascii_alphabetic() || first == '['))
}

/// Keys of a monitor.
const KEYS: [&str; 14] = [
    "profile",
    "seed",
    "module",
    "parameters",
    "ops",
    "addr_unit",
    "targets",
    "intervals",
    "nr_regions",
    "probes",
    "sample_control",
    "pause",
    "schemes",
    "min_region_sz",
];

/// How samples are taken: by page tables alone, which is what damo writes always, and all that there is here.
fn read_sample_control(node: &Node) -> Result<(), ConfigError> {
    const UNSUPPORTED: &str = "is not supported here; leave it out";
    node.only(&["primitives_enabled", "sample_filters"])?;
    if let Some(filters) = node.get("sample_filters").filter(|filters| !filters.is_empty()) {
        return Err(filters.error(UNSUPPORTED));
    }
    let Some(primitives) = node.get("primitives_enabled") else { return Ok(()) };
    primitives.only(&["page_table", "page_fault"])?;
    if let Some(table) = primitives.get("page_table")
        && !table.boolean()?
    {
        return Err(table.error("must be true: samples here are accessed bits of page tables"));
    }
    match primitives.get("page_fault").filter(|fault| !fault.asks_for_nothing()) {
        Some(fault) => Err(fault.error(UNSUPPORTED)),
        None => Ok(()),
    }
}

fn read(node: &Node) -> Result<Config, ConfigError> {
    node.only(&KEYS)?;
    let profile = match node.get("profile") {
        None => Profile::default(),
        Some(profile) => Profile::from_name(profile.text()?)
            .ok_or_else(|| profile.error("is not a profile; use k518, k60, k612 or k72"))?,
    };
    let mut config =
        Config { profile, seed: node.get("seed").map(|seed| seed.integer()).transpose()?, ..Config::default() };
    if let Some(probes) = node.get("probes").filter(|value| !value.is_empty()) {
        return Err(probes.error("is not supported here; leave it out"));
    }
    if let Some(control) = node.get("sample_control") {
        read_sample_control(&control)?;
    }
    if let Some(unit) = node.get("addr_unit")
        && unit.size()? != 1
    {
        return Err(unit.error("must be 1: addresses here are 64 bits wide"));
    }
    if let Some(pause) = node.get("pause")
        && pause.boolean()?
    {
        return Err(pause.error("a paused monitor does nothing; leave it out"));
    }
    if let Some(module) = node.get("module") {
        for key in ["ops", "targets", "intervals", "nr_regions", "schemes"] {
            if let Some(clash) = node.get(key) {
                return Err(clash.error("is decided by the module; use its parameters"));
            }
        }
        let module = Module::read(&module, node.get("parameters").as_ref())?;
        return module.into_config(config, node);
    }
    if let Some(parameters) = node.get("parameters") {
        return Err(
            parameters.error("belong to a module; name one with module = \"lru-sort\", \"reclaim\" or \"stat\"")
        );
    }
    if let Some(ops) = node.get("ops") {
        config.view =
            View::from_name(ops.text()?).ok_or_else(|| ops.error("is not known; use vaddr, fvaddr or paddr"))?;
    }
    read_attributes(node, &mut config)?;
    read_targets(node, &mut config)?;
    if let Some(schemes) = node.get("schemes") {
        for item in schemes.items()? {
            let settings = scheme::read(&item, &mut config)?;
            config.schemes.push(settings);
        }
    }
    Ok(config)
}

fn read_attributes(node: &Node, config: &mut Config) -> Result<(), ConfigError> {
    let attributes = &mut config.attributes;
    // The user-space tool's default, not the kernel's.
    attributes.ops_update_interval = 1_000_000;
    if let Some(size) = node.get("min_region_sz") {
        attributes.min_region_size = size.size()?;
    }
    if let Some(intervals) = node.get("intervals") {
        intervals.only(&["sample_us", "aggr_us", "ops_update_us", "intervals_goal"])?;
        intervals.read("sample_us", Node::micros, &mut attributes.sample_interval)?;
        intervals.read("aggr_us", Node::micros, &mut attributes.aggr_interval)?;
        intervals.read("ops_update_us", Node::micros, &mut attributes.ops_update_interval)?;
        if let Some(goal) = intervals.get("intervals_goal") {
            goal.only(&["access_bp", "aggrs", "min_sample_us", "max_sample_us"])?;
            let mut made = IntervalsGoal { access_bp: 0, aggrs: 0, min_sample_us: 0, max_sample_us: 0 };
            goal.read("access_bp", Node::basis_points, &mut made.access_bp)?;
            goal.read("aggrs", Node::integer, &mut made.aggrs)?;
            goal.read("min_sample_us", Node::micros, &mut made.min_sample_us)?;
            goal.read("max_sample_us", Node::micros, &mut made.max_sample_us)?;
            // All zero is how the tool writes "off".
            attributes.intervals_goal = (made.aggrs != 0 || made.access_bp != 0).then_some(made);
        }
    }
    if let Some(regions) = node.get("nr_regions") {
        regions.only(&["min", "max"])?;
        let mut bounds = [attributes.min_nr_regions as u64, attributes.max_nr_regions as u64];
        regions.read("min", Node::integer, &mut bounds[0])?;
        regions.read("max", Node::integer, &mut bounds[1])?;
        attributes.min_nr_regions = usize::try_from(bounds[0]).unwrap_or(usize::MAX);
        attributes.max_nr_regions = usize::try_from(bounds[1]).unwrap_or(usize::MAX);
    }
    attributes.check(config.profile).map_err(|error| {
        let key = match error.key {
            "sample_interval" => "intervals.sample_us".to_owned(),
            "min_nr_regions" => "nr_regions.min".to_owned(),
            "min_region_size" => "min_region_sz".to_owned(),
            goal => format!("intervals.{goal}"),
        };
        node.error_at(&key, error.reason)
    })
}

fn read_targets(node: &Node, config: &mut Config) -> Result<(), ConfigError> {
    let Some(targets) = node.get("targets") else { return Ok(()) };
    let mut places: Vec<(Option<u64>, Range<u64>, String)> = Vec::new();
    for item in targets.items()? {
        item.only(&["pid", "obsolete", "regions"])?;
        let pid = item.get("pid").map(|pid| pid.integer()).transpose()?;
        if pid.is_none() && config.view != View::Physical {
            return Err(item.error_at("pid", "must name the process for virtual addresses"));
        }
        let mut target = TargetConfig { pid, ranges: Vec::new() };
        if let Some(regions) = item.get("regions") {
            for region in regions.items()? {
                region.only(&["start", "end"])?;
                let mut range = 0..0;
                region.read("start", Node::size, &mut range.start)?;
                region.read("end", Node::size, &mut range.end)?;
                if range.start >= range.end {
                    return Err(region.error("is empty: start is not below end"));
                }
                target.ranges.push(range);
            }
        }
        if config.view == View::FixedVirtual && target.ranges.is_empty() {
            return Err(item.error_at("regions", "must be given for fvaddr"));
        }
        target.ranges.sort_by_key(|range| range.start);
        let unit = config.attributes.min_region_size;
        let everything = std::slice::from_ref(&(0..u64::MAX)).to_vec();
        for range in if target.ranges.is_empty() { &everything } else { &target.ranges } {
            let rounded = range.start / unit * unit..range.end.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
            let space = if config.view == View::Physical { None } else { pid };
            let clash = places
                .iter()
                .find(|(at, other, _)| *at == space && rounded.start < other.end && other.start < rounded.end);
            if let Some((_, _, other)) = clash {
                let reason = format!("{}-{} overlaps a region of {other}", range.start, range.end);
                return Err(item.error_at("regions", &reason));
            }
            places.push((space, rounded, item.path().to_owned()));
        }
        config.targets.push(target);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
