//! Changes of a file by others, told from the cache's own by its times and length (statx).
//!
//! The file is looked at when it is opened, before and after each write of the cache's, and on demand
//! ([`CachedFile::reload_if_changed`]). What differs where no write of the cache's lies between was done by somebody
//! else. Limits: the kernel's clock for times steps by some milliseconds, so a change within a step of the cache's own
//! write, or at the same time, is not noticed; nor is one through a mapping before the kernel writes its pages.
//!
//! Invariants: own writes hold `own` shared, looking holds it alone. Cost: two statx per write to the device.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, RwLock};

use crate::file::CachedFile;

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

impl CachedFile {
    /// Asks the system whether another program has changed the file since this handle was opened or this was last called, and
    /// if so, does what [`CachedFile::reload`] does. Returns whether it was. A change within some milliseconds of a write of
    /// this cache's may not be noticed, and one through a mapping only when the kernel has written its pages.
    ///
    /// # Errors
    /// The system's, and those of [`CachedFile::reload`]; the next call tries it again.
    pub fn reload_if_changed(&self) -> io::Result<bool> {
        self.origin.check()?;
        // Held to the end: who asks meanwhile is answered when the file has been reloaded.
        let mut changed = self.opened.changed.lock().expect(UNBROKEN);
        changed.pending |= self.opened.backing.take_change()?;
        if changed.pending {
            self.reload()?;
            changed.pending = false;
            changed.times += 1;
        }
        Ok(self.seen.swap(changed.times, Ordering::Relaxed) != changed.times)
    }

    /// A handle that was just opened: what others have done to a file before that, it finds.
    pub(crate) fn finds_changes(self) -> CachedFile {
        // What cannot be told apart now is told by who reads, syncs or reloads.
        let _ = self.reload_if_changed();
        self
    }
}
