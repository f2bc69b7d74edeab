//! Contents of pages that are out of memory: the stores that hold them, copies that are still good, and which of them
//! come back.
//!
//! Invariants: a slot is one page's, or the copy of one that is in memory; what is read is what was written. It neither
//! moves pages nor changes their states: it is told of them. Cost: that of [`crate::stores`]; one page in 32 that is
//! stored is followed, with 16 bytes.

use std::collections::BTreeMap;

use refault_core::PageId;
use refault_store::{Page, Scratch, Slot, StoreError};

use crate::PAGE;
use crate::page::Pages;
use crate::page::table::State;
use crate::stores::copies::Copies;
use crate::stores::{Holder, Holders, Stored, Stores};
use refault_linux::sys;

/// Pages whose return is waited for at once: more than of 8 GiB that are stored.
const MAX_FOLLOWED: usize = 1 << 16;
/// Copies of pages in memory are kept compressed while this many times more pages are compressed than in memory.
const COPY_SHARE: usize = 16;
/// Times that a read is tried again.
const PATIENCE: u32 = 1000;

/// See the module.
pub(crate) struct Contents {
    stores: Stores,
    copies: Copies,
    scratch: Scratch,
    /// What was read last.
    buffer: Vec<Page>,
    /// Addresses of stored pages, one in 32, and how many had been stored then.
    followed: BTreeMap<usize, u64>,
}

/// Whose slots are, by the pages and the copies.
struct Known<'a> {
    pages: &'a mut Pages,
    copies: &'a mut Copies,
}

impl Holders for Known<'_> {
    fn holder(&self, address: usize, slot: Slot) -> Holder {
        match self.pages.find(address) {
            Some((_, entry)) if entry.state() == State::Stored(slot) => Holder::Page,
            Some((page, _)) if self.copies.is(page, slot) => Holder::Copy,
            _ => Holder::Nobody,
        }
    }

    fn moved(&mut self, address: usize, held: Holder, slot: Option<Slot>) {
        let (page, entry) = self.pages.find(address).expect("invariant: a page with a slot is known");
        match (held, slot) {
            (Holder::Copy, Some(slot)) => self.copies.reslot(page, slot),
            (_, Some(slot)) => self.pages.set(page, State::Stored(slot), entry.shadow()),
            (_, None) => drop(self.copies.drop(page)),
        }
    }
}

impl Contents {
    /// With room to read `window` pages at once.
    pub(crate) fn new(stores: Stores, window: usize) -> Contents {
        Contents {
            stores,
            copies: Copies::new(sys::random()),
            scratch: Scratch::lean(),
            buffer: vec![Page::ZERO; window],
            followed: BTreeMap::new(),
        }
    }

    /// What is stored where, copies included.
    pub(crate) fn stored(&self) -> Stored {
        self.stores.stored()
    }

    /// Pages whose contents are here alone.
    pub(crate) fn alone(&self) -> u64 {
        let stored = self.stores.stored();
        (stored.same_filled + stored.compressed + stored.in_files).saturating_sub(self.copies.count())
    }

    /// Bytes of memory of the compressed pool.
    #[inline]
    pub(crate) fn pool_bytes(&self) -> u64 {
        self.stores.pool_bytes()
    }

    /// Bytes that seals of files take.
    pub(crate) fn seal_bytes(&self) -> u64 {
        self.stores.seal_bytes()
    }

    /// Pages of the pool that ceased to be shared with relatives since this was last asked.
    pub(crate) fn take_unshared(&self) -> u64 {
        self.stores.take_unshared()
    }

    /// The pool has this many bytes of addresses at most from now on. Whether any were given back.
    pub(crate) fn lower_pool_limit(&mut self, bytes: u64) -> bool {
        self.stores.lower_pool_limit(bytes)
    }

    /// Reads neighbouring pages into the window, up to the first that cannot be read. How many.
    ///
    /// # Errors
    /// Not even the first can be read.
    pub(crate) fn read(&mut self, slots: &[Slot]) -> Result<usize, StoreError> {
        let mut filled = 0;
        while filled < slots.len() {
            let run = self.stores.read_run(&slots[filled..], &mut self.buffer[filled..]).unwrap_or(0);
            if run > 0 {
                filled += run;
                continue;
            }
            match self.read_one(slots[filled], filled) {
                Ok(()) => filled += 1,
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// What may go away is tried again.
    fn read_one(&mut self, slot: Slot, index: usize) -> Result<(), StoreError> {
        let mut patience = 0;
        loop {
            match self.stores.read(slot, &mut self.buffer[index], &mut self.scratch) {
                Err(StoreError::Io { .. }) if patience < PATIENCE => patience += 1,
                other => return other,
            }
        }
    }

    /// What [`Contents::read`] has read.
    pub(crate) fn window(&self) -> &[Page] {
        &self.buffer
    }

    /// Reads a slot of which no copy will be kept, into other memory. False if it cannot be read.
    pub(crate) fn read_into(&mut self, slot: Slot, page: &mut Page) -> bool {
        self.stores.read(slot, page, &mut self.scratch).is_ok()
    }

    /// Whether copies of pages take little beside what is compressed, with this many pages in memory.
    pub(crate) fn is_mostly_compressed(&self, in_memory: usize) -> bool {
        in_memory * COPY_SHARE < self.stores.compressed() as usize
    }

    /// Whether the slot of a page that comes back is worth keeping.
    pub(crate) fn is_worth_a_copy(&self, page: PageId, slot: Slot, mostly_compressed: bool) -> bool {
        self.copies.is_worth(page, slot, mostly_compressed)
    }

    /// A page is in memory again, with the contents at this place of the window: its slot is kept if that is worth it.
    pub(crate) fn is_back(&mut self, page: PageId, slot: Slot, index: usize, mostly_compressed: bool) {
        if self.copies.is_worth(page, slot, mostly_compressed) {
            self.copies.keep(page, slot, &self.buffer[index]);
        } else {
            self.stores.release(slot);
        }
    }

    /// A slot is no page's any more.
    pub(crate) fn release(&mut self, slot: Slot) {
        self.stores.release(slot);
    }

    /// A page in memory has other contents from now on, or none.
    pub(crate) fn drop_copy(&mut self, page: PageId) {
        if let Some(slot) = self.copies.drop(page) {
            self.stores.release(slot);
        }
    }

    /// A page leaves memory with these contents: the slot that holds them still, if there is one.
    pub(crate) fn leave(&mut self, page: PageId, contents: &Page) -> Option<Slot> {
        let (slot, holds) = self.copies.leave(page, contents)?;
        if holds {
            return Some(slot);
        }
        self.stores.release(slot);
        None
    }

    /// A slot that [`Contents::leave`] has given is the page's again.
    pub(crate) fn is_used_again(&mut self, owner: usize, slot: Slot) {
        self.stores.used_again(owner, slot);
    }

    /// A stored page is the program's at another address from now on.
    pub(crate) fn relocate(&mut self, slot: Slot, address: usize) {
        self.stores.relocate(slot, address);
    }

    /// Stores pages. Those that others hold still, a bit for each, go to a file if there is one: what they are
    /// compressed to would be memory beside the one that is no less for it. Returns how many, from the front.
    pub(crate) fn write(
        &mut self,
        pages: &[&Page],
        owners: &[usize],
        held_by_others: u32,
        slots: &mut [Slot],
    ) -> usize {
        let mut written = 0;
        while written < pages.len() {
            let held = held_by_others >> written & 1;
            let alike = (written..pages.len()).take_while(|index| held_by_others >> index & 1 == held).count();
            let end = written + alike;
            let done = match held {
                1 => self.stores.write_beside_memory(&pages[written..end], &mut self.scratch, &mut slots[written..end]),
                _ => 0,
            };
            written += done;
            let (pages, owners, slots) = (&pages[written..end], &owners[written..end], &mut slots[written..end]);
            let done = self.stores.write(pages, owners, &mut self.scratch, slots);
            written += done;
            if written < end {
                break;
            }
        }
        written
    }

    /// From this many bytes in the pool on, pages are compressed harder.
    pub(crate) fn compress_hard_from(&mut self, bytes: u64) {
        self.stores.compress_hard_from(bytes);
    }

    /// One step towards a pool of `loose` bytes compressed loosely and `all` in all. Whether anything was done.
    pub(crate) fn demote(&mut self, loose: u64, all: u64, pages: &mut Pages) -> bool {
        let mut holders = Known { pages, copies: &mut self.copies };
        self.stores.tidy(&holders);
        self.stores.demote((loose, all), &mut self.scratch, &mut holders)
    }

    /// Whether the page at an address is one of those that are followed.
    pub(crate) fn is_followed(address: usize) -> bool {
        (address / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0
    }

    /// Follows a page from now on; `stored` pages have been stored.
    pub(crate) fn follow(&mut self, address: usize, stored: u64) {
        if self.followed.len() == MAX_FOLLOWED {
            self.followed.clear();
        }
        self.followed.insert(address, stored);
    }

    /// How many pages had been stored when this one was, if it was followed. It is not any more.
    pub(crate) fn came_back(&mut self, address: usize) -> Option<u64> {
        if self.followed.is_empty() { None } else { self.followed.remove(&address) }
    }

    /// Right before a fork, which shares all of it.
    pub(crate) fn before_fork(&mut self) {
        self.stores.freeze();
        self.stores.share();
    }

    /// In a forked child.
    pub(crate) fn after_fork(&mut self) {
        self.stores.after_fork();
        self.followed.clear();
    }

    /// No relative is left to share with.
    pub(crate) fn unshare(&mut self) {
        self.stores.unshare();
    }

    /// Has the file open from now on, if there may be one.
    pub(crate) fn open_file(&mut self) {
        self.stores.open_file();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::ranges::Attributes;

    const PAGES: usize = 40;
    const START: usize = 1 << 30;

    /// What happens to a page of the model.
    #[derive(Clone, Debug)]
    enum Event {
        /// It leaves memory with these contents; others have it still.
        Leave(usize, u8, bool),
        /// It and its neighbours come back.
        Return(usize, usize),
        /// It is written to while it is in memory.
        Write(usize, u8),
        /// Its contents are not wanted.
        Drop(usize),
        /// The pool is to be small.
        Demote(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        let page = 0..PAGES;
        prop_oneof![
            4 => (page.clone(), any::<u8>(), any::<bool>()).prop_map(|(page, byte, held)| Event::Leave(page, byte, held)),
            3 => (page.clone(), 1..8usize).prop_map(|(page, many)| Event::Return(page, many)),
            1 => (page.clone(), any::<u8>()).prop_map(|(page, byte)| Event::Write(page, byte)),
            1 => page.prop_map(Event::Drop),
            1 => (0..64u64).prop_map(|kib| Event::Demote(kib << 10)),
        ]
    }

    /// Contents that some bytes stand for: zeros, one value, what compresses, and what does not.
    fn contents(byte: u8) -> Page {
        let mut page = Page::ZERO;
        let mut state = u64::from(byte) | 1;
        match byte % 4 {
            0 => page.0.fill(byte),
            1 => page.0[usize::from(byte)] = byte,
            _ => page.0.iter_mut().for_each(|at| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *at = if byte % 4 == 2 { (state >> 62) as u8 } else { (state >> 33) as u8 };
            }),
        }
        page
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Beside an array of what each page holds: what comes back is what left, whatever was kept, moved or
        /// compressed again.
        #[test]
        fn what_comes_back_is_what_left(events in proptest::collection::vec(event(), 1..120)) {
            let stores = Stores::new(1 << 24, 1 << 20, None, 0).expect("addresses");
            let mut all = Contents::new(stores, 8);
            let mut pages = Pages::default();
            pages.insert(START, START + PAGES * PAGE, Attributes { protection: Attributes::READ_WRITE, ..Attributes::default() });
            let address = |page: usize| START + page * PAGE;
            // What each page holds, and whether it is in memory.
            let mut model: Vec<Option<(u8, bool)>> = vec![None; PAGES];
            for event in events {
                match event {
                    Event::Leave(page, byte, held) => {
                        let (byte, in_memory) = model[page].unwrap_or((byte, true));
                        if !in_memory {
                            continue;
                        }
                        let (id, _) = pages.make(address(page));
                        let page_contents = contents(byte);
                        let slot = match all.leave(id, &page_contents) {
                            Some(slot) => {
                                all.is_used_again(address(page), slot);
                                slot
                            }
                            None => {
                                let mut slots = [Slot::from_bits(0)];
                                let bits = u32::from(held);
                                if all.write(&[&page_contents], &[address(page)], bits, &mut slots) == 0 {
                                    // Without a file, what does not compress stays where it is.
                                    pages.came_in(id);
                                    model[page] = Some((byte, true));
                                    continue;
                                }
                                slots[0]
                            }
                        };
                        pages.set(id, State::Stored(slot), refault_core::Shadow::NONE);
                        model[page] = Some((byte, false));
                    }
                    Event::Return(first, many) => {
                        let stored = |page: &usize| match pages.state(address(*page)) {
                            State::Stored(slot) => Some(slot),
                            _ => None,
                        };
                        let slots: Vec<Slot> = (first..(first + many).min(PAGES)).map_while(|page| stored(&page)).collect();
                        if slots.is_empty() {
                            continue;
                        }
                        let filled = all.read(&slots).expect("it was stored");
                        prop_assert!(filled > 0);
                        let mostly = all.is_mostly_compressed(pages.in_memory());
                        for (index, slot) in slots[..filled].iter().enumerate() {
                            let (byte, _) = model[first + index].expect("the model has it");
                            prop_assert!(all.window()[index].0 == contents(byte).0, "page {}", first + index);
                            let (id, _) = pages.find(address(first + index)).expect("it is known");
                            all.is_back(id, *slot, index, mostly);
                            pages.came_in(id);
                            model[first + index] = Some((byte, true));
                        }
                    }
                    Event::Write(page, byte) => {
                        // The engine does not learn of it: the copy is found out to be old when the page leaves.
                        if let Some((_, true)) = model[page] {
                            model[page] = Some((byte, true));
                        }
                    }
                    Event::Drop(page) => {
                        if let Some((id, entry)) = pages.find(address(page)) {
                            match entry.state() {
                                State::Stored(slot) => all.release(slot),
                                _ => all.drop_copy(id),
                            }
                            pages.set(id, State::Untouched, refault_core::Shadow::NONE);
                            model[page] = None;
                        }
                    }
                    Event::Demote(bytes) => {
                        all.compress_hard_from(bytes / 2);
                        all.demote(bytes, bytes, &mut pages);
                    }
                }
                let out = model.iter().flatten().filter(|(_, in_memory)| !in_memory).count() as u64;
                prop_assert_eq!(all.alone(), out);
            }
            // Nothing is left when all is dropped.
            for page in 0..PAGES {
                if let Some((id, entry)) = pages.find(address(page)) {
                    match entry.state() {
                        State::Stored(slot) => all.release(slot),
                        _ => all.drop_copy(id),
                    }
                    pages.set(id, State::Untouched, refault_core::Shadow::NONE);
                }
            }
            let stored = all.stored();
            prop_assert_eq!((stored.same_filled, stored.compressed, stored.in_files), (0, 0, 0));
        }
    }

    #[test]
    fn pages_that_are_followed_say_when_they_were_stored() {
        let stores = Stores::new(1 << 24, 1 << 20, None, 0).expect("addresses");
        let mut all = Contents::new(stores, 1);
        let followed = (0..32_000).filter(|page| Contents::is_followed(page * PAGE)).count();
        assert!((800..1200).contains(&followed), "{followed} of 32,000");
        assert_eq!(all.came_back(PAGE), None);
        all.follow(PAGE, 7);
        assert_eq!((all.came_back(PAGE), all.came_back(PAGE)), (Some(7), None));
    }
}
