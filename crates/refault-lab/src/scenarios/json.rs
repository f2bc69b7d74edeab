//! What a scenario came to, as JSON.

use refault_sim::machine::report::{LatencySummary, Performance, Report};
use serde_json::{Map, Value, json};

use super::{Case, end_name, runs};
use crate::size::PAGE_BYTES;

/// One object with all runs: end, counters, groups, tasks, events.
pub fn json(cases: &[Case]) -> Value {
    let runs: Vec<Value> = runs(cases).map(|(case, index, report)| json_run(case, index, report)).collect();
    json!({ "runs": runs })
}

/// Whole numbers as such.
fn json_number(value: f64) -> Value {
    if value >= 0.0 && value.fract() == 0.0 && value < (1u64 << 53) as f64 { json!(value as u64) } else { json!(value) }
}

fn json_run(case: &Case, index: usize, report: &Report) -> Value {
    let mut object = Map::new();
    object.insert("policy".into(), json!(case.policy));
    object.insert("memory_bytes".into(), json!(case.memory_pages * PAGE_BYTES));
    object.insert("run".into(), json!(index + 1));
    object.insert("end".into(), json!(end_name(report.end)));
    for (name, value) in report.fields() {
        object.insert(name, json_number(value));
    }
    let groups: Vec<Value> = (report.groups.iter())
        .map(|g| {
            let e = g.events;
            let events = json!({"low": e.low, "high": e.high, "max": e.max, "oom": e.oom, "oom_kill": e.oom_kill});
            json!({"name": g.name, "usage": g.usage, "swap_usage": g.swap_usage, "major_faults": g.major_faults,
                "events": events, "performance": performance(&g.performance)})
        })
        .collect();
    object.insert("groups".into(), Value::Array(groups));
    let tasks: Vec<Value> = (report.tasks.iter())
        .map(|t| {
            json!({"name": t.name, "group": t.group, "accesses": t.accesses, "operations": t.operations,
                "start_ns": t.start, "finished_at_ns": t.finished_at, "kills": t.kills, "starts": t.starts,
                "stalled_ns": t.stalled, "waited_ns": t.waited, "cpu_time_ns": t.cpu_time,
                "major_faults": t.major_faults, "latency": latency(t.latency)})
        })
        .collect();
    object.insert("tasks".into(), Value::Array(tasks));
    object.insert("task_sets".into(), Value::Array(report.task_sets.iter().map(performance).collect()));
    object.insert("lruvecs".into(), json!(report.lruvecs));
    object.insert("kills".into(), json!(report.kills));
    let listings: Vec<Value> = report.listings.iter().map(|l| json!({"at_ns": l.at, "text": l.text})).collect();
    object.insert("listings".into(), Value::Array(listings));
    object.insert("events".into(), json!(report.happenings));
    if let Some(monitor) = &report.monitor {
        let described = json!({"nr_regions": monitor.nr_regions, "damo": monitor.tree});
        object.insert("monitor".into(), described);
    }
    Value::Object(object)
}

fn latency(latency: LatencySummary) -> Value {
    json!(latency)
}

fn performance(tasks: &Performance) -> Value {
    let mut object = json!(tasks);
    object["operations_per_second"] = json!(tasks.operations_per_second());
    object
}
