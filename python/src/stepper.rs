//! One policy, step by step.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use refault::lab::stepper::Stepper;

use crate::errors::lab_error;
use crate::traces::kind_of;

/// A policy over a memory of a fixed number of pages.
#[pyclass(frozen, module = "refault._refault")]
pub struct Policy(Stepper);

#[pymethods]
impl Policy {
    #[new]
    fn new(name: &str, memory_pages: u64, pages: Option<u64>, kind: &str) -> PyResult<Policy> {
        let kind = kind_of(kind)?;
        let stepper = match pages {
            Some(pages) => Stepper::new(name, memory_pages, pages, kind),
            None => Stepper::of_any_pages(name, memory_pages, kind),
        };
        stepper.map(Policy).map_err(lab_error)
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Accesses a page; whether it was in memory.
    fn access(&self, page: u64, write: bool) -> PyResult<bool> {
        self.0.access(page, write).map_err(|error| PyIndexError::new_err(error.to_string()))
    }

    /// The pages in memory, ascending.
    fn resident(&self) -> Vec<u64> {
        self.0.resident()
    }

    /// The pages that would leave if one more came in.
    fn next_victims(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| self.0.next_victims())
    }

    /// Accesses, hits, misses, and the policy's counters.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.counters()
    }
}
