//! The calls that change the program's address space, and what becomes of managed memory by them.
//!
//! Managed are private anonymous mappings that are neither stacks nor executable nor huge. What becomes executable
//! later is brought in and managed no more: the kernel does not move pages out of it. Every call is made by the kernel
//! too; it and the engine's table change under one lock.

use std::sync::atomic::{AtomicBool, Ordering};

use refault_linux::advice::{MADV_POPULATE_READ, MADV_POPULATE_WRITE};
use refault_linux::calls::*;
use refault_linux::errno::ENOMEM;
use refault_linux::flags::*;
use refault_linux::mappings::Mappings;
use refault_paging::{Attributes, PAGE};

use crate::engine_lock::{Paging, paging};
use crate::mapping::locks;
use crate::mapping::managed::{bring_in, make, pages};
use crate::memory::addresses::give_addresses_back;
use crate::memory::seen;

/// The rights of a mapping, of what else `mmap` and `mprotect` take there.
const RIGHTS: usize = PROT_READ | PROT_WRITE | PROT_EXEC;

/// What is readable is executable, by the process's personality.
static READS_EXECUTE: AtomicBool = AtomicBool::new(false);

/// `personality`.
pub(crate) fn set_personality(arguments: [usize; 6]) -> isize {
    const ONLY_ASK: u32 = u32::MAX;
    let before = make(SYS_personality, arguments);
    let asked = arguments[0] as u32;
    let now = if asked == ONLY_ASK { before as usize } else { asked as usize };
    if before >= 0 {
        READS_EXECUTE.store(now & READ_IMPLIES_EXEC != 0, Ordering::Relaxed);
    }
    before
}

/// Looks what the process's personality is, which it may have from the program before.
pub(crate) fn look_at_personality() {
    set_personality([u32::MAX as usize, 0, 0, 0, 0, 0]);
}

/// Whether memory with these rights can be executed.
fn is_executable(protection: usize) -> bool {
    protection & PROT_EXEC != 0 || protection & PROT_READ != 0 && READS_EXECUTE.load(Ordering::Relaxed)
}

/// The calls that need nothing but their arguments. `None`: it is none of them.
pub(crate) fn serve(number: usize, arguments: [usize; 6]) -> Option<isize> {
    Some(match number {
        SYS_mmap => map(arguments),
        SYS_mprotect | SYS_pkey_mprotect => protect(number, arguments),
        SYS_munmap => unmap(arguments),
        SYS_brk => set_break(arguments),
        SYS_madvise => crate::mapping::advice::advise(arguments),
        SYS_shmat => attach(arguments),
        _ => return None,
    })
}

/// `mmap`.
fn map(arguments: [usize; 6]) -> isize {
    let [address, bytes, protection, flags, descriptor, offset] = arguments;
    let unfit = MAP_SHARED | MAP_GROWSDOWN | MAP_STACK | MAP_HUGETLB;
    let mut paging = paging();
    // What `mlockall` has said of later mappings holds as if the program had said it of each.
    let flags = if locks::locks_whole() { flags | MAP_LOCKED } else { flags };
    let fits =
        flags & MAP_ANONYMOUS != 0 && flags & unfit == 0 && !is_executable(protection) && !locks::locks_touched();
    let attributes = Attributes { protection: (protection & RIGHTS) as u8, ..Attributes::default() };
    let is_locked = fits && flags & MAP_LOCKED != 0;
    if is_locked && let Some(error) = locks::refusal(&mut paging, pages(bytes), &attributes) {
        return error;
    }
    // What the kernel populates before it is managed would neither count nor go, and would keep the mapping from being
    // joined with its neighbours.
    let asked = if fits { flags & !(MAP_POPULATE | MAP_LOCKED) } else { flags };
    let mut at = make(SYS_mmap, [address, bytes, protection, asked, descriptor, offset]);
    if at == ENOMEM && give_addresses_back(&mut paging) {
        at = make(SYS_mmap, [address, bytes, protection, asked, descriptor, offset]);
    }
    if at < 0 {
        paging.lock_is_decided();
        return at;
    }
    let (at, bytes) = (at as usize, pages(bytes));
    seen::note(at, bytes);
    // Whatever was known of these addresses is of a mapping that is gone.
    paging.forget(at, bytes);
    if !fits {
        if !locks::locks_whole() {
            locks::lock_later(at, bytes);
        }
        return at as isize;
    }
    let managed = paging.manage(at, bytes, attributes);
    if is_locked {
        locks::lock_new(&mut paging, at, bytes);
    } else if flags & MAP_POPULATE != 0 && protection != 0 {
        let write = protection & PROT_WRITE != 0;
        if managed {
            bring_in(&mut paging, at, bytes, write, |_, _| 0);
        } else {
            make(SYS_madvise, [at, bytes, if write { MADV_POPULATE_WRITE } else { MADV_POPULATE_READ }, 0, 0, 0]);
        }
    }
    at as isize
}

/// `munmap`.
fn unmap(arguments: [usize; 6]) -> isize {
    let mut paging = paging();
    let error = make(SYS_munmap, arguments);
    if error == 0 {
        paging.forget(arguments[0], pages(arguments[1]));
    }
    error
}

/// `shmat`, which may replace what is managed.
fn attach(arguments: [usize; 6]) -> isize {
    let mut paging = paging();
    let at = make(SYS_shmat, arguments);
    if at >= 0 {
        let at = at as usize;
        // Where the kernel does not say where a mapping ends, the segment says how large it is.
        let end = Mappings::open().and_then(|mappings| mappings.end_of(at)).or_else(|| {
            let bytes = segment_bytes(arguments[0])?;
            Some(at + pages(bytes))
        });
        let bytes = end.map_or(PAGE, |end| end - at);
        seen::note(at, bytes);
        paging.forget(at, bytes);
    }
    at
}

/// The size of a System V segment.
fn segment_bytes(segment: usize) -> Option<usize> {
    /// `struct shmid64_ds`, of which the size follows 48 bytes of rights.
    const WORDS: usize = 14;
    const SIZE: usize = 6;
    let mut status = [0usize; WORDS];
    let error = make(SYS_shmctl, [segment, IPC_STAT, status.as_mut_ptr() as usize, 0, 0, 0]);
    (error == 0).then_some(status[SIZE])
}

/// `brk`. What grows is managed.
fn set_break(arguments: [usize; 6]) -> isize {
    let mut paging = paging();
    let before = make(SYS_brk, [0; 6]) as usize;
    let mut after = make(SYS_brk, arguments) as usize;
    if after < arguments[0] && give_addresses_back(&mut paging) {
        after = make(SYS_brk, arguments) as usize;
    }
    let (old, new) = (pages(before), pages(after));
    seen::note(old, new.saturating_sub(old));
    let is_locked = locks::locks_whole() || locks::locks_touched();
    let attributes = Attributes { protection: Attributes::READ_WRITE, ..Attributes::default() };
    if new > old && is_locked && (locks::locks_touched() || is_executable(PROT_READ)) {
        if !locks::lock_later(old, new - old) {
            return make(SYS_brk, [before, 0, 0, 0, 0, 0]);
        }
    } else if new > old && is_locked {
        if locks::refusal(&mut paging, new - old, &attributes).is_some() {
            return make(SYS_brk, [before, 0, 0, 0, 0, 0]);
        }
        paging.manage(old, new - old, attributes);
        locks::lock_new(&mut paging, old, new - old);
    } else if new > old && !is_executable(PROT_READ) {
        paging.manage(old, new - old, attributes);
    } else if new < old {
        paging.forget(new, old - new);
    }
    after as isize
}

/// `mprotect` and `pkey_mprotect`.
fn protect(number: usize, arguments: [usize; 6]) -> isize {
    let [start, bytes, protection, ..] = arguments;
    if start.checked_add(pages(bytes)).is_none() {
        // The kernel refuses it, and nothing has changed.
        return make(number, arguments);
    }
    let mut paging = paging();
    if is_executable(protection) && start.is_multiple_of(PAGE) && paging.manages(start, pages(bytes)) {
        // What lies behind a hole does not change, and stays managed.
        let end = before_hole(&paging, start, start + pages(bytes)).unwrap_or(start + pages(bytes));
        if !paging.let_go(start, end - start) {
            return ENOMEM;
        }
    }
    let new = (protection & RIGHTS) as u8;
    // Rights bring in what is locked without any, as far as the budget goes.
    let fills = paging.any_unfilled();
    if fills && !paging.may_lock(start, pages(bytes), |attributes| attributes.protect(new)) {
        return ENOMEM;
    }
    let error = make(number, arguments);
    if fills {
        paging.lock_is_decided();
    }
    if error == 0 {
        paging.change(start, pages(bytes), |attributes| attributes.protect(new));
    } else if start.is_multiple_of(PAGE) {
        match (error == ENOMEM).then(|| before_hole(&paging, start, start + pages(bytes))).flatten() {
            // What lies before the hole has changed, the rest has not.
            Some(end) => paging.change(start, end - start, |attributes| attributes.protect(new)),
            None => look_at_rights(&mut paging, start, pages(bytes), new),
        }
    }
    error
}

/// A change to `new` rights was refused somewhere in a range: what lies before has changed, and what lies behind has
/// not.
fn look_at_rights(paging: &mut Paging, start: usize, bytes: usize, new: u8) {
    let mappings = Mappings::open();
    for (from, to, attributes) in paging.parts(start, bytes) {
        let mut at = from;
        while at < to {
            let (end, rights) = match mappings.as_ref().and_then(|mappings| mappings.rights(at)) {
                Some((end, rights)) => (end.min(to), rights as u8),
                // Nothing is sure but that nothing needs to be told: without rights no page leaves.
                None => (to, if attributes.protection == new { new } else { 0 }),
            };
            if rights != attributes.protection {
                paging.change(at, end - at, |attributes| attributes.protect(rights));
            }
            at = end;
        }
    }
}

/// Where the mapped part of a range ends that begins with it; `None` if all of it is mapped. What is managed is mapped.
fn before_hole(paging: &Paging, start: usize, end: usize) -> Option<usize> {
    let is_mapped =
        |from: usize, to: usize| from >= to || make(SYS_msync, [from, to - from, MS_ASYNC, 0, 0, 0]) != ENOMEM;
    let mut at = start;
    for (from, to, _) in paging.parts(start, end - start) {
        if !is_mapped(at, from) {
            return Some(at);
        }
        at = to;
    }
    (!is_mapped(at, end)).then_some(at)
}
