//! `refault-bench cache --trace`: recorded accesses, each a read of a page of a real file, in their order and by one thread:
//! how many pages the cache reads from the file under each policy.
//!
//! Pages keep their order in the file and lie beside each other there. Invariant: each page that is read is compared with what
//! was written. Cost: 16 bytes of memory per access while the trace is read, 4 afterwards.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use refault_cache::{CacheOptions, PageCache};
use refault_console::text::{align_numbers, grouped, plain_table};
use refault_console::{Failure, Format, Progress};
use refault_core::policy::PolicySpec;
use refault_trace::{Options, Source};
use serde::Serialize;
use serde_json::json;

use super::load::{self, PAGE, page_number};
use super::{CacheArgs, directory_of};
use crate::median;
use crate::piecemeal::{Piecemeal, Results};

/// The least memory that a cache can have.
const MIN_MEMORY: u64 = 256 << 10;

/// What one policy did with one trace.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    trace: String,
    accesses: u64,
    pages: u64,
    memory_bytes: u64,
    policy: String,
    /// Pages read from the file, of each run; those that came along in sequences count.
    pages_read: Vec<u64>,
    /// Seconds of each run.
    seconds: Vec<f64>,
}

impl Row {
    fn read(&self) -> f64 {
        median(self.pages_read.iter().map(|pages| *pages as f64).collect())
    }
}

/// Replays all traces that were named.
pub fn run(args: &CacheArgs, policies: &[PolicySpec]) -> Result<(), Failure> {
    let directory = directory_of(args)?;
    let progress = Progress::parts("replaying");
    progress.add(u64::from(args.runs) * (args.trace.len() * policies.len()) as u64);
    let tables = Tables { format: args.format, times: args.times, runs: args.runs, rows: Vec::new() };
    let results = Piecemeal::open(tables, progress, directory.path().to_owned())?;
    let file = directory.path().join("pages");
    let outcome =
        args.trace.iter().try_for_each(|trace| results.add(replay(args, policies, trace, &file, results.progress())?));
    results.close(outcome)
}

/// All runs of one trace, by each policy in turn.
fn replay(
    args: &CacheArgs,
    policies: &[PolicySpec],
    trace: &Path,
    file: &Path,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let (places, pages) = places(trace)?;
    load::write_file(file, pages).map_err(|error| Failure::write(file.display(), &error))?;
    let memory = (pages as u64 * PAGE as u64 / args.times).max(MIN_MEMORY);
    let name = trace.file_name().map_or_else(|| trace.display().to_string(), |name| name.display().to_string());
    let mut rows: Vec<Row> = policies
        .iter()
        .map(|policy| Row {
            trace: name.clone(),
            accesses: places.len() as u64,
            pages: pages as u64,
            memory_bytes: memory,
            policy: policy.label.clone(),
            pages_read: Vec::new(),
            seconds: Vec::new(),
        })
        .collect();
    for run in 0..args.runs {
        for row in &mut rows {
            progress.says(format!("{name}, {}, run {} of {}", row.policy, run + 1, args.runs));
            load::forget(file).map_err(|error| Failure::write(file.display(), &error))?;
            let begun = Instant::now();
            row.pages_read.push(read(&row.policy, memory, file, &places)?);
            row.seconds.push(begun.elapsed().as_secs_f64());
            progress.advance(1);
        }
    }
    Ok(rows)
}

/// Where in the file each access goes, and the pages of the file.
fn places(trace: &Path) -> Result<(Vec<u32>, usize), Failure> {
    let mut reader = Source::file(trace, Options::default()).open()?;
    let (mut accesses, mut buffer) = (Vec::new(), Vec::new());
    loop {
        let block = reader.next_block(&mut buffer)?;
        if block.is_empty() {
            break;
        }
        accesses.extend(block.iter().map(|entry| entry.page()));
    }
    let mut pages = accesses.clone();
    pages.sort_unstable();
    pages.dedup();
    if pages.is_empty() || u32::try_from(pages.len()).is_err() {
        let pages = format!("it has {} pages: name a trace of one to 2^32 pages", pages.len());
        return Err(Failure::failed("cannot replay trace", trace.display(), pages));
    }
    let place = |page: &u64| pages.binary_search(page).expect("invariant: each access's page is among them") as u32;
    Ok((accesses.iter().map(place).collect(), pages.len()))
}

/// Reads all places in order. The pages that the cache read from the file.
fn read(policy: &str, memory: u64, path: &Path, places: &[u32]) -> Result<u64, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed("the page cache", path.display(), error);
    let options = CacheOptions { memory, policy: policy.to_owned(), ..CacheOptions::default() };
    let cache = PageCache::new(&options).map_err(|error| failed(&error))?;
    let file = cache.open(path).map_err(|error| failed(&error))?;
    let mut page = [0; PAGE];
    for place in places {
        file.read_at(&mut page, u64::from(*place) * PAGE as u64).map_err(|error| failed(&error))?;
        if page_number(&page) != u64::from(*place) {
            return Err(failed(&format!("page {place} begins with {}", page_number(&page))));
        }
    }
    Ok(cache.report().counters.file_reads)
}

/// The results so far.
struct Tables {
    format: Format,
    times: u64,
    runs: u32,
    rows: Vec<Row>,
}

/// Of CSV.
const COLUMNS: [&str; 8] = ["trace", "accesses", "pages", "memory_bytes", "policy", "run", "pages_read", "seconds"];

impl Results for Tables {
    type Piece = Vec<Row>;

    fn open(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        if self.format == Format::Csv {
            let mut csv = csv::Writer::from_writer(out);
            csv.write_record(COLUMNS)?;
            return csv.flush();
        }
        Ok(())
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
            Format::Table => self.explain(out),
            Format::Csv => Ok(()),
            Format::Json => {
                serde_json::to_writer(&mut *out, &json!({ "file_memories": self.times, "rows": self.rows }))?;
                writeln!(out)
            }
        }
    }
}

impl Tables {
    /// What the first policy saved against each other, in the mean of all traces, and what the figures mean.
    fn explain(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Some(first) = self.rows.first() else { return Ok(()) };
        let others = self.rows.iter().filter(|row| row.trace == first.trace && row.policy != first.policy);
        for other in others {
            let rows = self.rows.iter().filter(|row| row.policy == other.policy);
            let saved: Vec<f64> = rows.filter_map(|row| self.saved(row)).collect();
            let mean = saved.iter().sum::<f64>() / saved.len().max(1) as f64;
            let worst = saved.iter().copied().fold(100.0, f64::min);
            let (policy, other, traces) = (&first.policy, &other.policy, saved.len());
            writeln!(
                out,
                "{policy} reads {} than {other} in the mean of {traces} traces, {} at worst",
                less(mean),
                less(worst)
            )?;
        }
        writeln!(
            out,
            "\nA file of {} memories, {} runs in turn: medians. Each access is a read of {PAGE} bytes by one thread, writes too. read: pages\n\
             read from the file; what comes along in sequences counts.",
            self.times, self.runs
        )
    }

    /// Percent of a row's reads that the first policy did not make with the same trace.
    fn saved(&self, row: &Row) -> Option<f64> {
        let first = self.rows.iter().find(|first| first.trace == row.trace)?;
        (row.read() > 0.0).then(|| (1.0 - first.read() / row.read()) * 100.0)
    }
}

/// `percent` percent less, in words.
fn less(percent: f64) -> String {
    format!("{:.1} % {}", percent.abs(), if percent < 0.0 { "more" } else { "less" })
}

/// For people: one trace.
fn write_table(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let mut table = plain_table();
    table.set_header(["policy", "read", "of 100 accesses", "seconds"]);
    for row in rows {
        table.add_row([
            row.policy.clone(),
            grouped(row.read() as u64),
            format!("{:.2}", row.read() / row.accesses as f64 * 100.0),
            format!("{:.2}", median(row.seconds.clone())),
        ]);
    }
    align_numbers(&mut table);
    let memory = first.memory_bytes as f64 / f64::from(1 << 20);
    let (accesses, pages) = (grouped(first.accesses), grouped(first.pages));
    writeln!(out, "{}: {accesses} accesses of {pages} pages, {memory:.1} MiB\n\n{}\n", first.trace, table.trim_fmt())
}

/// One line per run.
fn write_csv(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    for row in rows {
        for (run, (pages, seconds)) in row.pages_read.iter().zip(&row.seconds).enumerate() {
            csv.write_record([
                row.trace.clone(),
                row.accesses.to_string(),
                row.pages.to_string(),
                row.memory_bytes.to_string(),
                row.policy.clone(),
                (run + 1).to_string(),
                pages.to_string(),
                seconds.to_string(),
            ])?;
        }
    }
    csv.flush()
}
