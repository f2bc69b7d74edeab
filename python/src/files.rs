//! Files behind a page cache.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use refault::cache::{CacheOptions, CachedFile, MakeError, OpenError, PageCache, Pinned, ReadError, WriteError};

use crate::buffers::{Readable, Writable, array_interface};
use crate::ends::{generation, is_ending};
use crate::errors::{os_error, os_error_from, refused};
use crate::foreign::{Foreign, raised};
use crate::work::wait;

/// So many bytes that are in memory are copied without letting go of the interpreter's lock, which costs as much as
/// copying them.
const MAX_ATTACHED: usize = 16 << 10;

/// Bytes that are asked for together of a file that Python reads.
const PART: usize = 8 << 20;

/// A page cache, shared by any number of files. In a child of a fork it is made again on first use: nobody there
/// finishes what threads of the parent had begun with it.
#[pyclass(frozen, module = "refault._refault")]
pub struct Cache(Arc<Home>);

/// Where files are cached, and how to make that again.
struct Home {
    options: CacheOptions,
    /// Only locked with the interpreter's lock held, so that no fork of Python finds it locked.
    made: Mutex<Option<Made>>,
}

struct Made {
    cache: PageCache,
    generation: u32,
    /// Python reads a file of it.
    reads_foreign: bool,
}

impl Home {
    fn made(&self) -> MutexGuard<'_, Option<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache of this process.
    fn cache(&self, reads_foreign: bool) -> PyResult<PageCache> {
        let mut made = self.made();
        if let Some(known) = made.as_mut().filter(|known| known.generation == generation()) {
            known.reads_foreign |= reads_foreign;
            return Ok(known.cache.clone());
        }
        let cache = PageCache::new(&self.options).map_err(|error| match &error {
            MakeError::Memory(source) => os_error(source, error.to_string(), None),
            MakeError::Statistics { path, error: source } => os_error(source, error.to_string(), Some(path)),
            _ => PyValueError::new_err(error.to_string()),
        })?;
        let new = Made { cache: cache.clone(), generation: generation(), reads_foreign };
        // The parent's is left where it is: its threads are not here to be ended.
        std::mem::forget(made.replace(new));
        Ok(cache)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let made = self.made.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(made) = made {
            let is_left = is_left(made.generation, made.reads_foreign);
            let_go(made, is_left);
        }
    }
}

#[pymethods]
impl Cache {
    #[new]
    fn new(memory: u64, policy: Option<String>) -> PyResult<Cache> {
        let defaults = CacheOptions::default();
        let options = CacheOptions { memory, policy: policy.unwrap_or(defaults.policy), ..CacheOptions::default() };
        let home = Home { options, made: Mutex::default() };
        home.cache(false)?;
        Ok(Cache(Arc::new(home)))
    }

    /// Opens a file, which must exist. `may_write`: whether somebody will write to it.
    fn open(&self, py: Python<'_>, path: PathBuf, may_write: bool) -> PyResult<File> {
        // A child may have another directory by then.
        let path = std::path::absolute(&path).unwrap_or(path);
        let file = open(py, &self.0, &path, may_write)?;
        let identity = identity(&path);
        let origin = Origin { home: self.0.clone(), path: Some(path), identity, may_write };
        Ok(File::sharing(Source::of(file, false), Arc::new(origin)))
    }

    /// Puts the cache above bytes that a call of Python reads: `read(offset, length)`.
    fn attach(&self, py: Python<'_>, read: Py<PyAny>, length: u64) -> PyResult<File> {
        let cache = self.0.cache(true)?;
        let file = py
            .detach(|| cache.attach(Box::new(Foreign { read, length })))
            .map_err(|error| os_error(&error, error.to_string(), None))?;
        let origin = Origin { home: self.0.clone(), path: None, identity: None, may_write: false };
        Ok(File::sharing(Source::of(file, true), Arc::new(origin)))
    }

    /// Counts since the start, and bytes now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let cache = self.0.cache(false)?;
        let report = py.detach(|| cache.report());
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

fn open(py: Python<'_>, home: &Home, path: &Path, may_write: bool) -> PyResult<CachedFile> {
    let cache = home.cache(false)?;
    py.detach(|| cache.options().write(may_write).open(path)).map_err(|error| match &error {
        OpenError::Io { path, error: source } => os_error(source, error.to_string(), Some(path)),
        OpenError::NoFile(path) if path.is_dir() => refused(libc::EISDIR, error.to_string(), Some(path)),
        _ => refused(libc::EINVAL, error.to_string(), Some(path)),
    })
}

/// Device and number of the file at a path.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// What is read.
#[derive(Clone)]
struct Source {
    file: Arc<CachedFile>,
    /// Python reads it, from what may be slow to answer: Ctrl-C must be heard meanwhile.
    is_foreign: bool,
    generation: u32,
}

impl Source {
    fn of(file: CachedFile, is_foreign: bool) -> Source {
        Source { file: Arc::new(file), is_foreign, generation: generation() }
    }
}

/// How a child of a fork gets at the same file.
struct Origin {
    home: Arc<Home>,
    /// None if Python reads it.
    path: Option<PathBuf>,
    identity: Option<(u64, u64)>,
    may_write: bool,
}

impl Origin {
    /// The file in a cache of this process, or why there is none.
    fn reopen(&self, py: Python<'_>) -> PyResult<Source> {
        let Some(path) = &self.path else {
            return Err(PyOSError::new_err(
                "this file of a store was opened before the fork, and what reads it may not work in a child: open it there",
            ));
        };
        let name = path.display();
        if self.may_write {
            return Err(PyOSError::new_err(format!(
                "{name} was opened for writing before the fork, and what is written is in the parent's cache: open it in the child"
            )));
        }
        let file = open(py, &self.home, path, false)?;
        if identity(path) != self.identity {
            return Err(PyOSError::new_err(format!(
                "{name} is another file than before the fork: open it in the child"
            )));
        }
        Ok(Source::of(file, false))
    }
}

/// An open file and a position in it.
#[pyclass(frozen, module = "refault._refault")]
pub struct File {
    /// Only locked with the interpreter's lock held, so that no fork of Python finds it locked.
    file: RwLock<Option<Source>>,
    origin: Arc<Origin>,
    at: AtomicU64,
}

/// Whether what a cache has in hand may never be finished: in a child of a fork, or by Python when that is ending.
fn is_left(made_in: u32, is_foreign: bool) -> bool {
    made_in != generation() || is_foreign && is_ending()
}

/// Lets go of something without the interpreter's lock: a file that ends waits for reads that are under way, and they
/// may be Python's. Leaves it where it is if nobody would end them.
fn let_go<T: Send>(last: T, is_left: bool) {
    if is_left {
        std::mem::forget(last);
        return;
    }
    let mut last = Some(last);
    Python::try_attach(|py| {
        let last = last.take();
        py.detach(move || drop(last));
    });
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(source) = self.file.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let is_left = is_left(source.generation, source.is_foreign);
            let_go(source, is_left);
        }
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
    generation: u32,
    is_foreign: bool,
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
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let_go(held, is_left(self.generation, self.is_foreign));
    }
}

impl File {
    fn sharing(source: Source, origin: Arc<Origin>) -> File {
        File { file: RwLock::new(Some(source)), origin, at: AtomicU64::new(0) }
    }

    /// Of the file, unless Python reads it.
    fn path(&self) -> Option<&Path> {
        self.origin.path.as_deref()
    }

    fn known(&self) -> Option<Source> {
        self.file.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the source out, or puts another in.
    fn replace(&self, source: Option<Source>) -> Option<Source> {
        std::mem::replace(&mut *self.file.write().unwrap_or_else(PoisonError::into_inner), source)
    }

    fn with<T>(&self, work: impl FnOnce(&Arc<CachedFile>) -> PyResult<T>) -> PyResult<T> {
        self.with_source(|source| work(&source.file))
    }

    fn with_source<T>(&self, work: impl FnOnce(&Source) -> PyResult<T>) -> PyResult<T> {
        // The lock is not held during the work: who closes the file would wait for it, and others for who closes.
        let Some(mut source) = self.known() else {
            return Err(PyValueError::new_err("I/O operation on closed file"));
        };
        if source.generation != generation() {
            std::mem::forget(source);
            source = Python::attach(|py| self.origin.reopen(py))?;
            std::mem::forget(self.replace(Some(source.clone())));
        }
        let outcome = work(&source);
        let is_left = is_left(source.generation, source.is_foreign);
        if let Some(last) = Arc::into_inner(source.file) {
            let_go(last, is_left);
        }
        outcome
    }
}

/// Reads from an offset on; the bytes read. The interpreter's lock is let go of unless the bytes are few and in memory.
fn fill(py: Python<'_>, source: &Source, path: Option<&Path>, buffer: &mut [u8], offset: u64) -> PyResult<usize> {
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

fn read_error(py: Python<'_>, error: ReadError, path: Option<&Path>) -> PyErr {
    match &error {
        ReadError::Io { offset, error: source } => match raised(source) {
            Some(cause) => os_error_from(py, cause, &format!("reading the page at byte {offset}")),
            None => os_error(source, error.to_string(), path),
        },
        _ => PyOSError::new_err(error.to_string()),
    }
}

fn write_error(error: WriteError, path: Option<&Path>) -> PyErr {
    match &error {
        WriteError::Io { error: source, .. } | WriteError::Read(ReadError::Io { error: source, .. }) => {
            os_error(source, error.to_string(), path)
        }
        WriteError::NotForWriting { .. } => refused(libc::EBADF, error.to_string(), path),
        _ => PyOSError::new_err(error.to_string()),
    }
}

#[pymethods]
impl File {
    /// Bytes.
    fn size(&self) -> PyResult<u64> {
        self.with(|file| Ok(file.len()))
    }

    /// The same file at a position of its own; what is cached stays until both are closed.
    fn again(&self) -> PyResult<File> {
        self.with_source(|source| Ok(File::sharing(source.clone(), self.origin.clone())))
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
            let read = fill(py, source, self.path(), buffer.bytes(), at)?;
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
                found = fill(py, source, self.path(), buffer, offset)?;
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
            let held = held.map_err(|error| read_error(py, error, self.path()))?;
            let view = |bytes: &[u8]| View {
                address: bytes.as_ptr() as usize,
                bytes: bytes.len(),
                held: Mutex::new(Some(held.clone())),
                generation: source.generation,
                is_foreign: source.is_foreign,
            };
            Ok(held.pinned.iter().flat_map(Pinned::slices).map(view).collect())
        })
    }

    /// Writes what lends its bytes at an offset.
    fn write_at(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let lent = Readable::of(data)?;
        let bytes = lent.bytes();
        self.with(|file| {
            py.detach(|| file.write_at(bytes, offset))
                .map(|()| bytes.len())
                .map_err(|error| write_error(error, self.path()))
        })
    }

    /// Makes what was written durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(source) = self.known() {
            let is_left = source.generation != generation();
            let_go(source, is_left);
            // Nothing was written by this process.
            if is_left {
                return Ok(());
            }
        }
        self.with(|file| {
            let synced = py.detach(|| file.sync());
            synced.map_err(|error| os_error(&error, format!("cannot make it durable: {error}"), self.path()))
        })
    }

    /// Ends its use; what is cached of it goes.
    fn close(&self) {
        if let Some(source) = self.replace(None) {
            let is_left = is_left(source.generation, source.is_foreign);
            let_go(source, is_left);
        }
    }
}
