//! `--backend kernel`: a program and its children in a memory cgroup of their own, which swaps to zram.
//!
//! A keeper, a process of its own, makes group and device and holds both within the budget. It removes them, also when
//! this command is killed ([`refault_kernel`]). Here the program is started in the group and attended to, and what the
//! keeper reports is written as the pager's figures are.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use refault_console::{Failure, say};
use refault_core::statistics as names;
use refault_kernel::{Ended, Places, Plan, Sample, Served};
use refault_lab::size::bytes_text;
use refault_paging::figures::Sizes;
use serde_json::{Map, Value, json};

use super::advice::thrash::{Seen, Thrash};
use super::advice::{Advice, MIN_REFAULTS, Window};
use super::backend::{Backend, Missing};
use super::child::{self, Child, News};
use super::control::{self, Control};
use super::summary::Summary;
use super::telling::Telling;
use super::totals::Totals;

/// Looks at what the keeper says.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Keeps a memory cgroup to a budget; `refault run` starts it
#[derive(Args, Debug)]
pub struct KeeperArgs {
    /// Bytes
    budget: u64,
    /// The process that starts it
    tool: i32,
}

/// Runs the keeper until the tool and the group's last process have ended.
pub fn keep(args: &KeeperArgs) -> Result<(), Failure> {
    let failed = |error| Failure::failed("a memory cgroup cannot be kept", "refault kernel-keeper", error);
    let plan = Plan { budget: args.budget, tool: args.tool };
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let output = std::io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    refault_kernel::serve(Places::default(), plan, input.into(), output.into()).map_err(failed)
}

/// A program that is about to run under a budget by the kernel.
pub(super) struct InGroup<'a> {
    /// The program and its arguments.
    pub(super) program: &'a [OsString],
    /// Bytes that it and its children may use.
    pub(super) memory: u64,
    /// `--stats`, and how often.
    pub(super) stats: Option<&'a Path>,
    pub(super) stats_interval: Duration,
    /// `--memory-control`.
    pub(super) control: Option<&'a Path>,
    /// `--grow`, in bytes.
    pub(super) grow: Option<u64>,
    /// `--summary`.
    pub(super) summary: Option<&'a Path>,
    /// `--quiet`.
    pub(super) quiet: bool,
    /// Why the kernel keeps the budget.
    pub(super) reason: String,
}

impl InGroup<'_> {
    /// Runs the program; ends as it ended.
    ///
    /// # Errors
    /// Group or device cannot be had, the program could not be started, or its exit code.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let telling = Telling::begin(self.program, self.summary, self.stats, self.control, self.quiet)?;
        let path = crate::launch::find_program(&self.program[0])?;
        let failed = |error| Failure::failed("cannot execute", path.display(), error);
        let mut served = self.serve()?;
        let mut lines = self.stats.map(|stats| Lines::new(stats, self)).transpose()?;
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]);
        if served.group().fails_in_the_kernel() {
            command.env(TUNABLES, without_rseq(std::env::var_os(TUNABLES)));
        }
        child::enter(&mut command, served.group().entrances().map_err(failed)?);
        let begun = Instant::now();
        let child = Child::spawn(command).map_err(failed)?;
        let mut control = self.control.map(Control::new);
        let (mut thrash, mut is_full) = (Thrash::new(self.grow), false);
        let (mut heard, mut is_kept) = (Heard::default(), true);
        let mut largest_budget = self.memory;
        let tick =
            [Some(LOOK_EVERY), control.as_ref().map(|_| control::EVERY), lines.as_ref().map(|lines| lines.interval)];
        let tick = tick.into_iter().flatten().min();
        let end = loop {
            match child.attend(tick).map_err(failed)? {
                News::Ended(end) => break end,
                News::Stopped => child.stop_along(),
                News::Runs => {}
            }
            if let Some(bytes) =
                control.as_mut().and_then(|control| if control.is_due() { control.wanted() } else { None })
            {
                served.set_budget(bytes);
            }
            let sample = served.look().clone();
            if is_kept && served.is_gone() {
                is_kept = false;
                // What waits for memory waits for the keeper: without the group it goes on.
                let _ = refault_kernel::clean(&Places::default());
                say(format_args!(
                    "the keeper of the cgroup, process {}, was killed: the program goes on without a budget",
                    served.keeper()
                ));
            }
            let budget = sample.budget_bytes;
            largest_budget = largest_budget.max(budget);
            let said =
                thrash.is_due().then(|| thrash.look(seen(&sample, begun), budget, sample.peak_with_stored_bytes));
            if let Some(thrashing) = said.flatten() {
                if let Some(bytes) = thrashing.budget {
                    served.set_budget(bytes);
                }
                if !self.quiet {
                    say(&thrashing.line);
                }
                if let Some(lines) = &mut lines {
                    lines.thrashing = Some(thrashing.line);
                }
            }
            if sample.is_full && !is_full {
                let raised = self.grow.map(|grow| grow.min(budget / 4 * 5)).filter(|raised| *raised > budget);
                raised.into_iter().for_each(|raised| served.set_budget(raised));
                if !self.quiet {
                    say(full_line(&sample, raised));
                }
            }
            is_full = sample.is_full && is_kept;
            match heard.look(child.end_requests(), is_full) {
                Answer::Nothing => {}
                Answer::Tell if self.quiet => {}
                Answer::Tell => say(
                    "the program is paused and handles no signal until it has memory: the same once more ends it at once",
                ),
                Answer::Kill => served.group().processes().iter().for_each(|process| kill(*process)),
            }
            if let Some(lines) = lines.as_mut().filter(|lines| lines.written.elapsed() >= lines.interval) {
                lines.write(child.id(), &sample, false);
            }
        };
        let ran = begun.elapsed();
        let Ended { last: sample, processes, in_use } = served.end();
        if let Some(left) = in_use {
            say(format_args!("{left} is in use by other programs; it is removed when it no longer is"));
        }
        if let Some(lines) = &mut lines {
            lines.write(child.id(), &sample, true);
        }
        let mut summary = Summary::ended(self.program, &end, ran, totals(&sample));
        (summary.backend_reason, summary.left_running) = (self.reason.clone(), processes as u64);
        summary.largest_budget_bytes = largest_budget.max(summary.totals.budget_bytes);
        telling.end(&summary)?;
        child.end_as(end.status)
    }

    fn serve(&self) -> Result<Served, Failure> {
        let no_keeper = |error| Failure::failed("cannot start", "the keeper of the cgroup", error);
        let mut command = Command::new(std::env::current_exe().map_err(no_keeper)?);
        command.args(["kernel-keeper", &self.memory.to_string(), &std::process::id().to_string()]);
        Served::start(command)
            .map_err(no_keeper)?
            .map_err(|[what, place, remedy]| Failure::failed(format_args!("kernel backend: {what}"), place, remedy))
    }
}

/// Requests to end a program that is paused: one that handles them cannot do so without memory.
#[derive(Default)]
struct Heard {
    /// All so far.
    requests: usize,
    /// Those of this pause.
    paused: usize,
}

/// What is done about one.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    Tell,
    Kill,
}

impl Heard {
    fn look(&mut self, requests: usize, is_paused: bool) -> Answer {
        let new = requests - std::mem::replace(&mut self.requests, requests);
        let before = self.paused;
        self.paused = if is_paused { before + new } else { 0 };
        match (new, before) {
            _ if !is_paused => Answer::Nothing,
            (0, _) => Answer::Nothing,
            (1, 0) => Answer::Tell,
            _ => Answer::Kill,
        }
    }
}

fn kill(process: i32) {
    if let Some(process) = rustix::process::Pid::from_raw(process) {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// What glibc reads its settings from.
const TUNABLES: &str = "GLIBC_TUNABLES";

/// The settings with which glibc registers no restartable sequences, which the kernel writes to whenever a thread goes on.
fn without_rseq(own: Option<OsString>) -> OsString {
    let mut settings = own.filter(|own| !own.is_empty()).map_or_else(OsString::new, |mut own| {
        own.push(":");
        own
    });
    settings.push("glibc.pthread.rseq=0");
    settings
}

/// What the kernel counts of waiting. Version 1 counts none. There it is the time in which no process of the group
/// computed and not all slept. That is waiting for pages if refaults are as frequent as they must be to count.
fn seen(sample: &Sample, begun: Instant) -> Seen {
    let passed = begun.elapsed().as_nanos() as u64;
    let waited_ns = sample.waited_ns.unwrap_or_else(|| passed.saturating_sub(sample.user_ns + sample.asleep_ns));
    let needed = Sizes::default().counts();
    Seen { at: Instant::now(), waited_ns, refaults: sample.refaults.unwrap_or(0), needed }
}

/// Said when nothing can be done but wait, or raise the budget.
fn full_line(sample: &Sample, raised: Option<u64>) -> String {
    let state = format!(
        "paused: what it needs does not compress into {}, and the kernel would write it to a disk unencrypted",
        bytes_text(sample.budget_bytes)
    );
    match raised {
        Some(raised) => format!("{state}; raised to {}", bytes_text(raised)),
        None => format!("{state}; --grow MAX, or a larger number in the file of --memory-control, lets it go on"),
    }
}

/// The figures of a run, as far as the kernel counts them.
fn totals(sample: &Sample) -> Totals {
    let mut missing = [
        names::FIRST_TOUCHES,
        names::RESCUED,
        names::PREFETCHED,
        names::UNMOVABLE,
        names::LOST,
        names::FAULT_P50,
        names::FAULT_P99,
        names::FAULT_MAX,
        names::FOLLOWED_REFAULTS,
    ]
    .into_iter()
    .fold(Missing::default(), Missing::and);
    let optional =
        [(names::STORED, sample.stored), (names::REFAULTS, sample.refaults), (names::WAITED, sample.waited_ns)];
    for (statistic, value) in optional {
        if value.is_none() {
            missing = missing.and(statistic);
        }
    }
    let refaults = sample.refaults.unwrap_or(0);
    // The most that the program has had at once: nothing would come back then.
    let (advice, bytes) = match refaults < MIN_REFAULTS {
        true => (Advice::Enough, None),
        false => (Advice::More, Some(sample.peak_with_stored_bytes)),
    };
    Totals {
        backend: Backend::Kernel,
        missing,
        budget_bytes: sample.budget_bytes,
        peak_bytes: sample.peak_bytes,
        peak_with_stored_bytes: sample.peak_with_stored_bytes,
        faults: sample.faults,
        stored: sample.stored.unwrap_or(0),
        refaults,
        waited_seconds: sample.waited_ns.unwrap_or(0) as f64 / 1e9,
        advice,
        would_stop_refaulting_at_bytes: bytes,
        ..Totals::default()
    }
}

/// `--stats`: a line for all processes together.
struct Lines {
    file: File,
    interval: Duration,
    begun: Instant,
    written: Instant,
    reason: String,
    refaults: Window<u64>,
    /// That the budget is far too small, in words.
    thrashing: Option<String>,
    is_incomplete: bool,
}

impl Lines {
    fn new(path: &Path, run: &InGroup<'_>) -> Result<Lines, Failure> {
        let file = File::create(path).map_err(|error| Failure::write(path.display(), &error))?;
        let now = Instant::now();
        Ok(Lines {
            file,
            interval: run.stats_interval,
            begun: now,
            written: now,
            reason: run.reason.clone(),
            refaults: Window::default(),
            thrashing: None,
            is_incomplete: false,
        })
    }

    fn write(&mut self, process: i32, sample: &Sample, last: bool) {
        self.written = Instant::now();
        let totals = totals(sample);
        let rate = self
            .refaults
            .look(totals.refaults)
            .map_or(0.0, |(seconds, before)| totals.refaults.saturating_sub(before) as f64 / seconds);
        let mut line = Map::new();
        let mut put = |name: &str, value: Value| _ = line.insert(name.to_owned(), value);
        put("pid", process.into());
        put(names::SECONDS.name, ((self.begun.elapsed().as_secs_f64() * 1000.0).round() / 1000.0).into());
        put("last", last.into());
        put("interval_ms", (self.interval.as_millis() as u64).into());
        put("page_bytes", refault_kernel::PAGE.into());
        put(names::RESIDENT.name, sample.resident_bytes.into());
        put(names::COMPRESSED.name, sample.compressed_bytes.into());
        put(names::STORED_BYTES.name, sample.swapped_bytes.into());
        put(names::METADATA.name, sample.own_bytes.into());
        put(names::REFAULTS_PER_SECOND.name, ((rate * 10.0).round() / 10.0).into());
        put(names::BACKEND_REASON.name, self.reason.clone().into());
        put("processes", sample.processes.into());
        put("pgmajfault", totals.refaults.into());
        put("pswpin", totals.refaults.into());
        put("pswpout", totals.stored.into());
        let run = totals.to_json();
        for name in [names::BUDGET, names::FAULTS, names::STORED, names::REFAULTS, names::WAITED, names::ADVICE] {
            if let Some(value) = run.get(name.name) {
                put(name.name, value.clone());
            }
        }
        put(names::ADVICE_BYTES.name, json!(totals.would_stop_refaulting_at_bytes));
        if let Some(thrashing) = &self.thrashing {
            put(names::THRASHING.name, thrashing.clone().into());
        }
        put("run", run);
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        if let Err(error) = self.file.write_all(text.as_bytes())
            && !std::mem::replace(&mut self.is_incomplete, true)
        {
            say(format_args!("the statistics are incomplete: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_request_during_a_pause_ends_what_cannot_hear_the_first() {
        let mut heard = Heard::default();
        assert_eq!(heard.look(2, false), Answer::Nothing);
        assert_eq!(heard.look(2, true), Answer::Nothing);
        assert_eq!(heard.look(3, true), Answer::Tell);
        assert_eq!(heard.look(3, true), Answer::Nothing);
        assert_eq!(heard.look(3, false), Answer::Nothing);
        assert_eq!(heard.look(4, true), Answer::Tell);
        assert_eq!(heard.look(5, true), Answer::Kill);
    }

    #[test]
    fn settings_of_ones_own_stay_and_sequences_go() {
        let settings = |own: Option<&str>| without_rseq(own.map(OsString::from)).into_string().expect("text");
        assert_eq!(settings(None), "glibc.pthread.rseq=0");
        assert_eq!(settings(Some("")), "glibc.pthread.rseq=0");
        // The last of two counts.
        let own = "glibc.malloc.arena_max=1:glibc.pthread.rseq=1";
        assert_eq!(settings(Some(own)), format!("{own}:glibc.pthread.rseq=0"));
    }
}
