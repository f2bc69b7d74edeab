//! One run of the program: alone, under a budget, or recorded; timed from its start to its end.
//!
//! Runs under refault are `refault run` itself, as a person would call it, so what is measured is what they get. Each
//! run is a process group of its own: one that takes too long, or is going on when the command is interrupted, is ended
//! with all its children. Standard output goes nowhere, standard input comes from a file or is empty, standard error is
//! kept for the words of a run that fails.
//!
//! A server is started, used by a load command, which is what is timed, and ended by SIGTERM: [`super::server`].

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refault_console::{Failure, say};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::listening::is_listening;
use super::server::Server;
use crate::program;
use crate::run::summary as run;
use crate::run::totals::Totals;
use crate::source::kernels::quoted;

/// Letters of a command that are shown.
const SHOWN: usize = 60;
/// Between looks at whether the command was interrupted.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// A program that runs for this time by itself and listens on a socket may be a server that was given no load.
const SERVER_HINT: Duration = Duration::from_secs(10);
/// Milliseconds between lines of what a run has come to until then.
const FOLLOWED_MS: &str = "100";

/// How the program is run.
#[derive(Clone, Copy, Debug)]
pub enum How<'a> {
    /// Without refault.
    Alone,
    /// Under a budget of this number of bytes.
    Under(u64),
    /// The same, with looks at the pages that it touches, this number of milliseconds apart at least.
    Looked(u64, u64),
    /// Unlimited, while a trace is written, with this number of milliseconds between looks.
    Recorded(&'a Path, u64),
}

impl fmt::Display for How<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Alone => f.write_str("alone"),
            How::Under(bytes) | How::Looked(bytes, _) => write!(f, "under {}", refault_lab::size::bytes_text(*bytes)),
            How::Recorded(..) => f.write_str("while it was recorded"),
        }
    }
}

/// How a run went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Seconds from the start to the end; with a load, of the load.
    pub seconds: f64,
    /// It took too long and was ended.
    pub given_up: bool,
    /// It was ended because there was no more time, not because it took too long.
    pub unfinished: bool,
    /// What its statistics say, if there are any.
    pub summary: Option<Totals>,
}

/// Runs a program again and again.
pub struct Runner {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// What `refault run` is told besides the budget.
    pub options: Vec<OsString>,
    /// What each run reads.
    pub stdin: Option<PathBuf>,
    /// What uses the program, if that is a server.
    pub server: Option<Server>,
    /// Whether a run under a budget that is ended has told until then what it came to.
    pub follows: bool,
    interrupted: Arc<AtomicBool>,
}

impl Runner {
    /// Checks that there is such a program. Interrupts end the run that is going on from now on.
    ///
    /// # Errors
    /// There is none, or signals cannot be caught.
    pub fn new(program: Vec<OsString>, options: Vec<OsString>) -> Result<Runner, Failure> {
        let name = Path::new(&program[0]);
        if program::find(name).is_none() {
            let remedy = "give a path, or a name that is found in PATH";
            return Err(Failure::usage("no such program", name.display(), remedy));
        }
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))
                .map_err(|error| Failure::failed("cannot catch signals", "this process", error))?;
        }
        Ok(Runner { program, options, stdin: None, server: None, follows: false, interrupted })
    }

    /// The program and its arguments on one line; long ones are cut.
    pub fn command_line(&self) -> String {
        let parts = self.program.iter().map(|part| quoted(part.to_string_lossy().into_owned())).collect::<Vec<_>>();
        let line: String = parts.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if line.chars().count() <= SHOWN {
            return line;
        }
        line.chars().take(SHOWN).chain(['…']).collect()
    }

    /// Runs the program once.
    ///
    /// # Errors
    /// It could not be started or failed, or the command was interrupted.
    pub fn run(&self, how: How<'_>, give_up: Option<Duration>) -> Result<Outcome, Failure> {
        self.run_with_curve(how, give_up).map(|(outcome, _)| outcome)
    }

    /// The same, with what [`How::Looked`] has found: bytes, and pages that would come back.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run_with_curve(&self, how: How<'_>, give_up: Option<Duration>) -> Result<(Outcome, Vec<[u64; 2]>), Failure> {
        let file =
            || tempfile::NamedTempFile::new().map_err(|error| Failure::write(std::env::temp_dir().display(), &error));
        let (written, lines) = (file()?, file()?);
        let (mut command, words) = (self.command(how, written.path(), lines.path())?, temporary()?);
        command.stdout(Stdio::null()).process_group(0);
        command.stderr(words.try_clone().map_err(|error| Failure::write("a temporary file", &error))?);
        command.stdin(match &self.stdin {
            None => Stdio::null(),
            Some(path) => File::open(path)
                .map_err(|error| {
                    Failure::usage("cannot read", path.display(), format!("{error}; --stdin names a file"))
                })?
                .into(),
        });
        let start = Instant::now();
        let child = command.spawn().map_err(|error| Failure::failed("cannot execute", self.name(), error))?;
        let mut group = Group::new(child);
        let seconds = match &self.server {
            None => self.wait(&mut group, how, start, give_up, words)?,
            Some(server) => self.serve(&mut group, server, how, give_up, words)?,
        };
        let (given_up, summary) = (seconds.is_none(), summary(written.path()));
        let until_then = || given_up.then(|| last_totals(lines.path())).flatten();
        let totals = summary.as_ref().map(|summary| summary.totals).or_else(until_then);
        let seconds = seconds.or(give_up.map(|limit| limit.as_secs_f64())).unwrap_or(0.0);
        let outcome = Outcome { seconds, given_up, unfinished: false, summary: totals };
        Ok((outcome, summary.map_or_else(Vec::new, |summary| summary.curve)))
    }

    fn name(&self) -> std::path::Display<'_> {
        Path::new(&self.program[0]).display()
    }

    fn command(&self, how: How<'_>, summary: &Path, lines: &Path) -> Result<Command, Failure> {
        let mut words: Vec<OsString> = Vec::new();
        match how {
            How::Alone => {}
            How::Under(bytes) | How::Looked(bytes, _) => {
                words.extend(["run".into(), "--memory".into(), bytes.to_string().into()]);
                words.extend(["--quiet".into(), "--summary".into(), summary.into()]);
                match how {
                    How::Looked(_, interval) => words.extend(["--curve".into(), interval.to_string().into()]),
                    _ if self.follows => {
                        words.extend(["--stats".into(), lines.into(), "--stats-interval".into(), FOLLOWED_MS.into()]);
                    }
                    _ => {}
                }
                words.extend(self.options.iter().cloned());
            }
            How::Recorded(out, interval) => {
                words.extend(["record".into(), "--out".into(), out.into()]);
                words.extend(["--interval".into(), interval.to_string().into()]);
            }
        }
        if words.is_empty() {
            let mut command = Command::new(&self.program[0]);
            command.args(&self.program[1..]);
            return Ok(command);
        }
        let binary = std::env::current_exe()
            .map_err(|error| Failure::failed("cannot find", "the file of this program", error))?;
        let mut command = Command::new(binary);
        command.args(words).arg("--").args(&self.program);
        Ok(command)
    }

    /// Waits for a program that ends by itself; `None` if it was given up.
    fn wait(
        &self,
        group: &mut Group,
        how: How<'_>,
        start: Instant,
        give_up: Option<Duration>,
        words: File,
    ) -> Result<Option<f64>, Failure> {
        let status = match (how, give_up) {
            (How::Alone, None) => Some(self.until_end_by_itself(group, start)?),
            _ => self.until_end(group, give_up.map(|limit| start + limit))?,
        };
        let seconds = start.elapsed().as_secs_f64();
        match status {
            None => Ok(None),
            Some(status) if status.success() => Ok(Some(seconds)),
            Some(status) => Err(failed(format!("the program failed {how}"), &self.command_line(), status, words)),
        }
    }

    /// Waits for the end of a program that may take any time. A user who forgot to say that it is a server is told.
    fn until_end_by_itself(&self, group: &mut Group, start: Instant) -> Result<ExitStatus, Failure> {
        let mut hint = Some(start + SERVER_HINT);
        loop {
            if let Some((_, status)) = self.first_end(&mut [group], hint)? {
                return Ok(status);
            }
            hint = None;
            if group.is_listening() {
                say(format_args!(
                    "{} has not ended and listens on a socket: if it is a server, --load 'COMMAND' says what uses it",
                    self.command_line()
                ));
            }
        }
    }

    /// Waits for the end; `None` if that did not come in time and the group was killed.
    pub(super) fn until_end(&self, group: &mut Group, until: Option<Instant>) -> Result<Option<ExitStatus>, Failure> {
        let ended = self.first_end(&mut [group], until)?;
        if ended.is_none() {
            group.kill();
        }
        Ok(ended.map(|(_, status)| status))
    }

    /// Waits until one of these ends, and says which; `None` if none did in time.
    pub(super) fn first_end(
        &self,
        groups: &mut [&mut Group],
        until: Option<Instant>,
    ) -> Result<Option<(usize, ExitStatus)>, Failure> {
        let trouble = |error: std::io::Error| Failure::failed("cannot wait for", "the program", error);
        let open = |group: &&mut Group| {
            let opened = rustix::process::pidfd_open(Pid::from_child(&group.child), PidfdFlags::empty());
            opened.map_err(|error| trouble(error.into()))
        };
        let descriptors = groups.iter().map(open).collect::<Result<Vec<_>, Failure>>()?;
        loop {
            for (number, group) in groups.iter_mut().enumerate() {
                if let Some(status) = group.status()? {
                    return Ok(Some((number, status)));
                }
            }
            self.check_interrupt()?;
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()).min(LOOK));
            if left.is_zero() {
                return Ok(None);
            }
            let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut polled: Vec<_> = descriptors.iter().map(|one| PollFd::new(one, PollFlags::IN)).collect();
            match rustix::event::poll(&mut polled, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(trouble(error.into())),
            }
        }
    }

    pub(super) fn check_interrupt(&self) -> Result<(), Failure> {
        if self.interrupted.load(Ordering::Relaxed) { Err(Failure::Exit(130)) } else { Ok(()) }
    }
}

/// A running program with its children; they end with it.
pub(super) struct Group {
    child: Child,
    ended: bool,
}

impl Group {
    /// What was just started, in a process group of its own.
    pub(super) fn new(child: Child) -> Group {
        Group { child, ended: false }
    }

    /// Whether a process of it listens on a socket.
    pub(super) fn is_listening(&self) -> bool {
        is_listening(self.child.id())
    }

    pub(super) fn status(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let status = self.child.try_wait().map_err(|error| Failure::failed("cannot wait for", "the program", error))?;
        self.ended |= status.is_some();
        Ok(status)
    }

    pub(super) fn ask_to_end(&self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    pub(super) fn kill(&mut self) {
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        self.ended = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}

/// What `refault run --summary` wrote; nothing if the run was ended before it could.
fn summary(path: &Path) -> Option<run::Summary> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// What the last whole line of `refault run --stats` says of the run.
fn last_totals(path: &Path) -> Option<Totals> {
    let lines = std::fs::read_to_string(path).ok()?;
    let (whole, _) = lines.rsplit_once('\n')?;
    let mut line: serde_json::Value = serde_json::from_str(whole.lines().last()?).ok()?;
    serde_json::from_value(line["run"].take()).ok()
}

/// A file without a name, for what a program says.
pub(super) fn temporary() -> Result<File, Failure> {
    tempfile::tempfile().map_err(|error| Failure::write(std::env::temp_dir().display(), &error))
}

/// Something failed (`what`, and `whose` command that is): its own last words, if it had any.
pub(super) fn failed(what: String, whose: &str, status: ExitStatus, mut words: File) -> Failure {
    let _ = words.rewind();
    // Only the end matters, and words may be any bytes.
    let mut bytes = Vec::new();
    let text = match words.read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    };
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing").to_owned();
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, signal) => format!("signal {} ended it", signal.unwrap_or(0)),
    };
    Failure::failed(what, whose, format!("{end}: {last}"))
}
