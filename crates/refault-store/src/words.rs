//! Pages of words most of whose bytes are zero, stored without those bytes.
//!
//! Arrays of numbers are often such: counts in eight bytes each, measured figures as doubles, sparse data. LZ4 finds a
//! match for each of their words, which takes several times as long and leaves more. A page is stored as bits that say
//! which words are not zero. For each of those words there are bits that say which of its bytes are not zero, and those
//! bytes.
//!
//! Not for words that repeat, near each other, more often than not: there LZ4 leaves next to nothing.
//!
//! Invariants: what [`encode`] gives is at most [`LIMIT`] long and decodes to the page; [`decode`] refuses what is not
//! exactly as long as it says. Nothing is allocated. Cost: some 0.3 µs to look at a page, 0.4 to encode it, 0.3 to decode
//! it, on a busy machine.

use crate::{PAGE_SIZE, Page};

pub(crate) const WORDS: usize = PAGE_SIZE / 8;
/// Bytes of the bits that say which words are not zero.
const BITS: usize = WORDS / 8;
/// Longer ones are left to LZ4.
pub(crate) const LIMIT: usize = PAGE_SIZE * 3 / 8;
/// How far apart words are compared.
const NEAR: usize = 4;
/// Words in a row that must come again to be taken for the beginning of a record, and how long records may be, in words.
const ALIKE: usize = 4;
const MAX_PERIOD: usize = 256;

pub(crate) fn words(page: &Page) -> &[[u8; 8]; WORDS] {
    let (words, _) = page.0.as_chunks::<8>();
    words.try_into().expect("invariant: a page is whole words")
}

/// A bit for each byte of a word that is not zero.
fn mask_of(word: u64) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The highest bit of each byte, then all of them next to each other.
    let high = (((word & LOW) + LOW) | word) & !LOW;
    ((high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Bytes that a page takes, or `None` if it is not of this kind.
fn length(page: &Page, bits: &mut [u64; WORDS / 64]) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { shuffling::length(page, bits) };
    }
    plain_length(page, bits)
}

#[inline(always)]
fn plain_length(page: &Page, bits: &mut [u64; WORDS / 64]) -> Option<usize> {
    let mut count = 0;
    for (bits, words) in bits.iter_mut().zip(words(page).as_chunks::<64>().0) {
        *bits = 0;
        for (index, word) in words.iter().enumerate() {
            *bits |= u64::from(u64::from_ne_bytes(*word) != 0) << index;
        }
        count += bits.count_ones() as usize;
    }
    // In pieces whose counts fit a byte, which the compiler makes use of.
    let piece = |piece: &[u8; 128]| usize::from(piece.iter().map(|byte| u8::from(*byte != 0)).sum::<u8>());
    let bytes: usize = page.0.as_chunks::<128>().0.iter().map(piece).sum();
    let length = BITS + count + bytes;
    if length > LIMIT {
        return None;
    }
    (!plain_repeat_often(page, count)).then_some(length)
}

/// Whether words repeat near each other, or in records one after the other, more often than not: then LZ4 leaves next to
/// nothing.
pub(crate) fn repeat_often(page: &Page) -> bool {
    let count = words(page).iter().filter(|word| **word != [0; 8]).count();
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { shuffling::repeat_often(page, count) };
    }
    plain_repeat_often(page, count)
}

/// The same, with the number of words that are not zero.
#[inline(always)]
fn plain_repeat_often(page: &Page, count: usize) -> bool {
    let word = |word: &[u8; 8]| u64::from_le_bytes(*word);
    let words = words(page);
    let repeats = |apart: usize| {
        let pairs = words[apart..].iter().zip(words.iter());
        pairs.map(|(a, b)| u64::from((word(a) == word(b)) & (word(a) != 0))).sum::<u64>()
    };
    let often = |apart: usize| repeats(apart) * 2 > count as u64;
    (1..=NEAR).any(often) || period(words).is_some_and(often)
}

/// How far apart some words stand that come again later in the page, at the nearest: of records one after the other, how long
/// one is.
#[inline(always)]
fn period(words: &[[u8; 8]; WORDS]) -> Option<usize> {
    let from = (WORDS / 8..WORDS).find(|at| words[*at] != [0; 8])?;
    let most = MAX_PERIOD.min(WORDS.checked_sub(from + ALIKE)?);
    (NEAR + 1..=most).find(|apart| words[from..][..ALIKE] == words[from + apart..][..ALIKE])
}

/// Encodes a page into `output`, if it is of this kind, takes less than `below`, and there is room; how long it is then.
pub(crate) fn encode(page: &Page, below: usize, output: &mut [u8]) -> Option<usize> {
    let mut bits = [0; WORDS / 64];
    let length = length(page, &mut bits)?;
    // Words are written whole, so that some bytes behind the last are.
    if length >= below || output.len() < length + 8 {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has what the function is compiled for.
        unsafe { shuffling::encode(page, &bits, output) };
        return Some(length);
    }
    encode_with(page, &bits, output, squeeze);
    Some(length)
}

/// Decodes into a page; false if these are not the bytes of a page.
pub(crate) fn decode(bytes: &[u8], page: &mut Page) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { shuffling::decode(bytes, page) };
    }
    decode_with(bytes, page, spread)
}

/// The bytes of a word that a mask names, next to each other; all others are zero.
fn squeeze(word: u64, mask: u8) -> u64 {
    let (mut squeezed, mut at) = (0, 0);
    for byte in 0..8 {
        // At most as far as the byte lies.
        squeezed |= (word >> (8 * byte) & 0xff) << at;
        at += u32::from(mask >> byte & 1) * 8;
        at = at.min(56);
    }
    squeezed
}

/// The opposite.
fn spread(squeezed: u64, mask: u8) -> u64 {
    let (mut word, mut rest) = (0, squeezed);
    for byte in 0..8 {
        let there = u32::from(mask >> byte & 1);
        word |= (rest & (0xff * u64::from(there))) << (8 * byte);
        rest >>= 8 * there;
    }
    word
}

/// `squeeze`: the bytes of a word that the mask names, next to each other; what lies behind them does not matter.
#[inline(always)]
fn encode_with(page: &Page, bits: &[u64; WORDS / 64], output: &mut [u8], squeeze: impl Fn(u64, u8) -> u64) {
    let words = words(page);
    let (mut mask_at, mut at) = (BITS, BITS);
    for (index, set) in bits.iter().enumerate() {
        output[index * 8..][..8].copy_from_slice(&set.to_le_bytes());
        at += set.count_ones() as usize;
    }
    for (index, set) in bits.iter().enumerate() {
        let mut set = *set;
        while set != 0 {
            let word = u64::from_le_bytes(words[index * 64 + set.trailing_zeros() as usize]);
            set &= set - 1;
            let mask = mask_of(word);
            output[mask_at] = mask;
            mask_at += 1;
            output[at..at + 8].copy_from_slice(&squeeze(word, mask).to_le_bytes());
            at += mask.count_ones() as usize;
        }
    }
}

/// `spread`: the opposite, zeros between them.
#[inline(always)]
fn decode_with(bytes: &[u8], page: &mut Page, spread: impl Fn(u64, u8) -> u64) -> bool {
    let Some((bits, rest)) = bytes.split_at_checked(BITS) else { return false };
    let sets = bits.as_chunks::<8>().0;
    let count: usize = sets.iter().map(|set| u64::from_le_bytes(*set).count_ones() as usize).sum();
    let Some((masks, data)) = rest.split_at_checked(count) else { return false };
    if masks.iter().map(|mask| mask.count_ones() as usize).sum::<usize>() != data.len() {
        return false;
    }
    page.0.fill(0);
    let (words, _) = page.0.as_chunks_mut::<8>();
    let (mut at, mut masks) = (0, masks.iter());
    for (words, set) in words.as_chunks_mut::<64>().0.iter_mut().zip(sets) {
        let mut set = u64::from_le_bytes(*set);
        while set != 0 {
            let place = set.trailing_zeros() as usize;
            set &= set - 1;
            let mask = *masks.next().expect("invariant: as many as bits");
            let squeezed = match data[at..].first_chunk::<8>() {
                Some(whole) => u64::from_le_bytes(*whole),
                // The last ones.
                None => data[at..].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            };
            at += mask.count_ones() as usize;
            words[place] = spread(squeezed, mask).to_le_bytes();
        }
    }
    true
}

/// The same with one instruction for each word, or for several.
#[cfg(target_arch = "x86_64")]
mod shuffling {
    use std::arch::x86_64::{__m128i, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_shuffle_epi8};

    use super::{Page, WORDS};

    /// For each mask where each byte comes from. Numbers from 128 on stand for zero.
    const SQUEEZE: [[u8; 8]; 256] = table(true);
    const SPREAD: [[u8; 8]; 256] = table(false);

    const fn table(squeeze: bool) -> [[u8; 8]; 256] {
        let mut table = [[0x80; 8]; 256];
        let mut mask = 0;
        while mask < 256 {
            let (mut byte, mut at) = (0, 0);
            while byte < 8 {
                if mask >> byte & 1 != 0 {
                    if squeeze {
                        table[mask][at] = byte as u8;
                    } else {
                        table[mask][byte] = at as u8;
                    }
                    at += 1;
                }
                byte += 1;
            }
            mask += 1;
        }
        table
    }

    #[target_feature(enable = "ssse3")]
    fn shuffle(word: u64, order: [u8; 8]) -> u64 {
        let vector = |word: u64| -> __m128i { _mm_cvtsi64_si128(word as i64) };
        _mm_cvtsi128_si64(_mm_shuffle_epi8(vector(word), vector(u64::from_le_bytes(order)))) as u64
    }

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn length(page: &Page, bits: &mut [u64; WORDS / 64]) -> Option<usize> {
        super::plain_length(page, bits)
    }

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn repeat_often(page: &Page, count: usize) -> bool {
        super::plain_repeat_often(page, count)
    }

    #[target_feature(enable = "ssse3,popcnt")]
    pub(super) fn encode(page: &Page, bits: &[u64; WORDS / 64], output: &mut [u8]) {
        super::encode_with(page, bits, output, |word, mask| shuffle(word, SQUEEZE[usize::from(mask)]));
    }

    #[target_feature(enable = "ssse3,popcnt")]
    pub(super) fn decode(bytes: &[u8], page: &mut Page) -> bool {
        super::decode_with(bytes, page, |squeezed, mask| shuffle(squeezed, SPREAD[usize::from(mask)]))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Scratch;
    use crate::codec::Codec;
    use proptest::prelude::*;

    pub(crate) fn page_of(word: impl FnMut(usize) -> u64) -> Page {
        let mut page = Page::ZERO;
        page.0.as_chunks_mut::<8>().0.iter_mut().zip((0..).map(word)).for_each(|(to, word)| *to = word.to_le_bytes());
        page
    }

    pub(crate) fn random(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        }
    }

    #[test]
    fn numbers_take_less_than_by_lz4() {
        let mut next = random(1);
        let mut number = || if next().is_multiple_of(3) { next() >> 20 } else { 0 };
        let counts = page_of(|_| number() % 1000);
        let mut next = random(2);
        let doubles = page_of(|_| if next().is_multiple_of(2) { ((next() % 5000) as f64).to_bits() } else { 0 });
        let mut scratch = Scratch::new();
        for page in [counts, doubles] {
            let (codec, lz4) = scratch.compress(&page, Codec::Lz4);
            assert_eq!(codec, Codec::Lz4);
            let lz4 = lz4.len();
            let (codec, bytes) = scratch.compress(&page, Codec::Words);
            assert_eq!(codec, Codec::Words);
            assert!(bytes.len() < lz4, "{} bytes, {lz4} by LZ4", bytes.len());
        }
    }

    #[test]
    fn what_lz4_does_better_is_left_to_it() {
        let mut scratch = Scratch::new();
        let mut next = random(3);
        let text: Vec<u8> = (0..PAGE_SIZE).map(|_| b'a' + (next() % 20) as u8).collect();
        let dense = Page(text.try_into().expect("a page"));
        // Records of several words that are the same again and again.
        let values: Vec<u64> =
            (0..256).map(|_| if next().is_multiple_of(3) { next() % 90_000 + 1 } else { 0 }).collect();
        for period in [2, 3, 4, 5, 6, 8, 11, 16, 64, 100, 200] {
            let repeated =
                page_of(|index| [7, 300, 0, 90_000].get(index % period).copied().unwrap_or(values[index % period]));
            assert_eq!(scratch.compress(&repeated, Codec::Words).0, Codec::Lz4, "{period}");
        }
        assert_ne!(scratch.compress(&dense, Codec::Words).0, Codec::Words);
    }

    #[test]
    fn what_is_not_as_long_as_it_says_is_refused() {
        let mut output = vec![0; PAGE_SIZE];
        let page = page_of(|index| if index % 3 == 0 { index as u64 * 77 } else { 0 });
        let len = encode(&page, PAGE_SIZE, &mut output).expect("numbers");
        let mut back = Page::ZERO;
        assert!(decode(&output[..len], &mut back) && back.0 == page.0);
        for wrong in (0..len).chain([len + 1, len + 8]) {
            assert!(!decode(&output[..wrong], &mut back), "{wrong} of {len} bytes");
        }
        assert!(encode(&page, PAGE_SIZE, &mut output[..len + 7]).is_none());
        assert!(encode(&page, len, &mut output).is_none());
    }

    proptest! {
        /// With and without the processor's help, whatever bytes are zero.
        #[test]
        fn pages_come_back_by_either_way(seed: u64, words in 0u64..200, bytes in 1u32..=8, at_end: bool) {
            let mut next = random(seed);
            let page = page_of(|index| {
                let there = next() % 512 < words || at_end && index == WORDS - 1;
                let keep = next() & next();
                // Some bytes, anywhere in the word.
                let bytes = (0..8).filter(|byte| byte % 8 < bytes).fold(0, |mask, byte| mask | 0xff << (8 * byte));
                if there { (keep & bytes).rotate_left((next() % 8 * 8) as u32) } else { 0 }
            });
            let (mut bits, mut plain_bits) = ([0; WORDS / 64], [1; WORDS / 64]);
            let found = length(&page, &mut bits);
            prop_assert_eq!(plain_length(&page, &mut plain_bits), found);
            prop_assert_eq!(bits, plain_bits);
            if let Some(length) = found {
                let mut output = vec![0xa5; PAGE_SIZE];
                prop_assert_eq!(encode(&page, PAGE_SIZE, &mut output), Some(length));
                let mut plain = vec![0x5a; PAGE_SIZE];
                encode_with(&page, &bits, &mut plain, squeeze);
                prop_assert_eq!(&output[..length], &plain[..length]);
                for way in 0..2 {
                    let mut back = Page([0xa5; PAGE_SIZE]);
                    let bytes = &output[..length];
                    let decoded = if way == 0 { decode(bytes, &mut back) } else { decode_with(bytes, &mut back, spread) };
                    prop_assert!(decoded);
                    prop_assert!(back.0 == page.0);
                }
            }
        }
    }
}
