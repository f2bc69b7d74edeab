//! First in, first out, with the records of the next pages read together: they have not been used for long, so each
//! would be a cache miss of its own.
//!
//! Cost: O(1); 4 bytes per page and up to an eighth more, or as many for each entry as it has.

use std::collections::VecDeque;

use super::record::Table;
use crate::page::PageId;

/// Entries whose records are read together.
const AHEAD: usize = 16;
/// One part in so many by which a full queue grows.
const GROWTH: usize = 8;
/// Entries by which it grows at least.
const MIN_GROWTH: usize = 64;

/// What stands in a queue for a page.
pub(super) trait Entry: Copy {
    /// The page.
    fn page(self) -> PageId;
}

impl Entry for PageId {
    fn page(self) -> PageId {
        self
    }
}

impl Entry for (PageId, u32) {
    fn page(self) -> PageId {
        self.0
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    entries: VecDeque<T>,
    /// Entries at the front whose records have been read.
    read: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { entries: VecDeque::new(), read: 0 }
    }
}

impl<T: Entry> Queue<T> {
    /// Entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an entry at the end.
    #[inline]
    pub fn push(&mut self, entry: T) {
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(self.entries.len() / GROWTH + MIN_GROWTH);
        }
        self.entries.push_back(entry);
    }

    /// Takes the first entry off.
    #[inline]
    pub fn pop(&mut self, table: &Table) -> Option<T> {
        if self.read == 0 {
            self.read = AHEAD.min(self.entries.len());
            table.fetch(self.entries.iter().take(self.read).map(|entry| entry.page()));
        }
        self.read = self.read.saturating_sub(1);
        self.entries.pop_front()
    }

    /// The first and the last entry.
    #[inline]
    pub fn ends(&self) -> Option<(T, T)> {
        Some((*self.entries.front()?, *self.entries.back()?))
    }

    /// Takes the last entry off.
    #[inline]
    pub fn pop_last(&mut self) -> Option<T> {
        let last = self.entries.pop_back();
        self.read = self.read.min(self.entries.len());
        last
    }

    /// Leaves only those entries for which `keep` answers true.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.entries.retain(keep);
        self.read = 0;
    }

    /// Takes all entries out.
    pub fn take(&mut self) -> VecDeque<T> {
        self.read = 0;
        std::mem::take(&mut self.entries)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<T>()
    }
}
