//! NumPy's own allocations in a budget (NEP 49): arrays that unmodified code makes lie in managed memory.
//!
//! Only allocations of at least a threshold go there: a region is whole pages, and small arrays are no burden. NumPy
//! asks the handler that made an array to free it, so a handler lives as long as its last array: NumPy holds the
//! capsule.
//!
//! Invariants: [`Handler`] has the layout of NumPy's `PyDataMem_Handler` version 1; a pointer is freed by whom it was
//! made: those of regions are kept by address, all others are the C library's.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use refault::region::{Pager, Region};

use crate::regions::Budget;

const CAPSULE: &CStr = c"mem_handler";
/// `PyDataMem_SetHandler` in NumPy's table of functions.
const SET_HANDLER: usize = 304;
const PAGE: usize = 4096;

#[repr(C)]
struct Allocator {
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator,
}

/// What a handler knows.
struct Context {
    pager: Arc<Pager>,
    threshold: usize,
    regions: Mutex<HashMap<usize, Region>>,
}

impl Context {
    /// The context behind NumPy's pointer.
    ///
    /// # Safety
    /// `context` is that of a handler whose capsule lives.
    unsafe fn of<'a>(context: *mut c_void) -> &'a Context {
        // SAFETY: the caller's; it was made from a box in `numpy_handler`.
        unsafe { &*context.cast::<Context>() }
    }

    fn regions(&self) -> MutexGuard<'_, HashMap<usize, Region>> {
        self.regions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Zeros of a region, or null.
    fn region(&self, bytes: usize) -> *mut c_void {
        let Ok(mut region) = self.pager.region(bytes) else { return std::ptr::null_mut() };
        let pointer = region.as_mut_ptr().cast::<c_void>();
        self.regions().insert(pointer as usize, region);
        pointer
    }

    /// The region that begins here, taken out. Regions begin at pages; nearly nothing of the C library does.
    fn take(&self, pointer: *mut c_void) -> Option<Region> {
        if (pointer as usize).is_multiple_of(PAGE) { self.regions().remove(&(pointer as usize)) } else { None }
    }
}

unsafe extern "C" fn malloc(context: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: NumPy hands the handler's own context.
    let context = unsafe { Context::of(context) };
    if bytes >= context.threshold {
        return context.region(bytes);
    }
    // SAFETY: the C library's, with at least one byte as NumPy expects a pointer.
    unsafe { libc_malloc(bytes.max(1)) }
}

unsafe extern "C" fn calloc(context: *mut c_void, count: usize, each: usize) -> *mut c_void {
    // SAFETY: NumPy hands the handler's own context.
    let context = unsafe { Context::of(context) };
    match count.checked_mul(each) {
        None => std::ptr::null_mut(),
        Some(bytes) if bytes >= context.threshold => context.region(bytes),
        // SAFETY: the C library's.
        Some(bytes) => unsafe { libc_calloc(bytes.max(1), 1) },
    }
}

unsafe extern "C" fn realloc(context: *mut c_void, old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: NumPy hands the handler's own context.
    let known = unsafe { Context::of(context) };
    let Some(region) = known.take(old) else {
        // SAFETY: what is no region is the C library's; it stays there, whatever its size.
        return unsafe { libc_realloc(old, bytes.max(1)) };
    };
    // SAFETY: as for our own `malloc`.
    let new = unsafe { malloc(context, bytes) };
    if new.is_null() {
        known.regions().insert(old as usize, region);
        return new;
    }
    // SAFETY: both have at least as many bytes as are copied, and they are different memory.
    unsafe { std::ptr::copy_nonoverlapping(region.as_ptr(), new.cast::<u8>(), region.len().min(bytes)) };
    new
}

unsafe extern "C" fn free(context: *mut c_void, pointer: *mut c_void, _bytes: usize) {
    // SAFETY: NumPy hands the handler's own context.
    let context = unsafe { Context::of(context) };
    if context.take(pointer).is_none() {
        // SAFETY: what is no region is the C library's, or null.
        unsafe { libc_free(pointer) };
    }
}

unsafe extern "C" {
    #[link_name = "malloc"]
    fn libc_malloc(bytes: usize) -> *mut c_void;
    #[link_name = "calloc"]
    fn libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    #[link_name = "realloc"]
    fn libc_realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void;
    #[link_name = "free"]
    fn libc_free(pointer: *mut c_void);
}

/// Gives back a handler when no object holds its capsule any more.
unsafe extern "C" fn drop_handler(capsule: *mut ffi::PyObject) {
    // SAFETY: called by Python with a capsule that `numpy_handler` made.
    unsafe {
        let handler = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr()).cast::<Handler>();
        if !handler.is_null() {
            let handler = Box::from_raw(handler);
            drop(Box::from_raw(handler.allocator.context.cast::<Context>()));
        }
    }
}

/// A handler that has NumPy's allocations of at least `threshold` bytes lie in the budget, for [`route_numpy`].
#[pyfunction]
pub fn numpy_handler<'py>(budget: &Bound<'py, Budget>, threshold: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = budget.py();
    let context =
        Context { pager: budget.get().pager.clone(), threshold: threshold.max(PAGE), regions: Mutex::default() };
    let mut name = [0; 127];
    for (to, from) in name.iter_mut().zip(c"refault".to_bytes()) {
        *to = *from as c_char;
    }
    let context = Box::into_raw(Box::new(context)).cast::<c_void>();
    let handler =
        Box::new(Handler { name, version: 1, allocator: Allocator { context, malloc, calloc, realloc, free } });
    // SAFETY: the pointer is a box's, and the destructor takes both boxes back once.
    let capsule = unsafe {
        let handler = Box::into_raw(handler).cast::<c_void>();
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(handler, CAPSULE.as_ptr(), Some(drop_handler)))?
    };
    Ok(capsule)
}

/// From now on, in this context (see `contextvars`), a handler does NumPy's allocations. Answers the one of before.
#[pyfunction]
pub fn route_numpy<'py>(py: Python<'py>, handler: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("numpy._core.multiarray").or_else(|_| py.import("numpy.core.multiarray"))?;
    let table = module.getattr("_ARRAY_API")?;
    // SAFETY: NumPy's capsule without a name holds its table of functions; this one exists since 1.22 and returns a new
    // reference or null with an exception.
    unsafe {
        let table = ffi::PyCapsule_GetPointer(table.as_ptr(), std::ptr::null()).cast::<*const c_void>();
        if table.is_null() {
            return Err(PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err("NumPy has no table of functions")));
        }
        let set: unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject =
            std::mem::transmute(*table.add(SET_HANDLER));
        Bound::from_owned_ptr_or_err(py, set(handler.as_ptr()))
    }
}
