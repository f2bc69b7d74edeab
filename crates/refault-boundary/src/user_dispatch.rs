//! Syscall User Dispatch: which code's calls are the agent's own, and whether a thread's calls come to the agent.
//!
//! Cost: one system call to turn it on or off. Source: the kernel's documentation of Syscall User Dispatch.

use std::sync::atomic::{AtomicUsize, Ordering};

use refault_linux::calls::SYS_prctl;
use refault_linux::options::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, PR_SYS_DISPATCH_ON};
use refault_linux::sys;

use crate::thread::Thread;

/// The agent's own code.
static CODE: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The agent's code, from which calls are the agent's own.
pub(crate) fn set_code(start: usize, end: usize) {
    CODE[0].store(start, Ordering::Relaxed);
    CODE[1].store(end, Ordering::Relaxed);
}

/// Whether an address is in the agent's code.
pub(crate) fn is_own_code(address: usize) -> bool {
    (CODE[0].load(Ordering::Relaxed)..CODE[1].load(Ordering::Relaxed)).contains(&address)
}

/// From now on every system call of this thread comes to the agent, except those made from its code.
pub(crate) fn dispatch_on() -> isize {
    let (start, end) = (CODE[0].load(Ordering::Relaxed), CODE[1].load(Ordering::Relaxed));
    // SAFETY: changes how this thread's calls are made.
    unsafe { sys::call(SYS_prctl, [PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, start, end - start, 0, 0]) }
}

/// This thread's calls go to the kernel unseen.
pub(crate) fn dispatch_off(thread: &mut Thread) {
    crate::patched::switch::turn_off();
    thread.is_dispatched = false;
    // SAFETY: changes how this thread's calls are made.
    unsafe { sys::call(SYS_prctl, [PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0, 0]) };
}
