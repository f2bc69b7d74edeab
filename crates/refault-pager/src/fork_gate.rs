//! A read-write lock around forks: every change of pages is made by a reader, and a fork is the writer.
//!
//! While the gate is closed, no page is in an owned state and no thread holds a lock of the pager or its store. So a
//! copy of the address space is whole. Entering costs two atomic operations. Invariant: no thread enters twice.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

#[derive(Default)]
pub(crate) struct ForkGate {
    inside: AtomicU32,
    closed: AtomicU32,
}

pub(crate) struct ReadGuard<'a>(&'a ForkGate);

impl ForkGate {
    /// Waits until the gate is open and goes in.
    pub(crate) fn enter(&self) -> ReadGuard<'_> {
        loop {
            self.inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) == 0 {
                return ReadGuard(self);
            }
            self.inside.fetch_sub(1, Ordering::SeqCst);
            let _ = futex::wait(&self.closed, futex::Flags::PRIVATE, 1, None);
        }
    }

    /// Lets no thread in any more and waits until all are out. Other closers wait for [`ForkGate::open`].
    pub(crate) fn close(&self) {
        while self.closed.swap(1, Ordering::SeqCst) == 1 {
            let _ = futex::wait(&self.closed, futex::Flags::PRIVATE, 1, None);
        }
        while self.inside.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    /// Opens the gate.
    pub(crate) fn open(&self) {
        self.closed.store(0, Ordering::SeqCst);
        let _ = futex::wake(&self.closed, futex::Flags::PRIVATE, i32::MAX as u32);
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
