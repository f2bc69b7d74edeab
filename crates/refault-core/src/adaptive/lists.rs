//! First-in, first-out lists of pages that are worked through in bulk, out of one store of blocks.
//!
//! A list is a chain of blocks, so the pages that come next lie side by side. What will be asked of them can be read
//! together ([`Blocks::upcoming`]). A list that is linked through the pages' own records is chased through memory. Two
//! lists are joined by linking two blocks.
//!
//! Invariants: a block of a list has a page at least; a block is on one list or free.
//! Cost: O(1) for everything but [`Blocks::retain`]; 4.4 bytes per page of full blocks, and one block more per list.

use crate::page::{NO_PAGE, PageId};

/// Pages of a block, so that it fills two cache lines.
const BLOCK_PAGES: usize = 29;
/// No block.
const NONE: u32 = u32::MAX;
/// A full store grows by one part in `GROWTH`.
const GROWTH: usize = 8;
/// Blocks by which it grows at least.
const MIN_GROWTH: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
struct Block {
    pages: [PageId; BLOCK_PAGES],
    /// A mark per page.
    marks: u32,
    /// Pages taken off, and pages ever put on: those in between are on the list.
    taken: u8,
    filled: u8,
    /// The block behind this one on its list, or among the free ones.
    next: u32,
}

const _: () = assert!(size_of::<Block>() == 128 && BLOCK_PAGES <= 32);

/// A list: its first and last block.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    /// No pages.
    pub const EMPTY: List = List { first: NONE, last: NONE };
}

/// The blocks of all lists.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    free: u32,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks { blocks: Vec::new(), free: NONE }
    }
}

impl Blocks {
    /// Puts a page at the end, with a mark or without.
    #[inline]
    pub fn push(&mut self, list: &mut List, page: PageId, mark: bool) {
        if list.last == NONE || usize::from(self.at(list.last).filled) == BLOCK_PAGES {
            let new = self.allocate();
            if list.last == NONE {
                list.first = new;
            } else {
                self.at_mut(list.last).next = new;
            }
            list.last = new;
        }
        let block = self.at_mut(list.last);
        block.pages[usize::from(block.filled)] = page;
        block.marks |= u32::from(mark) << block.filled;
        block.filled += 1;
    }

    /// Takes the first page off, and says whether it has a mark.
    #[inline]
    pub fn pop(&mut self, list: &mut List) -> Option<(PageId, bool)> {
        let at = (list.first != NONE).then_some(list.first)?;
        let free = self.free;
        let block = self.at_mut(at);
        let (page, mark) = (block.pages[usize::from(block.taken)], block.marks >> block.taken & 1 != 0);
        block.taken += 1;
        if block.taken == block.filled {
            let next = std::mem::replace(&mut block.next, free);
            self.free = at;
            *list = if next == NONE { List::EMPTY } else { List { first: next, ..*list } };
        }
        Some((page, mark))
    }

    /// Leaves only those pages for which `keep` answers true. O(pages).
    pub fn retain(&mut self, list: &mut List, mut keep: impl FnMut(PageId, bool) -> bool) {
        let mut kept = List::EMPTY;
        while let Some((page, mark)) = self.pop(list) {
            if keep(page, mark) {
                self.push(&mut kept, page, mark);
            }
        }
        *list = kept;
    }

    /// The pages to be taken off next if a whole block of them lies ahead, as after every block; else none.
    #[inline]
    pub fn upcoming(&self, list: &List) -> &[PageId] {
        match self.blocks.get(list.first as usize) {
            Some(block) if block.taken == 0 => &block.pages[..usize::from(block.filled)],
            _ => &[],
        }
    }

    /// Puts the pages of one list before those of the other.
    pub fn prepend(&mut self, before: List, list: &mut List) {
        if before.first == NONE {
            return;
        }
        self.at_mut(before.last).next = list.first;
        *list = List { first: before.first, last: if list.last == NONE { before.last } else { list.last } };
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
    }

    fn allocate(&mut self) -> u32 {
        let new = Block { pages: [NO_PAGE; BLOCK_PAGES], marks: 0, taken: 0, filled: 0, next: NONE };
        if self.free != NONE {
            let at = self.free;
            self.free = std::mem::replace(self.at_mut(at), new).next;
            return at;
        }
        if self.blocks.len() == self.blocks.capacity() {
            self.blocks.reserve_exact(self.blocks.len() / GROWTH + MIN_GROWTH);
        }
        self.blocks.push(new);
        self.blocks.len() as u32 - 1
    }

    #[inline]
    fn at(&self, block: u32) -> &Block {
        &self.blocks[block as usize]
    }

    #[inline]
    fn at_mut(&mut self, block: u32) -> &mut Block {
        &mut self.blocks[block as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equal_queues(steps in prop::collection::vec((0..5u8, 0..3usize, 0..1000u32), 0..2000)) {
            let (mut blocks, mut lists) = (Blocks::default(), [List::EMPTY; 3]);
            let mut queues: [VecDeque<(PageId, bool)>; 3] = Default::default();
            for (step, at, page) in steps {
                match step {
                    0 | 1 => {
                        blocks.push(&mut lists[at], page, page % 3 == 0);
                        queues[at].push_back((page, page % 3 == 0));
                    }
                    2 => prop_assert_eq!(blocks.pop(&mut lists[at]), queues[at].pop_front()),
                    3 if page < 50 => {
                        let keep = |kept: PageId, mark: bool| kept % 7 != page % 7 && !(mark && page < 9);
                        blocks.retain(&mut lists[at], keep);
                        queues[at].retain(|(page, mark)| keep(*page, *mark));
                    }
                    4 if page < 50 => {
                        let other = (at + 1) % 3;
                        let before = std::mem::replace(&mut lists[other], List::EMPTY);
                        blocks.prepend(before, &mut lists[at]);
                        let behind = std::mem::take(&mut queues[at]);
                        queues[other].extend(behind);
                        queues.swap(at, other);
                    }
                    _ => {}
                }
                let upcoming = blocks.upcoming(&lists[at]);
                let expected = queues[at].iter().map(|(page, _)| page).take(upcoming.len());
                prop_assert!(upcoming.iter().eq(expected));
            }
            for (list, queue) in lists.iter_mut().zip(&mut queues) {
                while let Some(page) = queue.pop_front() {
                    prop_assert_eq!(blocks.pop(list), Some(page));
                }
                prop_assert_eq!(blocks.pop(list), None);
            }
        }
    }
}
