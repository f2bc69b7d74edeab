//! The keeper: a thread that holds the pager's userfaultfd where no `close` of the program reaches it.
//!
//! A forked child closes all descriptors that it does not know right before it calls `exec` (Python's `subprocess`, for
//! one), and a daemon does so and goes on. With the last reference to a userfaultfd the kernel forgets what it watches:
//! each page that is out would read as zeros. So the keeper has a table of descriptors of its own, with that one alone.
//!
//! Invariants: no thread reads zeros where contents were. A child that only calls `exec` is not ended. A program that
//! touches a page that cannot come back is ended, with a reason. Cost: a thread that sleeps.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use refault_store::PAGE_SIZE;
use rustix::thread::futex;

use crate::uffd::{Message, Uffd};

/// What the keeper does.
const WATCHES: u32 = 0;
/// A handler has found the descriptors closed: the keeper waits for a fault in its place.
const SERVES: u32 = 1;
/// A fault has come, and cannot be served.
const FAULTED: u32 = 2;
const STOPS: u32 = 3;

/// The state of the keeper: a futex.
#[derive(Default)]
pub(crate) struct Keeper(AtomicU32);

impl Keeper {
    /// In a child after a fork, where the parent's keeper is not.
    pub(crate) fn forget(&self) {
        self.0.store(WATCHES, Ordering::SeqCst);
    }

    pub(super) fn stop(&self) {
        self.set(STOPS);
    }

    fn set(&self, state: u32) {
        self.0.store(state, Ordering::SeqCst);
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// Waits while it has one of these states; returns the other one.
    fn after(&self, states: &[u32]) -> u32 {
        loop {
            let state = self.0.load(Ordering::SeqCst);
            if !states.contains(&state) {
                return state;
            }
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, state, None);
        }
    }

    /// For a handler that has found the descriptors closed: waits until the program touches a page that is out (true), or
    /// the pager stops.
    pub(super) fn sees_a_fault(&self) -> bool {
        let _ = self.0.compare_exchange(WATCHES, SERVES, Ordering::SeqCst, Ordering::SeqCst);
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
        self.after(&[WATCHES, SERVES]) == FAULTED
    }
}

/// Why a page cannot come back.
pub(crate) const CLOSED: &str = "the program has closed the pager's descriptors, and touches memory that is out";

/// What the thread works with.
pub(super) struct Kept<'a> {
    pub(super) keeper: &'a Keeper,
    pub(super) uffd: &'a Uffd,
    pub(super) stopping: &'a AtomicBool,
}

impl Kept<'_> {
    /// The body of the thread. `hello` is called once the descriptor is safe; `last_pages` are those whose faults end
    /// handlers.
    pub(super) fn keep(&self, hello: impl FnOnce(), last_pages: impl Iterator<Item = usize>) {
        let number = self.uffd.as_fd().as_raw_fd() as u32;
        let close = |first: u32, last: u32, flags: libc::c_uint| {
            // SAFETY: with `CLOSE_RANGE_UNSHARE` this thread gets a table of its own; what is closed in that is closed
            // for no other thread.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) == 0 }
        };
        let is_apart = close(number + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE);
        hello();
        if !is_apart {
            return;
        }
        if number > 0 {
            close(0, number - 1, 0);
        }
        if self.keeper.after(&[WATCHES]) == SERVES {
            self.serve(last_pages);
        }
    }

    /// Waits for a fault. Those that end a handler are served, as the handlers are gone.
    fn serve(&self, last_pages: impl Iterator<Item = usize>) {
        let mut messages = [Message::EMPTY; 1];
        while !self.stopping.load(Ordering::SeqCst) {
            match self.uffd.read(&mut messages) {
                Ok(_) if self.stopping.load(Ordering::SeqCst) => break,
                Ok(_) => {
                    self.keeper.set(FAULTED);
                    // The handler ends the program. If this thread ended first, its descriptor would go with it, and the
                    // thread that waits would read zeros.
                    loop {
                        std::thread::park();
                    }
                }
                Err(_) => std::thread::yield_now(),
            }
        }
        for address in last_pages {
            if self.uffd.zero(address, PAGE_SIZE).is_err() {
                let _ = self.uffd.wake(address, PAGE_SIZE);
            }
        }
        self.keeper.stop();
    }
}
