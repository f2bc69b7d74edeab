//! `refault-bench lru-sort`: does sorting help a live program whose memory is taken and given back?
//!
//! The shape of the document's evaluation on live memory: the budget falls to 75 % of the peak for a second, stands at
//! 200 % for ten, and so on; with and without the two radically tuned schemes (2 % of a processor each). Win or lose,
//! it is printed.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use refault_config::Config;
use refault_console::{Failure, ForceArgs, Format, Outputs, say, with_output};
use refault_core::monitor::Attributes;
use refault_core::policy::{FrontEnd, PolicySpec};
use serde_json::{Value, json};

use super::live::{Measured, Setup, Work, middle, run as run_once};
use refault_console::text::{align_numbers, grouped, plain_table};

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  refault-bench lru-sort                          both programs, three runs of each variant, some ten minutes
  refault-bench lru-sort --work phases --runs 5 --policy classic

orig: never limited. pulse: the budget falls to 75 % of the peak for 1 s, then 200 % for 10 s, repeated. sorted: the same
with the sorting schemes. Ratios are sorted over pulse; below 1 is better, but for operations.")]
/// Compare a program under a pulsing budget with and without sorting
pub struct LruSortArgs {
    /// What to run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "phases,memcached")]
    work: Vec<Work>,
    /// MiB that the work has
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..=65_536))]
    mib: u64,
    /// Seconds of work a run
    #[arg(long, value_name = "N", default_value_t = 33.0)]
    seconds: f64,
    /// Runs of each variant, interleaved
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// The policy that is sorted
    #[arg(long, value_name = "NAME", default_value = "classic")]
    policy: String,
    /// How to write what came out
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
    /// Write it to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<std::path::PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
}

const VARIANTS: [&str; 3] = ["orig", "pulse", "sorted"];
const LOW: (f64, Duration) = (0.75, Duration::from_secs(1));
const HIGH: Duration = Duration::from_secs(10);
const HIGH_SHARE: f64 = 2.0;

struct Outcome {
    work: Work,
    peak_bytes: u64,
    /// Runs of each variant.
    variants: [Vec<Measured>; 3],
}

/// Runs the command.
pub fn run(args: &LruSortArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::new(args.force);
    let out = outputs.claim("--out", args.out.as_deref(), args.format.into())?;
    PolicySpec::parse_for(&args.policy, FrontEnd::Pager)?;
    for scheme in refault_lab::experiments::lru_sort::radical_schemes() {
        if let Some(reason) = refault_paging::refusal(&scheme.action, &args.policy) {
            return Err(Failure::usage("cannot sort", &args.policy, format!("{} {reason}", scheme.action.name())));
        }
    }
    let schemes = schemes()?;
    let mut outcomes = Vec::new();
    for work in &args.work {
        outcomes.push(compare(args, *work, schemes.path())?);
    }
    with_output(out, |out| match args.format {
        Format::Table => write_table(out, args, &outcomes),
        Format::Csv => write_csv(out, &outcomes),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &to_json(args, &outcomes))?;
            writeln!(out)
        }
    })
}

/// A file with the two radically tuned schemes.
///
/// # Errors
/// It cannot be written.
pub fn schemes() -> Result<tempfile::NamedTempFile, Failure> {
    let failed = |error| Failure::write("a temporary file", &error);
    let file = tempfile::NamedTempFile::new().map_err(failed)?;
    let config = Config {
        attributes: Attributes { ops_update_interval: 1_000_000, ..Attributes::default() },
        schemes: refault_lab::experiments::lru_sort::radical_schemes().to_vec(),
        ..Config::default()
    };
    std::fs::write(file.path(), config.to_json(None).to_string()).map_err(failed)?;
    Ok(file)
}

/// Flags of `refault run` that sort by a file of [`schemes`]: two schemes at 2 % and the monitor's checks.
pub fn sorting(schemes: &Path) -> [OsString; 4] {
    ["--scheme".into(), schemes.into(), "--monitor-cpu".into(), "6%".into()]
}

/// A budget that falls to 75 % of a peak for a second and then stands at 200 % for some time, again and again.
pub fn pulse(peak_bytes: u64, high: Duration) -> impl Fn(&Path, &dyn Fn() -> bool) + Sync {
    move |control, done| {
        for (share, time) in [LOW, (HIGH_SHARE, high)].into_iter().cycle() {
            let _ = std::fs::write(control, ((peak_bytes as f64 * share) as u64).to_string());
            let until = Instant::now() + time;
            while Instant::now() < until {
                if done() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn compare(args: &LruSortArgs, work: Work, schemes: &Path) -> Result<Outcome, Failure> {
    let plain: Vec<OsString> = vec!["--policy".into(), args.policy.clone().into()];
    let mut sorting = plain.clone();
    sorting.extend(self::sorting(schemes));
    let memory = (args.mib << 20) * 4;
    let once = |flags: &[OsString], seconds: f64, pulse| {
        run_once(&Setup { work, mib: args.mib, seconds, flags, memory, pulse })
    };
    say(format_args!("{}: finding its peak", work.name()));
    let peak_bytes = once(&plain, 2.0, None)?.peak_bytes;
    let pulse = pulse(peak_bytes, HIGH);
    let mut variants: [Vec<Measured>; 3] = Default::default();
    for round in 0..args.runs {
        // Each variant goes first in turn.
        for step in 0..VARIANTS.len() {
            let variant = (step + round as usize) % VARIANTS.len();
            say(format_args!("{}: {}, run {} of {}", work.name(), VARIANTS[variant], round + 1, args.runs));
            variants[variant].push(match variant {
                0 => once(&plain, args.seconds, None)?,
                1 => once(&plain, args.seconds, Some(&pulse))?,
                _ => once(&sorting, args.seconds, Some(&pulse))?,
            });
        }
    }
    Ok(Outcome { work, peak_bytes, variants })
}

/// Name, unit, and how to take it from a run.
type Figure = (&'static str, &'static str, fn(&Measured) -> f64);
const FIGURES: [Figure; 4] = [
    ("operations", "per second", |run| run.operations),
    ("major faults", "pages", |run| run.major_faults as f64),
    ("pressure some", "s", |run| run.some_seconds),
    ("monitor", "% of a processor", |run| run.monitor_cpu * 100.0),
];

fn figure(value: f64) -> String {
    if value >= 100.0 { grouped(value.round() as u64) } else { format!("{value:.2}") }
}

fn write_table(out: &mut dyn std::io::Write, args: &LruSortArgs, outcomes: &[Outcome]) -> std::io::Result<()> {
    for outcome in outcomes {
        writeln!(
            out,
            "{}, peak {}, policy {}, {} s per run, {} runs of each variant interleaved; medians, and (least–most)",
            outcome.work.name(),
            refault_lab::size::bytes_text(outcome.peak_bytes),
            args.policy,
            args.seconds,
            args.runs
        )?;
        let mut table = plain_table();
        table.set_header(["", "orig", "pulse", "sorted", "sorted / pulse"]);
        for (name, unit, take) in FIGURES {
            let cells = outcome.variants.each_ref().map(|runs| middle(runs.iter().map(take)));
            let ratio = if cells[1][0] > 0.0 { format!("{:.3}", cells[2][0] / cells[1][0]) } else { "–".to_owned() };
            let mut row = vec![format!("{name} ({unit})")];
            row.extend(
                cells.map(|[middle, least, most]| format!("{} ({}–{})", figure(middle), figure(least), figure(most))),
            );
            row.push(ratio);
            table.add_row(row);
        }
        align_numbers(&mut table);
        writeln!(out, "{}\n", table.trim_fmt())?;
    }
    writeln!(
        out,
        "Operations: reads (phases: and writes) after the memory is filled. Major faults: pages that came back from the\n\
         compressed pool, setting up included. Pressure some: time in which a thread waited for memory."
    )
}

fn write_csv(out: &mut dyn std::io::Write, outcomes: &[Outcome]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "work",
        "variant",
        "run",
        "operations_per_second",
        "pgmajfault",
        "some_seconds",
        "monitor_cpu_share",
    ])?;
    for outcome in outcomes {
        for (name, runs) in VARIANTS.iter().zip(&outcome.variants) {
            for (index, run) in runs.iter().enumerate() {
                csv.write_record([
                    outcome.work.name().to_owned(),
                    (*name).to_owned(),
                    index.to_string(),
                    run.operations.to_string(),
                    run.major_faults.to_string(),
                    run.some_seconds.to_string(),
                    run.monitor_cpu.to_string(),
                ])?;
            }
        }
    }
    csv.flush()
}

fn to_json(args: &LruSortArgs, outcomes: &[Outcome]) -> Value {
    let one = |run: &Measured| {
        json!({
            "operations_per_second": run.operations,
            "pgmajfault": run.major_faults,
            "some_seconds": run.some_seconds,
            "monitor_cpu_share": run.monitor_cpu,
        })
    };
    let outcomes = outcomes.iter().map(|outcome| {
        let variants: serde_json::Map<String, Value> = VARIANTS
            .iter()
            .zip(&outcome.variants)
            .map(|(name, runs)| ((*name).to_owned(), runs.iter().map(one).collect()))
            .collect();
        json!({"work": outcome.work.name(), "peak_bytes": outcome.peak_bytes, "variants": variants})
    });
    json!({"policy": args.policy, "seconds": args.seconds, "works": outcomes.collect::<Vec<_>>()})
}
