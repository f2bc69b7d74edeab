//! What a file's device has refused on another's account.
//!
//! Pages are written in the background, by writers of other files that have reached the limit, and by readers that find
//! no frame. An error of these is none of theirs: it is kept here, and the next sync of each of the file's handles
//! tells it, once, whatever has become of the pages since; so it does with what a sync of another handle was told.
//!
//! The same refusal, until a sync of the whole file has ended it, is one: who was told of it is not told again when the
//! device refuses on, and the first sync that it does not refuse is clean. Cost: a lock that is taken only when
//! something was refused, and by each sync.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a device that has refused is left alone by those who have nothing to do with it.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// How long a device has to refuse before what only it could have is given up for want of frames.
const GRACE: Duration = Duration::from_secs(1);
/// Refusals that are further apart than this are not one.
const APART: Duration = Duration::from_secs(5);

const UNBROKEN: &str = "invariant: nothing panics under this lock";

#[derive(Default)]
pub(crate) struct Refusal(Mutex<State>);

#[derive(Default)]
struct State {
    /// The first of what is told as one.
    error: Option<Said>,
    /// The number of that.
    number: u64,
    /// A sync of the whole file has ended it.
    over: bool,
    /// The first and the last of those that follow each other.
    first: Option<Instant>,
    last: Option<Instant>,
}

/// What can be said of an error again and again.
#[derive(Clone, PartialEq)]
enum Said {
    Number(i32),
    Words(io::ErrorKind, String),
}

impl Said {
    fn by(error: &io::Error) -> Said {
        match error.raw_os_error() {
            Some(number) => Said::Number(number),
            None => Said::Words(error.kind(), error.to_string()),
        }
    }

    fn again(&self) -> io::Error {
        match self {
            Said::Number(number) => io::Error::from_raw_os_error(*number),
            Said::Words(kind, words) => io::Error::new(*kind, words.clone()),
        }
    }
}

impl State {
    fn refused(&mut self, error: &io::Error) {
        let said = Some(Said::by(error));
        if self.over || self.error != said {
            self.error = said;
            self.number += 1;
            self.over = false;
        }
    }
}

impl Refusal {
    /// The next sync of each handle is to tell an error.
    pub(crate) fn keep(&self, error: &io::Error) {
        let mut state = self.0.lock().expect(UNBROKEN);
        state.refused(error);
        let now = Instant::now();
        let follows = state.last.is_some_and(|last| now.duration_since(last) < APART);
        state.first = state.first.filter(|_| follows).or(Some(now));
        state.last = Some(now);
    }

    /// The device has done what it was told.
    pub(crate) fn done(&self) {
        self.0.lock().expect(UNBROKEN).first = None;
    }

    /// Whether the device has been refusing for long enough that it is not expected to end.
    pub(crate) fn lasts(&self) -> bool {
        self.0.lock().expect(UNBROKEN).first.is_some_and(|first| first.elapsed() >= GRACE)
    }

    /// A handle is told an error by the call that has met it; others are to be told. `told` is the number of what the
    /// handle was told last.
    pub(crate) fn tells(&self, error: &io::Error, told: &AtomicU64) {
        let mut state = self.0.lock().expect(UNBROKEN);
        state.refused(error);
        told.store(state.number, Ordering::Relaxed);
    }

    /// A handle's sync has gone well, of the `whole` file or a part: what it has to tell still.
    pub(crate) fn synced(&self, told: &AtomicU64, whole: bool) -> Option<io::Error> {
        let mut state = self.0.lock().expect(UNBROKEN);
        state.over |= whole;
        let is_told = told.swap(state.number, Ordering::Relaxed) == state.number;
        state.error.as_ref().filter(|_| !is_told).map(Said::again)
    }

    /// What a handle that is opened now counts as told.
    pub(crate) fn number(&self) -> u64 {
        self.0.lock().expect(UNBROKEN).number
    }

    /// Whether the device has refused a moment ago.
    pub(crate) fn is_recent(&self) -> bool {
        self.0.lock().expect(UNBROKEN).last.is_some_and(|last| last.elapsed() < PAUSE)
    }
}
