//! A queue of pages in which moving a page to the head is one store.
//!
//! The queue is a log of page ids in the order in which they were put at the head, and for each page the place of its
//! latest entry. Moving a page to the head appends a new entry and so makes the old one *stale*; taking a page off
//! makes its entry stale. Entries at the tail are skipped while stale; when the log is full, one pass drops the stale
//! entries of the whole log. So the order is exactly that of a linked list, but a move touches one random word instead
//! of three random records, and nothing in it waits for memory.
//!
//! Invariants: `place[page]` is the index of the page's one valid entry, or [`NOWHERE`]; all valid entries lie in
//! `tail..head`; `len` is their number. Convention as in [`crate::list`]: head = newest, tail = next victim.
//!
//! Cost: 4 bytes a page id, and 4 bytes an entry of the log, of which there are at most twice as many as pages on the
//! queue (plus a constant). Every operation is amortised O(1).

use crate::page::PageId;

/// The place of a page that is not on the queue.
const NOWHERE: u32 = u32::MAX;
/// A log is never shorter than this, so that small queues are not compacted all the time.
const SHORTEST_LOG: usize = 1024;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct PageQueue {
    /// Index into `log` of each page's valid entry.
    place: Vec<u32>,
    log: Vec<PageId>,
    tail: usize,
    head: usize,
    len: usize,
}

impl PageQueue {
    /// Pages on the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no page is on the queue.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the page is on the queue.
    #[inline]
    pub fn contains(&self, page: PageId) -> bool {
        self.place[page as usize] != NOWHERE
    }

    /// Makes room for page ids below `pages` (never shrinks).
    pub fn grow(&mut self, pages: usize) {
        if pages > self.place.len() {
            self.place.resize(pages, NOWHERE);
        }
    }

    /// Puts a page that is not on the queue at the head.
    #[inline]
    pub fn push_head(&mut self, page: PageId) {
        debug_assert!(!self.contains(page));
        self.len += 1;
        self.append(page);
    }

    /// Moves a page that is on the queue to its head.
    #[inline]
    pub fn move_to_head(&mut self, page: PageId) {
        debug_assert!(self.contains(page));
        self.append(page);
    }

    /// Takes a page off the queue; false if it was not on it.
    #[inline]
    pub fn remove(&mut self, page: PageId) -> bool {
        let was_on = self.contains(page);
        self.place[page as usize] = NOWHERE;
        self.len -= usize::from(was_on);
        was_on
    }

    /// Takes the page at the tail off the queue.
    #[inline]
    pub fn pop_tail(&mut self) -> Option<PageId> {
        while self.tail < self.head {
            let (page, place) = (self.log[self.tail], self.tail as u32);
            self.tail += 1;
            if self.place[page as usize] == place {
                self.place[page as usize] = NOWHERE;
                self.len -= 1;
                return Some(page);
            }
        }
        None
    }

    /// Pages from tail to head, for tests and listings: O(length of the log).
    pub fn iter(&self) -> impl Iterator<Item = PageId> + '_ {
        (self.tail..self.head).filter(|at| self.place[self.log[*at] as usize] == *at as u32).map(|at| self.log[at])
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> usize {
        self.place.capacity() * size_of::<u32>() + self.log.capacity() * size_of::<PageId>()
    }

    #[inline]
    fn append(&mut self, page: PageId) {
        if self.head == self.log.len() {
            self.compact();
        }
        self.log[self.head] = page;
        self.place[page as usize] = self.head as u32;
        self.head += 1;
    }

    /// Drops the stale entries and makes the log as long as the queue now needs.
    #[cold]
    fn compact(&mut self) {
        let mut kept = 0;
        for at in self.tail..self.head {
            let page = self.log[at];
            if self.place[page as usize] == at as u32 {
                self.log[kept] = page;
                self.place[page as usize] = kept as u32;
                kept += 1;
            }
        }
        self.tail = 0;
        self.head = kept;
        // Room for as many moves as there are pages makes the cost of this pass two entries a move. Places are u32.
        let wanted = (2 * self.len + SHORTEST_LOG).min(NOWHERE as usize);
        if wanted > self.log.len() {
            self.log.resize(wanted, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Step {
        /// Puts the page at the head, wherever it was.
        Touch(PageId),
        Remove(PageId),
        Pop,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![8 => (0..40u32).prop_map(Step::Touch), 2 => (0..40u32).prop_map(Step::Remove), 1 => Just(Step::Pop)];
        prop::collection::vec(step, 0..6000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn equals_a_deque(steps in steps()) {
            let mut queue = PageQueue::default();
            queue.grow(40);
            let mut model: VecDeque<PageId> = VecDeque::new();
            for step in steps {
                match step {
                    Step::Touch(page) => {
                        if model.contains(&page) {
                            model.retain(|p| *p != page);
                            queue.move_to_head(page);
                        } else {
                            queue.push_head(page);
                        }
                        model.push_back(page);
                    }
                    Step::Remove(page) => {
                        prop_assert_eq!(queue.remove(page), model.contains(&page));
                        model.retain(|p| *p != page);
                    }
                    Step::Pop => prop_assert_eq!(queue.pop_tail(), model.pop_front()),
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert!(queue.log.len() <= 2 * 40 + SHORTEST_LOG);
            }
            prop_assert!(queue.iter().eq(model.iter().copied()));
        }
    }
}
