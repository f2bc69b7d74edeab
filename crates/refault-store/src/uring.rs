//! Batched writes through io_uring.
//!
//! Invariant: [`Uring::write`] returns only when every job that was submitted has completed, so the kernel never holds
//! a buffer longer than the borrow. One batch at a time; a batch may be longer than the ring.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Mutex;

use io_uring::{IoUring, opcode, types};

use crate::device::Job;

const ENTRIES: u32 = 64;

pub(crate) struct Uring {
    ring: Mutex<IoUring>,
}

impl Uring {
    pub(crate) fn new() -> io::Result<Uring> {
        Ok(Uring { ring: Mutex::new(IoUring::new(ENTRIES)?) })
    }

    /// In a child after a fork: a ring of its own.
    pub(crate) fn renew(&self) -> io::Result<()> {
        *self.ring.lock().expect("invariant: nothing panics under this lock") = IoUring::new(ENTRIES)?;
        Ok(())
    }

    /// Writes all jobs.
    ///
    /// # Safety
    /// Each job's buffer must be readable for its length until this returns.
    pub(crate) unsafe fn write(&self, file: &File, jobs: &mut [Job]) {
        let mut ring = self.ring.lock().expect("invariant: nothing panics under this lock");
        for chunk in jobs.chunks_mut(ENTRIES as usize) {
            for (index, job) in chunk.iter_mut().enumerate() {
                job.result = -libc::EIO;
                let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), job.buffer, job.len as u32)
                    .offset(job.offset)
                    .build()
                    .user_data(index as u64);
                // SAFETY: the buffer outlives the operation (promised by the caller; all completions are awaited
                // below). The chunk fits the ring, which is empty here.
                unsafe { ring.submission().push(&entry) }.expect("invariant: the ring has room for a chunk");
            }
            let mut outstanding = chunk.len();
            while outstanding > 0 {
                match ring.submit_and_wait(outstanding) {
                    Ok(_) => {}
                    Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                    // Nothing of this chunk can be in flight if the ring itself is refused.
                    Err(_) if ring.submission().len() == outstanding => {
                        *ring = match IoUring::new(ENTRIES) {
                            Ok(fresh) => fresh,
                            Err(_) => return,
                        };
                        break;
                    }
                    Err(_) => {}
                }
                for completion in ring.completion() {
                    chunk[completion.user_data() as usize].result = completion.result();
                    outstanding -= 1;
                }
            }
        }
    }
}
