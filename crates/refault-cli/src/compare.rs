//! `refault compare`: every policy at every memory size over every trace.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;

use crate::source::kernels::{Kernels, Shown};
use crate::source::{RunsArgs, SourceArgs, say_remarks};
use crate::tables;
use refault_console::{Contents, Failure, Format, Progress, say, with_output};
use refault_core::policy::registry::{Fact, PolicySpec};
use refault_lab::policies::{all_policies, names_best, parse_policies};
use refault_lab::results::{sizes_of, to_json, write_csv};
use refault_lab::size::{PAGE_BYTES, Size};
use refault_lab::sweep::{SAMPLES, Sweep, TraceRuns, WarmUp, jobs, memory_budget, objects, run_all};
use refault_lab::verdict::{Verdict, judge};
use refault_trace::Source;

/// Where the report of the built-in set goes if not said otherwise.
const DEFAULT_REPORT: &str = "refault-report.html";

/// The memory sizes of a comparison that names none.
const DEFAULT_SIZES: [&str; 4] = ["10%", "25%", "50%", "75%"];

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault compare                                    the built-in set; writes refault-report.html
  refault compare app.u64.zst --memory 10%,25%,50%
  refault compare --trace app.u64 --policy lru,arc,mglru{tiers=1} --memory 256M --format csv
  refault compare --workload zipf:theta=1.2,pages=262144,accesses=10000000,kind=fd --report zipf.html
  refault compare cdn.oracleGeneral.zst --objects-whole --memory 1G,4G
  refault compare fleet/*.rft --dask tcp://scheduler:8786 --format csv --out fleet.csv

SIZE is a part of the trace's distinct pages (25%, rounded down, at least 1), pages of 4 KiB (4096p) or bytes (64M,
1.5G). K, M, G, T are KiB, MiB, …. Exit codes: 0 done, 1 failed, 2 wrong usage or unreadable input.")]
/// Run reclaim policies over traces at many memory sizes, and count misses, refaults and scan work
pub struct CompareArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Policies, separated by commas; parameters in braces: mglru{tiers=1}. Or all, kernel, or best: those that miss
    /// least at some size, the baseline and the bound. 'refault policies' lists them [default: all]
    #[arg(long = "policy", value_name = "P,P…")]
    policies: Vec<String>,
    /// Memory sizes, separated by commas [default: 10%,25%,50%,75%]
    #[arg(long, value_name = "SIZE,SIZE…", value_delimiter = ',', allow_hyphen_values = true)]
    memory: Vec<Size>,
    /// Swap for anonymous pages, or 'none'; the device answers at once, like zram [default: ample]
    #[arg(long, value_name = "SIZE|none")]
    swap: Option<SwapSize>,
    /// The policy that others are compared with in the verdict
    #[arg(long, value_name = "POLICY", default_value = "lru")]
    baseline: String,
    /// Accesses, or a share such as 20%, that fill memory at the start and are not counted
    #[arg(long, value_name = "N|SHARE", value_parser = warm_up, default_value = "0")]
    warm_up: WarmUp,
    /// Objects of a trace with sizes are admitted and evicted whole, by their bytes, and figures count objects.
    /// gdsf, lhd and hyperbolic weigh sizes [default: an object has as many pages as its size needs]
    #[arg(long, conflicts_with_all = ["dask", "swap", "objects_have_sizes", "objects_one_page_each"])]
    objects_whole: bool,
    /// Files are read ahead as Linux does: a page that follows the last read, or that lies behind pages in memory, comes
    /// with others. SIZE is the largest window, and at most a quarter of memory [default without SIZE: 128K]
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "128K",
          value_parser = window, conflicts_with_all = ["dask", "objects_whole"])]
    readahead: Option<u32>,
    /// Run on the Dask cluster whose scheduler is at ADDRESS, by the Python package refault; workers read the traces by
    /// their paths
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["jobs", "report"])]
    dask: Option<String>,
    #[command(flatten)]
    runs: RunsArgs,
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
    let mut outputs = args.runs.result.outputs();
    let sources = match args.objects_whole {
        true => args.source.weighing_objects().sources(&mut outputs)?,
        false => args.source.sources(&mut outputs)?,
    };
    let plan = sweep_of(args)?;
    let (format, out) = args.runs.result.claim(&mut outputs)?;
    // Pictures need the state over time, which stays with the workers; so do times.
    let pictures = built_in && args.dask.is_none();
    let timing = !args.runs.no_timing && args.dask.is_none();
    let report = args.runs.report.clone().or_else(|| pictures.then(|| PathBuf::from(DEFAULT_REPORT)));
    let report = outputs.claim("--report", report.as_deref(), Contents::Html)?;
    let mut results = match &args.dask {
        None if args.objects_whole => {
            let progress = Progress::new("comparing");
            let swept = sources.iter().map(|source| objects::sweep(source, &plan, &progress));
            let swept = swept.collect::<Result<Vec<_>, _>>()?;
            swept.iter().try_for_each(|trace| args.source.read.check_remarks(&trace.trace, &trace.reading))?;
            swept
        }
        None => run_all(&sources, &plan, &Progress::new("comparing"))?,
        Some(address) => crate::dask::run_there(address, &sources, &plan)?,
    };
    results.iter().for_each(|trace| say_remarks(&trace.trace, &trace.reading));
    let verdict = judge(&results, &args.baseline);
    let kernels = match args.objects_whole || args.readahead.is_some() {
        // Kernels hold pages, and were asked for loads without readahead.
        true => Vec::new(),
        false => kernels(&sources, &results, args).or_else(|error| match args.dask {
            // What workers read need not be readable here.
            Some(_) => {
                say(format_args!("what real kernels did is not told: {}", error.line()));
                Ok(Vec::new())
            }
            None => Err(error),
        })?,
    };
    if names_best(&args.policies) {
        keep_best(&mut results, &verdict);
    }
    with_output(out, |out| match format {
        Format::Table => {
            tables::write_table(out, &results, timing)?;
            tables::write_verdict(out, &verdict, &results)?;
            tables::write_kernels(out, &kernels, &results)
        }
        Format::Csv => write_csv(out, &results, timing),
        Format::Json => {
            let mut json = to_json(&results, &verdict.to_json(), timing);
            for (place, kernels) in kernels.iter().enumerate() {
                json["traces"][place]["kernels"] = kernels.to_json();
            }
            serde_json::to_writer(&mut *out, &json)?;
            writeln!(out)
        }
    })?;
    if let Some(report) = report {
        let path = report.path().display().to_string();
        crate::report::write_comparison(report, &results, &verdict, &kernels)?;
        say(format_args!("report written to {path}"));
    }
    Ok(())
}

/// What real kernels did with each trace.
fn kernels(sources: &[Source], results: &[TraceRuns], args: &CompareArgs) -> Result<Vec<Kernels>, Failure> {
    let of = |(source, trace): (&Source, &TraceRuns)| {
        let mut sizes = sizes_of(trace);
        sizes.sort_unstable();
        let counted = trace.runs.first().map_or(trace.accesses, |run| run.outcome.accesses);
        let shown = Shown {
            accesses: trace.accesses,
            distinct: trace.distinct_pages,
            reading: &trace.reading,
            sizes: &sizes,
            warm_up: trace.accesses - counted,
        };
        let loads = |pages: u64| {
            let runs = trace.runs.iter().filter(|run| run.memory_pages == pages && !run.needs_future);
            runs.map(|run| run.outcome.misses).max().unwrap_or(counted) * trace.accesses / counted.max(1)
        };
        Ok(Kernels::of(source, args.source.read(), shown, loads)?)
    };
    sources.iter().zip(results).map(of).collect()
}

/// Leaves the policies that miss least at some size of some trace, the baseline, and those that know the future.
fn keep_best(results: &mut [TraceRuns], verdict: &Verdict) {
    let best: HashSet<&str> = verdict.best.iter().flat_map(|best| &best.policies).map(String::as_str).collect();
    for trace in results {
        trace
            .runs
            .retain(|run| run.needs_future || run.policy == verdict.baseline || best.contains(run.policy.as_str()));
    }
}

fn warm_up(text: &str) -> Result<WarmUp, String> {
    match text.strip_suffix('%') {
        Some(percent) => match percent.trim().parse::<f64>() {
            Ok(percent) if (0.0..100.0).contains(&percent) => Ok(WarmUp::Share(percent / 100.0)),
            _ => Err("a share is from 0 % to less than 100 %".to_owned()),
        },
        None => refault_config::units::size(text).map(WarmUp::Accesses).map_err(str::to_owned),
    }
}

/// Policies that do not need to know the future: what is read ahead is not in it. One that was named is refused.
fn without_future(policies: Vec<PolicySpec>, named: bool) -> Result<Vec<PolicySpec>, Failure> {
    let (future, others): (Vec<_>, Vec<_>) = policies.into_iter().partition(|spec| spec.entry.is(Fact::NeedsFuture));
    match future.first() {
        Some(one) if others.is_empty() => {
            let what = format!("{} knows what is accessed, and not what is read ahead", one.label);
            Err(Failure::usage("a policy cannot be compared with --readahead", what, "name others"))
        }
        Some(one) if named => {
            say(format_args!("{} is left out: it knows what is accessed, and not what is read ahead", one.label));
            Ok(others)
        }
        _ => Ok(others),
    }
}

/// Pages of the largest window.
fn window(text: &str) -> Result<u32, String> {
    const MAX_PAGES: u64 = 1 << 14;
    let bytes = refault_config::units::size(text).map_err(str::to_owned)?;
    match bytes / PAGE_BYTES {
        pages @ 1..=MAX_PAGES if bytes.is_multiple_of(PAGE_BYTES) => Ok(pages as u32),
        _ => Err("a window is of whole pages of 4K, and at most 64M".to_owned()),
    }
}

fn sweep_of(args: &CompareArgs) -> Result<Sweep, Failure> {
    let policies = match (args.policies.is_empty(), args.objects_whole) {
        (true, true) => objects::all_policies(),
        (true, false) => all_policies(),
        (false, _) => parse_policies(&args.policies)?,
    };
    let policies = match args.readahead {
        Some(_) => without_future(policies, !args.policies.is_empty())?,
        None => policies,
    };
    // A mistyped baseline must not be a verdict without one.
    parse_policies(std::slice::from_ref(&args.baseline))?;
    let mut sizes: Vec<Size> = if args.memory.is_empty() {
        DEFAULT_SIZES.iter().map(|text| text.parse().expect("invariant: the default sizes are sizes")).collect()
    } else {
        args.memory.clone()
    };
    if args.objects_whole
        && let Some(Size::Bytes(bytes)) =
            sizes.iter().find(|size| matches!(size, Size::Bytes(bytes) if !bytes.is_multiple_of(PAGE_BYTES)))
    {
        let below = bytes / PAGE_BYTES * PAGE_BYTES;
        let remedy = format!("compare in {below} or {}", below + PAGE_BYTES);
        return Err(Failure::usage(
            "objects are compared in whole pages of memory",
            format!("{bytes} bytes are no multiple of {PAGE_BYTES}"),
            remedy,
        ));
    }
    // As with policies: what is named twice runs once.
    let mut named = Vec::new();
    sizes.retain(|size| {
        !named.contains(size) && {
            named.push(*size);
            true
        }
    });
    let ample = SwapSize(Some(Size::Pages(u64::from(u32::MAX))));
    Ok(Sweep {
        policies,
        sizes,
        swap: args.swap.unwrap_or(ample).0,
        jobs: jobs(args.runs.jobs),
        samples: SAMPLES,
        memory_budget: memory_budget(),
        warm_up: args.warm_up,
        read_ahead: args.readahead,
    })
}
