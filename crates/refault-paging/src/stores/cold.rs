//! Compressed pages that nobody asks for go to the file, and the memory that they took is for pages again.
//!
//! A page that compresses to the part `c` takes the memory of `c` resident pages. It is worth that as long as it is
//! asked for often enough, compared with the pages that would otherwise be resident. The longer a page was not asked
//! for, the less likely it is to be asked for next: its chance is about one over its age, in pages stored since. That of
//! a page that has just left memory is about one over the pages that wait in the pool. So a page goes once its age
//! exceeds (tF/tP − 1) (1 − c)/c times the pages in the pool, where tF and tP are the costs of a fault from file and
//! from pool, and some times that to be sure, for where all pages are asked for alike none should go: of those, one in
//! e^10 grows so old where pages compress to 70 %, one in e^24 where they compress to half.
//!
//! Invariant: a page that goes has waited in the pool, unasked for, from its time in [`Owner`] on. Cost: a look at the
//! oldest pages for each [`LOOK_EVERY`] that are stored, and one write for each batch that goes.

use refault_store::{Page, Scratch, Slot, Store};

use super::{BATCH, Holder, Holders, MAX_LOOKED, Stores};
use crate::PAGE;

/// Pages that are stored between two looks for cold ones.
const LOOK_EVERY: u64 = 64;
/// With fewer cold pages a write is not worth its time.
const MIN_BATCH: usize = 8;
/// How many times more a fault from the file costs than one from the pool, less one: see `reclaim::MAX_POOL_SHARE`.
const FILE_COST: u64 = 6;
/// How many times longer than that a page waits, to be sure.
const CERTAINTY: u64 = 4;
/// Bits of an address that mean nothing: within a page, and above what a process can have.
const LOW_BITS: u32 = 12;
const HIGH_SHIFT: u32 = 47;
const ADDRESS: u64 = (1 << HIGH_SHIFT) - (1 << LOW_BITS);
/// Times that differ.
const TIME: u64 = (1 << (LOW_BITS + 64 - HIGH_SHIFT)) - 1;

/// Whose a compressed page is, and when it was stored, in pages stored before it: in one word, the time in the bits of an
/// address that mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(u64);

impl Owner {
    /// The page at `address`, stored at `time`.
    pub(super) fn new(address: usize, time: u64) -> Owner {
        // Not 0: a word of zeros is no owner.
        let time = (time & TIME).max(1);
        Owner(address as u64 & ADDRESS | time & ((1 << LOW_BITS) - 1) | time >> LOW_BITS << HIGH_SHIFT)
    }

    /// The same from its word.
    pub(super) fn from_word(word: u64) -> Owner {
        Owner(word)
    }

    /// The word that [`Owner::from_word`] takes.
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// Where the page belongs.
    pub(super) fn address(self) -> usize {
        (self.0 & ADDRESS) as usize
    }

    /// Pages that were stored since, of which 2^29 look like none.
    pub(super) fn age(self, now: u64) -> u64 {
        now.wrapping_sub(self.0 & ((1 << LOW_BITS) - 1) | self.0 >> HIGH_SHIFT << LOW_BITS) & TIME
    }
}

/// The age from which on a page that takes `bytes` of the pool goes, with so many pages in the pool.
fn cold_from(pages: u64, bytes: usize) -> u64 {
    let bytes = bytes.clamp(1, PAGE * 7 / 8) as u64;
    pages.saturating_mul(FILE_COST * CERTAINTY) * (PAGE as u64 - bytes) / bytes
}

impl Stores {
    /// Moves some of the pages that nobody asks for to the file, if there are such. Returns whether there were.
    pub(super) fn move_cold(&mut self, scratch: &mut Scratch, holders: &mut impl Holders) -> bool {
        if self.written - self.looked < LOOK_EVERY || self.maker.is_none() {
            return false;
        }
        self.looked = self.written;
        let mut batch = [(Owner(0), Slot::from_bits(0)); BATCH];
        let mut many = self.find_cold(&mut batch, holders);
        if many < MIN_BATCH {
            return false;
        }
        let mut buffer = self.take_buffer();
        let mut readable = 0;
        for at in 0..many {
            // Whoever asks for one that is damaged finds out.
            if self.pool.read(batch[at].1, &mut buffer[readable], scratch).is_ok() {
                batch[readable] = batch[at];
                readable += 1;
            }
        }
        many = readable;
        let pages: [&Page; BATCH] = std::array::from_fn(|index| &buffer[index]);
        let mut slots = [Slot::from_bits(0); BATCH];
        let done = if many > 0 { self.write_file(&pages[..many], scratch, &mut slots) } else { 0 };
        for (index, (owner, slot)) in batch[..done].iter().enumerate() {
            // Its entry of the queue means nothing from here on.
            holders.moved(owner.address(), Holder::Page, Some(slots[index]));
            self.pool.release(*slot);
        }
        self.buffer = buffer;
        self.loosened |= done > 0;
        done > 0
    }

    /// Cold pages among the oldest. Returns how many.
    fn find_cold(&mut self, batch: &mut [(Owner, Slot); BATCH], holders: &impl Holders) -> usize {
        let (now, pages) = (self.written, self.pool.usage().pool_pages);
        let mut many = 0;
        for queue in [&mut self.loose, &mut self.dense] {
            while queue.front().is_some_and(|(owner, slot)| holders.holder(owner.address(), *slot) == Holder::Nobody) {
                queue.pop_front();
            }
            for (owner, slot) in queue.iter().take(MAX_LOOKED) {
                if many == BATCH || owner.age(now) < cold_from(pages, PAGE) {
                    break;
                }
                // A page that came to be needed since has another entry, with its new time.
                let is_its = holders.holder(owner.address(), *slot) == Holder::Page
                    && self.pool.owner(*slot) == owner.word()
                    && !batch[..many].iter().any(|(_, other)| other == slot);
                let bytes = if is_its { self.pool.object_len(*slot).unwrap_or(PAGE) } else { 0 };
                if is_its && owner.age(now) >= cold_from(pages, bytes) {
                    batch[many] = (*owner, *slot);
                    many += 1;
                }
            }
        }
        many
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::fd::IntoRawFd;

    use refault_store::Tier;

    use super::*;
    use crate::stores::Files;

    struct Unnamed;

    impl Files for Unnamed {
        fn create(&mut self) -> Option<i32> {
            Some(tempfile::tempfile().ok()?.into_raw_fd())
        }

        fn close(&mut self, _: i32) {}
    }

    /// Pages by address.
    #[derive(Default)]
    struct Known(HashMap<usize, Slot>);

    impl Holders for Known {
        fn holder(&self, address: usize, slot: Slot) -> Holder {
            if self.0.get(&address) == Some(&slot) { Holder::Page } else { Holder::Nobody }
        }

        fn moved(&mut self, address: usize, _: Holder, slot: Option<Slot>) {
            self.0.insert(address, slot.expect("all are all there is"));
        }
    }

    /// A page of which a part is noise.
    fn page(seed: usize) -> Page {
        let mut page = Page([1; PAGE]);
        let mut state = seed as u64 | 1 << 40;
        for byte in &mut page.0[..PAGE / 2] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        page
    }

    /// 200 pages are stored once and never asked for, 200 others again and again, evenly.
    #[test]
    fn what_nobody_asks_for_goes_and_the_rest_stays() {
        const NEVER: usize = 200;
        let mut stores = Stores::new(64 << 20, 8 << 20, Some(Box::new(Unnamed)), 1 << 30).expect("memory");
        let (mut scratch, mut known) = (Scratch::new(), Known::default());
        let put = |stores: &mut Stores, known: &mut Known, scratch: &mut Scratch, number: usize| {
            let address = (number + 1) * PAGE;
            if let Some(slot) = known.0.remove(&address) {
                let mut back = Page::ZERO;
                stores.read(slot, &mut back, scratch).expect("it is there");
                assert!(back.0 == page(number).0, "page {number}");
                stores.release(slot);
            }
            let mut slot = [Slot::from_bits(0)];
            assert_eq!(stores.write(&[&page(number)], &[address], scratch, &mut slot), 1);
            known.0.insert(address, slot[0]);
        };
        (0..NEVER).for_each(|number| put(&mut stores, &mut known, &mut scratch, number));
        let full = u64::MAX;
        let mut ages = 0;
        while stores.stored().in_files < NEVER as u64 && ages < 200 {
            for number in NEVER..2 * NEVER {
                put(&mut stores, &mut known, &mut scratch, number);
                while stores.demote((full, full), &mut scratch, &mut known) {}
            }
            ages += 1;
        }
        // Compressed to some 55 %, they go at an age of 24 (1 - c)/c = 20 times 400 pages: after 40 rounds of 200.
        assert!((30..60).contains(&ages), "{ages} rounds");
        let in_file = |number: &usize| known.0[&((number + 1) * PAGE)].tier() == Tier::File;
        assert_eq!((0..NEVER).filter(in_file).count(), NEVER);
        assert_eq!((NEVER..2 * NEVER).filter(in_file).count(), 0);
        for number in 0..NEVER {
            put(&mut stores, &mut known, &mut scratch, number);
        }
        // Their blocks were emptied: 400 pages of 2.3 KB are there, and not the room of 600.
        assert!(stores.pool_bytes() < 400 * 3072, "{} bytes", stores.pool_bytes());
    }

    #[test]
    fn an_owner_has_its_address_and_its_age() {
        for address in [0, 0x1000, 0x5555_5555_5000, 0x7fff_ffff_e000] {
            for time in [1u64, 0xfff, 0x1000, 12_345_678, TIME, TIME + 77, u64::MAX / 2] {
                let owner = Owner::new(address, time);
                assert_eq!(Owner::from_word(owner.word()).address(), address);
                assert!(owner.word() != 0 && owner.word() != u64::MAX);
                for age in [5u64, 1000, TIME - 2] {
                    assert_eq!(owner.age(time + age), age, "{address:x} {time}");
                }
            }
        }
    }

    #[test]
    fn what_takes_more_goes_earlier() {
        assert_eq!(cold_from(1000, 2048), 24_000);
        assert!(cold_from(1000, 3072) < cold_from(1000, 2048));
        assert_eq!(cold_from(1000, PAGE), 1000 * 24 / 7, "pages that are kept as they are");
        assert_eq!(cold_from(0, 100), 0);
    }
}
