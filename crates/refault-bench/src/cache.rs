//! `refault-bench cache`: a file larger than memory, through refault's page cache and through the kernel's.
//!
//! Both serve the same work from the same file on the same disk, page by page, with the same memory. They run one after
//! the other, in alternating order: ours with direct I/O and a limit, the kernel's in a memory cgroup of that size and
//! [`ALLOWANCE`] more for the program itself. The file is taken out of the kernel's page cache before each run.

mod array;
pub mod load;
mod objects;
pub mod opens;
mod table;
mod traces;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use refault_cache::{CacheOptions, CachedFile, DEFAULT_POLICY, PageCache, WriteBack};
use refault_console::{Failure, Format, Progress, Share, say};
use refault_core::policy::registry::Fact;
use refault_core::policy::{FrontEnd, PolicySpec};

use self::load::{Figures, LoadArgs, PAGE, Pattern, Served, page_number};
use self::table::{Row, Tables};
use crate::pager::kernel::{Kernel, cgroup_obstacle};
use crate::piecemeal::Piecemeal;

/// Bytes that the cgroup gets beyond that, for the reading program itself.
const ALLOWANCE: u64 = 4 << 20;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo refault-bench cache                        all there is, in some forty minutes
  sudo refault-bench cache --runs 3 --policies 'adaptive{head_start=25%},lru' --warm-up 3    the table of docs/reference/cache.md
  refault-bench cache --patterns zipf --policies lru,s3fifo --alone
  refault-bench cache --policies 'adaptive{head_start=25%},mglru,lru,s3fifo' --times 10 --runs 1 --trace web.u64.zst
  refault-bench cache --memory-mib 8 --seconds 0.3 --runs 1 --alone    shows that it works, not how fast it is

Writes a file of the given multiple of the memory into the directory and removes it. Without root, or with --alone, the
kernel's side is left out. Wants a quiet machine and a disk of its own.")]
/// Print the speed table of the page cache
pub struct CacheArgs {
    /// What is done with the file
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Pattern::Zipf, Pattern::Uniform, Pattern::Scan, Pattern::Mixed, Pattern::Hits, Pattern::Pinned, Pattern::SkewedHits, Pattern::SkewedPinned])]
    patterns: Vec<Pattern>,
    /// Instead of patterns, replay these traces, each access a read of a page of a file that has the trace's pages; the
    /// memory is the part of the file that `--times` says
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["patterns", "keep_evicted", "compressed", "memory_mib", "threads", "seconds", "warm_up"])]
    trace: Vec<PathBuf>,
    /// Policies to run in refault's cache
    #[arg(long, value_name = "P", value_delimiter = ',', default_values_t = [DEFAULT_POLICY, "mglru", "lru"].map(String::from))]
    policies: Vec<String>,
    /// Shares of memory kept free for evicted pages, each beside a run without (freebsd has its own and runs once)
    #[arg(long, value_name = "SHARE", value_delimiter = ',')]
    keep_evicted: Vec<String>,
    /// Share of refault's memory for evicted pages, compressed. The file's pages are numbers and zeros, which compress better
    /// than those of any file in use: for what a page costs, not for how many fit
    #[arg(long, value_name = "SHARE")]
    compressed: Option<String>,
    /// Memory for each side, MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory_mib: u64,
    /// Size of the file, in multiples of the memory
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    times: u64,
    /// Threads, each number a row (by default 2, of mixed 1, of scan and all hits 1 and 2)
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Vec<u32>,
    /// Seconds measured per run, and at least 1000 reads and writes
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds of warm-up, and at least as many reads as the file has pages
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    warm_up: f64,
    /// Runs of each row; medians are shown, and the least and the most
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
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

/// Seconds that something may take.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=1e6).contains(seconds));
    seconds.ok_or_else(|| "write seconds from 0 to 1000000, such as 2.5".into())
}

/// What serves the work.
enum Side<'a> {
    /// Our cache with this policy, and what it does with evicted pages.
    Ours(&'a PolicySpec, Option<&'a Kept>),
    /// The kernel's.
    Kernel,
    /// A cache of objects, of hits alone.
    Objects,
    /// No cache: an array that has the pages, for what hits cost at least.
    Array,
}

impl Side<'_> {
    fn policy(&self) -> String {
        match self {
            Side::Ours(policy, _) => policy.label.clone(),
            Side::Kernel => table::KERNEL.into(),
            Side::Objects => table::OBJECTS.into(),
            Side::Array => table::ARRAY.into(),
        }
    }

    fn evicted(&self) -> String {
        match self {
            Side::Ours(_, Some(kept)) => kept.text.clone(),
            Side::Ours(policy, None) if policy.entry.is(Fact::CachesEvicted) => "its own".into(),
            Side::Objects | Side::Array => "–".into(),
            _ => "gone".into(),
        }
    }
}

/// Runs the command.
pub fn run(args: &CacheArgs) -> Result<(), Failure> {
    let shares = args.keep_evicted.iter().map(|text| parse_share(text, 50)).collect::<Result<Vec<_>, _>>()?;
    let compressed = args.compressed.as_deref().map(|text| parse_share(text, 75)).transpose()?.map(|share| share.share);
    let policies = args.policies.iter().map(|policy| PolicySpec::parse_for(policy, FrontEnd::PageCache));
    let policies = policies.collect::<Result<Vec<_>, _>>()?;
    if !args.trace.is_empty() {
        return traces::run(args, &policies);
    }
    let obstacle = if args.alone { None } else { cgroup_obstacle() };
    let with_kernel = !args.alone && obstacle.is_none();
    let directory = directory_of(args)?;
    let path = directory.path().join("pages");
    let memory = (args.memory_mib << 20) as usize / PAGE;
    let pages = memory * args.times as usize;
    load::write_file(&path, pages).map_err(|error| Failure::write(path.display(), &error))?;
    let mut sides = Vec::new();
    for policy in &policies {
        sides.push(Side::Ours(policy, None));
        if !policy.entry.is(Fact::CachesEvicted) {
            sides.extend(shares.iter().map(|share| Side::Ours(policy, Some(share))));
        }
    }
    if with_kernel {
        sides.push(Side::Kernel);
    }
    sides.extend([Side::Objects, Side::Array]);
    let mut loads = Vec::new();
    for pattern in &args.patterns {
        let threads = if args.threads.is_empty() { pattern.threads() } else { &args.threads };
        loads.extend(threads.iter().map(|threads| LoadArgs {
            file: path.clone(),
            pattern: *pattern,
            pages: pattern.pages(pages, memory).max(1),
            threads: *threads,
            warm_up: args.warm_up,
            seconds: args.seconds,
        }));
    }
    let sides_of = |load: &LoadArgs| {
        let hits = load.pattern.hits();
        sides.iter().filter(move |side| hits || !matches!(side, Side::Objects | Side::Array)).collect::<Vec<_>>()
    };
    let progress = Progress::parts("reading");
    progress.add(u64::from(args.runs) * loads.iter().map(|load| sides_of(load).len() as u64).sum::<u64>());
    let results = Piecemeal::open(Tables::new(args), progress, directory.path().to_owned())?;
    if let Some(obstacle) = obstacle {
        results.progress().aside(|| say(format_args!("skipped: the kernel's side {obstacle}")));
    }
    let outcome = loads
        .iter()
        .try_for_each(|load| results.add(measure(args, load, &sides_of(load), compressed, results.progress())?));
    results.close(outcome)
}

/// A place for the file, which goes with it.
fn directory_of(args: &CacheArgs) -> Result<tempfile::TempDir, Failure> {
    tempfile::tempdir_in(&args.directory).map_err(|error| Failure::write(args.directory.display(), &error))
}

/// All runs of one load, by each side in turn, in the other order every second time.
fn measure(
    args: &CacheArgs,
    load: &LoadArgs,
    sides: &[&Side],
    compressed: Option<f64>,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let mut rows: Vec<_> = sides.iter().map(|side| (Row::new(load, side.policy(), side.evicted()), *side)).collect();
    for run in 0..args.runs {
        progress.says(format!("{}, {}, run {} of {}", load.pattern, table::threads(load.threads), run + 1, args.runs));
        let mut order: Vec<_> = rows.iter_mut().collect();
        if run % 2 == 1 {
            order.reverse();
        }
        for (row, side) in order {
            load::forget(&load.file).map_err(|error| Failure::write(load.file.display(), &error))?;
            row.runs.push(match side {
                Side::Ours(policy, kept) => ours(args, load, policy, kept.map(|kept| kept.share), compressed)?,
                Side::Kernel => kernels(args, load)?,
                Side::Objects => objects::run(load)?,
                Side::Array => array::run(load)?,
            });
            progress.advance(1);
        }
    }
    Ok(rows.into_iter().map(|(row, _)| row).collect())
}

/// A share as it was written, and what it is.
struct Kept {
    text: String,
    share: f64,
}

/// A share of at most `most` percent.
fn parse_share(text: &str, most: u32) -> Result<Kept, Failure> {
    let share = if matches!(text, "0" | "0%") { 0.0 } else { text.parse::<Share>().map_or(1.0, |share| share.0) };
    if share > f64::from(most) / 100.0 {
        let remedy = format!("write 5% or 0.05, at most {most}%");
        return Err(Failure::usage("bad share", format!("'{text}'"), remedy));
    }
    Ok(Kept { text: text.to_string(), share })
}

/// A file in our cache.
struct Cached<'a> {
    cache: &'a PageCache,
    file: &'a CachedFile,
    load: &'a LoadArgs,
    keeps_evicted: bool,
}

impl Cached<'_> {
    fn failed(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::failed("the page cache", self.load.file.display(), error)
    }
}

impl Served for Cached<'_> {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<u64, Failure> {
        if !self.load.pattern.copies() {
            let pinned = self.file.pin(offset..offset + PAGE as u64).map_err(|error| self.failed(&error))?;
            return Ok(pinned.as_slice().map_or(u64::MAX, page_number));
        }
        self.file.read_at(buffer, offset).map_err(|error| self.failed(&error))?;
        Ok(page_number(buffer))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Failure> {
        self.file.write_at(bytes, offset).map_err(|error| self.failed(&error))
    }

    fn sync(&self) -> Result<(), Failure> {
        self.file.sync().map_err(|error| self.failed(&error))
    }

    fn counts(&self) -> (u64, Option<u64>) {
        let counters = self.cache.report().counters;
        (counters.file_reads, self.keeps_evicted.then_some(counters.pages_reactivated))
    }
}

fn ours(
    args: &CacheArgs,
    load: &LoadArgs,
    policy: &PolicySpec,
    keep_evicted: Option<f64>,
    compressed: Option<f64>,
) -> Result<Figures, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed("the page cache", load.file.display(), error);
    let options = CacheOptions {
        memory: args.memory_mib << 20,
        policy: policy.label.clone(),
        keep_evicted,
        compressed,
        write_back: (load.pattern == Pattern::Mixed).then(WriteBack::default),
        ..CacheOptions::default()
    };
    let cache = PageCache::new(&options).map_err(|error| failed(&error))?;
    let writes = load.pattern == Pattern::Mixed;
    let file = cache.options().write(writes).open(&load.file).map_err(|error| failed(&error))?;
    let keeps_evicted = keep_evicted.is_some() || policy.entry.is(Fact::CachesEvicted);
    load::measure(load, &Cached { cache: &cache, file: &file, load, keeps_evicted })
}

fn kernels(args: &CacheArgs, load: &LoadArgs) -> Result<Figures, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed("the kernel's side", load.file.display(), error);
    let kernel = Kernel::new((args.memory_mib << 20) + ALLOWANCE, 0)?;
    let mut command: Command = kernel.command();
    command.arg(crate::live::tool::me()?).args(["cache-load", "--pattern", &load.pattern.to_string()]);
    command.arg("--file").arg(Path::new(&load.file)).args(["--threads", &load.threads.to_string()]);
    command.args(["--pages", &load.pages.to_string()]);
    command.args(["--warm-up", &load.warm_up.to_string(), "--seconds", &load.seconds.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))
}
