//! Bytes on their way between a cached file and Python.

use std::path::Path;
use std::sync::Arc;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use refault::cache::{CachedFile, ReadError, WriteError};

use super::Source;
use crate::errors::{os_error, os_error_from, refused};
use crate::foreign::raised;
use crate::work::wait;

/// As many bytes that are in memory are copied without letting go of the interpreter's lock, which costs as much as
/// copying them.
const MAX_ATTACHED: usize = 16 << 10;

/// Bytes that are asked for together of a file that Python reads.
const PART: usize = 8 << 20;

/// Reads from an offset on; the bytes read. The interpreter's lock is let go of unless the bytes are few and in memory.
pub(super) fn fill(
    py: Python<'_>,
    source: &Source,
    path: Option<&Path>,
    buffer: &mut [u8],
    offset: u64,
) -> PyResult<usize> {
    let file = &source.file;
    let few = buffer.len().min(MAX_ATTACHED);
    let found = file.read_found_at(&mut buffer[..few], offset);
    if found == buffer.len() || offset.saturating_add(found as u64) >= file.len() {
        return Ok(found);
    }
    let (rest, from) = (&mut buffer[found..], offset + found as u64);
    if source.is_foreign {
        return fill_in_parts(py, file, rest, from).map(|read| found + read);
    }
    let read = py.detach(|| file.read_at(rest, from));
    read.map(|read| found + read).map_err(|error| read_error(py, error, path))
}

/// Reads what Python reads for the cache, in parts that end at multiples of [`PART`]. Each is read into bytes of its own,
/// because after Ctrl-C the read may go on when the buffer is gone: so no more than a part is held twice, and no
/// request goes on for longer than a part takes.
fn fill_in_parts(py: Python<'_>, file: &Arc<CachedFile>, buffer: &mut [u8], offset: u64) -> PyResult<usize> {
    let (mut done, mut bytes) = (0, Vec::new());
    while done < buffer.len() {
        let at = offset + done as u64;
        let left = usize::try_from(file.len().saturating_sub(at)).unwrap_or(usize::MAX).min(buffer.len() - done);
        let length = left.min(PART - (at % PART as u64) as usize);
        let (file, mut part) = (file.clone(), std::mem::take(&mut bytes));
        let (read, part) = wait(py, move || {
            part.resize(length, 0);
            (file.read_at(&mut part, at), part)
        })?;
        // What Python reads has no path here.
        let read = read.map_err(|error| read_error(py, error, None))?;
        buffer[done..done + read].copy_from_slice(&part[..read]);
        done += read;
        bytes = part;
        if read < length || length == 0 {
            break;
        }
    }
    Ok(done)
}

/// The number of an error that the cache found, not the system.
fn number(error: &ReadError) -> Option<i32> {
    match error {
        ReadError::Short { .. } => Some(libc::EIO),
        ReadError::NoRoom => Some(libc::ENOMEM),
        ReadError::TooManyPages => Some(libc::EFBIG),
        _ => None,
    }
}

fn numbered(number: Option<i32>, sentence: String, path: Option<&Path>) -> PyErr {
    match number {
        Some(number) => refused(number, sentence, path),
        None => PyOSError::new_err(sentence),
    }
}

pub(super) fn read_error(py: Python<'_>, error: ReadError, path: Option<&Path>) -> PyErr {
    match &error {
        ReadError::Io { offset, error: source } => match raised(source) {
            Some(cause) => os_error_from(py, cause, &format!("reading the page at byte {offset}")),
            None => os_error(source, error.to_string(), path),
        },
        _ => numbered(number(&error), error.to_string(), path),
    }
}

pub(super) fn write_error(error: WriteError, path: Option<&Path>) -> PyErr {
    match &error {
        WriteError::Io { error: source, .. } | WriteError::Read(ReadError::Io { error: source, .. }) => {
            os_error(source, error.to_string(), path)
        }
        WriteError::Read(found) => numbered(number(found), error.to_string(), path),
        WriteError::NotForWriting { .. } => refused(libc::EBADF, error.to_string(), path),
        _ => PyOSError::new_err(error.to_string()),
    }
}
