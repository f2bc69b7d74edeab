//! Files that a program, its children and what they execute append to together.
//!
//! Each piece is appended by one write, which file systems do not mix with others'. No lock is held across a fork.

use std::fs::File;
use std::io;
use std::path::Path;

pub(crate) struct Output(File);

impl Output {
    pub(crate) fn open(path: &Path) -> io::Result<Output> {
        Ok(Output(File::options().create(true).append(true).open(path)?))
    }

    /// Appends a piece. What cannot be written is lost: the program is more important than what is said of it.
    pub(crate) fn append(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match rustix::io::write(&self.0, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}
