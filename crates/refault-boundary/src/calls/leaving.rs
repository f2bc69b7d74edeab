//! Calls after which what the agent stands on is not this process's alone: pages that the kernel keeps when the call is
//! over, and descriptors.
//!
//! Invariant: it is told before the call is made. Cost: a comparison per call.

use refault_linux::calls::*;
use refault_linux::clone::CLONE_FILES;
use refault_linux::flags::CLOSE_RANGE_UNSHARE;
use refault_linux::sockets::MSG_ZEROCOPY;

use crate::engine_lock::paging;
use crate::process::owner;
use crate::thread::Thread;

/// Whether the kernel keeps pages that a call names, and reads them when the call is over. It must find there what they
/// hold now, or what the program has written since.
pub(crate) fn gives_pages_away(number: usize, [_, _, c, d, ..]: [usize; 6]) -> bool {
    match number {
        SYS_vmsplice => true,
        SYS_sendmsg => c & MSG_ZEROCOPY != 0,
        SYS_sendto | SYS_sendmmsg => d & MSG_ZEROCOPY != 0,
        _ => false,
    }
}

/// Threads have tables of descriptors of their own from now on: each has the file of stored pages that there is, and
/// none is opened any more.
pub(crate) fn parts() {
    let mut paging = paging();
    paging.before_sharing();
    owner::lends_memory();
}

/// Whether the thread that makes a call has descriptors of its own from then on.
fn parts_descriptors(number: usize, [a, _, c, ..]: [usize; 6]) -> bool {
    match number {
        SYS_unshare => a as u64 & CLONE_FILES != 0,
        SYS_close_range => c & CLOSE_RANGE_UNSHARE != 0,
        _ => false,
    }
}

/// A call is about to be made.
pub(crate) fn before(thread: &Thread, number: usize, arguments: [usize; 6]) {
    if gives_pages_away(number, arguments) {
        paging().gives_pages_away();
    }
    if parts_descriptors(number, arguments) && !thread.is_last() {
        parts();
    }
}
