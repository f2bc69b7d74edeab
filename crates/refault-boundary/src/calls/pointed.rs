//! Requests of `ioctl` that change what is managed, and filters of system calls that cannot be.

use refault_linux::calls::{SYS_prctl, SYS_seccomp};
use refault_linux::options::{PR_SET_SECCOMP, SECCOMP_MODE_FILTER, SECCOMP_SET_MODE_FILTER, SECCOMP_SET_MODE_STRICT};
use refault_linux::requests::{
    INSTRUCTION, UFFD_FEATURE_EVENT_FORK, UFFD_FEATURE_EVENT_REMAP, UFFD_FEATURE_EVENT_REMOVE,
    UFFD_FEATURE_EVENT_UNMAP, UFFDIO_API, UFFDIO_COPY, UFFDIO_MOVE, UFFDIO_REGISTER, UFFDIO_UNREGISTER,
};
use refault_paging::PAGE;

use crate::calls::make::plain;
use crate::engine_lock;
use crate::frame;
use crate::thread::Thread;

/// The features by which a call waits until the program has read an event of it: of a fork, of what is moved, discarded
/// or unmapped.
const EVENTS: usize =
    UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;
/// Bytes that are held of what is copied.
const MAX_COPIED: usize = 1 << 40;

/// Holds what a request reads and writes beside its own structure. It does so where the kernel's answer to a missing
/// page would not be EFAULT alone. What the program registers with a userfaultfd of its own, and what it moves by one,
/// is managed no more: the kernel knows one per mapping.
pub(crate) fn prepare(thread: &mut Thread, request: usize, structure: usize) {
    match request as u32 as usize {
        // Start and bytes. The kernel refuses to unregister what another userfaultfd has.
        UFFDIO_REGISTER | UFFDIO_UNREGISTER => {
            if let Some([start, bytes]) = frame::read::<[usize; 2]>(structure) {
                let_go(start, bytes);
            }
        }
        // To, from, bytes.
        UFFDIO_COPY => {
            if let Some([_, from, bytes]) = frame::read::<[usize; 3]>(structure) {
                engine_lock::hold(thread, from, bytes.min(MAX_COPIED), false);
            }
        }
        UFFDIO_MOVE => {
            if let Some([_, from, bytes]) = frame::read::<[usize; 3]>(structure) {
                let_go(from, bytes);
            }
        }
        _ => {}
    }
}

/// Whether a request is refused: a userfaultfd that tells of changes of mappings. The agent makes those changes with
/// its lock held. A thread that reads the events would wait for that lock as soon as it touches a missing page.
pub(crate) fn is_refused(request: usize, structure: usize) -> bool {
    // Version and features.
    request as u32 as usize == UFFDIO_API
        && frame::read::<[usize; 2]>(structure).is_some_and(|[_, features]| features & EVENTS != 0)
}

/// Whether a call sets a filter of system calls.
pub(crate) fn sets_filter(number: usize, [what, ..]: [usize; 6]) -> bool {
    match number {
        SYS_prctl => what == PR_SET_SECCOMP,
        SYS_seccomp => matches!(what, SECCOMP_SET_MODE_STRICT | SECCOMP_SET_MODE_FILTER),
        _ => false,
    }
}

/// What the kernel says to a filter (`prctl(PR_SET_SECCOMP)`, `seccomp`) of which not all is there: programs find out
/// that way whether there are filters. `None` if there is one, or none is needed.
pub(crate) fn refused_filter(number: usize, mut arguments: [usize; 6]) -> Option<isize> {
    const MAX_LENGTH: usize = 4096;
    /// No program has anything there.
    const NOWHERE: usize = usize::MAX & !(PAGE - 1);
    let kind = if number == SYS_prctl { SECCOMP_MODE_FILTER } else { SECCOMP_SET_MODE_FILTER };
    if arguments[usize::from(number == SYS_prctl)] != kind {
        return None;
    }
    let Some([length, code]) = frame::read::<[usize; 2]>(arguments[2]) else {
        arguments[2] = NOWHERE;
        return Some(plain(number, arguments));
    };
    let length = usize::from(length as u16);
    let mut copy = vec![0u8; length.min(MAX_LENGTH) * INSTRUCTION];
    if (1..=MAX_LENGTH).contains(&length) && frame::copy(copy.as_mut_ptr() as usize, code, copy.len()) {
        return None;
    }
    // Never the program's own, which another thread may be completing.
    let refused = [length, NOWHERE];
    arguments[2] = refused.as_ptr() as usize;
    Some(plain(number, arguments))
}

/// Leaves a range to the kernel. What cannot be brought back stays managed, and is refused by the kernel.
fn let_go(start: usize, bytes: usize) {
    if start.is_multiple_of(PAGE) && start.checked_add(bytes).is_some() {
        let mut paging = engine_lock::paging();
        if paging.manages(start, bytes) {
            paging.let_go(start, bytes);
        }
    }
}
