//! What a child of `fork` shares with its parent, and who is charged for it.
//!
//! A page that several processes share costs memory once. The parent is charged for it as long as it has it. What the
//! parent has evicted since, the children that still share it are charged for by equal parts. The kernel does not tell
//! an unprivileged process whose pages are whose, so this is done by counts. Both sides guard what they share
//! (`guard`): a page is counted before the kernel copies it, and when one side evicts it. The parent charges its
//! children at once for what it does not share any more ([`crate::tree::account::Account::unshared`]), asleep or not.
//! Where counts leave a choice the tree is charged too much rather than too little:
//! - no more is inherited than is shared now, less what may be shared of memory that is not managed;
//! - a process that has forked itself pays whole for what its own parent has given up.
//!
//! Between two looks a child that does nothing may be charged too little: what its siblings give up makes its part
//! larger without its knowing. Cost: a walk through the page tables (`rollup`) twenty times per second while anything
//! is shared; more often, up to a twentieth of the time, while much of it is given up.

use core::sync::atomic::Ordering;

use super::rollup;
use crate::tree::{Shared, Slot};
use refault_linux::sys;

/// Nanoseconds between two looks at what is still shared: while much changes, as right after most forks, and at most.
const MIN_PAUSE: u64 = 1_000_000;
const MAX_PAUSE: u64 = 50_000_000;
/// A look may take one part in this of the time.
const MAX_PART: u64 = 20;
/// Much is one part in `MUCH.0`, and `MUCH.1` pages.
const MUCH: (i64, i64) = (32, 16);
/// Pages that a child gives up before the next such look.
const LOOK_AFTER: u64 = 128;

/// See the module. In pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inherited {
    /// Inherited and shared still, as far as is known.
    pages: i64,
    /// The parent's slot, in which of its turns, what was shared at the fork and what the parent had ceased to share by
    /// then.
    lender: (usize, u32),
    had: i64,
    gave: u64,
    /// What both had at the fork, whatever became of it, and what the parent had stored of what it shared by then.
    all: i64,
    apart: u64,
    /// At the last look: shared pages of this process, and how many of them others make up for if each is divided by
    /// those that share it.
    shared: i64,
    others: i64,
    /// When that was, how long after it the next is due, and pages that this process has given up since.
    looked: u64,
    pause: u64,
    given_up: u64,
    /// It has forked itself.
    lends: bool,
    /// It was never looked at.
    is_new: bool,
}

impl Inherited {
    /// At a fork: `pages` are shared with the parent, and `stored` are out of memory for both. The parent has a slot in
    /// one of its turns, has given up `gave` pages so far and stored `apart` of them.
    pub(crate) fn new(pages: i64, stored: i64, lender: (usize, u32), gave: u64, apart: u64) -> Inherited {
        Inherited {
            pages,
            lender,
            had: pages,
            gave,
            all: pages + stored,
            apart,
            looked: sys::now(),
            pause: MIN_PAUSE,
            is_new: true,
            ..Inherited::default()
        }
    }

    /// This process is about to fork.
    pub(crate) fn lends(&mut self) {
        self.lends = true;
    }

    /// Pages that were shared are this process's own from now on, or have left its memory.
    pub(crate) fn unshared(&mut self, pages: u64) {
        self.given_up += pages;
        self.pages = self.pages.saturating_sub_unsigned(pages).max(0);
        self.had = self.had.saturating_sub_unsigned(pages).max(0);
    }

    /// Whether anything is shared still, as far as is known.
    pub(crate) fn is_any(&self) -> bool {
        self.pages > 0
    }

    /// Whether the parent has given up some of it, and who else has that was never looked at: it would be charged
    /// whole, and others are charged for their part of it already.
    pub(crate) fn is_without_look(&self, segment: &Shared) -> bool {
        self.shared == 0 && self.pages > self.held(segment)
    }

    /// Looks, now and then or `at_once`, how much is still shared. `all`: what the process has, inherited or not. True
    /// if it did.
    pub(crate) fn look(&mut self, all: i64, at_once: bool) -> bool {
        if self.pages == 0 {
            return false;
        }
        let now = sys::now();
        let is_due = now.saturating_sub(self.looked) >= self.pause || self.given_up >= LOOK_AFTER;
        if !(is_due || at_once && self.is_new) {
            return false;
        }
        self.is_new = false;
        let before = self.pages;
        if let Some(common) = rollup::common() {
            let unmanaged = (common.anonymous - all).max(0);
            // What was written to is never shared again.
            self.pages = self.pages.min(common.shared - unmanaged).max(0);
            (self.shared, self.others) = (common.shared, common.others);
        }
        (self.looked, self.given_up) = (sys::now(), 0);
        let much = before - self.pages > before / MUCH.0 + MUCH.1;
        let pause = if much { MIN_PAUSE } else { self.pause * 2 };
        self.pause = pause.max((self.looked - now) * MAX_PART).min(MAX_PAUSE);
        true
    }

    /// Pages of this process that others are charged for.
    pub(crate) fn lent(&self, segment: &Shared) -> i64 {
        if self.pages == 0 {
            return 0;
        }
        let held = self.held(segment);
        let left = self.pages - held;
        if left == 0 || self.lends || self.shared == 0 {
            return held;
        }
        // By what the last look said, but not by more than those that are left have in common.
        let (slot, turn) = self.lender;
        let heirs = segment.heirs(Slot::lender_word(slot, turn)).count().max(1) as i64;
        held + (left * self.others / self.shared).min(left - left / heirs)
    }

    /// Pages that others have too, or would have if neither this process nor its parent had stored any: this one has
    /// stored `apart` of what it shares. Of a page that was stored and is gone since it is not known.
    pub(crate) fn common(&self, segment: &Shared, apart: u64) -> i64 {
        let (lent, (slot, turn)) = (self.lent(segment), self.lender);
        let lender = &segment.slots[slot];
        let is_there = lender.turn.load(Ordering::Relaxed) == turn && lender.process.load(Ordering::Relaxed) > 0;
        if self.all == 0 || !is_there {
            return lent;
        }
        let parents = lender.apart.load(Ordering::Relaxed).saturating_sub(self.apart);
        lent.max(lent.saturating_add_unsigned(apart + parents).min(self.all))
    }

    /// Those of them that the parent has too.
    pub(crate) fn held(&self, segment: &Shared) -> i64 {
        let (slot, turn) = self.lender;
        let lender = &segment.slots[slot];
        let is_there = lender.turn.load(Ordering::Relaxed) == turn && lender.process.load(Ordering::Relaxed) > 0;
        let gave = lender.gave.load(Ordering::Relaxed).saturating_sub(self.gave);
        if is_there { self.had.saturating_sub_unsigned(gave).clamp(0, self.pages) } else { 0 }
    }
}
