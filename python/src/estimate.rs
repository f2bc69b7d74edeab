//! Estimates of what a live cache would miss.

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A policy, a size of the cache, and the parts of accesses and of bytes that miss.
type Row = (&'static str, u64, f64, f64);

/// An estimator behind a lock.
#[pyclass(frozen, module = "refault._refault")]
pub struct Estimator(Mutex<refault::estimate::Estimator>);

impl Estimator {
    fn inside(&self) -> MutexGuard<'_, refault::estimate::Estimator> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Estimator {
    #[new]
    fn new(policies: Vec<String>, cache_bytes: Vec<u64>, memory_bytes: usize, seed: u64) -> PyResult<Estimator> {
        let names: Vec<&str> = policies.iter().map(String::as_str).collect();
        let made = refault::estimate::Estimator::within(&names, &cache_bytes, memory_bytes, seed);
        made.map(|made| Estimator(Mutex::new(made))).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// One access.
    fn access(&self, object: u64, size: u64) {
        self.inside().access(object, size);
    }

    /// Many, in their order.
    fn access_all(&self, objects: PyReadonlyArray1<'_, u64>, sizes: PyReadonlyArray1<'_, u64>) -> PyResult<()> {
        if objects.len() != sizes.len() {
            let (objects, sizes) = (objects.len(), sizes.len());
            return Err(PyValueError::new_err(format!("{objects} objects, but {sizes} sizes: give one size for each")));
        }
        let mut inside = self.inside();
        objects.as_slice()?.iter().zip(sizes.as_slice()?).for_each(|(object, size)| inside.access(*object, *size));
        Ok(())
    }

    /// All estimates, policies first.
    fn estimates(&self) -> Vec<Row> {
        let estimates = self.inside().estimates();
        estimates.into_iter().map(|e| (e.policy, e.cache_bytes, e.miss_ratio, e.byte_miss_ratio)).collect()
    }

    fn restart(&self) {
        self.inside().restart();
    }

    #[getter]
    fn rate(&self) -> f64 {
        self.inside().rate()
    }
}
