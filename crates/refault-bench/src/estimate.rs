//! `refault-bench estimate`: what the estimator of live caches costs, and how far it is off, beside what else estimates.
//!
//! Each trace is told access by access, an object of one byte each, for eight sizes from 1 to 60 % of its objects. Beside
//! the estimator: SHARDS with a fixed rate, and AET, both for LRU alone; what is exact comes from replays. Timed is one
//! thread that does nothing else; the trace lies in memory.
//!
//! AET: Hu, Wang, Zhou, Li, Luo and Wang, *Kinetic Modeling of Data Eviction in Cache*, ATC 2016; here of every access.
//!
//! Cost: 8 bytes of memory per access, and 32 replays of each trace.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use refault_console::text::{align_numbers, plain_table};
use refault_console::{Failure, Format, Progress, with_output};
use refault_core::estimate::{Estimator, POLICIES};
use refault_core::policy::PolicySpec;
use refault_core::policy::registry::BuildContext;
use refault_sim::flat_memory::Swap;
use refault_sim::{Layout, LayoutBuilder, Limits, named};
use refault_trace::shards::Shards;
use refault_trace::{Entry, Kind, Options, Source};
use serde_json::json;

use super::median;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault-bench estimate trace.u64.zst
  refault-bench estimate --runs 5 --format csv traces/*.zst")]
/// Measure the estimator of live caches: nanoseconds per access, memory, and errors beside exact replays
pub struct EstimateArgs {
    /// Traces; each page is an object of one byte
    #[arg(required = true, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// Runs of each row, with other samples; the table shows the median of times and the largest error
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Rate of SHARDS
    #[arg(long, value_name = "RATE", default_value_t = 0.01)]
    rate: f64,
    /// Output format
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

/// Sizes of the cache, in % of the objects.
const PERCENT: [u64; 8] = [1, 2, 5, 10, 20, 30, 40, 60];

/// What one way of estimating did on one trace.
struct Row {
    trace: String,
    what: &'static str,
    nanoseconds: f64,
    /// Bytes of memory, where it says.
    bytes: Option<usize>,
    /// The mean and the largest difference of a miss ratio, over all sizes and runs.
    mean_error: f64,
    max_error: f64,
}

/// Runs the command.
pub fn run(args: &EstimateArgs) -> Result<(), Failure> {
    let progress = Progress::parts("estimating");
    progress.add(args.trace.len() as u64);
    let mut rows = Vec::new();
    for path in &args.trace {
        progress.says(path.display().to_string());
        rows.extend(measure(path, args)?);
        progress.advance(1);
    }
    drop(progress);
    with_output(None, |out| match args.format {
        Format::Table => write_table(out, &rows, args.runs),
        Format::Csv => write_csv(out, &rows),
        Format::Json => write_json(out, &rows),
    })
}

/// The trace, each page an object.
struct Trace {
    name: String,
    entries: Vec<Entry>,
    layout: Layout,
    sizes: Vec<u64>,
}

impl Trace {
    fn read(path: &PathBuf) -> Result<Trace, Failure> {
        let mut reader = Source::file(path, Options::default()).open()?;
        let entries = reader.read_to_end()?;
        let entries: Vec<Entry> = entries.iter().map(|entry| Entry::new(entry.page(), Kind::Fd, false)).collect();
        let mut builder = LayoutBuilder::new();
        builder.observe(&entries);
        let refused = |error| Failure::failed("cannot number the pages", error, "take a part of the trace");
        let layout = builder.finish().map_err(refused)?;
        let sizes = PERCENT.iter().map(|percent| (layout.distinct_pages() * percent / 100).max(1)).collect();
        let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.display().to_string());
        Ok(Trace { name, entries, layout, sizes })
    }

    /// The miss ratios of a policy by replay.
    fn exact(&self, policy: &str) -> Result<Vec<f64>, Failure> {
        let spec = PolicySpec::parse(policy)?;
        let mut accesses = Vec::new();
        self.layout.translate(&self.entries, &mut accesses);
        let ratio = |pages: &u64| {
            let limits = Limits { memory_pages: *pages as usize, swap: Swap::default() };
            let mut replay = named::replay(&spec, &BuildContext::default(), &self.layout, limits);
            replay.run(&accesses);
            replay.outcome().misses as f64 / accesses.len() as f64
        };
        Ok(self.sizes.iter().map(ratio).collect())
    }

    fn nanoseconds_since(&self, start: Instant) -> f64 {
        start.elapsed().as_secs_f64() * 1e9 / self.entries.len().max(1) as f64
    }

    fn row(&self, what: &'static str, times: Vec<f64>, bytes: Option<usize>, errors: &[f64]) -> Row {
        Row {
            trace: self.name.clone(),
            what,
            nanoseconds: median(times),
            bytes,
            mean_error: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            max_error: errors.iter().copied().fold(0.0, f64::max),
        }
    }
}

fn differences(estimated: &[f64], exact: &[f64]) -> Vec<f64> {
    estimated.iter().zip(exact).map(|(estimated, exact)| (estimated - exact).abs()).collect()
}

fn measure(path: &PathBuf, args: &EstimateArgs) -> Result<Vec<Row>, Failure> {
    let trace = Trace::read(path)?;
    let exact = POLICIES.iter().map(|policy| trace.exact(policy)).collect::<Result<Vec<_>, _>>()?;
    let (mut times, mut errors, mut bytes) = (Vec::new(), Vec::new(), 0);
    for run in 0..args.runs {
        let made = Estimator::within(&POLICIES, &trace.sizes, refault_core::estimate::MEMORY_BYTES, u64::from(run));
        let mut estimator = made.map_err(|error| Failure::usage("no estimator", error, "see 'refault::estimate'"))?;
        let start = Instant::now();
        trace.entries.iter().for_each(|entry| estimator.access(entry.page(), 1));
        times.push(trace.nanoseconds_since(start));
        bytes = bytes.max(estimator.memory_bytes());
        let found: Vec<f64> = estimator.estimates().iter().map(|estimate| estimate.miss_ratio).collect();
        errors.extend(differences(&found, &exact.concat()));
    }
    let mut rows = vec![trace.row("estimate", times, Some(bytes), &errors)];
    // LRU is the first.
    rows.push(shards(&trace, &exact[0], args));
    rows.push(aet(&trace, &exact[0]));
    Ok(rows)
}

fn shards(trace: &Trace, exact: &[f64], args: &EstimateArgs) -> Row {
    let (mut times, mut errors) = (Vec::new(), Vec::new());
    for run in 0..args.runs {
        let start = Instant::now();
        let mut shards = Shards::new(args.rate, 1, u64::from(run));
        trace.entries.chunks(4096).for_each(|block| shards.observe(block));
        let curve = shards.finish();
        times.push(trace.nanoseconds_since(start));
        let found: Vec<f64> = curve.miss_ratios(&trace.sizes).iter().map(|estimate| estimate.miss_ratio).collect();
        errors.extend(differences(&found, exact));
    }
    trace.row("SHARDS (lru)", times, None, &errors)
}

/// The miss ratio of a cache is the part of accesses whose reuse takes longer than an object stays; how long that is
/// follows from how many are reused later than each time.
fn aet(trace: &Trace, exact: &[f64]) -> Row {
    let start = Instant::now();
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut reused_after = vec![0_u64; trace.entries.len() + 1];
    for (now, entry) in trace.entries.iter().enumerate() {
        if let Some(before) = last.insert(entry.page(), now) {
            reused_after[now - before] += 1;
        }
    }
    let all = trace.entries.len() as f64;
    let (mut later, mut held, mut sizes, mut found) = (all, 0.0, trace.sizes.iter().peekable(), Vec::new());
    for reused in &reused_after {
        later -= *reused as f64;
        held += later / all;
        while sizes.next_if(|size| **size as f64 <= held).is_some() {
            found.push(later / all);
        }
    }
    found.resize(trace.sizes.len(), later / all);
    let time = trace.nanoseconds_since(start);
    trace.row("AET (lru)", vec![time], None, &differences(&found, exact))
}

fn write_table(out: &mut dyn Write, rows: &[Row], runs: u32) -> std::io::Result<()> {
    writeln!(out, "eight sizes, 1 to 60 % of the objects, {runs} runs with other samples")?;
    let mut table = plain_table();
    table.set_header(["trace", "estimated by", "ns/access", "KiB", "mean error, points", "largest"]);
    for row in rows {
        table.add_row([
            row.trace.clone(),
            row.what.to_string(),
            format!("{:.1}", row.nanoseconds),
            row.bytes.map_or_else(|| "–".to_string(), |bytes| (bytes / 1024).to_string()),
            format!("{:.2}", row.mean_error * 100.0),
            format!("{:.2}", row.max_error * 100.0),
        ]);
    }
    align_numbers(&mut table);
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn write_csv(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["trace", "estimated_by", "nanoseconds_per_access", "bytes", "mean_error", "max_error"])?;
    for row in rows {
        let bytes = row.bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let numbers = [row.nanoseconds, row.mean_error, row.max_error].map(|number| number.to_string());
        csv.write_record([&row.trace, row.what, &numbers[0], &bytes, &numbers[1], &numbers[2]])?;
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let row = |row: &Row| {
        json!({
            "trace": row.trace,
            "estimated_by": row.what,
            "nanoseconds_per_access": row.nanoseconds,
            "bytes": row.bytes,
            "mean_error": row.mean_error,
            "max_error": row.max_error,
        })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    serde_json::to_writer_pretty(&mut *out, &rows)?;
    writeln!(out)
}
