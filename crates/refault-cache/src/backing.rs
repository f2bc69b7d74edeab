//! What is below a cached file: a file with direct I/O, or whatever a test puts there.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::error::OpenError;

/// Bytes that can be read and written in whole pages. All offsets are multiples of the page size or, after a short
/// transfer, of 512.
pub trait Backing: Send + Sync {
    /// Reads into the buffers from `offset` on. Returns the bytes read, fewer at the end.
    ///
    /// # Errors
    /// The device's.
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize>;

    /// Writes the buffers from `offset` on. Returns the bytes written.
    ///
    /// # Errors
    /// The device's.
    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Returns when everything written is durable.
    ///
    /// # Errors
    /// The device's; what was written since the last success may not be durable.
    fn sync(&self) -> io::Result<()>;

    /// Bytes.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are no bytes.
    ///
    /// # Errors
    /// The system's.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts off or adds zeros.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
}

/// A file without the kernel's page cache.
#[derive(Debug)]
pub struct DirectFile(File);

impl DirectFile {
    /// Opens a file for reading and writing, or for reading only where writing is not allowed.
    ///
    /// # Errors
    /// [`OpenError::NoDirect`] where the file system does not do direct I/O, and the system's.
    pub fn open(path: &Path) -> Result<DirectFile, OpenError> {
        let open = |write| {
            let flags = OFlags::DIRECT.bits() as i32;
            File::options().read(true).write(write).custom_flags(flags).open(path)
        };
        let denied = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
        };
        let opened = match open(true) {
            Err(error) if denied(&error) => open(false),
            outcome => outcome,
        };
        match opened {
            Ok(file) => Ok(DirectFile(file)),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(OpenError::NoDirect(path.to_owned())),
            Err(error) => Err(OpenError::Io { path: path.to_owned(), error }),
        }
    }
}

impl Backing for DirectFile {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::preadv(&self.0, into, offset)?)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.0, from, offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        // Block devices have no length of their own.
        io::Seek::seek(&mut &self.0, io::SeekFrom::End(0))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
}
