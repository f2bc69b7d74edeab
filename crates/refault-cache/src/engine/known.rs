//! One file is one file: what is opened again, by whatever name, is what is open already.
//!
//! A file of the system is known by its device and number, and a block device by its own number. Handles of it share
//! its pages, what waits to be written, its length and what its device has refused; each has its own rights, advice and
//! streams. Who opens a file whose last handle is being closed waits until it is: what waited of it is written then,
//! and its number may be another file's.
//!
//! Pages may be kept beyond that ([`crate::KeptPages`]): such a handle reads nothing, and when there are only these,
//! the file's descriptor is closed until it is opened again.
//!
//! Invariant: an entry is there from the first handle's opening to the end of the last one's closing. Cost: a lock and
//! a look-up for each opening and closing, and some 100 bytes per open file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex};

use foldhash::fast::RandomState;

use crate::io::direct::DirectFile;
use crate::io::key::Key;
use crate::io::opened::Opened;

const UNBROKEN: &str = "invariant: nothing panics under this lock";

enum Entry {
    Open {
        opened: Arc<Opened>,
        handles: usize,
        /// How many of them only keep pages.
        keeping: usize,
    },
    /// The last handle is being closed.
    Closing,
}

/// What there is of a file when a handle was closed.
pub(crate) enum Left {
    /// Other handles; and what is to be closed, if they only keep pages.
    Others(Vec<Arc<File>>),
    /// No other handle: [`Known::closed`] has to follow.
    None,
    /// No other handle, and nothing more to be done.
    Nothing,
}

/// The files that are open.
#[derive(Default)]
pub(crate) struct Known {
    files: Mutex<Files>,
    closed: Condvar,
}

#[derive(Default)]
struct Files {
    entries: HashMap<Key, Entry, RandomState>,
    /// Threads that wait for a file to be closed: where there are none, the system is not asked to wake any.
    waiting: u32,
}

impl Known {
    /// The open file of a key, with one handle more, after `joins` has been done to it; or what `opens` makes, as the
    /// first.
    pub(crate) fn open(
        &self,
        key: Key,
        joins: impl FnOnce(&Arc<Opened>),
        opens: impl FnOnce() -> io::Result<Arc<Opened>>,
    ) -> io::Result<Arc<Opened>> {
        let mut files = self.files.lock().expect(UNBROKEN);
        loop {
            match files.entries.get_mut(&key) {
                Some(Entry::Open { opened, handles, .. }) => {
                    joins(opened);
                    *handles += 1;
                    return Ok(opened.clone());
                }
                Some(Entry::Closing) => {
                    files.waiting += 1;
                    files = self.closed.wait(files).expect(UNBROKEN);
                    files.waiting -= 1;
                }
                None => {
                    let opened = opens()?;
                    files.entries.insert(key, Entry::Open { opened: opened.clone(), handles: 1, keeping: 0 });
                    return Ok(opened);
                }
            }
        }
    }

    /// A handle more, of an open file, that only keeps its pages.
    pub(crate) fn keep(&self, key: Key) {
        if let Some(Entry::Open { handles, keeping, .. }) = self.files.lock().expect(UNBROKEN).entries.get_mut(&key) {
            *handles += 1;
            *keeping += 1;
        }
    }

    /// A handle is closed, and what that leaves. `is_empty` says of a file without other handles that it has nothing to
    /// be waited for, and forgets it; `is_durable` of one whose other handles only keep pages that it has nothing to be
    /// written.
    pub(crate) fn leave(
        &self,
        key: Key,
        keeps: bool,
        is_empty: impl FnOnce(&Arc<Opened>) -> bool,
        is_durable: impl FnOnce(&Arc<Opened>) -> bool,
    ) -> Left {
        let mut files = self.files.lock().expect(UNBROKEN);
        match files.entries.get_mut(&key) {
            Some(Entry::Open { opened, handles, keeping }) if *handles > 1 => {
                *handles -= 1;
                *keeping -= usize::from(keeps);
                let is_idle = handles == keeping && is_durable(opened);
                let direct = opened.backing.direct().filter(|_| is_idle);
                Left::Others(direct.map_or_else(Vec::new, DirectFile::let_go))
            }
            Some(Entry::Open { opened, .. }) if is_empty(opened) => {
                files.entries.remove(&key);
                // None waits: it was not closing.
                Left::Nothing
            }
            Some(entry) => {
                *entry = Entry::Closing;
                Left::None
            }
            None => Left::None,
        }
    }

    /// The last handle is closed.
    pub(crate) fn closed(&self, key: Key) {
        let mut files = self.files.lock().expect(UNBROKEN);
        files.entries.remove(&key);
        if files.waiting > 0 {
            self.closed.notify_all();
        }
    }
}
