//! What is kept of pages that came back: their slot, so that a page which was not written to needs no second
//! compression or write when it leaves again.
//!
//! The kernel does not tell an unprivileged process which pages were written to. So the contents are compared when the
//! page leaves, by a fingerprint of 128 bits under a seed that only this process has. A slot in a file costs no memory.
//! One in the compressed pool does, so those are kept only where most is compressed anyhow, and while they turn out to
//! be of use.
//!
//! Invariants: a page with a copy is resident or parked; no other page has the copy's slot. Cost: 48 bytes per copy and
//! 0.2 µs each way.

use std::collections::BTreeMap;

use refault_core::PageId;
use refault_store::{Page, Slot, Tier};

/// What a copy that was of use is worth against one that was not.
const USED: i32 = 3;
/// The balance stays within this on both sides.
const MAX_BALANCE: i32 = 64;
/// One page of this many is tried even if copies are of no use.
const TRIAL: u32 = 32;

/// See the module.
pub(crate) struct Copies {
    pages: BTreeMap<PageId, (Slot, u128)>,
    seed: u64,
    balance: i32,
}

impl Copies {
    pub(crate) fn new(seed: u64) -> Copies {
        Copies { pages: BTreeMap::new(), seed, balance: 0 }
    }

    /// Whether the slot of a page that comes back is worth keeping. `mostly_compressed`: copies take little beside what
    /// is compressed.
    pub(crate) fn is_worth(&self, page: PageId, slot: Slot, mostly_compressed: bool) -> bool {
        match slot.tier() {
            Tier::SameFilled => false,
            Tier::Pool if !mostly_compressed => false,
            _ => self.balance >= 0 || page.is_multiple_of(TRIAL),
        }
    }

    /// Keeps the slot of a page that came back with these contents.
    pub(crate) fn keep(&mut self, page: PageId, slot: Slot, contents: &Page) {
        self.pages.insert(page, (slot, contents.fingerprint(self.seed)));
    }

    /// Pages that have a copy.
    pub(crate) fn count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Whether a slot is the copy of this page.
    pub(crate) fn is(&self, page: PageId, slot: Slot) -> bool {
        self.pages.get(&page).is_some_and(|(copy, _)| *copy == slot)
    }

    /// The page has other contents, or the copy is not worth its memory: its slot, to be released.
    pub(crate) fn drop(&mut self, page: PageId) -> Option<Slot> {
        self.pages.remove(&page).map(|(slot, _)| slot)
    }

    /// The page leaves with these contents. Its slot, and whether that still holds them; if not, it is to be released.
    pub(crate) fn leave(&mut self, page: PageId, contents: &Page) -> Option<(Slot, bool)> {
        if self.pages.is_empty() {
            return None;
        }
        let (slot, fingerprint) = self.pages.remove(&page)?;
        let holds = contents.fingerprint(self.seed) == fingerprint;
        self.balance = (self.balance + if holds { USED } else { -1 }).clamp(-MAX_BALANCE, MAX_BALANCE);
        Some((slot, holds))
    }

    /// The copy of a page lies in another slot now.
    pub(crate) fn reslot(&mut self, page: PageId, slot: Slot) {
        if let Some((copy, _)) = self.pages.get_mut(&page) {
            *copy = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_holds_until_the_page_differs() {
        let mut copies = Copies::new(7);
        let slot = Slot::from_bits(1 << 54);
        let mut page = Page([3; 4096]);
        copies.keep(5, slot, &page);
        assert!(copies.is(5, slot) && !copies.is(6, slot));
        assert_eq!(copies.leave(5, &page), Some((slot, true)));
        assert_eq!(copies.leave(5, &page), None);
        copies.keep(5, slot, &page);
        page.0[4095] ^= 1;
        assert_eq!(copies.leave(5, &page), Some((slot, false)));
    }

    #[test]
    fn copies_of_no_use_are_tried_now_and_then_only() {
        let mut copies = Copies::new(7);
        let slot = Slot::from_bits(1 << 54);
        let kept = |copies: &Copies| (0..1024).filter(|page| copies.is_worth(*page, slot, true)).count();
        assert_eq!(kept(&copies), 1024);
        for page in 0..100 {
            copies.keep(page, slot, &Page::ZERO);
            copies.leave(page, &Page([1; 4096]));
        }
        assert_eq!(kept(&copies), 1024 / TRIAL as usize);
        for page in 0..100 {
            copies.keep(page, slot, &Page::ZERO);
            copies.leave(page, &Page::ZERO);
        }
        assert_eq!(kept(&copies), 1024);
        assert_eq!((0..1024).filter(|page| copies.is_worth(*page, slot, false)).count(), 0);
    }
}
