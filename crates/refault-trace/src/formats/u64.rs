//! `.u64`: entries of 8 bytes, little-endian, nothing else.
//!
//! A file is read, not mapped. A mapping of a file that is cut short while it is read ends the process by a signal.
//! Reading costs a copy of less than a nanosecond per entry.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use crate::error::{Place, TraceError};
use crate::input::Input;
use crate::reader::{BLOCK_ENTRIES, Details, TraceReader};
use crate::{Entry, Kind};

const ENTRY_BYTES: usize = size_of::<Entry>();

/// A reader for an input: straight from the file if it is a regular one and not compressed.
pub(crate) fn reader(mut input: Input, kind: Option<Kind>) -> Result<Box<dyn TraceReader>, TraceError> {
    match input.take_plain_file() {
        Some((file, bytes)) => Ok(Box::new(FileReader::new(input.path(), file, bytes, kind)?)),
        None => Ok(Box::new(StreamReader { input, kind: said(kind) })),
    }
}

/// Anonymous memory is what clear kind bits mean anyway.
fn said(kind: Option<Kind>) -> Option<Kind> {
    kind.filter(|kind| *kind != Kind::Anon)
}

fn details(kind: Option<Kind>) -> Details {
    let others = kind.unwrap_or(Kind::Anon).name();
    vec![("kind", format!("as each entry says; {others} where its kind bits are clear"))]
}

/// Reads a regular file.
struct FileReader {
    path: PathBuf,
    file: File,
    /// Length of the file when it was opened.
    length: u64,
    offset: u64,
    buffer: Vec<u8>,
    kind: Option<Kind>,
}

impl FileReader {
    fn new(path: &Path, mut file: File, length: u64, kind: Option<Kind>) -> Result<FileReader, TraceError> {
        let left = length % ENTRY_BYTES as u64;
        if left != 0 {
            return Err(truncated(path, length - left, length));
        }
        file.rewind().map_err(|source| TraceError::Open { file: path.to_owned(), source })?;
        Ok(FileReader { path: path.to_owned(), file, length, offset: 0, buffer: Vec::new(), kind: said(kind) })
    }
}

impl TraceReader for FileReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        let wanted = (self.length - self.offset).min((BLOCK_ENTRIES * ENTRY_BYTES) as u64) as usize;
        self.buffer.resize(wanted, 0);
        self.file.read_exact(&mut self.buffer).map_err(|source| {
            let place = Place::Offset(self.offset);
            if source.kind() == io::ErrorKind::UnexpectedEof {
                let reason = format!("the file was cut short while it was read; it had {} bytes", self.length);
                return TraceError::malformed(&self.path, place, reason);
            }
            TraceError::Io { file: self.path.clone(), place, source }
        })?;
        let (entries, _) = self.buffer.as_chunks::<ENTRY_BYTES>();
        out.extend(entries.iter().map(|bytes| Entry(u64::from_le_bytes(*bytes))));
        check_entries(out, &self.path, self.offset)?;
        apply_kinds(out, self.kind);
        self.offset += wanted as u64;
        Ok(out.len())
    }

    fn total(&self) -> Option<u64> {
        Some(self.length / ENTRY_BYTES as u64)
    }

    fn progress(&self) -> Option<f64> {
        Some(self.offset as f64 / self.length as f64)
    }

    fn details(&self) -> Details {
        details(self.kind)
    }
}

/// Reads compressed files and pipes.
struct StreamReader {
    input: Input,
    kind: Option<Kind>,
}

impl TraceReader for StreamReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        let start = self.input.offset();
        while out.len() < BLOCK_ENTRIES {
            let available = self.input.fill(ENTRY_BYTES)?;
            if available.len() < ENTRY_BYTES {
                if available.is_empty() {
                    break;
                }
                let left = available.len() as u64;
                let whole = self.input.offset();
                return Err(truncated(self.input.path(), whole, whole + left));
            }
            let (entries, _) = available.as_chunks::<ENTRY_BYTES>();
            let taken = entries.len().min(BLOCK_ENTRIES - out.len());
            out.extend(entries[..taken].iter().map(|bytes| Entry(u64::from_le_bytes(*bytes))));
            self.input.consume(taken * ENTRY_BYTES);
        }
        check_entries(out, self.input.path(), start)?;
        apply_kinds(out, self.kind);
        Ok(out.len())
    }

    fn total(&self) -> Option<u64> {
        Some(self.input.data_bytes()? / ENTRY_BYTES as u64)
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }

    fn details(&self) -> Details {
        details(self.kind)
    }
}

/// Fails at the first undefined entry; `offset` is where the first entry lies.
fn check_entries(entries: &[Entry], path: &Path, offset: u64) -> Result<(), TraceError> {
    let undefined = |entry: &Entry| entry.0 >> Entry::KIND_SHIFT > Kind::Mapped as u64;
    // Without an early exit the loop becomes vector code.
    if !entries.iter().fold(false, |any, entry| any | undefined(entry)) {
        return Ok(());
    }
    let index = entries.iter().position(undefined).expect("invariant: some entry is undefined");
    let entry = entries[index].0;
    let place = Place::Offset(offset + (index * size_of::<Entry>()) as u64);
    let reason = if entry >> (Entry::KIND_SHIFT + 2) != 0 {
        format!("entry {entry:#018x} has a reserved bit (59-63) set; is this a .u64 trace?")
    } else {
        format!("entry {entry:#018x} is of kind 3; kinds are 0 anonymous, 1 file by read(), 2 file by mmap")
    };
    Err(TraceError::malformed(path, place, reason))
}

/// Gives `kind`, if any, to the entries that do not say theirs.
pub(crate) fn apply_kinds(entries: &mut [Entry], kind: Option<Kind>) {
    let Some(kind) = kind else { return };
    for entry in entries {
        if entry.0 >> Entry::KIND_SHIFT == 0 {
            entry.0 |= (kind as u64) << Entry::KIND_SHIFT;
        }
    }
}

/// The data ends inside an entry that starts at `whole`.
fn truncated(path: &Path, whole: u64, end: u64) -> TraceError {
    let reason = format!(
        "truncated: {} bytes are left of an entry of {ENTRY_BYTES}; is this a .u64 trace, and is its end there?",
        end - whole
    );
    TraceError::malformed(path, Place::Offset(whole), reason)
}
