//! Shared pages that one process has evicted, so that others of its family evict the same ones.
//!
//! What a fork has shared is free when the last process has evicted it. If each chose by its own policy they would
//! evict different pages, and nothing would become free while all of them make room. So a process that evicts a shared
//! page notes it in the segment, by its address and the *family*. A family is the processes that descend, by forks
//! alone, from one program. A process with nothing of its own to evict takes those of its shared pages first that are
//! noted.
//!
//! Invariants: no contents depend on a note, only what is preferred. Two chunks of pages may have one word, a note may
//! get lost when old ones are forgotten, and may outlive its reason. Notes are in two halves, and the older half is
//! forgotten when one bit in [`MAX_PART`] of the newer is set: at most one word in four is of another chunk whose pages
//! are all noted.
//! Cost: an atomic operation per note, and a load or two for each chunk of 64 pages that is looked at. One step looks
//! at 256 of them, and at none if nothing was noted since the last round. The notes take 128 KiB of the segment, of
//! which what is not touched takes no memory.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::PAGE;
use crate::page::table::CHUNK_PAGES;

/// Words of a half: one for each chunk of 2 GiB, if no two of them meet.
const WORDS: usize = 1 << 13;
/// One part in this of a half's bits may be set.
const MAX_PART: u32 = 8;
const MAX_SET: u32 = WORDS as u32 * u64::BITS / MAX_PART;

/// See the module. All zeros: nothing is noted.
#[repr(C)]
pub(crate) struct Dropped {
    /// Bits that were ever set.
    notes: AtomicU64,
    /// The newer half is that of this number's parity.
    turn: AtomicU32,
    /// Bits that were set in it.
    set: AtomicU32,
    halves: [[AtomicU64; WORDS]; 2],
}

impl Dropped {
    /// The word of the chunk at an address.
    fn word(family: u64, address: usize) -> usize {
        let chunk = (address / (CHUNK_PAGES * PAGE)) as u64;
        let mixed = (chunk ^ family.wrapping_mul(0xff51_afd7_ed55_8ccd)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % WORDS
    }

    /// A page was given up that others have still.
    pub(crate) fn note(&self, family: u64, address: usize) {
        let (word, bit) = (Dropped::word(family, address), 1 << (address / PAGE % CHUNK_PAGES));
        let turn = self.turn.load(Ordering::Relaxed);
        let newer = turn as usize % 2;
        if self.halves[newer][word].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return;
        }
        self.notes.fetch_add(1, Ordering::Relaxed);
        let next = turn.wrapping_add(1);
        if self.set.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_SET
            && self.turn.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.set.store(0, Ordering::Relaxed);
            self.halves[1 - newer].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }

    /// How many notes there were ever.
    pub(crate) fn notes(&self) -> u64 {
        self.notes.load(Ordering::Relaxed)
    }

    /// A bit for each page of the chunk at an address, set if a process has evicted it.
    pub(crate) fn noted(&self, family: u64, address: usize) -> u64 {
        let word = Dropped::word(family, address);
        self.halves.iter().fold(0, |bits, half| bits | half[word].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> &'static Dropped {
        let at = refault_linux::sys::map(size_of::<Dropped>());
        assert_ne!(at, 0);
        // SAFETY: a fresh mapping of atomics, for which zeros are values; it is never given up.
        unsafe { &*(at as *const Dropped) }
    }

    #[test]
    fn what_one_notes_its_family_sees_and_another_does_not() {
        let dropped = nothing();
        let chunk = 0x7f00_0000_0000;
        for page in [0, 5, 63, 64] {
            dropped.note(7, chunk + page * PAGE);
        }
        assert_eq!(dropped.noted(7, chunk), 1 | 1 << 5 | 1 << 63);
        assert_eq!(dropped.noted(7, chunk + 64 * PAGE), 1);
        assert_eq!((dropped.noted(8, chunk), dropped.noted(7, chunk + 128 * PAGE)), (0, 0));
        dropped.note(7, chunk);
        assert_eq!(dropped.notes.load(Ordering::Relaxed), 4, "what is noted already is nothing new");
    }

    #[test]
    fn old_notes_are_forgotten_and_new_ones_are_not() {
        let dropped = nothing();
        let page = |index: usize| (index + 1) * PAGE;
        let is_noted = |index: usize| dropped.noted(1, page(index)) >> (page(index) / PAGE % CHUNK_PAGES) & 1 == 1;
        let turns = |at: usize| (0..at).for_each(|index| dropped.note(1, page(index)));
        turns(5 * MAX_SET as usize);
        let set = dropped.halves.iter().flatten().map(|word| word.load(Ordering::Relaxed).count_ones()).sum::<u32>();
        assert!((MAX_SET..=2 * MAX_SET).contains(&set), "{set} bits");
        let last = 5 * MAX_SET as usize - 1;
        assert!((last - MAX_SET as usize / 2..=last).all(is_noted), "the last are noted");
        let old = (0..MAX_SET as usize).filter(|index| is_noted(*index)).count();
        assert!(old <= MAX_SET as usize / 3, "{old} of the first {MAX_SET}");
    }
}
