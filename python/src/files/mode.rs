//! Modes of files, as `io.FileIO` has them: one of `r`, `w`, `a` and `x`, with `+` and `b` or without.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What happens to a file when it is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// It must exist.
    Keep,
    /// It is made, or loses what it has.
    Empty,
    /// It is made if there is none; each write goes to its end.
    Append,
    /// It must not exist.
    New,
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    begin: Begin,
    /// Whether it may be read.
    pub reads: bool,
    /// Whether it may be written.
    pub writes: bool,
}

impl Mode {
    /// `rb`.
    pub const READ: Mode = Mode { begin: Begin::Keep, reads: true, writes: false };

    /// ValueError if it is none.
    pub fn of(text: &str) -> PyResult<Mode> {
        let wrong = || {
            PyValueError::new_err(format!(
                "mode {text:?}: choose from 'rb', 'wb', 'ab' and 'xb', with '+' for both ways; a cached file is binary"
            ))
        };
        let (mut begin, mut plus) = (None, false);
        for letter in text.chars() {
            let said = match letter {
                'r' => Begin::Keep,
                'w' => Begin::Empty,
                'a' => Begin::Append,
                'x' => Begin::New,
                '+' if !plus => {
                    plus = true;
                    continue;
                }
                'b' => continue,
                _ => return Err(wrong()),
            };
            if begin.replace(said).is_some() {
                return Err(wrong());
            }
        }
        let begin = begin.ok_or_else(wrong)?;
        Ok(Mode { begin, reads: plus || begin == Begin::Keep, writes: plus || begin != Begin::Keep })
    }

    /// As `io.FileIO` says it.
    pub fn text(self) -> &'static str {
        match (self.begin, self.reads, self.writes) {
            (Begin::New, false, _) => "xb",
            (Begin::New, true, _) => "xb+",
            (Begin::Append, false, _) => "ab",
            (Begin::Append, true, _) => "ab+",
            (_, true, true) => "rb+",
            (_, true, false) => "rb",
            (_, false, _) => "wb",
        }
    }

    /// Whether each write goes to the end.
    pub fn appends(self) -> bool {
        self.begin == Begin::Append
    }

    /// Whether what is in the file goes.
    pub fn empties(self) -> bool {
        self.begin == Begin::Empty
    }

    /// Whether a file that is not there is made.
    pub fn makes(self) -> bool {
        self.begin != Begin::Keep
    }

    /// Whether it must not be there.
    pub fn is_new(self) -> bool {
        self.begin == Begin::New
    }

    /// Makes the file, which was not there a moment ago. False if another program was first, or if what it is called leads on to
    /// a name that was free.
    pub fn make(self, path: &Path) -> io::Result<bool> {
        let mut options = OpenOptions::new();
        // The cache reads what is written in part. A pipe without a reader would keep us waiting.
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !self.is_new() => {
                // Only a symbolic link is there without being there.
                if path.exists() { Ok(false) } else { options.create(true).open(path).map(|_| false) }
            }
            outcome => outcome.map(|_| true),
        }
    }
}
