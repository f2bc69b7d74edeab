//! `mremap`: mappings that grow, shrink and move, with what is out of memory.
//!
//! A move to a given place may take several mappings with the gaps between them (Linux 6.17). The kernel refuses that
//! for memory that is registered with a userfaultfd. Such a range is moved here one mapping at a time, each with the
//! distance that it had from the first; that is what the kernel does with those that are not registered.
//!
//! Invariants: the kernel's mappings and the engine's table change under one lock; a mapping that was not in the range
//! moved is not touched, at the source or the target; what was moved is marked as it was. Cost: five calls more than the
//! program's, and some for each of several mappings.

use std::sync::atomic::{AtomicU8, Ordering};

use refault_linux::END_OF_ADDRESSES;
use refault_linux::advice::{
    MADV_DODUMP, MADV_DONTDUMP, MADV_DONTNEED_LOCKED, MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL,
};
use refault_linux::calls::{SYS_madvise, SYS_mlock, SYS_mlock2, SYS_mprotect, SYS_mremap};
use refault_linux::errno::{EAGAIN, EFAULT, ENOMEM};
use refault_linux::flags::{MLOCK_ONFAULT, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use refault_linux::mappings::Mappings;
use refault_linux::proc::Span;
use refault_linux::sys;
use refault_paging::{Attributes, Marks, Order, PAGE};

use crate::engine_lock::{Paging, paging};
use crate::mapping::managed::{make, pages};
use crate::memory::addresses::give_addresses_back;
use crate::memory::seen;

/// `mremap`.
pub(crate) fn remap(arguments: [usize; 6]) -> isize {
    let [old, bytes, new_bytes, flags, new, _] = arguments;
    // Whatever else such a call asks for, the kernel refuses it first.
    if !old.is_multiple_of(PAGE) {
        return make(SYS_mremap, arguments);
    }
    let bytes = pages(bytes);
    let mut paging = paging();
    if is_move_only(old, bytes, pages(new_bytes), flags, new)
        && (paging.manages(old, bytes) || paging.manages(new, bytes))
        && let Some(end) = Mappings::open().and_then(|mappings| mappings.end_of(old))
        && end < old + bytes
        && moves_several()
    {
        return move_each(&mut paging, old, bytes, flags, new);
    }
    move_one(&mut paging, arguments)
}

/// Whether a call moves what there is to a given place, without a reason for the kernel to refuse it at once.
fn is_move_only(old: usize, bytes: usize, new_bytes: usize, flags: usize, new: usize) -> bool {
    let aligned = old.is_multiple_of(PAGE) && new.is_multiple_of(PAGE);
    let sound = flags & (MREMAP_MAYMOVE | MREMAP_FIXED) == MREMAP_MAYMOVE | MREMAP_FIXED
        && flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) == 0;
    let fits = |at: usize| at.checked_add(bytes).is_some_and(|end| end < END_OF_ADDRESSES);
    let apart = old.saturating_add(bytes) <= new || new.saturating_add(bytes) <= old;
    bytes == new_bytes && bytes > 0 && aligned && sound && fits(old) && fits(new) && apart
}

/// One call, and what becomes of the engine's ranges by it.
fn move_one(paging: &mut Paging, arguments: [usize; 6]) -> isize {
    let [old, old_bytes, new_bytes, flags, new, _] = arguments;
    let (old_bytes, new_bytes) = (pages(old_bytes), pages(new_bytes));
    let before = paging.parts(old, old_bytes);
    let kept = old_bytes.min(new_bytes);
    // What grows out of locked memory is locked. The budget is a limit as the system's own is.
    let grown = before.last().filter(|(_, end, _)| *end == old + old_bytes && new_bytes > kept);
    let fills = grown.is_some_and(|(.., attributes)| attributes.filled);
    if fills && !paging.may_lock_more(new_bytes - kept) {
        return EAGAIN;
    }
    let leaves = flags & MREMAP_DONTUNMAP != 0;
    let mappings = Mappings::open();
    let around = mappings.as_ref().and_then(|mappings| mappings.around(old));
    // What it will not move because it is several is not made one by being set apart.
    let is_one = mappings.is_none() || around.is_some_and(|(_, end)| end >= old + kept);
    drop(mappings);
    // Of the mapping that the old range lies in, what is there still when the kernel has made room for it.
    let around = around.map(|(start, end)| {
        if flags & MREMAP_FIXED == 0 {
            (start, end)
        } else if new > old {
            (start, end.min(new))
        } else {
            (start.max(new.saturating_add(new_bytes)), end)
        }
    });
    let around = around.filter(|(start, end)| start < end);
    // The kernel unlocks all of that.
    let is_locked = before.iter().any(|(.., attributes)| attributes.locked);
    let unlocked = around.filter(|_| leaves && is_locked);
    let apart = if !before.is_empty() && flags & MREMAP_MAYMOVE != 0 && is_one {
        let whole = if leaves { around } else { None };
        match SetApart::new(paging, whole.unwrap_or((old, old + kept)), leaves && is_locked) {
            Some(apart) => Some(apart),
            None => {
                paging.lock_is_decided();
                return ENOMEM;
            }
        }
    } else {
        None
    };
    // Where other threads use what is there, no page may be out when they find the mapping before it is registered.
    let replaces_live = flags & MREMAP_FIXED != 0
        && !before.is_empty()
        && paging.has_threads()
        && Mappings::open().is_none_or(|all| all.next(new).is_some_and(|(start, _)| start < new + new_bytes));
    if replaces_live {
        paging.hold_contents(old, kept);
    }
    let mut at = make(SYS_mremap, arguments);
    if at == ENOMEM && give_addresses_back(paging) {
        at = make(SYS_mremap, arguments);
    }
    if fills {
        paging.lock_is_decided();
    }
    if replaces_live {
        paging.release(old, kept);
    }
    if at < 0 {
        if let Some(apart) = &apart {
            apart.undo();
        }
        paging.note_locks();
        // What is managed and what is not are two mappings, where they would be one.
        let managed: usize = before.iter().map(|(from, to, _)| to - from).sum();
        let is_mixed = managed > 0 && managed < old_bytes;
        if at == EFAULT && is_mixed && paging.let_go(old, old_bytes) {
            return move_one(paging, arguments);
        }
        return at;
    }
    let at = at as usize;
    seen::note(at, new_bytes);
    if flags & MREMAP_FIXED != 0 {
        // What was there is gone.
        paging.forget(new, new_bytes);
    }
    if at != old {
        paging.relocate(old, at, kept);
        paging.forget(old, old_bytes);
        if leaves {
            // The old range is there still, empty: its guards have moved, it is not locked, and nothing was written to
            // it.
            for (start, end, attributes) in &before {
                paging.manage(
                    *start,
                    end - start,
                    Attributes { guard: false, locked: false, filled: false, written: false, ..*attributes },
                );
            }
        }
    } else if new_bytes < old_bytes {
        paging.forget(old + new_bytes, old_bytes - new_bytes);
    }
    if let Some((.., attributes)) = grown {
        let (start, bytes) = (at + kept, new_bytes - kept);
        paging.manage(start, bytes, Attributes { guard: false, ..*attributes });
        if fills {
            // The kernel has filled it with zeros unless it was registered: they go, and come as all that is managed
            // does.
            make(SYS_madvise, [start, bytes, MADV_DONTNEED_LOCKED, 0, 0, 0]);
            paging.hold(start, bytes, attributes.can_be_written());
            // It is locked: nothing more keeps it.
            paging.release(start, bytes);
        }
    }
    if let Some((start, end)) = unlocked {
        paging.lock(start, end - start, false);
    }
    paging.note_locks();
    if let Some(apart) = apart {
        apart.join(old, at, new_bytes, leaves);
    }
    at as isize
}

/// A mapping that is set apart while a part of it moves.
///
/// The kernel joins what has moved with its new neighbours, and then takes the registration away from the whole of
/// that: what is out of memory there would read as zeros. It does not join mappings that are marked or locked
/// differently. Where the kernel will put it is not known, so it is marked as nothing that is managed is.
///
/// With MREMAP_DONTUNMAP the whole mapping is set apart. Were it only the part, the kernel would find that all of a
/// mapping moves, and forget what binds the rest to its neighbours.
struct SetApart {
    span: Span,
    by: By,
}

/// What sets a mapping apart.
enum By {
    /// These marks; what its parts had before.
    Marks(Marks, Vec<(usize, usize, Marks)>),
    /// It was locked, and is locked where it is touched. MREMAP_DONTUNMAP itself unlocks what is left, and does not
    /// join it with neighbours.
    Lock,
}

impl SetApart {
    /// `None` if the kernel refuses it, or each mark is in use: to move it would not be safe.
    fn new(paging: &Paging, (start, end): Span, leaves_locked: bool) -> Option<SetApart> {
        let bytes = end - start;
        if leaves_locked && make(SYS_mlock2, [start, bytes, MLOCK_ONFAULT, 0, 0, 0]) == 0 {
            return Some(SetApart { span: (start, end), by: By::Lock });
        }
        let marks = paging.unused_marks()?;
        let parts = paging.parts(start, bytes).into_iter();
        let parts: Vec<_> = parts.map(|(from, to, attributes)| (from, to, attributes.marks)).collect();
        let is_marked = parts.iter().all(|(from, to, before)| mark(*from, to - from, *before, marks));
        let apart = SetApart { span: (start, end), by: By::Marks(marks, parts) };
        if !is_marked {
            apart.undo();
            return None;
        }
        Some(apart)
    }

    /// It is as it was: nothing has moved, or it was left.
    fn undo(&self) {
        let (start, end) = self.span;
        match &self.by {
            By::Marks(marks, parts) => {
                parts.iter().for_each(|(from, to, before)| _ = mark(*from, to - from, *marks, *before));
            }
            By::Lock => lock(start, end - start),
        }
    }

    /// What has moved from `old` on is joined with its new neighbours, all of which are registered.
    fn join(&self, old: usize, at: usize, bytes: usize, leaves: bool) {
        match &self.by {
            By::Lock => lock(at, bytes),
            By::Marks(marks, parts) => {
                let mut joined = at;
                for (index, (_, to, before)) in parts.iter().enumerate() {
                    // What has grown is like the last.
                    let is_last = index + 1 == parts.len();
                    let end = if is_last { at + bytes } else { (at + to.saturating_sub(old)).min(at + bytes) };
                    if joined < end {
                        mark(joined, end - joined, *marks, *before);
                        joined = end;
                    }
                }
                if leaves {
                    self.undo();
                }
            }
        }
    }
}

/// Marks a range that is marked `from` as `to` says. False if the kernel refuses it.
fn mark(start: usize, bytes: usize, from: Marks, to: Marks) -> bool {
    let advise = |advice| make(SYS_madvise, [start, bytes, advice, 0, 0, 0]) == 0;
    let order = match to.order {
        Order::Normal => MADV_NORMAL,
        Order::Random => MADV_RANDOM,
        Order::Sequential => MADV_SEQUENTIAL,
    };
    let cores = if to.not_in_cores { MADV_DONTDUMP } else { MADV_DODUMP };
    (from.order == to.order || advise(order)) && (from.not_in_cores == to.not_in_cores || advise(cores))
}

/// What is locked already is locked whole. All of it is there, or cannot be.
fn lock(start: usize, bytes: usize) {
    make(SYS_mlock, [start, bytes, 0, 0, 0, 0]);
}

/// Moves the mappings of a range one by one. As with the kernel's own, those before one that cannot be moved have
/// moved.
fn move_each(paging: &mut Paging, old: usize, bytes: usize, flags: usize, new: usize) -> isize {
    let Some(mappings) = Mappings::open() else { return EFAULT };
    let end = old + bytes;
    let (mut at, mut pieces) = (old, Vec::new());
    while at < end
        && let Some((start, last)) = mappings.next(at)
        && start < end
    {
        pieces.push((start.max(at), last.min(end)));
        at = last;
    }
    if pieces.first().is_none_or(|(start, _)| *start > old) {
        return EFAULT;
    }
    if flags & MREMAP_DONTUNMAP != 0 {
        // What is left of a locked one is like its neighbours, and would be joined with those that follow.
        pieces.sort_by_key(|(start, _)| paging.parts(*start, PAGE).iter().any(|(.., attributes)| attributes.locked));
    }
    for (start, last) in pieces {
        let piece = last - start;
        let error = move_one(paging, [start, piece, piece, flags, new + (start - old), 0]);
        if error < 0 {
            return error;
        }
    }
    new as isize
}

/// Whether this kernel moves several mappings at once. Cost: a few calls, once.
fn moves_several() -> bool {
    const BYTES: usize = 2 * PAGE;
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    if ANSWER.load(Ordering::Relaxed) == UNKNOWN {
        let (from, to) = (sys::map(BYTES), sys::map(BYTES));
        // Two mappings, by their rights.
        make(SYS_mprotect, [from, PAGE, 0, 0, 0, 0]);
        let moved = make(SYS_mremap, [from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to, 0]) == to as isize;
        // SAFETY: mapped above and known here alone; another thread may have mapped the old addresses by now.
        unsafe {
            sys::unmap(to, BYTES);
            if !moved {
                sys::unmap(from, BYTES);
            }
        }
        ANSWER.store(if moved { YES } else { NO }, Ordering::Relaxed);
    }
    ANSWER.load(Ordering::Relaxed) == YES
}
