//! Compression of one page: LZ4 for what may come back soon, zstd for what stays cold. Arrays of numbers are stored as
//! words without their zero bytes, or without the bytes that are the same in all.
//!
//! Invariants: nothing is allocated after [`Scratch::new`], nor after [`Scratch::lean`] but zstd's tables; the output of either codec is at most one page, otherwise
//! the page is kept raw. Cost on 4 KiB: LZ4 some 3–8 µs in, 1 µs out; words some 0.7 µs in, 0.3 out, columns 2 and 0.6; zstd (level 1) two to three times that for a
//! quarter to a half less space.
//!
//! ```
//! use refault_store::codec::Codec;
//! use refault_store::{Page, Scratch};
//!
//! let mut scratch = Scratch::new();
//! let page = Page([7; 4096]);
//! let (codec, bytes) = scratch.compress(&page, Codec::Lz4);
//! let bytes = bytes.to_vec();
//! assert!(bytes.len() < 100);
//! let mut back = Page::ZERO;
//! assert!(scratch.decompress(codec, &bytes, &mut back) && back.0 == page.0);
//! ```

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};

use crate::columns::{self, Columns};
use crate::zstd::Zstd;
use crate::{PAGE_SIZE, Page, words};

/// How an object is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// As it is.
    Raw = 0,
    /// An LZ4 block.
    Lz4 = 1,
    /// A zstd frame.
    Zstd = 2,
    /// Words without their zero bytes. What is not of this kind becomes [`Codec::Columns`], or an LZ4 block.
    Words = 3,
    /// Words without the bytes that are the same in all. To ask for it is to ask for [`Codec::Words`].
    Columns = 4,
}

impl Codec {
    pub(crate) fn from_byte(byte: u8) -> Option<Codec> {
        match byte {
            0 => Some(Codec::Raw),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Zstd),
            3 => Some(Codec::Words),
            4 => Some(Codec::Columns),
            _ => None,
        }
    }
}

/// A codec's output larger than this is not worth its decompression: the page is kept raw.
const WORTH_IT: usize = PAGE_SIZE * 7 / 8;

/// The tables and buffers that one thread compresses and decompresses with. Some 200 KiB.
pub struct Scratch {
    table: CompressTable,
    zstd: Zstd,
    output: Box<[u8]>,
}

impl Scratch {
    /// Allocates everything that [`Scratch`] ever needs.
    pub fn new() -> Scratch {
        let mut scratch = Scratch::lean();
        scratch.zstd.prepare();
        scratch
    }

    /// Leaves what zstd needs, which is most, until it is first used, and is for who can allocate then.
    pub fn lean() -> Scratch {
        let most = lz4_flex::block::get_maximum_output_size(PAGE_SIZE).max(crate::zstd::MAX_FRAME);
        Scratch { table: CompressTable::small(), zstd: Zstd::default(), output: vec![0; most].into_boxed_slice() }
    }

    /// Compresses a page and returns the codec that was worth using and its output.
    pub fn compress<'a>(&'a mut self, page: &'a Page, wanted: Codec) -> (Codec, &'a [u8]) {
        let numbers = matches!(wanted, Codec::Words | Codec::Columns);
        let columns = numbers.then(|| Columns::of(page)).flatten();
        if numbers {
            let below = columns.map_or(PAGE_SIZE, Columns::len);
            if let Some(len) = words::encode(page, below, &mut self.output) {
                return (Codec::Words, &self.output[..len]);
            }
        }
        if let Some(columns) = columns.filter(|columns| columns.is_sure(page)) {
            let len = columns.encode(page, &mut self.output);
            return (Codec::Columns, &self.output[..len]);
        }
        let wanted = if numbers { Codec::Lz4 } else { wanted };
        let len = match wanted {
            Codec::Raw | Codec::Words | Codec::Columns => None,
            Codec::Lz4 => compress_into_with_table(&page.0, &mut self.output, &mut self.table).ok(),
            Codec::Zstd => self.zstd.compress(page, &mut self.output),
        };
        match (len, columns) {
            (len, Some(columns)) if len.is_none_or(|len| columns.len() < len) => {
                let len = columns.encode(page, &mut self.output);
                (Codec::Columns, &self.output[..len])
            }
            (Some(len), _) if len <= WORTH_IT => (wanted, &self.output[..len]),
            _ => (Codec::Raw, &page.0),
        }
    }

    /// Decompresses into `page`; false if the bytes are not a whole page in this encoding.
    pub fn decompress(&mut self, codec: Codec, bytes: &[u8], page: &mut Page) -> bool {
        match codec {
            Codec::Raw => {
                if bytes.len() != PAGE_SIZE {
                    return false;
                }
                page.0.copy_from_slice(bytes);
                true
            }
            Codec::Lz4 => decompress_into(bytes, &mut page.0).is_ok_and(|len| len == PAGE_SIZE),
            Codec::Zstd => self.zstd.decompress(bytes, page),
            Codec::Words => words::decode(bytes, page),
            Codec::Columns => columns::decode(bytes, page),
        }
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A page between constant and random: `noise` of 16 words are random.
    pub(crate) fn sample_page(seed: u64, noise: u64) -> Page {
        let mut page = Page::ZERO;
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for (index, chunk) in page.0.chunks_exact_mut(8).enumerate() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let word = if (state >> 60) < noise { state } else { seed.wrapping_add(index as u64 / 64) };
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        page
    }

    proptest! {
        #[test]
        fn all_codecs_return_the_page(seed: u64, noise in 0u64..=16, which in 0usize..3) {
            let mut scratch = Scratch::new();
            let page = sample_page(seed, noise);
            let wanted = [Codec::Lz4, Codec::Zstd, Codec::Words][which];
            let (codec, bytes) = scratch.compress(&page, wanted);
            prop_assert!(bytes.len() <= PAGE_SIZE);
            prop_assert_eq!(codec == Codec::Raw, bytes.len() == PAGE_SIZE);
            let bytes = bytes.to_vec();
            let mut back = Page([0xa5; PAGE_SIZE]);
            prop_assert!(scratch.decompress(codec, &bytes, &mut back));
            prop_assert!(back.0 == page.0);
        }

        #[test]
        fn garbage_is_refused_or_decoded_but_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..5000), which in 0usize..4) {
            let mut page = Page::ZERO;
            Scratch::new().decompress([Codec::Lz4, Codec::Zstd, Codec::Words, Codec::Columns][which], &bytes, &mut page);
        }
    }
}
