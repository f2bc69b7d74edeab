//! What programs say about SIGBUS where faults are served in the faulting thread: there a fault is that signal, and must
//! reach the pager.
//!
//! The program's action for SIGBUS is kept for signals that are no fault of the pager's, and SIGBUS is never blocked. A stack for
//! signal handlers is pinned if it is managed: the kernel writes to it and cannot wait. With threads that serve faults all
//! calls pass through unchanged.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, sighandler_t, sigset_t, stack_t};
use refault_pager::FaultMode;

use crate::mappings::{PAGE, managed};
use crate::{Agent, agent};

static SIGACTION: AtomicUsize = AtomicUsize::new(0);
static SIGNAL: AtomicUsize = AtomicUsize::new(0);
static PTHREAD_SIGMASK: AtomicUsize = AtomicUsize::new(0);

/// The agent, if faults are served in the thread that takes them.
fn in_thread() -> Option<&'static Agent> {
    agent().filter(|agent| agent.config.fault_mode == FaultMode::InThread)
}

/// libc's function of a name.
fn real(found: &AtomicUsize, name: &CStr) -> usize {
    match found.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: looks up a name.
            let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            found.store(address, Ordering::Relaxed);
            address
        }
        address => address,
    }
}

/// Looks everything up that signal handlers may call. Called when the agent starts.
pub(crate) fn register() {
    real(&SIGACTION, c"sigaction");
    real(&SIGNAL, c"signal");
    real(&PTHREAD_SIGMASK, c"pthread_sigmask");
}

/// A set of signals without SIGBUS.
///
/// # Safety
/// The pointer is to a live set.
pub(crate) unsafe fn without_sigbus(set: *const sigset_t) -> sigset_t {
    // SAFETY: promised by the caller.
    unsafe {
        let mut set = *set;
        libc::sigdelset(&mut set, libc::SIGBUS);
        set
    }
}

/// sigaction(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    type Real = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    // SAFETY: libc's function of this type; pointers are the caller's.
    unsafe {
        let real = std::mem::transmute::<usize, Real>(real(&SIGACTION, c"sigaction"));
        if new.is_null() && signal != libc::SIGBUS || in_thread().is_none() {
            return real(signal, new, old);
        }
        let mut action = if new.is_null() { None } else { Some(*new) };
        if let Some(action) = &mut action {
            action.sa_mask = without_sigbus(&action.sa_mask);
        }
        if signal != libc::SIGBUS {
            return real(signal, action.as_ref().map_or(std::ptr::null(), std::ptr::from_ref), old);
        }
        let before = refault_pager::set_program_action(action.as_ref());
        if let Some(before) = before.filter(|_| !old.is_null()) {
            *old = before;
        }
    }
    0
}

/// signal(2), with the meaning that glibc gives it.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    type Real = unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t;
    if signal != libc::SIGBUS || in_thread().is_none() {
        // SAFETY: libc's function of this type.
        return unsafe { std::mem::transmute::<usize, Real>(real(&SIGNAL, c"signal"))(signal, handler) };
    }
    // SAFETY: an action is plain data, and zeros are an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    refault_pager::set_program_action(Some(&action)).map_or(libc::SIG_DFL, |before| before.sa_sigaction)
}

/// pthread_sigmask(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    type Real = unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int;
    // SAFETY: libc's function of this type; pointers are the caller's.
    unsafe {
        let real = std::mem::transmute::<usize, Real>(real(&PTHREAD_SIGMASK, c"pthread_sigmask"));
        if set.is_null() || how == libc::SIG_UNBLOCK || in_thread().is_none() {
            return real(how, set, old);
        }
        real(how, &without_sigbus(set), old)
    }
}

/// sigprocmask(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the same call but for how it says what failed.
    match unsafe { pthread_sigmask(how, set, old) } {
        0 => 0,
        errno => crate::mappings::fail(errno),
    }
}

/// sigaltstack(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
    if !new.is_null() && in_thread().is_some() {
        // SAFETY: the caller's stack; a copy, because it may be evicted.
        let stack = unsafe { *new };
        if let Some(agent) = managed(stack.ss_sp as usize).filter(|_| stack.ss_flags & libc::SS_DISABLE == 0) {
            let start = stack.ss_sp as usize & !(PAGE - 1);
            if crate::advice::pin(agent, start, stack.ss_sp as usize + stack.ss_size).is_err() {
                return crate::mappings::fail(libc::ENOMEM);
            }
        }
        // SAFETY: as it came.
        return unsafe { libc::syscall(libc::SYS_sigaltstack, &raw const stack, old) as c_int };
    }
    // SAFETY: passed on as it came.
    unsafe { libc::syscall(libc::SYS_sigaltstack, new, old) as c_int }
}
