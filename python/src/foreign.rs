//! Files that Python reads for the cache: objects in a store, members of an archive, whatever has bytes at offsets.
//!
//! Invariant: nothing here is called by a thread that holds the interpreter's lock and waits for another of ours;
//! whoever asks the cache has let go of it before. What Python raises goes through the cache as it is, so that who reads
//! gets it: Ctrl-C is no error of a device.

use std::io::{self, IoSlice, IoSliceMut};

use pyo3::prelude::*;
use refault::cache::Backing;

/// Reads by a call of Python, `read(offset, length)`, which answers bytes; fewer only at the end. Cannot be written.
pub struct Foreign {
    pub read: Py<PyAny>,
    pub length: u64,
}

fn cannot_be_written() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the file was opened for reading only")
}

impl Foreign {
    fn bytes(&self, offset: u64, length: usize, take: impl FnOnce(&[u8])) -> io::Result<()> {
        let read = |py: Python<'_>| -> PyResult<()> {
            let answer = self.read.bind(py).call1((offset, length))?;
            take(answer.extract::<&[u8]>()?);
            Ok(())
        };
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
