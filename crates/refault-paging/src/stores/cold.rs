//! Compressed pages that no thread asks for go to the file, and the memory that they took is for pages again.
//!
//! A page that compresses to the part `c` takes the memory of `c` resident pages. It is worth that as long as it is
//! asked for often enough, compared with the pages that would otherwise be resident. The longer a page was not asked
//! for, the less likely it is to be asked for next: its chance is about one over its age, in pages stored since. That
//! of a page that has just left memory is about one over the pages that wait in the pool. So a page goes once its age
//! exceeds (tF/tP − 1) (1 − c)/c times the pages in the pool, and some times that to be sure. Here tF and tP are the
//! costs of a fault from file and from pool. Where all pages are asked for alike, none should go. Of those, one in e^10
//! grows so old where pages compress to 70 %, and one in e^24 where they compress to half. One in 30 does where they
//! compress to 7/8, and there it makes no difference. Time is counted in pages that enter the pool.
//!
//! Invariant: a page that goes has waited in the pool, unasked for, from its time in [`Owner`] on. Cost: a look at the
//! oldest pages for each [`LOOK_EVERY`] that are stored, and one write for each batch that goes.

use refault_store::{Page, Scratch, Slot, Store};

use super::{BATCH, Holder, Holders, MAX_LOOKED, Stores, whose};
use crate::PAGE;

/// Pages that enter the pool between two looks for cold ones.
const LOOK_EVERY: u64 = 64;
/// Pages that are too young, after which a look begins anew with the oldest.
const MAX_YOUNG: usize = BATCH;
/// How many times later the next look comes after a write that failed.
const AFTER_FAILURE: u64 = 64;
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

/// Whose a compressed page is, and when it was stored, in pages that had entered the pool before it: in one word, the
/// time in the bits of an address that mean nothing.
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

    /// The page at another address, stored when this one was.
    pub(super) fn at(self, address: usize) -> Owner {
        Owner(self.0 & !ADDRESS | address as u64 & ADDRESS)
    }

    /// The word that [`Owner::from_word`] takes.
    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// Where the page belongs.
    pub(super) fn address(self) -> usize {
        (self.0 & ADDRESS) as usize
    }

    /// Pages that entered the pool since, of which 2^29 look like none.
    pub(super) fn age(self, now: u64) -> u64 {
        now.wrapping_sub(self.0 & ((1 << LOW_BITS) - 1) | self.0 >> HIGH_SHIFT << LOW_BITS) & TIME
    }
}

/// The age from which on a page that takes `bytes` of the pool goes, with `pages` pages in the pool.
fn cold_from(pages: u64, bytes: usize) -> u64 {
    let bytes = bytes.clamp(1, PAGE * 7 / 8) as u64;
    pages.saturating_mul(FILE_COST * CERTAINTY) * (PAGE as u64 - bytes) / bytes
}

impl Stores {
    /// Moves some of the pages that no thread asks for to the file, if there are such. Returns whether there were.
    pub(super) fn move_cold(&mut self, scratch: &mut Scratch, holders: &mut impl Holders) -> bool {
        if self.entered < self.look_at || self.maker.is_none() {
            return false;
        }
        self.look_at = self.entered + LOOK_EVERY;
        let mut batch = [(Owner(0), Slot::from_bits(0)); BATCH];
        let mut many = self.find_cold(&mut batch, holders);
        if many < MIN_BATCH {
            return false;
        }
        if self.current().is_none() {
            self.look_at = self.entered + LOOK_EVERY * AFTER_FAILURE;
            return false;
        }
        let mut buffer = self.take_buffer();
        let mut readable = 0;
        for at in 0..many {
            // The fault that asks for a damaged one finds out.
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
        if done == 0 {
            // The disk is full, say.
            self.look_at = self.entered + LOOK_EVERY * AFTER_FAILURE;
        }
        done > 0
    }

    /// Cold pages among the oldest, from where the last look ended. Returns how many.
    fn find_cold(&mut self, batch: &mut [(Owner, Slot); BATCH], holders: &impl Holders) -> usize {
        let (now, pages) = (self.entered, self.pool.usage().pool_pages);
        let mut many = 0;
        for (queue, at) in [&mut self.loose, &mut self.dense].into_iter().zip(&mut self.looked) {
            let is_gone = |entry: &(Owner, Slot)| whose(&self.pool, holders, entry.0, entry.1) == Holder::Nobody;
            while queue.front().is_some_and(is_gone) {
                queue.pop_front();
                *at = at.saturating_sub(1);
            }
            let mut young = 0;
            for (owner, slot) in queue.iter().skip(*at).take(MAX_LOOKED) {
                // What follows is younger, as a rule.
                if many == BATCH || young == MAX_YOUNG {
                    break;
                }
                *at += 1;
                if owner.age(now) < cold_from(pages, PAGE) {
                    young += 1;
                    continue;
                }
                // In memory that a fork shares nothing would come free, and no process notes there what is used again.
                let may_go = whose(&self.pool, holders, *owner, *slot) == Holder::Page && !self.pool.lies_shared(*slot);
                let bytes = if may_go { self.pool.object_len(*slot).unwrap_or(PAGE) } else { 0 };
                if may_go
                    && owner.age(now) >= cold_from(pages, bytes)
                    && !batch[..many].iter().any(|(_, other)| other == slot)
                {
                    batch[many] = (*owner, *slot);
                    many += 1;
                }
            }
            if young == MAX_YOUNG || *at >= queue.len() {
                *at = 0;
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
    use refault_store::codec::Codec;

    use super::*;
    use crate::stores::{Files, MIN_QUEUED};

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

    const NOISE: usize = PAGE / 2;

    /// A page whose first bytes are noise.
    fn page(number: usize, noise: usize) -> Page {
        let mut page = Page([1; PAGE]);
        let mut state = number as u64 | 1 << 40;
        for byte in &mut page.0[..noise] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        page
    }

    fn address(number: usize) -> usize {
        (number + 1) * PAGE
    }

    /// Stores, and what is in them.
    struct Bench {
        stores: Stores,
        known: Known,
        scratch: Scratch,
    }

    impl Bench {
        fn new() -> Bench {
            let stores = Stores::new(64 << 20, 8 << 20, Some(Box::new(Unnamed)), 1 << 30).expect("memory");
            Bench { stores, known: Known::default(), scratch: Scratch::new() }
        }

        /// A page is asked for, if it is stored, and stored again.
        fn put(&mut self, number: usize, noise: usize) {
            if let Some(slot) = self.known.0.remove(&address(number)) {
                let mut back = Page::ZERO;
                self.stores.read(slot, &mut back, &mut self.scratch).expect("it is there");
                assert!(back.0 == page(number, noise).0, "page {number}");
                self.stores.release(slot);
            }
            let mut slot = [Slot::from_bits(0)];
            let written = self.stores.write(&[&page(number, noise)], &[address(number)], &mut self.scratch, &mut slot);
            assert_eq!(written, 1);
            self.known.0.insert(address(number), slot[0]);
        }

        /// As under a budget that is far away.
        fn demote(&mut self) {
            while self.stores.demote((u64::MAX, u64::MAX), &mut self.scratch, &mut self.known) {}
        }

        fn in_file(&self, numbers: std::ops::Range<usize>) -> usize {
            numbers.filter(|number| self.known.0[&address(*number)].tier() == Tier::File).count()
        }
    }

    /// 200 pages are stored once and never asked for, 200 others again and again, evenly.
    #[test]
    fn what_nobody_asks_for_goes_and_the_rest_stays() {
        let mut bench = Bench::new();
        (0..200).for_each(|number| bench.put(number, NOISE));
        let mut rounds = 0;
        while bench.in_file(0..200) < 200 && rounds < 200 {
            for number in 200..400 {
                bench.put(number, NOISE);
                bench.demote();
            }
            rounds += 1;
        }
        // Compressed to some 55 %, they go at an age of 24 (1 - c)/c = 20 times 400 pages: after 40 rounds of 200.
        assert!((30..60).contains(&rounds), "{rounds} rounds");
        assert_eq!(bench.in_file(200..400), 0);
        (0..200).for_each(|number| bench.put(number, NOISE));
        // Their blocks were emptied: 400 pages of 2.3 KB are there, and not the room of 600.
        assert!(bench.stores.pool_bytes() < 400 * 3072, "{} bytes", bench.stores.pool_bytes());
    }

    /// 300 pages that take next to nothing lie before 200 that take much, and the test asks for none.
    #[test]
    fn what_may_stay_does_not_hide_what_goes() {
        let mut bench = Bench::new();
        (0..300).for_each(|number| bench.put(number, 100));
        (300..500).for_each(|number| bench.put(number, NOISE));
        for _ in 0..200 {
            for number in 500..600 {
                bench.put(number, NOISE);
                bench.demote();
            }
        }
        assert_eq!((bench.in_file(0..300), bench.in_file(500..600)), (0, 0));
        assert!(bench.in_file(300..500) > 200 - MIN_BATCH, "{} went", bench.in_file(300..500));
    }

    /// Pages come back and leave again unchanged, with the slots they had: they are used, and are not taken for cold;
    /// nor does the queue grow. Moving such a page changes nothing of that.
    #[test]
    fn what_comes_back_and_leaves_unchanged_is_used() {
        let mut bench = Bench::new();
        (0..400).for_each(|number| bench.put(number, NOISE));
        for _ in 0..100 {
            for number in 0..200 {
                let slot = bench.known.0[&address(number)];
                bench.stores.used_again(address(number), slot);
            }
            for number in 200..400 {
                bench.put(number, NOISE);
                bench.demote();
                bench.stores.tidy(&bench.known);
            }
        }
        assert_eq!(bench.in_file(0..400), 0);
        assert!(bench.stores.loose.len() < 4 * MIN_QUEUED, "{} entries", bench.stores.loose.len());

        let slot = bench.known.0.remove(&address(0)).expect("it is stored");
        bench.known.0.insert(address(1000), slot);
        bench.stores.relocate(slot, address(1000));
        for _ in 0..80 {
            for number in 200..400 {
                bench.put(number, NOISE);
                bench.demote();
            }
        }
        assert_eq!((bench.in_file(1000..1001), bench.in_file(1..200)), (1, 199));
    }

    /// Two encodings of words compete with Zstd: the bytes in which words differ, and words without zero bytes. Zstd
    /// leaves less of the first two of these pages than they do, and more of the third.
    #[test]
    fn numbers_are_stored_without_their_zero_bytes_and_pressure_makes_no_page_larger() {
        let mut random = 1u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 32) % bound
        };
        let (mut small, mut either, mut sparse) = (Page::ZERO, Page::ZERO, Page::ZERO);
        small.0.iter_mut().step_by(8).for_each(|byte| *byte = below(20) as u8);
        // In the first byte and in the last by turns: these words differ in all their bytes.
        either.0.as_chunks_mut::<8>().0.iter_mut().zip([0, 7].into_iter().cycle()).for_each(|(word, at)| {
            word[at] = below(200) as u8;
        });
        let places = sparse.0.as_chunks_mut::<8>().0.iter_mut();
        for word in places {
            if below(7) < 2 {
                word.fill_with(|| 1 + below(255) as u8);
            }
        }
        let mut bench = Bench::new();
        let pages = [small, either, sparse];
        let mut slots = [Slot::from_bits(0); 3];
        let addresses = [address(0), address(1), address(2)];
        assert_eq!(bench.stores.write(&pages.each_ref(), &addresses, &mut bench.scratch, &mut slots), 3);
        let codecs = |bench: &Bench| addresses.map(|address| bench.stores.pool.codec(bench.known.0[&address]).unwrap());
        let lengths =
            |bench: &Bench| addresses.map(|address| bench.stores.pool.object_len(bench.known.0[&address]).unwrap());
        bench.known.0.extend(addresses.into_iter().zip(slots));
        assert_eq!(codecs(&bench), [Codec::Columns, Codec::Words, Codec::Words]);
        let before = lengths(&bench);
        while bench.stores.demote((0, u64::MAX), &mut bench.scratch, &mut bench.known) {}
        assert_eq!(codecs(&bench), [Codec::Zstd, Codec::Zstd, Codec::Words]);
        let after = lengths(&bench);
        assert!(after[0] < before[0] && after[1] < before[1] && after[2] == before[2], "{before:?} {after:?}");
        for (page, address) in pages.iter().zip(addresses) {
            let mut back = Page::ZERO;
            bench.stores.read(bench.known.0[&address], &mut back, &mut bench.scratch).expect("it is there");
            assert!(back.0 == page.0);
        }
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
