//! The JSON tree of DAMON's user-space tool (spec: tools §1.3): unwrapped on the way in, written on the way out.

use refault_core::monitor::IntervalsGoal;
use refault_core::schemes::{Action, Bounds, FilterKind, Metric, Scheme, SchemeSettings, Tuner};
use serde_json::{Value, json};

use super::Config;
use super::tree::{ConfigError, Node};

/// The one monitor of a tree: `{kdamonds:[{contexts:[…]}]}`, `{contexts:[…]}`, the monitor itself, or a list of
/// schemes.
pub(super) fn to_context(tree: Value, origin: &str) -> Result<Value, ConfigError> {
    if tree.is_array() {
        return Ok(json!({ "schemes": tree }));
    }
    let mut tree = tree;
    for (key, known) in [("kdamonds", &["kdamonds"][..]), ("contexts", &["state", "pid", "refresh_ms", "contexts"][..])]
    {
        if tree.get(key).is_none() {
            continue;
        }
        let node = Node::root_of_program(&tree, origin);
        node.only(known)?;
        let list = node.get(key).ok_or_else(|| node.error_at(key, "must be a list"))?;
        let items = list.items()?;
        if items.len() != 1 {
            return Err(list.error(&format!("has {} entries; exactly one monitor runs here", items.len())));
        }
        tree = tree[key][0].take();
    }
    Ok(tree)
}

pub(super) fn tree(config: &Config, at_work: Option<&[Scheme]>) -> Value {
    let attributes = &config.attributes;
    let off = IntervalsGoal { access_bp: 0, aggrs: 0, min_sample_us: 0, max_sample_us: 0 };
    let goal = attributes.intervals_goal.unwrap_or(off);
    let targets: Vec<Value> = config
        .targets
        .iter()
        .map(|target| {
            let region = |range: &std::ops::Range<u64>| json!({"start": range.start, "end": range.end});
            json!({
                "pid": target.pid,
                "obsolete": false,
                "regions": target.ranges.iter().map(region).collect::<Vec<_>>(),
            })
        })
        .collect();
    let schemes: Vec<Value> = config
        .schemes
        .iter()
        .enumerate()
        .map(|(index, settings)| scheme(config, settings, at_work.and_then(|at_work| at_work.get(index))))
        .collect();
    json!({"kdamonds": [{
        "state": if at_work.is_some() { "on" } else { "off" },
        "pid": null,
        "refresh_ms": 0,
        "contexts": [{
            "ops": config.view.name(),
            "addr_unit": 1,
            "targets": targets,
            "intervals": {
                "sample_us": attributes.sample_interval,
                "aggr_us": attributes.aggr_interval,
                "ops_update_us": attributes.ops_update_interval,
                "intervals_goal": {
                    "access_bp": goal.access_bp,
                    "aggrs": goal.aggrs,
                    "min_sample_us": goal.min_sample_us,
                    "max_sample_us": goal.max_sample_us,
                },
            },
            "nr_regions": {"min": attributes.min_nr_regions, "max": attributes.max_nr_regions},
            "schemes": schemes,
        }],
    }]})
}

fn scheme(config: &Config, settings: &SchemeSettings, at_work: Option<&Scheme>) -> Value {
    let bounds = |bounds: &Bounds| {
        let max = if bounds.max == u64::MAX { json!("max") } else { json!(bounds.max) };
        json!({"min": bounds.min, "max": max})
    };
    let counted = |bounds: &Bounds, unit: &str| {
        let max = if bounds.max == u64::MAX { "max".to_owned() } else { format!("{} {unit}", bounds.max) };
        json!({"min": format!("{} {unit}", bounds.min), "max": max})
    };
    let target_nid = match settings.action {
        Action::MigrateHot { node } | Action::MigrateCold { node } => json!(node),
        _ => Value::Null,
    };
    let quota = &settings.quota;
    let statistics = at_work.map(|scheme| *scheme.statistics()).unwrap_or_default();
    let marks = &settings.watermarks;
    json!({
        "action": settings.action.name(),
        "target_nid": target_nid,
        "dests": [],
        "access_pattern": {
            "sz_bytes": bounds(&settings.pattern.size),
            "nr_accesses": counted(&settings.pattern.nr_accesses, "samples"),
            "age": counted(&settings.pattern.age, "aggr_intervals"),
        },
        "apply_interval_us": settings.apply_interval,
        "quotas": {
            "time_ms": quota.time_ms,
            "sz_bytes": quota.size,
            "reset_interval_ms": quota.reset_interval_ms,
            "fail_charge_num": quota.fail_charge.0,
            "fail_charge_denom": quota.fail_charge.1,
            "goals": quota.goals.iter().map(|g| goal(config, g)).collect::<Vec<_>>(),
            "goal_tuner": match quota.tuner { Tuner::Consist => "consist", Tuner::Temporal => "temporal" },
            "effective_sz_bytes": at_work.map_or(0, |scheme| scheme.quota().effective_size),
            "weights": {
                "sz_permil": quota.weights.size,
                "nr_accesses_permil": quota.weights.nr_accesses,
                "age_permil": quota.weights.age,
            },
        },
        "watermarks": {
            "metric": marks.metric.name(),
            "interval_us": marks.interval,
            "high_permil": marks.high,
            "mid_permil": marks.mid,
            "low_permil": marks.low,
        },
        "filters": settings.filters.iter().map(|f| filter(config, f)).collect::<Vec<_>>(),
        "stats": {
            "nr_tried": statistics.nr_tried,
            "sz_tried": statistics.sz_tried,
            "nr_applied": statistics.nr_applied,
            "sz_applied": statistics.sz_applied,
            "sz_ops_filter_passed": statistics.sz_ops_filter_passed,
            "qt_exceeds": statistics.qt_exceeds,
            "nr_snapshots": statistics.nr_snapshots,
            "max_nr_snapshots": settings.max_nr_snapshots,
        },
    })
}

fn goal(config: &Config, goal: &refault_core::schemes::Goal) -> Value {
    let path = |memcg: u32| config.memcg_paths.get(memcg as usize).cloned();
    let (name, node, memcg) = match &goal.metric {
        Metric::UserInput => ("user_input", None, None),
        Metric::SomeMemPsiUs => ("some_mem_psi_us", None, None),
        Metric::NodeMemUsedBp { node } => ("node_mem_used_bp", Some(*node), None),
        Metric::NodeMemFreeBp { node } => ("node_mem_free_bp", Some(*node), None),
        Metric::NodeMemcgUsedBp { node, memcg } => ("node_memcg_used_bp", Some(*node), path(*memcg)),
        Metric::NodeMemcgFreeBp { node, memcg } => ("node_memcg_free_bp", Some(*node), path(*memcg)),
        Metric::ActiveMemBp => ("active_mem_bp", None, None),
        Metric::InactiveMemBp => ("inactive_mem_bp", None, None),
        Metric::NodeEligibleMemBp { node } => ("node_eligible_mem_bp", Some(*node), None),
    };
    json!({
        "metric": name,
        "nid": node,
        "memcg_path": memcg,
        "target_value": goal.target_value,
        "current_value": goal.current_value,
    })
}

fn filter(config: &Config, filter: &refault_core::schemes::Filter) -> Value {
    let mut made = json!({
        "filter_type": filter.kind.name(),
        "matching": filter.matching,
        "allow": filter.allow,
    });
    match &filter.kind {
        FilterKind::Addr(range) => made["address_range"] = json!([range.start, range.end]),
        FilterKind::Target(index) => made["damon_target_idx"] = json!(index),
        FilterKind::Memcg(memcg) => made["memcg_path"] = json!(config.memcg_paths.get(*memcg as usize)),
        FilterKind::HugepageSize { min, max } => made["hugepage_size"] = json!([min, max]),
        _ => {}
    }
    made
}
