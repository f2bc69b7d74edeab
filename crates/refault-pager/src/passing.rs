//! Cyclic scans: what passes through gives way, what stays, stays.
//!
//! A range that is read from beginning to end, again and again, and is larger than the budget defeats every policy that evicts
//! what was used longest ago: each page is gone just before its turn. For ranges with that hint ([`crate::Hint::Cyclic`]),
//! and for those that show that they are accessed so ([`crate::cycles`]), the pages that came in last, a little behind the scan, are evicted first, so that the rest of the range stays and only
//! the part that does not fit passes through. This is evicting the most recently used, which is optimal for such scans.
//!
//! Invariants: the list holds page ids only; whether a page may go is decided by its state word, as always. Nothing is
//! allocated after construction. Cost: O(1) a page.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use refault_core::PageId;

use crate::pager::Inner;
use crate::region::Hint;
use crate::state::State;

/// Pages remembered at most. Older ones belong to the policy again.
const REMEMBERED: usize = 4096;

/// Pages that came in last and are left alone: a window of readahead and those that the scan stands on.
const LEFT_ALONE: usize = 128;

pub(crate) struct Passing {
    pages: Mutex<VecDeque<PageId>>,
    /// Whether there ever were any, so that nobody else pays for the lock.
    used: AtomicBool,
}

impl Default for Passing {
    fn default() -> Passing {
        Passing { pages: Mutex::new(VecDeque::with_capacity(REMEMBERED)), used: AtomicBool::new(false) }
    }
}

impl Inner {
    /// Notes that a page came in; only pages of cyclic ranges count, be that said ([`Hint::Cyclic`]) or found out
    /// ([`crate::cycles`]).
    pub(crate) fn note_passing(&self, page: PageId) {
        if self.ranges.hint(page) != Hint::Cyclic && !self.cycles.covers(page) {
            return;
        }
        self.passing.used.store(true, Ordering::Relaxed);
        let mut pages = self.passing.pages.lock().expect("invariant: nothing panics under this lock");
        if pages.len() == REMEMBERED {
            pages.pop_front();
        }
        pages.push_back(page);
    }

    /// The pages that came in last belong to the policy again.
    pub(crate) fn forget_passing(&self) {
        self.passing.pages.lock().expect("invariant: nothing panics under this lock").clear();
    }

    /// Takes up to `goal` pages that the scan has just left into the state Evicting, and adds them to `victims`.
    pub(crate) fn take_passing(&self, goal: usize, victims: &mut Vec<PageId>) {
        if !self.passing.used.load(Ordering::Relaxed) {
            return;
        }
        let mut pages = self.passing.pages.lock().expect("invariant: nothing panics under this lock");
        while victims.len() < goal && pages.len() > LEFT_ALONE {
            // The one that came in last but for those that are left alone: older ones are what stays.
            let last = pages.len() - LEFT_ALONE - 1;
            let Some(page) = pages.remove(last) else { return };
            let word = self.word(page);
            let seen = word.load();
            if seen.state() == State::Resident && !seen.pinned() && word.begin(seen, State::Evicting) {
                victims.push(page);
            }
        }
    }
}
