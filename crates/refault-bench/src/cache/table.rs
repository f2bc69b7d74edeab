//! What `refault-bench cache` prints: medians of each row's runs, the spread, and the ratio to the kernel's.

use std::io::Write;

use refault_console::text::{align_numbers, plain_table};
use serde_json::json;

use super::load::{Figures, LoadArgs, PAGE, Pattern};
use super::{ALLOWANCE, CacheArgs};
use crate::median;
use crate::piecemeal::Results;
use refault_console::Format;

/// What the kernel's rows have for a policy.
pub const KERNEL: &str = "kernel";

/// What the rows of a cache of objects have for a policy.
pub const OBJECTS: &str = "quick_cache";

/// What the rows of no cache at all have for a policy.
pub const ARRAY: &str = "array";

/// What did a piece of work, and what came out.
pub struct Row {
    pattern: Pattern,
    threads: u32,
    policy: String,
    evicted: String,
    /// One for each run.
    pub runs: Vec<Figures>,
}

impl Row {
    /// Without a run.
    pub fn new(load: &LoadArgs, policy: String, evicted: String) -> Row {
        Row { pattern: load.pattern, threads: load.threads, policy, evicted, runs: Vec::new() }
    }

    fn median(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        median(self.runs.iter().map(figure).collect())
    }

    fn reactivated(&self) -> Option<f64> {
        self.runs
            .iter()
            .all(|run| run.reactivated_percent.is_some())
            .then(|| self.median(|run| run.reactivated_percent.unwrap_or(0.0)))
    }

    /// Least and most operations per second.
    fn extremes(&self) -> (f64, f64) {
        let rates = || self.runs.iter().map(|run| run.operations_per_second);
        (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max))
    }

    /// The row's rate by that of the kernel's row beside it. The kernel has no pins: it copies.
    fn ratio(&self, rows: &[Row]) -> Option<f64> {
        let kernel = rows
            .iter()
            .find(|row| row.policy == KERNEL && row.pattern == self.pattern && row.threads == self.threads)?;
        (self.policy != KERNEL)
            .then(|| self.median(|run| run.operations_per_second) / kernel.median(|run| run.operations_per_second))
    }
}

/// The results so far: for each load the rows of those that did it.
pub struct Tables {
    format: Format,
    memory_mib: u64,
    times: u64,
    runs: u32,
    rows: Vec<Row>,
}

impl Tables {
    /// Of no row yet.
    pub fn new(args: &CacheArgs) -> Tables {
        let CacheArgs { format, memory_mib, times, runs, .. } = *args;
        Tables { format, memory_mib, times, runs, rows: Vec::new() }
    }
}

impl Results for Tables {
    type Piece = Vec<Row>;

    fn open(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        match self.format {
            Format::Csv => {
                let mut csv = csv::Writer::from_writer(out);
                csv.write_record(COLUMNS)?;
                csv.flush()
            }
            Format::Table | Format::Json => Ok(()),
        }
    }

    fn add(&mut self, out: &mut dyn Write, rows: Vec<Row>) -> std::io::Result<()> {
        match self.format {
            Format::Table => write_table(out, &rows)?,
            Format::Csv => write_csv(out, &rows)?,
            Format::Json => {}
        }
        self.rows.extend(rows);
        Ok(())
    }

    fn close(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        match self.format {
            Format::Table => explain(out, self),
            Format::Csv => Ok(()),
            Format::Json => write_json(out, self),
        }
    }
}

/// A number of threads, in words.
pub fn threads(number: u32) -> String {
    if number == 1 { "1 thread".into() } else { format!("{number} threads") }
}

/// For people: one load.
fn write_table(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let kept = rows.iter().any(|row| row.reactivated().is_some());
    let mut table = plain_table();
    let mut head = vec!["policy", "evicted", "operations/s", "least–most", "by kernel's", "from disk, %"];
    head.extend(kept.then_some("reactivated, %"));
    head.extend(["CPU, µs", "p50, µs", "p99, µs"]);
    table.set_header(head);
    for row in rows {
        let (least, most) = row.extremes();
        let mut cells = vec![
            row.policy.clone(),
            row.evicted.clone(),
            format!("{:.0}", row.median(|run| run.operations_per_second)),
            format!("{least:.0}–{most:.0}"),
            row.ratio(rows).map_or("–".into(), |ratio| format!("{ratio:.2}")),
            format!("{:.2}", row.median(|run| run.pages_read_percent)),
        ];
        if kept {
            cells.push(row.reactivated().map_or("–".into(), |percent| format!("{percent:.2}")));
        }
        cells.push(format!("{:.2}", row.median(|run| run.cpu_us)));
        cells.push(format!("{:.2}", row.median(|run| run.p50_ns as f64) / 1000.0));
        cells.push(format!("{:.2}", row.median(|run| run.p99_ns as f64) / 1000.0));
        table.add_row(cells);
    }
    align_numbers(&mut table);
    writeln!(out, "{}, {}\n\n{}\n", first.pattern, threads(first.threads), table.trim_fmt())
}

/// What the figures mean.
fn explain(out: &mut dyn Write, tables: &Tables) -> std::io::Result<()> {
    writeln!(
        out,
        "{} MiB of memory, a file of {} memories, {} runs in turn: medians. Reads and writes of {PAGE} bytes. from disk: pages\n\
         read from the file, for 100 operations; what comes along in sequences counts. evicted: what becomes of evicted pages:\n\
         gone, or cached, with that share of memory left free for them. CPU: per operation, what the load itself takes\n\
         included. kernel: its page cache in a memory cgroup with {} MiB more, FADV_RANDOM but for scans. zipf and mixed:\n\
         exponent 1.2; mixed: 30 % writes, a sync each 1,000; hits and pinned: a quarter of memory, all alike; skewed ones:\n\
         half of memory, exponent 0.9; times are those of 64 on end, divided. quick_cache: a cache of objects, version 0.7.0, its\n\
         pages told before, shared or copied. array: no cache, the same from an array in huge pages: what a hit costs at least.",
        tables.memory_mib,
        tables.times,
        tables.runs,
        ALLOWANCE >> 20
    )
}

/// Of CSV.
const COLUMNS: [&str; 11] = [
    "pattern",
    "threads",
    "policy",
    "evicted",
    "run",
    "operations_per_second",
    "pages_read_percent",
    "reactivated_percent",
    "cpu_us",
    "p50_ns",
    "p99_ns",
];

/// One line per run.
fn write_csv(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    for row in rows {
        for (number, run) in row.runs.iter().enumerate() {
            csv.write_record([
                row.pattern.to_string(),
                row.threads.to_string(),
                row.policy.clone(),
                row.evicted.clone(),
                (number + 1).to_string(),
                run.operations_per_second.to_string(),
                run.pages_read_percent.to_string(),
                run.reactivated_percent.map_or(String::new(), |percent| percent.to_string()),
                run.cpu_us.to_string(),
                run.p50_ns.to_string(),
                run.p99_ns.to_string(),
            ])?;
        }
    }
    csv.flush()
}

/// One object with all runs.
fn write_json(out: &mut dyn Write, tables: &Tables) -> std::io::Result<()> {
    let row = |row: &Row| {
        let rate = row.median(|run| run.operations_per_second);
        json!({
            "pattern": row.pattern.to_string(), "threads": row.threads, "policy": row.policy, "evicted": row.evicted,
            "operations_per_second": rate, "ratio_to_kernel": row.ratio(&tables.rows), "runs": row.runs,
        })
    };
    let all: Vec<_> = tables.rows.iter().map(row).collect();
    let memory = tables.memory_mib << 20;
    serde_json::to_writer(&mut *out, &json!({ "memory_bytes": memory, "file_memories": tables.times, "rows": all }))?;
    writeln!(out)
}
