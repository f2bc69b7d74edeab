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
use std::time::Duration;

use refault_core::Counters;
use refault_core::adaptive::Way;
use refault_core::policy::registry::{Fact, PolicySpec};
use refault_sim::{Outcome, ReadAheadCounts};
use refault_trace::Reading;
use serde_json::{Map, Value, json};

use crate::sweep::{ByteCounts, Run, Sample, TraceRuns};

/// The fields before the counters, in order.
pub const LEADING_FIELDS: [&str; 8] =
    ["trace", "policy", "memory_pages", "accesses", "distinct_pages", "hits", "misses", "miss_ratio"];
/// The fields between the counters and the times, if any trace says how many bytes its accesses stand for.
pub const BYTE_FIELDS: [&str; 3] = ["bytes", "byte_misses", "byte_miss_ratio"];
/// The fields between the counters and the times, where pages were read ahead.
pub const READ_AHEAD_FIELDS: [&str; 2] = ["pages_read_ahead", "pages_read_ahead_unused"];
/// The fields after the counters, in order: the only ones that differ between two runs of one command.
pub const TRAILING_FIELDS: [&str; 2] = ["wall_seconds", "accesses_per_second"];

/// Writes all runs as CSV; `timing` adds [`TRAILING_FIELDS`].
pub fn write_csv(out: &mut dyn Write, results: &[TraceRuns], timing: bool) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let sized = rows(results).any(|(_, run)| run.bytes.is_some());
    let bytes = BYTE_FIELDS.iter().filter(|_| sized);
    let reads_ahead = rows(results).any(|(_, run)| run.outcome.read_ahead.is_some());
    let ahead = READ_AHEAD_FIELDS.iter().filter(|_| reads_ahead);
    let times = TRAILING_FIELDS.iter().filter(|_| timing);
    csv.write_record(LEADING_FIELDS.iter().chain(Counters::NAMES).chain(bytes).chain(ahead).chain(times))?;
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
        if reads_ahead {
            let counts = run.outcome.read_ahead.unwrap_or_default();
            record.extend([counts.pages.to_string(), counts.unused.to_string()]);
        }
        if timing {
            record.push(format!("{:.6}", run.wall.as_secs_f64()));
            record.push(format!("{:.0}", run.accesses_per_second()));
        }
        csv.write_record(&record)?;
    }
    csv.flush()
}

/// Writes all runs as [`to_json`] has them.
pub fn write_json(out: &mut dyn Write, results: &[TraceRuns], verdict: &Value, timing: bool) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, &to_json(results, verdict, timing))?;
    writeln!(out)
}

/// All runs as `{"runs":[{…}],"traces":[{…}],"verdict":…}`, `traces` with what was left out or assumed of each, in order;
/// `timing` adds [`TRAILING_FIELDS`].
pub fn to_json(results: &[TraceRuns], verdict: &Value, timing: bool) -> Value {
    let runs: Vec<Value> = rows(results).map(|(trace, run)| Value::Object(json_run(trace, run, timing))).collect();
    let readings = results.iter().map(|trace| {
        let mut reading = trace.reading.to_json();
        reading["trace"] = json!(trace.trace);
        reading
    });
    let readings: Vec<Value> = readings.collect();
    json!({ "runs": runs, "traces": readings, "verdict": verdict })
}

/// Runs as [`write_json`] writes them, read back: the same tables, verdicts and files can be made of them. What JSON
/// does not hold is empty: bytes of metadata, anonymous pages, generations over time; a trace has the accesses that
/// were counted and `warm_up` more.
///
/// # Errors
/// Words about the first thing that is not as [`write_json`] writes it.
pub fn read_json(text: &[u8], warm_up: u64) -> Result<Vec<TraceRuns>, String> {
    let whole: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let rows = whole.get("runs").and_then(Value::as_array).ok_or("no runs")?;
    let readings = whole.get("traces").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut traces: Vec<TraceRuns> = Vec::new();
    for row in rows {
        let name = word(row, "trace")?;
        let run = run_of(row)?;
        match traces.last_mut().filter(|trace| trace.trace == name) {
            Some(trace) => trace.runs.push(run),
            None => traces.push(TraceRuns {
                trace: name.to_owned(),
                accesses: run.outcome.accesses.saturating_add(warm_up),
                distinct_pages: number(row, "distinct_pages")?,
                distinct_anon: 0,
                reading: readings
                    .iter()
                    .find(|reading| reading.get("trace").and_then(Value::as_str) == Some(name))
                    .and_then(Reading::from_json)
                    .unwrap_or_default(),
                runs: vec![run],
            }),
        }
    }
    Ok(traces)
}

fn run_of(row: &Value) -> Result<Run, String> {
    let policy = word(row, "policy")?;
    let spec = PolicySpec::parse(policy).map_err(|error| error.to_string())?;
    let mut counters = Counters::default();
    for name in Counters::NAMES {
        counters.set(name, number(row, name)?);
    }
    let leaders = row.get("leaders").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let samples = leaders.iter().map(|held| {
        let leader = word(held, "leader")?;
        let way = Way::from_name(leader).ok_or_else(|| format!("no way of choosing is called '{leader}'"))?;
        Ok(Sample { accesses: number(held, "until")?, misses: 0, generations: Vec::new(), leader: Some(way.name()) })
    });
    Ok(Run {
        policy: policy.to_owned(),
        needs_future: spec.entry.is(Fact::NeedsFuture),
        memory_pages: number(row, "memory_pages")?,
        outcome: Outcome {
            accesses: number(row, "accesses")?,
            hits: number(row, "hits")?,
            misses: number(row, "misses")?,
            counters,
            resident: 0,
            read_ahead: match row.get(READ_AHEAD_FIELDS[0]) {
                None => None,
                Some(_) => Some(ReadAheadCounts {
                    pages: number(row, READ_AHEAD_FIELDS[0])?,
                    unused: number(row, READ_AHEAD_FIELDS[1])?,
                }),
            },
        },
        bytes: match row.get("bytes") {
            None => None,
            Some(_) => Some(ByteCounts { all: number(row, "bytes")?, missed: number(row, "byte_misses")? }),
        },
        metadata_bytes: 0,
        wall: Duration::from_secs_f64(row.get("wall_seconds").and_then(Value::as_f64).unwrap_or(0.0).clamp(0.0, 1e9)),
        samples: samples.collect::<Result<_, String>>()?,
    })
}

fn word<'a>(row: &'a Value, name: &str) -> Result<&'a str, String> {
    row.get(name).and_then(Value::as_str).ok_or_else(|| format!("a run without {name}"))
}

fn number(row: &Value, name: &str) -> Result<u64, String> {
    row.get(name).and_then(Value::as_u64).ok_or_else(|| format!("a run without {name}"))
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
    if let Some(counts) = run.outcome.read_ahead {
        put(READ_AHEAD_FIELDS[0], json!(counts.pages));
        put(READ_AHEAD_FIELDS[1], json!(counts.unused));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::parse_policies;
    use crate::sweep::{SAMPLES, Sweep, sweep};
    use crate::verdict::judge;
    use refault_trace::{Options, Source};

    /// Everything that tables, verdicts and files show must come back from what was written.
    #[test]
    fn what_was_written_is_read_back() {
        let policies = || parse_policies(&["lru,opt,adaptive,mglru{tiers=1}".into()]).expect("known");
        let sizes = || vec!["10%".parse().expect("a size"), "50%".parse().expect("a size")];
        let plan = Sweep { samples: SAMPLES, ..Sweep::new(policies(), sizes()) };
        let directory = tempfile::tempdir().expect("a directory");
        let sized = directory.path().join("sized.csv");
        std::fs::write(&sized, "object,size\n1,100\n2,5000\n1,100\n3,7\n").expect("written");
        let sources = [
            Source::workload("hotcold:pages=2000,accesses=40000,hot=200,phases=4".parse().expect("a workload")),
            Source::file(sized, Options::default()),
        ];
        let found: Vec<TraceRuns> =
            sources.iter().map(|source| sweep(source, &plan, &()).expect("it can be read")).collect();
        let written = |results: &[TraceRuns]| {
            let (mut json, mut csv) = (Vec::new(), Vec::new());
            write_json(&mut json, results, &judge(results, "lru").to_json(), false).expect("written");
            write_csv(&mut csv, results, false).expect("written");
            (json, csv)
        };
        let before = written(&found);
        let again = read_json(&before.0, 0).expect("as it was written");
        assert_eq!(written(&again), before);
        assert!(found.iter().any(|trace| trace.runs.iter().any(|run| run.bytes.is_some())));
        assert!(found.iter().any(|trace| trace.runs.iter().any(|run| !leaders_of(run).is_empty())));
        assert_eq!(again[0].accesses, 40_000);
        assert!(again[0].runs.iter().any(|run| run.needs_future));
    }

    #[test]
    fn what_is_no_result_is_refused_in_words() {
        assert!(read_json(b"nonsense", 0).is_err());
        assert_eq!(read_json(b"{}", 0).err().as_deref(), Some("no runs"));
        assert_eq!(read_json(br#"{"runs":[{}]}"#, 0).err().as_deref(), Some("a run without trace"));
        let unknown = br#"{"runs":[{"trace":"t","policy":"none"}]}"#;
        assert!(read_json(unknown, 0).is_err_and(|error| error.contains("none")));
    }
}
