//! A queue of pages in a ring, in order of arrival, from which any page can be taken.
//!
//! Taking a page from the middle leaves its entry *stale*; stale entries are skipped at the tail. A ring touches memory
//! in order where a linked list would follow links through all of it.
//!
//! Invariants: `place[page]` is the slot of the page's one valid entry, or [`NOWHERE`]; all valid entries lie in
//! `tail..head`; `len` is their number. Convention as in [`crate::list`]: head = newest, tail = next victim.
//!
//! Cost: 4 bytes per page id, and 4 bytes per slot of the ring, which has fewer than four times as many slots as the
//! queue ever had pages. Every operation is amortised O(1).

use crate::page::PageId;

/// The place of a page that is not on the queue.
const NOWHERE: u32 = u32::MAX;
/// A ring is never shorter than this.
const MIN_RING: usize = 64;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct PageQueue {
    /// Slot of each page's valid entry.
    place: Vec<u32>,
    /// A power of two long, or empty.
    ring: Vec<PageId>,
    /// Entries ever taken from and put into the ring; their slots are these modulo its length.
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
        if self.head - self.tail == self.ring.len() {
            self.make_room();
        }
        let slot = self.slot(self.head);
        self.ring[slot] = page;
        self.place[page as usize] = slot as u32;
        self.head += 1;
        self.len += 1;
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
        while self.tail != self.head {
            let slot = self.slot(self.tail);
            self.tail += 1;
            let page = self.ring[slot];
            if self.place[page as usize] == slot as u32 {
                self.place[page as usize] = NOWHERE;
                self.len -= 1;
                return Some(page);
            }
        }
        None
    }

    /// Pages from tail to head, for tests and listings: O(length of the ring).
    pub fn iter(&self) -> impl Iterator<Item = PageId> + '_ {
        (self.tail..self.head).map(|at| self.slot(at)).filter_map(|slot| {
            let page = self.ring[slot];
            (self.place[page as usize] == slot as u32).then_some(page)
        })
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> usize {
        self.place.capacity() * size_of::<u32>() + self.ring.capacity() * size_of::<PageId>()
    }

    #[inline]
    fn slot(&self, at: usize) -> usize {
        at & (self.ring.len() - 1)
    }

    /// Drops the stale entries, into a ring twice as long if more than half of the entries are valid.
    #[cold]
    fn make_room(&mut self) {
        let slots = if 2 * self.len < self.ring.len() { self.ring.len() } else { 2 * self.ring.len() };
        let mut ring = Vec::with_capacity(slots.max(MIN_RING));
        ring.extend(self.iter());
        for (slot, page) in ring.iter().enumerate() {
            self.place[*page as usize] = slot as u32;
        }
        (self.tail, self.head) = (0, ring.len());
        ring.resize(slots.max(MIN_RING), 0);
        self.ring = ring;
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
        Renew(PageId),
        Remove(PageId),
        Pop,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => (0..200u32).prop_map(Step::Renew),
            2 => (0..200u32).prop_map(Step::Remove),
            1 => Just(Step::Pop)
        ];
        prop::collection::vec(step, 0..3000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn equals_a_deque(steps in steps()) {
            let mut queue = PageQueue::default();
            queue.grow(200);
            let mut model: VecDeque<PageId> = VecDeque::new();
            for step in steps {
                match step {
                    Step::Renew(page) => {
                        prop_assert_eq!(queue.remove(page), model.contains(&page));
                        model.retain(|p| *p != page);
                        queue.push_head(page);
                        model.push_back(page);
                    }
                    Step::Remove(page) => {
                        prop_assert_eq!(queue.remove(page), model.contains(&page));
                        model.retain(|p| *p != page);
                    }
                    Step::Pop => prop_assert_eq!(queue.pop_tail(), model.pop_front()),
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert!(queue.ring.len() <= 4 * 200);
            }
            prop_assert!(queue.iter().eq(model.iter().copied()));
        }
    }
}
