//! Runs as rows: the fields of CSV and JSON, a contract with scripts.
//!
//! ```
//! use refault_lab::policies::parse_policies;
//! use refault_lab::results::write_csv;
//! use refault_lab::sweep::{Sweep, sweep};
//! use refault_trace::Source;
//!
//! let source = Source::workload("cyclic:pages=100,accesses=1000".parse()?);
//! let result = sweep(&source, &Sweep::new(parse_policies(&["lru".into()])?, vec!["50%".parse()?]), &())?;
//! let mut csv = Vec::new();
//! write_csv(&mut csv, &[result], false)?; // without the time it took
//! assert!(String::from_utf8(csv)?.starts_with("trace,policy,memory_pages,"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::Write;

use refault_core::Counters;
use serde_json::{Map, Value, json};

use crate::sweep::{Run, TraceRuns};

/// The fields before the counters, in order.
pub const LEADING_FIELDS: [&str; 8] =
    ["trace", "policy", "memory_pages", "accesses", "distinct_pages", "hits", "misses", "miss_ratio"];
/// The fields between the counters and the times, if any trace says how many bytes its accesses stand for.
pub const BYTE_FIELDS: [&str; 3] = ["bytes", "byte_misses", "byte_miss_ratio"];
/// The fields after the counters, in order: the only ones that differ between two runs of one command.
pub const TRAILING_FIELDS: [&str; 2] = ["wall_seconds", "accesses_per_second"];

/// Writes all runs as CSV; `timing` adds [`TRAILING_FIELDS`].
pub fn write_csv(out: &mut dyn Write, results: &[TraceRuns], timing: bool) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let sized = rows(results).any(|(_, run)| run.bytes.is_some());
    let bytes = BYTE_FIELDS.iter().filter(|_| sized);
    let times = TRAILING_FIELDS.iter().filter(|_| timing);
    csv.write_record(LEADING_FIELDS.iter().chain(Counters::NAMES).chain(bytes).chain(times))?;
    for (trace, run) in rows(results) {
        let mut record = vec![
            trace.trace.clone(),
            run.policy.clone(),
            run.memory_pages.to_string(),
            run.outcome.accesses.to_string(),
            trace.distinct_pages.to_string(),
            run.outcome.hits.to_string(),
            run.outcome.misses.to_string(),
            run.miss_ratio().to_string(),
        ];
        record.extend(run.outcome.counters.values().iter().map(u64::to_string));
        match (sized, run.bytes) {
            (false, _) => {}
            (true, None) => record.extend(BYTE_FIELDS.map(|_| String::new())),
            (true, Some(bytes)) => {
                record.extend([bytes.all.to_string(), bytes.missed.to_string(), bytes.miss_ratio().to_string()]);
            }
        }
        if timing {
            record.push(format!("{:.6}", run.wall.as_secs_f64()));
            record.push(format!("{:.0}", run.accesses_per_second()));
        }
        csv.write_record(&record)?;
    }
    csv.flush()
}

/// Writes all runs as `{"runs":[{…}],"verdict":…}`; `timing` adds [`TRAILING_FIELDS`].
pub fn write_json(out: &mut dyn Write, results: &[TraceRuns], verdict: &Value, timing: bool) -> std::io::Result<()> {
    let runs: Vec<Value> = rows(results).map(|(trace, run)| Value::Object(json_run(trace, run, timing))).collect();
    serde_json::to_writer(&mut *out, &json!({ "runs": runs, "verdict": verdict }))?;
    writeln!(out)
}

fn json_run(trace: &TraceRuns, run: &Run, timing: bool) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_string(), value);
    put("trace", json!(trace.trace));
    put("policy", json!(run.policy));
    put("memory_pages", json!(run.memory_pages));
    put("accesses", json!(run.outcome.accesses));
    put("distinct_pages", json!(trace.distinct_pages));
    put("hits", json!(run.outcome.hits));
    put("misses", json!(run.outcome.misses));
    put("miss_ratio", json!(run.miss_ratio()));
    for (name, value) in Counters::NAMES.iter().zip(run.outcome.counters.values()) {
        put(name, json!(value));
    }
    let leaders = leaders_of(run);
    if !leaders.is_empty() {
        let leaders = leaders.iter().map(|(until, leader)| json!({ "until": until, "leader": leader }));
        put("leaders", leaders.collect());
    }
    if let Some(bytes) = run.bytes {
        put("bytes", json!(bytes.all));
        put("byte_misses", json!(bytes.missed));
        put("byte_miss_ratio", json!(bytes.miss_ratio()));
    }
    if timing {
        put("wall_seconds", json!(run.wall.as_secs_f64()));
        put("accesses_per_second", json!(run.accesses_per_second().round()));
    }
    object
}

/// Which way of choosing victims held, as it was sampled: the accesses until which each held, in order. Empty for
/// policies that have but one way.
pub fn leaders_of(run: &Run) -> Vec<(u64, &'static str)> {
    let mut held: Vec<(u64, &'static str)> = Vec::new();
    for sample in &run.samples {
        let Some(leader) = sample.leader else { continue };
        match held.last_mut() {
            Some(last) if last.1 == leader => last.0 = sample.accesses,
            _ => held.push((sample.accesses, leader)),
        }
    }
    held
}

/// The distinct memory sizes of a trace's runs, in the order asked for.
pub fn sizes_of(trace: &TraceRuns) -> Vec<u64> {
    let mut sizes = Vec::new();
    for run in &trace.runs {
        if !sizes.contains(&run.memory_pages) {
            sizes.push(run.memory_pages);
        }
    }
    sizes
}

/// The policies of a trace's runs, in order.
pub fn policies_of(trace: &TraceRuns) -> Vec<&str> {
    let mut policies: Vec<&str> = trace.runs.iter().map(|run| run.policy.as_str()).collect();
    policies.dedup();
    policies
}

fn rows(results: &[TraceRuns]) -> impl Iterator<Item = (&TraceRuns, &Run)> {
    results.iter().flat_map(|trace| trace.runs.iter().map(move |run| (trace, run)))
}
