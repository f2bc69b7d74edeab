//! Changes of a file by others, told from the cache's own by its times and length (fstat).
//!
//! The file is looked at when it is opened, before and after each write of the cache's, and on demand
//! ([`crate::CachedFile::reload_if_changed`]). What differs where no write of the cache's lies between was done by
//! another program. Where times are whole seconds, a file that was changed a moment ago is taken as changed by each
//! look. Limits: the kernel's clock for times steps by some milliseconds. So a change within a step of the cache's own
//! write, or at the same time, is not noticed. Nor is one through a mapping before the kernel writes its pages.
//!
//! Invariants: own writes hold `own` shared, looking holds it alone. Cost: two fstat per write to the device.

use std::fs::File;
use std::io;
use std::sync::{Mutex, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Stat, fstat};

const UNBROKEN: &str = "invariant: nothing panics under this lock";

/// Seconds that lie between changes whose times differ, where these are whole seconds, or even numbers of them.
const MOMENT: i64 = 2;

/// Times of modification and change, seconds and nanoseconds, and length.
type Stamp = (i64, u64, i64, u64, i64);

#[derive(Debug)]
pub(crate) struct Changes {
    own: RwLock<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stamp: Stamp,
    /// Own writes under way.
    writing: u32,
    changed: bool,
}

fn stamp(file: &File) -> io::Result<Stamp> {
    Ok(stamp_of(&fstat(file)?))
}

fn stamp_of(stat: &Stat) -> Stamp {
    (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec, stat.st_size)
}

/// Whether another change may leave the times as they are.
fn may_hide(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs() as i64);
    stat.st_ctime_nsec == 0 && stat.st_ctime > now - MOMENT - 1
}

impl Changes {
    /// Changes since a file was so.
    pub(crate) fn new(stat: &Stat) -> Changes {
        let state = State { stamp: stamp_of(stat), writing: 0, changed: false };
        Changes { own: RwLock::new(()), state: Mutex::new(state) }
    }

    /// Whether a look at the file, taken a moment ago, shows it as it is known: then no other writer had changed it
    /// until that look. False where that cannot be said.
    pub(crate) fn agrees_with(&self, look: &Stat) -> bool {
        let state = self.state.lock().expect(UNBROKEN);
        state.writing == 0 && !state.changed && stamp_of(look) == state.stamp && !may_hide(look)
    }

    /// Does something to the file that changes it.
    pub(crate) fn during<T>(&self, file: &File, write: impl FnOnce() -> T) -> T {
        let _own = self.own.read().expect(UNBROKEN);
        let mut state = self.state.lock().expect(UNBROKEN);
        // A file whose times cannot be had is taken as unchanged: the next look says what is wrong.
        state.changed |= state.writing == 0 && stamp(file).is_ok_and(|now| now != state.stamp);
        state.writing += 1;
        drop(state);
        let outcome = write();
        let mut state = self.state.lock().expect(UNBROKEN);
        state.writing -= 1;
        if let Ok(now) = stamp(file) {
            state.stamp = now;
        }
        outcome
    }

    /// Whether a writer other than this cache has changed the file since the last look.
    pub(crate) fn take(&self, file: &File) -> io::Result<bool> {
        let _alone = self.own.write().expect(UNBROKEN);
        let mut state = self.state.lock().expect(UNBROKEN);
        let stat = fstat(file)?;
        let now = stamp_of(&stat);
        let changed = std::mem::take(&mut state.changed) || now != state.stamp || may_hide(&stat);
        state.stamp = now;
        Ok(changed)
    }
}
