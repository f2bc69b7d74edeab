//! `refault bench cache`: reads of a file larger than memory, through refault's page cache and through the kernel's.
//!
//! Both read the same file on the same disk, page by page, with the same memory: ours with direct I/O and a limit, the
//! kernel's in a memory cgroup of that size and [`ALLOWANCE`] more for the program itself. The file is taken out of the
//! kernel's page cache before each run.

pub mod load;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use refault_cache::{CacheOptions, PageCache};
use refault_console::{Failure, Format, Progress, Share, say, with_output};
use refault_core::policy::registry::Fact;
use refault_core::policy::{FrontEnd, PolicySpec};
use serde_json::json;

use self::load::{Figures, LoadArgs, PAGE, Pattern};
use crate::pager::kernel::{Kernel, cgroup_obstacle};
use refault_console::text::{align_numbers, plain_table};

/// Bytes that the cgroup gets beyond that, for the reading program itself.
const ALLOWANCE: u64 = 4 << 20;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo refault bench cache                        the table of docs/cache.md
  refault bench cache --patterns zipf --policies lru,s3fifo --alone
  refault bench cache --memory-mib 8 --seconds 0.3 --alone    shows that it works, not how fast it is

Writes a file of the given multiple of the memory into the directory and removes it. Without root, or with --alone, the
kernel's side is left out. Wants a quiet machine and a disk of its own.")]
/// Print the speed table of the page cache
pub struct CacheArgs {
    /// How to read
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Pattern::Zipf, Pattern::Uniform, Pattern::Scan])]
    patterns: Vec<Pattern>,
    /// Policies to run in refault's cache
    #[arg(long, value_name = "P", value_delimiter = ',', default_values_t = ["mglru", "classic", "freebsd-nocache", "freebsd"].map(String::from))]
    policies: Vec<String>,
    /// Shares of memory kept free for evicted pages, each beside a run without (freebsd has its own and runs once)
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_values_t = ["0%", "5%"].map(String::from))]
    keep_evicted: Vec<String>,
    /// Share of refault's memory for evicted pages, compressed. The file's pages are numbers and zeros, which compress better
    /// than those of any file in use: for what a page costs, not for how many fit
    #[arg(long, value_name = "SHARE")]
    compressed: Option<String>,
    /// Memory for each side, MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory_mib: u64,
    /// Size of the file, in multiples of the memory
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    times: u64,
    /// Threads that read
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Seconds measured per run, and at least 1000 reads
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Seconds of warm-up, and at least as many reads as the file has pages
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    warm_up: f64,
    /// Directory of the file that is read
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Leave the kernel's side out
    #[arg(long)]
    alone: bool,
    /// How to write the table
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

/// What serves the reads.
enum Side<'a> {
    /// Our cache with this policy, and what it does with evicted pages.
    Ours(&'a PolicySpec, Option<&'a Kept>),
    /// The kernel's.
    Kernel,
}

/// A row: what read, and what came out.
struct Row {
    pattern: Pattern,
    policy: String,
    keep: String,
    figures: Figures,
}

/// Runs the command.
pub fn run(args: &CacheArgs) -> Result<(), Failure> {
    let shares = args.keep_evicted.iter().map(|text| parse_share(text, 50)).collect::<Result<Vec<_>, _>>()?;
    let compressed = args.compressed.as_deref().map(|text| parse_share(text, 75)).transpose()?.map(|share| share.share);
    let policies = args.policies.iter().map(|policy| PolicySpec::parse_for(policy, FrontEnd::PageCache));
    let policies = policies.collect::<Result<Vec<_>, _>>()?;
    let kernel = if args.alone { None } else { Some(cgroup_obstacle()) };
    let directory =
        tempfile::tempdir_in(&args.directory).map_err(|error| Failure::write(args.directory.display(), &error))?;
    let path = directory.path().join("pages");
    let pages = ((args.memory_mib * args.times) << 20) as usize / PAGE;
    load::write_file(&path, pages).map_err(|error| Failure::write(path.display(), &error))?;
    let mut runs: Vec<(Pattern, Side<'_>)> = Vec::new();
    for pattern in &args.patterns {
        for policy in &policies {
            runs.push((*pattern, Side::Ours(policy, None)));
            if !policy.entry.is(Fact::CachesEvicted) {
                runs.extend(shares.iter().map(|share| (*pattern, Side::Ours(policy, Some(share)))));
            }
        }
        if kernel == Some(None) {
            runs.push((*pattern, Side::Kernel));
        }
    }
    let progress = Progress::part("reading");
    let mut rows = Vec::new();
    for (number, (pattern, side)) in runs.iter().enumerate() {
        progress.set(number as f64 / runs.len() as f64);
        load::forget(&path).map_err(|error| Failure::write(path.display(), &error))?;
        let load = LoadArgs {
            file: path.clone(),
            pattern: *pattern,
            threads: args.threads as usize,
            warm_up: args.warm_up,
            seconds: args.seconds,
        };
        let (policy, keep, figures) = match side {
            Side::Ours(policy, keep) => {
                let shown = match keep {
                    Some(kept) => kept.text.clone(),
                    None if policy.entry.is(Fact::CachesEvicted) => "its own".into(),
                    None => "gone".into(),
                };
                (
                    policy.label.clone(),
                    shown,
                    ours(args, &load, pages, policy, keep.map(|kept| kept.share), compressed)?,
                )
            }
            Side::Kernel => ("kernel".into(), "gone".into(), kernels(args, &load)?),
        };
        rows.push(Row { pattern: *pattern, policy, keep, figures });
    }
    drop(progress);
    if let Some(Some(obstacle)) = kernel {
        say(format_args!("skipped: the kernel's side {obstacle}"));
    }
    with_output(None, |out| match args.format {
        Format::Table => write_table(out, args, &rows),
        Format::Csv => write_csv(out, &rows),
        Format::Json => {
            let rows: Vec<_> = rows.iter().map(json_row).collect();
            let memory = args.memory_mib << 20;
            serde_json::to_writer(
                &mut *out,
                &json!({ "memory_bytes": memory, "file_memories": args.times, "rows": rows }),
            )?;
            writeln!(out)
        }
    })
}

/// A share as it was written, and what it is.
struct Kept {
    text: String,
    share: f64,
}

/// A share of at most so many percent.
fn parse_share(text: &str, most: u32) -> Result<Kept, Failure> {
    let share = if matches!(text, "0" | "0%") { 0.0 } else { text.parse::<Share>().map_or(1.0, |share| share.0) };
    if share > f64::from(most) / 100.0 {
        let remedy = format!("write 5% or 0.05, at most {most}%");
        return Err(Failure::usage("bad share", format!("'{text}'"), remedy));
    }
    Ok(Kept { text: text.to_string(), share })
}

fn ours(
    args: &CacheArgs,
    load: &LoadArgs,
    pages: usize,
    policy: &PolicySpec,
    keep_evicted: Option<f64>,
    compressed: Option<f64>,
) -> Result<Figures, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed("the page cache", load.file.display(), error);
    let memory = args.memory_mib << 20;
    let policy_name = policy.label.clone();
    let options = CacheOptions { memory, policy: policy_name, keep_evicted, compressed, ..CacheOptions::default() };
    let cache = PageCache::new(&options).map_err(|error| failed(&error))?;
    let file = cache.open(&load.file).map_err(|error| failed(&error))?;
    let read = |buffer: &mut [u8], offset| file.read_at(buffer, offset).map(drop).map_err(|error| failed(&error));
    load::measure(load, pages, &read, &|| {
        let counters = cache.report().counters;
        let kept = keep_evicted.is_some() || policy.entry.is(Fact::CachesEvicted);
        (counters.file_reads, kept.then_some(counters.pages_reactivated))
    })
}

fn kernels(args: &CacheArgs, load: &LoadArgs) -> Result<Figures, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed("the kernel's side", load.file.display(), error);
    let kernel = Kernel::new((args.memory_mib << 20) + ALLOWANCE, 0)?;
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command: Command = kernel.command();
    command.arg(program).args(["bench", "cache-load", "--pattern", &load.pattern.to_string()]);
    command.arg("--file").arg(Path::new(&load.file)).args(["--threads", &load.threads.to_string()]);
    command.args(["--warm-up", &load.warm_up.to_string(), "--seconds", &load.seconds.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(&error))?;
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))
}

fn write_table(out: &mut dyn Write, args: &CacheArgs, rows: &[Row]) -> std::io::Result<()> {
    for pattern in &args.patterns {
        let mut table = plain_table();
        table.set_header(["policy", "evicted", "reads/s", "from disk, %", "reactivated, %", "p50, µs", "p99, µs"]);
        for row in rows.iter().filter(|row| row.pattern == *pattern) {
            let f = &row.figures;
            table.add_row([
                row.policy.clone(),
                row.keep.clone(),
                format!("{:.0}", f.operations_per_second),
                format!("{:.2}", f.pages_read_percent),
                f.reactivated_percent.map_or("–".into(), |percent| format!("{percent:.2}")),
                format!("{:.1}", f.p50_ns as f64 / 1000.0),
                format!("{:.1}", f.p99_ns as f64 / 1000.0),
            ]);
        }
        align_numbers(&mut table);
        writeln!(out, "{pattern}\n\n{}\n", table.trim_fmt())?;
    }
    writeln!(
        out,
        "{} MiB of memory, a file of {} memories, {} threads, reads of {PAGE} bytes. from disk: pages read from the file, for\n\
         100 reads; what comes along in sequences counts. evicted: what becomes of evicted pages: gone, or cached, with that\n\
         share of memory left free for them. kernel: its page cache in a memory cgroup with {} MiB more.",
        args.memory_mib,
        args.times,
        args.threads,
        ALLOWANCE >> 20
    )
}

fn write_csv(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "pattern",
        "policy",
        "evicted",
        "operations_per_second",
        "pages_read_percent",
        "reactivated_percent",
        "p50_ns",
        "p99_ns",
    ])?;
    for row in rows {
        let f = &row.figures;
        csv.write_record([
            row.pattern.to_string(),
            row.policy.clone(),
            row.keep.clone(),
            f.operations_per_second.to_string(),
            f.pages_read_percent.to_string(),
            f.reactivated_percent.map_or(String::new(), |percent| percent.to_string()),
            f.p50_ns.to_string(),
            f.p99_ns.to_string(),
        ])?;
    }
    csv.flush()
}

fn json_row(row: &Row) -> serde_json::Value {
    json!({
        "pattern": row.pattern.to_string(),
        "policy": row.policy,
        "evicted": row.keep,
        "figures": row.figures,
    })
}
