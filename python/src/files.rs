//! Files behind a page cache.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use refault::cache::{CacheOptions, CachedFile, MakeError, OpenError, PageCache, Pinned, ReadError, WriteError};

use crate::errors::os_error;
use crate::foreign::Foreign;

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
            MakeError::Memory(source) => os_error(source, error.to_string()),
            _ => PyValueError::new_err(error.to_string()),
        })
    }

    /// Opens a file, which must exist.
    fn open(&self, py: Python<'_>, path: PathBuf) -> PyResult<File> {
        let file = py.detach(|| self.0.open(&path)).map_err(|error| match &error {
            OpenError::Io { error: source, .. } => os_error(source, error.to_string()),
            _ => PyOSError::new_err(error.to_string()),
        })?;
        Ok(File::of(file))
    }

    /// Puts the cache above bytes that a call of Python reads: `read(offset, length)`.
    fn attach(&self, py: Python<'_>, read: Py<PyAny>, length: u64) -> PyResult<File> {
        let file = py.detach(|| self.0.attach(Box::new(Foreign { read, length })));
        file.map(File::of).map_err(|error| os_error(&error, error.to_string()))
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

/// An open file.
#[pyclass(frozen, module = "refault._refault")]
pub struct File(RwLock<Option<Arc<CachedFile>>>);

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
        drop_detached(self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take());
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
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("shape", (self.bytes,))?;
        interface.set_item("data", (self.address, true))?;
        Ok(interface)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        drop_detached(self.held.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take());
    }
}

impl File {
    fn of(file: CachedFile) -> File {
        File(RwLock::new(Some(Arc::new(file))))
    }

    fn with<T>(&self, work: impl FnOnce(&Arc<CachedFile>) -> PyResult<T>) -> PyResult<T> {
        let file = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        match file.as_ref() {
            Some(file) => work(file),
            None => Err(PyValueError::new_err("I/O operation on closed file")),
        }
    }
}

fn read_error(error: ReadError) -> PyErr {
    match &error {
        ReadError::Io { error: source, .. } => os_error(source, error.to_string()),
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

    /// Up to so many bytes from an offset on.
    fn read_at<'py>(&self, py: Python<'py>, offset: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.with(|file| {
            let length = length.min(usize::try_from(file.len().saturating_sub(offset)).unwrap_or(usize::MAX));
            let mut found = 0;
            let bytes = PyBytes::new_with(py, length, |buffer| {
                found = py.detach(|| file.read_at(buffer, offset)).map_err(read_error)?;
                Ok(())
            })?;
            // Somebody may have cut the file short meanwhile.
            Ok(if found == length { bytes } else { PyBytes::new(py, &bytes.as_bytes()[..found]) })
        })
    }

    /// Fills an array of bytes from an offset on; the bytes read.
    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyArray1<u8>>) -> PyResult<usize> {
        if !buffer.is_contiguous() {
            return Err(PyValueError::new_err("the buffer must be contiguous"));
        }
        let mut buffer = buffer
            .try_readwrite()
            .map_err(|error| PyValueError::new_err(format!("the buffer cannot be written to: {error}")))?;
        let slice = buffer.as_slice_mut().map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.with(|file| py.detach(|| file.read_at(slice, offset)).map_err(read_error))
    }

    /// Bytes from an offset on where they lie, pinned, page by page; up to the end of the file.
    fn views(&self, py: Python<'_>, offset: u64, length: u64) -> PyResult<Vec<View>> {
        self.with(|file| {
            let held = py.detach(|| {
                let pinned = file.pin(offset..offset.saturating_add(length))?;
                // SAFETY: only the lifetime changes. `pinned` borrows what the `Arc` holds, which does not move and
                // which `Held` keeps until it has dropped `pinned`.
                let pinned = unsafe { std::mem::transmute::<Pinned<'_>, Pinned<'static>>(pinned) };
                Ok(Arc::new(Held { pinned: Some(pinned), _file: file.clone() }))
            });
            let held = held.map_err(read_error)?;
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
            let file = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            drop(file);
        });
    }
}
