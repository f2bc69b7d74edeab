//! What is known of each page of managed memory, found by its address.
//!
//! Memory is known in chunks of 256 KiB, made when one of its pages is first touched and given back when none has
//! contents. A chunk's number and a page's place in it make the page's id for the policy, so ids are dense although
//! addresses are not: runtimes spread their heaps in pieces of this size over gigabytes, and what a policy keeps of
//! each id is memory too.
//!
//! Invariants: a chunk lives as long as one of its entries says that the page has contents; entries of addresses
//! without a chunk are [`State::Untouched`]. Cost: four loads per look-up; 16 bytes per page of touched chunks, 4 KiB
//! per 256 MiB of addresses with any.

use refault_core::{PageId, Shadow};
use refault_store::Slot;

use crate::PAGE;

/// Pages of a chunk.
pub const CHUNK_PAGES: usize = 64;
const CHUNK_BYTES: usize = CHUNK_PAGES * PAGE;
/// Chunks below one node of the second level (256 MiB of addresses), and such nodes below one of the first (256 GiB).
const FANOUT: usize = 1 << 10;
/// Nodes of the first level: programs have 47 bits of addresses.
const ROOTS: usize = 1 << (47 - 18 - 20);

/// Numbers of chunks, and 0 for those that are not there.
type Leaf = [u32; FANOUT];
type Node = [Option<Box<Leaf>>; FANOUT];

/// Where the contents of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It never had any, or gave them up: zeros.
    Untouched,
    /// In memory, where it belongs.
    Resident,
    /// In memory, in this page of the staging area.
    Parked(u32),
    /// In memory, in its place of the mirror.
    SetAside,
    /// In a store.
    Stored(Slot),
}

/// What is known of a page. A resident page has holds instead of a shadow.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    word: u64,
    extra: u64,
}

impl Entry {
    const EMPTY: Entry = Entry { word: 0, extra: 0 };

    /// Where its contents are.
    pub fn state(self) -> State {
        match self.word & 7 {
            0 => State::Untouched,
            1 => State::Resident,
            2 => State::Parked((self.word >> 3) as u32),
            4 => State::SetAside,
            _ => State::Stored(Slot::from_bits(self.word >> 3)),
        }
    }

    fn has_contents(self) -> bool {
        self.word & 7 != 0
    }

    /// Whether it is in memory and the policy's, where it belongs or aside.
    fn is_in_memory(self) -> bool {
        matches!(self.word & 7, 1 | 4)
    }

    fn word(state: State) -> u64 {
        match state {
            State::Untouched => 0,
            State::Resident => 1,
            State::Parked(place) => 2 | u64::from(place) << 3,
            State::Stored(slot) => 3 | slot.bits() << 3,
            State::SetAside => 4,
        }
    }

    /// What the policy left with a page that is not resident.
    pub fn shadow(self) -> Shadow {
        Shadow(self.extra)
    }

    /// Whether a call in progress needs a resident page where it is, or it is locked.
    pub fn is_held(self) -> bool {
        self.extra & !FIXED > 0
    }

    /// Whether a resident page must stay where it is: it is held, or the kernel does not move it.
    pub fn must_stay(self) -> bool {
        self.extra > 0
    }

    /// Whether it was found that the rights of a resident page's range do not let it be moved.
    pub fn is_fixed(self) -> bool {
        self.extra & FIXED > 0
    }

    /// Calls in progress that need a resident page where it is.
    pub fn holds(self) -> u64 {
        self.extra & !(LOCKED | FIXED | KEPT)
    }

    /// Whether a resident page may be shared since a fork, and must not be written to unnoticed.
    pub fn is_guarded(self) -> bool {
        self.word == GUARDED
    }
}

/// Of a resident page's holds: the program has locked it.
const LOCKED: u64 = 1 << 63;
/// The same: the rights of its range do not let it be moved.
const FIXED: u64 = 1 << 62;
/// The same: the kernel writes to it by itself, at a time that no call tells.
const KEPT: u64 = 1 << 61;
/// The word of a resident page that is guarded.
const GUARDED: u64 = 1 | 1 << 3;

/// A chunk's pages.
pub struct Chunk {
    first: usize,
    with_contents: u32,
    entries: [Entry; CHUNK_PAGES],
}

/// See the module.
#[derive(Default)]
pub struct Table {
    roots: Vec<Option<Box<Node>>>,
    chunks: Vec<Option<Box<Chunk>>>,
    free: Vec<u32>,
    /// Pages in memory, aside or not.
    in_memory: usize,
}

impl Table {
    fn chunk_number(&self, address: usize) -> Option<usize> {
        let chunk = address / CHUNK_BYTES;
        let leaf = self.roots.get(chunk / (FANOUT * FANOUT))?.as_ref()?[chunk / FANOUT % FANOUT].as_ref()?;
        (leaf[chunk % FANOUT] as usize).checked_sub(1)
    }

    /// What is known of the page at an address, and its id.
    pub fn find(&self, address: usize) -> Option<(PageId, Entry)> {
        let number = self.chunk_number(address)?;
        let index = address / PAGE % CHUNK_PAGES;
        let chunk = self.chunks[number].as_ref().expect("invariant: a numbered chunk is there");
        Some(((number * CHUNK_PAGES + index) as PageId, chunk.entries[index]))
    }

    /// Where the contents of the page at an address are.
    pub fn state(&self, address: usize) -> State {
        self.find(address).map_or(State::Untouched, |(_, entry)| entry.state())
    }

    /// The id of the page at an address; makes its chunk. The second value is the number of ids there are, if it grew.
    pub fn make(&mut self, address: usize) -> (PageId, Option<usize>) {
        let index = address / PAGE % CHUNK_PAGES;
        if let Some(number) = self.chunk_number(address) {
            return ((number * CHUNK_PAGES + index) as PageId, None);
        }
        let first = address / CHUNK_BYTES * CHUNK_BYTES;
        let chunk = Box::new(Chunk { first, with_contents: 0, entries: [Entry::EMPTY; CHUNK_PAGES] });
        let (number, grown) = match self.free.pop() {
            Some(number) => {
                self.chunks[number as usize] = Some(chunk);
                (number as usize, None)
            }
            None => {
                self.chunks.push(Some(chunk));
                (self.chunks.len() - 1, Some(self.chunks.len() * CHUNK_PAGES))
            }
        };
        let place = address / CHUNK_BYTES;
        if self.roots.is_empty() {
            self.roots.resize_with(ROOTS, || None);
        }
        let node = self.roots[place / (FANOUT * FANOUT)].get_or_insert_with(|| Box::new([const { None }; FANOUT]));
        let leaf = node[place / FANOUT % FANOUT].get_or_insert_with(|| Box::new([0; FANOUT]));
        leaf[place % FANOUT] = number as u32 + 1;
        ((number * CHUNK_PAGES + index) as PageId, grown)
    }

    /// The entry of a page.
    pub fn entry(&self, page: PageId) -> Entry {
        let chunk = self.chunks[page as usize / CHUNK_PAGES]
            .as_ref()
            .expect("invariant: the policy knows only pages of chunks");
        chunk.entries[page as usize % CHUNK_PAGES]
    }

    /// Whether a page's chunk is there. A policy may remember a page longer: one that was freed with its whole chunk.
    pub fn knows(&self, page: PageId) -> bool {
        self.chunks.get(page as usize / CHUNK_PAGES).is_some_and(Option::is_some)
    }

    /// The address of a page.
    pub fn address(&self, page: PageId) -> usize {
        let chunk = self.chunks[page as usize / CHUNK_PAGES]
            .as_ref()
            .expect("invariant: the policy knows only pages of chunks");
        chunk.first + page as usize % CHUNK_PAGES * PAGE
    }

    fn entry_mut(&mut self, page: PageId) -> (&mut u32, &mut Entry) {
        let chunk = self.chunks[page as usize / CHUNK_PAGES]
            .as_mut()
            .expect("invariant: the policy knows only pages of chunks");
        (&mut chunk.with_contents, &mut chunk.entries[page as usize % CHUNK_PAGES])
    }

    /// Puts a page into a state, with what the policy left, or without holds.
    pub fn set(&mut self, page: PageId, state: State, shadow: Shadow) {
        let (with_contents, entry) = self.entry_mut(page);
        let before = *entry;
        *entry = Entry { word: Entry::word(state), extra: shadow.0 };
        *with_contents = *with_contents + u32::from(entry.has_contents()) - u32::from(before.has_contents());
        let (is, was) = (entry.is_in_memory(), before.is_in_memory());
        self.in_memory = self.in_memory + usize::from(is) - usize::from(was);
    }

    /// Guards a resident page, or does so no longer.
    pub fn guard(&mut self, page: PageId, on: bool) {
        let (_, entry) = self.entry_mut(page);
        debug_assert_eq!(entry.state(), State::Resident);
        entry.word = if on { GUARDED } else { Entry::word(State::Resident) };
    }

    /// Locks a resident page where it is, or does so no longer.
    pub fn lock(&mut self, page: PageId, on: bool) {
        let (_, entry) = self.entry_mut(page);
        debug_assert_eq!(entry.state(), State::Resident);
        entry.extra = entry.extra & !LOCKED | if on { LOCKED } else { 0 };
    }

    /// Notes that the kernel does not move a resident page, or that it may by now.
    pub fn fix(&mut self, page: PageId, on: bool) {
        let (_, entry) = self.entry_mut(page);
        debug_assert_eq!(entry.state(), State::Resident);
        entry.extra = entry.extra & !FIXED | if on { FIXED } else { 0 };
    }

    /// Keeps a resident page where it is for as long as it has contents.
    pub fn keep(&mut self, page: PageId) {
        let (_, entry) = self.entry_mut(page);
        debug_assert_eq!(entry.state(), State::Resident);
        entry.extra |= KEPT;
    }

    /// Changes the holds of a resident page.
    pub fn hold(&mut self, page: PageId, by: i64) {
        let (_, entry) = self.entry_mut(page);
        debug_assert_eq!(entry.state(), State::Resident);
        entry.extra = entry.extra.saturating_add_signed(by);
    }

    /// Pages that are [`State::Resident`] or [`State::SetAside`].
    pub fn in_memory(&self) -> usize {
        self.in_memory
    }

    /// Gives the chunk at an address back if none of its pages has contents.
    pub fn drop_if_empty(&mut self, address: usize) {
        let Some(number) = self.chunk_number(address) else { return };
        if self.chunks[number].as_ref().is_some_and(|chunk| chunk.with_contents == 0) {
            self.chunks[number] = None;
            self.free.push(number as u32);
            let place = address / CHUNK_BYTES;
            if let Some(node) = &mut self.roots[place / (FANOUT * FANOUT)]
                && let Some(leaf) = &mut node[place / FANOUT % FANOUT]
            {
                leaf[place % FANOUT] = 0;
            }
        }
    }

    /// The next address from `start` on, before `end`, whose chunk is there: parts without chunks are passed over.
    pub fn next_known(&self, start: usize, end: usize) -> Option<usize> {
        let mut at = start;
        while at < end {
            let chunk = at / CHUNK_BYTES;
            let Some(node) = self.roots.get(chunk / (FANOUT * FANOUT))?.as_ref() else {
                at = (chunk / (FANOUT * FANOUT) + 1) * FANOUT * FANOUT * CHUNK_BYTES;
                continue;
            };
            let Some(leaf) = node[chunk / FANOUT % FANOUT].as_ref() else {
                at = (chunk / FANOUT + 1) * FANOUT * CHUNK_BYTES;
                continue;
            };
            if leaf[chunk % FANOUT] != 0 {
                return Some(at);
            }
            at = (chunk + 1) * CHUNK_BYTES;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a set of chunks: what is made is found in order, whatever lies between, until it is empty and dropped.
    #[test]
    fn chunks_are_found_wherever_they_are() {
        let mut table = Table::default();
        let places: [usize; 6] = [0, 3, FANOUT - 1, FANOUT, 5 * FANOUT * FANOUT + 17, (ROOTS - 1) * FANOUT * FANOUT];
        for place in places {
            let address = place * CHUNK_BYTES + 5 * PAGE;
            let (page, _) = table.make(address);
            assert_eq!((table.address(page), table.make(address).0), (address, page));
            table.set(page, State::Resident, Shadow::NONE);
            assert_eq!(table.state(address), State::Resident);
            assert_eq!(table.state(address + PAGE), State::Untouched);
        }
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(next) = table.next_known(at, 1 << 47) {
            found.push(next / CHUNK_BYTES);
            at = (next + 1).next_multiple_of(CHUNK_BYTES);
        }
        assert_eq!(found, places);
        assert_eq!(table.next_known(4 * CHUNK_BYTES, (FANOUT - 1) * CHUNK_BYTES), None);
        let (page, _) = table.find(3 * CHUNK_BYTES + 5 * PAGE).expect("it was made");
        table.drop_if_empty(3 * CHUNK_BYTES);
        assert!(table.find(3 * CHUNK_BYTES).is_some(), "a page has contents");
        table.set(page, State::Untouched, Shadow::NONE);
        table.drop_if_empty(3 * CHUNK_BYTES);
        assert!(table.find(3 * CHUNK_BYTES).is_none());
    }
}
