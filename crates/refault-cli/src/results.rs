//! Runs as rows: the fields of CSV and JSON (a contract with scripts) and the tables for people.

use std::io::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use refault_core::Counters;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::size::pages_text;
use crate::sweep::{Run, TraceRuns};

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    Table,
    /// One row a run, with a header.
    Csv,
    /// One object with all runs.
    Json,
}

/// The fields before the counters, in order.
pub const LEADING_FIELDS: [&str; 8] =
    ["trace", "policy", "memory_pages", "accesses", "distinct_pages", "hits", "misses", "miss_ratio"];
/// The fields after the counters, in order.
pub const TRAILING_FIELDS: [&str; 2] = ["wall_seconds", "accesses_per_second"];

/// Writes all runs as CSV.
pub fn write_csv(out: &mut dyn Write, results: &[TraceRuns]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(LEADING_FIELDS.iter().chain(Counters::NAMES).chain(&TRAILING_FIELDS))?;
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
        record.push(format!("{:.6}", run.wall.as_secs_f64()));
        record.push(format!("{:.0}", run.accesses_per_second()));
        csv.write_record(&record)?;
    }
    csv.flush()
}

/// Writes all runs as `{"runs":[{…}]}`.
pub fn write_json(out: &mut dyn Write, results: &[TraceRuns]) -> std::io::Result<()> {
    let runs: Vec<Value> = rows(results).map(|(trace, run)| Value::Object(json_run(trace, run))).collect();
    serde_json::to_writer(&mut *out, &json!({ "runs": runs }))?;
    writeln!(out)
}

fn json_run(trace: &TraceRuns, run: &Run) -> Map<String, Value> {
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
    put("wall_seconds", json!(run.wall.as_secs_f64()));
    put("accesses_per_second", json!(run.accesses_per_second().round()));
    object
}

/// Writes a table a trace: miss ratios by policy and size, or, where only one size was asked for, the counters.
pub fn write_table(out: &mut dyn Write, results: &[TraceRuns]) -> std::io::Result<()> {
    for (index, trace) in results.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let sizes = sizes_of(trace);
        writeln!(
            out,
            "{}: {} accesses to {} distinct pages ({})",
            trace.trace,
            grouped(trace.accesses),
            grouped(trace.distinct_pages),
            pages_text(trace.distinct_pages)
        )?;
        let table = if sizes.len() > 1 { ratio_table(trace, &sizes) } else { counter_table(trace) };
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    let many = results.iter().any(|trace| sizes_of(trace).len() > 1);
    let legend = if many {
        "Figures are misses in % of accesses, first touches included. * fewest at that size without knowing the future."
    } else {
        "misses: accesses that did not find their page in memory, first touches included. Other columns: pages, counted \
         as /proc/vmstat counts them."
    };
    writeln!(out, "\n{legend}")
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

fn ratio_table(trace: &TraceRuns, sizes: &[u64]) -> Table {
    let mut table = plain_table();
    let mut header = vec!["policy".to_string()];
    header.extend(sizes.iter().map(|pages| pages_text(*pages)));
    table.set_header(header);
    let fewest = |pages: u64| {
        let runs = trace.runs.iter().filter(|run| run.memory_pages == pages && !run.needs_future);
        runs.map(|run| run.outcome.misses).min()
    };
    let percent = percent_format(trace.runs.iter().map(Run::miss_ratio));
    for policy in policies_of(trace) {
        let mut row = vec![policy.to_string()];
        for pages in sizes {
            let run = trace.runs.iter().find(|run| run.policy == policy && run.memory_pages == *pages);
            let run = run.expect("invariant: a sweep runs every policy at every size");
            let best = !run.needs_future && fewest(*pages) == Some(run.outcome.misses);
            row.push(format!("{}{}", percent(run.miss_ratio()), if best { '*' } else { ' ' }));
        }
        table.add_row(row);
    }
    align_numbers(&mut table);
    table
}

fn counter_table(trace: &TraceRuns) -> Table {
    let mut table = plain_table();
    let header = [
        "policy",
        "memory",
        "misses",
        "miss %",
        "refaults",
        "pgscan",
        "pgsteal",
        "pgactivate",
        "pgdeactivate",
        "M accesses/s",
    ];
    table.set_header(header);
    let percent = percent_format(trace.runs.iter().map(Run::miss_ratio));
    for run in &trace.runs {
        let counters = &run.outcome.counters;
        table.add_row([
            run.policy.clone(),
            pages_text(run.memory_pages),
            grouped(run.outcome.misses),
            percent(run.miss_ratio()),
            grouped(counters.workingset_refault_anon + counters.workingset_refault_file),
            grouped(counters.pgscan),
            grouped(counters.pgsteal),
            grouped(counters.pgactivate),
            grouped(counters.pgdeactivate),
            format!("{:.1}", run.accesses_per_second() / 1e6),
        ]);
    }
    align_numbers(&mut table);
    table
}

/// A table without borders, for any width.
pub fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Everything but the first column to the right.
pub fn align_numbers(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// A formatter of ratios (0 to 1) as percentages, with as many digits after the point as the smallest needs.
pub fn percent_format(ratios: impl Iterator<Item = f64>) -> impl Fn(f64) -> String + Copy {
    let smallest = ratios.filter(|ratio| *ratio > 0.0).fold(1.0, f64::min);
    let digits = match smallest {
        s if s < 0.001 => 4,
        s if s < 0.01 => 3,
        _ => 2,
    };
    move |ratio: f64| format!("{:.digits$}", ratio * 100.0)
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn rows(results: &[TraceRuns]) -> impl Iterator<Item = (&TraceRuns, &Run)> {
    results.iter().flat_map(|trace| trace.runs.iter().map(move |run| (trace, run)))
}

/// Where results go: a file or standard output.
pub fn with_output(
    path: Option<&std::path::Path>,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let (place, result) = match path {
        None => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            ("standard output".to_string(), write(&mut out).and_then(|()| out.flush()))
        }
        Some(path) => {
            let written = std::fs::File::create(path).and_then(|file| {
                let mut out = std::io::BufWriter::new(file);
                write(&mut out)?;
                out.flush()
            });
            (path.display().to_string(), written)
        }
    };
    result.map_err(|error| Failure::write(place, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(grouped).map(String::leak));
    }
}
