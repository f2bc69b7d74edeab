//! A set of page numbers as spans that neither overlap nor touch.
//!
//! Cost: some 30 bytes per span; O(log n) per change, and O(n log n) where a set is made coarser.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Spans(BTreeMap<u64, u64>);

impl Spans {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Spans, not pages.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    pub(crate) fn insert(&mut self, mut span: Range<u64>) {
        if span.is_empty() {
            return;
        }
        // Those that overlap or touch it, from the last one on.
        while let Some((start, end)) = self.before(span.end.saturating_add(1)).filter(|(_, end)| *end >= span.start) {
            self.0.remove(&start);
            span = span.start.min(start)..span.end.max(end);
        }
        self.0.insert(span.start, span.end);
    }

    /// The last span that begins before a page.
    fn before(&self, page: u64) -> Option<(u64, u64)> {
        self.0.range(..page).next_back().map(|(start, end)| (*start, *end))
    }

    /// Takes a page out. Whether it was there.
    pub(crate) fn remove(&mut self, page: u64) -> bool {
        let Some((start, end)) = self.before(page.saturating_add(1)).filter(|(_, end)| *end > page) else {
            return false;
        };
        self.0.remove(&start);
        self.0.extend([(start, page), (page + 1, end)].into_iter().filter(|(start, end)| start < end));
        true
    }

    /// Takes all pages out from one on.
    pub(crate) fn cut(&mut self, page: u64) {
        self.0.split_off(&page);
        if let Some((start, _)) = self.before(page).filter(|(_, end)| *end > page) {
            self.0.insert(start, page);
        }
    }

    /// The first page of the set in a range.
    pub(crate) fn first(&self, range: Range<u64>) -> Option<u64> {
        let over = self.before(range.start.saturating_add(1)).filter(|(_, end)| *end > range.start);
        let next = || self.0.range(range.start..).next().map(|(start, _)| *start);
        over.map(|_| range.start).or_else(next).filter(|page| *page < range.end)
    }

    /// Whether no page lies outside a range.
    pub(crate) fn is_within(&self, range: &Range<u64>) -> bool {
        self.0.iter().all(|(start, end)| range.start <= *start && *end <= range.end)
    }

    /// Moves all pages of another set here.
    pub(crate) fn take_from(&mut self, other: &mut Spans) {
        std::mem::take(&mut other.0).into_iter().for_each(|(start, end)| self.insert(start..end));
    }

    /// Leaves at most `most` spans, by taking in the pages of the smallest gaps between them.
    pub(crate) fn coarsen(&mut self, most: usize) {
        if self.0.len() <= most {
            return;
        }
        let spans: Vec<(u64, u64)> = std::mem::take(&mut self.0).into_iter().collect();
        let mut gaps: Vec<(u64, usize)> =
            spans.windows(2).enumerate().map(|(place, two)| (two[1].0 - two[0].1, place)).collect();
        gaps.sort_unstable();
        let filled = spans.len() - most;
        gaps[..filled].iter().for_each(|(_, place)| self.insert(spans[*place].0..spans[*place + 1].1));
        spans.into_iter().for_each(|(start, end)| self.insert(start..end));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use refault_testing::Random;

    use super::*;

    #[test]
    fn spans_are_the_set_that_they_stand_for() {
        let mut random = Random::new(1);
        let (mut spans, mut set) = (Spans::default(), BTreeSet::new());
        for _ in 0..20_000 {
            let page = random.below(200);
            match random.below(8) {
                0..4 => {
                    let end = page + random.below(4);
                    spans.insert(page..end);
                    set.extend(page..end);
                }
                4..7 => assert_eq!(spans.remove(page), set.remove(&page)),
                _ if random.below(20) == 0 => {
                    spans.cut(page);
                    set.split_off(&page);
                }
                _ => {
                    let end = page + random.below(20);
                    assert_eq!(spans.first(page..end), set.range(page..end).next().copied());
                    assert_eq!(spans.is_within(&(page..end)), set.iter().all(|one| (page..end).contains(one)));
                }
            }
            let listed: Vec<u64> = spans.0.iter().flat_map(|(start, end)| *start..*end).collect();
            assert!(listed.iter().eq(set.iter()));
            assert!(spans.0.iter().zip(spans.0.iter().skip(1)).all(|((_, end), (start, _))| end < start));
        }
        assert!(!spans.remove(u64::MAX) && spans.first(u64::MAX..u64::MAX).is_none());
    }

    #[test]
    fn a_coarser_set_has_every_page_and_the_largest_gaps() {
        let mut spans = Spans::default();
        [0..1, 2..3, 10..11, 13..14, 100..101].into_iter().for_each(|span| spans.insert(span));
        spans.coarsen(3);
        assert_eq!(spans.0.into_iter().collect::<Vec<_>>(), [(0, 3), (10, 14), (100, 101)]);
    }
}
