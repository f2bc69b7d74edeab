//! What stores and their pager have mapped for themselves in this process, where a pager must tell it from what is the
//! program's.
//!
//! Invariants: no lock and no allocation, so that it may be asked and told in a signal handler and in a forked child.
//! What finds no place in the list is not in it. Cost: a look at the whole list.
//!
//! ```
//! use refault_store::noted;
//!
//! noted::note(1 << 40, 8192);
//! assert!(noted::all().any(|span| span == (1 << 40, (1 << 40) + 8192)));
//! noted::give_up(1 << 40, 8192);
//! assert_eq!(noted::all().count(), 0);
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};

/// Mappings that can be noted: a process has some dozens.
const MAX_NOTED: usize = 512;

/// Start and end; a start of 0 is a free place.
static NOTED: [[AtomicUsize; 2]; MAX_NOTED] = [const { [const { AtomicUsize::new(0) }; 2] }; MAX_NOTED];

/// `bytes` from `start` on are the pager's, whole pages.
pub fn note(start: usize, bytes: usize) {
    let free =
        |[at, _]: &&[AtomicUsize; 2]| at.compare_exchange(0, start, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if let Some([_, end]) = NOTED.iter().find(free) {
        end.store(start + bytes, Ordering::Relaxed);
    }
}

/// They are no more: a range of what was noted.
pub fn give_up(from: usize, bytes: usize) {
    let to = from + bytes;
    for [start, end] in &NOTED {
        let (first, last) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
        if from <= first && last <= to {
            // The end first: who takes the place meanwhile must not find the old one.
            end.store(0, Ordering::Relaxed);
            start.store(0, Ordering::Release);
        } else if first < from && from < last {
            end.store(from, Ordering::Relaxed);
        }
    }
}

/// Start and end of all that is noted, in no order; none is empty.
pub fn all() -> impl Iterator<Item = (usize, usize)> {
    NOTED
        .iter()
        .map(|[start, end]| (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed)))
        .filter(|(start, end)| 0 < *start && start < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_in_part_stays_in_part() {
        const START: usize = 1 << 60;
        let ours = || all().filter(|(start, _)| *start >= START).collect::<Vec<_>>();
        note(START, 8192);
        note(START + 16384, 4096);
        give_up(START + 4096, 4096);
        assert_eq!(ours(), [(START, START + 4096), (START + 16384, START + 20480)]);
        give_up(START, 1 << 20);
        assert_eq!(ours(), []);
    }

    #[test]
    fn a_reservation_is_noted_while_it_lives() {
        let reserved = crate::mapping::Mapping::new(5 << 20).expect("maps");
        let span = (reserved.base().as_ptr() as usize, reserved.base().as_ptr() as usize + (5 << 20));
        assert!(all().any(|noted| noted == span));
        drop(reserved);
        assert!(!all().any(|noted| noted == span));
    }
}
