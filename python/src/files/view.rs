//! Views of a file's bytes where they lie in the cache.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use refault::cache::{CachedFile, Pinned, ReadError};

use super::Source;
use crate::buffers::array_interface;
use crate::ends::{is_left, let_go};

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

impl View {
    /// Pins a range of a file, page by page; up to its end. Reads what is missing, and so is called without the
    /// interpreter's lock.
    pub(super) fn pin(source: &Source, offset: u64, length: u64) -> Result<Vec<View>, ReadError> {
        let file = source.file.clone();
        let pinned = file.pin(offset..offset.saturating_add(length))?;
        // SAFETY: only the lifetime changes. `pinned` borrows what the `Arc` holds, which does not move and which `Held`
        // keeps until it has dropped `pinned`.
        let pinned = unsafe { std::mem::transmute::<Pinned<'_>, Pinned<'static>>(pinned) };
        let held = Arc::new(Held { pinned: Some(pinned), _file: file.clone() });
        let view = |bytes: &[u8]| View {
            address: bytes.as_ptr() as usize,
            bytes: bytes.len(),
            held: Mutex::new(Some(held.clone())),
            generation: source.generation,
            is_foreign: source.is_foreign,
        };
        Ok(held.pinned.iter().flat_map(Pinned::slices).map(view).collect())
    }
}
