//! What the live comparisons share: programs that run under `refault run`, their work, and what their statistics say.
//!
//! The work is a phase-changing program (this binary's hidden `bench program`) or memcached with a client in this process.
//! Runs of all variants are interleaved, so that what else the machine does falls on all of them alike.

pub mod memcached;
pub mod program;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::Failure;

/// What can be run.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A hot part that moves every five seconds.
    Phases,
    /// memcached, 2000-byte values, Gaussian reads over a Unix socket.
    Memcached,
}

impl Work {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Phases => "phases",
            Work::Memcached => "memcached",
        }
    }
}

/// One run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Operations a second of the work, after it was set up.
    pub operations: f64,
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
    let binary = std::env::current_exe().map_err(|error| Failure::failed("cannot find", "this binary", error))?;
    let mut command = Command::new(&binary);
    command.args(["run", "--stats-interval", "200", "--memory", &setup.memory.to_string(), "--stats"]).arg(&stats);
    command.arg("--memory-control").arg(&control).args(setup.flags).arg("--");
    let done = std::sync::atomic::AtomicBool::new(false);
    let operations = std::thread::scope(|scope| {
        let begin = || {
            if let Some(pulse) = setup.pulse {
                let (control, done) = (&control, &done);
                scope.spawn(move || pulse(control, &|| done.load(std::sync::atomic::Ordering::Relaxed)));
            }
        };
        let result = match setup.work {
            Work::Phases => program::run(&mut command, &binary, setup, begin),
            Work::Memcached => memcached::run(&mut command, directory.path(), setup, begin),
        };
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        result
    })?;
    summary(&stats, operations)
}

/// Takes the last line of the process that had most.
fn summary(stats: &Path, operations: f64) -> Result<Measured, Failure> {
    let text = std::fs::read_to_string(stats).unwrap_or_default();
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let Some(last) = lines.last() else {
        return Err(Failure::failed("no statistics", stats.display(), "the program ended too early"));
    };
    let number = |line: &Value, key: &str| line[key].as_u64().unwrap_or(0);
    let monitor = &last["monitor"];
    let cpu = monitor["cpu_ns"].as_f64().zip(monitor["elapsed_ns"].as_f64()).filter(|(_, elapsed)| *elapsed > 0.0);
    Ok(Measured {
        operations,
        major_faults: number(last, "pgmajfault"),
        some_seconds: number(&last["pressure"]["some"], "total_us") as f64 / 1e6,
        monitor_cpu: cpu.map_or(0.0, |(cpu, elapsed)| cpu / elapsed),
        peak_bytes: lines.iter().map(|line| number(line, "resident_bytes")).max().unwrap_or(0),
    })
}

/// A child that is ended when it is dropped.
pub struct Server(Child);

impl Server {
    /// Starts it, its output thrown away.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> Result<Server, Failure> {
        let started = command.stdout(Stdio::null()).spawn();
        started.map(Server).map_err(|error| Failure::failed("cannot start", "the server", error))
    }

    /// Asks it to end and waits, so that it writes its last statistics.
    pub fn end(mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Seeded random numbers (SplitMix64), so that all variants do the same work.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, near its middle: the sum of twelve, with a standard deviation of an eighth.
    pub fn gaussian(&mut self, bound: u64) -> u64 {
        let sum: f64 = (0..12).map(|_| self.next() as f64 / u64::MAX as f64).sum::<f64>() - 6.0;
        ((0.5 + sum / 8.0).clamp(0.0, 0.999_999) * bound as f64) as u64
    }
}

/// The middle of some values, and their least and largest.
pub fn middle(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => [0.0; 3],
        count => [values[count / 2], values[0], values[count - 1]],
    }
}

/// The program of a name in `PATH`.
///
/// # Errors
/// There is none.
pub fn installed(name: &str) -> Result<PathBuf, Failure> {
    crate::program::find(Path::new(name))
        .ok_or_else(|| Failure::failed("not installed", name, format!("install {name}, or choose other work")))
}
