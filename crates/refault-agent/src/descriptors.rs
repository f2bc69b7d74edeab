//! The pager's descriptors, kept from programs that close everything.
//!
//! Daemons close all descriptors they did not open; without this they would close the pager's. `close` of one of them answers
//! EBADF, as it would have without the agent.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_uint};

const MOST: usize = 32;
static PROTECTED: [AtomicI32; MOST] = [const { AtomicI32::new(-1) }; MOST];

/// The open descriptors, as a set.
pub(crate) fn open_now() -> Vec<c_int> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let mut open: Vec<c_int> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The descriptor of the directory itself was among them and is closed by now.
    // SAFETY: asks for flags only.
    open.retain(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } != -1);
    open
}

/// Protects what was opened since.
pub(crate) fn protect_new(before: &[c_int]) {
    let new = open_now().into_iter().filter(|fd| !before.contains(fd));
    for (slot, fd) in PROTECTED.iter().zip(new) {
        slot.store(fd, Ordering::Relaxed);
    }
}

fn is_protected(fd: c_int) -> bool {
    fd >= 0 && PROTECTED.iter().any(|slot| slot.load(Ordering::Relaxed) == fd)
}

/// close(2).
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    if is_protected(fd) {
        // SAFETY: errno is this thread's.
        unsafe { *libc::__errno_location() = libc::EBADF };
        return -1;
    }
    // SAFETY: passed on as it came.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
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
