//! `refault mrc`: how much memory is enough.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};

use crate::source::kernels::{Kernels, Shown};
use crate::source::{RunsArgs, SourceArgs, memory_text, say_remarks};
use crate::tables::{accesses_text, kernel_lines};
use refault_console::text::number;
use refault_console::text::{align_numbers, grouped, percent_format, plain_table};
use refault_console::{Contents, Failure, Format, Progress, Share, say, with_output};
use refault_core::policy::FrontEnd;
use refault_core::policy::registry::{Fact, PolicySpec};
use refault_lab::curve::{Curve, CurvePlan, Point, SAMPLES, Sampling, TraceCurves, curves, default_sizes};
use refault_lab::policies::{names_best, parse_policies};
use refault_lab::size::{PAGE_BYTES, Size};
use refault_lab::sweep::{jobs, memory_budget};
use refault_trace::Source;

/// Policies beside each other in a table; more are in tables below it.
const MAX_COLUMNS: usize = 8;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault mrc app.u64.zst                                      LRU, exact at every size, one pass
  refault mrc --trace app.u64 --policy lru,mglru,opt --report curves.html
  refault mrc --sample 1% huge.rft                             an estimate with its error, in little memory
  refault mrc --trace app.u64 --misses 1%,0.1% --memory 64M,128M,256M

The knee is where more memory stops paying. Memory is taken in parts of the footprint, and the miss ratio so that no
memory is 1 and the whole footprint is 0. The knee is the point farthest below the straight line between the two.
Answers for LRU are exact; for other policies they are the smallest of the simulated sizes that will do.")]
/// Draw miss-ratio curves, and say how much memory is enough
pub struct MrcArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Policies, separated by commas; or all, kernel, or best: those that miss least at some size shown, LRU and the
    /// bound; see 'refault policies'
    #[arg(long = "policy", value_name = "P,P…", default_value = "lru")]
    policies: Vec<String>,
    /// Memory sizes to simulate and show [default: 32 from 1/128 of the footprint to all of it]
    #[arg(long, value_name = "SIZE,SIZE…", value_delimiter = ',', allow_hyphen_values = true)]
    memory: Vec<Size>,
    /// Miss ratios to find the memory for, in % of accesses; beyond first touches if these alone are more than one of
    /// them
    #[arg(
        long,
        value_name = "X%,X%…",
        value_delimiter = ',',
        default_value = "1%,2%,5%,10%,20%",
        allow_hyphen_values = true
    )]
    misses: Vec<Share>,
    /// Estimate from samples of this part of the pages, such as 1%, with a 95 % confidence interval. Above 5 % for LRU, and
    /// from 25 % on for other policies, the exact curve takes less time and is drawn instead
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    sample: Option<Share>,
    #[command(flatten)]
    runs: RunsArgs,
}

/// Runs the command.
pub fn run(args: &MrcArgs) -> Result<(), Failure> {
    if args.source.is_empty() {
        let remedy = "name one with --trace FILE or --workload SPEC";
        return Err(Failure::usage("nothing to draw a curve of", "no trace and no workload", remedy));
    }
    let mut outputs = args.runs.result.outputs();
    let sources = args.source.sources(&mut outputs)?;
    let policies = parse_policies(&args.policies)?;
    if policies.iter().any(|spec| !spec.entry.is(Fact::Stack)) {
        args.source.require_files()?;
    }
    let (format, out) = args.runs.result.claim(&mut outputs)?;
    let report = outputs.claim("--report", args.runs.report.as_deref(), Contents::Html)?;
    let (mut traces, mut kernels) = (Vec::new(), Vec::new());
    for source in &sources {
        let mut trace = curves_of(source, &policies, args)?;
        if names_best(&args.policies) {
            let sizes = sizes_of(&trace, args);
            keep_best(&mut trace, &sizes);
        }
        say_remarks(&trace.trace, &trace.reading);
        kernels.push(kernels_of(source, &trace, args)?);
        traces.push(trace);
    }
    with_output(out, |out| match format {
        Format::Table => write_table(out, &traces, &kernels, args),
        Format::Csv => write_csv(out, &traces, args),
        Format::Json => write_json(out, &traces, &kernels, args),
    })?;
    if let Some(report) = report {
        let path = report.path().display().to_string();
        crate::report::write_curves(report, &traces, &kernels, |trace| sizes_of(trace, args), &ratios(args))?;
        say(format_args!("report written to {path}"));
    }
    Ok(())
}

/// Leaves the policies that miss least at one of these sizes, LRU, and those that know the future.
fn keep_best(trace: &mut TraceCurves, sizes: &[u64]) {
    let needs_future = |policy: &str| {
        let spec = PolicySpec::parse_for(policy, FrontEnd::Replay);
        spec.is_ok_and(|spec| spec.entry.is(Fact::NeedsFuture))
    };
    let fair: Vec<&Curve> = trace.curves.iter().filter(|curve| !needs_future(&curve.policy)).collect();
    let is_best =
        |curve: &Curve| sizes.iter().any(|pages| fair.iter().all(|other| curve.at(*pages) <= other.at(*pages)));
    let kept: Vec<bool> = (trace.curves.iter())
        .map(|curve| curve.policy == "lru" || needs_future(&curve.policy) || is_best(curve))
        .collect();
    let mut kept = kept.into_iter();
    trace.curves.retain(|_| kept.next().unwrap_or(true));
}

/// LRU by reuse distances, which also finds the footprint; the rest by simulation.
fn curves_of(source: &Source, policies: &[PolicySpec], args: &MrcArgs) -> Result<TraceCurves, Failure> {
    let plan = CurvePlan {
        policies: policies.to_vec(),
        sampling: args.sample.map(|rate| Sampling { rate: rate.0, seed: args.source.seed().unwrap_or(1) }),
        jobs: jobs(args.runs.jobs),
        memory_budget: memory_budget(),
    };
    Ok(curves(source, &plan, |footprint| sizes_for(footprint, args), &Progress::new("drawing curves"))?)
}

/// What real kernels did with a trace; `None` if it can be read once only.
fn kernels_of(source: &Source, trace: &TraceCurves, args: &MrcArgs) -> Result<Option<Kernels>, Failure> {
    if args.source.require_files().is_err() {
        return Ok(None);
    }
    let sizes = sizes_of(trace, args);
    let shown = Shown {
        accesses: trace.accesses,
        distinct: trace.distinct_pages,
        reading: &trace.reading,
        sizes: &sizes,
        warm_up: 0,
    };
    let loads = |pages: u64| {
        let ratio = trace.curves.first().map_or(1.0, |curve| curve.at(pages));
        (ratio * trace.accesses as f64) as u64
    };
    Ok(Some(Kernels::of(source, args.source.read(), shown, loads)?))
}

/// The sizes shown for a trace, in pages, ascending.
fn sizes_of(trace: &TraceCurves, args: &MrcArgs) -> Vec<u64> {
    sizes_for(trace.distinct_pages, args)
}

fn sizes_for(footprint: u64, args: &MrcArgs) -> Vec<u64> {
    if args.memory.is_empty() {
        return default_sizes(footprint);
    }
    let mut sizes: Vec<u64> = args.memory.iter().map(|size| size.pages(footprint)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn ratios(args: &MrcArgs) -> Vec<f64> {
    args.misses.iter().map(|share| share.0).collect()
}

fn write_table(
    out: &mut dyn Write,
    traces: &[TraceCurves],
    kernels: &[Option<Kernels>],
    args: &MrcArgs,
) -> std::io::Result<()> {
    for (index, trace) in traces.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(
            out,
            "{}: {}; {} % of accesses are first touches",
            trace.trace,
            accesses_text(&trace.reading, trace.accesses, trace.distinct_pages),
            percent_format(std::iter::once(trace.first_touches()))(trace.first_touches())
        )?;
        if let Some(note) = trace.reading.note() {
            writeln!(out, "{note}")?;
        }
        let sizes = sizes_of(trace, args);
        for (part, curves) in trace.curves.chunks(MAX_COLUMNS).enumerate() {
            if part > 0 {
                writeln!(out)?;
            }
            write_curves(out, trace, curves, &sizes)?;
        }
        writeln!(out, "\nFigures are misses in % of accesses, first touches included.")?;
        if let Some(sampling) = trace.sampling {
            writeln!(out, "{}", sampling_text(sampling, trace))?;
        }
        let ratios = ratios(args);
        writeln!(out, "\nMemory for {}:", goal_text(trace, &ratios))?;
        for curve in &trace.curves {
            let mut lines = answer(trace, curve, &ratios).into_iter();
            writeln!(out, "  {}: {}", curve.policy, lines.next().unwrap_or_default())?;
            let indent = " ".repeat(curve.policy.chars().count() + 2);
            lines.try_for_each(|line| writeln!(out, "  {indent}{line}"))?;
        }
        kernel_lines(out, kernels[index].iter().map(|kernels| kernels.text(&trace.reading)))?;
    }
    Ok(())
}

/// A table of some curves of a trace at these sizes.
fn write_curves(out: &mut dyn Write, trace: &TraceCurves, curves: &[Curve], sizes: &[u64]) -> std::io::Result<()> {
    let mut table = plain_table();
    let names = curves.iter().map(|curve| curve.policy.clone());
    table.set_header(["memory".to_string(), "pages".to_string()].into_iter().chain(names));
    let shown = trace.curves.iter().flat_map(|curve| sizes.iter().map(|pages| curve.at(*pages)));
    let percent = percent_format(shown);
    for pages in sizes.iter().copied() {
        let ratios = curves.iter().map(|curve| match curve.standard_error_at(pages) {
            None => percent(curve.at(pages)),
            Some(error) => format!("{} ±{}", percent(curve.at(pages)), percent(half_interval(error))),
        });
        table.add_row([memory_text(&trace.reading, pages), grouped(pages)].into_iter().chain(ratios));
    }
    align_numbers(&mut table);
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The memory that a curve gives for each goal, in a line each: "12 MiB gives ≤ 10 %", the sizes that do for no goal
/// together, and the knee. What the goals are of says [`goal_text`].
pub fn answer(trace: &TraceCurves, curve: &Curve, ratios: &[f64]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut unreached = Vec::new();
    for ratio in ratios {
        let percent = format!("≤ {} %", number(ratio * 100.0));
        match curve.memory_for(goal(trace, ratios, *ratio)) {
            Some(point) => lines.push(format!(
                "{} gives {percent}{}",
                memory_text(&trace.reading, point.memory_pages),
                interval_text(trace, curve, goal(trace, ratios, *ratio))
            )),
            None => unreached.push(percent),
        }
    }
    if !unreached.is_empty() {
        lines.push(format!("no size shown gives {}", unreached.join(", ")));
    }
    lines.push(match knee(trace, curve) {
        Some(knee) => {
            let percent = percent_format(std::iter::once(knee.miss_ratio));
            let memory = memory_text(&trace.reading, knee.memory_pages);
            let of = if is_estimate(curve) { "the knee of the estimate" } else { "the knee" };
            format!("{of} is at {memory} ({} % misses in all)", percent(knee.miss_ratio))
        }
        None if !has_shape(curve) => format!("a knee is not told from fewer than {MIN_KNEE_POINTS} sizes"),
        None => "there is no knee below the whole footprint".to_string(),
    });
    lines
}

/// Sizes that a knee is told from: of fewer, the one below the line is the one that was asked for.
const MIN_KNEE_POINTS: usize = 4;

/// Whether a curve says how misses depend on memory: it is whole, or of several sizes.
fn has_shape(curve: &Curve) -> bool {
    curve.complete || curve.points.len() >= MIN_KNEE_POINTS
}

/// Where more memory stops paying, if the curve can say so.
pub fn knee(trace: &TraceCurves, curve: &Curve) -> Option<Point> {
    curve.knee(trace.distinct_pages, trace.first_touches()).filter(|_| has_shape(curve))
}

fn is_estimate(curve: &Curve) -> bool {
    curve.points.iter().any(|point| point.standard_error.is_some())
}

/// Of an estimate, between which sizes the memory for a goal lies by the interval of its ratios; else nothing.
fn interval_text(trace: &TraceCurves, curve: &Curve, goal: f64) -> String {
    if !is_estimate(curve) {
        return String::new();
    }
    let end = |side: f64| {
        let above = |point: &Point| point.miss_ratio + side * half_interval(point.standard_error.unwrap_or(0.0)) > goal;
        let worse = curve.points.iter().rposition(above);
        curve.points.get(worse.map_or(0, |at| at + 1)).map(|point| memory_text(&trace.reading, point.memory_pages))
    };
    match (end(-1.0), end(1.0)) {
        (Some(least), Some(most)) if least == most => String::new(),
        (Some(least), Some(most)) => format!(" (95 %: {least} to {most})"),
        (Some(least), None) => format!(" (95 %: {least} or more)"),
        (None, _) => String::new(),
    }
}

/// What the goals are of, said once for a trace: misses in all, or, where first touches alone are more than some goal,
/// those beyond first touches.
pub fn goal_text(trace: &TraceCurves, ratios: &[f64]) -> String {
    if !is_beyond(trace, ratios) {
        return "each share of misses in all".to_string();
    }
    let first_touches = trace.first_touches();
    let percent = percent_format(std::iter::once(first_touches));
    format!("each share of misses beyond first touches, which are {} %", percent(first_touches))
}

/// Whether goals are taken beyond first touches: all of them if some cannot be reached otherwise, so that a looser goal
/// never needs more memory.
fn is_beyond(trace: &TraceCurves, ratios: &[f64]) -> bool {
    ratios.iter().any(|ratio| *ratio < trace.first_touches())
}

/// The miss ratio that is looked for when this one is asked for.
fn goal(trace: &TraceCurves, ratios: &[f64], ratio: f64) -> f64 {
    if is_beyond(trace, ratios) { ratio + trace.first_touches() } else { ratio }
}

/// How sampled curves came about, whether the samples are too small to say much, and of which the spread is not all.
pub fn sampling_text(sampling: Sampling, trace: &TraceCurves) -> String {
    let pages = (trace.distinct_pages as f64 * sampling.rate).round() as u64;
    let few = match pages < MIN_SAMPLED_PAGES {
        true => format!(
            " A sample has some {}: with fewer than {} chance decides. Sample more, or leave out --sample.",
            if pages == 1 { "1 page".to_owned() } else { format!("{} pages", grouped(pages)) },
            grouped(MIN_SAMPLED_PAGES)
        ),
        false => String::new(),
    };
    let off: Vec<&str> = trace.curves.iter().filter(|curve| is_off(curve)).map(|curve| curve.policy.as_str()).collect();
    let off = match off.as_slice() {
        [] => String::new(),
        names => format!(
            " Of {} that is the spread of the samples alone: in a memory as small as a sample's they miss otherwise than \
             in the whole one. Compare a size without --sample.",
            names.join(", ")
        ),
    };
    format!(
        "Estimated from {SAMPLES} samples of {} % of the pages each; ± is half of a 95 % confidence interval (Student's t \
         with {} degrees of freedom).{few}{off}",
        number(sampling.rate * 100.0),
        SAMPLES - 1
    )
}

/// Whether an estimated curve may be off by more than its samples differ.
fn is_off(curve: &Curve) -> bool {
    let is_estimate = curve.points.iter().any(|point| point.standard_error.is_some());
    is_estimate && PolicySpec::parse(&curve.policy).is_ok_and(|spec| spec.entry.is(Fact::NotInMiniature))
}

/// Pages of a sample with fewer of which a hot page more or less decides about the curve.
const MIN_SAMPLED_PAGES: u64 = 1000;

/// Half of the 95 % confidence interval of a mean of [`SAMPLES`] samples with this standard error.
fn half_interval(standard_error: f64) -> f64 {
    STUDENT_T_95 * standard_error
}

/// Student's t, two-sided at 95 %, for three degrees of freedom.
const STUDENT_T_95: f64 = 3.182_446;
const _: () = assert!(SAMPLES == 4, "STUDENT_T_95 is for four samples");

fn write_csv(out: &mut dyn Write, traces: &[TraceCurves], args: &MrcArgs) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "trace",
        "policy",
        "memory_pages",
        "memory_bytes",
        "accesses",
        "distinct_pages",
        "miss_ratio",
        "standard_error",
        "half_interval_95",
    ])?;
    for trace in traces {
        for curve in &trace.curves {
            for pages in sizes_of(trace, args) {
                csv.write_record([
                    trace.trace.as_str(),
                    &curve.policy,
                    &pages.to_string(),
                    &pages.saturating_mul(PAGE_BYTES).to_string(),
                    &trace.accesses.to_string(),
                    &trace.distinct_pages.to_string(),
                    &curve.at(pages).to_string(),
                    &curve.standard_error_at(pages).map_or(String::new(), |error| error.to_string()),
                    &curve.standard_error_at(pages).map_or(String::new(), |error| half_interval(error).to_string()),
                ])?;
            }
        }
    }
    csv.flush()
}

fn write_json(
    out: &mut dyn Write,
    traces: &[TraceCurves],
    kernels: &[Option<Kernels>],
    args: &MrcArgs,
) -> std::io::Result<()> {
    let curves: Vec<Value> =
        traces.iter().flat_map(|trace| trace.curves.iter().map(move |curve| json_curve(trace, curve, args))).collect();
    let readings: Vec<Value> = traces
        .iter()
        .enumerate()
        .map(|(place, trace)| {
            let mut reading = trace.reading.to_json();
            reading["trace"] = json!(trace.trace);
            if let Some(kernels) = &kernels[place] {
                reading["kernels"] = kernels.to_json();
            }
            reading
        })
        .collect();
    serde_json::to_writer(&mut *out, &json!({ "curves": curves, "traces": readings }))?;
    writeln!(out)
}

fn json_curve(trace: &TraceCurves, curve: &Curve, args: &MrcArgs) -> Value {
    let points: Vec<Value> = sizes_of(trace, args)
        .into_iter()
        .map(|pages| {
            json!({
                "memory_pages": pages,
                "miss_ratio": curve.at(pages),
                "standard_error": curve.standard_error_at(pages),
                "half_interval_95": curve.standard_error_at(pages).map(half_interval),
            })
        })
        .collect();
    let ratios = ratios(args);
    let beyond = is_beyond(trace, &ratios);
    let enough: Vec<Value> = ratios
        .iter()
        .map(|ratio| {
            let enough = curve.memory_for(goal(trace, &ratios, *ratio)).map(|point| point.memory_pages);
            json!({ "miss_ratio": ratio, "beyond_first_touches": beyond, "memory_pages": enough })
        })
        .collect();
    let knee = knee(trace, curve);
    let mut object = json!({
        "trace": trace.trace,
        "policy": curve.policy,
        "accesses": trace.accesses,
        "distinct_pages": trace.distinct_pages,
        "exact": curve.complete,
        "sample": trace.sampling.map(|sampling| sampling.rate),
        "spread_alone": is_off(curve),
        "knee": knee.map(|knee| json!({ "memory_pages": knee.memory_pages, "miss_ratio": knee.miss_ratio })),
        "enough": enough,
        "points": points,
    });
    if !args.runs.no_timing {
        let seconds = curve.wall.as_secs_f64();
        object["wall_seconds"] = json!(seconds);
        object["accesses_per_second"] = json!((trace.accesses as f64 / seconds.max(1e-9)).round());
    }
    object
}
