//! The pager's descriptors, kept from programs that close everything and from those that choose numbers.
//!
//! Daemons close all descriptors they did not open, and shells open files under numbers of their choice (`exec 3>file`);
//! either would take the pager's away. So they get numbers that programs hardly use ([`Opening`]); `close`, and `dup2`
//! and `dup3` onto one of them, answer EBADF, as they would have for a number beyond the limit.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use libc::{c_int, c_uint};

const MOST: usize = 32;
static PROTECTED: [AtomicI32; MOST] = [const { AtomicI32::new(-1) }; MOST];
/// The agent itself opens and closes.
static OPENING: AtomicBool = AtomicBool::new(false);

/// Numbers below are left to the program, as far as its limit allows.
const FROM: u64 = 100;
/// Without `/proc` numbers up to here are asked for one by one.
const LOOKED_AT: c_int = 4096;

/// While it lives, the agent opens what it needs: under high numbers, protected from then on. No other thread of the program
/// runs.
pub(crate) struct Opening {
    before: Vec<c_int>,
    /// Placeholders for the low numbers.
    low: Vec<c_int>,
}

impl Opening {
    pub(crate) fn begin() -> Opening {
        OPENING.store(true, Ordering::Relaxed);
        let before = open_now();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        // What there is of a low limit is needed; but never the numbers of the standard streams.
        let from = FROM.min(limit.saturating_sub(MOST as u64)).max(3) as c_int;
        let mut low = Vec::with_capacity(from as usize);
        // SAFETY: a new descriptor of no consequence.
        let mut next = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        while next != -1 {
            low.push(next);
            if next >= from {
                break;
            }
            // SAFETY: the first one is open.
            next = unsafe { libc::fcntl(low[0], libc::F_DUPFD_CLOEXEC, 0) };
        }
        Opening { before, low }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        for fd in &self.low {
            // SAFETY: opened by this value and used by nobody.
            unsafe { libc::syscall(libc::SYS_close, *fd) };
        }
        // In a forked child some of the parent's are gone.
        for slot in &PROTECTED {
            // SAFETY: asks for flags only.
            if unsafe { libc::fcntl(slot.load(Ordering::Relaxed), libc::F_GETFD) } == -1 {
                slot.store(-1, Ordering::Relaxed);
            }
        }
        open_now().into_iter().filter(|fd| !self.before.contains(fd)).for_each(protect);
        OPENING.store(false, Ordering::Relaxed);
    }
}

/// The open descriptors, as a set.
fn open_now() -> Vec<c_int> {
    let mut open: Vec<c_int> = match std::fs::read_dir("/proc/self/fd") {
        Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect(),
        // Where there is no /proc.
        Err(_) => (0..LOOKED_AT).collect(),
    };
    // The descriptor of the directory itself was among them and is closed by now.
    // SAFETY: asks for flags only.
    open.retain(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } != -1);
    open
}

/// Protects one more, as far as there is room.
pub(crate) fn protect(fd: c_int) {
    let free = |slot: &&AtomicI32| slot.compare_exchange(-1, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if !PROTECTED.iter().any(|slot| slot.load(Ordering::Relaxed) == fd) {
        let _ = PROTECTED.iter().find(free);
    }
}

/// EBADF.
fn refuse() -> c_int {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = libc::EBADF };
    -1
}

fn is_protected(fd: c_int) -> bool {
    fd >= 0 && !OPENING.load(Ordering::Relaxed) && PROTECTED.iter().any(|slot| slot.load(Ordering::Relaxed) == fd)
}

/// close(2).
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    if is_protected(fd) {
        return refuse();
    }
    // SAFETY: passed on as it came.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// dup2(2).
#[unsafe(no_mangle)]
pub extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if is_protected(new) {
        return refuse();
    }
    if old == new {
        // SAFETY: asks for flags only.
        return if unsafe { libc::fcntl(old, libc::F_GETFD) } == -1 { -1 } else { old };
    }
    // SAFETY: passed on as it came.
    unsafe { libc::syscall(libc::SYS_dup3, old, new, 0) as c_int }
}

/// dup3(2).
#[unsafe(no_mangle)]
pub extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if is_protected(new) {
        return refuse();
    }
    // SAFETY: passed on as it came.
    unsafe { libc::syscall(libc::SYS_dup3, old, new, flags) as c_int }
}

/// close_range(2).
#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut from = first;
    let mut protected: Vec<c_uint> =
        PROTECTED.iter().filter_map(|slot| c_uint::try_from(slot.load(Ordering::Relaxed)).ok()).collect();
    protected.sort_unstable();
    for fd in protected {
        if from <= fd && fd <= last {
            if from < fd {
                // SAFETY: a part of what the caller asked for.
                let result = unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, flags) };
                if result != 0 {
                    return result as c_int;
                }
            }
            from = fd + 1;
        }
    }
    if from > last {
        return 0;
    }
    // SAFETY: the rest of what the caller asked for.
    unsafe { libc::syscall(libc::SYS_close_range, from, last, flags) as c_int }
}

/// closefrom(3).
#[unsafe(no_mangle)]
pub extern "C" fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}
