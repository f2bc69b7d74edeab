//! `refault-bench sim`: simulated accesses per second, policy by policy, beside what is aimed at.
//!
//! The trace is zipf(1.0), written as `.u64` and memory-mapped. Timed is what a replay does: taking blocks from the
//! mapping, giving pages their ids, and running the policy, on one thread. Not timed: generating, the pass that finds
//! the layout (it also brings the file into the page cache), and making room for the policy's tables. The exact LRU
//! curve is timed on one thread and on all processors.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use clap::builder::PossibleValuesParser;
use refault_sim::flat_memory::Swap;
use refault_sim::{Layout, Limits, named};
use refault_trace::write::{Compression, U64Writer};
use refault_trace::{Kind, Options};
use serde_json::json;

use super::median;
use refault_console::Failure;
use refault_console::Progress;
use refault_console::text::{align_numbers, grouped, plain_table};
use refault_console::{Format, with_output};
use refault_core::policy::registry::{BuildContext, PolicySpec};
use refault_lab::curve::lru_curve;
use refault_lab::policies::parse_policies;
use refault_lab::sweep::{jobs, layout_of};
use refault_trace::Source;

#[derive(Args, Debug)]
#[command(after_help = "\
Needs 8 bytes per access of room in the temporary directory (TMPDIR), and as much page cache.

Examples:
  refault-bench sim
  refault-bench sim --accesses 10000000 --runs 5 --format csv")]
/// Print the speed table of the simulator
pub struct SimArgs {
    /// Length of the trace
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    accesses: u64,
    /// Pages to choose from
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    pages: u64,
    /// Runs of each row; the table shows the median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Only the rows of these policies, separated by commas; 'curve' for the LRU curve [default: all]
    #[arg(long, value_name = "P,P…", value_delimiter = ',', value_parser = PossibleValuesParser::new(ROWS))]
    policy: Vec<String>,
    /// Output format
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

impl SimArgs {
    fn asks_for(&self, name: &str) -> bool {
        self.policy.is_empty() || self.policy.iter().any(|asked| asked == name)
    }
}

/// A row to measure: policy, memory in % of the distinct pages, aim in million accesses per second (0: none).
struct Row {
    policy: &'static str,
    percent: u64,
    aim: u64,
}

const fn row(policy: &'static str, percent: u64, aim: u64) -> Row {
    Row { policy, percent, aim }
}

const MAPPED: &[Row] = &[
    row("clock", 50, 100),
    row("clock", 10, 40),
    row("mglru", 50, 100),
    row("mglru", 10, 40),
    row("lru", 50, 60),
    row("lru", 10, 40),
    row("adaptive", 50, 30),
    row("adaptive", 10, 0),
    row("adaptive-mapped", 50, 0),
    row("fifo", 50, 0),
    row("sieve", 50, 0),
    row("s3fifo", 50, 0),
    row("arc", 50, 0),
    row("2q", 50, 0),
];
const FD: &[Row] = &[row("mglru", 50, 60), row("classic", 50, 60)];
/// What the exact LRU curve aims at with all processors, in million accesses per second.
const CURVE_AIM: u64 = 50;
/// The name by which [`SimArgs::policy`] asks for the curve.
const CURVE: &str = "curve";
/// What [`SimArgs::policy`] can ask for.
const ROWS: [&str; 12] =
    ["clock", "mglru", "classic", "lru", "adaptive", "adaptive-mapped", "fifo", "sieve", "s3fifo", "arc", "2q", CURVE];

/// What was measured.
struct Measured {
    policy: String,
    kind: &'static str,
    memory: String,
    /// Accesses per second, the median of the runs.
    speed: f64,
    aim: u64,
    miss_ratio: f64,
    /// Bytes per distinct page: of the policy, and of the simulated memory below it.
    bytes: Option<(f64, f64)>,
}

/// Runs the command.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    let directory = Scratch::new()?;
    let mut measured = Vec::new();
    for (kind, all) in [(Kind::Mapped, MAPPED), (Kind::Fd, FD)] {
        let rows: Vec<&Row> = all.iter().filter(|row| args.asks_for(row.policy)).collect();
        let with_curve = kind == Kind::Mapped && args.asks_for(CURVE);
        if rows.is_empty() && !with_curve {
            continue;
        }
        let path = directory.path.join(format!("zipf-{}.u64", kind.name()));
        generate(&path, args, kind)?;
        let source = Source::file(&path, Options::default());
        let layout = layout_of(&source)?;
        let progress = Progress::new("replaying");
        progress.add(layout.accesses() * u64::from(args.runs) * rows.len() as u64);
        for row in &rows {
            measured.push(measure(&source, &layout, row, kind, args.runs, &progress)?);
        }
        drop(progress);
        if with_curve {
            let all = jobs(None);
            if all > 1 {
                measured.push(measure_curve(&source, args.runs, 1, 0)?);
            }
            measured.push(measure_curve(&source, args.runs, all, CURVE_AIM)?);
        }
        // The next trace needs the room.
        let _ = std::fs::remove_file(&path);
    }
    with_output(None, |out| match args.format {
        Format::Table => write_table(out, &measured, args),
        Format::Csv => write_csv(out, &measured),
        Format::Json => write_json(out, &measured, args),
    })
}

/// A directory of temporary files that goes when it is dropped.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        let path = std::env::temp_dir().join(format!("refault-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| Failure::write(path.display(), &error))?;
        Ok(Scratch { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn generate(path: &Path, args: &SimArgs, kind: Kind) -> Result<(), Failure> {
    let spec = format!("zipf:theta=1,pages={},accesses={},kind={}", args.pages, args.accesses, kind.name());
    let mut reader = Source::workload(spec.parse()?).open()?;
    let written = |error| Failure::failed("cannot write", error, "set TMPDIR to a place with more room");
    let mut writer = U64Writer::create(path, Compression::None).map_err(written)?;
    let progress = Progress::new("generating");
    progress.add(args.accesses);
    let mut buffer = Vec::new();
    loop {
        let block = reader.next_block(&mut buffer)?;
        if block.is_empty() {
            break;
        }
        writer.write(block).map_err(written)?;
        progress.advance(block.len() as u64);
    }
    writer.finish().map_err(written)?;
    Ok(())
}

fn measure(
    source: &Source,
    layout: &Layout,
    row: &Row,
    kind: Kind,
    runs: u32,
    progress: &Progress,
) -> Result<Measured, Failure> {
    let spec: PolicySpec = parse_policies(&[row.policy.to_string()])?.remove(0);
    let memory_pages = (layout.distinct_pages() * row.percent / 100).max(1) as usize;
    let limits = Limits { memory_pages, swap: Swap::default() };
    let mut speeds = Vec::new();
    let mut last = None;
    for _ in 0..runs {
        let run = timed(&spec, source, layout, limits)?;
        speeds.push(layout.accesses() as f64 / run.seconds.max(1e-9));
        progress.advance(layout.accesses());
        last = Some(run);
    }
    let last = last.expect("invariant: there is at least one run");
    Ok(Measured {
        policy: spec.label,
        kind: kind.name(),
        memory: format!("{} %", row.percent),
        speed: median(speeds),
        aim: row.aim,
        miss_ratio: last.miss_ratio,
        bytes: Some(last.bytes),
    })
}

struct TimedRun {
    seconds: f64,
    miss_ratio: f64,
    bytes: (f64, f64),
}

fn timed(spec: &PolicySpec, source: &Source, layout: &Layout, limits: Limits) -> Result<TimedRun, Failure> {
    let mut replay = named::replay(spec, &BuildContext::default(), layout, limits);
    let mut reader = source.open()?;
    let (mut buffer, mut block) = (Vec::new(), Vec::new());
    let start = Instant::now();
    loop {
        let entries = reader.next_block(&mut buffer)?;
        if entries.is_empty() {
            break;
        }
        block.clear();
        layout.translate(entries, &mut block);
        replay.run(&block);
    }
    let seconds = start.elapsed().as_secs_f64();
    let outcome = replay.outcome();
    let per_page = |bytes: usize| bytes as f64 / layout.distinct_pages() as f64;
    Ok(TimedRun {
        seconds,
        miss_ratio: outcome.misses as f64 / outcome.accesses as f64,
        bytes: (per_page(replay.policy().metadata_bytes()), per_page(replay.memory().metadata_bytes())),
    })
}

fn measure_curve(source: &Source, runs: u32, threads: usize, aim: u64) -> Result<Measured, Failure> {
    let progress = Progress::new("reuse distances");
    let mut speeds = Vec::new();
    for _ in 0..runs {
        let curves = lru_curve(source, threads, &progress)?;
        speeds.push(curves.accesses as f64 / curves.curves[0].wall.as_secs_f64().max(1e-9));
    }
    Ok(Measured {
        policy: format!("lru curve (mrc), {threads} {}", if threads == 1 { "thread" } else { "threads" }),
        kind: Kind::Mapped.name(),
        memory: "all sizes".into(),
        speed: median(speeds),
        aim,
        miss_ratio: f64::NAN,
        bytes: None,
    })
}

fn write_table(out: &mut dyn Write, measured: &[Measured], args: &SimArgs) -> std::io::Result<()> {
    writeln!(
        out,
        "zipf(1.0), {} accesses to {} pages, memory-mapped .u64, one thread but for the curve, median of {} runs",
        grouped(args.accesses),
        grouped(args.pages),
        args.runs
    )?;
    let mut table = plain_table();
    table.set_header([
        "policy",
        "kind",
        "memory",
        "M accesses/s",
        "at least",
        "",
        "miss %",
        "policy B/page",
        "memory B/page",
    ]);
    let digits = |value: f64| if value.is_nan() { "–".to_string() } else { format!("{value:.1}") };
    for row in measured {
        let met = match row.aim {
            0 => "",
            aim if row.speed >= aim as f64 * 1e6 => "yes",
            _ => "no",
        };
        table.add_row([
            row.policy.clone(),
            row.kind.to_string(),
            row.memory.clone(),
            format!("{:.1}", row.speed / 1e6),
            if row.aim == 0 { "–".to_string() } else { row.aim.to_string() },
            met.to_string(),
            digits(row.miss_ratio * 100.0),
            digits(row.bytes.map_or(f64::NAN, |bytes| bytes.0)),
            digits(row.bytes.map_or(f64::NAN, |bytes| bytes.1)),
        ]);
    }
    align_numbers(&mut table);
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(
        out,
        "\nM accesses/s: million simulated accesses per second. B/page: bytes of metadata for each distinct page, of the \
         policy and of the simulated memory (state, shadow entries)."
    )
}

fn write_csv(out: &mut dyn Write, measured: &[Measured]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "policy",
        "kind",
        "memory",
        "accesses_per_second",
        "aim",
        "miss_ratio",
        "policy_bytes",
        "memory_bytes",
    ])?;
    let number = |value: f64| if value.is_nan() { String::new() } else { value.to_string() };
    for row in measured {
        csv.write_record([
            row.policy.as_str(),
            row.kind,
            &row.memory,
            &format!("{:.0}", row.speed),
            &(row.aim * 1_000_000).to_string(),
            &number(row.miss_ratio),
            &number(row.bytes.map_or(f64::NAN, |bytes| bytes.0)),
            &number(row.bytes.map_or(f64::NAN, |bytes| bytes.1)),
        ])?;
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, measured: &[Measured], args: &SimArgs) -> std::io::Result<()> {
    let rows: Vec<_> = measured
        .iter()
        .map(|row| {
            json!({
                "policy": row.policy,
                "kind": row.kind,
                "memory": row.memory,
                "accesses_per_second": row.speed.round(),
                "aim": row.aim * 1_000_000,
                "miss_ratio": row.miss_ratio,
                "policy_bytes_a_page": row.bytes.map(|bytes| bytes.0),
                "memory_bytes_a_page": row.bytes.map(|bytes| bytes.1),
            })
        })
        .collect();
    let object = json!({ "accesses": args.accesses, "pages": args.pages, "runs": args.runs, "rows": rows });
    serde_json::to_writer(&mut *out, &object)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_asked_for_and_nothing_else() {
        let measured = |name: &&str| MAPPED.iter().chain(FD).any(|row| row.policy == *name) || *name == CURVE;
        assert!(ROWS.iter().all(measured));
        assert!(MAPPED.iter().chain(FD).all(|row| ROWS.contains(&row.policy)));
    }
}
