//! An open file, as Python's half knows it.

use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use refault::cache::CachedFile;

use super::plain::Plain;
use super::position::Turn;
use super::transfer::{fill, read_error, write_error};
use super::view::View;
use super::{KeptPages, Origin, Source};
use crate::buffers::{Readable, Writable};
use crate::ends::{generation, is_left, let_go};
use crate::errors::{os_error, refused, unsupported, words};
use crate::work::wait;

/// Bytes in which the end of a line is looked for, from the first look to the last.
const LINE_PARTS: std::ops::RangeInclusive<usize> = 256..=16 << 10;

/// An open file and a position in it.
#[pyclass(frozen, module = "refault._refault")]
pub struct File {
    /// Only locked with the interpreter's lock held, so that no fork of Python finds it locked.
    here: RwLock<Option<Here>>,
    origin: Arc<Origin>,
    /// Only changed by the thread whose turn it is.
    at: AtomicU64,
    /// Through the kernel's cache, for those that ask for a descriptor. Only locked with the interpreter's lock held.
    plain: Mutex<Option<Arc<Plain>>>,
    /// Others may have the descriptor, and change the file by it.
    is_lent: AtomicBool,
    /// Something was written by it since it was last made durable.
    has_written: AtomicBool,
}

/// What is read in this process, and whose turn it is to move the position.
#[derive(Clone)]
struct Here {
    source: Source,
    turn: Arc<Turn>,
}

impl Here {
    fn of(source: Source) -> Here {
        Here { source, turn: Arc::default() }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(here) = self.here.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let is_left = is_left(here.source.generation, here.source.is_foreign);
            let_go(here.source, is_left);
        }
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on closed file")
}

impl File {
    pub(super) fn sharing(source: Source, origin: Arc<Origin>) -> File {
        let at = if origin.mode.appends() { source.file.len() } else { 0 };
        File {
            here: RwLock::new(Some(Here::of(source))),
            origin,
            at: AtomicU64::new(at),
            plain: Mutex::default(),
            is_lent: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
        }
    }

    /// Of the file, unless Python reads it.
    fn path(&self) -> Option<&Path> {
        self.origin.path.as_deref()
    }

    fn known(&self) -> Option<Here> {
        self.here.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is open in this process: in a child of a fork it is opened again.
    fn here(&self, py: Python<'_>) -> PyResult<Here> {
        let here = self.known().ok_or_else(closed)?;
        if here.source.generation == generation() {
            return Ok(here);
        }
        std::mem::forget(here);
        let new = Here::of(self.origin.reopen(py)?);
        let mut known = self.here.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread of the child may have been first, or have closed it.
        match known.as_ref().map(|known| known.source.generation == generation()) {
            Some(false) => {
                std::mem::forget(known.replace(new.clone()));
                Ok(new)
            }
            _ => {
                let first = known.clone();
                drop(known);
                let_go(new.source, false);
                first.ok_or_else(closed)
            }
        }
    }

    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&Arc<CachedFile>) -> PyResult<T>) -> PyResult<T> {
        self.with_here(py, |here| work(&here.source.file))
    }

    fn with_here<T>(&self, py: Python<'_>, work: impl FnOnce(&Here) -> PyResult<T>) -> PyResult<T> {
        // The lock is not held during the work: who closes the file would wait for it, and others for who closes.
        let here = self.here(py)?;
        let outcome = self.follow(py, &here.source).and_then(|()| work(&here));
        let is_left = is_left(here.source.generation, here.source.is_foreign);
        if let Some(last) = Arc::into_inner(here.source.file) {
            let_go(last, is_left);
        }
        outcome
    }

    /// Takes up what was done to the file through a descriptor that was lent.
    fn follow(&self, py: Python<'_>, source: &Source) -> PyResult<()> {
        if !self.is_lent.load(Ordering::Relaxed) {
            return Ok(());
        }
        let outcome = py.detach(|| source.file.reload_if_changed());
        outcome.map(|_| ()).map_err(|error| self.failed(&error))
    }

    /// Does what moves the position: `work` is given it, and answers where it is afterwards. Others wait.
    fn moving<T>(&self, py: Python<'_>, work: impl FnOnce(&Source, u64) -> PyResult<(T, u64)>) -> PyResult<T> {
        self.with_here(py, |here| {
            let taken = here.turn.take(py)?;
            if taken.was_waited_for && self.known().is_none() {
                return Err(closed());
            }
            let lent = self.lent();
            let at = lent.as_ref().map_or_else(|| self.at.load(Ordering::Relaxed), |(_, at)| *at);
            let (outcome, to) = work(&here.source, at)?;
            self.at.store(to, Ordering::Relaxed);
            if let Some((plain, _)) = lent {
                plain.move_to(to);
            }
            Ok(outcome)
        })
    }

    /// The descriptor that was lent, and where it stands: who has it moves the position, as that of a file of Python's own.
    fn lent(&self) -> Option<(Arc<Plain>, u64)> {
        if !self.is_lent.load(Ordering::Relaxed) {
            return None;
        }
        let plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let at = plain.position()?;
        Some((plain, at))
    }

    fn check_reads(&self, py: Python<'_>) -> PyResult<()> {
        let mode = self.origin.mode;
        let refused = || unsupported(py, format!("File not open for reading: its mode is '{}'", mode.text()));
        if mode.reads { Ok(()) } else { Err(refused()) }
    }

    /// Before it is written.
    fn check_writes(&self, py: Python<'_>) -> PyResult<()> {
        let mode = self.origin.mode;
        let refused = || {
            unsupported(
                py,
                format!("File not open for writing: its mode is '{}'; 'r+b' opens it for both", mode.text()),
            )
        };
        if !mode.writes {
            return Err(refused());
        }
        self.has_written.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn bytes<'py>(
        &self,
        py: Python<'py>,
        source: &Source,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let length = length.min(usize::try_from(source.file.len().saturating_sub(offset)).unwrap_or(usize::MAX));
        let mut found = 0;
        let bytes = PyBytes::new_with(py, length, |buffer| {
            found = fill(py, source, self.path(), buffer, offset)?;
            Ok(())
        })?;
        // The file may have been cut short meanwhile.
        Ok(if found == length { bytes } else { PyBytes::new(py, &bytes.as_bytes()[..found]) })
    }

    /// A refusal of the system that it did not say itself.
    fn refused(&self, number: i32, why: &str) -> PyErr {
        refused(number, format!("{}: {why}", words(&io::Error::from_raw_os_error(number))), self.path())
    }

    /// The file through the kernel's cache. What was written is there: writes go through.
    fn plain(&self, py: Python<'_>, source: &Source) -> PyResult<Arc<Plain>> {
        let Some(path) = self.path() else {
            return Err(unsupported(py, "a file of a store has no descriptor".to_owned()));
        };
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plain) = &*plain {
            return Ok(plain.clone());
        }
        let opened = Plain::open(self.origin.mode, &source.file, path).map_err(|error| self.failed(&error))?;
        Ok(plain.insert(Arc::new(opened)).clone())
    }

    /// What the system said.
    fn failed(&self, error: &io::Error) -> PyErr {
        os_error(error, words(error), self.path())
    }

    /// Writes to the end, wherever that is by now: the kernel finds it, as others may append, too. The bytes written, and where
    /// they end.
    fn append(&self, py: Python<'_>, source: &Source, bytes: &[u8]) -> PyResult<(usize, u64)> {
        let plain = self.plain(py, source)?;
        let appended = py.detach(|| {
            // A block device is not appended to: what is written goes where the descriptor stands.
            (&mut plain.file()).seek(SeekFrom::End(0))?;
            let written = (&mut plain.file()).write(bytes)?;
            let end = (&mut plain.file()).stream_position()?;
            source.file.reload_if_changed()?;
            Ok((written, end))
        });
        appended.map_err(|error| self.failed(&error))
    }

    /// Where data (3) or a hole (4) begins, from an offset on.
    fn seek_in(&self, py: Python<'_>, source: &Source, offset: i64, whence: i32) -> PyResult<u64> {
        let length = source.file.len();
        if source.is_foreign {
            let is_in = u64::try_from(offset).is_ok_and(|offset| offset < length);
            return match (is_in, whence == libc::SEEK_DATA) {
                (false, _) => Err(self.refused(libc::ENXIO, "the position is not in the file")),
                (true, true) => Ok(offset.unsigned_abs()),
                (true, false) => Ok(length),
            };
        }
        let plain = self.plain(py, source)?;
        // SAFETY: a call on a descriptor that lives as long as `plain`; it touches no memory.
        let to = unsafe { libc::lseek64(plain.file().as_raw_fd(), offset, whence) };
        u64::try_from(to).map_err(|_| self.failed(&io::Error::last_os_error()))
    }
}

#[pymethods]
impl File {
    /// Bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |file| Ok(file.len()))
    }

    /// As `io.FileIO` says it.
    #[getter]
    fn mode(&self) -> &'static str {
        self.origin.mode.text()
    }

    /// Whether it was opened for reading.
    #[getter]
    fn reads(&self) -> bool {
        self.origin.mode.reads
    }

    /// Whether it was opened for writing.
    #[getter]
    fn writes(&self) -> bool {
        self.origin.mode.writes
    }

    /// The same file at a position of its own; what is cached stays until both are closed.
    fn again(&self, py: Python<'_>) -> PyResult<File> {
        self.with_here(py, |here| Ok(File::sharing(here.source.clone(), self.origin.clone())))
    }

    /// What keeps its pages in the cache when it is closed; none where Python reads it.
    fn keep_pages(&self, py: Python<'_>) -> PyResult<Option<KeptPages>> {
        self.with(py, |file| Ok(py.detach(|| file.keep_pages()).map(KeptPages::new)))
    }

    /// Moves to a number of bytes from the beginning (0), the position (1) or the end (2), or to data (3) or a hole (4); the
    /// position.
    fn seek(&self, py: Python<'_>, offset: &Bound<'_, PyAny>, whence: i32) -> PyResult<u64> {
        self.moving(py, |source, at| {
            let offset = offset.extract::<i64>()?;
            let start = match whence {
                libc::SEEK_SET => 0,
                libc::SEEK_CUR => at,
                libc::SEEK_END => source.file.len(),
                libc::SEEK_DATA | libc::SEEK_HOLE => {
                    return self.seek_in(py, source, offset, whence).map(|to| (to, to));
                }
                _ => return Err(self.refused(libc::EINVAL, &format!("whence is from 0 to 4, not {whence}"))),
            };
            let to = start.checked_add_signed(offset).filter(|to| i64::try_from(*to).is_ok());
            to.map(|to| (to, to)).ok_or_else(|| {
                let to = i128::from(start) + i128::from(offset);
                self.refused(
                    libc::EINVAL,
                    &match to < 0 {
                        true => format!("position {to} is before the beginning"),
                        false => format!("position {to} is beyond what a file can have"),
                    },
                )
            })
        })
    }

    /// The position.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.moving(py, |_, at| Ok((at, at)))
    }

    /// Up to a number of bytes from the position on, all to the end if the number is negative.
    fn read<'py>(&self, py: Python<'py>, length: i64) -> PyResult<Bound<'py, PyBytes>> {
        self.moving(py, |source, at| {
            self.check_reads(py)?;
            let bytes = self.bytes(py, source, at, usize::try_from(length).unwrap_or(usize::MAX))?;
            let to = at + bytes.as_bytes().len() as u64;
            Ok((bytes, to))
        })
    }

    /// Up to a number of bytes from the position on, which stays.
    fn peek<'py>(&self, py: Python<'py>, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.moving(py, |source, at| {
            self.check_reads(py)?;
            Ok((self.bytes(py, source, at, length)?, at))
        })
    }

    /// From the position to the end of the line, or of the file, or `length` bytes if that is not negative.
    fn readline<'py>(&self, py: Python<'py>, length: i64) -> PyResult<Bound<'py, PyBytes>> {
        self.moving(py, |source, at| {
            let most = usize::try_from(length).unwrap_or(usize::MAX);
            // Python's own read nothing then, and so do not find that they may not.
            if most > 0 {
                self.check_reads(py)?;
            }
            let (mut line, mut part) = (Vec::new(), *LINE_PARTS.start());
            while line.len() < most {
                let (known, wanted) = (line.len(), part.min(most - line.len()));
                line.resize(known + wanted, 0);
                let found = fill(py, source, self.path(), &mut line[known..], at + known as u64)?;
                let end = line[known..known + found].iter().position(|byte| *byte == b'\n');
                line.truncate(known + end.map_or(found, |end| end + 1));
                if end.is_some() || found < wanted {
                    break;
                }
                part = (2 * part).min(*LINE_PARTS.end());
            }
            Ok((PyBytes::new(py, &line), at + line.len() as u64))
        })
    }

    /// Fills what lends its bytes to be written, from the position on; the bytes read.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut buffer = Writable::of(buffer)?;
        self.moving(py, |source, at| {
            self.check_reads(py)?;
            let read = fill(py, source, self.path(), buffer.bytes(), at)?;
            Ok((read, at + read as u64))
        })
    }

    /// Up to `length` bytes from an offset on.
    fn read_at<'py>(&self, py: Python<'py>, offset: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.with_here(py, |here| {
            self.check_reads(py)?;
            self.bytes(py, &here.source, offset, length)
        })
    }

    /// Bytes from an offset on where they lie, pinned, page by page; up to the end of the file.
    fn views(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<Vec<View>> {
        self.with_here(py, |here| {
            self.check_reads(py)?;
            let source = here.source.clone();
            let is_foreign = source.is_foreign;
            let pin = move || View::pin(&source, offset, length);
            let views = if is_foreign { wait(py, pin)? } else { py.detach(pin) };
            views.map_err(|error| read_error(py, error, self.path()))
        })
    }

    /// Writes what lends its bytes at the position, or at the end of a file that is appended to; the bytes written.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let lent = Readable::of(data)?;
        let bytes = lent.bytes();
        self.moving(py, |source, at| {
            self.check_writes(py)?;
            if bytes.is_empty() {
                return Ok((0, at));
            }
            if self.origin.mode.appends() {
                return self.append(py, source, bytes);
            }
            let written = py.detach(|| source.file.write_at(bytes, at));
            written.map_err(|error| write_error(error, self.path()))?;
            Ok((bytes.len(), at + bytes.len() as u64))
        })
    }

    /// Writes what lends its bytes at an offset.
    fn write_at(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let lent = Readable::of(data)?;
        let bytes = lent.bytes();
        self.with(py, |file| {
            self.check_writes(py)?;
            py.detach(|| file.write_at(bytes, offset))
                .map(|()| bytes.len())
                .map_err(|error| write_error(error, self.path()))
        })
    }

    /// Cuts the file off, or adds zeros, so that it has `size` bytes, or ends at the position; the bytes. The position stays.
    fn truncate(&self, py: Python<'_>, size: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.moving(py, |source, at| {
            self.check_writes(py)?;
            let bytes = size.extract::<Option<i64>>()?.map_or(Ok(at), u64::try_from);
            let bytes = bytes.map_err(|_| self.refused(libc::EINVAL, "a file has no negative length"))?;
            let cut = py.detach(|| source.file.set_len(bytes));
            cut.map_err(|error| self.failed(&error))?;
            Ok((bytes, at))
        })
    }

    /// A descriptor of the file through the kernel's cache, which has its position. It ends when the file is closed.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.moving(py, |source, at| {
            let plain = self.plain(py, source)?;
            (&mut plain.file()).seek(SeekFrom::Start(at)).map_err(|error| self.failed(&error))?;
            self.is_lent.store(true, Ordering::Relaxed);
            Ok((plain.file().as_raw_fd(), at))
        })
    }

    /// Drops what is cached of it, and asks for its length.
    fn reload(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |file| {
            let outcome = py.detach(|| file.reload());
            outcome.map_err(|error| os_error(&error, format!("cannot reload it: {}", words(&error)), self.path()))
        })
    }

    /// Makes durable what was written by this file since the last time, or may have been by the descriptor that was lent.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        if self.here.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Err(closed());
        }
        let may_be_by_others = self.origin.mode.writes && self.is_lent.load(Ordering::Relaxed);
        let is_due = self.has_written.swap(false, Ordering::Relaxed) || may_be_by_others;
        if !is_due {
            return Ok(());
        }
        let here = self.known().ok_or_else(closed)?;
        let is_left = here.source.generation != generation();
        // Nothing was written by a child of a fork.
        let outcome = if is_left { Ok(()) } else { py.detach(|| here.source.file.sync()) };
        let_go(here.source, is_left);
        outcome.map_err(|error| {
            self.has_written.store(true, Ordering::Relaxed);
            os_error(&error, format!("cannot make it durable: {error}"), self.path())
        })
    }

    /// Ends its use; what is cached of it goes.
    fn close(&self, py: Python<'_>) {
        let here = self.here.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(self.plain.lock().unwrap_or_else(PoisonError::into_inner).take());
        match here {
            Some(here) if is_left(here.source.generation, here.source.is_foreign) => std::mem::forget(here),
            // As by `let_go`.
            Some(here) => py.detach(move || drop(here)),
            None => {}
        }
    }
}
