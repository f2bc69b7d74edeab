//! Signals, kept away from code that must not be interrupted.
//!
//! A signal handler of the program may touch managed memory, so none may run in a thread that serves faults, nor in one
//! that holds what a fault would wait for. Cost: two system calls.

use std::marker::PhantomData;

use crate::pager::FaultMode;

/// Gives a signal its default action back, by the system call itself: libc's functions may be an agent's.
pub(crate) fn reset(signal: i32) {
    // SAFETY: zeros are an action of the kernel's, which is smaller than libc's: the default one, without flags and mask.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::syscall(libc::SYS_rt_sigaction, signal, &raw const default, std::ptr::null::<u8>(), size_of::<u64>());
    }
}

/// Blocks all signals in this thread, and so in the threads that it starts, until dropped.
///
/// SIGBUS stays open where faults are served in the thread: there a fault is that signal, and one that is blocked ends
/// the program.
pub struct BlockedSignals {
    before: libc::sigset_t,
    /// The mask is this thread's, so the value stays in it.
    _here: PhantomData<*const ()>,
}

impl BlockedSignals {
    /// Blocks them, in a program whose faults are served in this way.
    pub fn new(mode: FaultMode) -> BlockedSignals {
        // SAFETY: a signal set is plain bytes; all calls take pointers to live sets.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            if mode == FaultMode::InThread {
                libc::sigdelset(&mut all, libc::SIGBUS);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
            BlockedSignals { before: old, _here: PhantomData }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        // SAFETY: a signal set is plain bytes; the call fills it in.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut now);
            libc::sigismember(&now, signal) == 1
        }
    }

    #[test]
    fn signals_are_blocked_until_the_value_is_dropped() {
        for (mode, bus) in [(FaultMode::Handler { threads: 1 }, true), (FaultMode::InThread, false)] {
            let blocked = BlockedSignals::new(mode);
            assert_eq!((is_blocked(libc::SIGTERM), is_blocked(libc::SIGBUS)), (true, bus));
            drop(blocked);
            assert!(!is_blocked(libc::SIGTERM) && !is_blocked(libc::SIGBUS));
        }
    }
}
