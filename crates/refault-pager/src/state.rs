//! The state word of a page: one atomic that decides who may do what with it.
//!
//! ```text
//!            ┌──────────── fill ─────────────┐
//! Fresh ──▶ Filling ──▶ Resident ──▶ Evicting ──▶ Stored
//!   ▲          ▲           │             │           │
//!   └─ Moving ◀┼───────────┘ discard     └ failed ──▶ Resident
//!              └─────────────────────────── fill ────┘
//! ```
//!
//! Filling, Evicting and Moving have one owner: the thread whose compare-and-swap led there. Only the owner touches the
//! page's contents and slot, and it ends the state with [`PageWord::finish`]. A thread that finds a page owned leaves a
//! mark ([`PageWord::mark_waited`]); the owner then wakes the page's waiters. Invariant: no fault that was seen in an
//! owned state is left without a wake. Checked with random schedules in `tests/state_model.rs`, which compiles this
//! file over shuttle.

use super::sync::{AtomicU64, Ordering};

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Nowhere: it reads as zeros (or as its file).
    Fresh = 0,
    /// Being brought in.
    Filling = 1,
    /// In memory.
    Resident = 2,
    /// Being evicted.
    Evicting = 3,
    /// In a store's slot.
    Stored = 4,
    /// Being discarded, or going to another slot or address.
    Moving = 5,
    /// Its contents could not be brought back.
    Lost = 6,
}

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?}{}{}",
            self.state(),
            if self.kept() { "+kept" } else { "" },
            if self.pinned() { "+pinned" } else { "" }
        )
    }
}

const SLOT_BITS: u32 = 56;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const STATE_SHIFT: u32 = 56;
const STATE_MASK: u64 = 7 << STATE_SHIFT;
const PINNED: u64 = 1 << 59;
const KEPT: u64 = 1 << 60;
const WAITED: u64 = 1 << 61;

/// The slot of a kept page that came from zeros or from its file rather than from a store.
pub const NO_SLOT: u64 = SLOT_MASK;

impl Word {
    /// Where the page is.
    pub const fn state(self) -> State {
        match (self.0 & STATE_MASK) >> STATE_SHIFT {
            0 => State::Fresh,
            1 => State::Filling,
            2 => State::Resident,
            3 => State::Evicting,
            4 => State::Stored,
            5 => State::Moving,
            _ => State::Lost,
        }
    }

    /// The page may not be evicted.
    pub const fn pinned(self) -> bool {
        self.0 & PINNED != 0
    }

    /// The page is write-protected and equal to the contents of its slot.
    pub const fn kept(self) -> bool {
        self.0 & KEPT != 0
    }

    /// The slot, meaningful if the page is stored or kept.
    pub const fn slot(self) -> u64 {
        self.0 & SLOT_MASK
    }

    const fn with_state(self, state: State) -> Word {
        Word(self.0 & !STATE_MASK | (state as u64) << STATE_SHIFT)
    }
}

/// The word of a page. Zeroed memory is a fresh page.
#[repr(transparent)]
pub struct PageWord(AtomicU64);

impl PageWord {
    /// A fresh page.
    #[allow(dead_code, reason = "page tables are zeroed memory; only models make single words")]
    pub fn new() -> PageWord {
        PageWord(AtomicU64::new(0))
    }

    /// The value now.
    pub fn load(&self) -> Word {
        Word(self.0.load(Ordering::Acquire))
    }

    /// Becomes the owner of a page that was seen as `seen`, in the owned state `state`. Slot and marks stay.
    pub fn begin(&self, seen: Word, state: State) -> bool {
        let next = seen.with_state(state);
        self.0.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The owner ends its state. Returns whether a thread waits for the page.
    #[must_use]
    pub fn finish(&self, state: State, slot: u64, kept: bool) -> bool {
        let marks = if kept { KEPT } else { 0 };
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let next = seen & PINNED | (state as u64) << STATE_SHIFT | slot & SLOT_MASK | marks;
            match self.0.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return seen & WAITED != 0,
                Err(now) => seen = now,
            }
        }
    }

    /// Asks the owner of a page seen in an owned state to wake its waiters. False if the word has changed meanwhile.
    #[must_use]
    pub fn mark_waited(&self, seen: Word) -> bool {
        self.0.compare_exchange(seen.0, seen.0 | WAITED, Ordering::AcqRel, Ordering::Acquire).is_ok()
            || Word(seen.0 | WAITED) == self.load()
    }

    /// Sets or clears the pin; returns the value before.
    pub fn set_pinned(&self, pinned: bool) -> Word {
        Word(if pinned {
            self.0.fetch_or(PINNED, Ordering::AcqRel)
        } else {
            self.0.fetch_and(!PINNED, Ordering::AcqRel)
        })
    }
}
