//! Threads that start: tables that libc keeps for each must not be managed, and where faults are served in the thread, neither may its
//! stack be.
//!
//! The address of a thread-local variable is looked up in a table that libc allocates when the thread is created. The agent's
//! code has such variables, and uses them where nobody serves faults: in a forked child before its pager runs, and in the
//! handler that serves faults in the faulting thread. A thread that starts also reads the tables of the locale, with all
//! signals blocked. So `pthread_create`, `thrd_create`, `setlocale` and `newlocale` get their memory from the agent's heap.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_char, c_int, c_void, pthread_attr_t, pthread_t};

use crate::heap::OwnForAMoment;

static PTHREAD_CREATE: AtomicUsize = AtomicUsize::new(0);
static THRD_CREATE: AtomicUsize = AtomicUsize::new(0);
static SETLOCALE: AtomicUsize = AtomicUsize::new(0);
static NEWLOCALE: AtomicUsize = AtomicUsize::new(0);

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type C11Start = extern "C" fn(*mut c_void) -> c_int;

/// libc's function of a name; 0 if there is none.
fn real(found: &AtomicUsize, name: &CStr) -> usize {
    let known = found.load(Ordering::Acquire);
    if known != 0 {
        return known;
    }
    // SAFETY: looks up a name.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    found.store(address, Ordering::Release);
    address
}

/// pthread_create(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    type Real = unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;
    let address = real(&PTHREAD_CREATE, c"pthread_create");
    if address == 0 {
        return libc::ENOSYS;
    }
    // SAFETY: the caller's attributes.
    if unsafe { has_impossible_stack(attributes) } {
        crate::forks::say(
            "a thread is refused (EAGAIN): its stack is managed memory, which --in-thread does not allow",
        );
        return libc::EAGAIN;
    }
    let _unmanaged = OwnForAMoment::begin();
    // SAFETY: the address of libc's function of this type; the arguments are the caller's.
    unsafe { std::mem::transmute::<usize, Real>(address)(thread, attributes, start, argument) }
}

/// Whether a thread is to have a stack in managed memory where faults are served in the thread: there the kernel writes to the stack
/// whenever there is a fault, and cannot wait.
///
/// # Safety
/// The attributes are those of a call of pthread_create(3).
unsafe fn has_impossible_stack(attributes: *const pthread_attr_t) -> bool {
    let Some(agent) = crate::agent().filter(|agent| agent.config.in_thread() && !attributes.is_null()) else {
        return false;
    };
    let (mut lowest, mut size): (*mut c_void, usize) = (std::ptr::null_mut(), 0);
    // SAFETY: promised by the caller; both are live variables.
    let known = unsafe { libc::pthread_attr_getstack(attributes, &mut lowest, &mut size) } == 0;
    // Without a stack of its own the address is as far below zero as the stack is long.
    known && size > 0 && agent.pager.owns((lowest as usize).wrapping_add(size - 1))
}

/// thrd_create(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: *mut pthread_t, start: C11Start, argument: *mut c_void) -> c_int {
    type Real = unsafe extern "C" fn(*mut pthread_t, C11Start, *mut c_void) -> c_int;
    const ERROR: c_int = 2;
    let address = real(&THRD_CREATE, c"thrd_create");
    if address == 0 {
        return ERROR;
    }
    let _unmanaged = OwnForAMoment::begin();
    // SAFETY: the address of libc's function of this type; the arguments are the caller's.
    unsafe { std::mem::transmute::<usize, Real>(address)(thread, start, argument) }
}

/// setlocale(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setlocale(category: c_int, locale: *const c_char) -> *mut c_char {
    type Real = unsafe extern "C" fn(c_int, *const c_char) -> *mut c_char;
    let address = real(&SETLOCALE, c"setlocale");
    if address == 0 {
        return std::ptr::null_mut();
    }
    let _unmanaged = OwnForAMoment::begin();
    // SAFETY: the address of libc's function of this type; the arguments are the caller's.
    unsafe { std::mem::transmute::<usize, Real>(address)(category, locale) }
}

/// newlocale(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn newlocale(mask: c_int, locale: *const c_char, base: libc::locale_t) -> libc::locale_t {
    type Real = unsafe extern "C" fn(c_int, *const c_char, libc::locale_t) -> libc::locale_t;
    let address = real(&NEWLOCALE, c"newlocale");
    if address == 0 {
        return std::ptr::null_mut();
    }
    let _unmanaged = OwnForAMoment::begin();
    // SAFETY: the address of libc's function of this type; the arguments are the caller's.
    unsafe { std::mem::transmute::<usize, Real>(address)(mask, locale, base) }
}
