//! What a scenario came to, for programs: CSV of counters, tasks and samples, JSON of all, events one by one.

use std::io::Write;

use refault_console::{Failure, Output};
use refault_lab::size::PAGE_BYTES;
use refault_sim::machine::report::{LatencySummary, Performance, Report};
use serde_json::{Map, Value, json};

use super::cases::{Case, end_name};

/// Which run a row is of: policy, memory, and the number of the run among those that differ by their seeds, from 1.
const RUN_COLUMNS: [&str; 3] = ["policy", "memory_bytes", "run"];

fn run_cells(case: &Case, index: usize) -> [String; 3] {
    [case.policy.clone(), (case.memory_pages * PAGE_BYTES).to_string(), (index + 1).to_string()]
}

/// All runs with their cases and numbers.
fn runs(cases: &[Case]) -> impl Iterator<Item = (&Case, usize, &Report)> {
    cases.iter().flat_map(|case| case.runs.iter().enumerate().map(move |(index, run)| (case, index, run)))
}

/// A row of counters for each run.
pub fn csv(out: &mut dyn Write, cases: &[Case]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let fields = cases[0].first().fields();
    csv.write_record(RUN_COLUMNS.into_iter().chain(fields.iter().map(|(name, _)| name.as_str())))?;
    for (case, index, report) in runs(cases) {
        let values = report.fields().into_iter().map(|(_, value)| value.to_string());
        csv.write_record(run_cells(case, index).into_iter().chain(values))?;
    }
    csv.flush()
}

/// A row for each run and task, for the copies of a task together, and for each group.
pub fn tasks(output: Output, cases: &[Case]) -> Result<(), Failure> {
    output.write(|out| {
        let mut csv = csv::Writer::from_writer(out);
        let columns = [
            "of",
            "name",
            "tasks",
            "accesses",
            "operations",
            "operations_per_second",
            "latency_p50_ns",
            "latency_p90_ns",
            "latency_p99_ns",
            "latency_p999_ns",
            "latency_max_ns",
            "stalled_ns",
            "waited_ns",
            "cpu_time_ns",
            "major_faults",
            "kills",
        ];
        csv.write_record(RUN_COLUMNS.into_iter().chain(columns))?;
        for (case, index, report) in runs(cases) {
            let copies = report.task_sets.iter().filter(|set| set.tasks > 1).map(|set| ("copies", set.clone()));
            let single = report.tasks.iter().map(|task| {
                let to = task.finished_at.unwrap_or(report.elapsed);
                let alone = Performance {
                    name: task.name.clone(),
                    tasks: 1,
                    accesses: task.accesses,
                    operations: task.operations,
                    span_ns: to.saturating_sub(task.start),
                    latency: task.latency,
                    stalled_ns: task.stalled,
                    waited_ns: task.waited,
                    cpu_time_ns: task.cpu_time,
                    major_faults: task.major_faults,
                    kills: task.kills,
                };
                ("task", alone)
            });
            let groups = report.groups.iter().map(|group| ("group", group.performance.clone()));
            for (of, row) in single.chain(copies).chain(groups) {
                let latency = row.latency;
                let numbers = [row.tasks, row.accesses, row.operations].map(|number| number.to_string());
                let rest = [
                    latency.p50_ns,
                    latency.p90_ns,
                    latency.p99_ns,
                    latency.p999_ns,
                    latency.max_ns,
                    row.stalled_ns,
                    row.waited_ns,
                    row.cpu_time_ns,
                    row.major_faults,
                    row.kills,
                ]
                .map(|number| number.to_string());
                let rate = row.operations_per_second().to_string();
                let cells = run_cells(case, index).into_iter().chain([of.to_string(), row.name]).chain(numbers);
                csv.write_record(cells.chain([rate]).chain(rest))?;
            }
        }
        csv.flush()
    })
}

/// One object with all runs.
pub fn json(out: &mut dyn Write, cases: &[Case]) -> std::io::Result<()> {
    let runs: Vec<Value> = runs(cases).map(|(case, index, report)| json_run(case, index, report)).collect();
    serde_json::to_writer(&mut *out, &json!({ "runs": runs }))?;
    writeln!(out)
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

/// The samples of all runs, a row for each.
pub fn samples(output: Output, cases: &[Case]) -> Result<(), Failure> {
    output.write(|out| {
        for (number, (case, index, report)) in runs(cases).enumerate() {
            let [policy, memory, run] = run_cells(case, index);
            let text = report.samples_csv();
            let mut lines = text.lines();
            let head = lines.next().unwrap_or_default();
            if number == 0 {
                writeln!(out, "{},{head}", RUN_COLUMNS.join(","))?;
            }
            lines.try_for_each(|line| writeln!(out, "\"{policy}\",{memory},{run},{line}"))?;
        }
        Ok(())
    })
}

/// What happened, in the order of time: a line of JSON for each event.
pub fn events(output: Output, cases: &[Case]) -> Result<(), Failure> {
    output.write(|out| {
        for (case, index, report) in runs(cases) {
            for happening in &report.happenings {
                let mut line =
                    json!({"policy": case.policy, "memory_bytes": case.memory_pages * PAGE_BYTES, "run": index + 1});
                if let (Value::Object(line), Value::Object(what)) = (&mut line, json!(happening)) {
                    line.extend(what);
                }
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    })
}
