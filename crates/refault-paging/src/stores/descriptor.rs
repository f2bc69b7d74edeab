//! A store's file on disk, written and read by bare system calls.
//!
//! Invariant: nothing is written beyond what a file of this process may have. Cost: two calls per batch of writes and
//! one per write; one per read.

use std::io;

use refault_store::{Device, Job};

use refault_linux::calls::{SYS_getrlimit, SYS_pread64, SYS_pwrite64};
use refault_linux::errno::ENOSPC;
use refault_linux::flags::RLIMIT_FSIZE;
use refault_linux::sys;

/// A file by its descriptor, with direct I/O if it was opened so.
pub(super) struct Descriptor(pub(super) i32);

/// Bytes that a file of this process may have (`ulimit -f`). To a process that writes beyond the kernel sends a signal
/// that ends it.
fn most_of_a_file() -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: getrlimit writes two words.
    unsafe { sys::call(SYS_getrlimit, [RLIMIT_FSIZE, limit.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    limit[0]
}

impl Device for Descriptor {
    unsafe fn write(&self, jobs: &mut [Job]) {
        let most = most_of_a_file();
        for job in jobs {
            if job.offset + job.len as u64 > most {
                job.result = ENOSPC as i32;
                continue;
            }
            // SAFETY: the buffer is readable (promised by the caller).
            job.result = unsafe {
                sys::call(SYS_pwrite64, [self.0 as usize, job.buffer as usize, job.len, job.offset as usize, 0, 0])
            } as i32;
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: writes into `buffer`.
        let read = unsafe {
            sys::call(SYS_pread64, [self.0 as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset as usize, 0, 0])
        };
        if read < 0 { Err(io::Error::from_raw_os_error(-read as i32)) } else { Ok(read as usize) }
    }

    /// Nothing: a hole costs a file system's journal milliseconds, in a thread that waits for a page. Freed slots are
    /// used again, and the file goes with its last process.
    fn punch(&self, _offset: u64, _len: u64) {}

    fn after_fork(&self, _pieces: &mut dyn Iterator<Item = (u64, usize)>) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        "direct I/O".to_owned()
    }
}
