//! One file is one file: what is opened again, by whatever name, is what is open already.
//!
//! A file of the system is known by its device and number, and a block device by its own number. Handles of it share its
//! pages, what waits to be written, its length and what its device has refused; each has its own rights, advice and
//! streams. Who opens a file whose last handle is being closed waits until it is: what waited of it is written then, and its
//! number may be another file's.
//!
//! Invariant: an entry is there from the first handle's opening to the end of the last one's closing. Cost: a lock and a
//! look-up for each opening and closing, and some 100 bytes per open file.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex};

use crate::io::key::Key;
use crate::io::opened::Opened;

const UNBROKEN: &str = "invariant: nothing panics under this lock";

enum Entry {
    Open(Arc<Opened>, usize),
    /// The last handle is being closed.
    Closing,
}

/// The files that are open.
#[derive(Default)]
pub(crate) struct Known {
    entries: Mutex<HashMap<Key, Entry>>,
    closed: Condvar,
}

impl Known {
    /// The open file of a key, with one handle more, after `joins` has been done to it; or what `opens` makes, as the first.
    pub(crate) fn open(
        &self,
        key: Key,
        joins: impl FnOnce(&Arc<Opened>),
        opens: impl FnOnce() -> io::Result<Arc<Opened>>,
    ) -> io::Result<Arc<Opened>> {
        let mut entries = self.entries.lock().expect(UNBROKEN);
        loop {
            match entries.get_mut(&key) {
                Some(Entry::Open(opened, handles)) => {
                    joins(opened);
                    *handles += 1;
                    return Ok(opened.clone());
                }
                Some(Entry::Closing) => entries = self.closed.wait(entries).expect(UNBROKEN),
                None => {
                    let opened = opens()?;
                    entries.insert(key, Entry::Open(opened.clone(), 1));
                    return Ok(opened);
                }
            }
        }
    }

    /// A handle is closed. Whether it was the last: then [`Known::closed`] has to follow.
    pub(crate) fn leave(&self, key: Key) -> bool {
        let mut entries = self.entries.lock().expect(UNBROKEN);
        match entries.get_mut(&key) {
            Some(Entry::Open(_, handles)) if *handles > 1 => {
                *handles -= 1;
                false
            }
            _ => {
                entries.insert(key, Entry::Closing);
                true
            }
        }
    }

    /// The last handle is closed.
    pub(crate) fn closed(&self, key: Key) {
        self.entries.lock().expect(UNBROKEN).remove(&key);
        self.closed.notify_all();
    }
}
