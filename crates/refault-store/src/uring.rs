//! Batched writes through io_uring.
//!
//! Invariant: [`Uring::write`] returns only when every job that was submitted has completed, so the kernel never holds
//! a buffer longer than the borrow, and a ring that is kept names no buffer. One batch at a time; a batch may be longer
//! than the ring. What the kernel does not take is left to the caller, which writes it by `pwrite`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::device::Job;

const ENTRIES: u32 = 64;
/// How long a thread waits before it asks a kernel again that refuses while it has requests.
const PAUSE: Duration = Duration::from_millis(1);

const UNBROKEN: &str = "invariant: nothing panics under this lock";

pub(crate) struct Uring {
    /// None where the kernel has refused one.
    ring: Mutex<Option<IoUring>>,
}

impl Uring {
    pub(crate) fn new() -> io::Result<Uring> {
        Ok(Uring { ring: Mutex::new(Some(IoUring::new(ENTRIES)?)) })
    }

    /// In a child after a fork: a ring of its own.
    pub(crate) fn renew(&self) -> io::Result<()> {
        *self.ring.lock().expect(UNBROKEN) = Some(IoUring::new(ENTRIES)?);
        Ok(())
    }

    /// Writes jobs. Those that the kernel does not take keep their result.
    ///
    /// # Safety
    /// Each job's buffer must be readable for its length until this returns.
    pub(crate) unsafe fn write(&self, file: &File, jobs: &mut [Job]) {
        let mut held = self.ring.lock().expect(UNBROKEN);
        for chunk in jobs.chunks_mut(ENTRIES as usize) {
            let Some(ring) = held.as_mut() else { return };
            for (index, job) in chunk.iter().enumerate() {
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
                let entered = ring.submit_and_wait(outstanding).map_err(|error| error.raw_os_error());
                for completion in ring.completion() {
                    chunk[completion.user_data() as usize].result = completion.result();
                    outstanding -= 1;
                }
                match entered {
                    Ok(_) | Err(Some(libc::EINTR)) => {}
                    // The kernel has none of them. A ring in which they stay would name buffers that have gone.
                    Err(_) if ring.submission().len() == outstanding => {
                        *held = IoUring::new(ENTRIES).ok();
                        break;
                    }
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        }
    }
}
