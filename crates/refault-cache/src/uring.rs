//! Many writes at once through io_uring.
//!
//! Invariant: [`Uring::write`] returns only when every write that was submitted has ended, so the kernel never holds a
//! buffer longer than the borrow. One batch at a time. Cost: one system call per batch of up to 256 writes.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Mutex;

use io_uring::{IoUring, opcode, types};

use crate::backing::Piece;

const ENTRIES: usize = 256;

#[derive(Debug)]
pub(crate) struct Uring(Mutex<Option<Ring>>);

struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("io_uring")
    }
}

impl Uring {
    /// A ring, if the kernel gives one.
    pub(crate) fn new() -> io::Result<Uring> {
        Ok(Uring(Mutex::new(Some(Ring(IoUring::new(ENTRIES as u32)?)))))
    }

    /// Writes all pieces. `None`: the ring is of no use any more, and nothing is known of what was written; or others are
    /// writing by it.
    pub(crate) fn write(&self, file: BorrowedFd<'_>, pieces: &[Piece<'_>]) -> Option<Vec<io::Result<usize>>> {
        let mut kept = self.0.try_lock().ok()?;
        let mut results = Vec::with_capacity(pieces.len());
        for chunk in pieces.chunks(ENTRIES) {
            match write_chunk(&mut kept.as_mut()?.0, file, chunk) {
                Some(done) => results.extend(done),
                None => {
                    *kept = None;
                    return None;
                }
            }
        }
        Some(results)
    }
}

fn write_chunk(ring: &mut IoUring, file: BorrowedFd<'_>, chunk: &[Piece<'_>]) -> Option<Vec<io::Result<usize>>> {
    for (number, (slices, offset)) in chunk.iter().enumerate() {
        // `IoSlice` is laid out as an iovec.
        let vectors = slices.as_ptr().cast::<libc::iovec>();
        let entry = opcode::Writev::new(types::Fd(file.as_raw_fd()), vectors, slices.len() as u32)
            .offset(*offset)
            .build()
            .user_data(number as u64);
        // SAFETY: slices and buffers are borrowed until this function has seen all completions; the ring is empty here
        // and has room for a chunk.
        unsafe { ring.submission().push(&entry) }.expect("invariant: the ring has room for a chunk");
    }
    let mut results: Vec<Option<i32>> = vec![None; chunk.len()];
    let mut outstanding = chunk.len();
    while outstanding > 0 {
        if let Err(error) = ring.submit_and_wait(outstanding) {
            let again = matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY));
            // Nothing is in flight if the kernel took none of what is left.
            if !again && ring.submission().len() == outstanding {
                return None;
            }
        }
        for completion in ring.completion() {
            results[completion.user_data() as usize] = Some(completion.result());
            outstanding -= 1;
        }
    }
    let result = |result: Option<i32>| match result.expect("invariant: every completion was seen") {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        bytes => Ok(bytes as usize),
    };
    Some(results.into_iter().map(result).collect())
}

const _: () = assert!(size_of::<IoSlice<'static>>() == size_of::<libc::iovec>());
