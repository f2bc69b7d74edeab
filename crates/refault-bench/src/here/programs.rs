//! Rows of `--here` that run programs: memcached, a compiler, and programs with phases, with less memory than they take.
//!
//! Under `refault run` with the policies before and after, and, where a change is one of policy, once more in a memory
//! cgroup with zram. Each side has a share of what the program takes when nothing limits it. What is compared are counts
//! of pages that came back over what the program did, and seconds where the document has nothing else. What reclaim
//! looks at is not compared: a pager that learns of accesses by faults looks at each page once, under every policy.
//! Sides run by turns, so that what else the machine does falls on all of them alike.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use refault_console::Failure;
use refault_lab::experiment::Here;
use serde_json::Value;

use super::{Request, SEEDS, compared, level};
use crate::live::{self, Setup, Work};
use crate::lru_sort;
use crate::pager::kernel::{Kernel, obstacle};
use crate::pager::sources::{SOURCES, write_sources};
use refault_lab::experiment::MeasuredHere;

/// Bytes that the kernel's cgroup gets beyond the share, for what `refault run` does not manage.
const ALLOWANCE: u64 = 8 << 20;
/// How long the budget stands high between two falls.
const HIGH: Duration = Duration::from_secs(3);

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Live(Work),
    /// make and a C compiler, two at a time.
    Compile,
}

/// What is compared.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Two policies.
    Policy(&'static str, &'static str),
    /// Pages sorted by a monitor under a budget that falls now and then, and not sorted.
    Sorting,
}

struct Case {
    /// As the row of the model is called, where the model has it.
    name: &'static str,
    load: Load,
    change: Change,
    figures: &'static [Figure],
}

/// Name, unit, and how to take it from a run.
type Figure = (&'static str, &'static str, fn(&live::Measured) -> f64);
const FAULTS: Figure =
    ("major faults per 1000 operations", "faults", |run| 1000.0 * run.major_faults as f64 / run.done.max(1.0));
const FAULTS_PER_FILE: Figure = ("major faults per file", "faults", |run| run.major_faults as f64 / run.done.max(1.0));
const SECONDS: Figure = ("run time per 1000 operations", "s", |run| 1000.0 / run.operations);
const WAITED: Figure = ("pressure some per 1000 operations", "s", |run| 1000.0 * run.some_seconds / run.done.max(1.0));

/// The first posting, as the model has it.
const FIRST_POSTING: &str =
    "mglru{tiers=1,reads_start_oldest=yes,protects_frequent=no,aging=exhausted,filters=no,look_around=no}";
const SHADOW: Change = Change::Policy("classic", "classic-shadow");

fn cases(experiment: &str) -> &'static [Case] {
    match experiment {
        "shadow-lru" => &[
            Case {
                name: "memcached (sequential fill)",
                load: Load::Live(Work::Fill),
                change: SHADOW,
                figures: &[FAULTS],
            },
            Case { name: "kernel build", load: Load::Compile, change: SHADOW, figures: &[FAULTS_PER_FILE] },
        ],
        "mglru-v1" => &[Case {
            name: "browser tabs",
            load: Load::Live(Work::Tabs),
            change: Change::Policy("classic", FIRST_POSTING),
            figures: &[FAULTS, WAITED],
        }],
        "lru-sort" => &SORTED,
        _ => &[],
    }
}

const SORTED: [Case; 3] =
    [sorted("memcached", Work::Memcached), sorted("phases", Work::Phases), sorted("tabs", Work::Tabs)];

const fn sorted(name: &'static str, work: Work) -> Case {
    Case { name, load: Load::Live(work), change: Change::Sorting, figures: &[SECONDS, FAULTS, WAITED] }
}

/// Measures the programs of an experiment; nothing if it has none.
///
/// # Errors
/// A program went wrong.
pub fn measure(experiment: &str, request: &Request, progress: &dyn Fn(f64)) -> Result<MeasuredHere, Failure> {
    let (cases, mut measured) = (cases(experiment), MeasuredHere::default());
    let kernel = obstacle();
    for (number, case) in cases.iter().enumerate() {
        if let Some(missing) = missing(case.load) {
            measured.remarks.push(format!("{} was left out on this machine: {missing} is not installed.", case.name));
            continue;
        }
        let part = |done: f64| progress((number as f64 + done) / cases.len() as f64);
        measured.rows.extend(rows(case, request, kernel.is_none(), &mut measured.remarks, &part)?);
    }
    if !cases.is_empty() {
        let beside = kernel.map_or_else(String::new, |why| format!(" The kernel's side was left out: it {why}."));
        measured.remarks.push(format!(
            "Programs on this machine: under refault run, {SEEDS} runs of each side by turns, half of the memory that the \
             program takes when nothing limits it; the kernel's side is its swap to zram in a memory cgroup of that size \
             and {} MiB more, counting faults on file pages too. Where pages are sorted, the budget falls to 75 % of the \
             peak for a second and stands at 200 % for {} s by turns.{beside}",
            ALLOWANCE >> 20,
            HIGH.as_secs()
        ));
    }
    Ok(measured)
}

/// What a load needs and is not there.
fn missing(load: Load) -> Option<&'static str> {
    let needed: &[&str] = match load {
        Load::Live(Work::Memcached | Work::Fill) => &["memcached"],
        Load::Live(_) => &[],
        Load::Compile => &["make", "cc"],
    };
    let runs = |name: &&&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    needed.iter().find(|name| !runs(name)).copied()
}

/// Runs all sides of a case by turns.
fn rows(
    case: &Case,
    request: &Request,
    with_kernel: bool,
    remarks: &mut Vec<String>,
    progress: &dyn Fn(f64),
) -> Result<Vec<Here>, Failure> {
    let subject = Subject::new(case.load, request)?;
    let policy = |name: &str| vec!["--policy".into(), name.into()];
    let schemes = lru_sort::schemes()?;
    let (sides, names) = match case.change {
        Change::Policy(before, after) => {
            ([policy(before), policy(after)], [before, after].map(|name| format!("refault run, {name}")))
        }
        Change::Sorting => {
            let mut sorting = policy("classic");
            sorting.extend(lru_sort::sorting(schemes.path()));
            ([policy("classic"), sorting], ["", ", sorted"].map(|sorted| format!("refault run, classic{sorted}")))
        }
    };
    let peak = subject.ours(&sides[0], u64::MAX >> 16, None)?.peak_bytes;
    let pulse = lru_sort::pulse(peak, HIGH);
    let pulse: Option<&live::Pulse> = matches!(case.change, Change::Sorting).then_some(&pulse);
    let memory = if pulse.is_some() { peak * 4 } else { peak / 2 };
    let mut runs: [Vec<live::Measured>; 3] = Default::default();
    let kernel_runs = with_kernel && pulse.is_none();
    for round in 0..SEEDS as usize {
        for step in 0..2 {
            // Each goes first in turn.
            let side = (step + round) % 2;
            runs[side].push(subject.ours(&sides[side], memory, pulse)?);
            progress((round as f64 + 0.4 * (step + 1) as f64) / SEEDS as f64);
        }
        if kernel_runs {
            match subject.theirs(memory, peak)? {
                Some(run) => runs[2].push(run),
                None => remarks.push(format!("{}: the kernel killed its side, having found no memory.", case.name)),
            }
        }
    }
    let mut rows = Vec::new();
    for (metric, unit, of) in case.figures {
        let of_side = |side: usize| runs[side].iter().map(of).collect::<Vec<f64>>();
        rows.push(compared([case.name, metric, unit, &names[1]], &of_side(0), &of_side(1)));
        // What reclaim did inside is not counted of a cgroup.
        if !runs[2].is_empty() && [FAULTS.0, FAULTS_PER_FILE.0].contains(metric) {
            rows.push(level([case.name, metric, unit, "the kernel, zram"], &of_side(2)));
        }
    }
    Ok(rows)
}

/// A load, ready to be run on either side.
struct Subject<'a> {
    load: Load,
    request: &'a Request,
    directory: tempfile::TempDir,
}

impl Subject<'_> {
    fn new(load: Load, request: &Request) -> Result<Subject<'_>, Failure> {
        let written = |error: std::io::Error| Failure::write(request.directory.display(), &error);
        let directory = tempfile::tempdir_in(&request.directory).map_err(written)?;
        if load == Load::Compile {
            write_sources(directory.path(), (request.seconds * 30.0) as usize + 1).map_err(written)?;
        }
        Ok(Subject { load, request, directory })
    }

    /// How a program with phases or memcached is run.
    fn setup<'b>(
        &self,
        work: Work,
        flags: &'b [std::ffi::OsString],
        memory: u64,
        pulse: Option<&'b live::Pulse>,
    ) -> Setup<'b> {
        Setup { work, mib: (self.request.memory >> 20) * 4, seconds: self.request.seconds, flags, memory, pulse }
    }

    fn ours(
        &self,
        flags: &[std::ffi::OsString],
        memory: u64,
        pulse: Option<&live::Pulse>,
    ) -> Result<live::Measured, Failure> {
        let Load::Live(work) = self.load else {
            let summary = self.directory.path().join("summary.json");
            let mut command = Command::new(crate::live::tool::refault()?);
            command.args(["run", "--quiet", "--memory", &memory.to_string(), "--summary"]).arg(&summary);
            command.args(flags).arg("--");
            let done = self.compile(command)?;
            let text = std::fs::read_to_string(&summary).unwrap_or_default();
            let said: Value = serde_json::from_str(&text).unwrap_or_default();
            let number = |name: &str| said[name].as_u64().unwrap_or(0);
            let major_faults = number("refaults").saturating_sub(number("prefetched"));
            return Ok(live::Measured { major_faults, peak_bytes: number("peak_bytes"), ..done });
        };
        live::run(&self.setup(work, flags, memory, pulse))
    }

    /// In a cgroup with zram; nothing if the kernel killed the program.
    fn theirs(&self, memory: u64, peak: u64) -> Result<Option<live::Measured>, Failure> {
        let kernel = Kernel::new(memory + ALLOWANCE, peak * 2)?;
        let run = match self.load {
            Load::Live(work) => live::run_beside(&kernel, &self.setup(work, &[], memory, None)),
            Load::Compile => self
                .compile(kernel.command())
                .map(|done| live::Measured { major_faults: kernel.major_faults() as u64, ..done }),
        };
        match run {
            Err(_) if kernel.kills() > 0 => Ok(None),
            run => run.map(Some),
        }
    }

    /// Compiles all files behind `command`.
    fn compile(&self, mut command: Command) -> Result<live::Measured, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::failed("compiling failed", "make", why);
        // In two steps: at once, what is there is found up to date and then removed.
        let build = "make -s -C \"$0\" clean && make -s -j2 -C \"$0\"";
        command.args(["sh", "-c", build]).arg(self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let start = Instant::now();
        let status = command.status().map_err(|error| failed(&error))?;
        if !status.success() {
            return Err(failed(&status));
        }
        let done = SOURCES as f64;
        Ok(live::Measured { operations: done / start.elapsed().as_secs_f64(), done, ..live::Measured::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_over_what_the_program_did() {
        let run = live::Measured {
            operations: 500.0,
            done: 2000.0,
            major_faults: 30,
            some_seconds: 4.0,
            ..live::Measured::default()
        };
        let values = [FAULTS, FAULTS_PER_FILE, SECONDS, WAITED].map(|(_, _, of)| of(&run));
        assert_eq!(values, [15.0, 0.015, 2.0, 2.0]);
    }

    #[test]
    fn policies_of_cases_are_policies() {
        use refault_core::policy::{FrontEnd, PolicySpec};
        let cases = ["shadow-lru", "mglru-v1", "lru-sort"].map(cases);
        assert!(cases.iter().all(|cases| !cases.is_empty()));
        for case in cases.into_iter().flatten() {
            let Change::Policy(before, after) = case.change else { continue };
            for policy in [before, after] {
                assert!(PolicySpec::parse_for(policy, FrontEnd::Pager).is_ok(), "{policy}");
            }
        }
    }
}
