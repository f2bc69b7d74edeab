//! First in, first out, with the records of the next pages read together: they have not been used for long, so each
//! would be a cache miss of its own.
//!
//! Cost: O(1); 4 bytes per page and up to an eighth more, or as many for each entry as it has.

use std::collections::{HashMap, VecDeque};

use super::record::Table;
use crate::page::PageId;

/// Entries whose records are read together.
const AHEAD: usize = 16;
/// A full queue grows by one part in `GROWTH`.
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

/// A queue of pages of which entries may become void: the page is gone, and what has its id now may have an entry of
/// its own, further behind. A page has one entry at most that is not void.
///
/// Cost: O(1), amortised for [`Strikable::strike`]; some 10 bytes per page with void entries, and no more void entries
/// than others and [`MIN_GROWTH`].
#[derive(Clone, Debug, Default)]
pub(super) struct Strikable {
    queue: Queue<PageId>,
    /// Void entries of each page that has any. They stand before its valid one.
    void: HashMap<PageId, u32>,
    voids: usize,
}

impl Strikable {
    /// Entries, void ones too.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Adds a page that has no valid entry at the end.
    #[inline]
    pub fn push(&mut self, page: PageId) {
        self.queue.push(page);
    }

    /// The entry of a page becomes void.
    #[cold]
    pub fn strike(&mut self, page: PageId) {
        *self.void.entry(page).or_default() += 1;
        self.voids += 1;
        if self.voids > self.queue.len() / 2 + MIN_GROWTH {
            let void = &mut self.void;
            self.queue.retain(|page| !redeem(void, *page));
            self.voids = 0;
        }
    }

    /// Takes the first entry off: the page, if the entry is valid.
    #[inline]
    pub fn pop(&mut self, table: &Table) -> Option<Option<PageId>> {
        let page = self.queue.pop(table)?;
        Some((!self.take_void(page)).then_some(page))
    }

    /// The pages of the first and the last entry, and whether the first is void.
    #[inline]
    pub fn ends(&self) -> Option<(PageId, bool, PageId)> {
        let (first, last) = self.queue.ends()?;
        Some((first, !self.void.is_empty() && self.void.contains_key(&first), last))
    }

    /// Takes the last entry off; `is_valid` if its page has a valid one, which it is then.
    #[inline]
    pub fn pop_last(&mut self, is_valid: bool) -> Option<PageId> {
        let page = self.queue.pop_last()?;
        if !is_valid {
            self.take_void(page);
        }
        Some(page)
    }

    #[inline]
    fn take_void(&mut self, page: PageId) -> bool {
        let is_void = !self.void.is_empty() && redeem(&mut self.void, page);
        self.voids -= usize::from(is_void);
        is_void
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.queue.bytes() + self.void.capacity() * (size_of::<(PageId, u32)>() + 1)
    }
}

/// Whether a page has a void entry, which is none from now on.
fn redeem(void: &mut HashMap<PageId, u32>, page: PageId) -> bool {
    let Some(entries) = void.get_mut(&page) else { return false };
    *entries -= 1;
    if *entries == 0 {
        void.remove(&page);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::record::Record;
    use crate::monitor::Random;

    /// Against a plain queue of entries that know whether they are void; void ones may go at any time.
    #[test]
    fn what_is_struck_is_void_and_what_follows_it_is_not() {
        const PAGES: u32 = 50;
        let table = Table { records: vec![Record::default(); PAGES as usize], now: 1 };
        let (mut queue, mut model) = (Strikable::default(), VecDeque::<(PageId, bool)>::new());
        let mut random = Random::new(3);
        let mut draw = move |below: u32| (random.bits() >> 33) as u32 % below;
        let mut longest = 0;
        for step in 0..100_000 {
            let page = draw(PAGES);
            let valid = |model: &VecDeque<(PageId, bool)>, page| model.contains(&(page, true));
            // By turns entries become void and are taken off.
            let actions = if step / 1000 % 2 == 0 { 8 } else { 11 };
            match draw(actions) {
                0..5 if !valid(&model, page) => {
                    queue.push(page);
                    model.push_back((page, true));
                }
                0..8 if valid(&model, page) => {
                    queue.strike(page);
                    model.iter_mut().filter(|entry| entry.0 == page).for_each(|entry| entry.1 = false);
                    if queue.len() < model.len() {
                        model.retain(|entry| entry.1);
                    }
                }
                8..10 => {
                    let expected = model.pop_front().map(|(page, valid)| valid.then_some(page));
                    assert_eq!(queue.pop(&table), expected);
                }
                10 => {
                    let Some((last, is_valid)) = model.pop_back() else { continue };
                    assert_eq!(queue.pop_last(is_valid), Some(last));
                }
                _ => {}
            }
            let ends = model.front().zip(model.back());
            assert_eq!(queue.ends(), ends.map(|(first, last)| (first.0, !first.1, last.0)), "step {step}");
            longest = longest.max(queue.len());
        }
        assert!((MIN_GROWTH..=2 * (MIN_GROWTH + PAGES as usize)).contains(&longest), "{longest}");
    }
}
