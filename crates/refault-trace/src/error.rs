//! What can be wrong with a trace: which file, where in it, and why, in one line.
//!
//! ```
//! use refault_trace::{Options, Source};
//!
//! let Err(error) = Source::file("no-such-trace.u64", Options::default()).open() else { panic!("there is no such file")
//! }; assert!(error.to_string().contains("no-such-trace.u64"));
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Where in a file something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Bytes from the start, of the decompressed data if the file is compressed.
    Offset(u64),
    /// Line, from 1.
    Line(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Offset(offset) => write!(f, "offset {offset}"),
            Place::Line(line) => write!(f, "line {line}"),
        }
    }
}

/// A trace could not be read or written. Its text is one line that names the file, the place and the reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened or created.
    #[error("{}: {}", shown(.file), plain(.source))]
    Open {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Not something with a beginning and an end.
    #[error("{}: {reason}", shown(.file))]
    Unsuitable {
        /// The file.
        file: PathBuf,
        /// What it is instead, and what to do.
        reason: String,
    },
    /// The system or the decompressor failed in the middle.
    #[error("{}: {place}: {}", shown(.file), plain(.source))]
    Io {
        /// The file.
        file: PathBuf,
        /// Where.
        place: Place,
        /// What the system or the decompressor says.
        source: io::Error,
    },
    /// The contents are not what the format allows.
    #[error("{}: {place}: {reason}", shown(.file))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Where.
        place: Place,
        /// What is wrong, and what was expected.
        reason: String,
    },
    /// The contents would grow beyond a limit of [`crate::Limits`].
    #[error("{}: {place}: {reason}", shown(.file))]
    Limit {
        /// The file.
        file: PathBuf,
        /// Where.
        place: Place,
        /// Which limit and by how much.
        reason: String,
    },
    /// A workload specification is wrong.
    #[error("workload '{}': {}", printable(.spec), printable(.reason))]
    Workload {
        /// The specification as given.
        spec: String,
        /// Which key, and what it may be.
        reason: String,
    },
}

impl TraceError {
    pub(crate) fn malformed(file: &Path, place: Place, reason: impl Into<String>) -> TraceError {
        TraceError::Malformed { file: file.to_owned(), place, reason: reason.into() }
    }

    pub(crate) fn limit(file: &Path, place: Place, reason: impl Into<String>) -> TraceError {
        TraceError::Limit { file: file.to_owned(), place, reason: reason.into() }
    }

    pub(crate) fn unsuitable(file: &Path, reason: impl Into<String>) -> TraceError {
        TraceError::Unsuitable { file: file.to_owned(), reason: reason.into() }
    }
}

/// The system's words without their number, on one line.
fn plain(error: &io::Error) -> String {
    let text = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    printable(&text)
}

fn shown(file: &Path) -> String {
    printable(&file.to_string_lossy())
}

/// Text on one line: control characters are written as escapes.
pub(crate) fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_debug().collect() } else { vec![c] };
    text.chars().flat_map(escape).collect()
}

/// Text from a file, shortened and made harmless for a terminal.
pub(crate) fn quote(bytes: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text: String = String::from_utf8_lossy(bytes).chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if bytes.len() > SHOWN { format!("'{text}…'") } else { format!("'{text}'") }
}
