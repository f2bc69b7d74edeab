//! `mmap` and its family: large private anonymous memory comes from the pager, everything else from the kernel.
//!
//! Managed are mappings of at least [`SMALLEST`] bytes that are private, anonymous, readable and writable, not executable,
//! not a stack, not of huge pages and not at a fixed address. Reservations without access stay the kernel's, and so does what is
//! opened in them later. All calls here go to the kernel directly, because the names of libc are ours.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{c_int, c_void, off_t, size_t};
use refault_pager::Hint;

use crate::heap::OwnForAMoment;
use crate::{agent, heap};

/// Smaller mappings are left to the kernel.
const SMALLEST: usize = 128 << 10;

const PAGE: usize = 4096;

/// Bytes of private anonymous mappings of at least [`SMALLEST`] bytes that were left to the kernel.
pub(crate) static UNMANAGED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Whether access rights inside the arena were ever changed.
static PROTECTED: AtomicBool = AtomicBool::new(false);

fn kernel(result: libc::c_long) -> *mut c_void {
    result as *mut c_void
}

fn failed(errno: c_int) -> *mut c_void {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = errno };
    libc::MAP_FAILED
}

fn managed(address: usize) -> Option<&'static crate::Agent> {
    agent().filter(|agent| agent.pager.owns(address))
}

/// mmap(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: passed on as it came.
    let pass_on = || kernel(unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) });
    let Some(agent) = agent().filter(|_| !heap::is_own_thread()) else { return pass_on() };
    let private_anonymous = flags & libc::MAP_PRIVATE != 0 && flags & libc::MAP_ANONYMOUS != 0;
    if flags & libc::MAP_FIXED != 0 {
        return match managed(address as usize) {
            None => pass_on(),
            Some(agent) if private_anonymous => {
                // SAFETY: a fixed mapping replaces what was there.
                unsafe { agent.pager.discard(address as usize, len) };
                PROTECTED.store(true, Ordering::Relaxed);
                // SAFETY: changes rights of a range that the caller owns.
                if unsafe { libc::syscall(libc::SYS_mprotect, address, len, protection) } != 0 {
                    return libc::MAP_FAILED;
                }
                address
            }
            Some(_) => {
                crate::forks::say("a file was to be mapped over managed memory, which is refused (EINVAL)");
                failed(libc::EINVAL)
            }
        };
    }
    let large = private_anonymous && len >= SMALLEST;
    let odd = libc::MAP_GROWSDOWN | libc::MAP_STACK | libc::MAP_HUGETLB | libc::MAP_32BIT | libc::MAP_FIXED_NOREPLACE;
    if !large || flags & odd != 0 || protection != libc::PROT_READ | libc::PROT_WRITE {
        if large {
            UNMANAGED_BYTES.fetch_add(len as u64, Ordering::Relaxed);
        }
        return pass_on();
    }
    let align = if len < 2 << 20 { PAGE } else { len.next_power_of_two().min(64 << 20) };
    let Some(mapped) = agent.pager.map(len, align) else {
        UNMANAGED_BYTES.fetch_add(len as u64, Ordering::Relaxed);
        return pass_on();
    };
    if agent.config.hint != Hint::Normal {
        agent.pager.hint(mapped, len, agent.config.hint);
    }
    let _own = (flags & (libc::MAP_LOCKED | libc::MAP_POPULATE) != 0).then(OwnForAMoment::begin);
    if flags & libc::MAP_LOCKED != 0 {
        let _ = agent.pager.pin(mapped, len);
    } else if flags & libc::MAP_POPULATE != 0 {
        agent.pager.prefetch(mapped, len);
    }
    mapped as *mut c_void
}

/// mmap64(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the same call.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

/// munmap(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    let Some(agent) = managed(address as usize) else {
        // SAFETY: passed on as it came.
        return unsafe { libc::syscall(libc::SYS_munmap, address, len) } as c_int;
    };
    if !(address as usize).is_multiple_of(PAGE) || len == 0 {
        failed(libc::EINVAL);
        return -1;
    }
    if PROTECTED.load(Ordering::Relaxed) {
        // SAFETY: the next owner of these addresses expects to read and write.
        unsafe { libc::syscall(libc::SYS_mprotect, address, len, libc::PROT_READ | libc::PROT_WRITE) };
    }
    // SAFETY: promised by the caller.
    unsafe { agent.pager.unmap(address as usize, len) };
    0
}

/// mprotect(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    if managed(address as usize).is_some() {
        PROTECTED.store(true, Ordering::Relaxed);
    }
    // SAFETY: passed on as it came.
    unsafe { libc::syscall(libc::SYS_mprotect, address, len, protection) as c_int }
}

/// mremap(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: size_t,
    new_len: size_t,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let Some(agent) = managed(old as usize) else {
        // SAFETY: passed on as it came.
        return kernel(unsafe { libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags, new) });
    };
    let start = old as usize;
    if !start.is_multiple_of(PAGE) || old_len == 0 || new_len == 0 || flags & !libc::MREMAP_MAYMOVE != 0 {
        return failed(libc::EINVAL);
    }
    let (old_len, new_len) = (old_len.next_multiple_of(PAGE), new_len.next_multiple_of(PAGE));
    if new_len <= old_len {
        if new_len < old_len {
            // SAFETY: the caller gives the tail up.
            unsafe { munmap((start + new_len) as *mut c_void, old_len - new_len) };
        }
        return old;
    }
    if agent.pager.map_at(start + old_len, new_len - old_len) {
        return old;
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return failed(libc::ENOMEM);
    }
    let Some(target) = agent.pager.map(new_len, PAGE) else { return failed(libc::ENOMEM) };
    // SAFETY: the caller gives the old range up for the new one, which nobody knows yet.
    unsafe {
        agent.pager.move_contents(start, target, old_len);
        munmap(old, old_len);
    }
    target as *mut c_void
}

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
    let start = address as usize;
    if !start.is_multiple_of(PAGE) {
        failed(libc::EINVAL);
        return -1;
    }
    // What the pager needs for this (the codec's tables, which C allocates) must not be managed: a fork could not end while
    // it is served, and it is not served while a fork begins.
    let _own = OwnForAMoment::begin();
    match advice {
        // SAFETY: the caller gives the contents up.
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE => unsafe { agent.pager.discard(start, len) },
        libc::MADV_WILLNEED | libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => agent.pager.prefetch(start, len),
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
        _ => {
            failed(libc::EINVAL);
            return -1;
        }
    }
    0
}

/// mlock(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, len: size_t) -> c_int {
    let Some(agent) = managed(address as usize) else {
        // SAFETY: passed on as it came.
        return unsafe { libc::syscall(libc::SYS_mlock, address, len) } as c_int;
    };
    let start = address as usize & !(PAGE - 1);
    let _own = OwnForAMoment::begin();
    match agent.pager.pin(start, address as usize + len - start) {
        Ok(()) => 0,
        Err(_) => {
            failed(libc::ENOMEM);
            -1
        }
    }
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
    agent.pager.unpin(start, address as usize + len - start);
    0
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
    failed(libc::ENOMEM);
    -1
}
