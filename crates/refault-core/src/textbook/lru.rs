//! Least recently used: the page that was not accessed for longest goes.
//!
//! There is no list. A hit stores the time of the access, and that is all. Victims come from a queue of pages sorted by
//! time: a page that was accessed after the sort is passed over, and any other is older than all that were. When the
//! queue is used up every page was accessed since; they are sorted anew. So the order is exactly that of a list whose
//! hits move pages to the head. But a hit writes one word, where the move reads and writes three records.
//!
//! Invariants: `used` of a resident page is the time of its last access, distinct for each; every resident page is in
//! `pages`; the first `sorted` of `pages` were sorted by time at `sorted_at`, and those before `next` have been looked
//! at since.
//!
//! Cost: 4 bytes per page id and 4 to 8 per resident page (up to 32 more for the moment of a sort). A hit is O(1). A
//! sort of n pages comes after at least n accesses or evictions. It is linear if there were fewer than 8n of them. So
//! an eviction costs amortised O(log n) at worst, and in practice less than a list's.

use super::evict;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::page::{NO_PAGE, PageId};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// The page is not resident.
const ABSENT: u32 = u32::MAX;
/// Pages that may arrive before the queue is first sorted only to drop what was freed.
const FEW: usize = 1024;
/// Sorted pages looked at together: enough to overlap their look-ups, few enough to stay current.
const GROUP: usize = 16;
/// Times per page, up to which sorting goes through a table of all times rather than by comparison.
const WIDEST_TABLE: usize = 8;

/// See the module.
#[derive(Clone, Debug)]
pub struct Lru {
    used: Vec<u32>,
    /// Sorted pages, then those that arrived since.
    pages: Vec<PageId>,
    sorted: usize,
    sorted_at: u32,
    next: usize,
    /// The last few of `pages` before `next`: those that were not accessed since the sort when they were looked at.
    group: [PageId; GROUP],
    group_len: usize,
    group_next: usize,
    resident: usize,
    now: u32,
    /// When times are renumbered: before they reach [`ABSENT`].
    last_time: u32,
    counters: Counters,
}

impl Default for Lru {
    fn default() -> Lru {
        Lru {
            used: Vec::new(),
            pages: Vec::new(),
            sorted: 0,
            sorted_at: 0,
            next: 0,
            group: [NO_PAGE; GROUP],
            group_len: 0,
            group_next: 0,
            resident: 0,
            now: 0,
            last_time: ABSENT - 1,
            counters: Counters::default(),
        }
    }
}

impl Lru {
    /// An LRU that renumbers its times when they reach `last_time`, for tests. It must exceed the number of pages.
    #[doc(hidden)]
    pub fn renumbering_at(last_time: u32) -> Lru {
        Lru { last_time, ..Lru::default() }
    }

    #[inline]
    fn touch(&mut self, page: PageId) {
        self.used[page as usize] = self.now;
        self.now += 1;
        if self.now == self.last_time {
            self.renumber();
        }
    }

    /// Takes out the page used longest ago.
    #[inline]
    fn pop_oldest(&mut self) -> Option<PageId> {
        loop {
            while self.group_next < self.group_len {
                let page = self.group[self.group_next];
                self.group_next += 1;
                if self.used[page as usize] < self.sorted_at {
                    self.used[page as usize] = ABSENT;
                    self.resident -= 1;
                    return Some(page);
                }
            }
            if self.next < self.sorted {
                self.look_at_group();
            } else if self.resident > 0 {
                self.sort();
            } else {
                return None;
            }
        }
    }

    /// Looks which of the next sorted pages were not accessed since. That cannot be foreseen, so there is no branch on
    /// it: the look-ups overlap, and when a page of the group is asked for it is nearly always still as it was.
    fn look_at_group(&mut self) {
        let end = (self.next + GROUP).min(self.sorted);
        self.group_len = 0;
        self.group_next = 0;
        for &page in &self.pages[self.next..end] {
            self.group[self.group_len] = page;
            self.group_len += usize::from(self.used[page as usize] < self.sorted_at);
        }
        self.next = end;
    }

    /// Sorts the resident pages by time of last use.
    #[cold]
    fn sort(&mut self) {
        let used = &self.used;
        self.pages.retain(|page| used[*page as usize] != ABSENT);
        let first = self.pages.iter().map(|page| used[*page as usize]).min().unwrap_or(self.now);
        let span = (self.now - first) as usize;
        if span <= WIDEST_TABLE * self.pages.len() {
            // Times are distinct: each page has a place of its own in a table of all times. A page that left and came
            // back is in `pages` twice, and meets itself.
            let mut table = vec![NO_PAGE; span];
            self.pages.iter().for_each(|page| table[(used[*page as usize] - first) as usize] = *page);
            self.pages.clear();
            self.pages.extend(table.into_iter().filter(|page| *page != NO_PAGE));
        } else {
            self.pages.sort_unstable_by_key(|page| used[*page as usize]);
            self.pages.dedup();
        }
        self.sorted = self.pages.len();
        self.sorted_at = self.now;
        self.next = 0;
        self.group_len = 0;
        self.group_next = 0;
    }

    /// Times start again from 0, in the same order.
    #[cold]
    fn renumber(&mut self) {
        self.sort();
        for (time, page) in self.pages.iter().enumerate() {
            self.used[*page as usize] = time as u32;
        }
        self.now = self.sorted as u32;
        self.sorted_at = self.now;
    }
}

impl Policy for Lru {
    const HITS: HitReport = HitReport::EachAccess;

    #[inline]
    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.resident += 1;
        self.pages.push(page);
        self.touch(page);
        // Only pages that are freed rather than evicted can make it this long.
        if self.pages.len() > 3 * self.resident + FEW {
            self.sort();
        }
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        self.touch(page);
    }

    fn freed(&mut self, page: PageId) {
        let used = std::mem::replace(&mut self.used[page as usize], ABSENT);
        self.resident -= usize::from(used != ABSENT);
    }

    #[inline]
    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        for _ in 0..self.resident {
            if freed == request.goal {
                break;
            }
            let Some(page) = self.pop_oldest() else { break };
            if evict(page, memory, &mut self.counters) {
                freed += 1;
            } else {
                self.resident += 1;
                self.touch(page);
            }
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.used.resize(pages.max(self.used.len()), ABSENT);
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        (self.used.capacity() + self.pages.capacity()) * size_of::<u32>()
    }
}
