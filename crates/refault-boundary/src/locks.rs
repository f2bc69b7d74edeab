//! Memory that the program locks: `mlock`, `mlock2`, `munlock`, `mlockall`, `munlockall`.
//!
//! What is locked is brought in and stays, and counts. What is locked only where it is touched (`MLOCK_ONFAULT`) is
//! managed no more: the kernel has it as the program left it. `mlockall` is made of calls for the program's mappings,
//! one by one: by itself the kernel would lock and fill the agent's tables too, which are as large as what they may
//! come to hold, and what is parked could not move to memory that is not locked. So is what is mapped later locked by
//! the agent.

use std::sync::atomic::{AtomicU8, Ordering};

use refault_paging::{PAGE, sys};

use crate::entry::paging;
use crate::mappings;
use crate::memory_calls::{make, pages};

const MLOCK: usize = 149;
const MUNLOCK: usize = 150;
const MLOCKALL: usize = 151;
const MUNLOCKALL: usize = 152;
const MLOCK2: usize = 325;
const ON_FAULT: usize = 1;
const CURRENT: usize = 1;
const FUTURE: usize = 2;
const ALL_ON_FAULT: usize = 4;
const EPERM: isize = -1;
const ENOMEM: isize = -12;

/// What is mapped from now on is locked, and how.
static LATER: AtomicU8 = AtomicU8::new(NOT);
const NOT: u8 = 0;
const WHOLE: u8 = 1;
const WHERE_TOUCHED: u8 = 2;

/// This process is a child of a fork: nothing of its parent's locks holds in it.
pub(crate) fn forked() {
    LATER.store(NOT, Ordering::Relaxed);
}

/// Whether what is mapped now is locked by `mlockall`: the kernel is to lock and fill it at once.
pub(crate) fn locks_whole() -> bool {
    LATER.load(Ordering::Relaxed) == WHOLE
}

/// Locks what was mapped without being locked, if `mlockall` said so. False if the limit forbids it.
pub(crate) fn lock_later(start: usize, bytes: usize) -> bool {
    let how = match LATER.load(Ordering::Relaxed) {
        WHOLE => 0,
        WHERE_TOUCHED => ON_FAULT,
        _ => return true,
    };
    make(MLOCK2, [start, bytes, how, 0, 0, 0]) != ENOMEM
}

/// Whether anything that is mapped now is locked.
pub(crate) fn is_on() -> bool {
    LATER.load(Ordering::Relaxed) != NOT
}

/// `mlock`, `mlock2` and `munlock`.
pub(crate) fn lock(number: usize, arguments: [usize; 6]) -> isize {
    let [start, bytes, how, ..] = arguments;
    let (first, last) = (start & !(PAGE - 1), pages(start.saturating_add(bytes)));
    let mut paging = paging();
    let locks = number != MUNLOCK;
    if !paging.manages(first, last - first) {
        return make(number, arguments);
    }
    if locks && last - first > limit() {
        return make(number, arguments);
    }
    if number == MLOCK2 && how == ON_FAULT {
        return if paging.let_go(first, last - first) { make(number, arguments) } else { ENOMEM };
    }
    if locks {
        paging.hold(first, last - first, true);
    }
    let error = make(number, arguments);
    if locks && error < 0 {
        paging.release(first, last - first);
    } else if error == 0 {
        let was: Vec<_> = paging.parts(first, last - first);
        for (from, to, attributes) in was {
            if attributes.locked {
                // Held by the lock before this one.
                paging.release(from, to - from);
            }
        }
        paging.change(first, last - first, |attributes| attributes.locked = locks);
    }
    error
}

/// `mlockall`.
pub(crate) fn lock_all(arguments: [usize; 6]) -> isize {
    let flags = arguments[0];
    let mut paging = paging();
    let all = match flags & !ALL_ON_FAULT {
        FUTURE => Vec::new(),
        CURRENT | 3 => match mappings::of_the_program() {
            Some(all) => all,
            None => return make(MLOCKALL, arguments),
        },
        _ => return make(MLOCKALL, arguments),
    };
    let bytes = all.iter().map(|(start, end)| end - start).sum::<usize>();
    let limit = limit();
    if bytes > limit && !may_exceed() {
        return ENOMEM;
    }
    if limit == 0 && !may_exceed() {
        return EPERM;
    }
    if flags & CURRENT != 0 && flags & ALL_ON_FAULT != 0 {
        if !paging.let_go(0, usize::MAX) {
            return ENOMEM;
        }
        for (start, end) in all {
            make(MLOCK2, [start, end - start, ON_FAULT, 0, 0, 0]);
        }
    } else if flags & CURRENT != 0 {
        for (from, to, attributes) in paging.parts(0, usize::MAX) {
            if !attributes.locked {
                paging.hold(from, to - from, false);
            }
        }
        paging.change(0, usize::MAX, |attributes| attributes.locked = true);
        for (start, end) in all {
            // Where there is nothing to bring in (no rights), this says so; the mapping is locked all the same.
            make(MLOCK, [start, end - start, 0, 0, 0, 0]);
        }
    }
    let later = match (flags & FUTURE != 0, flags & ALL_ON_FAULT != 0) {
        (false, _) => NOT,
        (true, false) => WHOLE,
        (true, true) => WHERE_TOUCHED,
    };
    LATER.store(later, Ordering::Relaxed);
    0
}

/// `munlockall`, of what the program has mapped: what the agent locks for itself stays locked.
pub(crate) fn unlock_all() -> isize {
    let mut paging = paging();
    match mappings::of_the_program() {
        Some(all) => all.iter().for_each(|(start, end)| _ = make(MUNLOCK, [*start, end - start, 0, 0, 0, 0])),
        None => _ = make(MUNLOCKALL, [0; 6]),
    }
    for (from, to, attributes) in paging.parts(0, usize::MAX) {
        if attributes.locked {
            paging.release(from, to - from);
        }
    }
    paging.change(0, usize::MAX, |attributes| attributes.locked = false);
    LATER.store(NOT, Ordering::Relaxed);
    0
}

/// How many bytes this process may have locked.
fn limit() -> usize {
    const GETRLIMIT: usize = 97;
    const RLIMIT_MEMLOCK: usize = 8;
    let mut limit = [0usize; 2];
    // SAFETY: getrlimit writes two words.
    unsafe { sys::call(GETRLIMIT, [RLIMIT_MEMLOCK, limit.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    limit[0].min(1 << 40)
}

/// Whether this thread has the capability to lock more than the limit.
fn may_exceed() -> bool {
    const CAPGET: usize = 125;
    const VERSION: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let (header, mut sets) = ([VERSION, 0], [0u32; 6]);
    // SAFETY: reads two words and writes six.
    let error = unsafe { sys::call(CAPGET, [header.as_ptr() as usize, sets.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    error == 0 && sets[0] & 1 << CAP_IPC_LOCK != 0
}
