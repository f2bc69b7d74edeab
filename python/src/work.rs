//! Long work: in a thread of its own, so that signals are heard and progress is told meanwhile.
//!
//! Cost: one thread per call, and a look at signals and progress each 50 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use refault::lab::{LabError, Progress};

use crate::errors::lab_error;

/// How often signals are looked at: a quarter of the 0.2 s within which Ctrl-C must end a call.
const LOOK: Duration = Duration::from_millis(50);

/// How far the work is, and whether it should end.
#[derive(Default)]
struct State {
    total: AtomicU64,
    done: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress for State {
    fn add(&self, accesses: u64) {
        self.total.fetch_add(accesses, Ordering::Relaxed);
    }

    fn advance(&self, accesses: u64) {
        self.done.fetch_add(accesses, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Does `work` without the interpreter's lock. `progress`, if given, is called with the accesses done and to do. A
/// signal whose handler raises, or a callback that does, ends the call at once; the thread ends at its next block.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&dyn Progress) -> Result<T, LabError> + Send + 'static,
) -> PyResult<T> {
    let state = Arc::new(State::default());
    let of_thread = state.clone();
    let mut told = u64::MAX;
    let heard = |py: Python<'_>| {
        let done = state.done.load(Ordering::Relaxed);
        py.check_signals().and_then(|()| match progress {
            Some(callback) if done != told => {
                told = done;
                callback.call1((done, state.total.load(Ordering::Relaxed))).map(|_| ())
            }
            _ => Ok(()),
        })
    };
    let done = attend(py, move || work(&*of_thread), heard);
    if done.is_err() {
        state.cancelled.store(true, Ordering::Relaxed);
    }
    done?.map_err(lab_error)
}

/// Does what has no progress and cannot be cancelled, such as a read from a store that answers when it likes. A signal
/// whose handler raises ends the wait at once; the thread goes on with what it owns until it is through.
pub fn wait<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    attend(py, work, |py| py.check_signals())
}

/// Does `work` in a thread, and meanwhile `look` again and again; an error of that ends the call, not the thread.
fn attend<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
    mut look: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let (sender, mut receiver) = channel();
    let thread = std::thread::Builder::new()
        .name("refault".to_owned())
        .spawn(move || {
            // No thread waits any more if this fails.
            let _ = sender.send(work());
        })
        .map_err(|error| crate::errors::os_error(&error, format!("cannot start a thread: {error}"), None))?;
    loop {
        // Moved in and out: a receiver can be sent to another thread, but not be shared.
        let waited;
        (receiver, waited) = py.detach(move || {
            let waited = receiver.recv_timeout(LOOK);
            (receiver, waited)
        });
        match waited {
            Ok(done) => {
                // Its memory is given back before the result is handed over.
                let _ = py.detach(|| thread.join());
                return Ok(done);
            }
            Err(RecvTimeoutError::Timeout) => look(py)?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("refault failed inside: a thread ended with a panic"));
            }
        }
    }
}
