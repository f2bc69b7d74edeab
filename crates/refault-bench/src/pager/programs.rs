//! Rows that run a real program to its end: what is run, and on which input. An operation is a run.
//!
//! Every run must print what the program printed alone. Inputs are made anew by fixed numbers, so that each machine
//! does the same work.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use refault_console::Failure;
use serde_json::Value;

use super::backend::{Backend, refault};
use super::deadline::Deadline;
use super::kernel::Kernel;
use super::rows::Row;
use super::sources::write_sources;
use super::{ALLOWANCE, Measured, Other, Plan};
use crate::random::Random;

const SQL: &str = include_str!("../../programs/sqlite.sql");
const SORT: &str = include_str!("../../programs/sort.py");
const DUCKDB: &str = include_str!("../../programs/duckdb.py");
/// Runs of a program that the kernel may kill before the row is given up: each may take minutes.
const MAX_KILLS: u32 = 3;
/// A run under the kernel backend is ended after this many times the time alone, and [`MIN_SECONDS`].
const MAX_SLOWER: f64 = 100.0;
const MIN_SECONDS: f64 = 60.0;
/// More than any machine has: a cgroup that only counts.
const UNLIMITED: u64 = 1 << 50;

/// A program with its input, as it runs alone.
pub struct Prepared {
    command: Vec<String>,
    input: Option<PathBuf>,
    output: Vec<u8>,
    /// The most memory that it took alone.
    peak: u64,
    /// The time it took.
    seconds: f64,
}

/// Makes the input of a row, and runs it alone to know its output and its memory. `Err(Ok(reason))`: what the row needs
/// is not installed.
pub fn prepare(row: Row, plan: &Plan, place: &Path) -> Result<Prepared, Result<String, Failure>> {
    if let Some(missing) = missing(row, plan) {
        return Err(Ok(missing));
    }
    let (command, input) = command(row, plan, place).map_err(Err)?;
    let mut prepared = Prepared { command, input, output: Vec::new(), peak: 0, seconds: 0.0 };
    let kernel = Kernel::new(UNLIMITED, 0).map_err(Err)?;
    let ran = prepared.execute(kernel.command(), None).map_err(Err)?;
    if !ran.is_success {
        return Err(Err(Failure::failed("the program fails alone", row, ran.status)));
    }
    (prepared.peak, prepared.output, prepared.seconds) = (kernel.peak_bytes(), ran.output, ran.seconds);
    Ok(prepared)
}

/// What a row's program needs and is not there.
fn missing(row: Row, plan: &Plan) -> Option<String> {
    let runs = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let module = |name: &str| {
        let found = runs(Command::new(&plan.python).args(["-c", &format!("import {name}")]));
        (!found).then(|| format!("{} cannot import {name}; --python names another", plan.python.display()))
    };
    let program = |name: &str| (!runs(Command::new(name).arg("--version"))).then(|| format!("{name} is not installed"));
    match row {
        Row::Sqlite => program("sqlite3"),
        Row::Sort => module("numpy"),
        Row::Xz => program("xz"),
        Row::Duckdb => module("duckdb"),
        Row::Compile => program("make").or_else(|| program("cc")),
        _ => None,
    }
}

/// The command of a row, and the file that it reads as standard input.
fn command(row: Row, plan: &Plan, place: &Path) -> Result<(Vec<String>, Option<PathBuf>), Failure> {
    let smaller = if plan.quick { 8 } else { 1 };
    let write = |name: &str, text: &[u8]| {
        let path = place.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::write(path.display(), &error))?;
        Ok::<_, Failure>(path)
    };
    let words = |text: &[&str]| text.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let python = plan.python.display().to_string();
    Ok(match row {
        Row::Sqlite => {
            let script = SQL.replace(":rows", &(300_000 / smaller).to_string());
            (words(&["sqlite3", ":memory:"]), Some(write("load.sql", script.as_bytes())?))
        }
        Row::Sort => {
            let script = write("sort.py", SORT.as_bytes())?.display().to_string();
            (words(&[&python, &script, &(20_000_000 / smaller).to_string()]), None)
        }
        Row::Xz => (words(&["xz", "-9", "-T1", "-c"]), Some(write("text", &text(40_000_000 / (smaller * smaller)))?)),
        Row::Duckdb => {
            // Not by the name of the module that it imports.
            let script = write("query.py", DUCKDB.as_bytes())?.display().to_string();
            (words(&[&python, &script, &(4_000_000 / smaller).to_string()]), None)
        }
        _ => {
            let directory = place.join("source");
            std::fs::create_dir_all(&directory).map_err(|error| Failure::write(directory.display(), &error))?;
            write_sources(&directory, 600 / smaller).map_err(|error| Failure::write(directory.display(), &error))?;
            // In two steps: at once, what is there is found up to date and then removed.
            let build = "make -s -C \"$0\" clean && make -s -j2 -C \"$0\" && \"$0/program\"";
            (words(&["sh", "-c", build, &directory.display().to_string()]), None)
        }
    })
}

/// Text of words from a small vocabulary, each line numbered.
fn text(bytes: usize) -> Vec<u8> {
    let mut random = Random::new(11);
    let vocabulary: Vec<String> =
        (0..20_000).map(|_| format!("{:x}", random.next() >> (36 + random.below(20)))).collect();
    let mut text = Vec::with_capacity(bytes + 128);
    let mut line = 0;
    while text.len() < bytes {
        line += 1;
        text.extend_from_slice(format!("{line}").as_bytes());
        for _ in 0..10 {
            text.push(b' ');
            text.extend_from_slice(vocabulary[random.zipf(vocabulary.len())].as_bytes());
        }
        text.push(b'\n');
    }
    text
}

/// How a run ended.
struct Ran {
    is_success: bool,
    status: std::process::ExitStatus,
    output: Vec<u8>,
    seconds: f64,
}

impl Prepared {
    /// Runs the program behind `command`, at most for this time.
    fn execute(&self, mut command: Command, time: Option<Duration>) -> Result<Ran, Failure> {
        let failed = |error: &std::io::Error| Failure::failed("cannot run", &self.command[0], error);
        command.args(&self.command).stderr(Stdio::null());
        match &self.input {
            Some(path) => command.stdin(std::fs::File::open(path).map_err(|error| failed(&error))?),
            None => command.stdin(Stdio::null()),
        };
        let begin = Instant::now();
        let child = command.stdout(Stdio::piped()).spawn().map_err(|error| failed(&error))?;
        let deadline = time.map(|time| Deadline::of(&child, time)).transpose().map_err(|error| failed(&error))?;
        let output = child.wait_with_output().map_err(|error| failed(&error))?;
        if deadline.is_some_and(|deadline| deadline.has_passed()) {
            let words = format!("it had not ended after {:.0} s", time.unwrap_or_default().as_secs_f64());
            return Err(Failure::failed("a run was ended", &self.command[0], words));
        }
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Ran { is_success: output.status.success(), status: output.status, output: output.stdout, seconds })
    }

    fn measured(&self, row: Row, ran: &Ran) -> Result<Measured, Failure> {
        if !ran.is_success || ran.output != self.output {
            let is_right = ran.output == self.output;
            let output = if is_right { "is what it prints alone" } else { "is not what it prints alone" };
            let remedy = format!("it ended with {}, and its output {output}", ran.status);
            return Err(Failure::failed("a run went wrong", row, remedy));
        }
        Ok(Measured { operations_per_second: 1.0 / ran.seconds, ..Measured::unknown() })
    }

    /// A run under `refault run` with `total` bytes of memory in all.
    pub fn ours(&self, row: Row, backend: Backend, total: u64, plan: &Plan, place: &Path) -> Result<Measured, Failure> {
        let summary = place.join("summary.json");
        let mut command = refault(&plan.with, backend, total)?;
        command.arg("--summary").arg(&summary).arg("--");
        let time =
            (backend == Backend::Kernel).then(|| Duration::from_secs_f64(self.seconds * MAX_SLOWER + MIN_SECONDS));
        let mut measured = self.measured(row, &self.execute(command, time)?)?;
        let text = std::fs::read_to_string(&summary).unwrap_or_default();
        let said: Value = serde_json::from_str(&text).unwrap_or_default();
        let field = |name: &str| said[name].as_f64().unwrap_or(f64::NAN);
        measured.total_bytes = field("peak_bytes");
        measured.cpu_seconds = field("user_seconds") + field("system_seconds");
        Ok(measured)
    }

    /// A run in a cgroup with zram.
    pub fn theirs(&self, row: Row) -> Result<Other, Failure> {
        let mut kills = 0;
        loop {
            let kernel = Kernel::new(self.resident(row) + ALLOWANCE, self.peak * 2)?;
            let ran = self.execute(kernel.command(), None)?;
            let (total, compressed) = (kernel.peak_bytes() + kernel.peak_compressed(), kernel.peak_compressed());
            if kernel.kills() > 0 {
                kills += 1;
                if kills == MAX_KILLS {
                    return Ok(Other::Killed { kills, compressed });
                }
                continue;
            }
            let mut measured = self.measured(row, &ran)?;
            (measured.total_bytes, measured.compressed_bytes) = (total as f64, compressed as f64);
            (measured.cpu_seconds, measured.kills) = (kernel.cpu_seconds(), f64::from(kills));
            return Ok(Other::Ran(measured));
        }
    }

    /// Bytes that the kernel's side may have resident.
    pub fn resident(&self, row: Row) -> u64 {
        self.peak * row.percent() / 100
    }
}
