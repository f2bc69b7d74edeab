//! Where the pages of a file are, for readers that hold no lock.
//!
//! A file has a segment per 2 MiB that was ever asked for, found through two steps that grow with the file; a segment
//! has a word per page, which says where it is ([`crate::pins`]). Segments live as long as their file.
//!
//! Cost: a look-up is four loads; 4 bytes per page, and 16 per 2 MiB of file.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use refault_core::PageId;

use crate::pins::NOWHERE;

/// Pages of a file that get their numbers together: 2 MiB.
pub(crate) const SEGMENT: u32 = 512;
/// Segments of a chunk: 1 GiB of file.
const CHUNK: usize = 512;
/// Chunks are kept in blocks of 1, 2, 4 … of them: enough for all page numbers there are.
const BLOCKS: usize = 15;

/// 2 MiB of a file.
pub(crate) struct Segment {
    /// Number of its first page.
    pub(crate) first: PageId,
    /// Number of its file, and its first page's place there.
    pub(crate) at: (u32, u64),
    words: [AtomicU32; SEGMENT as usize],
    /// Pages of the file that were read ahead and evicted before anybody asked for them.
    pub(crate) unread: Arc<AtomicU32>,
}

impl Segment {
    fn new(first: PageId, at: (u32, u64), unread: Arc<AtomicU32>) -> Segment {
        Segment { first, at, words: [const { AtomicU32::new(NOWHERE) }; SEGMENT as usize], unread }
    }

    /// The word of a page by its place in the segment.
    pub(crate) fn word(&self, place: u32) -> &AtomicU32 {
        &self.words[place as usize]
    }
}

type Chunk = Box<[OnceLock<Arc<Segment>>]>;

/// A file's segments.
pub(crate) struct Segments {
    blocks: [OnceLock<Box<[OnceLock<Chunk>]>>; BLOCKS],
    /// The file's number.
    file: u32,
    /// See [`Segment::unread`].
    pub(crate) unread: Arc<AtomicU32>,
}

/// Block and place of a chunk.
fn block(chunk: usize) -> (usize, usize) {
    let block = (chunk + 1).ilog2() as usize;
    (block, chunk + 1 - (1 << block))
}

fn empty<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

impl Segments {
    pub(crate) fn new(file: u32) -> Segments {
        Segments { blocks: [const { OnceLock::new() }; BLOCKS], file, unread: Arc::default() }
    }

    /// A segment, if any page of it was asked for before.
    #[inline]
    pub(crate) fn find(&self, segment: usize) -> Option<&Arc<Segment>> {
        let (block, place) = block(segment / CHUNK);
        self.blocks.get(block)?.get()?.get(place)?.get()?[segment % CHUNK].get()
    }

    /// Puts a segment where there is none, with pages that are numbered from `first` on.
    pub(crate) fn insert(&self, segment: usize, first: PageId) -> Arc<Segment> {
        let at = (self.file, segment as u64 * u64::from(SEGMENT));
        let new = Arc::new(Segment::new(first, at, self.unread.clone()));
        let (block, place) = block(segment / CHUNK);
        let chunks = self.blocks[block].get_or_init(|| empty(1 << block));
        let chunk = chunks[place].get_or_init(|| empty(CHUNK));
        let set = chunk[segment % CHUNK].set(new.clone());
        assert!(set.is_ok(), "invariant: a segment is put in under the engine's lock");
        new
    }

    /// All segments with their places, ascending.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &Arc<Segment>)> {
        let chunks = self.blocks.iter().filter_map(OnceLock::get).flat_map(|block| block.iter());
        // A block that is not there has none of its chunks: count them by their place, not by their order.
        let starts = self.blocks.iter().enumerate().filter(|(_, block)| block.get().is_some());
        let places = starts.flat_map(|(block, _)| (1usize << block) - 1..(1 << (block + 1)) - 1);
        chunks.zip(places).filter_map(|(chunk, place)| Some((chunk.get()?, place))).flat_map(|(chunk, place)| {
            chunk.iter().enumerate().filter_map(move |(at, one)| Some((place * CHUNK + at, one.get()?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_found_where_they_were_put_and_listed_in_order() {
        let segments = Segments::new(3);
        let places = [0, 1, 511, 512, 513, 5000, 1_000_000, (u32::MAX / SEGMENT) as usize - 1];
        for (number, place) in places.iter().enumerate().rev() {
            assert!(segments.find(*place).is_none());
            let segment = segments.insert(*place, number as u32 * SEGMENT);
            assert_eq!(segment.at, (3, *place as u64 * u64::from(SEGMENT)));
        }
        for (number, place) in places.iter().enumerate() {
            assert_eq!(segments.find(*place).map(|one| one.first), Some(number as u32 * SEGMENT), "{place}");
        }
        assert_eq!(segments.all().map(|(place, _)| place).collect::<Vec<_>>(), places);
        assert!(segments.find(2).is_none() && segments.find(usize::MAX / 2).is_none());
    }
}
