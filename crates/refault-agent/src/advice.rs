//! What programs say about memory: advice, and what must stay.

use libc::{c_int, c_long, c_uint, c_void, iovec, size_t, ssize_t};
use refault_pager::{Hint, PagerError};

use crate::heap::OwnForAMoment;
use crate::mappings::{PAGE, fail, managed};
use crate::{Agent, agent};

/// [`libc`] does not have it.
const MADV_DONTNEED_LOCKED: c_int = 24;

/// madvise(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let Some(agent) = managed(address as usize) else {
        // SAFETY: passed on as it came.
        return unsafe { libc::syscall(libc::SYS_madvise, address, len, advice) } as c_int;
    };
    // SAFETY: promised by the caller.
    unsafe { advise(agent, address as usize, len, advice) }
}

/// Advice about managed memory. -1 and an errno if it is refused.
///
/// # Safety
/// As for madvise(2).
unsafe fn advise(agent: &Agent, start: usize, len: usize, advice: c_int) -> c_int {
    if !start.is_multiple_of(PAGE)
        || len.checked_next_multiple_of(PAGE).and_then(|len| start.checked_add(len)).is_none()
    {
        return fail(libc::EINVAL);
    }
    crate::inside::run(agent, move || {
        // What the pager needs for this (the codec's tables, which C allocates) must not be managed: a fork could not end while
        // it is served, and it is not served while a fork begins.
        let _own = OwnForAMoment::begin();
        match advice {
            // SAFETY: the caller gives the contents up.
            libc::MADV_DONTNEED | libc::MADV_FREE | MADV_DONTNEED_LOCKED => unsafe { agent.pager.discard(start, len) },
            libc::MADV_WILLNEED | libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => {
                agent.pager.prefetch(start, len)
            }
            libc::MADV_COLD | libc::MADV_PAGEOUT => agent.pager.evict(start, len),
            libc::MADV_NORMAL => agent.pager.hint(start, len, Hint::Normal),
            libc::MADV_SEQUENTIAL => agent.pager.hint(start, len, Hint::Sequential),
            libc::MADV_RANDOM => agent.pager.hint(start, len, Hint::Random),
            // What the kernel would do about huge pages, merging, forks and dumps does not apply to this memory.
            libc::MADV_HUGEPAGE
            | libc::MADV_NOHUGEPAGE
            | libc::MADV_MERGEABLE
            | libc::MADV_UNMERGEABLE
            | libc::MADV_DONTFORK
            | libc::MADV_DOFORK
            | libc::MADV_DONTDUMP
            | libc::MADV_DODUMP => {}
            _ => return fail(libc::EINVAL),
        }
        0
    })
}

/// process_madvise(2): the kernel would take managed memory for a shared file's, whose contents survive every advice.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    ranges: *const iovec,
    count: size_t,
    advice: c_int,
    flags: c_uint,
) -> ssize_t {
    let pass_on = |ranges: *const iovec, count: size_t| {
        // SAFETY: passed on as it came, or a part of it.
        unsafe { libc::syscall(libc::SYS_process_madvise, process, ranges, count, advice, flags) as ssize_t }
    };
    if agent().is_none() || ranges.is_null() || count > libc::UIO_MAXIOV as usize || flags != 0 || !is_self(process) {
        return pass_on(ranges, count);
    }
    let mut advised = 0;
    for index in 0..count {
        // SAFETY: the caller's array has that many elements.
        let range = unsafe { ranges.add(index) };
        // SAFETY: as above.
        let (start, len) = unsafe { ((*range).iov_base as usize, (*range).iov_len) };
        let done = match managed(start) {
            // SAFETY: promised by the caller.
            Some(agent) => match unsafe { advise(agent, start, len, advice) } {
                0 => len as ssize_t,
                failed => failed as ssize_t,
            },
            None => pass_on(range, 1),
        };
        if done < 0 {
            return if advised > 0 { advised } else { done };
        }
        advised += done;
    }
    advised
}

/// Whether a descriptor of a process means this one.
fn is_self(process: c_int) -> bool {
    // PIDFD_SELF_THREAD and PIDFD_SELF_THREAD_GROUP.
    if process == -10_000 || process == -20_000 {
        return true;
    }
    let Ok(text) = std::fs::read_to_string(format!("/proc/self/fdinfo/{process}")) else { return false };
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<u32>().ok());
    pid == Some(std::process::id())
}

/// mlock(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, len: size_t) -> c_int {
    match managed(address as usize) {
        Some(agent) => lock(agent, address as usize, len),
        // SAFETY: passed on as it came.
        None => unsafe { libc::syscall(libc::SYS_mlock, address, len) as c_int },
    }
}

/// mlock2(2). Memory that is to be kept once it is touched is brought in at once.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(address: *const c_void, len: size_t, flags: c_uint) -> c_int {
    match managed(address as usize) {
        Some(_) if flags & !libc::MLOCK_ONFAULT != 0 => fail(libc::EINVAL),
        Some(agent) => lock(agent, address as usize, len),
        // SAFETY: passed on as it came.
        None => unsafe { libc::syscall(libc::SYS_mlock2, address, len, flags) as c_int },
    }
}

fn lock(agent: &Agent, address: usize, len: size_t) -> c_int {
    let start = address & !(PAGE - 1);
    let Some(end) = address.checked_add(len) else { return fail(libc::EINVAL) };
    match pin(agent, start, end) {
        Ok(()) => 0,
        Err(_) => fail(libc::ENOMEM),
    }
}

/// Brings a range in and keeps it.
pub(crate) fn pin(agent: &Agent, start: usize, end: usize) -> Result<(), PagerError> {
    crate::inside::run(agent, move || {
        let _own = OwnForAMoment::begin();
        agent.pager.pin(start, end - start)
    })
}

/// munlock(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(address: *const c_void, len: size_t) -> c_int {
    let Some(agent) = managed(address as usize) else {
        // SAFETY: passed on as it came.
        return unsafe { libc::syscall(libc::SYS_munlock, address, len) } as c_int;
    };
    let start = address as usize & !(PAGE - 1);
    let Some(end) = (address as usize).checked_add(len) else { return fail(libc::EINVAL) };
    let whole = crate::inside::run(agent, move || {
        agent.pager.unpin(start, end - start);
        agent.pager.is_taken(start, end - start)
    });
    if whole || end == start { 0 } else { fail(libc::ENOMEM) }
}

/// munlockall(2).
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    if let Some(agent) = agent() {
        crate::inside::run(agent, move || agent.pager.unpin_all());
    }
    let nothing: c_long = 0;
    // SAFETY: passed on as it came.
    unsafe { libc::syscall(libc::SYS_munlockall, nothing) as c_int }
}

/// mlockall(2): refused once memory is managed, because all of it would have to stay in memory.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if agent().is_none() {
        // SAFETY: passed on as it came.
        return unsafe { libc::syscall(libc::SYS_mlockall, flags) } as c_int;
    }
    crate::forks::say("mlockall is refused (ENOMEM): under a budget not everything can stay in memory");
    fail(libc::ENOMEM)
}
