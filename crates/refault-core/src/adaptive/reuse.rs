//! The directory of reuse distance: what LIRS would hold, with a stack that is not bounded.
//!
//! Nearly all of memory belongs to pages whose last two references were close together (*low*, LIR in the paper). The
//! rest belongs to a queue of pages on *probation* (HIR). A page on probation, or one that is not held, takes a low
//! page's place by two references in a row at a short distance. Both distances are shorter than the time since that low
//! page's last reference. So of a loop larger than memory one part stays, and a scan passes through the queue.
//!
//! Twice, as the longer of two distances tells more than the last: of a loop that two readers are in, each page is
//! referenced at a short and a long distance in turns. After the short one it would take the place of a page that is
//! just as good, and none would stay.
//!
//! Pages that were read ahead wait on probation for their reader, which has that many places more.
//!
//! The paper's stack orders pages by their last reference down to the oldest low page; whether a page is in it follows
//! from the two times alone. So there is no stack, and ghosts cost nothing but the time that every page has.
//!
//! Invariants: held pages are low or on probation; the low are at most the capacity without the probation share, or go
//! first until they are, where that share has grown; each page on probation has one entry in the queue that bears the
//! time of its last reference.
//! Cost: 4 to 12 bytes per low page, 8 to 40 per page on probation.
//! Source: Jiang and Zhang, *LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy*, SIGMETRICS 2002;
//! that the stack need not be kept is ours. The longer of two distances: Zhong, Zhao and Jiang, *LIRS2: An Improved
//! LIRS Replacement Algorithm*, SYSTOR 2021.

use std::collections::VecDeque;

use super::oldest::Oldest;
use super::queue::Queue;
use super::record::{CLOSE, HELD, LOW, PROBATION, Table};
use super::{Directory, Way};
use crate::page::PageId;

const FLAG: u32 = HELD[Way::ReuseDistance as usize];
/// One page in `PROBATION_SHARE` is for pages on probation, at least one page: the paper's 1 %.
const PROBATION_SHARE: usize = 100;
/// At most one page in `MAX_WAITING_SHARE` is for pages that wait for their reader.
const MAX_WAITING_SHARE: usize = 4;
/// Stale entries of the queue that are tolerated in any case.
const MIN_SLACK: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Reuse {
    low: Oldest,
    low_pages: usize,
    low_limit: usize,
    /// Pages and the times of their last references, oldest first; an entry with another time is stale.
    probation: Queue<(PageId, u32)>,
    probation_pages: usize,
    /// Pages that wait for their reader and are on probation meanwhile.
    waiting: usize,
    capacity: usize,
}

impl Default for Reuse {
    fn default() -> Reuse {
        let low = Oldest::new(LOW);
        Reuse {
            low,
            low_pages: 0,
            low_limit: 0,
            probation: Queue::default(),
            probation_pages: 0,
            waiting: 0,
            capacity: 1,
        }
    }
}

impl Reuse {
    /// Whether a page that was referenced at `before`, and is now, was closer both times than some low page is.
    fn is_close_again(&mut self, page: PageId, before: u32, table: &mut Table) -> bool {
        let is_close = before > 0 && self.low.find(table).is_some_and(|oldest| before > table.at(oldest).used);
        let was_close = table.at(page).is(CLOSE);
        table.clear(page, CLOSE);
        if is_close && !was_close {
            table.set(page, CLOSE);
        }
        is_close && was_close
    }

    fn become_low(&mut self, page: PageId, table: &mut Table) {
        self.probation_pages -= usize::from(table.at(page).is(PROBATION));
        table.clear(page, PROBATION | CLOSE);
        table.set(page, LOW);
        self.low_pages += 1;
        self.low.insert(page, self.low_pages, table);
        if self.low_pages > self.low_limit {
            self.demote(table);
        }
    }

    /// The low page used longest ago goes to the end of the queue.
    fn demote(&mut self, table: &mut Table) {
        if let Some(page) = self.low.find(table) {
            table.clear(page, LOW);
            self.low_pages -= 1;
            self.probation_pages += 1;
            self.enqueue(page, table);
        }
    }

    /// Keeps places on probation for `waiting` pages that were read ahead, until they are read. From now on low pages
    /// beyond `low_limit` are evicted first.
    pub fn reserve(&mut self, waiting: usize) {
        self.waiting = waiting.min(self.capacity / MAX_WAITING_SHARE);
        self.low_limit = self.capacity - self.capacity.div_ceil(PROBATION_SHARE) - self.waiting;
    }

    fn enqueue(&mut self, page: PageId, table: &mut Table) {
        table.set(page, PROBATION);
        self.probation.push((page, table.at(page).used));
        if self.probation.len() > 4 * self.probation_pages + MIN_SLACK {
            self.probation.retain(|entry| is_valid(*entry, table));
        }
    }
}

fn is_valid((page, used): (PageId, u32), table: &Table) -> bool {
    let record = table.at(page);
    record.is(PROBATION) && record.used == used
}

impl Directory for Reuse {
    fn held(&self) -> usize {
        self.low_pages + self.probation_pages
    }

    fn refer(&mut self, page: PageId, before: u32, table: &mut Table) {
        if table.at(page).is(LOW) {
            return;
        }
        let held = table.at(page).is(FLAG);
        table.set(page, FLAG);
        if self.is_close_again(page, before, table) || !held && self.low_pages < self.low_limit {
            self.become_low(page, table);
        } else {
            self.probation_pages += usize::from(!held);
            self.enqueue(page, table);
        }
    }

    fn shed(&mut self, table: &mut Table) -> Option<PageId> {
        if self.low_pages > self.low_limit || self.probation_pages == 0 {
            // More places are for probation than were, or nothing is there.
            let page = self.low.find(table)?;
            self.forget(page, table);
            return Some(page);
        }
        while let Some(entry) = self.probation.pop(table) {
            if is_valid(entry, table) {
                self.forget(entry.0, table);
                return Some(entry.0);
            }
        }
        None
    }

    fn forget(&mut self, page: PageId, table: &mut Table) {
        let record = table.at(page);
        self.low_pages -= usize::from(record.is(LOW));
        self.probation_pages -= usize::from(record.is(PROBATION));
        table.clear(page, FLAG | LOW | PROBATION);
    }

    fn resize(&mut self, capacity: usize, table: &mut Table) {
        self.capacity = capacity;
        self.reserve(self.waiting);
        while self.low_pages > self.low_limit {
            self.demote(table);
        }
    }

    fn renumbered(&mut self, table: &Table) {
        self.low.forget();
        // Entries are of the times before, so which of two is the valid one no longer shows: the later.
        let mut seen = std::collections::HashSet::new();
        let mut queue: VecDeque<_> = VecDeque::new();
        for (page, _) in self.probation.take().into_iter().rev() {
            if table.at(page).is(PROBATION) && seen.insert(page) {
                queue.push_front((page, table.at(page).used));
            }
        }
        queue.into_iter().for_each(|entry| self.probation.push(entry));
    }

    fn bytes(&self) -> usize {
        self.low.bytes() + self.probation.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 100;

    /// `pages` pages referred to for the first time, in order.
    fn filled(reuse: &mut Reuse, pages: u32) -> Table {
        let mut table = Table { records: Vec::new(), now: 1 };
        table.grow(2 * CAPACITY);
        reuse.resize(CAPACITY, &mut table);
        for page in 0..pages {
            table.touch(page);
            reuse.refer(page, 0, &mut table);
        }
        table
    }

    #[test]
    fn places_for_what_waits_are_made_of_what_is_low() {
        let mut reuse = Reuse::default();
        let mut table = filled(&mut reuse, 100);
        reuse.reserve(20);
        // 99 were low, and 79 may be now; the one on probation stays meanwhile.
        let shed: Vec<PageId> = (0..20).filter_map(|_| reuse.shed(&mut table)).collect();
        assert_eq!(shed, (0..20).collect::<Vec<_>>());
        assert_eq!(reuse.shed(&mut table), Some(99), "what passes through");
    }

    /// Two readers of a loop, the second a fifth of it behind the first: each page comes back soon, and then late.
    #[test]
    fn what_is_kept_of_a_loop_stays_though_two_readers_are_in_it() {
        let mut reuse = Reuse::default();
        let mut table = filled(&mut reuse, 99);
        let mut held = 0;
        for step in 0..20 * 200 {
            for page in [(step + 40) % 200, step % 200] {
                held += usize::from(table.at(page).is(FLAG));
                let before = table.at(page).used;
                table.touch(page);
                reuse.refer(page, before, &mut table);
                if reuse.held() > CAPACITY {
                    reuse.shed(&mut table);
                }
            }
        }
        assert!(held > 20 * 190, "{held} of {} references", 20 * 400);
    }

    /// What is kept of a scan would go in pieces, and come back page by page.
    #[test]
    fn what_is_low_stays_though_all_that_is_on_probation_may_wait() {
        let mut reuse = Reuse::default();
        let mut table = filled(&mut reuse, 0);
        reuse.reserve(20);
        for page in 0..85 {
            table.touch(page);
            reuse.refer(page, 0, &mut table);
        }
        assert_eq!((reuse.low_pages, reuse.probation_pages), (79, 6));
        let shed: Vec<PageId> = (0..6).filter_map(|_| reuse.shed(&mut table)).collect();
        assert_eq!(shed, (79..85).collect::<Vec<_>>());
    }
}
