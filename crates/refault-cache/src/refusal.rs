//! What a file's device has refused on another's account.
//!
//! Pages are written in the background, by writers of other files that have reached the limit, and by readers that find
//! no frame. An error of these is none of theirs: it is kept here, and the file's next sync tells it, once, whatever has
//! become of the pages since. Cost: a lock that is taken only when something was refused, and by each sync.

use std::io;
use std::sync::Mutex;
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
    /// The first since the last sync.
    untold: Option<io::Error>,
    /// The first and the last of those that follow each other.
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Refusal {
    /// The file's next sync is to tell an error.
    pub(crate) fn keep(&self, error: io::Error) {
        let mut state = self.0.lock().expect(UNBROKEN);
        state.untold.get_or_insert(error);
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

    /// What a sync, or another call of who writes the file, has to tell.
    pub(crate) fn take(&self) -> Option<io::Error> {
        self.0.lock().expect(UNBROKEN).untold.take()
    }

    /// Whether the device has refused a moment ago.
    pub(crate) fn is_recent(&self) -> bool {
        self.0.lock().expect(UNBROKEN).last.is_some_and(|last| last.elapsed() < PAUSE)
    }
}
