//! Bytes that cross the border where they lie: what an object of Python lends to be written to (`bytearray`, arrays,
//! views of memory), and ours that NumPy makes arrays of.
//!
//! The buffer protocol is part of the stable interface since CPython 3.11. CPython 3.10 has the same functions with the
//! same structure. They are declared here because PyO3 leaves them out for 3.10.
//!
//! Invariant: a buffer that was taken is given back once, with the interpreter's lock held.

use std::ffi::{CStr, c_char, c_int, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What NumPy's protocol (version 3) says of bytes at an address: an array over them keeps the object alive that says it.
pub fn array_interface(py: Python<'_>, address: usize, bytes: usize, read_only: bool) -> PyResult<Bound<'_, PyDict>> {
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("typestr", "|u1")?;
    interface.set_item("shape", (bytes,))?;
    interface.set_item("data", (address, read_only))?;
    Ok(interface)
}

/// Contiguous bytes that may be written to, with what they are: `PyBUF_CONTIG | PyBUF_FORMAT`.
const WRITABLE: c_int = 0x1 | 0x8 | 0x4;

/// The same without what they are.
const WRITABLE_BYTES: c_int = 0x1 | 0x8;

/// CPython's `Py_buffer`.
#[repr(C)]
struct Buffer {
    bytes: *mut c_void,
    object: *mut ffi::PyObject,
    length: ffi::Py_ssize_t,
    item_size: ffi::Py_ssize_t,
    is_read_only: c_int,
    dimensions: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

impl Buffer {
    /// To be filled in.
    const EMPTY: Buffer = Buffer {
        bytes: std::ptr::null_mut(),
        object: std::ptr::null_mut(),
        length: 0,
        item_size: 0,
        is_read_only: 0,
        dimensions: 0,
        format: std::ptr::null_mut(),
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        suboffsets: std::ptr::null_mut(),
        internal: std::ptr::null_mut(),
    };
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut Buffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut Buffer);
}

/// A buffer that is lent for as long as this lives.
pub struct Writable<'py> {
    view: Buffer,
    /// Holds the interpreter's lock until the buffer is given back.
    _py: Python<'py>,
}

impl<'py> Writable<'py> {
    /// TypeError if the object lends no contiguous bytes that may be written to.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Writable<'py>> {
        let mut view = Buffer::EMPTY;
        let refused = |why: Option<PyErr>| {
            let name = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
            let error = PyTypeError::new_err(format!(
                "a buffer is contiguous bytes that may be written to, which this {name} is not"
            ));
            error.set_cause(object.py(), why);
            error
        };
        // SAFETY: the object lives, and the structure has CPython's layout; on success it holds the object.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut view, WRITABLE) } != 0 {
            let why = PyErr::take(object.py());
            // NumPy has no format for times, but says that they are no objects.
            let is_plain = holds_no_objects(object);
            // SAFETY: as above; nothing was lent.
            if !is_plain || unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut view, WRITABLE_BYTES) } != 0 {
                drop(PyErr::take(object.py()));
                return Err(refused(why));
            }
        }
        let lent = Writable { view, _py: object.py() };
        // Bytes that are pointers to objects of Python must not become others.
        let format = match lent.view.format.is_null() {
            true => &[][..],
            // SAFETY: a format is a text of C that lives as long as the buffer, or none, which means bytes.
            false => unsafe { CStr::from_ptr(lent.view.format) }.to_bytes(),
        };
        // Names of fields stand between colons.
        let is_objects = format.split(|byte| *byte == b':').step_by(2).any(|codes| codes.contains(&b'O'));
        if is_objects { Err(refused(None)) } else { Ok(lent) }
    }

    /// The bytes. A thread that writes to them at the same time gets what threads get that read into one buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        let length = usize::try_from(self.view.length).unwrap_or(0);
        if length == 0 {
            return &mut [];
        }
        // SAFETY: CPython lends `length` bytes, writable, until they are released, which is when `self` ends.
        unsafe { std::slice::from_raw_parts_mut(self.view.bytes.cast::<u8>(), length) }
    }
}

/// Whether an array of NumPy's says that it holds no objects of Python.
fn holds_no_objects(object: &Bound<'_, PyAny>) -> bool {
    let held =
        object.getattr("dtype").and_then(|kind| kind.getattr("hasobject")).and_then(|held| held.extract::<bool>());
    held.is_ok_and(|held| !held)
}

/// Contiguous bytes that are only read: `PyBUF_SIMPLE`.
const READABLE: c_int = 0;

/// A buffer that is lent to be read for as long as this lives.
pub struct Readable<'py> {
    view: Buffer,
    /// Holds the interpreter's lock until the buffer is given back.
    _py: Python<'py>,
}

impl<'py> Readable<'py> {
    /// TypeError, by CPython, if the object is not bytes-like; BufferError if its bytes do not lie together.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Readable<'py>> {
        let mut view = Buffer::EMPTY;
        // SAFETY: the object lives, and the structure has CPython's layout; on success it holds the object.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut view, READABLE) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Readable { view, _py: object.py() })
    }

    /// The bytes. Who writes to them at the same time decides which are read, as with any file.
    pub fn bytes(&self) -> &[u8] {
        let length = usize::try_from(self.view.length).unwrap_or(0);
        if length == 0 {
            return &[];
        }
        // SAFETY: CPython lends `length` bytes until they are released, which is when `self` ends.
        unsafe { std::slice::from_raw_parts(self.view.bytes.cast::<u8>(), length) }
    }
}

impl Drop for Readable<'_> {
    fn drop(&mut self) {
        // SAFETY: taken in `of`, released once, with the interpreter's lock, which `_py` proves.
        unsafe { PyBuffer_Release(&raw mut self.view) };
    }
}

impl Drop for Writable<'_> {
    fn drop(&mut self) {
        // SAFETY: taken in `of`, released once, with the interpreter's lock, which `_py` proves.
        unsafe { PyBuffer_Release(&raw mut self.view) };
    }
}
