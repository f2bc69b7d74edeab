//! Files behind a page cache.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use refault::cache::{CacheOptions, CachedFile, MakeError, OpenError, PageCache, Pinned, ReadError, WriteError};

use crate::buffers::{Writable, array_interface};
use crate::errors::{os_error, os_error_from};
use crate::foreign::{Foreign, raised};
use crate::work::wait;

/// So many bytes that are in memory are copied without letting go of the interpreter's lock, which costs as much as
/// copying them.
const MAX_ATTACHED: usize = 16 << 10;

/// Bytes that are asked for together of a file that Python reads.
const PART: usize = 8 << 20;

/// A page cache, shared by any number of files.
#[pyclass(frozen, module = "refault._refault")]
pub struct Cache(PageCache);

#[pymethods]
impl Cache {
    #[new]
    fn new(memory: u64, policy: Option<String>) -> PyResult<Cache> {
        let defaults = CacheOptions::default();
        let options = CacheOptions { memory, policy: policy.unwrap_or(defaults.policy), ..CacheOptions::default() };
        PageCache::new(&options).map(Cache).map_err(|error| match &error {
            MakeError::Memory(source) | MakeError::Statistics { error: source, .. } => {
                os_error(source, error.to_string())
            }
            _ => PyValueError::new_err(error.to_string()),
        })
    }

    /// Opens a file, which must exist.
    fn open(&self, py: Python<'_>, path: PathBuf) -> PyResult<File> {
        let file = py.detach(|| self.0.open(&path)).map_err(|error| match &error {
            OpenError::Io { error: source, .. } => os_error(source, error.to_string()),
            _ => PyOSError::new_err(error.to_string()),
        })?;
        Ok(File::of(file, false))
    }

    /// Puts the cache above bytes that a call of Python reads: `read(offset, length)`.
    fn attach(&self, py: Python<'_>, read: Py<PyAny>, length: u64) -> PyResult<File> {
        let file = py.detach(|| self.0.attach(Box::new(Foreign { read, length })));
        file.map(|file| File::of(file, true)).map_err(|error| os_error(&error, error.to_string()))
    }

    /// Counts since the start, and bytes now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = py.detach(|| self.0.report());
        let stats = PyDict::new(py);
        stats.set_item("memory_bytes", report.memory_bytes)?;
        stats.set_item("resident_bytes", report.resident_bytes)?;
        stats.set_item("metadata_bytes", report.metadata_bytes)?;
        stats.set_item("hits", report.hits)?;
        stats.set_item("misses", report.misses)?;
        stats.set_item("read_ahead", report.read_ahead)?;
        stats.set_item("written", report.written)?;
        let asked = report.hits + report.misses;
        stats.set_item("hit_ratio", if asked == 0 { 0.0 } else { report.hits as f64 / asked as f64 })?;
        Ok(stats)
    }
}

/// What is read.
#[derive(Clone)]
struct Source {
    file: Arc<CachedFile>,
    /// Python reads it, from what may be slow to answer: Ctrl-C must be heard meanwhile.
    is_foreign: bool,
}

/// An open file and a position in it.
#[pyclass(frozen, module = "refault._refault")]
pub struct File {
    file: RwLock<Option<Source>>,
    at: AtomicU64,
}

/// Lets go of something without the interpreter's lock: a file that ends waits for reads that are under way, and they
/// may be Python's.
fn drop_detached<T: Send>(last: T) {
    let mut last = Some(last);
    Python::try_attach(|py| {
        let last = last.take();
        py.detach(move || drop(last));
    });
}

impl Drop for File {
    fn drop(&mut self) {
        drop_detached(self.file.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take());
    }
}

/// A range of a file, pinned. Holds the file, so that the pages have a place.
struct Held {
    /// Goes before the file.
    pinned: Option<Pinned<'static>>,
    _file: Arc<CachedFile>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pinned = None;
    }
}

/// Bytes of a file where they lie in the cache: within one page. They stay as long as the last view of their range.
#[pyclass(frozen, module = "refault._refault")]
pub struct View {
    address: usize,
    bytes: usize,
    held: Mutex<Option<Arc<Held>>>,
}

#[pymethods]
impl View {
    /// NumPy's protocol (version 3): an array over these bytes keeps this object alive.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface(py, self.address, self.bytes, true)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        drop_detached(self.held.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take());
    }
}

impl File {
    fn of(file: CachedFile, is_foreign: bool) -> File {
        File::sharing(Source { file: Arc::new(file), is_foreign })
    }

    fn sharing(source: Source) -> File {
        File { file: RwLock::new(Some(source)), at: AtomicU64::new(0) }
    }

    fn with<T>(&self, work: impl FnOnce(&Arc<CachedFile>) -> PyResult<T>) -> PyResult<T> {
        self.with_source(|source| work(&source.file))
    }

    fn with_source<T>(&self, work: impl FnOnce(&Source) -> PyResult<T>) -> PyResult<T> {
        // The lock is not held during the work: who closes the file would wait for it, and others for who closes.
        let source = self.file.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let Some(source) = source else { return Err(PyValueError::new_err("I/O operation on closed file")) };
        let outcome = work(&source);
        if let Some(last) = Arc::into_inner(source.file) {
            drop_detached(last);
        }
        outcome
    }
}

/// Reads from an offset on; the bytes read. The interpreter's lock is let go of unless the bytes are few and in memory.
fn fill(py: Python<'_>, source: &Source, buffer: &mut [u8], offset: u64) -> PyResult<usize> {
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
    read.map(|read| found + read).map_err(|error| read_error(py, error))
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
        let read = read.map_err(|error| read_error(py, error))?;
        buffer[done..done + read].copy_from_slice(&part[..read]);
        done += read;
        bytes = part;
        if read < length || length == 0 {
            break;
        }
    }
    Ok(done)
}

fn read_error(py: Python<'_>, error: ReadError) -> PyErr {
    match &error {
        ReadError::Io { error: source, .. } => match raised(source) {
            Some(cause) => os_error_from(py, cause, error.to_string()),
            None => os_error(source, error.to_string()),
        },
        #[allow(unreachable_patterns)]
        _ => PyOSError::new_err(error.to_string()),
    }
}

fn write_error(error: WriteError) -> PyErr {
    PyOSError::new_err(error.to_string())
}

#[pymethods]
impl File {
    /// Bytes.
    fn size(&self) -> PyResult<u64> {
        self.with(|file| Ok(file.len()))
    }

    /// The same file at a position of its own; what is cached stays until both are closed.
    fn again(&self) -> PyResult<File> {
        self.with_source(|source| Ok(File::sharing(source.clone())))
    }

    /// Moves to so many bytes from the beginning (0), the position (1) or the end (2); the position.
    fn seek(&self, offset: i64, whence: i32) -> PyResult<u64> {
        self.with(|file| {
            let start = match whence {
                0 => 0,
                1 => self.at.load(Ordering::Relaxed),
                2 => file.len(),
                _ => {
                    return Err(PyValueError::new_err(format!("invalid whence ({whence}, should be 0, 1 or 2)")));
                }
            };
            let to = start.checked_add_signed(offset).filter(|to| i64::try_from(*to).is_ok()).ok_or_else(|| {
                let to = i128::from(start) + i128::from(offset);
                PyValueError::new_err(if to < 0 {
                    format!("negative seek position {to}")
                } else {
                    format!("seek position {to} is beyond what a file can have")
                })
            })?;
            self.at.store(to, Ordering::Relaxed);
            Ok(to)
        })
    }

    /// The position.
    fn tell(&self) -> PyResult<u64> {
        self.with(|_| Ok(self.at.load(Ordering::Relaxed)))
    }

    /// Up to so many bytes from the position on, all to the end if the number is negative.
    fn read<'py>(&self, py: Python<'py>, length: i64) -> PyResult<Bound<'py, PyBytes>> {
        let at = self.at.load(Ordering::Relaxed);
        let bytes = self.read_at(py, at, usize::try_from(length).unwrap_or(usize::MAX))?;
        self.at.store(at + bytes.as_bytes().len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Fills whatever lends its bytes to be written, from the position on; the bytes read.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let at = self.at.load(Ordering::Relaxed);
        self.with_source(|source| {
            let mut buffer = Writable::of(buffer)?;
            let read = fill(py, source, buffer.bytes(), at)?;
            self.at.store(at + read as u64, Ordering::Relaxed);
            Ok(read)
        })
    }

    /// Up to so many bytes from an offset on.
    fn read_at<'py>(&self, py: Python<'py>, offset: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.with_source(|source| {
            let length = length.min(usize::try_from(source.file.len().saturating_sub(offset)).unwrap_or(usize::MAX));
            let mut found = 0;
            let bytes = PyBytes::new_with(py, length, |buffer| {
                found = fill(py, source, buffer, offset)?;
                Ok(())
            })?;
            // The file may have been cut short meanwhile.
            Ok(if found == length { bytes } else { PyBytes::new(py, &bytes.as_bytes()[..found]) })
        })
    }

    /// Bytes from an offset on where they lie, pinned, page by page; up to the end of the file.
    fn views(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<Vec<View>> {
        self.with_source(|source| {
            let file = source.file.clone();
            let pin = move || {
                let pinned = file.pin(offset..offset.saturating_add(length))?;
                // SAFETY: only the lifetime changes. `pinned` borrows what the `Arc` holds, which does not move and
                // which `Held` keeps until it has dropped `pinned`.
                let pinned = unsafe { std::mem::transmute::<Pinned<'_>, Pinned<'static>>(pinned) };
                Ok(Arc::new(Held { pinned: Some(pinned), _file: file.clone() }))
            };
            let held = if source.is_foreign { wait(py, pin)? } else { py.detach(pin) };
            let held = held.map_err(|error| read_error(py, error))?;
            let view = |bytes: &[u8]| View {
                address: bytes.as_ptr() as usize,
                bytes: bytes.len(),
                held: Mutex::new(Some(held.clone())),
            };
            Ok(held.pinned.iter().flat_map(Pinned::slices).map(view).collect())
        })
    }

    /// Writes bytes at an offset.
    fn write_at(&self, py: Python<'_>, offset: u64, bytes: &[u8]) -> PyResult<usize> {
        self.with(|file| py.detach(|| file.write_at(bytes, offset)).map(|()| bytes.len()).map_err(write_error))
    }

    /// Makes what was written durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(|file| {
            py.detach(|| file.sync()).map_err(|error| os_error(&error, format!("cannot make it durable: {error}")))
        })
    }

    /// Ends its use; what is cached of it goes.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let file = self.file.write().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            drop(file);
        });
    }
}
