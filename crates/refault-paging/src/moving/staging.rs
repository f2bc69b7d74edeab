//! The staging area: where pages wait that the policy has given up and that are not stored yet.
//!
//! A page is *parked* by moving it here, whole and at once (`UFFDIO_MOVE`). A thread that touches it meanwhile faults,
//! and it is moved back. What is still here when its turn comes was not touched: it is stored. So the area is the
//! accessed bit of the pages at the eviction end. No thread can write to a page while it is compressed.
//!
//! A page that was copied back instead leaves a *husk*. Its memory is freed with the places around it, or with all
//! other husks once they are many. A place whose page was stored may keep its memory as a *spare* page. The next page
//! that is read back is filled into that memory, and moved away with it. So the kernel need not free a page and find
//! another.
//!
//! Invariants: places are used in a ring, first in, first out; a place holds one page, a husk, spare memory or nothing.
//! Cost: 8 bytes per place.

use refault_store::noted;

use crate::PAGE;
use refault_linux::sys;

/// Beside an address, which is that of a page.
const IS_SHARED: usize = 1;
/// Beside an address: others have a page with these contents still.
const HELD_BY_OTHERS: usize = 4;
/// In place of an address: no page owns what is here.
const HUSK: usize = 2;

/// In place of an address: memory that the next page may be read into.
const SPARE: usize = 8;

/// Entries of the list of husks that are not worth looking through.
const MIN_TIDIED: usize = 256;

/// See the module.
pub struct Staging {
    base: usize,
    /// Addresses whose pages are here, with [`IS_SHARED`] if a fork has shared the page; [`HUSK`]; [`SPARE`]; 0:
    /// nothing.
    owners: Vec<usize>,
    /// Places ever given out, and ever emptied.
    head: usize,
    tail: usize,
    /// Places ever taken back: from here to `tail` are spare ones and such that have no memory.
    gone: usize,
    /// Places that are spare.
    spares: Vec<u32>,
    live: usize,
    husks: usize,
    /// Places that were left as husks, all that are among them.
    husk_places: Vec<u32>,
}

impl Staging {
    /// An area of `places` pages; `None` if there are no addresses for it.
    pub fn new(places: usize) -> Option<Staging> {
        let base = sys::map(places * PAGE);
        if base != 0 {
            noted::note(base, places * PAGE);
        }
        (base != 0).then(|| Staging {
            base,
            owners: vec![0; places],
            head: 0,
            tail: 0,
            gone: 0,
            spares: Vec::new(),
            live: 0,
            husks: 0,
            husk_places: Vec::new(),
        })
    }

    /// Start and bytes of the area.
    pub fn range(&self) -> (usize, usize) {
        (self.base, self.owners.len() * PAGE)
    }

    /// Pages parked.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Pages of memory here: of what is parked, husks, and spare ones.
    pub fn occupied(&self) -> usize {
        self.live + self.husks + self.spares.len()
    }

    /// Spare places.
    #[cfg(test)]
    pub fn spares(&self) -> usize {
        self.spares.len()
    }

    /// A place whose memory a page may be read into, if there is one.
    pub fn spare(&self) -> Option<u32> {
        self.spares.last().copied()
    }

    /// A spare place was emptied by moving its memory away.
    pub fn spend(&mut self, place: u32) {
        debug_assert_eq!((self.spares.last(), self.owners[place as usize]), (Some(&place), SPARE));
        self.spares.pop();
        self.owners[place as usize] = 0;
        if self.spares.is_empty() {
            self.gone = self.tail;
        }
    }

    /// Gives the memory of all spare places back. Returns how many there were.
    pub fn drop_spares(&mut self) -> usize {
        let places = self.owners.len();
        while self.gone < self.tail {
            let at = self.gone % places;
            let many = (self.tail - self.gone).min(places - at);
            // SAFETY: these places hold no page.
            unsafe { sys::discard(self.address(at as u32), many * PAGE) };
            self.owners[at..at + many].fill(0);
            self.gone += many;
        }
        let dropped = self.spares.len();
        self.spares.clear();
        dropped
    }

    /// Husks among them.
    pub fn husks(&self) -> usize {
        self.husks
    }

    /// Gives the memory of all husks back. Cost: some 300 ns per run of husks.
    pub fn drop_husks(&mut self) {
        const AT_ONCE: usize = 64;
        self.tidy_husks();
        let mut runs = [sys::Range::default(); AT_ONCE];
        let mut many = 0;
        for place in self.husk_places.drain(..) {
            self.owners[place as usize] = 0;
            let start = self.base + place as usize * PAGE;
            if many > 0 && runs[many - 1].start + runs[many - 1].bytes == start {
                runs[many - 1].bytes += PAGE;
                continue;
            }
            if many == AT_ONCE {
                // SAFETY: what was here is copied away, and no page owns it.
                unsafe { sys::discard_all(&runs) };
                many = 0;
            }
            runs[many] = sys::Range { start, bytes: PAGE };
            many += 1;
        }
        self.husks = 0;
        if many > 0 {
            // SAFETY: as above.
            unsafe { sys::discard_all(&runs[..many]) };
        }
    }

    /// The places of husks in order, each once.
    fn tidy_husks(&mut self) {
        let owners = &self.owners;
        self.husk_places.retain(|place| owners[*place as usize] == HUSK);
        self.husk_places.sort_unstable();
        self.husk_places.dedup();
    }

    /// Neighbouring places that can be filled now, at most `wanted`: the first, and how many.
    pub fn room(&self, wanted: usize) -> (u32, usize) {
        let at = self.head % self.owners.len();
        let free = self.owners.len() - (self.head - self.gone);
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

    /// The page of a place is a copy of one that others have still.
    pub fn note_held_by_others(&mut self, place: u32) {
        self.owners[place as usize] |= HELD_BY_OTHERS;
    }

    /// Whether others had the page of a place when it came here.
    pub fn is_held_by_others(&self, place: u32) -> bool {
        self.owners[place as usize] & HELD_BY_OTHERS != 0
    }

    /// A place was emptied by moving its page away, or its page is not wanted any more. Returns whether it was shared.
    pub fn leave(&mut self, place: u32) -> bool {
        let owner = core::mem::replace(&mut self.owners[place as usize], 0);
        debug_assert_ne!(owner, 0);
        self.live -= 1;
        owner & IS_SHARED != 0
    }

    /// A place's page was copied back: a husk is left. Returns whether the page was shared.
    pub fn leave_husk(&mut self, place: u32) -> bool {
        let shared = self.leave(place);
        self.owners[place as usize] = HUSK;
        self.husks += 1;
        // Places that were taken back with those around them are no husks any more.
        if self.husk_places.len() > 2 * self.husks + MIN_TIDIED {
            self.tidy_husks();
        }
        self.husk_places.push(place);
        shared
    }

    /// A fork shares all pages that are here.
    pub fn share(&mut self) {
        let places = self.owners.len();
        debug_assert!(self.spares.is_empty(), "a fork shares no memory without a page");
        for place in (self.tail..self.head).map(|index| index % places) {
            self.owners[place] |= if matches!(self.owners[place], 0 | HUSK) { 0 } else { IS_SHARED };
        }
    }

    /// A place holds the page of another address from now on.
    pub fn reown(&mut self, place: u32, owner: usize) {
        let shared = self.owners[place as usize] & IS_SHARED;
        self.owners[place as usize] = owner | shared;
    }

    /// The oldest places, neighbours, at most `most`: the first and how many.
    pub fn oldest(&self, most: usize) -> (u32, usize) {
        let at = self.tail % self.owners.len();
        (at as u32, most.min(self.head - self.tail).min(self.owners.len() - at))
    }

    /// The address of the page that a place holds; 0: none.
    pub fn owner(&self, place: u32) -> usize {
        self.owners[place as usize] & !(IS_SHARED | HUSK | HELD_BY_OTHERS | SPARE)
    }

    /// A place's page was stored: its memory may be used for another. Returns whether the page was shared.
    pub fn leave_spare(&mut self, place: u32) -> bool {
        let shared = self.leave(place);
        self.owners[place as usize] = SPARE;
        shared
    }

    /// The oldest `places` have no page any more. Their memory is given back, or (`keep`) is spare from now on as far
    /// as there is any. Returns the pages of memory that no page needs any more.
    pub fn take_back(&mut self, places: usize, keep: bool) -> usize {
        let at = self.tail % self.owners.len();
        let mut unused = 0;
        for place in at..at + places {
            let owner = self.owners[place];
            debug_assert!(matches!(owner, 0 | HUSK | SPARE));
            self.husks -= usize::from(owner == HUSK);
            if owner != 0 {
                unused += 1;
                self.owners[place] = SPARE;
                self.spares.push(place as u32);
            }
        }
        self.tail += places;
        if !keep || self.spares.is_empty() {
            self.drop_spares();
        }
        unused
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens to the area.
    #[derive(Clone, Debug)]
    enum Event {
        Fill,
        /// The page at this place of those that wait leaves so.
        Leave(usize, Left),
        TakeBack(usize, bool),
        Share,
        Spend,
        DropSpares,
        DropHusks,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Left {
        Moved,
        Copied,
        Stored,
    }

    fn event() -> impl Strategy<Value = Event> {
        let left = proptest::sample::select(vec![Left::Moved, Left::Copied, Left::Stored]);
        prop_oneof![
            6 => Just(Event::Fill),
            4 => (any::<usize>(), left).prop_map(|(at, left)| Event::Leave(at, left)),
            2 => (1..8usize, any::<bool>()).prop_map(|(places, keep)| Event::TakeBack(places, keep)),
            1 => Just(Event::Share),
            2 => Just(Event::Spend),
            1 => Just(Event::DropSpares),
            1 => Just(Event::DropHusks),
        ]
    }

    /// A place of the slow model.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Slow {
        Page { owner: usize, shared: bool },
        Husk,
        Stored,
        Empty,
    }

    proptest! {
        /// Beside a list of all that ever came, in order, of which the first were taken back.
        #[test]
        fn places_are_those_of_a_list_that_never_ends(
            places in 2..12usize, events in proptest::collection::vec(event(), 1..200)
        ) {
            let mut staging = Staging::new(places).expect("addresses");
            let mut list: Vec<Slow> = Vec::new();
            // Taken back so far, of them without memory for certain, and those that are spare.
            let (mut taken, mut gone, mut spares) = (0, 0, Vec::<usize>::new());
            for event in events {
                match event {
                    Event::Fill => {
                        if staging.room(1).1 == 1 {
                            let owner = (list.len() + 1) * PAGE;
                            prop_assert_eq!(staging.fill(owner) as usize, list.len() % places);
                            list.push(Slow::Page { owner, shared: false });
                        }
                    }
                    Event::Leave(at, left) => {
                        let waiting: Vec<usize> =
                            (taken..list.len()).filter(|at| matches!(list[*at], Slow::Page { .. })).collect();
                        if waiting.is_empty() {
                            continue;
                        }
                        let at = waiting[at % waiting.len()];
                        let place = (at % places) as u32;
                        let was = match left {
                            Left::Moved => staging.leave(place),
                            Left::Copied => staging.leave_husk(place),
                            Left::Stored => staging.leave_spare(place),
                        };
                        let Slow::Page { shared, .. } = list[at] else { unreachable!("it is one that waits") };
                        prop_assert_eq!(was, shared);
                        list[at] = match left {
                            Left::Moved => Slow::Empty,
                            Left::Copied => Slow::Husk,
                            Left::Stored => Slow::Stored,
                        };
                    }
                    Event::TakeBack(most, keep) => {
                        let (first, oldest) = staging.oldest(most);
                        prop_assert_eq!(first as usize, taken % places);
                        prop_assert_eq!(oldest, most.min(list.len() - taken).min(places - taken % places));
                        let many = list[taken..taken + oldest].iter().take_while(|it| !matches!(it, Slow::Page { .. })).count();
                        if many == 0 {
                            continue;
                        }
                        let with_memory: Vec<usize> = (taken..taken + many).filter(|at| list[*at] != Slow::Empty).collect();
                        prop_assert_eq!(staging.take_back(many, keep), with_memory.len());
                        spares.extend(with_memory);
                        taken += many;
                        if !keep || spares.is_empty() {
                            (gone, spares) = (taken, Vec::new());
                        }
                    }
                    // What is stored is taken back before anything else happens.
                    Event::Share if list[taken..].contains(&Slow::Stored) => {}
                    Event::Share => {
                        // A fork shares no memory that is no page's.
                        (gone, spares) = (taken, Vec::new());
                        staging.drop_spares();
                        staging.share();
                        for slow in &mut list[taken..] {
                            if let Slow::Page { shared, .. } = slow {
                                *shared = true;
                            }
                        }
                    }
                    Event::Spend => {
                        prop_assert_eq!(staging.spare().map(|place| place as usize), spares.last().map(|at| at % places));
                        if let Some(place) = staging.spare() {
                            staging.spend(place);
                            spares.pop();
                            if spares.is_empty() {
                                gone = taken;
                            }
                        }
                    }
                    Event::DropSpares => {
                        prop_assert_eq!(staging.drop_spares(), spares.len());
                        (gone, spares) = (taken, Vec::new());
                    }
                    Event::DropHusks => {
                        staging.drop_husks();
                        for slow in &mut list[taken..] {
                            if *slow == Slow::Husk {
                                *slow = Slow::Empty;
                            }
                        }
                    }
                }
                let waiting = &list[taken..];
                let live = waiting.iter().filter(|it| matches!(it, Slow::Page { .. })).count();
                let husks = waiting.iter().filter(|it| **it == Slow::Husk).count();
                prop_assert_eq!((staging.live(), staging.husks()), (live, husks));
                prop_assert_eq!(staging.occupied(), live + husks + spares.len());
                let free = places - (list.len() - gone);
                prop_assert_eq!(staging.room(places).1, free.min(places - list.len() % places));
                for (index, slow) in waiting.iter().enumerate() {
                    let owner = if let Slow::Page { owner, .. } = slow { *owner } else { 0 };
                    prop_assert_eq!(staging.owner(((taken + index) % places) as u32), owner);
                }
            }
        }
    }

    #[test]
    fn a_husk_is_memory_until_its_place_is_taken_back() {
        let mut staging = Staging::new(4).expect("addresses");
        let places = [1, 2, 3].map(|page| staging.fill(page * PAGE));
        staging.share();
        assert!(staging.leave_husk(places[1]));
        assert!(staging.leave(places[0]));
        assert_eq!((staging.live(), staging.occupied()), (1, 2));
        // Neither place has an owner, and a later fork shares neither.
        staging.share();
        assert_eq!(places.map(|place| staging.owner(place)), [0, 0, 3 * PAGE]);
        assert_eq!(staging.take_back(2, false), 1);
        assert_eq!((staging.live(), staging.occupied()), (1, 1));
        assert_eq!(staging.room(4), (3, 1));
        assert_eq!(staging.oldest(4), (2, 1));
        staging.leave_husk(places[2]);
        staging.drop_husks();
        assert_eq!((staging.occupied(), staging.take_back(1, false)), (0, 0));
    }

    #[test]
    fn what_is_stored_leaves_spare_memory_until_it_is_spent_or_dropped() {
        let mut staging = Staging::new(4).expect("addresses");
        let mut places = [1, 2, 3].map(|page| staging.fill(page * PAGE));
        // The second was moved back, so it has no memory.
        staging.leave_spare(places[0]);
        staging.leave(places[1]);
        staging.leave_spare(places[2]);
        assert_eq!(staging.take_back(3, true), 2);
        assert_eq!((staging.live(), staging.occupied(), staging.owner(places[0])), (0, 2, 0));
        // Their places are not free, nor are those between.
        assert_eq!(staging.room(4), (3, 1));
        staging.spend(staging.spare().expect("one"));
        assert_eq!((staging.occupied(), staging.room(4)), (1, (3, 1)));
        staging.spend(staging.spare().expect("one"));
        assert_eq!((staging.occupied(), staging.spare()), (0, None));
        // The ring goes on where it was, around its end.
        places = [4, 5, 6].map(|page| staging.fill(page * PAGE));
        assert_eq!(places, [3, 0, 1]);
        for place in places {
            assert!(!staging.leave_spare(place));
        }
        assert_eq!((staging.take_back(1, true), staging.take_back(2, true), staging.occupied()), (1, 2, 3));
        assert_eq!((staging.drop_spares(), staging.occupied(), staging.room(4)), (3, 0, (2, 2)));
        // Nothing is spare of places that have no memory.
        let place = staging.fill(7 * PAGE);
        staging.leave(place);
        assert_eq!((staging.take_back(1, true), staging.room(4)), (0, (3, 1)));
    }

    #[test]
    fn husks_give_their_memory_back_and_pages_keep_theirs() {
        let mut staging = Staging::new(200).expect("addresses");
        let places: Vec<u32> = (1..=200).map(|page| staging.fill(page * PAGE)).collect();
        // SAFETY: the area is mapped, writable, and used by this test alone.
        places.iter().for_each(|place| unsafe { *(staging.address(*place) as *mut u8) = 7 });
        // More runs than are dropped at once.
        let goes = |place: &&u32| !place.is_multiple_of(3);
        let addresses: Vec<usize> = places.iter().map(|place| staging.address(*place)).collect();
        for place in places.iter().filter(goes) {
            staging.leave_husk(*place);
        }
        staging.drop_husks();
        assert_eq!((staging.husks(), staging.live()), (0, 67));
        for (place, address) in places.iter().zip(addresses) {
            // SAFETY: as above.
            let byte = unsafe { *(address as *const u8) };
            assert_eq!(byte, if goes(&place) { 0 } else { 7 }, "place {place}");
        }
    }
}
