//! The agent's own descriptors: high numbers, close-on-exec but for the segment, and not the program's to close or
//! replace, nor listed in `/proc/self/fd`: programs that confine themselves look there for what is open still.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, Ordering};

use refault_linux::calls::{
    SYS_close, SYS_close_range, SYS_dup2, SYS_dup3, SYS_fcntl, SYS_fstat, SYS_fstatfs, SYS_getrlimit, SYS_newfstatat,
    SYS_open, SYS_statx,
};
use refault_linux::errno::{EMFILE, ENFILE};
use refault_linux::sys;
use refault_paging::settings::Output;

use crate::frame;

/// At most so many.
const MAX_OWN: usize = 64;
static OWN: [AtomicI32; MAX_OWN] = [const { AtomicI32::new(-1) }; MAX_OWN];

/// The lowest of them: most numbers are not looked for further.
static LOWEST: AtomicI32 = AtomicI32::new(i32::MAX);

/// Whether a call failed because this process, or the machine, may have no more descriptors.
pub(crate) fn are_lacking(error: isize) -> bool {
    matches!(error, EMFILE | ENFILE)
}

/// Moves a descriptor of the agent's to a high number and keeps it from the program. Returns the new number, or the
/// old one if there is none. The old one is free again, also if it is one of the lowest three: a program may begin
/// without them.
pub(crate) fn adopt(descriptor: i32) -> i32 {
    let Some(high) = high(descriptor) else {
        keep(descriptor);
        return descriptor;
    };
    // SAFETY: closes a descriptor that is ours.
    unsafe { sys::call(SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
    keep(high);
    high
}

/// A copy of one of the program's descriptors for the agent; -1 if there is none to copy, the descriptor itself, which
/// stays the program's, if no number is left.
pub(crate) fn copy_of(descriptor: i32) -> i32 {
    const GETFD: usize = 1;
    if let Some(high) = high(descriptor) {
        keep(high);
        return high;
    }
    // SAFETY: asks only.
    let is_there = unsafe { sys::call(SYS_fcntl, [descriptor as usize, GETFD, 0, 0, 0, 0]) } >= 0;
    if is_there { descriptor } else { -1 }
}

/// A copy with a high number, close-on-exec.
fn high(descriptor: i32) -> Option<i32> {
    const DUPFD_CLOEXEC: usize = 1030;
    let mut limit = [0u64; 2];
    // SAFETY: getrlimit writes two words.
    unsafe { sys::call(SYS_getrlimit, [7, limit.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let from = limit[0].min(1024).saturating_sub(MAX_OWN as u64 + 8) as usize;
    // SAFETY: makes a descriptor.
    let high = unsafe { sys::call(SYS_fcntl, [descriptor as usize, DUPFD_CLOEXEC, from, 0, 0, 0]) };
    (high >= 0).then_some(high as i32)
}

/// Keeps a number from the program.
pub(crate) fn keep(descriptor: i32) {
    if !is_own(descriptor as usize)
        && let Some(free) = OWN.iter().find(|own| own.load(Ordering::Relaxed) < 0)
    {
        free.store(descriptor, Ordering::Relaxed);
        LOWEST.fetch_min(descriptor, Ordering::Relaxed);
    }
}

/// A number is closed: the program may have it.
pub(crate) fn closed(descriptor: i32) {
    OWN.iter().filter(|own| own.load(Ordering::Relaxed) == descriptor).for_each(|own| own.store(-1, Ordering::Relaxed));
}

/// Whether a number is the agent's.
pub(crate) fn is_own(descriptor: usize) -> bool {
    let number = descriptor as i32;
    number >= LOWEST.load(Ordering::Relaxed) && OWN.iter().any(|own| own.load(Ordering::Relaxed) == number)
}

/// Whether a call closes, copies, replaces or asks about a descriptor of the agent's.
pub(crate) fn is_about_own(number: usize, arguments: [usize; 6]) -> bool {
    let [a, b, ..] = arguments;
    match number {
        SYS_fstat | SYS_newfstatat | SYS_statx => asks_about_own(number, arguments),
        SYS_dup2 | SYS_dup3 => is_own(a) || is_own(b),
        _ => is_own(a),
    }
}

/// Whether a call asks about a file by a number that is the agent's: `fstat`, and `newfstatat` and `statx` without a
/// path.
fn asks_about_own(number: usize, [descriptor, path, third, fourth, ..]: [usize; 6]) -> bool {
    const EMPTY_PATH: usize = 0x1000;
    let flags = if number == SYS_statx { third } else { fourth };
    is_own(descriptor)
        && (number == SYS_fstat
            || flags & EMPTY_PATH != 0 && (path == 0 || frame::read::<u8>(path).is_none_or(|byte| byte == 0)))
}

/// Whether a descriptor is of a folder of `/proc`, which may list the agent's. Cost: a system call.
pub(crate) fn is_folder_of_proc(descriptor: usize) -> bool {
    const PROC: u64 = 0x9fa0;
    let mut status = [0u64; 15];
    // SAFETY: fstatfs writes 120 bytes.
    let error = unsafe { sys::call(SYS_fstatfs, [descriptor, status.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    error == 0 && status[0] == PROC
}

/// Takes the agent's descriptors out of the entries, so many bytes, that `getdents64` has said of a folder of `/proc`. How
/// many bytes are left.
pub(crate) fn leave_out_own(folder: usize, entries: usize, bytes: usize) -> usize {
    const LENGTH: usize = 16;
    const KIND: usize = 18;
    const NAME: usize = 19;
    const LINK: u8 = 10;
    let (mut from, mut to) = (entries, entries);
    let end = entries + bytes;
    while from < end {
        let (Some(length), Some(kind)) = (frame::read::<u16>(from + LENGTH), frame::read::<u8>(from + KIND)) else {
            break;
        };
        let length = usize::from(length);
        let names_own = kind == LINK && number_at(from + NAME).is_some_and(|number| is_own_in(folder, number));
        if !names_own {
            if to != from && !frame::copy(to, from, length) {
                break;
            }
            to += length;
        }
        from += length;
    }
    if from < end { bytes } else { to - entries }
}

/// The number that a name of the program's is.
fn number_at(name: usize) -> Option<usize> {
    let mut number = None;
    for at in name..name + 8 {
        match frame::read::<u8>(at)? {
            0 => return number,
            digit @ b'0'..=b'9' => number = Some(number.unwrap_or(0) * 10 + usize::from(digit - b'0')),
            _ => return None,
        }
    }
    None
}

/// Whether a number is the agent's and the folder says of it what it is here, so that it is this process's, or that of another
/// that has the same.
fn is_own_in(folder: usize, number: usize) -> bool {
    if !is_own(number) {
        return false;
    }
    // What `newfstatat` says: 144 bytes, of which the first two words are device and inode.
    let status = |folder: usize, name: &str, flags: usize| {
        let name = std::ffi::CString::new(name).ok()?;
        let mut status = [0u64; 18];
        // SAFETY: reads the name and writes 144 bytes.
        let error = unsafe {
            sys::call(SYS_newfstatat, [folder, name.as_ptr() as usize, status.as_mut_ptr() as usize, flags, 0, 0])
        };
        (error == 0).then_some([status[0], status[1]])
    };
    const EMPTY_PATH: usize = 0x1000;
    let here = status(number, "", EMPTY_PATH);
    here.is_some() && here == status(folder, &number.to_string(), 0)
}

/// The number of an open file that the command gave to the program; if another file has the number by now, the path is
/// opened.
pub(crate) fn output(file: &Output) -> Option<i32> {
    let descriptor = file.descriptor;
    let mut stat = [0u64; 18];
    // SAFETY: fstat writes 144 bytes, of which the first two words are device and inode.
    let there = unsafe { sys::call(SYS_fstat, [descriptor as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) } == 0;
    if there && stat[..2] == [file.device, file.inode] {
        keep(descriptor);
        return Some(descriptor);
    }
    let path = std::ffi::CString::new(file.path.as_bytes()).ok()?;
    // SAFETY: opens a file: O_WRONLY | O_APPEND | O_CLOEXEC.
    let opened = unsafe { sys::call(SYS_open, [path.as_ptr() as usize, 0o2_002_001, 0, 0, 0, 0]) };
    (opened >= 0).then(|| adopt(opened as i32))
}

/// `close_range`, which leaves the agent's descriptors open.
pub(crate) fn close_range(first: usize, last: usize, flags: usize) -> isize {
    let (first, last) = (first & 0xffff_ffff, last & 0xffff_ffff);
    if first > last {
        return -22;
    }
    let mut own: [usize; MAX_OWN] = std::array::from_fn(|index| OWN[index].load(Ordering::Relaxed) as u32 as usize);
    own.sort_unstable();
    let mut from = first;
    let close = |from: usize, to: usize| -> isize {
        // SAFETY: the program's descriptors.
        if from > to { 0 } else { unsafe { sys::call(SYS_close_range, [from, to, flags, 0, 0, 0]) } }
    };
    for descriptor in own.into_iter().filter(|own| *own != u32::MAX as usize) {
        if (from..=last).contains(&descriptor) {
            let error = if descriptor > from { close(from, descriptor - 1) } else { 0 };
            if error < 0 {
                return error;
            }
            from = descriptor + 1;
        }
    }
    close(from, last)
}
