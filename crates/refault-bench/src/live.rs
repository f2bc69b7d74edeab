//! What the live comparisons share: programs that run under `refault run`, their work, and what their statistics say.
//!
//! The work is a phase-changing program (this binary's hidden `program`), or memcached with a client in this
//! process that reads or fills it. Runs of all variants are interleaved, so that what else the machine does falls on all of them alike.

pub mod program;
pub mod tool;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::memcached::{self, Server};
use super::pager::kernel::Kernel;
use refault_console::Failure;

/// What can be run.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A hot part that moves every five seconds.
    Phases,
    /// memcached, 2000-byte values, Gaussian reads over a Unix socket.
    Memcached,
    /// Parts visited in turn, as tabs of a browser: all of one is touched once, half of it again and again.
    Tabs,
    /// memcached whose values are stored in the order of their keys, again and again.
    Fill,
}

impl Work {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Phases => "phases",
            Work::Memcached => "memcached",
            Work::Tabs => "tabs",
            Work::Fill => "memcached (sequential fill)",
        }
    }
}

/// One run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Operations per second of the work, after it was set up.
    pub operations: f64,
    /// Operations in all after it was set up.
    pub done: f64,
    /// Pages that came back from the stores.
    pub major_faults: u64,
    /// Seconds in which some thread waited for memory.
    pub some_seconds: f64,
    /// Share of one processor that the monitor took; 0 without one.
    pub monitor_cpu: f64,
    /// Most resident bytes.
    pub peak_bytes: u64,
}

/// Changes the budget through its file until it is told that the work is done.
pub type Pulse = dyn Fn(&Path, &dyn Fn() -> bool) + Sync;

/// How a run is set up.
pub struct Setup<'a> {
    /// What to run.
    pub work: Work,
    /// MiB that the work has in all.
    pub mib: u64,
    /// Seconds of work after it is set up.
    pub seconds: f64,
    /// Flags of `refault run`, without `--memory`.
    pub flags: &'a [OsString],
    /// Bytes of the first budget.
    pub memory: u64,
    /// Called when the work begins, with the file that sets the budget; ends when told.
    pub pulse: Option<&'a Pulse>,
}

/// Runs the work once.
///
/// # Errors
/// Something could not be started, or the work went wrong.
pub fn run(setup: &Setup<'_>) -> Result<Measured, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::write("a temporary directory", &error))?;
    let (stats, control) = (directory.path().join("stats"), directory.path().join("budget"));
    let mut command = Command::new(tool::refault()?);
    command
        .args(["run", "--quiet", "--stats-interval", "200", "--memory", &setup.memory.to_string(), "--stats"])
        .arg(&stats);
    command.arg("--memory-control").arg(&control).args(setup.flags).arg("--");
    let done = perform(command, &control, setup)?;
    summary(&stats, &done)
}

/// Runs the work once where the kernel limits it.
///
/// # Errors
/// Something could not be started, or the work went wrong, which it does too if the kernel kills it.
pub fn run_beside(kernel: &Kernel, setup: &Setup<'_>) -> Result<Measured, Failure> {
    let done = perform(kernel.command(), Path::new(""), setup)?;
    let major_faults = kernel.major_faults() as u64;
    Ok(Measured { major_faults, ..done.measured() })
}

/// What the work did after it was set up.
struct Done {
    operations: f64,
    seconds: f64,
}

impl Done {
    fn measured(&self) -> Measured {
        Measured { operations: self.operations / self.seconds, done: self.operations, ..Measured::default() }
    }
}

/// Does the work with programs behind `command`.
fn perform(mut command: Command, control: &Path, setup: &Setup<'_>) -> Result<Done, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::write("a temporary directory", &error))?;
    let binary = tool::me()?;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let begin = || {
            if let Some(pulse) = setup.pulse {
                let done = &done;
                scope.spawn(move || pulse(control, &|| done.load(std::sync::atomic::Ordering::Relaxed)));
            }
        };
        let result = match setup.work {
            Work::Phases | Work::Tabs => program::run(&mut command, &binary, setup, begin)
                .map(|rate| Done { operations: rate * setup.seconds, seconds: setup.seconds }),
            Work::Memcached | Work::Fill => memcached(command, &directory.path().join("socket"), setup, begin),
        };
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        result
    })
}

/// Bytes that memcached takes for a value, its slab class and key included.
const ITEM: u64 = 2300;

/// Fills memcached and reads from it, or fills it again until its time is over.
fn memcached(mut command: Command, socket: &Path, setup: &Setup<'_>, begin: impl FnOnce()) -> Result<Done, Failure> {
    let (values, clients) = ((setup.mib << 20) / ITEM, memcached::CLIENTS);
    let plan = memcached::Plan { values, deviation: 0.125, warm_up: 0.0, seconds: setup.seconds, clients, pace: None };
    command.arg("memcached").args(memcached::arguments(socket, setup.mib << 20));
    let server = Server::start(&mut command, socket)?;
    memcached::fill(socket, &plan)?;
    if setup.work == Work::Fill {
        begin();
        let start = Instant::now();
        let mut stored = 0;
        while start.elapsed().as_secs_f64() < setup.seconds {
            memcached::fill(socket, &plan)?;
            stored += values;
        }
        let seconds = start.elapsed().as_secs_f64();
        server.end();
        return Ok(Done { operations: stored as f64, seconds });
    }
    let seen = memcached::read(socket, &plan, &server, begin)?;
    server.end();
    Ok(Done { operations: seen.operations as f64, seconds: setup.seconds })
}

/// Takes the last line of the process that had most.
fn summary(stats: &Path, done: &Done) -> Result<Measured, Failure> {
    let text = std::fs::read_to_string(stats).unwrap_or_default();
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let Some(last) = lines.last() else {
        return Err(Failure::failed("no statistics", stats.display(), "the program ended too early"));
    };
    let number = |line: &Value, key: &str| line[key].as_u64().unwrap_or(0);
    let monitor = &last["monitor"];
    let cpu = monitor["cpu_ns"].as_f64().zip(monitor["elapsed_ns"].as_f64()).filter(|(_, elapsed)| *elapsed > 0.0);
    Ok(Measured {
        major_faults: number(last, "pgmajfault"),
        some_seconds: number(&last["pressure"]["some"], "total_us") as f64 / 1e6,
        monitor_cpu: cpu.map_or(0.0, |(cpu, elapsed)| cpu / elapsed),
        peak_bytes: lines.iter().map(|line| number(line, "resident_bytes")).max().unwrap_or(0),
        ..done.measured()
    })
}

/// The middle of some values, and their least and largest.
pub fn middle(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let values: Vec<f64> = values.collect();
    if values.is_empty() {
        return [0.0; 3];
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    [super::median(values), least, most]
}
