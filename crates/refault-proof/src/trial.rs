//! One run of a command: how it ended, what it printed, how long it took and what memory its processes used.
//!
//! Output goes to unlinked files, so a program that outlives its parent never blocks the harness. A command that takes
//! too long is looked at ([`Look`]) and killed with its whole process group and every descendant that was seen.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::ProofError;
use crate::look::{self, Look};
use crate::memory::{Peak, Tree};

/// How often memory is looked at.
pub const SAMPLING_INTERVAL: Duration = Duration::from_millis(100);
/// How often the harness looks whether the command has ended.
const POLLING_INTERVAL: Duration = Duration::from_millis(2);
/// What moves is let go on for `MAX_EXTENSION` times its limit.
const MAX_EXTENSION: u32 = 30;
/// After this time it is looked at again.
const LOOKING_INTERVAL: Duration = Duration::from_secs(10);

/// How long a command may take.
#[derive(Debug, Clone, Copy)]
pub enum Limit {
    /// This time of the clock.
    Clock(Duration),
    /// This time of the clock if it stands still then. Otherwise until it has had as much processor time, and 30 times
    /// as long at most: for a machine whose processors others have.
    Processor(Duration),
}

impl From<Duration> for Limit {
    fn from(time: Duration) -> Limit {
        Limit::Clock(time)
    }
}

impl Limit {
    fn time(self) -> Duration {
        let (Limit::Clock(time) | Limit::Processor(time)) = self;
        time
    }

    /// Looks at a command that has had its time: what was seen, if it is to be ended.
    fn look(self, elapsed: Duration, tree: &mut Tree) -> Option<Look> {
        let mut look = Look::take(tree);
        let may_go_on = match self {
            Limit::Clock(_) => false,
            Limit::Processor(time) => {
                !look.stands_still() && look::processor_time(tree) < time && elapsed < time * MAX_EXTENSION
            }
        };
        if may_go_on {
            return None;
        }
        look.ask_debugger();
        Some(look)
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It was killed, since it had not ended in time.
    TooLong,
}

impl fmt::Display for End {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exit(status) => write!(to, "status {status}"),
            End::Signal(number) => write!(to, "signal {number}"),
            End::TooLong => write!(to, "not ended in time"),
        }
    }
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> End {
        match (status.code(), status.signal()) {
            (Some(code), _) => End::Exit(code),
            (None, Some(number)) => End::Signal(number),
            (None, None) => End::Exit(-1),
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Trial {
    /// How it ended.
    pub end: End,
    /// Standard output.
    pub output: Vec<u8>,
    /// Standard error.
    pub messages: Vec<u8>,
    /// Wall-clock time in seconds.
    pub seconds: f64,
    /// The most memory that was seen in use.
    pub peak: Peak,
    /// What its threads did when it had not ended in time.
    pub look: Option<Look>,
}

impl Trial {
    /// The same output and the same end.
    pub fn agrees(&self, other: &Trial) -> bool {
        self.end == other.end && self.output == other.output
    }

    /// The last line of standard error that says something, for people.
    pub fn last_message(&self) -> String {
        let text = String::from_utf8_lossy(&self.messages);
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("").trim().chars().take(160).collect()
    }
}

/// Runs a command to its end, or kills it after `limit`; with `sample`, looks at its memory ten times per second.
///
/// The command gets a process group of its own and no input, unless its input was set before.
///
/// # Errors
/// It cannot be started, or its output not be read.
pub fn run(command: &mut Command, limit: impl Into<Limit>, sample: bool) -> Result<Trial, ProofError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let scratch = || tempfile::tempfile().map_err(ProofError::io("cannot make a temporary file"));
    let (mut output, mut messages) = (scratch()?, scratch()?);
    let copy = |file: &File| file.try_clone().map_err(ProofError::io("cannot duplicate a descriptor"));
    command.stdout(Stdio::from(copy(&output)?)).stderr(Stdio::from(copy(&messages)?)).process_group(0);
    let limit = limit.into();
    let start = Instant::now();
    let mut child = command.spawn().map_err(ProofError::io(format!("cannot start {name}")))?;
    let leader = child.id();
    let mut tree = Tree::new(leader);
    let mut peak = Peak::default();
    let mut next_sample = Instant::now();
    let mut next_look = limit.time();
    let mut ended = || child.try_wait().map_err(ProofError::io(format!("cannot wait for {name}")));
    let (end, look) = loop {
        if let Some(status) = ended()? {
            break (End::from(status), None);
        }
        if start.elapsed() > next_look {
            let look = limit.look(start.elapsed(), &mut tree);
            next_look = start.elapsed() + LOOKING_INTERVAL;
            // It may have ended while it was looked at.
            if look.is_some() && ended()?.is_none() {
                tree.find();
                kill_all(leader, &tree);
                child.wait().map_err(ProofError::io(format!("cannot wait for {name}")))?;
                break (End::TooLong, look);
            }
            continue;
        }
        if sample && Instant::now() >= next_sample {
            peak.take(&tree.sample());
            next_sample += SAMPLING_INTERVAL;
            next_sample = next_sample.max(Instant::now());
        }
        std::thread::sleep(POLLING_INTERVAL);
    };
    let seconds = start.elapsed().as_secs_f64();
    Ok(Trial { end, output: contents(&mut output)?, messages: contents(&mut messages)?, seconds, peak, look })
}

/// Ends what a command has started. Processes that are gone already are no failure.
fn kill_all(leader: u32, tree: &Tree) {
    let as_pid = |pid: u32| i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(group) = as_pid(leader) {
        _ = kill_process_group(group, Signal::KILL);
    }
    for pid in tree.processes().filter_map(as_pid) {
        _ = kill_process(pid, Signal::KILL);
    }
}

fn contents(file: &mut File) -> Result<Vec<u8>, ProofError> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(ProofError::io("cannot read a program's output"))?;
    Ok(bytes)
}
