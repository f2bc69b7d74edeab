//! Files behind a page cache.

mod file;
mod kept;
mod mode;
mod plain;
mod position;
mod transfer;
mod view;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use refault::cache::{CacheOptions, CachedFile, MakeError, OpenError, PageCache};

use crate::ends::{generation, is_left, let_go};
use crate::errors::{os_error, refused, words};
use crate::foreign::Foreign;
use mode::Mode;

pub use file::File;
pub use kept::KeptPages;
pub use view::View;

/// A page cache, shared by any number of files. In a child of a fork it is made again on first use: there
/// nothing finishes what threads of the parent had begun with it.
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

    /// Opens a file in a mode of `io.FileIO`.
    fn open(&self, py: Python<'_>, path: PathBuf, mode: &str) -> PyResult<File> {
        let mode = Mode::of(mode)?;
        // A child may have another directory by then.
        let path = std::path::absolute(&path).unwrap_or(path);
        let failed = |error: &std::io::Error| os_error(error, words(error), Some(&path));
        let mut is_made = mode.is_new() && py.detach(|| mode.make(&path)).map_err(|error| failed(&error))?;
        let cache = self.0.cache(false)?;
        let opened = py.detach(|| {
            loop {
                // Before it is looked whether it has to be made: who opens and closes it for that ends this process's locks of it.
                match cache.options().write(mode.writes).open(&path) {
                    Err(OpenError::Io { error, .. })
                        if error.kind() == std::io::ErrorKind::NotFound && mode.makes() && !is_made =>
                    {
                        is_made = mode.make(&path).map_err(|error| OpenError::Io { path: path.clone(), error })?;
                    }
                    outcome => return outcome,
                }
            }
        });
        let file = opened.map_err(|error| {
            if is_made {
                // What fails leaves nothing behind; that it could not be opened is told already.
                let _ = std::fs::remove_file(&path);
            }
            open_error(&error)
        })?;
        // A block device has its length for good.
        if mode.empties() && !file.is_empty() && file.device_and_inode().is_some() {
            py.detach(|| file.set_len(0)).map_err(|error| failed(&error))?;
        }
        let identity = file.device_and_inode();
        let origin = Origin { home: self.0.clone(), path: Some(path), identity, mode };
        Ok(File::sharing(Source::of(file, false), Arc::new(origin)))
    }

    /// Puts the cache above bytes that a call of Python reads: `read(offset, length)`.
    fn attach(&self, py: Python<'_>, read: Py<PyAny>, length: u64) -> PyResult<File> {
        let cache = self.0.cache(true)?;
        let file = py
            .detach(|| cache.attach(Box::new(Foreign { read, length })))
            .map_err(|error| os_error(&error, error.to_string(), None))?;
        let origin = Origin { home: self.0.clone(), path: None, identity: None, mode: Mode::READ };
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

fn open_error(error: &OpenError) -> PyErr {
    match error {
        // As Python's own files say it.
        OpenError::Io { path, error: source } => os_error(source, words(source), Some(path)),
        OpenError::NoFile(path) if path.is_dir() => refused(libc::EISDIR, error.to_string(), Some(path)),
        OpenError::NoFile(path) | OpenError::NoDirect(path) => refused(libc::EINVAL, error.to_string(), Some(path)),
        _ => PyOSError::new_err(error.to_string()),
    }
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
    mode: Mode,
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
        if self.mode.writes {
            return Err(PyOSError::new_err(format!(
                "{name} was opened for writing before the fork, and what is written is in the parent's cache: open it in the child"
            )));
        }
        let cache = self.home.cache(false)?;
        let file = py.detach(|| cache.open(path)).map_err(|error| open_error(&error))?;
        if file.device_and_inode() != self.identity {
            return Err(PyOSError::new_err(format!(
                "{name} is another file than before the fork: open it in the child"
            )));
        }
        Ok(Source::of(file, false))
    }
}
