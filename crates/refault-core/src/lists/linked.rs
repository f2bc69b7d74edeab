//! Doubly linked lists through arrays, by index.
//!
//! A list owns no memory: its links live in records that the policy keeps one per page. Invariants: a record is on at
//! most one list; `len` is the number of records on it. Every operation is O(1).

use crate::page::{NO_PAGE, PageId};

/// A record that can stand on one list.
pub trait Linked {
    /// The neighbour towards the head, or [`NO_PAGE`].
    fn newer(&self) -> PageId;
    /// The neighbour towards the tail, or [`NO_PAGE`].
    fn older(&self) -> PageId;
    /// Sets the neighbour towards the head.
    fn set_newer(&mut self, page: PageId);
    /// Sets the neighbour towards the tail.
    fn set_older(&mut self, page: PageId);
}

/// The smallest record that can stand on a list: 8 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    newer: PageId,
    older: PageId,
}

impl Default for Link {
    fn default() -> Link {
        Link { newer: NO_PAGE, older: NO_PAGE }
    }
}

impl Linked for Link {
    #[inline]
    fn newer(&self) -> PageId {
        self.newer
    }
    #[inline]
    fn older(&self) -> PageId {
        self.older
    }
    #[inline]
    fn set_newer(&mut self, page: PageId) {
        self.newer = page;
    }
    #[inline]
    fn set_older(&mut self, page: PageId) {
        self.older = page;
    }
}

/// Head, tail and length of one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    head: PageId,
    tail: PageId,
    len: usize,
}

impl Default for List {
    fn default() -> List {
        List { head: NO_PAGE, tail: NO_PAGE, len: 0 }
    }
}

impl List {
    /// Records on the list.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list has no record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The newest record.
    #[inline]
    pub fn head(&self) -> Option<PageId> {
        (self.head != NO_PAGE).then_some(self.head)
    }

    /// The next victim.
    #[inline]
    pub fn tail(&self) -> Option<PageId> {
        (self.tail != NO_PAGE).then_some(self.tail)
    }

    /// Puts a record that is on no list at the head.
    #[inline]
    pub fn push_head<R: Linked>(&mut self, records: &mut [R], page: PageId) {
        let old = self.head;
        records[page as usize].set_newer(NO_PAGE);
        records[page as usize].set_older(old);
        if old == NO_PAGE {
            self.tail = page;
        } else {
            records[old as usize].set_newer(page);
        }
        self.head = page;
        self.len += 1;
    }

    /// Puts a record that is on no list at the tail.
    #[inline]
    pub fn push_tail<R: Linked>(&mut self, records: &mut [R], page: PageId) {
        let old = self.tail;
        records[page as usize].set_older(NO_PAGE);
        records[page as usize].set_newer(old);
        if old == NO_PAGE {
            self.head = page;
        } else {
            records[old as usize].set_older(page);
        }
        self.tail = page;
        self.len += 1;
    }

    /// Takes a record off this list. It must be on it.
    #[inline]
    pub fn remove<R: Linked>(&mut self, records: &mut [R], page: PageId) {
        let (newer, older) = (records[page as usize].newer(), records[page as usize].older());
        if newer == NO_PAGE {
            self.head = older;
        } else {
            records[newer as usize].set_older(older);
        }
        if older == NO_PAGE {
            self.tail = newer;
        } else {
            records[older as usize].set_newer(newer);
        }
        self.len -= 1;
    }

    /// Takes the record at the tail off, if there is one.
    #[inline]
    pub fn pop_tail<R: Linked>(&mut self, records: &mut [R]) -> Option<PageId> {
        let page = self.tail()?;
        self.remove(records, page);
        Some(page)
    }

    /// Moves a record of this list to its head.
    #[inline]
    pub fn move_to_head<R: Linked>(&mut self, records: &mut [R], page: PageId) {
        if self.head != page {
            self.remove(records, page);
            self.push_head(records, page);
        }
    }

    /// Pages from tail to head, for tests and listings: O(length).
    pub fn iter<'a, R: Linked>(&self, records: &'a [R]) -> impl Iterator<Item = PageId> + 'a {
        let mut at = self.tail;
        std::iter::from_fn(move || {
            (at != NO_PAGE).then(|| {
                let page = at;
                at = records[page as usize].newer();
                page
            })
        })
    }
}
