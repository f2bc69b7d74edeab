//! What a scenario came to, for programs: CSV of counters, tasks and samples, JSON of all, events one by one.

use std::io::Write;

use refault_console::{Failure, Output};
use refault_lab::scenarios::{self, Case, runs};
use refault_lab::size::PAGE_BYTES;
use refault_sim::machine::report::Performance;
use serde_json::{Value, json};

/// Which run a row is of: policy, memory, and the number of the run among those that differ by their seeds, from 1.
const RUN_COLUMNS: [&str; 3] = ["policy", "memory_bytes", "run"];

fn run_cells(case: &Case, index: usize) -> [String; 3] {
    [case.policy.clone(), (case.memory_pages * PAGE_BYTES).to_string(), (index + 1).to_string()]
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
    serde_json::to_writer(&mut *out, &scenarios::json(cases))?;
    writeln!(out)
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
