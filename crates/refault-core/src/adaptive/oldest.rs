//! The page used longest ago among those that bear a flag, without a list that each reference changes.
//!
//! Pages are sorted by the time of their last reference; one that was used after the sort is passed over, and any other
//! is older than all of those. When the sorted pages are used up, those that bear the flag are sorted anew. The order
//! is exactly a linked list's, while a reference only writes its time.
//!
//! Invariants: every page with the flag is in `pages` or in the rest of `group`; the first `sorted` of `pages` are in
//! the order of their times when they were sorted. Behind them is what came or was passed over since.
//! Cost: 4 bytes per page with the flag and up to a tenth more. Pages that lose the flag and get it back before they
//! are met cost 8. A sort of n pages comes after at least as many references or departures. It is linear where fewer
//! than 8n references passed. So the oldest is found in amortised O(log n) at worst.

use std::collections::VecDeque;

use super::record::Table;
use crate::page::{NO_PAGE, PageId};

/// Times per page up to which pages are sorted through a table of all times rather than by comparison.
const MAX_TABLE_SHARE: usize = 8;
/// Stale entries that are tolerated in any case.
const MIN_SLACK: usize = 1024;
/// A full queue grows by one part in `GROWTH`: doubling would be most of what the policy holds.
const GROWTH: usize = 8;

/// Sorted pages that are looked at together: enough to overlap the look-ups, few enough to stay current.
const GROUP: usize = 32;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Oldest {
    flag: u32,
    /// Sorted pages, then the others.
    pages: VecDeque<PageId>,
    /// How many at the front are sorted.
    sorted: usize,
    sorted_at: u32,
    /// The last few taken off the front: those that were still in order when they were looked at.
    group: [PageId; GROUP],
    group_next: usize,
    group_len: usize,
}

impl Oldest {
    /// For pages that bear `flag`; none yet.
    pub fn new(flag: u32) -> Oldest {
        Oldest {
            flag,
            pages: VecDeque::new(),
            sorted: 0,
            sorted_at: 0,
            group: [NO_PAGE; GROUP],
            group_next: 0,
            group_len: 0,
        }
    }

    /// A page has just got the flag and been used; `members` bear it now.
    #[inline]
    pub fn insert(&mut self, page: PageId, members: usize, table: &Table) {
        self.push(page);
        if self.pages.len() > 2 * members + MIN_SLACK {
            self.sort(table);
        }
    }

    /// The page with the flag that was used longest ago. It stays until it loses the flag or is used.
    #[inline]
    pub fn find(&mut self, table: &Table) -> Option<PageId> {
        if let Some(page) = self.find_sorted(table) {
            return Some(page);
        }
        self.sort(table);
        self.find_sorted(table)
    }

    /// Forgets the order, because times were renumbered.
    pub fn forget(&mut self) {
        self.return_group();
        self.sorted = 0;
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<PageId>()
    }

    #[inline]
    fn push(&mut self, page: PageId) {
        if self.pages.len() == self.pages.capacity() {
            self.pages.reserve_exact(self.pages.len() / GROWTH + MIN_SLACK);
        }
        self.pages.push_back(page);
    }

    #[inline]
    fn find_sorted(&mut self, table: &Table) -> Option<PageId> {
        loop {
            while self.group_next < self.group_len {
                let page = self.group[self.group_next];
                let record = table.at(page);
                if record.is(self.flag) {
                    if record.used < self.sorted_at {
                        return Some(page);
                    }
                    self.push(page);
                }
                self.group_next += 1;
            }
            if self.sorted == 0 {
                return None;
            }
            self.look_at_group(table);
        }
    }

    /// Whether a sorted page is still in order cannot be foreseen, so there is no branch on it: the look-ups overlap.
    fn look_at_group(&mut self, table: &Table) {
        let count = GROUP.min(self.sorted);
        let (mut in_order, mut used) = (0, 0);
        let mut passed_over = [NO_PAGE; GROUP];
        for page in self.pages.drain(..count) {
            let record = table.at(page);
            let (is_member, is_old) = (record.is(self.flag), record.used < self.sorted_at);
            self.group[in_order] = page;
            in_order += usize::from(is_member & is_old);
            passed_over[used] = page;
            used += usize::from(is_member & !is_old);
        }
        self.sorted -= count;
        (self.group_next, self.group_len) = (0, in_order);
        // As many were taken off.
        self.pages.extend(&passed_over[..used]);
    }

    fn return_group(&mut self) {
        for at in self.group_next..self.group_len {
            self.push(self.group[at]);
        }
        (self.group_next, self.group_len) = (0, 0);
    }

    #[cold]
    fn sort(&mut self, table: &Table) {
        self.return_group();
        let key = |page: PageId| u64::from(table.at(page).used) << 32 | u64::from(page);
        let mut keys = Vec::with_capacity(self.pages.len());
        keys.extend(self.pages.iter().filter(|page| table.at(**page).is(self.flag)).map(|page| key(*page)));
        self.pages.clear();
        let first = keys.iter().min().map_or(table.now, |key| (key >> 32) as u32);
        let span = (table.now - first) as usize;
        if span <= MAX_TABLE_SHARE * keys.len() {
            // Times are distinct, so each page has a place of its own, and meets itself if it is in `pages` twice.
            let mut places = vec![NO_PAGE; span];
            keys.iter().for_each(|key| places[((key >> 32) as u32 - first) as usize] = *key as PageId);
            self.pages.extend(places.into_iter().filter(|page| *page != NO_PAGE));
        } else {
            keys.sort_unstable();
            keys.dedup();
            self.pages.extend(keys.into_iter().map(|key| key as PageId));
        }
        self.sorted = self.pages.len();
        self.sorted_at = table.now;
    }
}
