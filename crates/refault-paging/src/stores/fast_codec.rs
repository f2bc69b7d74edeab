//! Which of the two fast codecs suits a process: words without the bytes that say nothing ([`Codec::Words`],
//! [`Codec::Columns`]), or LZ4.
//!
//! Words are several times as fast, and leave less of arrays of numbers. Of heaps whose objects are alike and mostly
//! zero LZ4 leaves half as much, and one cannot tell from a page alone which it is. So one page in [`TRIED`] of those
//! that are stored is compressed both ways, and what both have left of late decides.
//!
//! Cost: two compressions of one page in [`TRIED`].

use refault_store::codec::Codec;
use refault_store::{Page, Scratch};

/// One page in this many is tried.
const TRIED: u32 = 16;

/// Eighths of what LZ4 leaves that words may leave, for they are faster.
const WORTH: u64 = 9;

/// When words have left this many bytes, both counts are halved, so that what is old counts less.
const REMEMBERED: u64 = 256 * 1024;

/// What both have left.
#[derive(Default)]
pub(super) struct FastCodec {
    pages: u32,
    words: u64,
    lz4: u64,
}

impl FastCodec {
    /// The codec for a page, to be compressed next.
    pub(super) fn choose(&mut self, page: &Page, scratch: &mut Scratch) -> Codec {
        if self.pages.is_multiple_of(TRIED)
            && let (Codec::Words | Codec::Columns, words) = scratch.compress(page, Codec::Words)
        {
            self.words += words.len() as u64;
            self.lz4 += scratch.compress(page, Codec::Lz4).1.len() as u64;
            if self.words > REMEMBERED {
                (self.words, self.lz4) = (self.words / 2, self.lz4 / 2);
            }
        }
        self.pages = self.pages.wrapping_add(1);
        if self.words * 8 <= self.lz4 * WORTH { Codec::Words } else { Codec::Lz4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(random: &mut u64) -> u64 {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *random >> 40
    }

    /// Objects of 96 bytes, of eight kinds in no order: five words each, alike in all of a kind.
    fn objects(seed: usize) -> Page {
        let (mut page, mut random) = (Page::ZERO, seed as u64);
        for object in page.0.as_chunks_mut::<96>().0 {
            let kind = next(&mut random) % 8;
            for at in [0, 2, 3, 7, 9] {
                object[at * 8..][..8].copy_from_slice(&(0x0101_0101 * (kind + 1) + at as u64).to_le_bytes());
            }
        }
        page
    }

    /// Whole numbers below 1000 in 8 bytes each, three in four of them 0.
    fn numbers(seed: usize) -> Page {
        let (mut page, mut random) = (Page::ZERO, seed as u64);
        for word in page.0.as_chunks_mut::<8>().0 {
            let there = next(&mut random).is_multiple_of(4);
            *word = (next(&mut random) % 1000 * u64::from(there)).to_le_bytes();
        }
        page
    }

    #[test]
    fn what_leaves_less_is_taken_and_a_change_is_noticed() {
        let (mut fast, mut scratch) = (FastCodec::default(), Scratch::new());
        assert_eq!([objects(1), numbers(1)].map(|page| scratch.compress(&page, Codec::Words).0), [Codec::Words; 2]);
        let mut share = |page: fn(usize) -> Page, pages: usize| {
            let chosen = (0..pages).filter(|seed| fast.choose(&page(*seed), &mut scratch) == Codec::Words);
            chosen.count() as f64 / pages as f64
        };
        assert!(share(numbers, 1000) > 0.99);
        share(objects, 10_000);
        assert!(share(objects, 1000) < 0.01);
        share(numbers, 10_000);
        assert!(share(numbers, 1000) > 0.99);
    }
}
