//! Pages of a file that stay when it is closed.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use refault::cache;

use crate::ends::{generation, is_left, let_go};

/// Keeps pages as long as it lives, and no descriptor.
#[pyclass(frozen, module = "refault._refault")]
pub struct KeptPages {
    pages: Mutex<Option<cache::KeptPages>>,
    generation: u32,
}

impl KeptPages {
    pub(super) fn new(pages: cache::KeptPages) -> KeptPages {
        KeptPages { pages: Mutex::new(Some(pages)), generation: generation() }
    }
}

impl Drop for KeptPages {
    fn drop(&mut self) {
        let pages = self.pages.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let_go(pages, is_left(self.generation, false));
    }
}
