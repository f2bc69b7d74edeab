//! Pages of another process are paged out, or taken for unused: `process_madvise(2)`.
//!
//! Needs the rights to trace the process, and CAP_SYS_NICE. Pages that others map too stay, as the kernel decides.
//! Cost: what the kernel's reclaim costs, in this process.
//!
//! ```
//! use refault_pool::reclaim::process::{Advice, Process};
//!
//! let own = Process::open(std::process::id())?;
//! match own.advise(&[], Advice::Cold) {
//!     Ok(bytes) => assert_eq!(bytes, 0), // nothing was named
//!     Err(error) => println!("may not advise: {error}"),
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Addresses;

/// What happens to the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// They go now.
    PageOut,
    /// They go before others when the kernel needs memory.
    Cold,
}

/// Ranges handed to the kernel at once.
const MAX_RANGES: usize = 512;

/// A process whose pages are reclaimed.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    descriptor: OwnedFd,
}

impl Process {
    /// Takes hold of a process: a later one with the same number is not meant.
    ///
    /// # Errors
    /// There is none.
    pub fn open(pid: u32) -> io::Result<Process> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(Process { pid, descriptor: pidfd_open(raw, PidfdFlags::empty())? })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the caller may advise on its memory.
    ///
    /// # Errors
    /// It may not, or the process has ended.
    pub fn check(&self) -> io::Result<()> {
        self.advise(&[], Advice::Cold).map(|_| ())
    }

    /// Advises on ranges, which ascend. Returns the bytes that the kernel went over. Mappings that have gone meanwhile
    /// are left out.
    ///
    /// # Errors
    /// The caller may not, or the process has ended.
    pub fn advise(&self, ranges: &[Addresses], advice: Advice) -> io::Result<u64> {
        if ranges.is_empty() {
            return self.call(&[], advice);
        }
        let mut total = 0;
        for ranges in ranges.chunks(MAX_RANGES) {
            let mut rest = ranges.to_vec();
            while !rest.is_empty() {
                match self.call(&rest, advice) {
                    Ok(0) => drop(rest.remove(0)),
                    Ok(mut done) => {
                        total += done;
                        rest.retain_mut(|range| {
                            let taken = done.min(range.end - range.start);
                            range.start += taken;
                            done -= taken;
                            range.start < range.end
                        });
                    }
                    // The first range is no longer what it was.
                    Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL | libc::EFAULT)) => {
                        rest.remove(0);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(total)
    }

    fn call(&self, ranges: &[Addresses], advice: Advice) -> io::Result<u64> {
        let vectors: Vec<libc::iovec> = ranges
            .iter()
            .map(|range| libc::iovec {
                iov_base: range.start as usize as *mut libc::c_void,
                iov_len: (range.end - range.start) as usize,
            })
            .collect();
        let advice = match advice {
            Advice::PageOut => libc::MADV_PAGEOUT,
            Advice::Cold => libc::MADV_COLD,
        };
        // SAFETY: the kernel reads the vectors, which live; the addresses are another process's, whose contents neither
        // advice changes.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.descriptor.as_raw_fd(),
                vectors.as_ptr(),
                vectors.len(),
                advice,
                0,
            )
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done as u64) }
    }
}
