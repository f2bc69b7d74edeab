//! Memory under a budget, for arrays.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use refault::region::{Budget as Pages, PAGE_SIZE, Pager, PagerError, PagerOptions, Region};
use refault::statistics;

use crate::buffers::array_interface;
use crate::errors::os_error;

/// How long a smaller budget may take to come true.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pager with its budget, shared by any number of arrays.
#[pyclass(frozen, module = "refault._refault")]
pub struct Budget {
    pub pager: Arc<Pager>,
}

/// What the pager says, as Python says it.
pub fn pager_error(error: PagerError) -> PyErr {
    match &error {
        PagerError::File { path, error: source } => os_error(source, error.to_string(), Some(path)),
        PagerError::NotPermitted(source) | PagerError::System(_, source) => os_error(source, error.to_string(), None),
        PagerError::NoAddresses(_) => PyMemoryError::new_err(error.to_string()),
        PagerError::Policy(_) => PyValueError::new_err(error.to_string()),
        PagerError::MissingFeature(_) => PyOSError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

#[pymethods]
impl Budget {
    #[new]
    fn new(bytes: u64, policy: Option<String>, address_space: u64, count_stored: bool) -> PyResult<Budget> {
        let defaults = PagerOptions::default();
        let policy = policy.unwrap_or(defaults.policy);
        let options = PagerOptions { policy, address_space, count_stored, ..PagerOptions::default() };
        let pager = Pager::new(Pages::new(bytes), options).map_err(pager_error)?;
        pager
            .take_along_in_forks()
            .map_err(|error| os_error(&error, format!("cannot take memory along in forks: {error}"), None))?;
        Ok(Budget { pager: Arc::new(pager) })
    }

    /// Zeros.
    fn allocate(&self, py: Python<'_>, bytes: usize) -> PyResult<Memory> {
        let region = py.detach(|| self.pager.region(bytes.max(1))).map_err(pager_error)?;
        Ok(Memory::new(region))
    }

    /// A file's contents; writes stay in memory.
    fn file(&self, py: Python<'_>, path: PathBuf) -> PyResult<Memory> {
        let region = py.detach(|| self.pager.file_region(&path)).map_err(pager_error)?;
        Ok(Memory::new(region))
    }

    /// Bytes that may be resident.
    #[getter]
    fn bytes(&self) -> u64 {
        self.pager.bound_bytes()
    }

    /// Another number of bytes; returns when it is true.
    fn resize(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        py.detach(|| self.pager.resize(bytes, PATIENCE)).map_err(pager_error)
    }

    /// Counts since the start, and bytes now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = py.detach(|| self.pager.report());
        let stats = PyDict::new(py);
        for (statistic, value) in [
            (statistics::BUDGET, report.budget_bytes),
            (statistics::RESIDENT, report.resident_bytes),
            (statistics::COMPRESSED, report.store.pool_bytes),
            (statistics::FILE_BYTES, report.store.file_bytes),
            (statistics::METADATA, report.metadata_bytes),
            (statistics::FAULTS, report.faults.count),
            (statistics::FIRST_TOUCHES, report.zero_fills),
            (statistics::STORED, report.counters.pswpout),
            (statistics::REFAULTS, report.counters.pswpin),
            (statistics::PREFETCHED, report.prefetched),
            (statistics::LOST, report.lost),
        ] {
            stats.set_item(statistic.name, value)?;
        }
        Ok(stats)
    }
}

/// A run of bytes that an array lies in; given back with the last array over it.
#[pyclass(frozen, module = "refault._refault")]
pub struct Memory {
    address: usize,
    bytes: usize,
    region: Region,
    /// What is pinned, as often as it is: pages that two of these share stay pinned until both are gone.
    pinned: Mutex<Vec<Range<usize>>>,
}

impl Memory {
    fn new(mut region: Region) -> Memory {
        let address = region.as_mut_ptr() as usize;
        Memory { address, bytes: region.len(), region, pinned: Mutex::default() }
    }

    /// With the interpreter's lock, so that no thread has this one while Python forks.
    fn pins(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        self.pinned.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Under the lock: a pin that begins meanwhile finds its pages unpinned and pins them.
    fn end_pin(&self, pages: Range<usize>) {
        let mut pins = self.pins();
        let Some(at) = pins.iter().position(|range| *range == pages) else { return };
        pins.swap_remove(at);
        for page in pages.filter(|page| !pins.iter().any(|range| range.contains(page))) {
            self.region.unpin(page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
        }
    }
}

/// The pages that bytes lie in.
fn pages_of(start: usize, end: usize) -> Range<usize> {
    start / PAGE_SIZE..end.div_ceil(PAGE_SIZE)
}

#[pymethods]
impl Memory {
    /// NumPy's protocol (version 3): an array over this memory keeps this object alive.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface(py, self.address, self.bytes, false)
    }

    /// Brings bytes in as far as there is room; the bytes that are resident then.
    fn prefetch(&self, py: Python<'_>, start: usize, end: usize) -> usize {
        py.detach(|| self.region.prefetch(start..end))
    }

    /// Brings bytes in and keeps them resident until [`Memory::unpin`] is told the same.
    fn pin(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        let pages = pages_of(start, end);
        self.pins().push(pages.clone());
        py.detach(|| self.region.pin(start..end)).map_err(|error| {
            self.end_pin(pages);
            pager_error(error)
        })
    }

    fn unpin(&self, start: usize, end: usize) {
        self.end_pin(pages_of(start, end));
    }

    /// Writes all bytes to a file and waits for the disk.
    fn sync(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.region.sync(&path)).map_err(pager_error)
    }
}
