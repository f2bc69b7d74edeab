//! Pages of words that differ in few neighbouring bytes, stored as one word and those bytes of all.
//!
//! Whole numbers in eight bytes each are such wherever they are below some 2²⁴ (indices, codes of categories, counts).
//! So are times of one day, pointers into one heap, and doubles that stand for small whole numbers. None of their bytes
//! need be zero. LZ4 finds in each word only that some bytes come again, which costs it as much as it saves: of random
//! numbers below 8 million it leaves 66 %, this 38.
//!
//! Not for words that repeat, near each other, more often than not, as in [`crate::words`].
//!
//! Invariants: what [`Columns::encode`] gives is [`Columns::len`] long and decodes to the page; [`decode`] refuses what is
//! not exactly as long as it says. Nothing is allocated. Cost: some 2 µs to look at a page and encode it, 0.6 to decode
//! it.

use crate::words::{WORDS, repeat_often, words};
use crate::{PAGE_SIZE, Page};

/// The word that all are like, the first byte in which they differ, and in how many.
const HEADER: usize = 10;

/// Words differ in at most `MAX_WIDTH` bytes: with one more a page would take more than is worth its decoding.
const MAX_WIDTH: u32 = 6;

/// Up to here LZ4 is not asked whether it leaves less: it seldom does, and takes several times as long.
const MAX_SURE: u32 = 3;

/// Where the words of a page differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    first: u32,
    width: u32,
}

impl Columns {
    /// Where the words of a page differ, if that is in few bytes.
    pub(crate) fn of(page: &Page) -> Option<Columns> {
        let words = words(page);
        let one = u64::from_le_bytes(words[0]);
        let differ = words.iter().fold(0, |differ, word| differ | (u64::from_le_bytes(*word) ^ one));
        let first = (differ.trailing_zeros() / 8).min(7);
        let width = (8 - differ.leading_zeros() / 8).saturating_sub(first);
        (width <= MAX_WIDTH).then_some(Columns { first, width })
    }

    /// Bytes that the page takes.
    pub(crate) fn len(self) -> usize {
        HEADER + WORDS * self.width as usize
    }

    /// Whether that is certainly little enough.
    pub(crate) fn is_sure(self, page: &Page) -> bool {
        self.width <= MAX_SURE && !repeat_often(page)
    }

    /// Encodes the page, for which there must be room; how long it is.
    pub(crate) fn encode(self, page: &Page, output: &mut [u8]) -> usize {
        let words = words(page);
        output[..8].copy_from_slice(&words[0]);
        (output[8], output[9]) = (self.first as u8, self.width as u8);
        let width = self.width as usize;
        let output = &mut output[HEADER..];
        for (index, word) in words.iter().enumerate() {
            let bytes = u64::from_le_bytes(*word) >> (8 * self.first);
            // Whole words, each over what is too much of the one before.
            output[index * width..][..8].copy_from_slice(&bytes.to_le_bytes());
        }
        self.len()
    }
}

/// Decodes into a page; false if these are not the bytes of a page.
pub(crate) fn decode(bytes: &[u8], page: &mut Page) -> bool {
    let Some((header, data)) = bytes.split_at_checked(HEADER) else { return false };
    let (first, width) = (usize::from(header[8]), usize::from(header[9]));
    if first > 7 || first + width > 8 || width as u32 > MAX_WIDTH || data.len() != WORDS * width {
        return false;
    }
    let mask = ((1u64 << (8 * width)) - 1) << (8 * first);
    let one = u64::from_le_bytes(*header.first_chunk().expect("invariant: longer")) & !mask;
    let (words, _) = page.0.as_chunks_mut::<8>();
    for (index, word) in words.iter_mut().enumerate() {
        let data = &data[index * width..];
        let bytes = match data.first_chunk() {
            Some(whole) => u64::from_le_bytes(*whole),
            // The last ones.
            None => data.iter().rev().fold(0, |bytes, byte| bytes << 8 | u64::from(*byte)),
        };
        *word = (bytes << (8 * first) & mask | one).to_le_bytes();
    }
    true
}

const _: () = assert!(HEADER + WORDS * MAX_WIDTH as usize + 8 <= PAGE_SIZE);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;
    use crate::codec::Codec;
    use crate::words::tests::{page_of, random};
    use proptest::prelude::*;

    #[test]
    fn indices_and_small_doubles_take_less_than_by_lz4() {
        let mut scratch = Scratch::new();
        let (mut next, mut other, mut third) = (random(1), random(2), random(3));
        let indices = page_of(|_| next() % 8_000_000);
        let doubles = page_of(|_| ((other() % 1000) as f64).to_bits());
        let pointers = page_of(|_| 0x7f31_0000_0000 + third() % (1 << 28) * 16);
        // What LZ4 leaves in hundredths of a page is in the documents.
        for (page, most, by_lz4) in [(indices, 1546, 65..=67), (doubles, 1546, 49..=51), (pointers, 2570, 80..=100)] {
            let lz4 = scratch.compress(&page, Codec::Lz4).1.len();
            assert!(by_lz4.contains(&(lz4 * 100 / PAGE_SIZE)), "{lz4} bytes by LZ4");
            let (codec, bytes) = scratch.compress(&page, Codec::Words);
            assert_eq!(codec, Codec::Columns);
            assert!(bytes.len() <= most && bytes.len() < lz4, "{} bytes, {lz4} by LZ4", bytes.len());
        }
        let same = page_of(|_| 77_000_000);
        assert_eq!(scratch.compress(&same, Codec::Words).1.len(), HEADER);
    }

    #[test]
    fn what_others_do_better_is_left_to_them() {
        let mut scratch = Scratch::new();
        let mut next = random(4);
        let repeated = page_of(|index| [7, 300, 90_000, 5][index % 4]);
        assert_eq!(scratch.compress(&repeated, Codec::Words).0, Codec::Lz4);
        // Wide, and of few kinds: tried both ways.
        let kinds =
            page_of(|_| [0x11_2233_4455, 0x22_5566_7788, 0x33_1122_3399, 0x44_2266_7711][(next() % 4) as usize]);
        assert_eq!(scratch.compress(&kinds, Codec::Words).0, Codec::Lz4);
        let sparse = page_of(|_| if next().is_multiple_of(8) { next() % 60_000 } else { 0 });
        assert_eq!(scratch.compress(&sparse, Codec::Words).0, Codec::Words);
        let noise = page_of(|_| next());
        assert_eq!(scratch.compress(&noise, Codec::Words).0, Codec::Raw);
    }

    #[test]
    fn what_is_not_as_long_as_it_says_is_refused() {
        let mut output = vec![0; PAGE_SIZE];
        let page = page_of(|index| 0x1234_0000_5678 | (index as u64 * 77) << 16);
        let columns = Columns::of(&page).expect("two bytes differ");
        let len = columns.encode(&page, &mut output);
        let mut back = Page::ZERO;
        assert!(decode(&output[..len], &mut back) && back.0 == page.0);
        for wrong in (0..len).chain([len + 1, len + 8]) {
            assert!(!decode(&output[..wrong], &mut back), "{wrong} of {len} bytes");
        }
        for (place, byte) in [(8, 7), (8, 8), (9, 1), (9, 7), (9, 255)] {
            let mut wrong = output[..len].to_vec();
            wrong[place] = byte;
            assert!(!decode(&wrong, &mut back), "byte {place} is {byte}");
        }
    }

    proptest! {
        /// Wherever the words differ, and in how many bytes, none included.
        #[test]
        fn pages_come_back(seed: u64, first in 0u32..8, width in 0u32..=8) {
            let mut next = random(seed);
            let width = width.min(8 - first);
            let mask = if width == 8 { u64::MAX } else { ((1 << (8 * width)) - 1) << (8 * first) };
            let one = next();
            let page = page_of(|_| one & !mask | next() & mask);
            let found = Columns::of(&page);
            prop_assert_eq!(found.is_some(), width <= MAX_WIDTH);
            if let Some(columns) = found {
                let mut output = vec![0xa5; PAGE_SIZE];
                let len = columns.encode(&page, &mut output);
                prop_assert_eq!(len, columns.len());
                let mut back = Page([0xa5; PAGE_SIZE]);
                prop_assert!(decode(&output[..len], &mut back));
                prop_assert!(back.0 == page.0);
            }
        }

        #[test]
        fn garbage_is_refused_or_decoded_but_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..3200), width in 0u8..10) {
            let mut page = Page::ZERO;
            if bytes.len() > 9 {
                bytes[9] = width;
                bytes[8] %= 9;
                bytes.resize(HEADER + WORDS * usize::from(width), 1);
            }
            decode(&bytes, &mut page);
        }
    }
}
