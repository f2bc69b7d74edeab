//! Tables of objects by number.
//!
//! Numbers start at 1, ascend, and are never given twice; the upper byte says of which type the object is, so that a
//! handle of another type is found out too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::status::{Failure, REFAULT_BAD_HANDLE};

/// The objects of one type.
pub(crate) struct Table<T> {
    kind: u64,
    what: &'static str,
    next: AtomicU64,
    objects: RwLock<Option<HashMap<u64, Arc<T>>>>,
}

impl<T> Table<T> {
    /// An empty table; every type has another `kind`, from 1.
    pub(crate) const fn new(kind: u8, what: &'static str) -> Table<T> {
        Table { kind: (kind as u64) << 56, what, next: AtomicU64::new(1), objects: RwLock::new(None) }
    }

    /// Puts an object in; its handle.
    pub(crate) fn put(&self, object: T) -> u64 {
        let handle = self.kind | self.next.fetch_add(1, Ordering::Relaxed);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.get_or_insert_default().insert(handle, Arc::new(object));
        handle
    }

    /// The object of a handle.
    pub(crate) fn find(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.as_ref().and_then(|objects| objects.get(&handle)).cloned().ok_or_else(|| self.unknown(handle))
    }

    /// Takes an object out; it ends with the last call that uses it.
    pub(crate) fn take(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.as_mut().and_then(|objects| objects.remove(&handle)).ok_or_else(|| self.unknown(handle))
    }

    fn unknown(&self, handle: u64) -> Failure {
        let what = self.what;
        Failure::new(REFAULT_BAD_HANDLE, format!("{handle:#x} is not an open {what}: it was closed, or never was one"))
    }
}
