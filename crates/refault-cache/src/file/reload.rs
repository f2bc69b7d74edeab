//! Reading a file anew that others have changed ([`crate::io::changes`]).

use std::io;
use std::sync::atomic::Ordering;

use super::CachedFile;

const UNBROKEN: &str = "invariant: nothing panics under this lock";

impl CachedFile {
    /// Asks the system whether another program has changed the file since this handle was opened or this was last
    /// called. If so, does what [`CachedFile::reload`] does. Returns whether it was. A change within some milliseconds
    /// of a write of this cache's may not be noticed. A change through a mapping is noticed only when the kernel has
    /// written its pages.
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
