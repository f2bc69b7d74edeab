//! Policies that give each page in memory a worth and evict the least: LFU, LRU-K, LeCaR and Cacheus.
//!
//! Invariant: `order` holds each page in memory once, by its worth and, of equal ones, by its last access, the older
//! first. A page that memory does not let go keeps its worth; in one call each page is offered once.
//!
//! Cost: 16 to 24 bytes per page id, some 40 per page in memory, and O(log n) for each access.

use std::collections::BTreeSet;

use super::evict;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::page::PageId;

/// Worth, time of the last access, page.
type Rank = (u64, u64, PageId);

/// The pages in memory by their worth.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranked {
    order: BTreeSet<Rank>,
    /// Of each page id, while it is in memory.
    ranks: Vec<Option<(u64, u64)>>,
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

    /// Gives a page its worth, whether it was in memory before or comes in; `time` is that of its last access.
    pub(super) fn put(&mut self, page: PageId, worth: u64, time: u64) {
        self.remove(page);
        self.ranks[page as usize] = Some((worth, time));
        self.order.insert((worth, time, page));
    }

    pub(super) fn contains(&self, page: PageId) -> bool {
        self.ranks[page as usize].is_some()
    }

    /// The page of least worth.
    pub(super) fn least(&self) -> Option<PageId> {
        self.order.first().map(|(_, _, page)| *page)
    }

    /// Takes a page out, if it is in.
    pub(super) fn remove(&mut self, page: PageId) {
        if let Some((worth, time)) = self.ranks[page as usize].take() {
            self.order.remove(&(worth, time, page));
        }
    }

    /// Evicts up to `goal` pages, those of least worth first, and tells each with its worth to `gone`.
    pub(super) fn evict<M: Memory>(&mut self, goal: u32, memory: &mut M, mut gone: impl FnMut(PageId, u64)) -> u32 {
        let (mut freed, mut passed): (u32, Option<Rank>) = (0, None);
        while freed < goal {
            let next = match passed {
                None => self.order.first(),
                Some(passed) => {
                    self.order.range((std::ops::Bound::Excluded(passed), std::ops::Bound::Unbounded)).next()
                }
            };
            let Some(&(worth, time, page)) = next else { break };
            if evict(page, memory, &mut self.counters) {
                self.remove(page);
                gone(page, worth);
                freed += 1;
            } else {
                passed = Some((worth, time, page));
            }
        }
        freed
    }

    pub(super) fn grow(&mut self, pages: usize) {
        self.ranks.resize(pages.max(self.ranks.len()), None);
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.ranks.capacity() * size_of::<Option<(u64, u64)>>() + self.order.len() * size_of::<Rank>()
    }
}
