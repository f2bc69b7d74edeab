//! Pages set aside to see whether they are touched: accessed bits for recorders and monitors, without privilege.
//!
//! A page is set aside by moving it, whole, to its place in the *mirror* (`UFFDIO_MOVE`), whatever address it has: the
//! place is its id. Who touches it next faults, and it is moved back. It stays the policy's and stays charged
//! meanwhile. Between two looks (a look) each page that is touched is noted once, in the order of first
//! touches, with whether that was a write.
//!
//! Invariants: a page is in the mirror exactly as long as the table says it is; pages in use by a call in
//! progress are not set aside. What cannot be moved (locked, not writable, shared with a child or parent since a fork)
//! stays where it is: its accesses are not seen until it can. Cost: two moves, a fault and some 16 bytes per page and
//! look.

use refault_core::PageId;
use refault_store::noted;

use super::Mover;
use crate::PAGE;
use refault_linux::errno::EEXIST;
use refault_linux::sys;

/// Bytes of addresses of the mirror: pages with higher ids are not set aside.
const MIRROR_BYTES: usize = 256 << 30;
/// Touches of a sample that are kept until the next look: of a program that faults all the time more would be the same.
const MAX_NOTED: usize = 1 << 16;
/// Pages that could not be moved are tried again after this many looks.
const RETRY_EVERY: u64 = 8;

/// Touches that one fault brings along at most.
const MAX_ALONG: usize = super::MAX_FILLED;

/// See the module.
pub(crate) struct Aside {
    mirror: usize,
    /// Addresses touched since the last look, with the lowest bit for a write.
    touched: Vec<usize>,
    /// Addresses of touched pages that could not be set aside.
    stuck: Vec<usize>,
    looks: u64,
    /// Touches are noted, and nothing comes along with a fault unless only a sample is noted.
    notes: bool,
    /// One page in `2^shift` is noted and set aside again.
    shift: u32,
    /// Pages that were moved back because they were touched, and nanoseconds that this took.
    taken_back: u64,
    waited: u64,
}

impl Aside {
    /// With a mirror, from which nothing comes back yet. `notes`: touches are noted, of one page in `2^shift` (below
    /// 64).
    ///
    /// # Errors
    /// Says what is not to be had.
    pub(crate) fn new(notes: bool, shift: u32) -> Result<Aside, &'static str> {
        let mirror = sys::map(MIRROR_BYTES);
        if mirror == 0 {
            return Err("no addresses are left to set pages aside (ulimit -v limits them)");
        }
        noted::note(mirror, MIRROR_BYTES);
        Ok(Aside::at(mirror, notes, shift))
    }

    fn at(mirror: usize, notes: bool, shift: u32) -> Aside {
        Aside { mirror, touched: Vec::new(), stuck: Vec::new(), looks: 0, notes, shift, taken_back: 0, waited: 0 }
    }

    /// In this process, which may be a forked child, pages may be moved to the mirror.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn arm(&mut self, moving: &Mover) -> Result<(), &'static str> {
        // What the parent has noted is the parent's; its pages are to be looked at here too.
        self.stuck.extend(self.touched.drain(..).map(|touch| touch & !(PAGE - 1)));
        if moving.register(self.mirror, MIRROR_BYTES) { Ok(()) } else { Err("the mirror cannot be registered") }
    }

    /// Whether a page has a place.
    pub(crate) fn has_place(&self, page: PageId) -> bool {
        (page as usize) < MIRROR_BYTES / PAGE
    }

    fn place(&self, page: PageId) -> usize {
        self.mirror + page as usize * PAGE
    }

    /// Moves neighbouring pages, which have places in a row from that of `first` on, aside. How many; none if the first
    /// cannot be.
    ///
    /// # Safety
    /// They are in memory and managed, and their contents may be moved.
    pub(crate) unsafe fn take(&self, first: PageId, from: usize, pages: usize, moving: &Mover) -> usize {
        // SAFETY: promised by the caller; their places are empty.
        let moved = unsafe { moving.uffd().relocate(self.place(first), from, pages * PAGE) };
        if moved > 0 { moved as usize / PAGE } else { 0 }
    }

    /// Moves a page that is aside to an address without one.
    ///
    /// # Errors
    /// The kernel's number: nothing has changed.
    pub(crate) fn give_back(&self, page: PageId, to: usize, moving: &Mover) -> Result<(), isize> {
        let place = self.place(page);
        // SAFETY: the page was moved to this place, and is missing where it goes.
        if unsafe { moving.uffd().relocate(to, place, PAGE) } < 0 {
            // Shared since a fork, or its mapping has changed so that pages cannot be moved into it: copy.
            // SAFETY: the place holds a page.
            let copied = unsafe { moving.uffd().copy(to, place as *const u8, PAGE) };
            if copied < 0 && copied != EEXIST {
                return Err(copied);
            }
            self.discard(page);
        }
        Ok(())
    }

    /// The contents of a page that is aside are not wanted any more, or are elsewhere too.
    pub(crate) fn discard(&self, page: PageId) {
        // SAFETY: the place holds a page whose contents are not wanted.
        unsafe { sys::discard(self.place(page), PAGE) };
    }

    /// Whether touches of the page at an address are noted, where `noted` are noted already.
    fn is_noted(&self, address: usize, noted: usize) -> bool {
        let page = (address / PAGE) as u64;
        // Fibonacci hashing: the high bits of a product are scattered.
        let drawn = (page >> self.shift).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let has_room = self.shift == 0 || noted < MAX_NOTED;
        self.notes && has_room && (page ^ drawn) & ((1 << self.shift) - 1) == 0
    }

    /// A page was touched that was not there.
    pub(crate) fn note(&mut self, address: usize, write: bool) {
        if !self.is_noted(address, self.touched.len()) {
            return;
        }
        let page = address & !(PAGE - 1);
        // The page that was touched itself is among those that came with it.
        let came = |noted: &usize| noted & !(PAGE - 1) == page;
        if self.shift == 0 || !self.touched.iter().rev().take(MAX_ALONG).any(came) {
            self.touched.push(page | usize::from(write));
        }
    }

    /// A page is in memory that no thread has touched: the next look but few sets it aside.
    pub(crate) fn note_later(&mut self, address: usize) {
        if self.is_noted(address, self.stuck.len()) {
            self.stuck.push(address);
        }
    }

    /// Pages have come in along with one that was touched. In a sample they count as touched too, because a sequence of
    /// faults nearly always reaches them. Otherwise the touches would go unseen where pages do not stay until a look.
    pub(crate) fn came_along(&mut self, first: usize, pages: usize) {
        if self.notes && self.shift > 0 {
            (0..pages).for_each(|index| self.note(first + index * PAGE, false));
        }
    }

    /// Whether faults bring in what was touched, and nothing along with it.
    pub(crate) fn notes_all(&self) -> bool {
        self.notes && self.shift == 0
    }

    /// A look: appends what was touched since the last one, and returns the pages to set aside.
    pub(crate) fn begin_look(&mut self, touched: &mut Vec<usize>) -> Vec<usize> {
        self.looks += 1;
        let mut pages: Vec<usize> = self.touched.iter().map(|touch| touch & !(PAGE - 1)).collect();
        if self.looks.is_multiple_of(RETRY_EVERY) {
            pages.append(&mut self.stuck);
        }
        touched.append(&mut self.touched);
        pages
    }

    /// These pages of it could not be set aside.
    pub(crate) fn end_look(&mut self, stuck: impl Iterator<Item = usize>) {
        self.stuck.extend(stuck);
    }

    /// A page that was aside was touched, and served in this time.
    pub(crate) fn served(&mut self, nanoseconds: u64) {
        self.taken_back += 1;
        self.waited += nanoseconds;
    }

    /// Pages that were touched while they were aside, and the nanoseconds that this took.
    pub(crate) fn taken_back(&self) -> (u64, u64) {
        (self.taken_back, self.waited)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a list: every touch is told once, in order, and its page is set aside at the next look or the next
        /// retry.
        #[test]
        fn touches_are_told_in_order_and_their_pages_set_aside(
            looks in proptest::collection::vec(proptest::collection::vec((0usize..50, any::<bool>()), 0..20), 1..30)
        ) {
            let mut aside = Aside::at(0, true, 0);
            let mut waiting: Vec<usize> = Vec::new();
            for (number, touches) in looks.iter().enumerate() {
                for (page, write) in touches {
                    aside.note(page * PAGE + 17, *write);
                }
                let mut told = Vec::new();
                let pages = aside.begin_look(&mut told);
                let expected: Vec<usize> = touches.iter().map(|(page, write)| page * PAGE + usize::from(*write)).collect();
                prop_assert_eq!(told, expected);
                let mut due: Vec<usize> = touches.iter().map(|(page, _)| page * PAGE).collect();
                if (number as u64 + 1).is_multiple_of(RETRY_EVERY) {
                    due.append(&mut waiting);
                }
                prop_assert_eq!(&pages, &due);
                // Every third cannot go.
                let stuck: Vec<usize> = pages.into_iter().filter(|page| (page / PAGE).is_multiple_of(3)).collect();
                waiting.extend(&stuck);
                aside.end_look(stuck.into_iter());
            }
        }
    }

    #[test]
    fn a_sample_notes_one_of_each_group_of_neighbours() {
        let aside = Aside::at(0, true, 4);
        for group in 0..100 {
            let noted = (0..16).filter(|page| aside.is_noted((group * 16 + page) * PAGE, 0)).count();
            assert_eq!(noted, 1, "group {group}");
        }
        assert!((0..1600).all(|page| !aside.is_noted(page * PAGE, MAX_NOTED)), "there is no room for more");
        let off = Aside::at(0, false, 0);
        assert!(!off.notes_all() && !off.is_noted(0, 0));
    }
}
