//! Real programs, unmodified, alone and under `refault run --memory N`, with N about a third of what each uses.
//!
//! A program is right if it prints the same and ends the same. Beside that the table says how much longer it took and
//! the most memory it had at once, as [`crate::memory`] counts it. The programs are in `programs/gauntlet.toml`, their
//! sources beside it. Those that are not installed are named and left out.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;

use crate::ProofError;
use crate::trial::{self, End, Trial};

/// The most that a program may have, as a multiple of its budget, unless the table says more and why.
const WITHIN: f64 = 1.02;
/// How many times longer than alone a run may take, and how many seconds more, before it counts as hanging.
const PATIENCE: (f64, f64) = (60.0, 20.0);
/// The same for programs that the table calls long.
const PATIENCE_WITH_LONG: (f64, f64) = (400.0, 60.0);
/// The smallest budget that [`Gauntlet::attempt`] gives, in MiB: a few processes' own memory and a little more.
pub const MIN_ATTEMPT: u64 = 8;
const MIB: u64 = 1 << 20;

/// One program of the table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What it is called in the results.
    pub name: String,
    /// Programs that must be installed.
    #[serde(default)]
    pub needs: Vec<String>,
    /// A shell command that must succeed, for what has no program of its own.
    pub check: Option<String>,
    /// A shell command that is run once before, alone.
    pub prepare: Option<String>,
    /// The budget in MiB.
    pub memory: u64,
    /// The shell command to run.
    pub command: String,
    /// Takes too long for every day.
    #[serde(default)]
    pub long: bool,
    /// The highest sum of what counts, as a multiple of the budget. More than the usual bound has its reason beside it.
    #[serde(default = "usual_bound")]
    pub within: f64,
    /// It cannot be managed, so nothing of it is: the test fails when that changes.
    #[serde(default)]
    pub unmanaged: bool,
}

const fn usual_bound() -> f64 {
    WITHIN
}

#[derive(Deserialize)]
struct Table {
    program: Vec<Program>,
}

/// How a program did.
#[derive(Debug)]
pub struct Row {
    /// Which.
    pub program: Program,
    /// The run without the tool.
    pub alone: Trial,
    /// The run with it.
    pub managed: Trial,
}

impl Row {
    /// The same output and the same end as alone.
    pub fn is_right(&self) -> bool {
        self.managed.agrees(&self.alone)
    }

    /// What counts against the budget stayed within the program's bound, and some of it was managed; of a program that cannot
    /// be managed, nothing was.
    pub fn keeps_its_bound(&self) -> bool {
        let most = &self.managed.peak.most;
        if self.program.unmanaged {
            return most.registered == 0;
        }
        let is_seen = self.managed.peak.samples > 0 && most.counted > 0;
        let is_managed = !is_seen || most.registered > 0;
        is_managed && most.counted as f64 <= (self.program.memory * MIB) as f64 * self.program.within
    }
}

impl fmt::Display for Row {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        let (alone, managed) = (&self.alone, &self.managed);
        write!(
            to,
            "{:>4} MiB  {}  time {:6.2} x ({:5.1} s alone)  memory {:6.1} MiB of {:6.1} alone, {:4.0} % of the budget",
            self.program.memory,
            if self.is_right() { "same   " } else { "DIFFERS" },
            managed.seconds / alone.seconds.max(0.001),
            alone.seconds,
            mib(managed.peak.most.counted),
            mib(alone.peak.most.counted),
            100.0 * mib(managed.peak.most.counted) / self.program.memory as f64,
        )?;
        let beside = [("stacks", managed.peak.most.stacks), ("huge pages", managed.peak.most.huge)];
        for (name, bytes) in beside.into_iter().filter(|&(_, bytes)| bytes > MIB) {
            write!(to, ", {name} {:.1}", mib(bytes))?;
        }
        if !self.is_right() {
            write!(to, "; alone {}, managed {}: {}", alone.end, managed.end, managed.last_message())?;
        }
        Ok(())
    }
}

/// Why there is no row for a program.
#[derive(Debug)]
pub enum Attempt {
    /// It was run twice.
    Ran(Box<Row>),
    /// Something is not installed.
    Missing(String),
    /// It does not even run alone, or not twice the same.
    Unusable(String),
}

/// The programs and a directory in which they run.
pub struct Gauntlet {
    programs: Vec<Program>,
    directory: TempDir,
}

impl Gauntlet {
    /// Reads the table and copies the sources into a directory of their own.
    ///
    /// # Errors
    /// The table is not well-formed, or the directory cannot be filled.
    pub fn new() -> Result<Gauntlet, ProofError> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let list = sources.join("gauntlet.toml");
        let text = std::fs::read_to_string(&list).map_err(ProofError::io(list.display().to_string()))?;
        let table: Table = toml::from_str(&text)
            .map_err(|error| ProofError::Table { table: list.display().to_string(), error: error.to_string() })?;
        let directory = tempfile::tempdir().map_err(ProofError::io("cannot make a temporary directory"))?;
        for entry in std::fs::read_dir(&sources).map_err(ProofError::io(sources.display().to_string()))?.flatten() {
            let to = directory.path().join(entry.file_name());
            std::fs::copy(entry.path(), &to).map_err(ProofError::io(to.display().to_string()))?;
        }
        Ok(Gauntlet { programs: table.program, directory })
    }

    /// The programs of the table, in its order.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// Runs one program alone and under the tool at `refault`, with these options after `run`.
    ///
    /// # Errors
    /// Nothing could be started.
    pub fn run(&self, program: &Program, refault: &Path, options: &[String]) -> Result<Attempt, ProofError> {
        if let Some(name) = program.needs.iter().find(|name| find(name).is_none()) {
            return Ok(Attempt::Missing(name.clone()));
        }
        for (command, missing) in [(&program.check, true), (&program.prepare, false)] {
            let Some(command) = command else { continue };
            let trial = trial::run(&mut self.shell(command, None), Duration::from_secs(120), false)?;
            if trial.end != End::Exit(0) {
                let why = format!("`{command}`: {} {}", trial.end, trial.last_message());
                return Ok(if missing { Attempt::Missing(why) } else { Attempt::Unusable(why) });
            }
        }
        let alone = trial::run(&mut self.shell(&program.command, None), Duration::from_secs(300), true)?;
        if alone.end != End::Exit(0) || alone.output.is_empty() {
            let why = format!("alone: {}, {} bytes of output: {}", alone.end, alone.output.len(), alone.last_message());
            return Ok(Attempt::Unusable(why));
        }
        let (times, more) = if program.long { PATIENCE_WITH_LONG } else { PATIENCE };
        let limit = Duration::from_secs_f64(alone.seconds * times + more);
        let mut managed = self.shell(&program.command, Some((refault, program.memory, options)));
        let managed = trial::run(&mut managed, limit, true)?;
        Ok(Attempt::Ran(Box::new(Row { program: program.clone(), alone, managed })))
    }

    /// Runs a shell command of the caller's alone and then under the tool with each of these budgets. They are in
    /// percent of the memory that it had alone, but [`MIN_ATTEMPT`] at least. `row` is told each result as it comes.
    ///
    /// # Errors
    /// Nothing could be started.
    pub fn attempt(
        &self,
        command: &str,
        (refault, options): (&Path, &[String]),
        percent: &[u64],
        mut row: impl FnMut(&Row),
    ) -> Result<(), ProofError> {
        let alone = trial::run(&mut self.shell(command, None), Duration::from_secs(300), true)?;
        let limit = Duration::from_secs_f64(alone.seconds * PATIENCE.0 + PATIENCE.1);
        for percent in percent {
            let memory = (alone.peak.most.counted * percent / 100).div_ceil(MIB).max(MIN_ATTEMPT);
            let managed = trial::run(&mut self.shell(command, Some((refault, memory, options))), limit, true)?;
            let program = Program {
                name: command.to_owned(),
                needs: Vec::new(),
                check: None,
                prepare: None,
                memory,
                command: command.to_owned(),
                long: false,
                within: WITHIN,
                unmanaged: false,
            };
            row(&Row { program, alone: alone.clone(), managed });
        }
        Ok(())
    }

    fn shell(&self, text: &str, under: Option<(&Path, u64, &[String])>) -> Command {
        let mut command = match under {
            None => Command::new("bash"),
            Some((refault, memory, options)) => {
                let mut command = Command::new(refault);
                command.args(["run", "--memory", &format!("{memory}M")]).args(options).args(["--", "bash"]);
                command
            }
        };
        command.args(["-c", text]).current_dir(self.directory.path()).env("LC_ALL", "C.UTF-8");
        command.stdin(std::process::Stdio::null());
        command
    }
}

/// Where a program is, by `PATH` and the directories that only administrators have in theirs.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/games"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|directory| directory.join(name)).find(|file| file.is_file())
}
