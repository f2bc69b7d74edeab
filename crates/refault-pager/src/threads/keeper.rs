//! The keeper: a thread that holds the pager's userfaultfd where no `close` of the program reaches it.
//!
//! A forked child closes all descriptors that it does not know right before it calls `exec` (Python's `subprocess`, for
//! one), and a daemon does so and goes on. With the last reference to a userfaultfd the kernel forgets what it watches:
//! each page that is out would read as zeros. So the keeper has a table of descriptors of its own, with that one alone.
//!
//! Invariants: no thread reads zeros where contents were. A child that only calls `exec` is not ended. A program that
//! touches a page that cannot come back is ended, with a reason. Cost: a thread that sleeps.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use refault_store::PAGE_SIZE;
use rustix::thread::futex;

use super::RESERVED_PAGES;
use crate::pager::Inner;
use crate::uffd::Message;

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

    /// For a handler that has found the descriptors closed. Returns once the pager stops; ends the program if it touches
    /// a page that is out.
    pub(super) fn take_over(&self) {
        let _ = self.0.compare_exchange(WATCHES, SERVES, Ordering::SeqCst, Ordering::SeqCst);
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
        if self.after(&[WATCHES, SERVES]) == FAULTED {
            crate::report::end(CLOSED);
        }
    }
}

/// Why a page cannot come back.
pub(crate) const CLOSED: &str = "the program has closed the pager's descriptors, and touches memory that is out";

/// The body of the thread. `hello` is called once the descriptor is safe.
pub(super) fn keep(inner: &Inner, hello: impl FnOnce()) {
    let number = inner.uffd.as_fd().as_raw_fd() as u32;
    let close = |first: u32, last: u32, flags: libc::c_uint| {
        // SAFETY: with `CLOSE_RANGE_UNSHARE` this thread gets a table of its own; what is closed in that is closed for
        // no other thread.
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
    if inner.keeper.after(&[WATCHES]) == SERVES {
        serve(inner);
    }
}

/// Waits for a fault. Those that end a handler are served, as the handlers are gone.
fn serve(inner: &Inner) {
    let mut messages = [Message::EMPTY; 1];
    while !inner.stopping.load(Ordering::SeqCst) {
        match inner.uffd.read(&mut messages) {
            Ok(_) if inner.stopping.load(Ordering::SeqCst) => break,
            Ok(_) => {
                inner.keeper.set(FAULTED);
                return;
            }
            Err(_) => std::thread::yield_now(),
        }
    }
    for index in 0..RESERVED_PAGES {
        let address = inner.arena.address(inner.arena.pages() - 1 - index);
        if inner.uffd.zero(address, PAGE_SIZE).is_err() {
            let _ = inner.uffd.wake(address, PAGE_SIZE);
        }
    }
    inner.keeper.stop();
}
