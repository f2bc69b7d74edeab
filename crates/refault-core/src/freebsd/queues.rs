//! The active, the inactive and the laundry queue, and what is known of each page (spec: freebsd §1).
//!
//! Kernel: `vm_page_activate`, `vm_page_deactivate`, `vm_page_dequeue`, `vm_page_unwire` in `sys/vm/vm_page.c`.

use crate::lists::linked::{Linked, List};
use crate::page::{NO_PAGE, PageId};

/// Lost by a scan that finds no reference.
pub(super) const ACT_DECLINE: u16 = 1;
/// Gained by a scan that finds a reference, beside the number of references.
pub(super) const ACT_ADVANCE: u16 = 3;
/// What an activated page has at least.
pub(super) const ACT_INIT: u16 = 5;
/// The most an active scan leaves.
pub(super) const ACT_MAX: u16 = 64;

/// A page queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Pages that are expected to go.
    Inactive = 0,
    /// Pages that are expected to stay.
    Active = 1,
    /// Dirty pages that are expected to go, once they are written. Version 12.
    Laundry = 2,
}

/// What is known of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    newer: PageId,
    older: PageId,
    pub act_count: u16,
    /// Reasons to keep the page off the queues.
    pub wirings: u16,
    pub queue: Option<Queue>,
    /// Referenced otherwise than through a mapping that still exists.
    pub referenced: bool,
    /// A dirty page that the inactive scan has passed over once.
    pub second_chance: bool,
    pub anon: bool,
}

const _: () = assert!(size_of::<Record>() == 16);

impl Default for Record {
    fn default() -> Record {
        Record {
            newer: NO_PAGE,
            older: NO_PAGE,
            act_count: 0,
            wirings: 0,
            queue: None,
            referenced: false,
            second_chance: false,
            anon: false,
        }
    }
}

impl Linked for Record {
    fn newer(&self) -> PageId {
        self.newer
    }
    fn older(&self) -> PageId {
        self.older
    }
    fn set_newer(&mut self, page: PageId) {
        self.newer = page;
    }
    fn set_older(&mut self, page: PageId) {
        self.older = page;
    }
}

/// All queues and all records.
#[derive(Default)]
pub(super) struct Queues {
    records: Vec<Record>,
    lists: [List; 3],
}

impl Queues {
    pub fn grow(&mut self, pages: usize) {
        if pages > self.records.len() {
            self.records.resize(pages, Record::default());
        }
    }

    pub fn metadata_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }

    #[inline]
    pub fn record(&self, page: PageId) -> &Record {
        &self.records[page as usize]
    }

    #[inline]
    pub fn record_mut(&mut self, page: PageId) -> &mut Record {
        &mut self.records[page as usize]
    }

    pub fn len(&self, queue: Queue) -> usize {
        self.lists[queue as usize].len()
    }

    /// The page that the daemon looks at first.
    #[inline]
    pub fn oldest(&self, queue: Queue) -> Option<PageId> {
        self.lists[queue as usize].tail()
    }

    /// The page that comes after this one, from oldest to newest.
    #[inline]
    pub fn next(&self, page: PageId) -> Option<PageId> {
        let newer = self.records[page as usize].newer;
        (newer != NO_PAGE).then_some(newer)
    }

    pub fn iter(&self, queue: Queue) -> impl Iterator<Item = PageId> + '_ {
        self.lists[queue as usize].iter(&self.records)
    }

    pub fn queue_of(&self, page: PageId) -> Option<Queue> {
        self.records[page as usize].queue
    }

    /// Takes a page off its queue, if it is on one.
    #[inline]
    pub fn unqueue(&mut self, page: PageId) {
        if let Some(queue) = self.records[page as usize].queue.take() {
            self.lists[queue as usize].remove(&mut self.records, page);
        }
    }

    /// Puts a page at the newest end of a queue, wherever it was.
    #[inline]
    pub fn requeue(&mut self, page: PageId, queue: Queue) {
        self.unqueue(page);
        self.records[page as usize].queue = Some(queue);
        self.lists[queue as usize].push_head(&mut self.records, page);
    }

    /// Puts a page at the oldest end of a queue, wherever it was.
    pub fn requeue_oldest(&mut self, page: PageId, queue: Queue) {
        self.unqueue(page);
        self.records[page as usize].queue = Some(queue);
        self.lists[queue as usize].push_tail(&mut self.records, page);
    }
}
