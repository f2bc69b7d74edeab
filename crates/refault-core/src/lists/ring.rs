//! Double-ended queues of pages whose middle can be taken out, for lists that are worked through in batches.
//!
//! A deque is a ring of page ids; each page's record holds the position of its entry. Taking a page off writes a hole
//! where its entry was, so nothing is chased through memory: the next victims lie side by side, and their records can
//! be fetched together before they are needed ([`Deque::victims`]). The order is exactly a linked list's.
//!
//! Invariants: the entries at both ends are pages, never holes; a page's position leads to its entry in the one deque
//! it is on; `len` is the number of pages. Cost: 4 bytes per ring entry. A ring has at most four times as many entries
//! as the deque had pages since the ring was last handed over, plus a constant. Every operation is amortised O(1).

use crate::page::{NO_PAGE, PageId};

/// A ring is never shorter than this.
const MIN_RING: usize = 256;

/// A record that knows where its page stands in a deque.
pub trait Placed {
    /// The position last set.
    fn position(&self) -> u32;
    /// Notes a position.
    fn set_position(&mut self, position: u32);
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Deque {
    /// Position `p` is at `p % ring.len()`; the length is a power of two.
    ring: Vec<PageId>,
    /// Position of the oldest entry, and the one after the newest. Positions wrap.
    tail: u32,
    head: u32,
    len: usize,
}

impl Deque {
    /// Pages on the deque.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no page is on the deque.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this is the page whose entry is at a position, which may be any number.
    #[inline]
    pub fn is_at(&self, page: PageId, position: u32) -> bool {
        self.ring.get(self.at(position)) == Some(&page)
    }

    /// The next victim.
    #[inline]
    pub fn tail(&self) -> Option<PageId> {
        (self.len > 0).then(|| self.ring[self.at(self.tail)])
    }

    /// The first `count` entries from the tail, holes left out: the next victims to examine.
    #[inline]
    pub fn victims(&self, count: u32) -> impl Iterator<Item = PageId> + '_ {
        (0..count.min(self.span()))
            .map(|i| self.ring[self.at(self.tail.wrapping_add(i))])
            .filter(|page| *page != NO_PAGE)
    }

    /// Puts a page that is on no deque at the head.
    #[inline]
    pub fn push_head<R: Placed>(&mut self, records: &mut [R], page: PageId) {
        if self.span() as usize == self.ring.len() {
            self.make_room(records);
        }
        let at = self.at(self.head);
        self.ring[at] = page;
        records[page as usize].set_position(self.head);
        self.head = self.head.wrapping_add(1);
        self.len += 1;
    }

    /// Puts a page that is on no deque at the tail.
    #[inline]
    pub fn push_tail<R: Placed>(&mut self, records: &mut [R], page: PageId) {
        if self.span() as usize == self.ring.len() {
            self.make_room(records);
        }
        self.tail = self.tail.wrapping_sub(1);
        let at = self.at(self.tail);
        self.ring[at] = page;
        records[page as usize].set_position(self.tail);
        self.len += 1;
    }

    /// Takes a page off this deque. It must be on it.
    #[inline]
    pub fn remove<R: Placed>(&mut self, records: &[R], page: PageId) {
        let position = records[page as usize].position();
        let at = self.at(position);
        debug_assert_eq!(self.ring[at], page);
        self.ring[at] = NO_PAGE;
        self.len -= 1;
        if position == self.tail {
            self.trim_tail();
        } else if position == self.head.wrapping_sub(1) {
            self.trim_head();
        }
    }

    /// Takes the page at the tail off, if there is one.
    #[inline]
    pub fn pop_tail(&mut self) -> Option<PageId> {
        let page = self.tail()?;
        let at = self.at(self.tail);
        self.ring[at] = NO_PAGE;
        self.len -= 1;
        self.trim_tail();
        Some(page)
    }

    /// Pages from tail to head: O(entries).
    pub fn iter(&self) -> impl Iterator<Item = PageId> + '_ {
        self.victims(self.span())
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.ring.capacity() * size_of::<PageId>()
    }

    /// Hands the ring of an empty deque to another empty one, which will need it.
    ///
    /// # Panics
    /// If one of them is not empty.
    pub fn hand_over(&mut self, heir: &mut Deque) {
        assert!(self.is_empty() && heir.is_empty(), "invariant: only empty deques give and take rings");
        if self.ring.len() > heir.ring.len() {
            std::mem::swap(&mut self.ring, &mut heir.ring);
            heir.tail = heir.head;
        }
        self.ring = Vec::new();
    }

    /// Entries between the ends, holes included.
    #[inline]
    fn span(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    #[inline]
    fn at(&self, position: u32) -> usize {
        position as usize & (self.ring.len().wrapping_sub(1))
    }

    /// Gives up the holes at the tail.
    #[inline]
    fn trim_tail(&mut self) {
        if self.len == 0 {
            self.tail = self.head;
            return;
        }
        while self.ring[self.at(self.tail)] == NO_PAGE {
            self.tail = self.tail.wrapping_add(1);
        }
    }

    /// Gives up the holes at the head; the page taken off there was not the last.
    #[inline]
    fn trim_head(&mut self) {
        while self.ring[self.at(self.head.wrapping_sub(1))] == NO_PAGE {
            self.head = self.head.wrapping_sub(1);
        }
    }

    /// Closes the holes if they are at least half of the ring, else doubles it.
    #[cold]
    fn make_room<R: Placed>(&mut self, records: &mut [R]) {
        let pages: Vec<PageId> = self.iter().collect();
        let wanted = if pages.len() * 2 <= self.ring.len() { self.ring.len() } else { self.ring.len() * 2 };
        let wanted = wanted.max(MIN_RING);
        self.ring.clear();
        self.ring.resize(wanted, NO_PAGE);
        for (position, page) in pages.iter().enumerate() {
            self.ring[position] = *page;
            records[*page as usize].set_position(position as u32);
        }
        self.tail = 0;
        self.head = pages.len() as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    impl Placed for u32 {
        fn position(&self) -> u32 {
            *self
        }
        fn set_position(&mut self, position: u32) {
            *self = position;
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Head(PageId),
        Tail(PageId),
        Remove(PageId),
        Pop,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        const PAGES: u32 = 600;
        let step = prop_oneof![
            6 => (0..PAGES).prop_map(Step::Head),
            3 => (0..PAGES).prop_map(Step::Tail),
            3 => (0..PAGES).prop_map(Step::Remove),
            1 => Just(Step::Pop)
        ];
        prop::collection::vec(step, 0..4000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn equals_a_list(steps in steps()) {
            let mut deque = Deque::default();
            let mut records = vec![0u32; 600];
            let mut model: VecDeque<PageId> = VecDeque::new();
            for step in steps {
                match step {
                    Step::Head(page) | Step::Tail(page) => {
                        if model.contains(&page) {
                            model.retain(|p| *p != page);
                            deque.remove(&records, page);
                        }
                        if matches!(step, Step::Head(_)) {
                            deque.push_head(&mut records, page);
                            model.push_back(page);
                        } else {
                            deque.push_tail(&mut records, page);
                            model.push_front(page);
                        }
                    }
                    Step::Remove(page) => {
                        if model.contains(&page) {
                            model.retain(|p| *p != page);
                            deque.remove(&records, page);
                        }
                    }
                    Step::Pop => prop_assert_eq!(deque.pop_tail(), model.pop_front()),
                }
                prop_assert_eq!(deque.len(), model.len());
                prop_assert_eq!(deque.tail(), model.front().copied());
            }
            prop_assert!(deque.iter().eq(model.iter().copied()));
            prop_assert!(deque.bytes() <= 4 * 4 * 600.max(MIN_RING));
        }
    }
}
