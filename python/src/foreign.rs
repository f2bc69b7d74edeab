//! Files that Python reads for the cache: objects in a store, members of an archive, whatever has bytes at offsets.
//!
//! Invariant: nothing here is called by a thread that holds the interpreter's lock and waits for another of ours.
//! A thread that asks the cache has released it before. What Python raises goes through the cache as it is, so that
//! who reads gets it: Ctrl-C is no error of a device.

use std::io::{self, IoSlice, IoSliceMut};

use pyo3::ffi;
use pyo3::prelude::*;
use refault::cache::Backing;

use crate::ends::is_ending;

/// Reads by a call of Python, `read(offset, length)`, which answers bytes; fewer only at the end. Cannot be written.
pub struct Foreign {
    pub read: Py<PyAny>,
    pub length: u64,
}

/// `PyObject_Call` that may unwind.
type Call =
    unsafe extern "C-unwind" fn(*mut ffi::PyObject, *mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// Stops the thread for good when it is unwound through: nothing above may be given back then, as it is Python's.
struct StopUnwinding;

impl Drop for StopUnwinding {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls what may still be under way when the interpreter ends. Before 3.14 CPython ends a thread then by
/// `pthread_exit`, which unwinds it. It does so as soon as the thread asks for the interpreter's lock again, after a
/// sleep or from a socket. What Rust holds would then be given back without the lock, which ends the process by a
/// signal.
fn call<'py>(callable: &Bound<'py, PyAny>, arguments: (u64, usize)) -> PyResult<Bound<'py, PyAny>> {
    let py = callable.py();
    let arguments = arguments.into_pyobject(py)?;
    // SAFETY: the two types differ in that this one may unwind, which the function does.
    let may_unwind = unsafe {
        let function: unsafe extern "C" fn(_, _, _) -> _ = ffi::PyObject_Call;
        std::mem::transmute::<*const (), Call>(function as *const ())
    };
    // The compiler must not see which function it is: declared elsewhere as one that never unwinds, it would be called
    // without anything to be done when it does.
    let may_unwind = std::hint::black_box(may_unwind);
    let guard = StopUnwinding;
    // SAFETY: both objects live through the call, names may be none, and the lock is held. The guard lets no function
    // above see that it unwinds.
    let answer = unsafe { may_unwind(callable.as_ptr(), arguments.as_ptr(), std::ptr::null_mut()) };
    std::mem::forget(guard);
    // SAFETY: a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, answer) }
}

fn cannot_be_written() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the file was opened for reading only")
}

impl Foreign {
    fn bytes(&self, offset: u64, length: usize, take: impl FnOnce(&[u8])) -> io::Result<()> {
        let read = |py: Python<'_>| -> PyResult<()> {
            let answer = call(self.read.bind(py), (offset, length))?;
            take(answer.extract::<&[u8]>()?);
            Ok(())
        };
        if is_ending() {
            return Err(io::Error::other("Python is ending"));
        }
        match Python::try_attach(read) {
            None => Err(io::Error::other("Python is ending")),
            Some(outcome) => outcome.map_err(io::Error::other),
        }
    }
}

/// What Python raised while it read, if an error comes from there.
pub fn raised(error: &io::Error) -> Option<&PyErr> {
    error.get_ref()?.downcast_ref()
}

impl Backing for Foreign {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let wanted: usize = into.iter().map(|slice| slice.len()).sum();
        let wanted = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX).min(wanted);
        if wanted == 0 {
            return Ok(0);
        }
        let mut done = 0;
        self.bytes(offset, wanted, |bytes| {
            let bytes = &bytes[..bytes.len().min(wanted)];
            for slice in into {
                let part = slice.len().min(bytes.len() - done);
                slice[..part].copy_from_slice(&bytes[done..done + part]);
                done += part;
            }
        })?;
        Ok(done)
    }

    fn write(&self, _from: &[IoSlice<'_>], _offset: u64) -> io::Result<usize> {
        Err(cannot_be_written())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn set_len(&self, _bytes: u64) -> io::Result<()> {
        Err(cannot_be_written())
    }
}
