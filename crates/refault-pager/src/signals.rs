//! Signals, kept away from code that must not be interrupted.
//!
//! A signal handler of the program may touch managed memory. So none may run in a thread that serves faults, nor in one
//! that holds what a fault would wait for. Cost: two system calls.

use std::marker::PhantomData;

use crate::options::FaultMode;

/// Gives a signal its default action back, by the system call itself: libc's functions may be an agent's.
pub(crate) fn reset(signal: i32) {
    // SAFETY: zeros are an action of the kernel's, which is smaller than libc's: the default one, without flags and
    // mask.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::syscall(libc::SYS_rt_sigaction, signal, &raw const default, std::ptr::null::<u8>(), size_of::<u64>());
    }
}

/// A set of signals as the kernel has it: signal 1 is the lowest bit.
pub(crate) type Mask = u64;

const fn bit(signal: i32) -> Mask {
    1 << (signal - 1)
}

/// The signal with which glibc cancels threads. Its functions for sets and masks leave it out. But a thread that is
/// cancelled inside the pager would be unwound through it. That holds whatever the thread has said about cancellation,
/// as the signal may have been sent before that.
const CANCEL: Mask = bit(32);
/// The signal with which glibc lets all threads change their user. It waits for them.
const CREDENTIALS: Mask = bit(33);

/// What is blocked inside the pager. That [`CANCEL`] is says of a mask that its thread is inside: no program can block
/// it. (Threads that start have it open, the pager's own too. They get no signal while the first thread runs.)
pub(crate) const fn inside(mode: FaultMode) -> Mask {
    let bus = if matches!(mode, FaultMode::InThread) { bit(libc::SIGBUS) } else { 0 };
    !(CREDENTIALS | bus)
}

/// Whether a thread with this mask is inside the pager, or in a handler that a SIGBUS must not interrupt.
pub(crate) fn is_inside(mask: Mask) -> bool {
    mask & CANCEL != 0
}

/// The mask of the code that a signal has interrupted.
///
/// # Safety
/// `context` is what the kernel has given to the handler.
pub(crate) unsafe fn interrupted_mask(context: *const libc::c_void) -> Mask {
    // SAFETY: promised by the caller; libc's set begins with the kernel's.
    unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<Mask>().read() }
}

/// The mask while the program's handler for SIGBUS runs, whose action this is: further ones that are sent wait, as they
/// would for the kernel, while those of faults must come through.
pub(crate) fn while_handled(interrupted: Mask, action: &libc::sigaction) -> Mask {
    // SAFETY: libc's set begins with the kernel's.
    let own = unsafe { (&raw const action.sa_mask).cast::<Mask>().read() };
    let waits = if action.sa_flags & libc::SA_NODEFER == 0 { CANCEL } else { 0 };
    (interrupted | own | waits) & !bit(libc::SIGBUS)
}

/// Puts a mask in force for this thread, by the system call itself; the one before.
pub(crate) fn set_mask(mask: Mask) -> Mask {
    let mut before: Mask = 0;
    // SAFETY: both are live sets of that size.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, size_of::<Mask>())
    };
    before
}

/// A set as libc has it.
pub(crate) fn set_of(mask: Mask) -> libc::sigset_t {
    // SAFETY: a signal set is plain bytes, and begins with the kernel's.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        (&raw mut set).cast::<Mask>().write(mask);
        set
    }
}

/// Blocks all signals in this thread, and so in the threads that it starts, until dropped.
///
/// SIGBUS stays open where faults are served in the thread: there a fault is that signal, and one that is blocked ends
/// the program.
pub struct BlockedSignals {
    before: Mask,
    /// The mask is this thread's, so the value stays in it.
    _here: PhantomData<*const ()>,
}

impl BlockedSignals {
    /// Blocks them, in a program whose faults are served in this way.
    pub fn new(mode: FaultMode) -> BlockedSignals {
        BlockedSignals { before: set_mask(inside(mode)), _here: PhantomData }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        set_mask(self.before);
        if !is_inside(self.before) {
            crate::pending_sigbus::give_back();
        }
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

    #[test]
    fn a_mask_says_whether_its_thread_is_inside() {
        let before = set_mask(0);
        for mode in [FaultMode::Handler { threads: 1 }, FaultMode::InThread] {
            assert!(!is_inside(set_mask(inside(mode))) && is_inside(set_mask(0)));
        }
        set_mask(before);
        // SAFETY: an action is plain data, and zeros are an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        assert!(is_inside(while_handled(0, &action)));
        action.sa_flags = libc::SA_NODEFER;
        action.sa_mask = set_of(bit(libc::SIGBUS) | bit(libc::SIGTERM));
        assert_eq!(while_handled(bit(libc::SIGINT), &action), bit(libc::SIGINT) | bit(libc::SIGTERM));
    }
}
