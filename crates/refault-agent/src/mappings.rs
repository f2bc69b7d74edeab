//! `mmap` and its family: large private anonymous memory comes from the pager, everything else from the kernel.
//!
//! Managed are mappings of at least [`SMALLEST`] bytes that are private, anonymous, readable and writable, not executable,
//! not a stack, not of huge pages and not at a fixed address outside the pager's. Reservations without access stay the
//! kernel's, and so does what is opened in them later. All calls here go to the kernel directly, because the names of
//! libc are ours.
//!
//! Invariant: nothing of the kernel's ever comes to lie among the pager's addresses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{c_int, c_void, off_t, size_t};

use crate::heap::OwnForAMoment;
use crate::{Agent, agent, heap, inside};

/// Smaller mappings are left to the kernel.
const SMALLEST: usize = 128 << 10;

pub(crate) const PAGE: usize = 4096;

/// The kinds of a mapping: shared, private, shared and validated.
const MAP_TYPE: c_int = 0xf;

/// Bytes of private anonymous mappings of at least [`SMALLEST`] bytes that were left to the kernel.
pub(crate) static UNMANAGED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Whether the pager ever had no addresses left, so that blocks of `malloc` may lie elsewhere.
pub(crate) static ARENA_EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Whether access rights inside the arena were ever changed.
static PROTECTED: AtomicBool = AtomicBool::new(false);

fn kernel(result: libc::c_long) -> *mut c_void {
    result as *mut c_void
}

fn failed(errno: c_int) -> *mut c_void {
    fail(errno);
    libc::MAP_FAILED
}

/// Sets errno and is -1.
pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The agent, if an address is its pager's.
pub(crate) fn managed(address: usize) -> Option<&'static Agent> {
    agent().filter(|agent| agent.pager.owns(address))
}

/// Whether any of a range is the pager's.
fn overlaps(agent: &Agent, address: usize, len: usize) -> bool {
    let ours = agent.pager.addresses();
    address < ours.end && address.saturating_add(len) > ours.start
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
    let private_anonymous = flags & MAP_TYPE == libc::MAP_PRIVATE && flags & libc::MAP_ANONYMOUS != 0;
    let place = address as usize;
    if flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE == 0 {
        if !overlaps(agent, place, len) {
            return pass_on();
        }
        if !private_anonymous {
            crate::forks::say("a file was to be mapped over managed memory, which is refused (EINVAL)");
            return failed(libc::EINVAL);
        }
        // SAFETY: a fixed mapping replaces what was there (promised by the caller).
        return unsafe { replace(agent, place, len, protection) };
    }
    let large = private_anonymous && len >= SMALLEST;
    let odd = libc::MAP_GROWSDOWN | libc::MAP_STACK | libc::MAP_HUGETLB | libc::MAP_32BIT;
    let here = flags & libc::MAP_FIXED_NOREPLACE != 0;
    let elsewhere = here && !overlaps(agent, place, len);
    if !large || elsewhere || flags & odd != 0 || protection != libc::PROT_READ | libc::PROT_WRITE {
        if large {
            UNMANAGED_BYTES.fetch_add(len as u64, Ordering::Relaxed);
        }
        return pass_on();
    }
    // The address is a wish, or all that will do.
    let wished = (place.is_multiple_of(PAGE) && agent.pager.owns(place)).then_some(place);
    match inside::run(agent, move || map(agent, wished, here, len, flags)) {
        Some(mapped) => mapped as *mut c_void,
        None if here => failed(if place.is_multiple_of(PAGE) { libc::EEXIST } else { libc::EINVAL }),
        None => {
            ARENA_EXHAUSTED.store(true, Ordering::Relaxed);
            UNMANAGED_BYTES.fetch_add(len as u64, Ordering::Relaxed);
            pass_on()
        }
    }
}

/// Managed memory at `wished`, or elsewhere unless it is to be `here`.
fn map(agent: &Agent, wished: Option<usize>, here: bool, len: usize, flags: c_int) -> Option<usize> {
    let align = if len < 2 << 20 { PAGE } else { len.checked_next_power_of_two().unwrap_or(usize::MAX).min(64 << 20) };
    let elsewhere = || if here { None } else { agent.pager.map(len, align) };
    let mapped = wished.filter(|place| agent.pager.map_at(*place, len)).or_else(elsewhere)?;
    let _own = (flags & (libc::MAP_LOCKED | libc::MAP_POPULATE) != 0).then(OwnForAMoment::begin);
    if flags & libc::MAP_LOCKED != 0 {
        let _ = agent.pager.pin(mapped, len);
    } else if flags & libc::MAP_POPULATE != 0 {
        agent.pager.prefetch(mapped, len);
    }
    Some(mapped)
}

/// A private anonymous mapping at an address of the pager's, whoever had it.
///
/// # Safety
/// The caller gives up what is there.
unsafe fn replace(agent: &Agent, address: usize, len: usize, protection: c_int) -> *mut c_void {
    if !address.is_multiple_of(PAGE) || len == 0 {
        return failed(libc::EINVAL);
    }
    inside::run(agent, move || {
        // SAFETY: promised by the caller.
        if !unsafe { agent.pager.claim(address, len) } {
            return failed(libc::ENOMEM);
        }
        PROTECTED.store(true, Ordering::Relaxed);
        // SAFETY: changes rights of a range that is the caller's now.
        if unsafe { libc::syscall(libc::SYS_mprotect, address, len, protection) } != 0 {
            return libc::MAP_FAILED;
        }
        address as *mut c_void
    })
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
    // SAFETY: passed on as it came.
    let pass_on = || unsafe { libc::syscall(libc::SYS_munmap, address, len) } as c_int;
    let start = address as usize;
    let Some(agent) = agent().filter(|agent| overlaps(agent, start, len)) else { return pass_on() };
    let ours = agent.pager.addresses();
    if !start.is_multiple_of(PAGE) || len == 0 || start < ours.start || len > ours.end - start {
        return fail(libc::EINVAL);
    }
    // SAFETY: promised by the caller.
    inside::run(agent, move || unsafe { unmap(agent, start, len) });
    0
}

/// Gives managed addresses up.
///
/// # Safety
/// The run is not used any more.
unsafe fn unmap(agent: &Agent, start: usize, len: usize) {
    if PROTECTED.load(Ordering::Relaxed) {
        // SAFETY: the next owner of these addresses expects to read and write.
        unsafe { libc::syscall(libc::SYS_mprotect, start, len, libc::PROT_READ | libc::PROT_WRITE) };
    }
    // SAFETY: promised by the caller.
    unsafe { agent.pager.unmap(start, len) };
}

/// mprotect(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    // SAFETY: passed on as it came.
    changes_rights(address, len, || unsafe { libc::syscall(libc::SYS_mprotect, address, len, protection) as c_int })
}

/// pkey_mprotect(2).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(address: *mut c_void, len: size_t, protection: c_int, key: c_int) -> c_int {
    // SAFETY: passed on as it came.
    changes_rights(address, len, || unsafe {
        libc::syscall(libc::SYS_pkey_mprotect, address, len, protection, key) as c_int
    })
}

/// Makes a call that gives memory these rights.
fn changes_rights(address: *mut c_void, len: usize, call: impl FnOnce() -> c_int) -> c_int {
    if agent().is_none_or(|agent| !overlaps(agent, address as usize, len)) {
        return call();
    }
    PROTECTED.store(true, Ordering::Relaxed);
    call()
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
    let (start, fixed) = (old as usize, flags & libc::MREMAP_FIXED != 0);
    let target_is_managed = fixed && agent().is_some_and(|agent| overlaps(agent, new as usize, new_len));
    let Some(agent) = managed(start) else {
        if target_is_managed {
            crate::forks::say("memory of the kernel's was to be moved over managed memory, which is refused (EINVAL)");
            return failed(libc::EINVAL);
        }
        // SAFETY: passed on as it came.
        return kernel(unsafe { libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags, new) });
    };
    let (may_move, stays) = (flags & libc::MREMAP_MAYMOVE != 0, flags & libc::MREMAP_DONTUNMAP != 0);
    let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let lens = old_len.checked_next_multiple_of(PAGE).zip(new_len.checked_next_multiple_of(PAGE));
    let Some((old_len, new_len)) = lens.filter(|(old, new)| *old > 0 && *new > 0) else { return failed(libc::EINVAL) };
    if !start.is_multiple_of(PAGE)
        || flags & !known != 0
        || (fixed || stays) && !may_move
        || stays && old_len != new_len
    {
        return failed(libc::EINVAL);
    }
    // SAFETY: promised by the caller; the arguments were looked at.
    inside::run(agent, move || unsafe { remap(agent, start, old_len, new_len, flags, new as usize) })
}

/// Gives a managed run another length, and another place if it must or is to have one.
///
/// # Safety
/// As for mremap(2) with arguments that it takes.
unsafe fn remap(
    agent: &Agent,
    start: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    place: usize,
) -> *mut c_void {
    let (may_move, stays) = (flags & libc::MREMAP_MAYMOVE != 0, flags & libc::MREMAP_DONTUNMAP != 0);
    if !agent.pager.is_taken(start, old_len) {
        return failed(libc::EFAULT);
    }
    if flags & libc::MREMAP_FIXED != 0 {
        let apart = place.checked_add(new_len).is_some_and(|end| end <= start) || start + old_len <= place;
        if !place.is_multiple_of(PAGE) || !apart {
            return failed(libc::EINVAL);
        }
        // SAFETY: the caller gives up what is there; the ranges are apart.
        if !overlaps(agent, place, new_len) || !unsafe { agent.pager.claim(place, new_len) } {
            crate::forks::say("managed memory was to be moved to a place of the kernel's, which is refused (EINVAL)");
            return failed(libc::EINVAL);
        }
        if PROTECTED.load(Ordering::Relaxed) {
            // SAFETY: the range is the caller's and new.
            unsafe { libc::syscall(libc::SYS_mprotect, place, new_len, libc::PROT_READ | libc::PROT_WRITE) };
        }
        // SAFETY: promised by the caller; both ranges are taken and apart.
        unsafe { move_to(agent, start, place, old_len, new_len, stays) };
        return place as *mut c_void;
    }
    if !stays {
        if new_len <= old_len {
            if new_len < old_len {
                // SAFETY: the caller gives the tail up.
                unsafe { unmap(agent, start + new_len, old_len - new_len) };
            }
            return start as *mut c_void;
        }
        if agent.pager.map_at(start + old_len, new_len - old_len) {
            return start as *mut c_void;
        }
        if !may_move {
            return failed(libc::ENOMEM);
        }
    }
    let Some(target) = agent.pager.map(new_len, PAGE) else { return failed(libc::ENOMEM) };
    // SAFETY: the caller gives the old range up for the new one, which nobody knows yet.
    unsafe { move_to(agent, start, target, old_len, new_len, stays) };
    target as *mut c_void
}

/// Moves contents from one taken range to another and gives the first one up, unless it stays.
///
/// # Safety
/// The ranges are apart and the caller's.
unsafe fn move_to(agent: &Agent, from: usize, to: usize, old_len: usize, new_len: usize, stays: bool) {
    // SAFETY: promised by the caller.
    unsafe {
        agent.pager.move_contents(from, to, old_len.min(new_len));
        if !stays {
            unmap(agent, from, old_len);
        }
    }
}

/// Access rights that the program has changed among the pager's addresses. A child gets a mapping of its own and needs them
/// again.
pub(crate) struct Rights(Vec<(usize, usize, c_int)>);

impl Rights {
    /// As they are now. Without `/proc` they are unknown, and a line says so.
    pub(crate) fn now(agent: &Agent) -> Rights {
        if !PROTECTED.load(Ordering::Relaxed) {
            return Rights(Vec::new());
        }
        let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
            crate::forks::say("without /proc the forked child may read and write what its parent has protected");
            return Rights(Vec::new());
        };
        let ours = agent.pager.addresses();
        Rights(maps.lines().filter_map(parse_rights).filter(|(start, _, _)| ours.contains(start)).collect())
    }

    /// Gives the child's memory the same.
    pub(crate) fn restore(&self) {
        const DEFAULT: c_int = libc::PROT_READ | libc::PROT_WRITE;
        for (start, len, protection) in self.0.iter().filter(|(_, _, protection)| *protection != DEFAULT) {
            // SAFETY: the parent had these rights there.
            unsafe { libc::syscall(libc::SYS_mprotect, *start, *len, *protection) };
        }
    }
}

/// Start, length and access rights of a line of `/proc/self/maps`.
fn parse_rights(line: &str) -> Option<(usize, usize, c_int)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let rights = rest.as_bytes().get(..3)?;
    let bits = [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)];
    let protection = rights.iter().zip(bits).map(|(have, (letter, bit))| if *have == letter { bit } else { 0 }).sum();
    Some((start, end - start, protection))
}
