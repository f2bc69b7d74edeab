//! Exact reuse distances of a trace whose parts are worked on side by side.
//!
//! A part by itself knows the distance of every access but the first to each page. What it leaves for the whole are
//! those pages, in the order of their first and of their last accesses. Parts are joined in the order of the trace. The
//! distance of the `k`-th first access (from 0) is then a sum of two counts. One is `k`, for the pages that the part
//! accessed before. The other counts the pages that the parts before accessed after that page, and that this part has
//! not accessed yet.
//!
//! Invariant: the sum of the histograms is that of [`ReuseDistances`] over the whole trace, whatever the parts.
//! Cost: that of [`ReuseDistances`] per access, on any thread; to join, the same for each page of a part, in order. A
//! part has 4 bytes per page id of the whole, so parts should be longer than that.
//! Source: Niu, Dinan, Lu and Sadayappan, *PARDA: A Fast Parallel Reuse Distance Analysis Algorithm*, IPDPS 2012.
//!
//! ```
//! use refault_trace::reuse_parts::{JoinedParts, Part};
//!
//! let mut joined = JoinedParts::default();
//! for pages in [[0, 1, 2], [0, 1, 2]] {
//!     joined.append(&Part::new(&pages, 3));
//! }
//! assert_eq!(joined.histogram().lru_misses(&[2, 3]), [6, 3]); // three pages in turn: two frames never help
//! ```

use crate::reuse::{COLD, DistanceHistogram, ReuseDistances};

/// Pages whose look-ups overlap.
const AHEAD: usize = 32;

/// What a part of a trace says by itself.
pub struct Part {
    /// The accesses whose page was accessed before in this part.
    within: DistanceHistogram,
    /// Pages in the order of their first accesses.
    first: Vec<u32>,
    /// Pages in the order of their last accesses.
    last: Vec<u32>,
}

impl Part {
    /// The part with these accesses; `ids` page ids are expected.
    pub fn new(pages: &[u32], ids: usize) -> Part {
        const BLOCK: usize = 1 << 14;
        let mut distances = ReuseDistances::new(ids);
        let mut part = Part { within: DistanceHistogram::new(), first: Vec::new(), last: Vec::new() };
        let mut found = Vec::with_capacity(BLOCK);
        for block in pages.chunks(BLOCK) {
            distances.access_all(block, &mut found);
            for (page, distance) in block.iter().zip(&found) {
                if *distance == COLD {
                    part.first.push(*page);
                } else {
                    part.within.record(*distance);
                }
            }
        }
        part.last = distances.by_last_access().collect();
        part
    }
}

/// See the module.
pub struct JoinedParts {
    /// Of each page the last access in the parts so far.
    before: ReuseDistances,
    histogram: DistanceHistogram,
}

impl Default for JoinedParts {
    fn default() -> JoinedParts {
        JoinedParts { before: ReuseDistances::new(0), histogram: DistanceHistogram::new() }
    }
}

impl JoinedParts {
    /// The next part of the trace.
    pub fn append(&mut self, part: &Part) {
        self.histogram.add(&part.within);
        let mut earlier = 0;
        for few in part.first.chunks(AHEAD) {
            self.fetch(few);
            for page in few {
                let distance = self.before.take(*page);
                self.histogram.record(if distance == COLD { COLD } else { distance + earlier });
                earlier += 1;
            }
        }
        for few in part.last.chunks(AHEAD) {
            self.fetch(few);
            few.iter().for_each(|page| {
                self.before.access(*page);
            });
        }
    }

    /// How often each distance occurs in the parts so far.
    pub fn histogram(&self) -> &DistanceHistogram {
        &self.histogram
    }

    /// The same, at the end.
    pub fn into_histogram(self) -> DistanceHistogram {
        self.histogram
    }

    /// Reads what the pages will need, so that the cache misses overlap.
    fn fetch(&self, pages: &[u32]) {
        std::hint::black_box(pages.iter().fold(0, |read, page| read ^ self.before.touch(*page)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_one(pages: &[u32]) -> DistanceHistogram {
        let (mut distances, mut found, mut histogram) = (ReuseDistances::new(0), Vec::new(), DistanceHistogram::new());
        distances.access_all(pages, &mut found);
        found.iter().for_each(|distance| histogram.record(*distance));
        histogram
    }

    fn in_parts(pages: &[u32], length: usize, ids: usize) -> DistanceHistogram {
        let mut joined = JoinedParts::default();
        pages.chunks(length).for_each(|part| joined.append(&Part::new(part, ids)));
        joined.histogram
    }

    fn assert_same(one: &DistanceHistogram, parts: &DistanceHistogram) {
        let trimmed = |histogram: &DistanceHistogram| {
            let counts = histogram.counts();
            counts[..counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1)].to_vec()
        };
        assert_eq!((one.cold(), trimmed(one)), (parts.cold(), trimmed(parts)));
    }

    proptest! {
        #[test]
        fn parts_are_the_whole(pages in prop::collection::vec(0..60u32, 0..600), length in 1..200usize) {
            assert_same(&in_one(&pages), &in_parts(&pages, length, 1));
        }
    }

    /// Long enough that the slots of a part and of the whole run out again and again.
    #[test]
    fn long_parts_are_the_whole() {
        let mut state = 1u64;
        let pages: Vec<u32> = (0..1_500_000u32)
            .map(|at| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let page = (state >> 33) as u32 % 100_000;
                if at % 3 == 0 { page % 100 } else { page }
            })
            .collect();
        assert_same(&in_one(&pages), &in_parts(&pages, 400_000, 100_000));
    }
}
