//! Files that a program, its children and what they execute append to together.
//!
//! `refault` opens them and leaves the descriptors to the program, so that one that has changed its user or its root
//! goes on writing; where the descriptor was closed or replaced, the file is opened by its path. Without either the program
//! runs all the same, and a line says what is not written. Each piece is appended by one write, which file systems do
//! not mix with others'. No lock is held across a fork.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::FdFlags;

use crate::{Agent, descriptors};

/// Where a file is.
#[derive(Debug)]
pub(crate) struct Place {
    descriptor: RawFd,
    device: u64,
    inode: u64,
    path: PathBuf,
}

impl Place {
    /// Reads `DESCRIPTOR:DEVICE:INODE:PATH`.
    pub(crate) fn parse(text: &[u8]) -> Option<Place> {
        let mut parts = text.splitn(4, |byte| *byte == b':');
        let mut number = || std::str::from_utf8(parts.next()?).ok();
        let (descriptor, device, inode) = (number()?, number()?, number()?);
        Some(Place {
            descriptor: descriptor.parse().ok()?,
            device: device.parse().ok()?,
            inode: inode.parse().ok()?,
            path: PathBuf::from(OsString::from_vec(parts.next()?.to_vec())),
        })
    }

    /// The inherited descriptor, if it is there and still means this file: protected from now on, and handed on to what the
    /// program executes if `inherit`.
    pub(crate) fn take(&self, inherit: bool) -> Option<File> {
        let file = self.inherited()?;
        if !inherit {
            let _ = rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC);
        }
        descriptors::protect(self.descriptor);
        Some(file)
    }

    fn inherited(&self) -> Option<File> {
        // SAFETY: only looked at; it is taken for ours below, once it is known to be.
        let there = unsafe { libc::fcntl(self.descriptor, libc::F_GETFD) } != -1;
        if !there {
            return None;
        }
        // SAFETY: a number that is open; given back unclosed if it means something else.
        let file = unsafe { File::from_raw_fd(self.descriptor) };
        let same = rustix::fs::fstat(&file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, self.inode));
        if same {
            return Some(file);
        }
        std::mem::forget(file);
        None
    }
}

/// An open file, and whether anything could not be written to it.
pub(crate) struct Output(File, AtomicBool);

/// A place for one: opened at most once in a process, and not again in its forked children.
pub(crate) type Slot = OnceLock<Option<Output>>;

impl Output {
    /// The file of a slot, opened now if nobody has tried before. `what` begins the line that says why there is none.
    pub(crate) fn in_slot(slot: &'static Slot, agent: &Agent, place: &Place, what: &str) -> Option<&'static Output> {
        slot.get_or_init(|| match Output::open(place, agent.config.children) {
            Ok(output) => Some(output),
            Err(error) => {
                crate::forks::say(&format!(
                    "{what} of process {}: {}: {error}",
                    std::process::id(),
                    place.path.display()
                ));
                None
            }
        })
        .as_ref()
    }

    /// `inherit`: what the program executes inherits the descriptor in its turn.
    fn open(place: &Place, inherit: bool) -> io::Result<Output> {
        match place.take(inherit) {
            Some(file) => Ok(Output(file, AtomicBool::new(false))),
            None => Ok(Output(File::options().append(true).open(&place.path)?, AtomicBool::new(false))),
        }
    }

    /// Appends a piece. What cannot be written is lost, which is said once: the program is more important than what is
    /// said of it.
    pub(crate) fn append(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match rustix::io::write(&self.0, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    if !self.1.swap(true, Ordering::Relaxed) {
                        let pid = std::process::id();
                        crate::forks::say(&format!("what is written of process {pid} is incomplete: {error}"));
                    }
                    return;
                }
            }
        }
    }
}
