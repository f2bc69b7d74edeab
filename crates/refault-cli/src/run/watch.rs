//! `refault run --watch`: the view of `refault top` on the terminal of standard error, while the program runs.
//!
//! The program is a child here, so everything that must be as without the view is passed on: its exit status becomes
//! ours, a signal that ended it ends us, signals that a process sends us are sent to it, a stop from the keyboard stops
//! both, and if we are killed it is killed too. Standard input stays the program's, so the view reads no keys; only the
//! echo of typed characters is off while it is shown.
//!
//! What the program writes to this very terminal would tear the picture: those of its streams go to a file without a
//! name, in the order of writing, which is copied to the terminal when the view has closed.

use std::fs::File;
use std::io::{BufWriter, Seek, Stderr, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::process::{Pid, Signal};
use rustix::termios::{self, LocalModes, OptionalActions};
use signal_hook::consts::signal;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use super::realtime::RealTime;
use crate::inherited::Unnamed;
use crate::launch::Launch;
use crate::top::{Follower, View, screen};
use refault_console::Failure;
use refault_lab::size::bytes_text;

/// Looks at the program and at signals.
const TICK: Duration = Duration::from_millis(20);
/// Pictures.
const REDRAW: Duration = Duration::from_millis(250);

/// What a process may send us that is meant for the program, besides real-time signals. SIGKILL reaches it too (the
/// agent asks for that); SIGSTOP cannot be caught.
const PASSED_ON: [i32; 16] = [
    signal::SIGHUP,
    signal::SIGINT,
    signal::SIGQUIT,
    signal::SIGABRT,
    signal::SIGUSR1,
    signal::SIGUSR2,
    signal::SIGPIPE,
    signal::SIGALRM,
    signal::SIGTERM,
    signal::SIGCONT,
    signal::SIGTSTP,
    signal::SIGVTALRM,
    signal::SIGPROF,
    signal::SIGXCPU,
    signal::SIGIO,
    signal::SIGURG,
];

/// The statistics that the view follows: the user's file, or one without a name.
pub struct Statistics {
    path: PathBuf,
    /// Kept as long as it is followed.
    _own: Option<Unnamed>,
}

impl Statistics {
    /// The given file, or one of our own.
    ///
    /// # Errors
    /// No temporary file can be made.
    pub fn new(given: Option<&Path>) -> Result<Statistics, Failure> {
        if let Some(path) = given {
            return Ok(Statistics { path: path.to_owned(), _own: None });
        }
        let own = Unnamed::new()?;
        Ok(Statistics { path: own.path().to_owned(), _own: Some(own) })
    }

    /// Where the agent writes them.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn temporary() -> Result<File, Failure> {
    tempfile::tempfile().map_err(|error| Failure::write(std::env::temp_dir().display(), &error))
}

/// Runs the program as a child and shows the view. Ends this process as the program ended.
///
/// # Errors
/// Something could not be set up, or the program could not be started.
pub fn run(launch: &Launch, name: &str, statistics: &Statistics) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed("cannot execute", name, error);
    let mut follower = Follower::open(statistics.path(), None)?;
    let held = temporary()?;
    let mut command = launch.command();
    let hold = || held.try_clone().map(Stdio::from).map_err(failed);
    command.stderr(hold()?);
    if is_same_terminal(&std::io::stdout()) {
        command.stdout(hold()?);
    }
    let mut signals = SignalsInfo::<WithOrigin>::new(PASSED_ON).map_err(failed)?;
    let real_time = RealTime::hold().map_err(failed)?;
    real_time.release_in(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    let mut view = Picture { shown: None, drawn: None };
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        for origin in signals.pending() {
            // What the terminal sends goes to the program by itself, as a member of the group.
            if origin.process.is_some() {
                pass_on(&child, origin.signal);
            }
            if origin.signal == signal::SIGTSTP {
                view.close();
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            }
        }
        real_time.pass_on(child.id());
        if view.is_due() {
            let held_bytes = held.metadata().map_or(0, |metadata| metadata.len());
            view.draw(&mut follower, name, held_bytes);
        }
        std::thread::sleep(TICK);
    };
    view.close();
    show(held);
    end_as(status, &real_time)
}

/// Whether a stream is the terminal that standard error is.
fn is_same_terminal(stream: &impl AsFd) -> bool {
    let device = |fd: std::os::fd::BorrowedFd<'_>| {
        let metadata = File::from(fd.try_clone_to_owned().ok()?).metadata().ok()?;
        Some(metadata.rdev())
    };
    termios::isatty(stream) && device(stream.as_fd()).is_some_and(|it| Some(it) == device(std::io::stderr().as_fd()))
}

fn pass_on(child: &Child, number: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(child.id() as i32), Signal::from_named_raw(number)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Copies what was held to the terminal.
fn show(mut held: File) {
    let _ = held.rewind();
    let _ = std::io::copy(&mut held, &mut std::io::stderr());
}

/// Ends this process as the program ended.
fn end_as(status: ExitStatus, real_time: &RealTime) -> Result<(), Failure> {
    if let Some(number) = status.signal() {
        // The program's core is written; ours would be of no use.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        let _ = signal_hook::low_level::emulate_default_handler(number);
        real_time.end_by(number);
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    if code == 0 { Ok(()) } else { Err(Failure::Exit(code as u8)) }
}

/// The view, while it may be shown: only the group that the terminal belongs to at the moment may paint on it.
struct Picture {
    shown: Option<Shown>,
    drawn: Option<Instant>,
}

impl Picture {
    fn is_due(&self) -> bool {
        self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW)
    }

    /// Draws a picture, if that is possible now. Its trouble is not the program's.
    fn draw(&mut self, follower: &mut Follower, name: &str, held_bytes: u64) {
        self.drawn = Some(Instant::now());
        let foreground = termios::tcgetpgrp(std::io::stderr()).is_ok_and(|group| group == rustix::process::getpgrp());
        if !foreground {
            // The terminal's new owner has cleaned it up, or a shell has.
            self.shown = None;
            return;
        }
        if self.shown.is_none() {
            self.shown = Shown::open().ok();
        }
        let note = match (follower.read(), held_bytes) {
            (Err(failure), _) => failure.line().to_owned(),
            (Ok(()), 0) => String::new(),
            (Ok(()), bytes) => format!("{} of output are held until the program ends", bytes_text(bytes)),
        };
        if let Some(shown) = &mut self.shown {
            let view = follower.view().map(|view| View { command: "refault run", source: name, note, ..view });
            let _ = shown.draw(view.as_ref());
        }
    }

    fn close(&mut self) {
        if let Some(shown) = self.shown.take() {
            shown.close();
        }
    }
}

/// The alternate screen.
struct Shown {
    terminal: Terminal<CrosstermBackend<BufWriter<Stderr>>>,
    size: Rect,
    before: termios::Termios,
}

impl Shown {
    fn open() -> std::io::Result<Shown> {
        let before = termios::tcgetattr(std::io::stderr())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        termios::tcsetattr(std::io::stderr(), OptionalActions::Now, &quiet)?;
        execute!(std::io::stderr(), EnterAlternateScreen, Hide)?;
        let size = size();
        Ok(Shown { terminal: terminal(size)?, size, before })
    }

    fn draw(&mut self, view: Option<&View<'_>>) -> std::io::Result<()> {
        let size = size();
        if size != self.size {
            execute!(std::io::stderr(), Clear(ClearType::All))?;
            (self.terminal, self.size) = (terminal(size)?, size);
        }
        self.terminal.draw(|frame| screen::draw(frame, view)).map(|_| ())
    }

    fn close(mut self) {
        let _ = self.terminal.backend_mut().flush();
        let _ = execute!(std::io::stderr(), Show, LeaveAlternateScreen);
        let _ = termios::tcsetattr(std::io::stderr(), OptionalActions::Now, &self.before);
    }
}

/// The area is given, so that nothing asks the terminal of another stream, or waits for an answer that the program
/// reads.
fn terminal(size: Rect) -> std::io::Result<Terminal<CrosstermBackend<BufWriter<Stderr>>>> {
    let backend = CrosstermBackend::new(BufWriter::new(std::io::stderr()));
    Terminal::with_options(backend, TerminalOptions { viewport: Viewport::Fixed(size) })
}

fn size() -> Rect {
    let size = termios::tcgetwinsize(std::io::stderr());
    let (width, height) = size.map_or((80, 24), |size| (size.ws_col, size.ws_row));
    Rect::new(0, 0, width.max(20), height.max(5))
}
