//! Sets of page numbers, and the rank of a number in its set.
//!
//! Invariant: a chunk covers [`CHUNK_PAGES`] numbers from a multiple of that on; it is there if one of them is in the
//! set. Cost: 64 bytes per chunk while the set is made, 128 more once ranks are asked for; a number below 2^29 is found
//! by index, one above by a hash of its chunk.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;

/// Page numbers that a chunk covers.
const CHUNK_PAGES: u64 = 1 << 9;
const CHUNK_WORDS: usize = (CHUNK_PAGES / 64) as usize;
/// Chunks found by index rather than by hash: page numbers below 2^29, 2 TiB of addresses.
const MAX_DIRECT_CHUNKS: usize = 1 << 20;

/// Where the chunks are: numbers of chunks to places in a vector, which are given out in order.
#[derive(Debug, Default)]
struct Chunks {
    /// Place plus one; 0 where there is no chunk.
    direct: Vec<u32>,
    far: HashMap<u64, u32, FixedState>,
    count: u32,
}

impl Chunks {
    #[inline]
    fn place(&self, chunk: u64) -> Option<usize> {
        if chunk < MAX_DIRECT_CHUNKS as u64 {
            let place = *self.direct.get(chunk as usize)?;
            (place != 0).then(|| place as usize - 1)
        } else {
            self.far.get(&chunk).map(|&place| place as usize)
        }
    }

    /// The place of a chunk that has none.
    fn add(&mut self, chunk: u64) -> usize {
        let place = self.count;
        self.count += 1;
        if chunk < MAX_DIRECT_CHUNKS as u64 {
            let chunk = chunk as usize;
            if self.direct.len() <= chunk {
                self.direct.resize(chunk + 1, 0);
            }
            self.direct[chunk] = place + 1;
        } else {
            self.far.insert(chunk, place);
        }
        place as usize
    }

    /// Chunks and their places, ascending.
    fn sorted(&self) -> Vec<(u64, usize)> {
        let direct = self.direct.iter().enumerate().filter(|(_, place)| **place != 0);
        let mut chunks: Vec<_> = direct.map(|(chunk, &place)| (chunk as u64, place as usize - 1)).collect();
        let direct = chunks.len();
        chunks.extend(self.far.iter().map(|(&chunk, &place)| (chunk, place as usize)));
        chunks[direct..].sort_unstable();
        chunks
    }
}

/// The page numbers of one type that a trace has.
#[derive(Debug, Default)]
pub(super) struct PageSet {
    chunks: Chunks,
    /// A bit per number.
    bits: Vec<u64>,
    distinct: u64,
    min: u64,
    max: u64,
    /// What the mapping is known to cover beyond the pages accessed.
    covers: Option<Range<u64>>,
}

impl PageSet {
    pub(super) fn distinct(&self) -> u64 {
        self.distinct
    }

    /// Says what the mapping covers, whether it is accessed or not.
    pub(super) fn cover(&mut self, pages: Range<u64>) {
        self.covers = (!pages.is_empty()).then_some(pages);
    }

    /// Lowest page number, and the one after the last, of the mapping. The set must not be empty.
    pub(super) fn span(&self) -> Range<u64> {
        let accessed = self.min..self.max + 1;
        match &self.covers {
            Some(covers) => covers.start.min(accessed.start)..covers.end.max(accessed.end),
            None => accessed,
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, page: u64) {
        let chunk = page / CHUNK_PAGES;
        let place = match self.chunks.place(chunk) {
            Some(place) => place,
            None => self.grow(chunk),
        };
        let word = &mut self.bits[place * CHUNK_WORDS + (page % CHUNK_PAGES / 64) as usize];
        let bit = 1u64 << (page % 64);
        if *word & bit == 0 {
            *word |= bit;
            if self.distinct == 0 || page < self.min {
                self.min = page;
            }
            self.max = self.max.max(page);
            self.distinct += 1;
        }
    }

    /// Takes in the neighbours of each number of the set: those from `before` below it, and up to `after` above it. None
    /// lies below the beginning of its file, which is a multiple of `file`, or above the file's last number in the set.
    pub(super) fn add_neighbours(&mut self, before: u64, after: u64, file: u64) {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut last = None;
        for page in self.numbers() {
            let first = page.saturating_sub(before).max(page / file * file);
            if last.is_some_and(|last: u64| last / file != page / file) {
                end_at(&mut runs, last);
            }
            match runs.last_mut() {
                Some(run) if first <= run.end => run.end = page + after + 1,
                _ => runs.push(first..page + after + 1),
            }
            last = Some(page);
        }
        end_at(&mut runs, last);
        runs.into_iter().flatten().for_each(|page| self.insert(page));
    }

    /// All numbers, ascending.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        self.chunks.sorted().into_iter().flat_map(move |(chunk, place)| {
            (0..CHUNK_PAGES).filter_map(move |at| {
                let word = self.bits[place * CHUNK_WORDS + (at / 64) as usize];
                (word >> (at % 64) & 1 != 0).then_some(chunk * CHUNK_PAGES + at)
            })
        })
    }

    #[cold]
    fn grow(&mut self, chunk: u64) -> usize {
        self.bits.resize(self.bits.len() + CHUNK_WORDS, 0);
        self.chunks.add(chunk)
    }

    /// All numbers, ascending, and what finds their ranks.
    pub(super) fn into_ranks(self) -> (Vec<u64>, Ranks) {
        let mut words: Vec<Word> = self.bits.iter().map(|&bits| Word { bits, before: 0 }).collect();
        let mut pages = Vec::with_capacity(self.distinct as usize);
        for (chunk, place) in self.chunks.sorted() {
            for (index, word) in words[place * CHUNK_WORDS..][..CHUNK_WORDS].iter_mut().enumerate() {
                word.before = pages.len() as u32;
                let mut bits = word.bits;
                while bits != 0 {
                    pages.push(chunk * CHUNK_PAGES + index as u64 * 64 + u64::from(bits.trailing_zeros()));
                    bits &= bits - 1;
                }
            }
        }
        (pages, Ranks { chunks: self.chunks, words })
    }
}

/// Ends the last run of a file with its last number.
fn end_at(runs: &mut [Range<u64>], last: Option<u64>) {
    if let (Some(run), Some(last)) = (runs.last_mut(), last) {
        run.end = last + 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct Word {
    bits: u64,
    /// Numbers of the set below those of this word, modulo 2^32: sets with more have no layout.
    before: u32,
}

/// How many numbers of a set are lower than a given one.
#[derive(Debug)]
pub(super) struct Ranks {
    chunks: Chunks,
    words: Vec<Word>,
}

impl Ranks {
    /// The rank of a number; `None` if it is not in the set.
    #[inline]
    pub(super) fn rank(&self, page: u64) -> Option<u32> {
        let place = self.chunks.place(page / CHUNK_PAGES)?;
        let word = self.words[place * CHUNK_WORDS + (page % CHUNK_PAGES / 64) as usize];
        let bit = 1u64 << (page % 64);
        (word.bits & bit != 0).then(|| word.before + (word.bits & (bit - 1)).count_ones())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Numbers near each other, at the ends of words and chunks, and on both sides of where hashing begins.
    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        let far = MAX_DIRECT_CHUNKS as u64 * CHUNK_PAGES;
        let base = prop::sample::select(vec![0, CHUNK_PAGES, 70 * CHUNK_PAGES, far - CHUNK_PAGES, far, 1 << 50]);
        let near = prop_oneof![0..200u64, CHUNK_PAGES - 70..CHUNK_PAGES + 70, Just(1 << 55)];
        prop::collection::vec((base, near).prop_map(|(base, near)| base + near), 1..400)
    }

    proptest! {
        #[test]
        fn ranks_are_those_of_a_sorted_set(inserted in numbers(), asked in numbers()) {
            let mut set = PageSet::default();
            inserted.iter().for_each(|&page| set.insert(page));
            let model: BTreeSet<u64> = inserted.iter().copied().collect();
            let (first, last) = (*model.first().unwrap(), *model.last().unwrap());
            prop_assert_eq!((set.distinct(), set.span()), (model.len() as u64, first..last + 1));
            let (pages, ranks) = set.into_ranks();
            prop_assert_eq!(&pages, &model.iter().copied().collect::<Vec<_>>());
            for page in asked.into_iter().chain(inserted) {
                let rank = model.contains(&page).then(|| model.range(..page).count() as u32);
                prop_assert_eq!(ranks.rank(page), rank, "page {}", page);
            }
        }
    }
}
