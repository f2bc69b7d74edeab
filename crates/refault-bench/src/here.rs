//! `refault-bench here NAME`, for `refault reproduce NAME --here`: rows of published experiments that can be measured on this machine.
//!
//! Files are here and in [`builds`], programs in [`programs`].
//!
//! Random reads of a file larger than memory, as the document's fio jobs make them: through refault's page cache under
//! the policies before and after, and through this kernel's page cache in a memory cgroup of the same size. The reads
//! come from the generators that the model uses, with three seeds; they are counted, not timed, so that a busy machine
//! changes nothing: what is compared is how many pages had to be read from the device, of how many were asked for.
//!
//! What this is not: the document's machine. The file is some hundred megabytes at most, one thread reads, and the
//! kernel is whichever runs here.

mod builds;
mod programs;

pub use builds::{BuildLoad, run_load as run_build_load};

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;

use clap::Args;
use refault_cache::{CacheOptions, PageCache};
use refault_console::{Failure, Progress, with_output};
use refault_core::Counters;
use refault_lab::experiment::{Here, MeasuredHere, Values};
use refault_lab::experiments::fio_job;
use refault_trace::{Source, WorkloadSpec};
use serde::{Deserialize, Serialize};

use crate::cache::load::{PAGE, forget, pages_from_disk, write_file};
use crate::live::tool;
use crate::pager::kernel::{Kernel, cgroup_obstacle};

/// Bytes that the kernel's cgroup gets beyond memory, for the program that reads. With these the file has about as
/// many pages in memory as ours.
const ALLOWANCE: u64 = 2 << 20;
/// Seeds of a row.
const SEEDS: u64 = 3;
/// Reads for each page of the file: first to warm up, then to count.
const READS: [u64; 2] = [3, 4];

/// Reads of a file through a page cache, and the policies that are compared.
struct Case {
    /// As the row of the model is called.
    name: &'static str,
    /// The generator, without pages, accesses and seed.
    law: &'static str,
    /// Jobs by turns, each with a part of the file to itself.
    jobs: u64,
    /// The file over memory.
    times: f64,
    before: &'static str,
    /// Names of rows and what is compared with `before`; the model's name of the row, if it has another.
    after: &'static [(&'static str, &'static str)],
}

const UNPATCHED: &str = "mglru{reads_start_oldest=yes,protects_frequent=no}";
const AGAINST_UNPATCHED: &[(&str, &str)] = &[
    ("refault distance", "mglru-refault{reads_start_oldest=yes,protects_frequent=no}"),
    ("fix of Dec 2023", "mglru"),
    ("multi-gen LRU off", "classic"),
];

/// What can be measured here of an experiment.
fn cases(experiment: &str) -> &'static [Case] {
    match experiment {
        // The document does not say how large the cache is beside the file; the model takes 1.0 and 1.2. Of a file that
        // fits nothing is read twice, so that the first is a tenth larger here; the second has six memories. Of a file
        // of 1.2 memories, zipf 1.2 asks for only as many pages as fit too.
        "shadow-lru" => &[
            Case {
                name: "fio 1 (uniform)",
                law: "random",
                jobs: 12,
                times: 1.1,
                before: "classic",
                after: &[("", "classic-shadow")],
            },
            Case {
                name: "fio 2 (zipf 1.2)",
                law: "zipf:1.2",
                jobs: 10,
                times: 6.0,
                before: "classic",
                after: &[("", "classic-shadow")],
            },
        ],
        "mglru-refault" => &[
            Case {
                name: "fio zipf 0.5",
                law: "zipf:0.5",
                jobs: 12,
                times: 3.0,
                before: UNPATCHED,
                after: AGAINST_UNPATCHED,
            },
            Case {
                name: "fio uniform",
                law: "random",
                jobs: 12,
                times: 3.0,
                before: UNPATCHED,
                after: AGAINST_UNPATCHED,
            },
        ],
        "mglru-fio" => &[Case {
            name: "fio thread and kswapd",
            law: "random",
            jobs: 128,
            times: 3.0,
            before: "classic",
            after: &[("", "mglru")],
        }],
        _ => &[],
    }
}

/// `refault-bench here`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault-bench here mglru-refault                          as JSON; 'refault reproduce NAME --here' shows it beside the model
  refault-bench here freepool --memory-mib 4 --seconds 1    to see that it works")]
/// Measure on this machine the rows of a published experiment that can be: JSON for 'refault reproduce --here'
pub struct HereArgs {
    /// The experiment, as 'refault reproduce list' names it
    #[arg(value_name = "NAME")]
    name: String,
    /// Memory of each side
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    memory_mib: u64,
    /// Seconds that a program works in each run
    #[arg(long, value_name = "S", default_value_t = 6.0, value_parser = crate::cache::seconds)]
    seconds: f64,
    /// Where files are made that are removed afterwards
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// There is no experiment of this name, or the files cannot be written or read.
pub fn run(args: &HereArgs) -> Result<(), Failure> {
    let entry = refault_lab::experiments::published::find(&args.name)?;
    let request = Request { memory: args.memory_mib << 20, directory: args.directory.clone(), seconds: args.seconds };
    let progress = Progress::part("measuring here");
    let measured = measure(entry.name, &request, &|part| progress.set(part))?;
    drop(progress);
    with_output(None, |out| {
        serde_json::to_writer(&mut *out, &measured)?;
        writeln!(out)
    })
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct Request {
    /// Memory of each side, bytes.
    pub memory: u64,
    /// Where the file is made; it is removed afterwards.
    pub directory: PathBuf,
    /// Seconds that a program works in each run.
    pub seconds: f64,
}

impl Default for Request {
    fn default() -> Request {
        Request { memory: 16 << 20, directory: ".".into(), seconds: 6.0 }
    }
}

/// Measures what can be measured here of an experiment; nothing if nothing can. `progress` is told how far it is, from
/// 0 to 1.
///
/// ```
/// use refault_bench::here::{Request, measure};
///
/// // What no document describes has no rows.
/// let measured = measure("no-such-experiment", &Request::default(), &|_| ())?;
/// assert!(measured.rows.is_empty());
/// # Ok::<(), refault_console::Failure>(())
/// ```
///
/// # Errors
/// The file cannot be written or read.
pub fn measure(experiment: &str, request: &Request, progress: &dyn Fn(f64)) -> Result<MeasuredHere, Failure> {
    let mut measured = MeasuredHere::default();
    let parts: [&Part<'_>; 3] = [&measure_reads, &builds::measure, &programs::measure];
    for (number, part) in parts.iter().enumerate() {
        let of_part = |done: f64| progress((number as f64 + done) / parts.len() as f64);
        let of_part = part(experiment, request, &of_part)?;
        measured.rows.extend(of_part.rows);
        measured.remarks.extend(of_part.remarks);
    }
    Ok(measured)
}

/// One kind of rows.
type Part<'a> = dyn Fn(&str, &Request, &dyn Fn(f64)) -> Result<MeasuredHere, Failure> + 'a;

/// Random reads of a file.
fn measure_reads(experiment: &str, request: &Request, progress: &dyn Fn(f64)) -> Result<MeasuredHere, Failure> {
    let cases = cases(experiment);
    let mut measured = MeasuredHere::default();
    if cases.is_empty() {
        return Ok(measured);
    }
    let obstacle = cgroup_obstacle();
    let directory = tempfile::tempdir_in(&request.directory)
        .map_err(|error| Failure::write(request.directory.display(), &error))?;
    let path = directory.path().join("pages");
    for (number, case) in cases.iter().enumerate() {
        let pages = (request.memory as f64 * case.times) as u64 / PAGE as u64 / case.jobs * case.jobs;
        write_file(&path, pages as usize).map_err(|error| Failure::write(path.display(), &error))?;
        let mut sides: Vec<Side> = vec![Side::ours(case.before)];
        sides.extend(case.after.iter().map(|(_, policy)| Side::ours(policy)));
        if obstacle.is_none() {
            sides.push(Side::Kernel);
        }
        let mut counts: Vec<Vec<Counts>> = vec![Vec::new(); sides.len()];
        let runs = SEEDS as usize * sides.len();
        for seed in 1..=SEEDS {
            for (at, side) in sides.iter().enumerate() {
                let load = Load {
                    file: path.clone(),
                    law: case.law.to_owned(),
                    jobs: case.jobs,
                    pages,
                    warm_up: READS[0] * pages,
                    reads: READS[1] * pages,
                    seed,
                };
                forget(&path).map_err(|error| Failure::write(path.display(), &error))?;
                counts[at].push(side.run(&load, request.memory)?);
                let part = (counts.iter().map(Vec::len).sum::<usize>()) as f64 / runs as f64;
                progress((number as f64 + part) / cases.len() as f64);
            }
        }
        measured.rows.extend(rows(case, &sides, &counts));
    }
    measured.remarks = remarks(request, obstacle);
    Ok(measured)
}

fn remarks(request: &Request, obstacle: Option<String>) -> Vec<String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let generations = std::fs::read_to_string("/sys/kernel/mm/lru_gen/enabled");
    let lists = match generations.as_deref().map(str::trim) {
        Ok("0x0000") | Err(_) => "classic lists",
        Ok(_) => "multi-gen LRU",
    };
    let kernel = match obstacle {
        None => format!(
            "The kernel is {} with {lists}, in a memory cgroup with {} MiB more for the program; how many pages of the \
             file it held at the end stands beside it.",
            kernel.trim(),
            ALLOWANCE >> 20
        ),
        Some(obstacle) => format!("The kernel's side was left out: it {obstacle}."),
    };
    vec![
        format!(
            "On this machine: reads of single pages by one thread, {} MiB of memory, {} reads per page of the file \
             after {} to warm up, {SEEDS} seeds. Counts, not times: they are the same on a busy machine.",
            request.memory >> 20,
            READS[1],
            READS[0]
        ),
        kernel,
    ]
}

/// Who serves the reads.
enum Side {
    Ours(String),
    Kernel,
}

/// What was counted after the warm-up.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Counts {
    reads: u64,
    /// Pages read from the device.
    loads: u64,
    /// Pages of the file in memory at the end, if that is counted.
    held: Option<u64>,
    /// Moves between lists for each page that was reclaimed, where that is counted.
    moves: Option<f64>,
}

impl Counts {
    fn loads_per_operation(&self) -> f64 {
        self.loads as f64 / self.reads.max(1) as f64
    }

    fn hit_ratio(&self) -> f64 {
        1.0 - self.loads_per_operation()
    }
}

/// Fills a page from an offset, or says why not.
type ReadPage<'a> = dyn FnMut(&mut [u8], u64) -> Result<(), String> + 'a;

/// The reads: counted, so that each side makes the same ones.
#[derive(Args, Clone, Debug)]
pub struct Load {
    #[arg(long)]
    file: PathBuf,
    /// The law of the reads, as fio names it
    #[arg(long)]
    law: String,
    /// Readers by turns, each of a part of the file
    #[arg(long)]
    jobs: u64,
    #[arg(long)]
    pages: u64,
    #[arg(long)]
    warm_up: u64,
    #[arg(long)]
    reads: u64,
    #[arg(long)]
    seed: u64,
}

impl Load {
    /// Makes the reads; `counted` is called between the warm-up and the rest.
    fn make(&self, read: &mut ReadPage<'_>, counted: &mut dyn FnMut()) -> Result<(), Failure> {
        let failed = |what: &dyn std::fmt::Display| Failure::failed("reading", self.file.display(), what);
        let share = self.pages / self.jobs;
        let mut jobs = (0..self.jobs)
            .map(|job| {
                let accesses = (self.warm_up + self.reads).div_ceil(self.jobs);
                let spec = fio_job(&self.law, self.jobs, job, share, accesses, self.seed);
                let spec: WorkloadSpec = spec.parse()?;
                Ok((Source::workload(spec).open()?, Vec::new(), 0))
            })
            .collect::<Result<Vec<_>, refault_trace::TraceError>>()
            .map_err(|error| failed(&error))?;
        let mut bytes = vec![0; PAGE];
        for done in 0..self.warm_up + self.reads {
            if done == self.warm_up {
                counted();
            }
            let job = done % self.jobs;
            let (reader, entries, at) = &mut jobs[job as usize];
            if *at == entries.len() {
                *at = 0;
                if reader.read_block(entries).map_err(|error| failed(&error))? == 0 {
                    return Err(failed(&"the generator ended before its time"));
                }
            }
            let page = job * share + entries[*at].page();
            *at += 1;
            read(&mut bytes, page * PAGE as u64).map_err(|error| failed(&error))?;
            if bytes[..8] != page.to_le_bytes() {
                return Err(failed(&format!("page {page} has the contents of another")));
            }
        }
        Ok(())
    }
}

impl Side {
    fn ours(policy: &str) -> Side {
        Side::Ours(policy.to_owned())
    }

    fn name(&self) -> String {
        match self {
            Side::Ours(policy) => format!("page cache, {policy}"),
            Side::Kernel => "the kernel's page cache".to_owned(),
        }
    }

    fn run(&self, load: &Load, memory: u64) -> Result<Counts, Failure> {
        match self {
            Side::Ours(policy) => through_ours(load, policy, memory),
            Side::Kernel => through_the_kernels(load, memory),
        }
    }
}

fn through_ours(load: &Load, policy: &str, memory: u64) -> Result<Counts, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed("the page cache", load.file.display(), error);
    let options = CacheOptions { memory, policy: policy.into(), keep_evicted: None, ..CacheOptions::default() };
    let cache = PageCache::new(&options).map_err(|error| failed(&error))?;
    let file = cache.open(&load.file).map_err(|error| failed(&error))?;
    let mut before = Counters::default();
    let mut read = |bytes: &mut [u8], offset| file.read_at(bytes, offset).map(drop).map_err(|error| error.to_string());
    load.make(&mut read, &mut || before = cache.report().counters)?;
    let counted = cache.report().counters.since(&before);
    Ok(Counts {
        reads: load.reads,
        loads: counted.file_reads,
        held: None,
        moves: Some((counted.pgactivate + counted.pgrefill) as f64 / counted.pgsteal.max(1) as f64),
    })
}

fn through_the_kernels(load: &Load, memory: u64) -> Result<Counts, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed("the kernel's side", load.file.display(), error);
    let kernel = Kernel::new(memory + ALLOWANCE, 0)?;
    let mut command = kernel.command();
    command.arg(tool::me()?).args(["here-load", "--law", &load.law]).arg("--file").arg(&load.file);
    let numbers = [
        ("--jobs", load.jobs),
        ("--pages", load.pages),
        ("--warm-up", load.warm_up),
        ("--reads", load.reads),
        ("--seed", load.seed),
    ];
    for (name, value) in numbers {
        command.args([name, &value.to_string()]);
    }
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(&error))?;
    let counts: Counts = serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))?;
    Ok(Counts { held: kernel.file_pages(), ..counts })
}

/// The hidden program that reads through the kernel's page cache, inside the cgroup.
///
/// # Errors
/// The file cannot be read.
pub fn run_load(load: &Load) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed("reading", load.file.display(), error);
    let file = File::open(&load.file).map_err(failed)?;
    // As every storage engine says, and fio with random reads.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).map_err(|error| failed(error.into()))?;
    let mut before = 0;
    let mut read = |bytes: &mut [u8], offset| file.read_exact_at(bytes, offset).map_err(|error| error.to_string());
    load.make(&mut read, &mut || before = pages_from_disk())?;
    let counts = Counts { reads: load.reads, loads: pages_from_disk() - before, held: None, moves: None };
    with_output(None, |out| {
        serde_json::to_writer(&mut *out, &counts)?;
        writeln!(out)
    })
}

/// Mean and relative standard deviation.
fn mean_and_spread(values: &[f64]) -> (f64, Option<f64>) {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let spread = (values.len() > 1 && mean != 0.0).then(|| (squares / (values.len() - 1) as f64).sqrt() / mean);
    (mean, spread)
}

/// A row of what was measured before and after; the texts are its name, metric, unit and side.
fn compared(texts: [&str; 4], before: &[f64], after: &[f64]) -> Here {
    let ratios: Vec<f64> = before.iter().zip(after).map(|(before, after)| after / before).collect();
    let (ratio, spread) = mean_and_spread(&ratios);
    let ratio = ratio.is_finite().then_some(ratio);
    let values = Values { before: Some(mean_and_spread(before).0), after: Some(mean_and_spread(after).0), ratio };
    here(texts, values, spread)
}

/// A row of what can be measured, but is neither before nor after.
fn level(texts: [&str; 4], measured: &[f64]) -> Here {
    let (level, spread) = mean_and_spread(measured);
    here(texts, Values { before: Some(level), after: None, ratio: None }, spread)
}

fn here([name, metric, unit, side]: [&str; 4], values: Values, spread: Option<f64>) -> Here {
    let spread = spread.filter(|spread| spread.is_finite());
    Here { name: name.into(), metric: metric.into(), unit: unit.into(), side: side.into(), values, spread }
}

fn rows(case: &Case, sides: &[Side], counts: &[Vec<Counts>]) -> Vec<Here> {
    let hit_ratios = case.after.len() > 1;
    let (metric, unit) = if hit_ratios { ("hit ratio", "ratio") } else { ("loads per operation", "pages") };
    let figure = |counts: &Counts| if hit_ratios { counts.hit_ratio() } else { counts.loads_per_operation() };
    let of_side = |at: usize, of: &dyn Fn(&Counts) -> f64| counts[at].iter().map(of).collect::<Vec<f64>>();
    let compared = |name: &str, metric: &str, unit: &str, at: usize, of: &dyn Fn(&Counts) -> f64| {
        compared([name, metric, unit, &sides[at].name()], &of_side(0, of), &of_side(at, of))
    };
    let mut rows = Vec::new();
    for (at, (name, _)) in case.after.iter().enumerate() {
        let name = if name.is_empty() { case.name.to_owned() } else { format!("{}: {name}", case.name) };
        rows.push(compared(&name, metric, unit, at + 1, &figure));
        if case.before == "classic" && case.after[at].1 == "mglru" {
            let moves = |counts: &Counts| counts.moves.unwrap_or(f64::NAN);
            rows.push(compared(&name, "moves between lists per reclaimed page", "moves", at + 1, &moves));
        }
    }
    if let Some(kernel) = sides.iter().position(|side| matches!(side, Side::Kernel)) {
        let held = counts[kernel].iter().filter_map(|counts| counts.held).max();
        let side = match held {
            Some(pages) => format!("{}, {pages} pages held", sides[kernel].name()),
            None => sides[kernel].name(),
        };
        rows.push(level([case.name, metric, unit, &side], &of_side(kernel, &figure)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two megabytes, through every policy of the rows: uniform reads of three memories miss two times in three under
    /// any of them, and skewed ones less.
    #[test]
    fn reads_of_a_real_file_are_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("pages");
        const MEMORY: u64 = 2 << 20;
        let pages = 3 * MEMORY / PAGE as u64;
        write_file(&file, pages as usize).expect("written");
        let counts = |law: &str, policy: &str| {
            let load =
                Load { file: file.clone(), law: law.into(), jobs: 4, pages, warm_up: pages, reads: 2 * pages, seed: 1 };
            through_ours(&load, policy, MEMORY).unwrap_or_else(|error| panic!("{policy}: {error:?}"))
        };
        for policy in ["classic", "classic-shadow", UNPATCHED, AGAINST_UNPATCHED[0].1, "mglru"] {
            let uniform = counts("random", policy).loads_per_operation();
            assert!((0.6..0.75).contains(&uniform), "{policy}: {uniform}");
            let skewed = counts("zipf:1.2", policy).loads_per_operation();
            assert!(skewed < uniform / 2.0, "{policy}: {skewed} of skewed reads, {uniform} of uniform ones");
        }
        let [classic, mglru] = ["classic", "mglru"].map(|policy| counts("random", policy).moves.expect("counted"));
        assert!(mglru < classic / 10.0, "{mglru} moves per reclaimed page, {classic} under the classic lists");
    }

    #[test]
    fn ratios_and_spreads_are_over_seeds() {
        let counts = |loads: u64| Counts { reads: 64, loads, ..Counts::default() };
        let case = &cases("shadow-lru")[0];
        let sides = [Side::ours("classic"), Side::ours("classic-shadow"), Side::Kernel];
        let rows = rows(case, &sides, &[vec![counts(8), counts(16)], vec![counts(4), counts(16)], vec![counts(32)]]);
        assert_eq!((rows[0].values.before, rows[0].values.after), (Some(0.1875), Some(0.15625)));
        assert_eq!(rows[0].values.ratio, Some(0.75));
        assert!((rows[0].spread.expect("two seeds") - 0.5f64.sqrt() * 0.5 / 0.75).abs() < 1e-9);
        assert_eq!((rows[1].values.before, rows[1].values.ratio, rows[1].spread), (Some(0.5), None, None));
    }
}
