//! `refault run --watch`: the view of `refault top` on the terminal of standard error, while the program runs.
//!
//! Standard input stays the program's, so the view reads no keys; only the echo of typed characters is off while it is
//! shown.
//!
//! What the program writes to this very terminal would tear the picture. Those of its streams go to a file without a
//! name, in the order of writing. The file is copied to the terminal when the view has closed.

use std::fs::File;
use std::io::{BufWriter, Seek, Stderr, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::termios::{self, LocalModes, OptionalActions};

use crate::inherited::Unnamed;
use crate::top::{LogTail, View, screen};
use refault_console::Failure;
use refault_lab::size::bytes_text;

/// Pictures.
pub const REDRAW: Duration = Duration::from_millis(250);

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

/// The view over a program that runs, and what the program writes meanwhile.
pub struct Watch<'a> {
    name: &'a str,
    tail: LogTail,
    held: File,
    picture: Picture,
}

impl<'a> Watch<'a> {
    /// Follows the statistics of a program called `name`.
    ///
    /// # Errors
    /// A file cannot be had.
    pub fn new(name: &'a str, statistics: &Statistics) -> Result<Watch<'a>, Failure> {
        let tail = LogTail::open(statistics.path(), None)?;
        Ok(Watch { name, tail, held: temporary()?, picture: Picture { shown: None, drawn: None } })
    }

    /// Holds back what a program writes to the terminal of the view.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn hold(&self, command: &mut Command) -> std::io::Result<()> {
        command.stderr(self.held.try_clone()?);
        if is_same_terminal(&std::io::stdout()) {
            command.stdout(self.held.try_clone()?);
        }
        Ok(())
    }

    /// Draws a picture if it is time.
    pub fn look(&mut self) {
        if self.picture.is_due() {
            let held_bytes = self.held.metadata().map_or(0, |metadata| metadata.len());
            self.picture.draw(&mut self.tail, self.name, held_bytes);
        }
    }

    /// Leaves the terminal to others until the next look.
    pub fn close(&mut self) {
        self.picture.close();
    }

    /// The program has ended: shows what it wrote.
    pub fn end(mut self) {
        self.close();
        show(self.held);
    }
}

/// Whether a stream is the terminal that standard error is.
fn is_same_terminal(stream: &impl AsFd) -> bool {
    let device = |fd: std::os::fd::BorrowedFd<'_>| {
        let metadata = File::from(fd.try_clone_to_owned().ok()?).metadata().ok()?;
        Some(metadata.rdev())
    };
    termios::isatty(stream) && device(stream.as_fd()).is_some_and(|it| Some(it) == device(std::io::stderr().as_fd()))
}

/// Copies what was held to the terminal.
fn show(mut held: File) {
    let _ = held.rewind();
    let _ = std::io::copy(&mut held, &mut std::io::stderr());
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
    fn draw(&mut self, tail: &mut LogTail, name: &str, held_bytes: u64) {
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
        let note = match (tail.read(), held_bytes) {
            (Err(failure), _) => failure.line().to_owned(),
            (Ok(()), 0) => String::new(),
            (Ok(()), bytes) => format!("{} of output are held until the program ends", bytes_text(bytes)),
        };
        if let Some(shown) = &mut self.shown {
            let view = tail.view().map(|view| View { command: "refault run", source: name, note, ..view });
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
