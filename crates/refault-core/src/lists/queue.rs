//! A queue of pages in order of arrival, from which any page can be taken: a ring that needs no records.
//!
//! Invariants: those of [`Deque`]; a page is on the queue if and only if the entry at its position is the page. Cost:
//! 4 bytes per page id beside the ring's. Every operation is amortised O(1).

use super::ring::{Deque, Placed};
use crate::page::PageId;

/// Where a page stands in the ring, if it does.
#[derive(Clone, Copy, Debug, Default)]
struct Position(u32);

impl Placed for Position {
    #[inline]
    fn position(&self) -> u32 {
        self.0
    }
    #[inline]
    fn set_position(&mut self, position: u32) {
        self.0 = position;
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct PageQueue {
    positions: Vec<Position>,
    ring: Deque,
}

impl PageQueue {
    /// Pages on the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Makes room for page ids below `pages` (never shrinks).
    pub fn grow(&mut self, pages: usize) {
        if pages > self.positions.len() {
            self.positions.resize(pages, Position::default());
        }
    }

    /// Puts a page that is not on the queue at the head.
    #[inline]
    pub fn push_head(&mut self, page: PageId) {
        debug_assert!(!self.ring.is_at(page, self.positions[page as usize].0));
        self.ring.push_head(&mut self.positions, page);
    }

    /// Takes a page off the queue; false if it was not on it.
    pub fn remove(&mut self, page: PageId) -> bool {
        let was_on = self.ring.is_at(page, self.positions[page as usize].0);
        if was_on {
            self.ring.remove(&self.positions, page);
        }
        was_on
    }

    /// Takes the page at the tail off the queue.
    #[inline]
    pub fn pop_tail(&mut self) -> Option<PageId> {
        self.ring.pop_tail()
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> usize {
        self.positions.capacity() * size_of::<Position>() + self.ring.bytes()
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
                prop_assert!(queue.ring.bytes() <= 4 * 4 * 256);
            }
            prop_assert!(queue.ring.iter().eq(model.iter().copied()));
        }
    }
}
