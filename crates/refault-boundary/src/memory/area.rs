//! Where the agent's memory lies: addresses that are reserved before the program begins.
//!
//! What is mapped later goes where the kernel finds room, and that may be a hole in memory of the program's. An
//! `munmap` or `mmap` of the program's over all of that would unmap it. That is right for a program that knows what it
//! has mapped. So what the agent maps while the program runs is a part of one mapping. What does not fit into that any
//! more is mapped where the program never had anything ([`crate::memory::seen`]). If there is no such place, it is
//! mapped wherever there is room.
//!
//! Invariants: what is taken is zeros; parts that are given back take no memory; nothing is allocated, so that heaps
//! may ask. Parts are whole pages, and neighbours that are free are one. A lock guards it, which is asked for last; at
//! a fork the forking thread holds it. Cost: a look at the free parts, [`MAX_FREE`] at most.

use std::sync::atomic::{AtomicUsize, Ordering};

use refault_linux::advice::{MADV_DONTDUMP, MADV_NOHUGEPAGE};
use refault_linux::calls::{SYS_madvise, SYS_mincore, SYS_munlock};
use refault_linux::lock::Lock;
use refault_linux::sys;
use refault_paging::PAGE;
use refault_store::{Source, noted};

use crate::memory::seen;

/// Free parts that are remembered. The addresses of one that is not are lost, and not its memory.
const MAX_FREE: usize = 128;

struct Area {
    start: usize,
    /// Never taken from here on, or free again up to the end.
    fresh: usize,
    end: usize,
    /// Start and bytes of what is free before `fresh`; 0 bytes: none.
    free: [(usize, usize); MAX_FREE],
}

static AREA: Lock<Area> = Lock::new(Area { start: 0, fresh: 0, end: 0, free: [(0, 0); MAX_FREE] });

/// Start and end, by which callers ask without the lock whose an address is.
static SPAN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

impl Area {
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let smallest = self.free.iter_mut().filter(|(_, free)| *free >= bytes).min_by_key(|(_, free)| *free);
        if let Some((at, free)) = smallest {
            let taken = *at;
            (*at, *free) = (*at + bytes, *free - bytes);
            return Some(taken);
        }
        if self.end - self.fresh < bytes {
            return None;
        }
        self.fresh += bytes;
        Some(self.fresh - bytes)
    }

    fn give_back(&mut self, mut at: usize, mut bytes: usize) {
        for (other, free) in self.free.iter_mut().filter(|(_, free)| *free > 0) {
            if *other + *free == at || at + bytes == *other {
                (at, bytes) = (at.min(*other), bytes + *free);
                *free = 0;
            }
        }
        if at + bytes == self.fresh {
            self.fresh = at;
        } else if let Some(place) = self.free.iter_mut().min_by_key(|(_, free)| *free)
            && place.1 < bytes
        {
            *place = (at, bytes);
        }
    }

    /// Makes a part larger where it is.
    fn grow(&mut self, at: usize, old: usize, new: usize) -> bool {
        let (end, more) = (at + old, new - old);
        if end == self.fresh {
            let fits = self.end - end >= more;
            self.fresh += if fits { more } else { 0 };
            return fits;
        }
        match self.free.iter_mut().find(|(start, free)| *start == end && *free >= more) {
            Some((start, free)) => {
                (*start, *free) = (*start + more, *free - more);
                true
            }
            None => false,
        }
    }
}

/// Reserves the addresses, once: `bytes` bytes, or what there is of them. They take no memory before they are used.
pub(crate) fn reserve(bytes: usize) {
    let sizes = std::iter::successors(Some(bytes & !(PAGE - 1)), |bytes| Some((bytes / 2) & !(PAGE - 1)));
    let found = sizes.take_while(|bytes| *bytes > 0).find_map(|bytes| match sys::map(bytes) {
        0 => None,
        at => Some((at, bytes)),
    });
    let Some((at, bytes)) = found else { return };
    noted::note(at, bytes);
    for advice in [MADV_DONTDUMP, MADV_NOHUGEPAGE] {
        advise(at, bytes, advice);
    }
    let mut area = AREA.lock();
    (area.start, area.fresh, area.end) = (at, at, at + bytes);
    SPAN[0].store(at, Ordering::Relaxed);
    SPAN[1].store(at + bytes, Ordering::Relaxed);
    drop(area);
    seen::begin_below(at);
    // Files are opened while the program runs, and have tables.
    refault_store::reserve_from(Source { take, give_back });
}

/// Unmaps the addresses at the end that the agent does not use, but for `keep` bytes of them: the program may have
/// them. Returns whether there were any.
pub(crate) fn give_addresses_back(keep: usize) -> bool {
    let mut area = AREA.lock();
    let from = (area.fresh + (keep & !(PAGE - 1))).min(area.end);
    let bytes = area.end - from;
    if bytes > 0 {
        noted::give_up(from, bytes);
        // SAFETY: no caller of `take` has them.
        unsafe { sys::unmap(from, bytes) };
        area.end = from;
        SPAN[1].store(from, Ordering::Relaxed);
    }
    bytes > 0
}

/// No thread takes anything while the result lives: for the moment of a fork.
pub(crate) fn stand_still() -> impl Sized {
    AREA.lock()
}

fn is_inside(at: usize) -> bool {
    (SPAN[0].load(Ordering::Relaxed)..SPAN[1].load(Ordering::Relaxed)).contains(&at)
}

fn advise(at: usize, bytes: usize, advice: usize) {
    // SAFETY: neither advice changes contents; the callers have the range.
    unsafe { sys::call(SYS_madvise, [at, bytes, advice, 0, 0, 0]) };
}

/// Whole pages of zeros; 0 if no addresses are left.
pub(crate) fn take(bytes: usize) -> usize {
    debug_assert!(bytes.is_multiple_of(PAGE));
    let taken = AREA.lock().take(bytes);
    taken.unwrap_or_else(|| {
        let fresh = seen::map(bytes);
        let at = if fresh == 0 { sys::map(bytes) } else { fresh };
        if at != 0 {
            noted::note(at, bytes);
            // Says nothing to a debugger, and may hold keys.
            advise(at, bytes, MADV_DONTDUMP);
        }
        at
    })
}

/// Bytes of the area that are in memory: those that a thread has touched. Cost: a walk through the page tables.
pub(crate) fn touched() -> usize {
    const AT_ONCE: usize = 4096;
    let (start, end) = {
        let area = AREA.lock();
        (area.start, area.fresh)
    };
    let mut there = [0u8; AT_ONCE];
    let mut pages = 0;
    for at in (start..end).step_by(AT_ONCE * PAGE) {
        let many = ((end - at) / PAGE).min(AT_ONCE);
        // SAFETY: writes a byte for each page.
        let error = unsafe { sys::call(SYS_mincore, [at, many * PAGE, there.as_mut_ptr() as usize, 0, 0, 0]) };
        let all = if error == 0 { &there[..many] } else { &[1; AT_ONCE][..many] };
        pages += all.iter().filter(|byte| **byte & 1 != 0).count();
    }
    pages * PAGE
}

/// Gives some pages back that were taken, or a part of them.
///
/// # Safety
/// No thread uses them any more.
pub(crate) unsafe fn give_back(at: usize, bytes: usize) {
    if is_inside(at) {
        // SAFETY: promised by the caller. Before another thread can take them.
        unsafe {
            if sys::discard(at, bytes) != 0 {
                // It is locked, as what holds keys is.
                sys::call(SYS_munlock, [at, bytes, 0, 0, 0, 0]);
                sys::discard(at, bytes);
            }
        }
        AREA.lock().give_back(at, bytes);
    } else {
        noted::give_up(at, bytes);
        // SAFETY: as above.
        unsafe { sys::unmap(at, bytes) };
    }
}

/// Makes what was taken larger or smaller where it is. False: that cannot be.
///
/// # Safety
/// No thread uses what lies behind the new end.
pub(crate) unsafe fn resize(at: usize, old: usize, new: usize) -> bool {
    if new < old {
        // SAFETY: promised by the caller.
        unsafe { give_back(at + new, old - new) };
    }
    new <= old || is_inside(at) && AREA.lock().grow(at, old, new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn area(pages: usize) -> Area {
        let start = 1 << 40;
        Area { start, fresh: start, end: start + pages * PAGE, free: [(0, 0); MAX_FREE] }
    }

    #[test]
    fn what_is_given_back_is_one_with_its_neighbours() {
        let mut area = area(10);
        let parts: Vec<usize> = (0..5).map(|_| area.take(2 * PAGE).expect("room")).collect();
        assert_eq!(area.take(PAGE), None);
        for part in [1, 3, 2] {
            area.give_back(parts[part], 2 * PAGE);
        }
        assert_eq!(area.take(6 * PAGE), Some(parts[1]));
        area.give_back(parts[4], 2 * PAGE);
        assert!(area.grow(parts[1], 6 * PAGE, 8 * PAGE) && !area.grow(parts[1], 8 * PAGE, 9 * PAGE));
        area.give_back(parts[1], 8 * PAGE);
        area.give_back(parts[0], 2 * PAGE);
        assert_eq!(area.fresh, area.start);
        assert_eq!(area.take(10 * PAGE), Some(parts[0]));
    }

    proptest! {
        /// Parts never overlap and never leave the area, whatever is taken, given back in parts, and made larger.
        #[test]
        fn parts_do_not_overlap(steps in proptest::collection::vec((0u8..4, 1usize..9, any::<usize>()), 1..300)) {
            let mut area = area(64);
            let mut owner = [0u32; 64];
            let mut held: Vec<(usize, usize, u32)> = Vec::new();
            let index = |at: usize| (at - (1 << 40)) / PAGE;
            for (number, (kind, pages, which)) in (1..).zip(steps) {
                let chosen = (!held.is_empty()).then(|| which % held.len().max(1));
                match (kind, chosen) {
                    (0 | 1, _) => if let Some(at) = area.take(pages * PAGE) {
                        let taken = &mut owner[index(at)..][..pages];
                            prop_assert!(taken.iter().all(|owner| *owner == 0));
                            taken.fill(number);
                        held.push((at, pages, number));
                    },
                    (2, Some(chosen)) => {
                        let (at, all, _) = held[chosen];
                        let rest = all.saturating_sub(pages);
                        owner[index(at) + rest..index(at) + all].fill(0);
                        area.give_back(at + rest * PAGE, (all - rest) * PAGE);
                        held[chosen].1 = rest;
                        held.retain(|(_, pages, _)| *pages > 0);
                    }
                    (_, Some(chosen)) => {
                        let (at, all, number) = held[chosen];
                        if area.grow(at, all * PAGE, (all + pages) * PAGE) {
                            let grown = &mut owner[index(at) + all..][..pages];
                            prop_assert!(grown.iter().all(|owner| *owner == 0));
                            grown.fill(number);
                            held[chosen].1 += pages;
                        }
                    }
                    _ => {}
                }
            }
            for (at, pages, _) in held {
                area.give_back(at, pages * PAGE);
            }
            // With so few parts none of the addresses are lost.
            prop_assert_eq!(area.fresh, area.start);
        }
    }
}
