//! Who is told of what the device refuses.

use std::io;

use crate::io::opened::Opened;

/// Who hears of what the device refuses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// The caller, who writes the file or syncs it.
    Caller,
    /// The file's next sync: the caller has nothing to do with it.
    NextSync,
}

impl Account {
    /// Keeps an error that is not the caller's, before a thread that waits for what failed goes on. The caller sees
    /// that there was one.
    pub(crate) fn of<T>(self, file: &Opened, outcome: io::Result<T>) -> io::Result<T> {
        outcome.map_err(|error| {
            if self == Account::Caller {
                return error;
            }
            let seen = error.kind().into();
            file.refusal.keep(&error);
            seen
        })
    }
}
