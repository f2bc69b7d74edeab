//! A block of memory whose every word can be told: what was written last, or zeros.
//!
//! The expected contents lie in small mappings of their own, which the agent leaves to the kernel. So contents and
//! expectation are not lost together.

use std::ptr;

use crate::random::mix;

/// Bytes of the unit in which contents are written and checked.
pub const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;
/// Pages of a block: enough to be managed, and so few that the expectations stay below what the agent manages.
pub const PAGES: std::ops::RangeInclusive<usize> = 33..=4096;

/// What a page holds: the contents of `serial` (0: zeros), but for the first word if `stamp` is not 0.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Expected {
    serial: u64,
    stamp: u64,
}

impl Expected {
    /// One word. Contents of four kinds: one value throughout, random, half random, and short repetitions.
    fn word(self, index: usize) -> u64 {
        let at = index as u64;
        match (self.serial, mix(self.serial) % 4) {
            _ if index == 0 && self.stamp != 0 => self.stamp,
            (0, _) => 0,
            (serial, 0) => mix(serial),
            (serial, 1) => mix(serial ^ at << 48),
            (serial, 2) => {
                if index.is_multiple_of(2) {
                    0x2020_2020_2020_2020
                } else {
                    mix(serial ^ at << 48)
                }
            }
            (serial, _) => mix(serial ^ (at % 8) << 48),
        }
    }
}

/// Where a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `mmap`.
    Mapped,
    /// `malloc`.
    Allocated,
}

/// A wrong word.
#[derive(Debug)]
pub struct Damage {
    /// Page of the block.
    pub page: usize,
    /// Word of the page.
    pub word: usize,
    /// What is there.
    pub found: u64,
    /// What was written.
    pub expected: u64,
}

/// See the module. Belongs to one thread.
pub struct Block {
    start: *mut u8,
    pages: usize,
    /// Where it came from.
    pub source: Source,
    expected: *mut Expected,
}

fn map(bytes: usize) -> *mut u8 {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping; nothing that exists is touched.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, flags, -1, 0) };
    assert!(address != libc::MAP_FAILED, "mmap of {bytes} bytes: {}", std::io::Error::last_os_error());
    address.cast()
}

const EXPECTED_BYTES: usize = *PAGES.end() * size_of::<Expected>();

impl Block {
    /// A new one: zeros if mapped; an allocated one is written with `serials` at once.
    pub fn new(source: Source, pages: usize, serials: &mut dyn FnMut() -> u64) -> Block {
        let start = match source {
            Source::Mapped => map(pages * PAGE),
            // SAFETY: any size may be asked for.
            Source::Allocated => unsafe { libc::malloc(pages * PAGE).cast::<u8>() },
        };
        assert!(!start.is_null(), "malloc of {pages} pages failed");
        let mut block = Block { start, pages, source, expected: map(EXPECTED_BYTES).cast() };
        if source == Source::Allocated {
            (0..pages).for_each(|page| block.write(page, serials()));
        }
        block
    }

    /// How many pages it has.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Where a page is.
    pub fn address(&self, page: usize) -> *mut libc::c_void {
        assert!(page <= self.pages);
        // SAFETY: within the block, or its end.
        unsafe { self.start.add(page * PAGE).cast() }
    }

    fn expected(&mut self) -> &mut [Expected] {
        // SAFETY: the mapping has room for the most pages, and zeros are valid.
        unsafe { std::slice::from_raw_parts_mut(self.expected, *PAGES.end()) }
    }

    fn words(&mut self, page: usize) -> &mut [u64] {
        // SAFETY: a page of the block, which belongs to this thread; both sources align to 16 bytes at least.
        unsafe { std::slice::from_raw_parts_mut(self.address(page).cast(), WORDS) }
    }

    /// Writes a page as a whole. `serial` is not 0.
    pub fn write(&mut self, page: usize, serial: u64) {
        let expected = Expected { serial, stamp: 0 };
        self.expected()[page] = expected;
        self.words(page).iter_mut().enumerate().for_each(|(index, word)| *word = expected.word(index));
    }

    /// Writes the first word of a page. `stamp` is not 0.
    pub fn stamp(&mut self, page: usize, stamp: u64) {
        self.expected()[page].stamp = stamp;
        self.words(page)[0] = stamp;
    }

    /// Compares each word of a page.
    pub fn check(&mut self, page: usize) -> Result<(), Damage> {
        let expected = self.expected()[page];
        for (word, found) in self.words(page).iter().enumerate() {
            if *found != expected.word(word) {
                return Err(Damage { page, word, found: *found, expected: expected.word(word) });
            }
        }
        Ok(())
    }

    /// Gives pages of a mapped block up: they read as zeros.
    pub fn discard(&mut self, first: usize, count: usize) {
        self.expected()[first..first + count].fill(Expected::default());
        self.advise(first, count, libc::MADV_DONTNEED);
    }

    /// madvise(2), for a mapped block.
    pub fn advise(&mut self, first: usize, count: usize, advice: i32) {
        // SAFETY: pages of the block; what is lost is expected to be.
        let done = unsafe { libc::madvise(self.address(first), count * PAGE, advice) };
        assert!(done == 0, "madvise {advice}: {}", std::io::Error::last_os_error());
    }

    /// Changes the size, moving the block if need be. New pages of a mapped block are zeros; those of an allocated one
    /// are written.
    pub fn resize(&mut self, pages: usize, serials: &mut dyn FnMut() -> u64) {
        // SAFETY: the block is given up for the new one.
        let start = unsafe {
            match self.source {
                Source::Mapped => {
                    libc::mremap(self.start.cast(), self.pages * PAGE, pages * PAGE, libc::MREMAP_MAYMOVE)
                }
                Source::Allocated => libc::realloc(self.start.cast(), pages * PAGE),
            }
        };
        let error = std::io::Error::last_os_error();
        assert!(!start.is_null() && start != libc::MAP_FAILED, "resizing: {error}");
        let before = std::mem::replace(&mut self.pages, pages);
        self.start = start.cast();
        self.expected()[before.min(pages)..].fill(Expected::default());
        if self.source == Source::Allocated {
            (before..pages).for_each(|page| self.write(page, serials()));
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block and its expectations are given back where they came from, once.
        unsafe {
            match self.source {
                Source::Mapped => _ = libc::munmap(self.start.cast(), self.pages * PAGE),
                Source::Allocated => libc::free(self.start.cast()),
            }
            libc::munmap(self.expected.cast(), EXPECTED_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_damage_is_seen() {
        let mut next = 0;
        let mut serials = || {
            next += 1;
            next
        };
        for source in [Source::Mapped, Source::Allocated] {
            let mut block = Block::new(source, 40, &mut serials);
            assert!((0..40).all(|page| block.check(page).is_ok()));
            // Contents of all four kinds.
            (100..140).for_each(|serial| block.write(serial as usize - 100, serial));
            block.stamp(7, 99);
            block.resize(200, &mut serials);
            block.resize(60, &mut serials);
            assert!((0..60).all(|page| block.check(page).is_ok()));
            for page in [0, 7, 20, 39] {
                let old = std::mem::replace(&mut block.words(page)[0], 0x1234);
                assert_eq!(block.check(page).map_err(|damage| (damage.word, damage.found)), Err((0, 0x1234)));
                block.words(page)[0] = old;
                block.words(page)[511] ^= 1 << 40;
                assert_eq!(block.check(page).map_err(|damage| (damage.page, damage.word)), Err((page, 511)));
                block.words(page)[511] ^= 1 << 40;
                // Zeros, and what was there before.
                let whole = block.words(page).to_vec();
                block.words(page).fill(0);
                assert!(block.check(page).is_err());
                block.words(page).copy_from_slice(&whole);
                block.write(page, 1000 + page as u64);
                block.words(page).copy_from_slice(&whole);
                assert!(block.check(page).is_err(), "page {page}: older contents");
                block.write(page, 2000 + page as u64);
            }
            if source == Source::Mapped {
                block.discard(3, 5);
                assert!((0..60).all(|page| block.check(page).is_ok()));
                block.words(4)[100] = 1;
                assert!(block.check(4).is_err());
            }
        }
    }
}
