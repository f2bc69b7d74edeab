//! The position of an open file, and the turn of the thread that moves it: threads that share a file take turns, so that what one
//! reads or writes and where the next begins are one step.
//!
//! Invariants: the lock of a turn is held for some instructions only, and never while the interpreter's lock is waited for;
//! who waits for a turn has let go of the interpreter's lock. A child of a fork has a turn of its own, since a
//! thread of the parent may have had the other.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::ends::is_ending;

/// How long a turn is waited for before signals are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How long others may go before who waits. Without, threads would change at each call, which costs much.
const MAX_PASSED: Duration = Duration::from_millis(1);

/// How long a turn is waited for when the interpreter is ending: the thread that has it may have been ended.
const MAX_AT_END: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    /// The thread whose turn it is.
    owner: Option<usize>,
    /// The threads that wait, and since when; the first is next.
    queue: VecDeque<(usize, Instant)>,
}

/// Whose turn it is.
#[derive(Default)]
pub struct Turn {
    state: Mutex<State>,
    free: Condvar,
}

/// A turn, until it is dropped.
pub struct Taken<'a> {
    turn: &'a Turn,
    /// Whether another had it before.
    pub was_waited_for: bool,
}

/// Differs between threads that live at the same time.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place) as usize)
}

impl Turn {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn. Signals are heard meanwhile; RuntimeError if this thread has it already (in a signal's handler).
    pub fn take(&self, py: Python<'_>) -> PyResult<Taken<'_>> {
        let me = this_thread();
        let mut state = self.state();
        if state.owner == Some(me) || state.queue.iter().any(|(thread, _)| *thread == me) {
            return Err(PyRuntimeError::new_err("this thread is using the file already: reentrant call"));
        }
        let is_free = state.owner.is_none();
        if is_free && state.queue.front().is_none_or(|(_, since)| since.elapsed() < MAX_PASSED) {
            state.owner = Some(me);
            return Ok(Taken { turn: self, was_waited_for: false });
        }
        let since = Instant::now();
        state.queue.push_back((me, since));
        drop(state);
        while !py.detach(|| self.wait(me)) {
            let heard = match is_ending() && since.elapsed() > MAX_AT_END {
                true => Err(PyRuntimeError::new_err("the thread that used the file has ended with the interpreter")),
                false => py.check_signals(),
            };
            if let Err(error) = heard {
                self.state().queue.retain(|(thread, _)| *thread != me);
                self.free.notify_all();
                return Err(error);
            }
        }
        Ok(Taken { turn: self, was_waited_for: true })
    }

    /// Waits until it is this thread's turn, or for a while. Whether it is.
    fn wait(&self, me: usize) -> bool {
        let is_next = |state: &State| state.owner.is_none() && state.queue.front().is_some_and(|(next, _)| *next == me);
        let waited = self.free.wait_timeout_while(self.state(), LOOK, |state| !is_next(state));
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_mine = is_next(&state);
        if is_mine {
            state.queue.pop_front();
            state.owner = Some(me);
        }
        is_mine
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.turn.state();
        state.owner = None;
        let others_wait = !state.queue.is_empty();
        drop(state);
        if others_wait {
            self.turn.free.notify_all();
        }
    }
}
