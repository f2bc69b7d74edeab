//! The agent's own descriptors: high numbers, close-on-exec but for the segment, and not the program's to close or
//! replace, nor listed in `/proc/self/fd`: programs that confine themselves look there for what is open still.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, Ordering};

use refault_linux::calls::{
    SYS_close, SYS_close_range, SYS_dup2, SYS_dup3, SYS_fcntl, SYS_fstat, SYS_newfstatat, SYS_open, SYS_statx,
};
use refault_linux::errno::{EINVAL, EMFILE, ENFILE};
use refault_linux::files::{DIRENT_BYTES, DIRENT_KIND, DIRENT_NAME, DT_LNK, PROC_SUPER_MAGIC, Stat};
use refault_linux::flags::{AT_EMPTY_PATH, F_DUPFD_CLOEXEC, F_GETFD, O_APPEND, O_CLOEXEC, O_WRONLY, RLIMIT_NOFILE};
use refault_linux::sys;
use refault_paging::settings::Output;

use crate::frame;
use crate::library::report;
use crate::process::owner::has_shared_descriptors;
use crate::thread::Thread;

/// The most descriptors that the agent keeps from the program.
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
    if let Some(high) = high(descriptor) {
        keep(high);
        return high;
    }
    // SAFETY: asks only.
    let is_there = unsafe { sys::call(SYS_fcntl, [descriptor as usize, F_GETFD, 0, 0, 0, 0]) } >= 0;
    if is_there { descriptor } else { -1 }
}

/// A copy with a high number, close-on-exec.
fn high(descriptor: i32) -> Option<i32> {
    /// Higher ones cost a longer table.
    const HIGH: u64 = 1024;
    let [limit, _] = sys::limits(RLIMIT_NOFILE);
    let from = limit.min(HIGH).saturating_sub(MAX_OWN as u64 + 8) as usize;
    // SAFETY: makes a descriptor.
    let high = unsafe { sys::call(SYS_fcntl, [descriptor as usize, F_DUPFD_CLOEXEC, from, 0, 0, 0]) };
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
    let flags = if number == SYS_statx { third } else { fourth };
    is_own(descriptor)
        && (number == SYS_fstat
            || flags & AT_EMPTY_PATH != 0 && (path == 0 || frame::read::<u8>(path).is_none_or(|byte| byte == 0)))
}

/// Whether a descriptor is of a folder of `/proc`, which may list the agent's. Cost: a system call.
pub(crate) fn is_folder_of_proc(descriptor: usize) -> bool {
    sys::file_system(descriptor) == Some(PROC_SUPER_MAGIC)
}

/// Removes the agent's descriptors from the `bytes` bytes of entries that `getdents64` returned for a folder of
/// `/proc`. Returns the bytes that are left.
pub(crate) fn leave_out_own(folder: usize, entries: usize, bytes: usize) -> usize {
    let (mut from, mut to) = (entries, entries);
    let end = entries + bytes;
    while from < end {
        let (Some(length), Some(kind)) =
            (frame::read::<u16>(from + DIRENT_BYTES), frame::read::<u8>(from + DIRENT_KIND))
        else {
            break;
        };
        let length = usize::from(length);
        let names_own = kind == DT_LNK && number_at(from + DIRENT_NAME).is_some_and(|number| is_own_in(folder, number));
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

/// Whether a number is the agent's, and the folder's entry of that number is the same file as here. The folder is then
/// this process's, or that of another process that has the same.
fn is_own_in(folder: usize, number: usize) -> bool {
    if !is_own(number) {
        return false;
    }
    let status = |folder: usize, name: &str, flags: usize| {
        let name = std::ffi::CString::new(name).ok()?;
        sys::status_at(folder, &name, flags).as_ref().map(Stat::identity)
    };
    let here = status(number, "", AT_EMPTY_PATH);
    here.is_some() && here == status(folder, &number.to_string(), 0)
}

/// The number of an open file that the command gave to the program; if another file has the number by now, the path is
/// opened.
pub(crate) fn output(file: &Output) -> Option<i32> {
    let descriptor = file.descriptor;
    if sys::status(descriptor as usize).is_ok_and(|status| status.identity() == [file.device, file.inode]) {
        keep(descriptor);
        return Some(descriptor);
    }
    let path = std::ffi::CString::new(file.path.as_bytes()).ok()?;
    const FLAGS: usize = O_WRONLY | O_APPEND | O_CLOEXEC;
    // SAFETY: opens a file.
    let opened = unsafe { sys::call(SYS_open, [path.as_ptr() as usize, FLAGS, 0, 0, 0, 0]) };
    (opened >= 0).then(|| adopt(opened as i32))
}

/// Whether a call closes or replaces the standard error.
pub(crate) fn changes_standard_error(number: usize, [a, b, ..]: [usize; 6]) -> bool {
    const ERROR: u32 = report::STANDARD_ERROR as u32;
    match number {
        SYS_close => a as u32 == ERROR,
        SYS_dup2 | SYS_dup3 => b as u32 == ERROR && a as u32 != ERROR,
        SYS_close_range => (a as u32..=b as u32).contains(&ERROR),
        _ => false,
    }
}

/// After [`changes_standard_error`]: what the agent says goes where the program's does from now on. A copy of the old
/// one would keep a pipe open whose reader waits for its end. In a table that is another process's too, the copy is as
/// well.
pub(crate) fn follow_standard_error(thread: &Thread) {
    if thread.is_vm_child || has_shared_descriptors() {
        return;
    }
    let old = report::use_descriptor(copy_of(report::STANDARD_ERROR));
    if is_own(old as usize) {
        closed(old);
        // SAFETY: closes the agent's own copy.
        unsafe { sys::call(SYS_close, [old as usize, 0, 0, 0, 0, 0]) };
    }
}

/// `close_range`, which leaves the agent's descriptors open.
pub(crate) fn close_range(first: usize, last: usize, flags: usize) -> isize {
    let [first, last] = [first, last].map(|number| number as u32 as usize);
    if first > last {
        return EINVAL;
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
