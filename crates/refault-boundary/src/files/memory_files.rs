//! Files of `/proc` that are this process's memory: `/proc/self/mem`, `/proc/thread-self/mem`,
//! `/proc/PID/task/TID/mem`.
//!
//! The kernel reads and writes such a file page by page. It stops at a page that is out, with fewer bytes than were
//! asked for, or with EIO. So what is asked for is brought in at the file's position and held, a piece at a time. Of
//! the memory of another process of the tree that one holds it ([`crate::calls::visits`]), where the kernel has
//! stopped.
//!
//! A program may make a descriptor of one by its path, from a folder, or of another descriptor. It may also have one
//! from the start, or receive one from another process. Whatever opens or receives one is looked at when it has; from
//! the first on each read and write is looked at, by whatever number.
//!
//! Invariants: what the kernel says of each piece is what the program is told; the file of a process outside the tree
//! is left alone.
//! Cost: `fstat` after what opens, nothing more before there is one; two or three calls per read and write then.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};

use refault_linux::calls::*;
use refault_linux::errno::EIO;
use refault_linux::files::{DIRENT_BYTES, DIRENT_NAME, PROC_SUPER_MAGIC, S_IFREG, S_IRUSR, S_IWUSR, major};
use refault_linux::flags::{O_CLOEXEC, O_DIRECTORY, O_RDONLY, SEEK_CUR};
use refault_linux::sockets::{CMSGHDR, CMSGHDR_KIND, MMSGHDR, MSGHDR_CONTROL, SCM_RIGHTS, SOL_SOCKET};
use refault_linux::sys;
use refault_paging::PAGE;

use crate::calls::make::plain;
use crate::calls::visits;
use crate::engine_lock;
use crate::files::pieces;
use crate::frame;
use crate::thread::Thread;

/// There was one, which may be there still under any number.
static MAY_BE_OPEN: AtomicBool = AtomicBool::new(false);

/// Whether reads and writes must be looked at.
pub(crate) fn may_be_open() -> bool {
    MAY_BE_OPEN.load(Ordering::Relaxed)
}

/// Looks through the descriptors with which the program begins.
pub(crate) fn look_at_inherited() {
    const FLAGS: usize = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    let path = c"/proc/self/fd";
    let folder = plain(SYS_open, [path.as_ptr() as usize, FLAGS, 0, 0, 0, 0]);
    if folder < 0 {
        return;
    }
    let mut entries = [0u8; PAGE];
    loop {
        let read = plain(SYS_getdents64, [folder as usize, entries.as_mut_ptr() as usize, entries.len(), 0, 0, 0]);
        let Ok(read @ 1..) = usize::try_from(read) else { break };
        let mut at = 0;
        while at + DIRENT_NAME < read {
            let digits = entries[at + DIRENT_NAME..read].iter().take_while(|byte| byte.is_ascii_digit());
            look_at(
                digits.fold(0usize, |number, digit| number.saturating_mul(10).saturating_add((digit - b'0') as usize)),
            );
            at += usize::from(u16::from_le_bytes([entries[at + DIRENT_BYTES], entries[at + DIRENT_BYTES + 1]])).max(1);
        }
    }
    plain(SYS_close, [folder as usize, 0, 0, 0, 0, 0]);
}

/// Whether a call may give the program a descriptor of such a file.
pub(crate) fn may_open(number: usize) -> bool {
    matches!(number, SYS_open | SYS_openat | SYS_openat2 | SYS_creat | SYS_pidfd_getfd | SYS_recvmsg | SYS_recvmmsg)
}

/// A call was made: looks at what it has opened or received.
pub(crate) fn was_made(number: usize, arguments: [usize; 6], result: isize) {
    if result < 0 || may_be_open() || !may_open(number) {
        return;
    }
    match number {
        SYS_recvmsg => look_at_received(arguments[1]),
        SYS_recvmmsg => (0..result as usize).for_each(|index| look_at_received(arguments[1] + index * MMSGHDR)),
        _ => look_at(result as usize),
    }
}

/// Looks at the descriptors that came with a message.
fn look_at_received(header: usize) {
    const RIGHTS: [u32; 2] = [SOL_SOCKET as u32, SCM_RIGHTS as u32];
    let Some([control, bytes]) = frame::read::<[usize; 2]>(header + MSGHDR_CONTROL) else { return };
    let (mut at, end) = (control, control.saturating_add(bytes));
    while control != 0 && end.saturating_sub(at) >= CMSGHDR {
        let (Some(length), Some(kind)) = (frame::read::<usize>(at), frame::read::<[u32; 2]>(at + CMSGHDR_KIND)) else {
            return;
        };
        if !(CMSGHDR..=end - at).contains(&length) {
            return;
        }
        if kind == RIGHTS {
            let numbers = (at + CMSGHDR..at + length).step_by(size_of::<i32>());
            numbers.filter_map(frame::read::<i32>).for_each(|number| look_at(number as usize));
        }
        at += length.next_multiple_of(size_of::<usize>());
    }
}

fn look_at(descriptor: usize) {
    if is_memory_file(descriptor) {
        MAY_BE_OPEN.store(true, Ordering::Relaxed);
    }
}

/// Whether a descriptor is of a file of `/proc` that is some process's memory. Cost: `fstat` for nearly all others.
fn is_memory_file(descriptor: usize) -> bool {
    const ANONYMOUS: u64 = 0;
    /// A regular file for its owner alone.
    const MODE: u32 = S_IFREG | S_IRUSR | S_IWUSR;
    sys::status(descriptor)
        .is_ok_and(|status| major(status.device) == ANONYMOUS && status.mode == MODE && status.bytes == 0)
        && sys::file_system(descriptor) == Some(PROC_SUPER_MAGIC)
        && path_of(descriptor).is_none_or(|path| path.ends_with("/mem"))
}

/// The path of a descriptor, as the kernel says it now.
fn path_of(descriptor: usize) -> Option<String> {
    const MAX_PATH: usize = 4096;
    let link = CString::new(format!("/proc/self/fd/{}", descriptor as i32)).ok()?;
    let mut path = vec![0u8; MAX_PATH];
    let bytes = plain(SYS_readlink, [link.as_ptr() as usize, path.as_mut_ptr() as usize, MAX_PATH, 0, 0, 0]);
    path.truncate(usize::try_from(bytes).ok()?);
    Some(String::from_utf8_lossy(&path).into_owned())
}

/// Whose memory a file is.
enum Whose {
    /// This process's.
    Own,
    /// That of another of the tree, by its number here.
    Other(i32),
    /// Of none that has an agent.
    Outside,
}

/// Whose memory such a file is. That which this process had before it executed its program belongs to no process any
/// more, and says so itself.
fn whose(descriptor: usize) -> Whose {
    let named = path_of(descriptor).and_then(|path| path.rsplit('/').nth(1)?.parse::<i32>().ok());
    match named {
        Some(named) if !crate::mapping::advice::has_this_memory(named) => {
            visits::in_the_tree(named).map_or(Whose::Outside, Whose::Other)
        }
        _ => Whose::Own,
    }
}

/// Makes a read or write of such a file, a piece at a time. `None`: it is no such call.
pub(crate) fn serve(thread: &mut Thread, number: usize, arguments: [usize; 6]) -> Option<isize> {
    let (reads, is_placed) = match number {
        SYS_read | SYS_readv => (true, false),
        SYS_write | SYS_writev => (false, false),
        SYS_pread64 | SYS_preadv => (true, true),
        SYS_pwrite64 | SYS_pwritev => (false, true),
        SYS_preadv2 => (true, arguments[3] != usize::MAX),
        SYS_pwritev2 => (false, arguments[3] != usize::MAX),
        _ => return None,
    };
    let descriptor = arguments[0];
    if !may_be_open() || !is_memory_file(descriptor) {
        return None;
    }
    let other = match whose(descriptor) {
        Whose::Own => None,
        Whose::Other(process) => Some(process),
        Whose::Outside => return None,
    };
    pieces::take(thread, number, arguments)?;
    let total = pieces::bytes_taken(thread);
    let start = if is_placed { arguments[3] } else { position(descriptor)? };
    if total == 0 || start.checked_add(total).is_none() {
        return None;
    }
    let mut done = 0;
    while done < total {
        let (mut vectors, mut count, mut bytes) = pieces::piece(thread, done);
        if other.is_some() {
            bytes = visits::piece(start + done, vectors[0][1]);
            (vectors[0][1], count) = (bytes, 1);
        }
        pieces::hold_piece(thread, &vectors[..count], reads);
        if other.is_none() {
            engine_lock::hold(thread, start + done, bytes, !reads);
        }
        let mut part = arguments;
        [part[1], part[2]] = if matches!(number, SYS_read | SYS_write | SYS_pread64 | SYS_pwrite64) {
            vectors[0]
        } else {
            [vectors.as_ptr() as usize, count]
        };
        if is_placed {
            part[3] = start + done;
        }
        let mut result = plain(number, part);
        if result == EIO
            && let Some(process) = other
        {
            let make = || plain(number, part);
            result = visits::visiting(process, start + done, bytes, !reads, make).unwrap_or(result);
        }
        engine_lock::release(thread);
        if result <= 0 {
            return Some(if done > 0 { done as isize } else { result });
        }
        done += result as usize;
        // Of another process's memory a piece ends where a page is out.
        if (result as usize) < bytes && other.is_none() {
            break;
        }
    }
    Some(done as isize)
}

/// Where a descriptor's next read or write is.
fn position(descriptor: usize) -> Option<usize> {
    let at = plain(SYS_lseek, [descriptor, 0, SEEK_CUR, 0, 0, 0]);
    // Addresses of the kernel's half are negative positions.
    (at >= 0).then_some(at as usize)
}
