//! Which bytes of a page were written: no others are put into the file, where it takes bytes at any place
//! ([`crate::Backing::takes_any_bytes`]). So what another program has put into the rest of the page stays.
//!
//! Spans that are too many grow together where the gap is the smallest. A page that waits to be written is written
//! before that happens ([`crate::CachedFile::write_at`]); of one that the device has, it matters only if a sync fails.
//! Cost: 26 bytes.

use std::ops::Range;

use refault_store::PAGE_SIZE;

/// Spans at most.
const MAX_PARTS: usize = 6;

/// Spans of bytes of a page, in order, none of which touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    spans: [(u16, u16); MAX_PARTS],
    count: u8,
}

impl Parts {
    /// All of a page.
    pub(crate) const WHOLE: Parts = {
        let mut spans = [(0, 0); MAX_PARTS];
        spans[0] = (0, PAGE_SIZE as u16);
        Parts { spans, count: 1 }
    };

    /// A span, which is not empty and within a page.
    pub(crate) fn of(span: Range<usize>) -> Parts {
        let mut parts = Parts::WHOLE;
        parts.spans[0] = (span.start as u16, span.end as u16);
        parts
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.count == 1 && self.spans[0] == (0, PAGE_SIZE as u16)
    }

    /// Whether another span would be one too many.
    pub(crate) fn is_full(&self) -> bool {
        usize::from(self.count) == MAX_PARTS
    }

    pub(crate) fn spans(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.spans[..usize::from(self.count)].iter().map(|(start, end)| usize::from(*start)..usize::from(*end))
    }

    /// With all bytes of both.
    #[must_use]
    pub(crate) fn and(self, other: Parts) -> Parts {
        other.spans().fold(self, |parts, span| parts.and_span((span.start as u16, span.end as u16)))
    }

    /// Without the bytes from one on; there may be none left.
    pub(crate) fn up_to(self, end: usize) -> Parts {
        let end = end as u16;
        let mut parts = self;
        parts.count = 0;
        for (from, to) in self.spans[..usize::from(self.count)].iter().copied().filter(|(from, _)| *from < end) {
            parts.spans[usize::from(parts.count)] = (from, to.min(end));
            parts.count += 1;
        }
        parts
    }

    fn and_span(self, (mut start, mut end): (u16, u16)) -> Parts {
        let mut all = [(0, 0); MAX_PARTS + 1];
        let mut count = 0;
        let mut is_in = false;
        for (from, to) in self.spans[..usize::from(self.count)].iter().copied() {
            if to < start {
                all[count] = (from, to);
            } else if from > end {
                if !is_in {
                    all[count] = (start, end);
                    count += 1;
                    is_in = true;
                }
                all[count] = (from, to);
            } else {
                (start, end) = (start.min(from), end.max(to));
                continue;
            }
            count += 1;
        }
        if !is_in {
            all[count] = (start, end);
            count += 1;
        }
        if count > MAX_PARTS {
            let gap = |place: &usize| all[place + 1].0 - all[*place].1;
            let place = (0..count - 1).min_by_key(gap).expect("invariant: there are more spans than one");
            all[place].1 = all[place + 1].1;
            all.copy_within(place + 2..count, place + 1);
            count -= 1;
        }
        let mut parts = Parts { spans: [(0, 0); MAX_PARTS], count: count as u8 };
        parts.spans[..count].copy_from_slice(&all[..count]);
        parts
    }
}

#[cfg(test)]
mod tests {
    use refault_testing::Random;

    use super::*;

    fn bytes(parts: &Parts) -> Vec<bool> {
        let mut bytes = vec![false; PAGE_SIZE];
        parts.spans().for_each(|span| bytes[span].fill(true));
        bytes
    }

    #[test]
    fn parts_are_the_bytes_that_were_written() {
        let mut random = Random::new(1);
        for _ in 0..2000 {
            let mut parts: Option<Parts> = None;
            let mut model = vec![false; PAGE_SIZE];
            for _ in 0..1 + random.below(12) {
                let start = random.index(PAGE_SIZE / 64) * 64;
                let end = (start + 64 * (1 + random.index(8))).min(PAGE_SIZE);
                let grows_together = parts.is_some_and(|parts| parts.is_full());
                parts = Some(parts.map_or_else(|| Parts::of(start..end), |known| known.and(Parts::of(start..end))));
                model[start..end].fill(true);
                let (seen, known) = (bytes(&parts.expect("some")), parts.expect("some"));
                if !grows_together {
                    assert!(seen == model, "{known:?}");
                }
                assert!(seen.iter().zip(&model).all(|(seen, wanted)| *seen || !wanted), "a byte is lost: {known:?}");
                model = seen;
                let spans: Vec<Range<usize>> = known.spans().collect();
                assert!(spans.windows(2).all(|two| two[0].end < two[1].start), "{known:?}");
                assert_eq!(known.is_whole(), model.iter().all(|byte| *byte));
            }
        }
        assert!(Parts::of(0..10).and(Parts::of(10..PAGE_SIZE)).is_whole());
        let cut: Vec<Range<usize>> = Parts::of(0..10).and(Parts::of(20..30)).up_to(25).spans().collect();
        assert_eq!(cut, [0..10, 20..25]);
        assert_eq!(Parts::WHOLE.up_to(0).spans().count(), 0);
        assert!(Parts::of(5..6).and(Parts::WHOLE).is_whole() && Parts::WHOLE.and(Parts::of(5..6)).is_whole());
    }

    #[test]
    fn the_smallest_gap_is_the_first_to_go() {
        let spans = [0..1, 100..101, 200..201, 300..301, 310..311, 500..501];
        let parts = spans.into_iter().map(Parts::of).reduce(Parts::and).expect("some");
        assert!(parts.is_full());
        let parts = parts.and(Parts::of(700..701));
        assert_eq!(parts.spans().collect::<Vec<_>>(), [0..1, 100..101, 200..201, 300..311, 500..501, 700..701]);
    }
}
