//! `refault compare`: every policy at every memory size over every trace.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use clap::Args;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::registry::{all_policies, parse_policies};
use crate::results::{self, Format};
use crate::size::Size;
use crate::source::{Accesses, SourceArgs};
use crate::sweep::{Sweep, TraceRuns, sweep};

/// Points over a run's time that the pictures show.
const SAMPLES: u64 = 120;
/// Where the report of the built-in set goes if not said otherwise.
const DEFAULT_REPORT: &str = "refault-report.html";

/// The memory sizes of a comparison that names none.
const DEFAULT_SIZES: [&str; 4] = ["10%", "25%", "50%", "75%"];

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault compare                                    the built-in set; writes refault-report.html
  refault compare --trace app.u64.zst --memory 10%,25%,50%
  refault compare --trace app.u64 --policy lru,arc,mglru{tiers=1} --memory 256M --format csv
  refault compare --workload zipf:theta=1.2,pages=262144,accesses=10000000,kind=fd --report zipf.html

SIZE is 25% of the trace's distinct pages (rounded down, at least 1), 4096p pages of 4 KiB, or bytes: 64M, 1.5G
(K, M, G, T are KiB, MiB, …). Exit codes: 0 done, 1 failed, 2 wrong usage or unreadable input.")]
/// Run reclaim policies over traces at many memory sizes, and count misses, refaults and scan work
pub struct CompareArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Policies, separated by commas; parameters in braces: mglru{tiers=1}; see 'refault policies' [default: all]
    #[arg(long = "policy", value_name = "P,P…")]
    policies: Vec<String>,
    /// Memory sizes, separated by commas [default: 10%,25%,50%,75%]
    #[arg(long, value_name = "SIZE,SIZE…", value_delimiter = ',', allow_hyphen_values = true)]
    memory: Vec<Size>,
    /// Swap for anonymous pages, or 'none'; the device answers at once, like zram [default: ample]
    #[arg(long, value_name = "SIZE|none")]
    swap: Option<SwapSize>,
    /// How to write the results [default: by the name of --out, else table]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write the results to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write pictures and tables as one HTML file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Threads; results do not depend on it [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

/// Swap as written on the command line.
#[derive(Clone, Copy, Debug)]
struct SwapSize(Option<Size>);

impl std::str::FromStr for SwapSize {
    type Err = String;
    fn from_str(text: &str) -> Result<SwapSize, String> {
        if text == "none" { Ok(SwapSize(None)) } else { text.parse().map(|size| SwapSize(Some(size))) }
    }
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let built_in = args.source.is_empty();
    args.source.require_files()?;
    let sources = if built_in { args.source.built_in()? } else { args.source.sources()? };
    let plan = sweep_of(args)?;
    let report = args.report.clone().or_else(|| built_in.then(|| PathBuf::from(DEFAULT_REPORT)));
    let results = run_all(&sources, &plan, "comparing")?;
    let format = args.format.unwrap_or_else(|| format_of(args.out.as_deref()));
    results::with_output(args.out.as_deref(), |out| match format {
        Format::Table => results::write_table(out, &results),
        Format::Csv => results::write_csv(out, &results),
        Format::Json => results::write_json(out, &results),
    })?;
    if let Some(path) = report {
        crate::report::write_comparison(&path, &results)?;
        eprintln!("refault: report written to {}", path.display());
    }
    Ok(())
}

fn sweep_of(args: &CompareArgs) -> Result<Sweep, Failure> {
    let policies = if args.policies.is_empty() { all_policies() } else { parse_policies(&args.policies)? };
    let sizes = if args.memory.is_empty() {
        DEFAULT_SIZES.iter().map(|text| text.parse().expect("invariant: the default sizes are sizes")).collect()
    } else {
        args.memory.clone()
    };
    let ample = SwapSize(Some(Size::Pages(u64::from(u32::MAX))));
    Ok(Sweep {
        policies,
        sizes,
        swap: args.swap.unwrap_or(ample).0,
        jobs: jobs(args.jobs),
        samples: SAMPLES,
        memory_budget: memory_budget(),
    })
}

/// Threads to use: as asked, else one a core.
pub fn jobs(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()), usize::from)
}

/// Half of the memory that is available, or 1 GiB where the system does not say.
pub fn memory_budget() -> u64 {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    available.map_or(1 << 30, |kib| kib * 1024 / 2)
}

/// Sweeps over all traces: one after the other with all threads where a trace keeps them busy, else side by side.
/// The results are in the order of the sources; of several failures the first source's is told.
pub fn run_all<A: Accesses>(sources: &[A], plan: &Sweep, doing: &'static str) -> Result<Vec<TraceRuns>, Failure> {
    let progress = Progress::new(doing);
    let runs_a_trace = plan.policies.len() * plan.sizes.len();
    let side_by_side = if runs_a_trace >= plan.jobs { 1 } else { plan.jobs.min(sources.len()).max(1) };
    let share = Sweep {
        jobs: (plan.jobs / side_by_side).max(1),
        memory_budget: plan.memory_budget / side_by_side as u64,
        ..plan.clone()
    };
    let queue = Mutex::new(sources.iter().enumerate());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..side_by_side {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("invariant: nobody panics with the queue").next();
                    let Some((index, source)) = next else { break };
                    let result = sweep(source, &share, &progress);
                    let failed = result.is_err();
                    done.lock().expect("invariant: nobody panics with the results").push((index, result));
                    if failed {
                        break;
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().expect("invariant: nobody panics with the results");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The format that a file's name suggests.
pub fn format_of(out: Option<&Path>) -> Format {
    match out.and_then(Path::extension).and_then(|extension| extension.to_str()) {
        Some("csv") => Format::Csv,
        Some("json") => Format::Json,
        _ => Format::Table,
    }
}
