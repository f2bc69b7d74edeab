//! Pages of managed memory and their states: the ranges that they lie in, what is known of each, and how many are in
//! memory.
//!
//! Invariants: [`Pages::in_memory`] is the number of entries that say so; a page that comes in is locked if its range
//! is; a call in progress holds addresses, whatever becomes of the pages there meanwhile. Nothing here calls the kernel
//! or knows of stores and policies. Cost: that of [`table`] and [`ranges`].

pub(crate) mod marks;
pub(crate) mod pagemap;
pub(crate) mod ranges;
pub(crate) mod table;

use std::collections::BTreeMap;

use refault_core::{PageId, Shadow};

use crate::PAGE;
use ranges::{Attributes, Ranges};
use table::{CHUNK_PAGES, Entry, State, Table};

/// Start, end and attributes of a range.
type Part = (usize, usize, Attributes);

/// See the module.
#[derive(Default)]
pub(crate) struct Pages {
    ranges: Ranges,
    table: Table,
    /// Some page was fixed so far.
    any_fixed: bool,
    /// Addresses that calls in progress hold and whose page is not resident: how many do.
    waited_for: BTreeMap<usize, u64>,
    /// Holds of resident pages.
    holds: u64,
}

impl Pages {
    /// The range that an address lies in.
    #[inline]
    pub(crate) fn range(&self, address: usize) -> Option<Part> {
        self.ranges.find(address)
    }

    /// That range or the next one.
    pub(crate) fn next_range(&self, address: usize) -> Option<Part> {
        self.ranges.from(address)
    }

    /// All ranges. A list, so that what is done with one may change others.
    pub(crate) fn ranges(&self) -> Vec<Part> {
        self.ranges.all().collect()
    }

    /// The parts of ranges between two addresses.
    pub(crate) fn parts(&self, start: usize, end: usize) -> Vec<Part> {
        self.ranges.within(start, end)
    }

    /// Whether any range lies between two addresses.
    pub(crate) fn any(&self, start: usize, end: usize) -> bool {
        self.ranges.any(start, end)
    }

    /// Marks that no range has.
    pub(crate) fn unused_marks(&self) -> Option<marks::Marks> {
        self.ranges.unused_marks()
    }

    /// The kernel may have marked a part of some range so.
    pub(crate) fn may_be_marked(&mut self, marks: marks::Marks) {
        self.ranges.may_be_marked(marks);
    }

    /// Adds a range.
    pub(crate) fn insert(&mut self, start: usize, end: usize, attributes: Attributes) {
        self.ranges.insert(start, end, attributes);
    }

    /// Takes all between two addresses out of the ranges. Returns what was there; pages are left as they are.
    pub(crate) fn remove(&mut self, start: usize, end: usize) -> Vec<Part> {
        self.ranges.remove(start, end)
    }

    /// Changes what is known of the ranges between two addresses.
    pub(crate) fn change(&mut self, start: usize, end: usize, change: impl Fn(&mut Attributes)) {
        self.ranges.change(start, end, change);
        if self.any_fixed {
            self.let_go(start, end);
        }
    }

    /// The rights of a resident page's range do not let it go: no policy is to choose it until they change.
    pub(crate) fn fix(&mut self, page: PageId) {
        self.table.fix(page, true);
        self.any_fixed = true;
    }

    /// Fixes no page any more of ranges between two addresses whose pages can go.
    fn let_go(&mut self, start: usize, end: usize) {
        for (from, to, attributes) in self.ranges.within(start, end) {
            let mut at = from;
            while attributes.can_be_evicted()
                && let Some((known, known_end)) = self.next_known(at, to)
            {
                for address in (known..known_end).step_by(PAGE) {
                    if let Some((page, entry)) = self.table.find(address)
                        && entry.state() == State::Resident
                        && entry.is_fixed()
                    {
                        self.table.fix(page, false);
                    }
                }
                at = known_end;
            }
        }
    }

    /// Bytes of all ranges.
    pub(crate) fn managed_bytes(&self) -> usize {
        self.ranges.bytes()
    }

    /// Bytes of those that are locked.
    #[inline]
    pub(crate) fn locked_bytes(&self) -> usize {
        self.ranges.locked_bytes()
    }

    /// Whether any is locked.
    pub(crate) fn any_locked(&self) -> bool {
        self.ranges.any_locked()
    }

    /// Whether rights could fill a range that is locked.
    pub(crate) fn any_unfilled(&self) -> bool {
        self.ranges.any_unfilled()
    }

    /// Whether the page at an address may be moved, as far as its range says.
    #[inline]
    pub(crate) fn can_be_moved(&self, address: usize) -> bool {
        self.range(address).is_some_and(|(.., attributes)| attributes.can_be_moved())
    }

    /// Whether the range of an address was never written to, as far as is known.
    #[inline]
    pub(crate) fn was_never_written(&self, address: usize) -> bool {
        self.range(address).is_some_and(|(.., attributes)| !attributes.written)
    }

    /// What a policy sees.
    #[inline]
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The page at an address: its id and what is known of it. `None`: it never had contents.
    #[inline]
    pub(crate) fn find(&self, address: usize) -> Option<(PageId, Entry)> {
        self.table.find(address)
    }

    /// Where the contents of the page at an address are.
    #[inline]
    pub(crate) fn state(&self, address: usize) -> State {
        self.table.state(address)
    }

    /// What is known of a page.
    #[inline]
    pub(crate) fn entry(&self, page: PageId) -> Entry {
        self.table.entry(page)
    }

    /// The address of a page.
    #[inline]
    pub(crate) fn address(&self, page: PageId) -> usize {
        self.table.address(page)
    }

    /// The id of the page at an address, and how many ids there are if there are more than before.
    #[inline]
    pub(crate) fn make(&mut self, address: usize) -> (PageId, Option<usize>) {
        self.table.make(address)
    }

    /// Puts a page into a state, with what the policy left.
    #[inline]
    pub(crate) fn set(&mut self, page: PageId, state: State, shadow: Shadow) {
        self.leave_holds(page);
        self.table.set(page, state, shadow);
    }

    /// A page is about to lose what is known of it: what calls in progress hold is its address.
    #[inline]
    fn leave_holds(&mut self, page: PageId) {
        let entry = self.table.entry(page);
        if entry.state() == State::Resident && entry.holds() > 0 {
            *self.waited_for.entry(self.table.address(page)).or_default() += entry.holds();
            self.holds -= entry.holds();
        }
    }

    /// The resident pages between two addresses that calls in progress hold.
    pub(crate) fn held(&self, start: usize, end: usize) -> Vec<usize> {
        let mut held = Vec::new();
        let mut at = start;
        while self.holds > 0
            && let Some((known, known_end)) = self.next_known(at, end)
        {
            let is_held = |address: &usize| {
                let page = self.table.find(*address);
                page.is_some_and(|(_, entry)| entry.state() == State::Resident && entry.holds() > 0)
            };
            held.extend((known..known_end).step_by(PAGE).filter(is_held));
            at = known_end;
        }
        held
    }

    /// Addresses between two that calls in progress hold and that have no resident page.
    #[inline]
    pub(crate) fn waited_for(&self, start: usize, end: usize) -> Vec<usize> {
        if self.waited_for.is_empty() {
            return Vec::new();
        }
        self.waited_for.range(start..end).map(|(address, _)| *address).collect()
    }

    /// The calls that hold anything are another process's: this is a forked child.
    pub(crate) fn wait_for_nothing(&mut self) {
        self.waited_for.clear();
    }

    /// A page is where it belongs now, and stays there if its range is locked.
    #[inline]
    pub(crate) fn came_in(&mut self, page: PageId) {
        self.set(page, State::Resident, Shadow::NONE);
        if self.ranges.any_locked() {
            let range = self.ranges.find(self.table.address(page));
            self.table.lock(page, range.is_some_and(|(.., attributes)| attributes.locked));
        }
        if !self.waited_for.is_empty()
            && let Some(calls) = self.waited_for.remove(&self.table.address(page))
        {
            self.hold(page, calls as i64);
        }
    }

    /// Pages in memory, aside or not.
    #[inline]
    pub(crate) fn in_memory(&self) -> usize {
        self.table.in_memory()
    }

    /// Guards a resident page against writing, or does so no longer.
    pub(crate) fn guard(&mut self, page: PageId, on: bool) {
        self.table.guard(page, on);
    }

    /// Changes how many calls in progress need a resident page where it is.
    #[inline]
    pub(crate) fn hold(&mut self, page: PageId, by: i64) {
        self.table.hold(page, by);
        self.holds = self.holds.wrapping_add_signed(by);
    }

    /// A call in progress holds a page that stays out until its rights allow to touch it.
    pub(crate) fn wait_for(&mut self, address: usize) {
        *self.waited_for.entry(address).or_default() += 1;
    }

    /// Keeps a resident page where it is for as long as it has contents.
    pub(crate) fn keep(&mut self, page: PageId) {
        self.table.keep(page);
    }

    /// Ends one such need of an address, if there is any.
    pub(crate) fn release(&mut self, address: usize) {
        if let Some((page, entry)) = self.table.find(address)
            && entry.state() == State::Resident
            && entry.holds() > 0
        {
            self.hold(page, -1);
        } else if let Some(calls) = self.waited_for.get_mut(&address) {
            *calls -= 1;
            if *calls == 0 {
                self.waited_for.remove(&address);
            }
        }
    }

    /// Locks what is resident between two addresses of ranges where it is, or does so no longer.
    pub(crate) fn lock(&mut self, start: usize, end: usize, locked: bool) {
        for (from, to, _) in self.ranges.within(start, end) {
            for address in (from..to).step_by(PAGE) {
                if let Some((page, entry)) = self.table.find(address)
                    && entry.state() == State::Resident
                {
                    self.table.lock(page, locked);
                }
            }
        }
    }

    /// The next piece between two addresses of which something is known, not longer than a chunk: start and end.
    #[inline]
    pub(crate) fn next_known(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let known = self.table.next_known(start, end)?;
        Some((known, (known + 1).next_multiple_of(CHUNK_PAGES * PAGE).min(end)))
    }

    /// Forgets the chunk at an address if none of its pages has contents.
    pub(crate) fn drop_if_empty(&mut self, address: usize) {
        self.table.drop_if_empty(address);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use refault_store::Slot;

    use super::*;

    /// Pages of the model's addresses, over several chunks.
    const PAGES: usize = 3 * CHUNK_PAGES;

    /// What happens to a page, or to a range.
    #[derive(Clone, Debug)]
    enum Event {
        Manage { first: usize, pages: usize, locked: bool },
        Remove { first: usize, pages: usize },
        Lock { first: usize, pages: usize, locked: bool },
        ComeIn(usize),
        Put(usize, u8),
        Hold(usize),
        Release(usize),
        Forget(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        let page = 0..PAGES;
        let run = (0..PAGES, 1..PAGES);
        prop_oneof![
            1 => (run.clone(), any::<bool>()).prop_map(|((first, pages), locked)| Event::Manage { first, pages, locked }),
            1 => run.clone().prop_map(|(first, pages)| Event::Remove { first, pages }),
            1 => (run, any::<bool>()).prop_map(|((first, pages), locked)| Event::Lock { first, pages, locked }),
            4 => page.clone().prop_map(Event::ComeIn),
            4 => (page.clone(), 0..4u8).prop_map(|(page, state)| Event::Put(page, state)),
            2 => page.clone().prop_map(Event::Hold),
            2 => page.clone().prop_map(Event::Release),
            1 => page.prop_map(Event::Forget),
        ]
    }

    /// A page of the slow model.
    #[derive(Clone, Copy)]
    struct Slow {
        state: State,
        locked: bool,
    }

    #[test]
    fn a_page_is_fixed_until_its_rights_change() {
        let at = 7 * CHUNK_PAGES * PAGE;
        let mut pages = Pages::default();
        pages.insert(at, at + 2 * PAGE, Attributes { protection: 1, ..Attributes::default() });
        let ids = [at, at + PAGE].map(|address| pages.make(address).0);
        for id in ids {
            pages.came_in(id);
            pages.fix(id);
            pages.hold(id, 1);
        }
        let of = |pages: &Pages, id| {
            let entry = pages.entry(id);
            (entry.must_stay(), entry.is_fixed(), entry.is_held(), entry.holds())
        };
        assert_eq!(of(&pages, ids[0]), (true, true, true, 1));
        pages.release(at);
        assert_eq!(of(&pages, ids[0]), (true, true, false, 0));
        pages.lock(at, at + PAGE, true);
        pages.lock(at, at + PAGE, false);
        assert!(pages.entry(ids[0]).must_stay(), "its rights are what they were");
        pages.change(at, at + PAGE, |attributes| attributes.protect(3));
        assert_eq!(of(&pages, ids[0]), (false, false, false, 0));
        assert_eq!(of(&pages, ids[1]), (true, true, true, 1), "the other's rights did not change");
    }

    proptest! {
        /// Beside a map of pages and a list of the range of each page.
        #[test]
        fn states_counts_and_locks_are_those_of_a_map(events in proptest::collection::vec(event(), 1..200)) {
            let at = |page: usize| 7 * CHUNK_PAGES * PAGE + page * PAGE;
            let mut pages = Pages::default();
            let mut model: BTreeMap<usize, Slow> = BTreeMap::new();
            // Calls that hold an address, whatever is there.
            let mut calls = vec![0u64; PAGES];
            let mut locked_ranges: Vec<Option<bool>> = vec![None; PAGES];
            for event in events {
                match event {
                    Event::Manage { first, pages: many, locked } => {
                        let last = (first + many).min(PAGES);
                        pages.remove(at(first), at(last));
                        let mut attributes = Attributes { protection: Attributes::READ_WRITE, ..Attributes::default() };
                        attributes.lock(locked);
                        pages.insert(at(first), at(last), attributes);
                        locked_ranges[first..last].fill(Some(locked));
                    }
                    Event::Remove { first, pages: many } => {
                        let last = (first + many).min(PAGES);
                        pages.remove(at(first), at(last));
                        locked_ranges[first..last].fill(None);
                    }
                    Event::Lock { first, pages: many, locked } => {
                        let last = (first + many).min(PAGES);
                        pages.change(at(first), at(last), |attributes| attributes.lock(locked));
                        pages.lock(at(first), at(last), locked);
                        for (page, range) in locked_ranges.iter_mut().enumerate().take(last).skip(first) {
                            if let Some(range) = range {
                                *range = locked;
                                if let Some(slow) = model.get_mut(&page).filter(|it| it.state == State::Resident) {
                                    slow.locked = locked;
                                }
                            }
                        }
                    }
                    Event::ComeIn(page) => {
                        let (id, _) = pages.make(at(page));
                        pages.came_in(id);
                        let locked = locked_ranges[page] == Some(true);
                        model.insert(page, Slow { state: State::Resident, locked });
                    }
                    Event::Put(page, state) => {
                        let (id, _) = pages.make(at(page));
                        let state = match state {
                            0 => State::Untouched,
                            1 => State::SetAside,
                            2 => State::Parked(page as u32),
                            _ => State::Stored(Slot::from_bits(page as u64)),
                        };
                        pages.set(id, state, Shadow::NONE);
                        model.insert(page, Slow { state, locked: false });
                    }
                    Event::Hold(page) => {
                        calls[page] += 1;
                        if model.get(&page).is_some_and(|slow| slow.state == State::Resident) {
                            let (id, _) = pages.find(at(page)).expect("the model has it");
                            pages.hold(id, 1);
                        } else {
                            pages.wait_for(at(page));
                        }
                    }
                    Event::Release(page) => {
                        pages.release(at(page));
                        calls[page] = calls[page].saturating_sub(1);
                    }
                    Event::Forget(page) => pages.drop_if_empty(at(page)),
                }
                let in_memory = |slow: &&Slow| matches!(slow.state, State::Resident | State::SetAside);
                prop_assert_eq!(pages.in_memory(), model.values().filter(in_memory).count());
                let locked = locked_ranges.iter().filter(|range| **range == Some(true)).count();
                prop_assert_eq!(pages.locked_bytes(), locked * PAGE);
                let managed = locked_ranges.iter().filter(|range| range.is_some()).count();
                prop_assert_eq!(pages.managed_bytes(), managed * PAGE);
            }
            for (page, range) in locked_ranges.iter().enumerate() {
                let slow = model.get(&page).copied();
                prop_assert_eq!(pages.state(at(page)), slow.map_or(State::Untouched, |slow| slow.state));
                prop_assert_eq!(pages.range(at(page)).is_some(), range.is_some());
                if let Some(slow) = slow.filter(|slow| slow.state == State::Resident) {
                    let (id, entry) = pages.find(at(page)).expect("the model has it");
                    prop_assert_eq!((pages.address(id), entry.holds()), (at(page), calls[page]));
                    prop_assert_eq!(entry.is_held(), calls[page] > 0 || slow.locked);
                }
            }
            let is_resident = |page: &usize| model.get(page).is_some_and(|slow| slow.state == State::Resident);
            let waited_for: Vec<_> = (0..PAGES).filter(|page| calls[*page] > 0 && !is_resident(page)).map(at).collect();
            prop_assert_eq!(pages.waited_for(at(0), at(PAGES)), waited_for);
            let held: Vec<_> = (0..PAGES).filter(|page| calls[*page] > 0 && is_resident(page)).map(at).collect();
            prop_assert_eq!(pages.held(at(0), at(PAGES)), held);
            // What is known is found in pieces that lie in order and hold every page with contents.
            let (mut from, mut found) = (0, Vec::new());
            while let Some((start, end)) = pages.next_known(from, at(PAGES)) {
                prop_assert!(start >= from && end > start && end - start <= CHUNK_PAGES * PAGE);
                found.extend((start..end).step_by(PAGE));
                from = end;
            }
            for (page, _) in model.iter().filter(|(_, slow)| slow.state != State::Untouched) {
                prop_assert!(found.contains(&at(*page)));
            }
        }
    }
}
