//! Files behind a page cache.

use std::path::PathBuf;
use std::sync::RwLock;

use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use refault::cache::{CacheOptions, CachedFile, MakeError, OpenError, PageCache, ReadError, WriteError};

use crate::errors::os_error;

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
        Ok(File(RwLock::new(Some(file))))
    }

    /// Counts since the start, and bytes now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.0.report();
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
pub struct File(RwLock<Option<CachedFile>>);

impl File {
    fn with<T>(&self, work: impl FnOnce(&CachedFile) -> PyResult<T>) -> PyResult<T> {
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
