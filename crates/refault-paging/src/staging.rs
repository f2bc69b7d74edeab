//! The staging area: where pages wait that the policy has given up and that are not stored yet.
//!
//! A page is *parked* by moving it here, whole and at once (`UFFDIO_MOVE`): whoever touches it meanwhile faults, and it
//! is moved back. What is still here when its turn comes was not touched: it is stored. So the area is the accessed bit
//! of the pages at the eviction end, and a page is compressed while nobody can write to it.
//!
//! Invariants: places are used in a ring, first in, first out; a place holds one page or none. Cost: 8 bytes a place.

use crate::PAGE;
use crate::sys;

/// Beside an address, which is that of a page.
const SHARED: usize = 1;

/// See the module.
pub struct Staging {
    base: usize,
    /// Addresses whose pages are here, with [`SHARED`] if a fork has shared the page; 0: none.
    owners: Vec<usize>,
    /// Places ever given out, and ever taken back.
    head: usize,
    tail: usize,
    live: usize,
}

impl Staging {
    /// An area of so many pages; `None` if there are no addresses for it.
    pub fn new(places: usize) -> Option<Staging> {
        let base = sys::map(places * PAGE);
        (base != 0).then(|| Staging { base, owners: vec![0; places], head: 0, tail: 0, live: 0 })
    }

    /// Start and bytes of the area.
    pub fn range(&self) -> (usize, usize) {
        (self.base, self.owners.len() * PAGE)
    }

    /// Pages parked.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Neighbouring places that can be filled now, at most `wanted`: the first, and how many.
    pub fn room(&self, wanted: usize) -> (u32, usize) {
        let at = self.head % self.owners.len();
        let free = self.owners.len() - (self.head - self.tail);
        (at as u32, wanted.min(free).min(self.owners.len() - at))
    }

    /// The address of a place.
    pub fn address(&self, place: u32) -> usize {
        self.base + place as usize * PAGE
    }

    /// The next place now holds the page of this address.
    pub fn fill(&mut self, owner: usize) -> u32 {
        let place = self.head % self.owners.len();
        self.owners[place] = owner;
        self.head += 1;
        self.live += 1;
        place as u32
    }

    /// A place was emptied by moving its page away, or its page is not wanted any more. Returns whether it was shared.
    pub fn leave(&mut self, place: u32) -> bool {
        let owner = core::mem::replace(&mut self.owners[place as usize], 0);
        debug_assert_ne!(owner, 0);
        self.live -= 1;
        owner & SHARED != 0
    }

    /// A fork shares all pages that are here.
    pub fn share(&mut self) {
        let places = self.owners.len();
        for place in (self.tail..self.head).map(|index| index % places) {
            self.owners[place] |= if self.owners[place] == 0 { 0 } else { SHARED };
        }
    }

    /// A place holds the page of another address from now on.
    pub fn reown(&mut self, place: u32, owner: usize) {
        let shared = self.owners[place as usize] & SHARED;
        self.owners[place as usize] = owner | shared;
    }

    /// The oldest places, neighbours, at most `most`: the first and how many.
    pub fn oldest(&self, most: usize) -> (u32, usize) {
        let at = self.tail % self.owners.len();
        (at as u32, most.min(self.head - self.tail).min(self.owners.len() - at))
    }

    /// Whose page a place holds; 0: none.
    pub fn owner(&self, place: u32) -> usize {
        self.owners[place as usize] & !SHARED
    }

    /// The oldest `places` are empty now and may be used again.
    pub fn take_back(&mut self, places: usize) {
        let at = self.tail % self.owners.len();
        debug_assert!(self.owners[at..at + places].iter().all(|owner| *owner == 0));
        self.tail += places;
    }
}
