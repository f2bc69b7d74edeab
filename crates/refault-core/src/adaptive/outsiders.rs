//! What the directories of a policy share, and who of the resident pages is an outsider of which.
//!
//! A directory that gives a resident page up queues it as its outsider, in the order in which it lets pages go; the
//! queue of the way that chooses has the next victim at its front. While the guard holds the policy back, the end of
//! recency's queue is looked at too.
//!
//! Invariants: every resident page that a directory does not hold is in its queue, once. Cost: amortised O(1) for each
//! page that a directory lets go.

use super::choice::Choice;
use super::queue::Strikable;
use super::record::{HELD, QUEUED, RESIDENT, Table};
use super::{Directory, Way};
use crate::page::PageId;

/// By how much the references of one page must be worth more than another's to say so, in steps of rank (module
/// `frequency`): an eighth of a half-life. Pages of a loop differ by less.
const CLEARLY_MORE: u32 = 8;

/// What the directories share.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) table: Table,
    pub(super) choice: Choice,
    /// Resident pages that a directory does not hold, in the order in which it let them go. Entries of pages that it
    /// holds again, or that are gone, are passed over.
    pub(super) outsiders: [Strikable; 3],
    pub(super) capacity: usize,
}

impl Common {
    pub(super) fn holds(&self, way: Way, page: PageId) -> bool {
        self.table.at(page).is(HELD[way as usize])
    }

    /// Lets a directory give up what it holds above the capacity.
    #[inline]
    pub(super) fn shed_excess<D: Directory>(&mut self, way: Way, directory: &mut D) {
        while directory.held() > self.capacity && self.shed(way, directory) {}
    }

    /// Lets a directory give up one page; false if it holds none.
    #[inline]
    pub(super) fn shed<D: Directory>(&mut self, way: Way, directory: &mut D) -> bool {
        let Some(page) = directory.shed(&mut self.table) else { return false };
        self.note_shed(way, page);
        true
    }

    /// A directory has given a page up.
    #[inline]
    pub(super) fn note_shed(&mut self, way: Way, page: PageId) {
        if self.table.at(page).is(RESIDENT) {
            self.queue_outsider(way, page);
        } else if way == Way::Recency {
            self.choice.left_unmissed();
        }
    }

    pub(super) fn queue_outsider(&mut self, way: Way, page: PageId) {
        let queued = QUEUED[way as usize];
        if !self.table.at(page).is(queued) {
            self.table.set(page, queued);
            self.outsiders[way as usize].push(page);
        }
    }

    fn is_outsider(&self, way: Way, page: PageId) -> bool {
        self.table.at(page).is(RESIDENT) && !self.holds(way, page)
    }

    /// Takes a resident page that `way` does not hold off its queue, the one that it let go first.
    pub(super) fn next_outsider(&mut self, way: Way) -> Option<PageId> {
        while let Some(entry) = self.outsiders[way as usize].pop(&self.table) {
            let Some(page) = entry else { continue };
            self.table.clear(page, QUEUED[way as usize]);
            if self.is_outsider(way, page) {
                return Some(page);
            }
        }
        None
    }

    /// Takes a resident page that recency does not hold off its queue, while the guard holds the policy back: the one
    /// let go last, since what is kept of a loop must stay until its turn comes; or the one let go first, if the leader
    /// does not want it or its references are worth less.
    pub(super) fn next_held_back(&mut self) -> Option<PageId> {
        let queue = Way::Recency as usize;
        let (first, last) = loop {
            let (first, is_void, last) = self.outsiders[queue].ends()?;
            let has_valid = self.table.at(last).is(QUEUED[queue]);
            if is_void {
                self.outsiders[queue].pop(&self.table);
            } else if !self.is_outsider(Way::Recency, first) {
                self.outsiders[queue].pop(&self.table);
                self.table.clear(first, QUEUED[queue]);
            } else if !has_valid || !self.is_outsider(Way::Recency, last) {
                self.outsiders[queue].pop_last(has_valid);
                self.table.clear(last, QUEUED[queue]);
            } else {
                break (first, last);
            }
        };
        let is_wanted = |page| self.holds(self.choice.leader, page);
        let is_worth_more = self.table.rank(last) > self.table.rank(first) + CLEARLY_MORE;
        let page = if !is_wanted(first) || is_wanted(last) && is_worth_more {
            self.outsiders[queue].pop(&self.table)??
        } else {
            self.outsiders[queue].pop_last(true)?
        };
        self.table.clear(page, QUEUED[queue]);
        Some(page)
    }
}
