//! Policies that give each page in memory a worth and evict the least: LFU, GDSF, LRU-K, LeCaR and Cacheus.
//!
//! Pages go by their worth and, of equal ones, by the time given with it, the lesser first. A page that memory does not
//! let go keeps its worth; in one call each page is offered once.
//!
//! Worths grow with accesses, so most changes need not be sorted at once: a heap holds for each page a worth that it
//! had, which is looked at again only when it is the least.
//!
//! Invariant: of each page in memory the heap has one entry that counts, told by its time; its worth is at most the
//! page's. Other entries are thrown away when they are the least, or when they are more than those that count.
//!
//! Cost: 24 bytes per page id, some 24 to 48 per page in memory, O(1) for an access and O(log n) for an eviction,
//! amortised.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::evict;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::page::PageId;

/// Worth, time, page.
type Rank = (u64, u64, PageId);

/// Entries that do not count are let stand up to this number.
const MAX_LEFT_OVER: usize = 64;

/// The pages in memory by their worth.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranked {
    heap: BinaryHeap<Reverse<Rank>>,
    /// Worth and time of each page id; time 0: it is not in memory.
    ranks: Vec<(u64, u64)>,
    /// The time of the entry that counts; 0: there is none.
    entered: Vec<u64>,
    /// Pages in memory.
    pages: usize,
    /// Accesses so far.
    now: u64,
    pub(super) counters: Counters,
}

impl Ranked {
    /// Counts an access; its time, from 1.
    pub(super) fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Gives a page its worth, whether it was in memory before or comes in; `time` differs from all that the page had,
    /// and is not 0.
    pub(super) fn put(&mut self, page: PageId, worth: u64, time: u64) {
        let old = std::mem::replace(&mut self.ranks[page as usize], (worth, time));
        if old.1 == 0 {
            self.pages += 1;
        } else if old < (worth, time) {
            return;
        }
        self.enter((worth, time, page));
        if self.heap.len() > 2 * self.pages + MAX_LEFT_OVER {
            let entered = &self.entered;
            self.heap.retain(|Reverse((_, time, page))| entered[*page as usize] == *time);
        }
    }

    fn enter(&mut self, rank: Rank) {
        self.entered[rank.2 as usize] = rank.1;
        self.heap.push(Reverse(rank));
    }

    pub(super) fn contains(&self, page: PageId) -> bool {
        self.ranks[page as usize].1 != 0
    }

    /// Makes the heap's least entry one that counts, with the worth that its page has.
    fn settle(&mut self) -> Option<PeekMut<'_, Reverse<Rank>>> {
        loop {
            let Reverse((worth, time, page)) = *self.heap.peek()?;
            let (now_worth, now_time) = self.ranks[page as usize];
            if self.entered[page as usize] != time {
                self.heap.pop();
            } else if (worth, time) == (now_worth, now_time) {
                return self.heap.peek_mut();
            } else {
                self.entered[page as usize] = now_time;
                *self.heap.peek_mut()? = Reverse((now_worth, now_time, page));
            }
        }
    }

    /// The page of least worth.
    pub(super) fn least(&mut self) -> Option<PageId> {
        self.settle().map(|least| least.0.2)
    }

    /// Takes a page out, if it is in. Its entry stays and does not count.
    pub(super) fn remove(&mut self, page: PageId) {
        if self.contains(page) {
            self.ranks[page as usize] = (0, 0);
            self.entered[page as usize] = 0;
            self.pages -= 1;
        }
    }

    /// Evicts up to `goal` pages, those of least worth first, and tells each with its worth to `gone`.
    pub(super) fn evict<M: Memory>(&mut self, goal: u32, memory: &mut M, mut gone: impl FnMut(PageId, u64)) -> u32 {
        let (mut freed, mut kept): (u32, Vec<Rank>) = (0, Vec::new());
        while freed < goal {
            let Some(Reverse((worth, time, page))) = self.settle().map(PeekMut::pop) else { break };
            if evict(page, memory, &mut self.counters) {
                self.remove(page);
                gone(page, worth);
                freed += 1;
            } else {
                kept.push((worth, time, page));
            }
        }
        self.heap.extend(kept.into_iter().map(Reverse));
        freed
    }

    /// Whether pages of `worth` or less, those of least worth first, amount to `needed` in what `amount` says of each.
    pub(super) fn amount_to(&mut self, needed: u64, worth: u64, amount: &dyn Fn(PageId) -> u64) -> bool {
        let (mut found, mut seen): (u64, Vec<Rank>) = (0, Vec::new());
        while found < needed {
            let Some(least) = self.settle().filter(|least| least.0.0 <= worth) else { break };
            let Reverse(rank) = PeekMut::pop(least);
            found += amount(rank.2);
            seen.push(rank);
        }
        self.heap.extend(seen.into_iter().map(Reverse));
        found >= needed
    }

    pub(super) fn grow(&mut self, pages: usize) {
        self.ranks.resize(pages.max(self.ranks.len()), (0, 0));
        self.entered.resize(pages.max(self.entered.len()), 0);
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.ranks.capacity() * size_of::<(u64, u64)>()
            + self.entered.capacity() * size_of::<u64>()
            + self.heap.len() * size_of::<Rank>()
    }
}
