//! Pages that a cache reads ahead, before a reader asks for them.
//!
//! Such a cache makes room for all pages of a window before the first is there: a page is *expected* from then on, and
//! its reference is dealt with at that moment and not again when it comes. Then it is resident and *waits* for its
//! reader. A policy that lets it go meanwhile has it read twice, and makes the cache read less ahead. So as many pages
//! as were expected or waited at the same time of late have places on probation beside the others (module `reuse`).
//!
//! Invariants: a page with the flag is in the queue. Cost: amortised O(1); 4 bytes per expected page, and at most per
//! page of memory.

use std::collections::VecDeque;

use super::record::{EXPECTED, Table};
use crate::page::PageId;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    /// In the order in which room was made. What does not bear the flag any more has come, or was forgotten.
    queue: VecDeque<PageId>,
    expected: usize,
    /// The most that were expected or waited at once, in this period and in the one before. Periods end when as many
    /// pages were evicted as memory has.
    most: [usize; 2],
    evicted: usize,
}

impl Ahead {
    /// Whether the page is the one for which room was made last, and has not come.
    pub fn is_last(&self, page: PageId, table: &Table) -> bool {
        self.queue.back() == Some(&page) && table.at(page).is(EXPECTED)
    }

    /// Room was made for a page, of `capacity`.
    pub fn expect(&mut self, page: PageId, capacity: usize, table: &mut Table) {
        self.expected += usize::from(!table.at(page).is(EXPECTED));
        table.set(page, EXPECTED);
        self.queue.push_back(page);
        // Pages whose reading failed never come.
        if self.queue.len() > capacity
            && let Some(oldest) = self.queue.front().copied()
        {
            self.take(oldest, table);
        }
    }

    /// A page comes, or is forgotten. Whether it was expected.
    pub fn take(&mut self, page: PageId, table: &mut Table) -> bool {
        if !table.at(page).is(EXPECTED) {
            return false;
        }
        table.clear(page, EXPECTED);
        self.expected -= 1;
        while self.queue.front().is_some_and(|first| !table.at(*first).is(EXPECTED)) {
            self.queue.pop_front();
        }
        true
    }

    /// A page was evicted.
    #[inline]
    pub fn evicted(&mut self) {
        self.evicted += 1;
    }

    /// For how many pages there is to be a place while they wait, beside the one that is asked for, perhaps again;
    /// `unread` do now.
    pub fn places(&mut self, asked_again: bool, unread: usize, capacity: usize) -> usize {
        let now = unread + self.expected - usize::from(asked_again);
        self.most[0] = self.most[0].max(now);
        if self.evicted >= capacity {
            self.most = [now, self.most[0]];
            self.evicted = 0;
        }
        self.most[0].max(self.most[1])
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<PageId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table { records: Vec::new(), now: 1 };
        table.grow(100);
        table
    }

    #[test]
    fn a_page_is_taken_once_in_any_order() {
        let (mut ahead, mut table) = (Ahead::default(), table());
        (0..10).for_each(|page| ahead.expect(page, 50, &mut table));
        assert!(ahead.is_last(9, &table) && !ahead.is_last(8, &table));
        for page in (0..10).rev() {
            assert!(ahead.take(page, &mut table) && !ahead.take(page, &mut table), "page {page}");
        }
        assert!(ahead.queue.is_empty() && !ahead.is_last(0, &table));
    }

    /// One that never came takes the place of none.
    #[test]
    fn pages_whose_reading_failed_are_forgotten() {
        let (mut ahead, mut table) = (Ahead::default(), table());
        (0..90).for_each(|page| ahead.expect(page, 50, &mut table));
        assert_eq!((ahead.queue.len(), ahead.expected), (50, 50));
        assert!(!ahead.take(39, &mut table) && ahead.take(40, &mut table));
    }

    #[test]
    fn places_are_kept_for_two_periods() {
        let (mut ahead, mut table) = (Ahead::default(), table());
        (0..11).for_each(|page| ahead.expect(page, 50, &mut table));
        assert_eq!(ahead.places(true, 5, 50), 15, "ten beside the one that is asked for, and five");
        (0..11).for_each(|page| assert!(ahead.take(page, &mut table)));
        for (evicted, places) in [(49, 15), (1, 15), (49, 15), (1, 0)] {
            (0..evicted).for_each(|_| ahead.evicted());
            assert_eq!(ahead.places(false, 0, 50), places);
        }
    }
}
