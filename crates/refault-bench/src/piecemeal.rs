//! Results on standard output, piece by piece as they are measured, whatever standard output is.
//!
//! A benchmark of an hour that is stopped after most of it has printed what it knew by then. SIGINT and SIGTERM close the
//! results, a whole JSON object included, before they end the command as they always do: by that signal. Where no
//! process reads the results it ends without, after [`PATIENCE`].
//!
//! Invariants: pieces are written whole and flushed, in the order in which they were measured; results are closed once.
//! Cost: a thread that sleeps.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use refault_console::{Failure, Progress, with_output};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A reader of the results has this time to take them once a signal has come.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a benchmark's results look.
pub trait Results: Send + 'static {
    /// What is measured as one.
    type Piece;

    /// What stands before all pieces.
    fn open(&mut self, out: &mut dyn Write) -> io::Result<()>;
    /// One more piece. Where only the whole makes a document it is kept.
    fn add(&mut self, out: &mut dyn Write, piece: Self::Piece) -> io::Result<()>;
    /// What follows from all pieces that were added.
    fn close(&mut self, out: &mut dyn Write) -> io::Result<()>;
}

/// Results that are being written.
pub struct Piecemeal<R: Results> {
    /// None: they are closed.
    results: Arc<Mutex<Option<R>>>,
    /// Where it is drawn, there is no room for results meanwhile.
    progress: Arc<Progress>,
    /// A signal has come: a thread closes the results and ends the command.
    ends: Arc<AtomicBool>,
}

impl<R: Results> Piecemeal<R> {
    /// Writes what stands before all pieces. A signal that ends the command also removes the directory `leftovers`.
    ///
    /// # Errors
    /// Standard output cannot be written; signals cannot be had.
    pub fn open(results: R, progress: Progress, leftovers: PathBuf) -> Result<Piecemeal<R>, Failure> {
        let (results, progress) = (Arc::new(Mutex::new(Some(results))), Arc::new(progress));
        let open = Piecemeal { results, progress, ends: Arc::default() };
        open.listen(leftovers).map_err(|error| Failure::failed("cannot be told of signals", "this process", error))?;
        open.write(|results, out| results.open(out))?;
        Ok(open)
    }

    /// One more piece is measured.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn add(&self, piece: R::Piece) -> Result<(), Failure> {
        self.write(|results, out| results.add(out, piece))
    }

    /// What is being measured, and how far all is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// All that can be measured is: `outcome` says whether that was all that should be.
    ///
    /// # Errors
    /// That of the outcome, or standard output cannot be written.
    pub fn close(self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        // What was measured failed because a signal ended it too.
        while self.ends.load(Ordering::SeqCst) {
            std::thread::park();
        }
        let closed = match self.locked().take() {
            Some(mut results) => self.progress.aside(|| with_output(None, |out| results.close(out))),
            None => Ok(()),
        };
        outcome.and(closed)
    }

    fn write(&self, write: impl FnOnce(&mut R, &mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        match self.locked().as_mut() {
            Some(results) => self.progress.aside(|| with_output(None, |out| write(results, out))),
            None => Ok(()),
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<R>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, leftovers: PathBuf) -> io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&self.ends))?;
        }
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (results, progress) = (Arc::clone(&self.results), Arc::clone(&self.progress));
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let Some(signal) = signals.forever().next() else { return };
            std::thread::spawn(move || {
                std::thread::sleep(PATIENCE);
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            });
            let _ = std::fs::remove_dir_all(&leftovers);
            if let Some(mut results) = results.lock().unwrap_or_else(PoisonError::into_inner).take() {
                // No reader is left to be told if it fails.
                let _ = progress.aside(|| with_output(None, |out| results.close(out)));
            }
            progress.clear();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        })?;
        Ok(())
    }
}
