//! Memory that the program locks: `mlock`, `mlock2`, `munlock`, `mlockall`, `munlockall`.
//!
//! What is locked is brought in and stays, and counts; what the budget has no room for is refused. What is locked only
//! where it is touched (`MLOCK_ONFAULT`) is managed no more: the kernel has it as the program left it. The agent makes
//! `mlockall` of calls for the program's mappings, one by one. By itself the kernel would lock and fill the agent's
//! tables too, which are as large as what they may come to hold. Besides, what is parked could not move to memory that
//! is not locked. So the agent also locks what is mapped later.

use std::sync::atomic::{AtomicU8, Ordering};

use refault_linux::advice::MADV_COLD;
use refault_linux::calls::{
    SYS_capget, SYS_madvise, SYS_mlock, SYS_mlock2, SYS_mlockall, SYS_mmap, SYS_munlock, SYS_munlockall, SYS_munmap,
};
use refault_linux::errno::{EAGAIN, EINVAL, ENOMEM, EPERM};
use refault_linux::flags::{
    CAP_IPC_LOCK, CAPABILITIES_OF_64_BITS, MAP_ANONYMOUS, MAP_LOCKED, MAP_NORESERVE, MAP_PRIVATE, MCL_CURRENT,
    MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT, RLIMIT_MEMLOCK,
};
use refault_linux::proc::Span;
use refault_linux::sys;

use refault_paging::{Attributes, Engine, PAGE};

use crate::engine_lock::paging;
use crate::mapping::managed::make;
use crate::memory::mappings;

const BOTH: usize = MCL_CURRENT | MCL_FUTURE;

/// What is mapped from now on is locked, and how.
static LATER: AtomicU8 = AtomicU8::new(NOT);
const NOT: u8 = 0;
const WHOLE: u8 = 1;
const WHERE_TOUCHED: u8 = 2;

/// This process is a child of a fork: nothing of its parent's locks holds in it.
pub(crate) fn forked(paging: &mut Engine) {
    paging.unlock_in_child();
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
        WHERE_TOUCHED => MLOCK_ONFAULT,
        _ => return true,
    };
    make(SYS_mlock2, [start, bytes, how, 0, 0, 0]) != ENOMEM
}

/// Whether what is mapped now is locked by `mlockall` where it is touched: it is not managed.
pub(crate) fn locks_touched() -> bool {
    LATER.load(Ordering::Relaxed) == WHERE_TOUCHED
}

/// Why a mapping that would be locked may not be: the error that the kernel has for it, or EAGAIN where the budget has no
/// room. `None`: it may, and counts as locked until [`Engine::lock_is_decided`]. Cost: two calls.
///
/// [`Engine::lock_is_decided`]: refault_paging::Engine::lock_is_decided
pub(crate) fn refusal(paging: &mut Engine, bytes: usize, attributes: &Attributes) -> Option<isize> {
    // Nothing is filled of what cannot be touched, so that only the limit is asked.
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_LOCKED;
    let tried = make(SYS_mmap, [0, bytes, 0, flags, usize::MAX, 0]);
    if tried == EAGAIN || tried == EPERM {
        return Some(tried);
    }
    if tried >= 0 {
        make(SYS_munmap, [tried as usize, bytes, 0, 0, 0, 0]);
    }
    let filled = if attributes.can_be_touched() { bytes } else { 0 };
    (!paging.may_lock_more(filled)).then_some(EAGAIN)
}

/// Locks a new mapping, which [`refusal`] has allowed. Where the kernel cannot fill it, it is locked all the same.
pub(crate) fn lock_new(paging: &mut Engine, start: usize, bytes: usize) {
    let held: Vec<Span> = paging.parts(start, bytes).into_iter().filter_map(touchable).collect();
    lock_before_it_is_filled(paging, start, bytes);
    held.iter().for_each(|(from, to)| _ = paging.hold(*from, to - from, true));
    make(SYS_mlock, [start, bytes, 0, 0, 0, 0]);
    paging.lock_is_decided();
    paging.lock(start, bytes, true);
    paging.note_locks();
    held.iter().for_each(|(from, to)| paging.release(*from, to - from));
}

/// Sets a range apart from its neighbours as the kernel does, before it has a page.
///
/// The kernel gives a mapping that it fills something in common with what was one mapping with it then. What is filled
/// first and locked later would share that with its neighbours, and so could not be joined with others later
/// (`anon_vma`). Contents that are out could not move to locked memory; they have what is common already.
fn lock_before_it_is_filled(paging: &Engine, start: usize, bytes: usize) {
    if !paging.any_contents(start, bytes) {
        make(SYS_mlock2, [start, bytes, MLOCK_ONFAULT, 0, 0, 0]);
    }
}

/// `mlock`, `mlock2` and `munlock`.
pub(crate) fn lock(number: usize, arguments: [usize; 6]) -> isize {
    let [start, bytes, how, ..] = arguments;
    let first = start & !(PAGE - 1);
    // As the kernel reckons: a length that wraps is another.
    let length = (start - first).wrapping_add(bytes).wrapping_add(PAGE - 1) & !(PAGE - 1);
    let wrong_flags = number == SYS_mlock2 && how as u32 > MLOCK_ONFAULT as u32;
    let Some(last) = first.checked_add(length).filter(|last| *last > first && !wrong_flags) else {
        return make(number, arguments);
    };
    let mut paging = paging();
    let locks = number != SYS_munlock;
    if !paging.manages(first, last - first) {
        // It may wait for a thread of the program's that serves its userfaultfd.
        drop(paging);
        return make(number, arguments);
    }
    if locks && last - first > limit() && !may_exceed() {
        return make(number, arguments);
    }
    if number == SYS_mlock2 && how as u32 == MLOCK_ONFAULT as u32 {
        return if paging.let_go(first, last - first) { make(number, arguments) } else { ENOMEM };
    }
    // The budget is a limit as the system's own is, and privileged processes are not above it.
    if locks && !paging.may_lock(first, last - first, |attributes| attributes.lock(true)) {
        return ENOMEM;
    }
    // Held until it is locked, which keeps it from then on.
    let held: Vec<Span> =
        if locks { paging.parts(first, last - first).into_iter().filter_map(touchable).collect() } else { Vec::new() };
    if locks {
        lock_before_it_is_filled(&paging, first, last - first);
    }
    held.iter().for_each(|(from, to)| _ = paging.hold(*from, to - from, true));
    let error = make(number, arguments);
    paging.lock_is_decided();
    if error == 0 {
        paging.lock(first, last - first, locks);
    } else if locks && error == ENOMEM {
        // What lies before a hole is locked, and what could not be brought in for want of rights.
        for (from, to, _) in paging.parts(first, last - first) {
            if is_locked(from) {
                paging.lock(from, to - from, true);
            }
        }
    }
    paging.note_locks();
    held.iter().for_each(|(from, to)| paging.release(*from, to - from));
    error
}

/// Start and end of a part that can be brought in.
fn touchable((from, to, attributes): (usize, usize, Attributes)) -> Option<Span> {
    attributes.can_be_touched().then_some((from, to))
}

/// Whether the mapping of a page is locked: the kernel calls nothing cold that is.
fn is_locked(page: usize) -> bool {
    make(SYS_madvise, [page, PAGE, MADV_COLD, 0, 0, 0]) == EINVAL
}

/// `mlockall`.
pub(crate) fn lock_all(arguments: [usize; 6]) -> isize {
    let flags = arguments[0] as u32 as usize;
    if !matches!(flags & !MCL_ONFAULT, MCL_CURRENT | MCL_FUTURE | BOTH) {
        return make(SYS_mlockall, arguments);
    }
    let limit = if may_exceed() { usize::MAX } else { limit() };
    if limit == 0 {
        return EPERM;
    }
    if flags & MCL_CURRENT != 0 {
        let error = lock_present(flags & MCL_ONFAULT != 0, limit);
        if error < 0 {
            return error;
        }
    }
    let later = match (flags & MCL_FUTURE != 0, flags & MCL_ONFAULT != 0) {
        (false, _) => NOT,
        (true, false) => WHOLE,
        (true, true) => WHERE_TOUCHED,
    };
    LATER.store(later, Ordering::Relaxed);
    0
}

/// Locks what is mapped now, or what is touched of it.
fn lock_present(on_fault: bool, limit: usize) -> isize {
    let mut paging = paging();
    let all = mappings::of_the_program();
    let bytes = all.iter().flatten().map(|(start, end)| end - start).sum::<usize>();
    if bytes > limit {
        return ENOMEM;
    }
    if on_fault {
        if !paging.let_go(0, usize::MAX) {
            return ENOMEM;
        }
    } else if !paging.may_lock(0, usize::MAX, |attributes| attributes.lock(true)) {
        return ENOMEM;
    } else {
        // What cannot be touched is not brought in; it is locked, so what comes later of it stays.
        let held: Vec<Span> = paging.parts(0, usize::MAX).into_iter().filter_map(touchable).collect();
        held.iter().for_each(|(from, to)| _ = paging.hold(*from, to - from, false));
        paging.lock_is_decided();
        paging.lock(0, usize::MAX, true);
        held.iter().for_each(|(from, to)| paging.release(*from, to - from));
    }
    let Some(all) = all else {
        // The agent cannot tell the program's mappings from its own: its tables are locked too, if the limit allows it.
        drop(paging);
        let error = make(SYS_mlockall, [MCL_CURRENT | if on_fault { MCL_ONFAULT } else { 0 }, 0, 0, 0, 0, 0]);
        if error < 0 && !on_fault {
            forget_locks(&mut crate::engine_lock::paging());
        }
        return error;
    };
    let (number, how) = if on_fault { (SYS_mlock2, MLOCK_ONFAULT) } else { (SYS_mlock, 0) };
    // Where there is nothing to bring in (no rights), this says so; the mapping is locked all the same.
    let lock = |(start, end): Span| _ = make(number, [start, end - start, how, 0, 0, 0]);
    let (managed, rest): (Vec<Span>, Vec<Span>) =
        all.into_iter().partition(|(start, end)| paging.manages(*start, end - start));
    managed.into_iter().for_each(lock);
    // The rest may wait for a thread of the program's that serves its userfaultfd.
    drop(paging);
    rest.into_iter().for_each(lock);
    0
}

/// Nothing of what is managed is locked any more.
fn forget_locks(paging: &mut Engine) {
    paging.lock(0, usize::MAX, false);
}

/// `munlockall`, of what the program has mapped: what the agent locks for itself stays locked.
pub(crate) fn unlock_all() -> isize {
    let mut paging = paging();
    match mappings::of_the_program() {
        Some(all) => all.iter().for_each(|(start, end)| _ = make(SYS_munlock, [*start, end - start, 0, 0, 0, 0])),
        None => _ = make(SYS_munlockall, [0; 6]),
    }
    forget_locks(&mut paging);
    LATER.store(NOT, Ordering::Relaxed);
    0
}

/// How many bytes this process may have locked.
fn limit() -> usize {
    /// More than any machine has, and far from where sums overflow.
    const MAX: u64 = 1 << 40;
    let [limit, _] = sys::limits(RLIMIT_MEMLOCK);
    limit.min(MAX) as usize
}

/// Whether this thread has the capability to lock more than the limit.
fn may_exceed() -> bool {
    let (header, mut sets) = ([CAPABILITIES_OF_64_BITS as u32, 0], [0u32; 6]);
    // SAFETY: reads two words and writes six.
    let error = unsafe { sys::call(SYS_capget, [header.as_ptr() as usize, sets.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    error == 0 && sets[0] & 1 << CAP_IPC_LOCK != 0
}
