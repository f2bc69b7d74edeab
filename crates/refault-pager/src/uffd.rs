//! The userfaultfd of a pager: owned, replaced in a forked child, and with ranges that are done whole.
//!
//! Requests are those of [`refault_linux::uffd`]; here a negative number becomes an error, and a request that "try
//! again" ended is made until it is done. Cost: one system call each.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use refault_linux::errno::{EAGAIN, ENOENT};
pub use refault_linux::uffd::{Access, Fault, Message, feature};
use refault_linux::{PAGE, uffd};

use crate::descriptor::Descriptor;
use crate::pte_lock::PteLock;

/// An open userfaultfd.
pub struct Uffd {
    fd: Descriptor,
    features: u64,
    access: Access,
}

impl Uffd {
    /// Opens a descriptor that also handles accesses made by the kernel on behalf of the program, and asks for features
    /// of it. Returns what the kernel offers.
    fn open(features: u64) -> io::Result<(OwnedFd, u64, Access)> {
        let (opened, access) = uffd::Uffd::open_all().map_err(error_of)?;
        // SAFETY: a fresh descriptor, of which no other code knows.
        let fd = unsafe { OwnedFd::from_raw_fd(opened.descriptor()) };
        Ok((fd, opened.begin(features).map_err(error_of)?, access))
    }

    /// What the running kernel offers: asked on a descriptor of its own, because the question can be put only once.
    ///
    /// # Errors
    /// The system call's (EPERM: not allowed; ENOSYS: not built).
    pub fn offered_features() -> io::Result<(u64, Access)> {
        Uffd::open(0).map(|(_, offered, access)| (offered, access))
    }

    /// Opens a descriptor with these features.
    ///
    /// # Errors
    /// As [`Uffd::offered_features`]; EINVAL, the kernel has not all of them.
    pub fn new(features: u64) -> io::Result<Uffd> {
        let (fd, _, access) = Uffd::open(features)?;
        Ok(Uffd { fd: Descriptor::new(fd), features, access })
    }

    /// In a child after a fork: a descriptor for this process, with the same features.
    pub(crate) fn renew(&self) -> io::Result<()> {
        self.fd.replace(Uffd::open(self.features)?.0);
        Ok(())
    }

    fn requests(&self) -> uffd::Uffd {
        uffd::Uffd::from_descriptor(self.fd.as_raw_fd())
    }

    /// The features that were asked for.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// How the descriptor was obtained.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Delivers missing and write-protect faults of a range.
    pub fn register(&self, start: usize, len: usize) -> io::Result<()> {
        done(self.requests().register(start, len))
    }

    /// Ends that; threads that wait are woken.
    pub fn unregister(&self, start: usize, len: usize) -> io::Result<()> {
        done(self.requests().unregister(start, len))
    }

    /// Whether [`Uffd::read`] waits for a message or fails with EAGAIN.
    pub fn set_blocking(&self, blocking: bool) -> io::Result<()> {
        self.requests().set_blocking(blocking).map_err(error_of)
    }

    /// Reads waiting messages, blocking until there is one.
    pub fn read(&self, messages: &mut [Message]) -> io::Result<usize> {
        let read = self.requests().read(messages);
        done(read).map(|()| read as usize)
    }

    /// Allocates, fills and maps missing pages at `address` in one step and wakes the threads that wait for them; with
    /// `protect`, the next write is a write-protect fault.
    ///
    /// # Safety
    /// `source` must be readable for `len` bytes.
    pub unsafe fn copy(&self, address: usize, source: *const u8, len: usize, protect: bool) -> io::Result<()> {
        let requests = self.requests();
        whole(len, |at, step| {
            // SAFETY: the source is readable from there for `step` bytes (promised by the caller).
            unsafe {
                let (to, from) = (address + at, source.add(at));
                if protect { requests.copy_protected(to, from, step) } else { requests.copy(to, from, step) }
            }
        })
    }

    /// Maps zeroed pages and wakes the threads that wait for them.
    pub fn zero(&self, address: usize, len: usize) -> io::Result<()> {
        whole(len, |at, step| self.requests().zero(address + at, step))
    }

    /// Makes writes to a range wait.
    pub(crate) fn protect(&self, _turn: &PteLock, address: usize, len: usize) -> io::Result<()> {
        again(|| self.requests().protect(address, len, true))
    }

    /// Lifts that without waking a thread.
    pub(crate) fn unprotect(&self, _turn: &PteLock, address: usize, len: usize) -> io::Result<()> {
        again(|| self.requests().unprotect_silently(address, len))
    }

    /// Wakes the threads that wait for a range, to look again.
    pub fn wake(&self, address: usize, len: usize) -> io::Result<()> {
        done(self.requests().wake(address, len))
    }

    /// Makes accesses to missing pages end in SIGBUS.
    pub fn poison(&self, address: usize, len: usize) -> io::Result<()> {
        done(self.requests().poison(address, len))
    }

    /// The descriptor, to wait on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }
}

/// Whether a request failed because the program has closed the descriptor, or has another file under its number.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTTY))
}

/// The error of a negative number, as the kernel returns it.
pub(crate) fn error_of(number: isize) -> io::Error {
    io::Error::from_raw_os_error(-number as i32)
}

fn done(result: isize) -> io::Result<()> {
    if result < 0 { Err(error_of(result)) } else { Ok(()) }
}

fn again(mut request: impl FnMut() -> isize) -> io::Result<()> {
    loop {
        match request() {
            EAGAIN => {}
            result => return done(result),
        }
    }
}

/// Does `len` bytes in requests that may stop in the middle: `request` takes where to begin and how many bytes, and
/// returns how many it did. The kernel refuses a range that crosses two of its areas, and programs split areas by
/// `mprotect`, `mbind` and the like: then it is done page by page.
fn whole(len: usize, mut request: impl FnMut(usize, usize) -> isize) -> io::Result<()> {
    let (mut step, mut at) = (len, 0);
    while at < len {
        match request(at, step.min(len - at)) {
            EAGAIN => {}
            ENOENT if step > PAGE => step = PAGE,
            result if result < 0 => return Err(error_of(result)),
            bytes => at += bytes as usize,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_done_whole_whatever_the_kernel_does_at_once() {
        // Ten pages, of which areas end behind the third: no request may cross that.
        let mut did = [false; 10];
        let mut calls = 0;
        let outcome = whole(10 * PAGE, |at, bytes| {
            calls += 1;
            let (first, pages) = (at / PAGE, bytes / PAGE);
            if first < 3 && first + pages > 3 {
                return ENOENT;
            }
            if calls % 3 == 0 {
                return EAGAIN;
            }
            assert!(!did[first]);
            did[first] = true;
            PAGE as isize
        });
        assert!(outcome.is_ok() && did.iter().all(|did| *did));
        let refused = whole(PAGE, |_, _| ENOENT).expect_err("no area at all");
        assert_eq!(refused.raw_os_error(), Some(libc::ENOENT));
    }
}
