//! A descriptor that a forked child replaces, and the limit on file sizes that stands in the way of making large ones.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// An open descriptor. Under the same number after [`Descriptor::replace`] where the limit on descriptors permits it.
pub(crate) struct Descriptor(AtomicI32);

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd) -> Descriptor {
        Descriptor(AtomicI32::new(fd.into_raw_fd()))
    }

    /// Stands for another file from now on. Only while no other thread uses it.
    pub(crate) fn replace(&self, fresh: OwnedFd) {
        let number = self.as_raw_fd();
        // SAFETY: both are descriptors of this process; the old one is this value's.
        if unsafe { libc::dup3(fresh.as_raw_fd(), number, libc::O_CLOEXEC) } >= 0 {
            return;
        }
        // A number above a limit that was lowered since cannot be taken again.
        self.0.store(fresh.into_raw_fd(), Ordering::Release);
        // SAFETY: no other thread knows the old number any more.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.load(Ordering::Relaxed)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as this value lives and is not replaced, which no thread does while it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this value's alone.
        drop(unsafe { OwnedFd::from_raw_fd(self.as_raw_fd()) });
    }
}

/// While it lives, files may be as large as the hard limit permits. The kernel would end the process with SIGXFSZ
/// otherwise.
pub(crate) struct LargeFiles(Option<Rlimit>);

impl LargeFiles {
    /// For files of `len` bytes.
    ///
    /// # Errors
    /// EFBIG: the hard limit is lower.
    pub(crate) fn allow(len: u64) -> io::Result<LargeFiles> {
        let before = getrlimit(Resource::Fsize);
        if before.current.is_none_or(|limit| limit >= len) {
            return Ok(LargeFiles(None));
        }
        if before.maximum.is_some_and(|limit| limit < len) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        setrlimit(Resource::Fsize, Rlimit { current: before.maximum, maximum: before.maximum })?;
        Ok(LargeFiles(Some(before)))
    }
}

impl Drop for LargeFiles {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            let _ = setrlimit(Resource::Fsize, before);
        }
    }
}
