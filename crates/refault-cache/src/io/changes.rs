//! Changes of a file by others, told from the cache's own by its times and length (statx).
//!
//! The file is looked at when it is opened, before and after each write of the cache's, and on demand
//! ([`crate::CachedFile::reload_if_changed`]). What differs where no write of the cache's lies between was done by
//! another program. Limits: the kernel's clock for times steps by some milliseconds, so a change within a step of the cache's own
//! write, or at the same time, is not noticed; nor is one through a mapping before the kernel writes its pages.
//!
//! Invariants: own writes hold `own` shared, looking holds it alone. Cost: two statx per write to the device.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, RwLock};

const UNBROKEN: &str = "invariant: nothing panics under this lock";

/// Times of modification and change, seconds and nanoseconds, and length.
type Stamp = (i64, i64, i64, i64, u64);

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
    Ok(stamp_of(&file.metadata()?))
}

fn stamp_of(meta: &Metadata) -> Stamp {
    (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec(), meta.size())
}

impl Changes {
    /// Changes since a file was so.
    pub(crate) fn new(metadata: &Metadata) -> Changes {
        let state = State { stamp: stamp_of(metadata), writing: 0, changed: false };
        Changes { own: RwLock::new(()), state: Mutex::new(state) }
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

    /// Whether somebody else has changed the file since the last look.
    pub(crate) fn take(&self, file: &File) -> io::Result<bool> {
        let _alone = self.own.write().expect(UNBROKEN);
        let mut state = self.state.lock().expect(UNBROKEN);
        let now = stamp(file)?;
        let changed = std::mem::take(&mut state.changed) || now != state.stamp;
        state.stamp = now;
        Ok(changed)
    }
}
