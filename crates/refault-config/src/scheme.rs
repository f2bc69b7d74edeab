//! One scheme of the tree, and the one-line form of the flags.

use refault_core::monitor::Attributes;
use refault_core::schemes::{
    Action, Bounds, Filter, FilterKind, Goal, Metric, Quota, SchemeSettings, Tuner, WatermarkMetric, Watermarks,
    Weights,
};
use serde_json::{Map, Value, json};

use super::tree::{ConfigError, Node};
use super::{Config, units};

const KEYS: [&str; 12] = [
    "action",
    "dests",
    "target_nid",
    "access_pattern",
    "apply_interval_us",
    "quotas",
    "watermarks",
    "filters",
    "core_filters",
    "ops_filters",
    "stats",
    "max_nr_snapshots",
];

/// Reads a scheme. Control groups it names are added to the configuration's list.
pub(super) fn read(node: &Node, config: &mut Config) -> Result<SchemeSettings, ConfigError> {
    node.only(&KEYS)?;
    let mut settings = SchemeSettings::new(read_action(node)?);
    if let Some(pattern) = node.get("access_pattern") {
        pattern.only(&["sz_bytes", "nr_accesses", "age"])?;
        read_bounds(&pattern, "sz_bytes", &mut settings.pattern.size, &config.attributes, size)?;
        read_bounds(&pattern, "nr_accesses", &mut settings.pattern.nr_accesses, &config.attributes, samples)?;
        read_bounds(&pattern, "age", &mut settings.pattern.age, &config.attributes, intervals)?;
    }
    node.read("apply_interval_us", Node::micros, &mut settings.apply_interval)?;
    if let Some(quotas) = node.get("quotas") {
        settings.quota = read_quota(&quotas, config)?;
    }
    if let Some(watermarks) = node.get("watermarks") {
        settings.watermarks = read_watermarks(&watermarks)?;
    }
    for list in ["filters", "core_filters", "ops_filters"] {
        if let Some(filters) = node.get(list) {
            for filter in filters.items()? {
                settings.filters.push(read_filter(&filter, config)?);
            }
        }
    }
    node.read("max_nr_snapshots", Node::integer, &mut settings.max_nr_snapshots)?;
    if let Some(stats) = node.get("stats") {
        // The tool keeps this limit among the statistics; the counts themselves are not input.
        stats.read("max_nr_snapshots", Node::integer, &mut settings.max_nr_snapshots)?;
    }
    settings.check(config.view, config.profile).map_err(|error| {
        let reason = if error.key == "action" {
            format!("{} {}", settings.action.name(), error.reason)
        } else {
            error.reason.into()
        };
        node.error_at(error.key, &reason)
    })?;
    Ok(settings)
}

fn read_action(node: &Node) -> Result<Action, ConfigError> {
    let action = node.get("action").ok_or_else(|| node.error_at("action", "is missing"))?;
    let mut target = 0;
    let mut named = false;
    if let Some(nid) = node.get("target_nid") {
        // The tool writes -1 for "none"; it reads back as a negative number, which only matters where it is used.
        if let Ok(nid) = nid.integer() {
            (target, named) = (nid, true);
        }
    }
    if let Some(dests) = node.get("dests") {
        let dests = dests.items()?;
        if dests.len() > 1 {
            return Err(node.error_at("dests", "several destinations with weights are not supported here; name one"));
        }
        if let Some(dest) = dests.first() {
            dest.only(&["id", "weight"])?;
            dest.read("id", Node::integer, &mut target)?;
            named = true;
        }
    }
    let unknown = || action.error(&format!("is not an action; use one of {}", Action::NAMES.join(", ")));
    let target = u32::try_from(target).map_err(|_| node.error_at("target_nid", "is too large for a node"))?;
    let made = Action::from_name(action.text()?, target).ok_or_else(unknown)?;
    if matches!(made, Action::MigrateHot { .. } | Action::MigrateCold { .. }) && !named {
        return Err(node.error_at("target_nid", "must name the node to migrate to"));
    }
    Ok(made)
}

type ReadBound = fn(&Node, &Attributes) -> Result<u64, ConfigError>;

fn read_bounds(
    pattern: &Node,
    key: &str,
    bounds: &mut Bounds,
    attributes: &Attributes,
    read: ReadBound,
) -> Result<(), ConfigError> {
    let Some(node) = pattern.get(key) else { return Ok(()) };
    node.only(&["min", "max"])?;
    if let Some(min) = node.get("min") {
        bounds.min = read(&min, attributes)?;
    }
    if let Some(max) = node.get("max") {
        bounds.max = read(&max, attributes)?;
    }
    Ok(())
}

fn size(node: &Node, _: &Attributes) -> Result<u64, ConfigError> {
    node.size()
}

/// Samples, or a percentage of those of an aggregation. `max` stays unlimited instead of being converted, which in
/// the tool can end at zero.
fn samples(node: &Node, attributes: &Attributes) -> Result<u64, ConfigError> {
    if !node.is_text() {
        return node.integer();
    }
    let text = node.text()?.trim();
    if let Some(number) = text.strip_suffix("samples").or_else(|| text.strip_suffix("sample")) {
        return units::integer(number).map_err(|reason| node.wrong(text, reason));
    }
    let window = u128::from(attributes.max_nr_accesses());
    units::share(text, window).map_err(|reason| node.wrong(text, reason))
}

/// Aggregation intervals, or a time.
fn intervals(node: &Node, attributes: &Attributes) -> Result<u64, ConfigError> {
    if !node.is_text() {
        return node.integer();
    }
    let text = node.text()?.trim();
    let number = text.strip_suffix("aggr_intervals").or_else(|| text.strip_suffix("aggr_interval")).unwrap_or(text);
    if let Ok(count) = units::integer(number) {
        return Ok(count);
    }
    let micros = node.micros()?;
    micros.checked_div(attributes.aggr_interval).ok_or_else(|| node.error("cannot be a time while aggr_us is 0"))
}

fn read_quota(node: &Node, config: &mut Config) -> Result<Quota, ConfigError> {
    node.only(&[
        "time_ms",
        "sz_bytes",
        "reset_interval_ms",
        "fail_charge_num",
        "fail_charge_denom",
        "goals",
        "goal_tuner",
        "effective_sz_bytes",
        "weights",
    ])?;
    let mut quota = Quota::default();
    node.read("time_ms", Node::millis, &mut quota.time_ms)?;
    node.read("sz_bytes", Node::size, &mut quota.size)?;
    node.read("reset_interval_ms", Node::millis, &mut quota.reset_interval_ms)?;
    node.read("fail_charge_num", Node::integer, &mut quota.fail_charge.0)?;
    node.read("fail_charge_denom", Node::integer, &mut quota.fail_charge.1)?;
    if let Some(weights) = node.get("weights") {
        weights.only(&["sz_permil", "nr_accesses_permil", "age_permil"])?;
        let mut made = [0; 3];
        weights.read("sz_permil", Node::permille, &mut made[0])?;
        weights.read("nr_accesses_permil", Node::permille, &mut made[1])?;
        weights.read("age_permil", Node::permille, &mut made[2])?;
        let narrow = |value: u64| u32::try_from(value).map_err(|_| weights.error("has a weight that is too large"));
        quota.weights = Weights { size: narrow(made[0])?, nr_accesses: narrow(made[1])?, age: narrow(made[2])? };
    }
    if let Some(tuner) = node.get("goal_tuner") {
        quota.tuner = match tuner.text()? {
            "consist" => Tuner::Consist,
            "temporal" => Tuner::Temporal,
            _ => return Err(tuner.error("is not a tuner; use consist or temporal")),
        };
    }
    if let Some(goals) = node.get("goals") {
        for goal in goals.items()? {
            quota.goals.push(read_goal(&goal, config)?);
        }
    }
    Ok(quota)
}

/// Metrics whose values are shares.
const METRICS: &str = "user_input, some_mem_psi_us, node_mem_used_bp, node_mem_free_bp, node_memcg_used_bp, \
                       node_memcg_free_bp, active_mem_bp, inactive_mem_bp, node_eligible_mem_bp";

fn read_goal(node: &Node, config: &mut Config) -> Result<Goal, ConfigError> {
    node.only(&["metric", "nid", "memcg_path", "target_value", "current_value"])?;
    let metric = node.get("metric").ok_or_else(|| node.error_at("metric", "is missing"))?;
    let mut nid = 0;
    if let Some(value) = node.get("nid")
        && let Ok(value) = value.integer()
    {
        nid = value;
    }
    let nid = u32::try_from(nid).map_err(|_| node.error_at("nid", "is too large for a node"))?;
    let memcg = |config: &mut Config| {
        let path = node.get("memcg_path").ok_or_else(|| node.error_at("memcg_path", "is missing"))?;
        Ok(memcg_index(config, path.text()?))
    };
    let metric = match metric.text()? {
        "user_input" => Metric::UserInput,
        "some_mem_psi_us" => Metric::SomeMemPsiUs,
        "node_mem_used_bp" => Metric::NodeMemUsedBp { node: nid },
        "node_mem_free_bp" => Metric::NodeMemFreeBp { node: nid },
        "node_memcg_used_bp" => Metric::NodeMemcgUsedBp { node: nid, memcg: memcg(config)? },
        "node_memcg_free_bp" => Metric::NodeMemcgFreeBp { node: nid, memcg: memcg(config)? },
        "active_mem_bp" => Metric::ActiveMemBp,
        "inactive_mem_bp" => Metric::InactiveMemBp,
        "node_eligible_mem_bp" => Metric::NodeEligibleMemBp { node: nid },
        _ => return Err(metric.error(&format!("is not a metric; use one of {METRICS}"))),
    };
    let unit = match metric {
        Metric::UserInput => Node::integer,
        Metric::SomeMemPsiUs => Node::micros,
        _ => Node::basis_points,
    };
    let (mut target, mut current) = (0, 0);
    node.read("target_value", unit, &mut target)?;
    node.read("current_value", unit, &mut current)?;
    Ok(Goal::new(metric, target, current))
}

fn memcg_index(config: &mut Config, path: &str) -> u32 {
    let known = config.memcg_paths.iter().position(|known| known == path);
    known.unwrap_or_else(|| {
        config.memcg_paths.push(path.to_owned());
        config.memcg_paths.len() - 1
    }) as u32
}

fn read_watermarks(node: &Node) -> Result<Watermarks, ConfigError> {
    node.only(&["metric", "interval_us", "high_permil", "mid_permil", "low_permil"])?;
    let mut marks = Watermarks::default();
    if let Some(metric) = node.get("metric") {
        marks.metric = match metric.text()? {
            "none" => WatermarkMetric::None,
            "free_mem_rate" => WatermarkMetric::FreeMemRate,
            _ => return Err(metric.error("is not a metric; use none or free_mem_rate")),
        };
    }
    node.read("interval_us", Node::micros, &mut marks.interval)?;
    node.read("high_permil", Node::permille, &mut marks.high)?;
    node.read("mid_permil", Node::permille, &mut marks.mid)?;
    node.read("low_permil", Node::permille, &mut marks.low)?;
    Ok(marks)
}

fn read_filter(node: &Node, config: &mut Config) -> Result<Filter, ConfigError> {
    node.only(&[
        "filter_type",
        "matching",
        "allow",
        "memcg_path",
        "address_range",
        "damon_target_idx",
        "hugepage_size",
    ])?;
    let filter_type = node.get("filter_type").ok_or_else(|| node.error_at("filter_type", "is missing"))?;
    let pair = |key: &str, names: [&str; 2]| -> Result<[u64; 2], ConfigError> {
        let node = node.get(key).ok_or_else(|| node.error_at(key, "is missing"))?;
        if let Ok(items) = node.items() {
            let [first, second] = &items[..] else { return Err(node.error("must be two numbers")) };
            return Ok([first.size()?, second.size()?]);
        }
        node.only(&names)?;
        let mut made = [0, u64::MAX];
        node.read(names[0], Node::size, &mut made[0])?;
        node.read(names[1], Node::size, &mut made[1])?;
        Ok(made)
    };
    let kind = match filter_type.text()? {
        "addr" => {
            let [start, end] = pair("address_range", ["start", "end"])?;
            FilterKind::Addr(start..end)
        }
        "target" => {
            let index = node.get("damon_target_idx");
            let index = index.ok_or_else(|| node.error_at("damon_target_idx", "is missing"))?.integer()?;
            FilterKind::Target(usize::try_from(index).unwrap_or(usize::MAX))
        }
        "anon" => FilterKind::Anon,
        "active" => FilterKind::Active,
        "memcg" => {
            let path = node.get("memcg_path").ok_or_else(|| node.error_at("memcg_path", "is missing"))?;
            FilterKind::Memcg(memcg_index(config, path.text()?))
        }
        "young" => FilterKind::Young,
        "hugepage_size" => {
            let [min, max] = pair("hugepage_size", ["min", "max"])?;
            FilterKind::HugepageSize { min, max }
        }
        "unmapped" => FilterKind::Unmapped,
        _ => {
            return Err(filter_type
                .error("is not a filter; use addr, target, anon, active, memcg, young, hugepage_size or unmapped"));
        }
    };
    let flag = |key: &str, default: bool| node.get(key).map_or(Ok(default), |node| node.boolean());
    Ok(Filter { kind, matching: flag("matching", true)?, allow: flag("allow", false)? })
}

/// The tree of `ACTION [KEY=VALUE]…`: `sz_bytes`, `nr_accesses` and `age` as `MIN..MAX` with open ends, `apply=TIME`,
/// `quota=TIME,SIZE,WINDOW`, `weights=SIZE,FREQUENCY,AGE`, `wmarks=METRIC,INTERVAL,HIGH,MID,LOW`, `node=N`.
pub(super) fn from_line(line: &str) -> Result<Value, ConfigError> {
    let fail = |key: &str, reason: &str| ConfigError {
        origin: "--scheme".to_owned(),
        key: key.to_owned(),
        reason: reason.to_owned(),
    };
    let mut words = line.split_whitespace();
    let action = words.next().ok_or_else(|| fail("action", "is missing"))?;
    let mut scheme = Map::from_iter([("action".to_owned(), json!(action))]);
    let mut pattern = Map::new();
    let mut quotas = Map::new();
    let set = |table: &mut Map<String, Value>, keys: &[&str], key: &str, value: &str| {
        let values: Vec<&str> = value.split(',').collect();
        if values.len() != keys.len() {
            return Err(fail(key, &format!("must be {} values with commas between: {}", keys.len(), keys.join(","))));
        }
        table.extend(keys.iter().zip(values).map(|(key, value)| ((*key).to_owned(), json!(value))));
        Ok(())
    };
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| fail(word, "must be KEY=VALUE"))?;
        match key {
            "sz_bytes" | "nr_accesses" | "age" => {
                let (min, max) = value.split_once("..").unwrap_or((value, value));
                let or = |text: &str, open: &str| if text.is_empty() { open.to_owned() } else { text.to_owned() };
                pattern.insert(key.to_owned(), json!({"min": or(min, "min"), "max": or(max, "max")}));
            }
            "apply" => _ = scheme.insert("apply_interval_us".to_owned(), json!(value)),
            "node" => _ = scheme.insert("target_nid".to_owned(), json!(value)),
            "quota" => set(&mut quotas, &["time_ms", "sz_bytes", "reset_interval_ms"], key, value)?,
            "weights" => {
                let mut weights = Map::new();
                set(&mut weights, &["sz_permil", "nr_accesses_permil", "age_permil"], key, value)?;
                quotas.insert("weights".to_owned(), Value::Object(weights));
            }
            "wmarks" => {
                let mut marks = Map::new();
                let keys = ["metric", "interval_us", "high_permil", "mid_permil", "low_permil"];
                set(&mut marks, &keys, key, value)?;
                scheme.insert("watermarks".to_owned(), Value::Object(marks));
            }
            _ => {
                return Err(fail(
                    key,
                    "is not known; known are sz_bytes, nr_accesses, age, apply, quota, weights, wmarks, node",
                ));
            }
        }
    }
    scheme.insert("access_pattern".to_owned(), Value::Object(pattern));
    scheme.insert("quotas".to_owned(), Value::Object(quotas));
    Ok(Value::Object(scheme))
}
