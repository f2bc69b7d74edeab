//! FreeBSD's page queues and page daemon, with and without cached pages (spec: freebsd).
//!
//! Resident pages stand on the inactive or the active queue, or on none while wired. A page daemon keeps `available`
//! frames (free ones, those that still hold a cached page included) near a target. It takes pages from the old end of
//! the inactive queue. It activates the referenced ones, writes the dirty ones and lets the clean ones go. It refills
//! the inactive queue from the active one. There each page has an activation count, which grows when the page is found
//! referenced and shrinks when it is not. A clean page that goes stays *cached* until its frame is reused; the
//! front-end keeps it so in [`crate::frames::CachedFrames`] if [`CachedPages::pools`] says so.
//!
//! Direction: FreeBSD puts new pages at the tail of a queue and works from its head. In this crate's lists it is the
//! other way round; "newest" and "oldest" are said here instead.
//!
//! # A fixed number of frames
//!
//! The capacity a front-end sets is the daemon's number of managed pages: all targets follow from it
//! ([`Targets::for_frames`]), and resident pages plus available frames always make up the capacity. Where there is no
//! time (a replay), the daemon runs inside [`Policy::reclaim`]. It is woken when the frames available fall below the
//! wakeup threshold ([`crate::policy::CachedPages::reclaim_threshold`]). It begins each time at pass 1, and runs again
//! with the next pass while the minimum is not reached. The idle pass that looks at 1/600 of the active queue each
//! second does not happen. A page is written and let go in one step.
//!
//! Version 12 has a third queue for dirty pages and a thread that writes them. It also has a controller for the number
//! of clean ones to free (see `laundry.rs`).
//!
//! Invariants: a page is on at most one queue; a wired page is on none; a page on the active queue has an activation
//! count of at least 1 except between a scan and its end.
//!
//! Cost: 16 bytes per page id. Everything is O(1) but the scans, which are as long as FreeBSD's.
//!
//! Kernel: `vm_page_activate`, `vm_page_deactivate` in `sys/vm/vm_page.c`; `vm_pageout_scan` in `sys/vm/vm_pageout.c`.
//!
//! ```
//! use refault_core::{Freebsd, FreebsdParams, Policy};
//!
//! let mut policy = Freebsd::new(FreebsdParams::no_cache());
//! policy.grow(1000);
//! policy.set_capacity(100);
//! assert_eq!(policy.counters().pgsteal, 0);
//! ```

mod advice;
mod counters;
mod laundry;
mod page_daemon;
mod params;
mod queues;
mod read_ahead;
mod targets;

pub use counters::VmCounters;
pub use page_daemon::{DaemonLoop, DaemonStep};
pub use params::{FreebsdParams, Version};
pub use queues::Queue;
pub use read_ahead::{Advice, Behind, Cluster, MapEntry};
pub use targets::Targets;

use crate::counters::Counters;
use crate::frames::FreePools;
use crate::memory::Memory;
use crate::page::{PageId, PageType};
use crate::policy::{Admission, CachedPages, HitReport, Lists, Policy, ReclaimRequest};
use queues::{ACT_INIT, Queues};

/// See the module.
pub struct Freebsd {
    params: FreebsdParams,
    queues: Queues,
    targets: Targets,
    /// Frames managed.
    capacity: u64,
    /// Pages that hold a frame.
    resident: u64,
    /// Frames taken by others than pages (the kernel's own, huge pages).
    taken: u64,
    /// Pages that requests asked for and did not get since the last scan.
    deficit: u64,
    /// Grows by one per page treated by [`Freebsd::dont_need`].
    dont_need_count: u32,
    controller: laundry::Controller,
    launderer: laundry::Launderer,
    counters: Counters,
    vm: VmCounters,
}

impl Freebsd {
    /// No page and no frame; [`Policy::set_capacity`] gives it frames.
    pub fn new(params: FreebsdParams) -> Freebsd {
        Freebsd {
            params,
            queues: Queues::default(),
            targets: Targets::default(),
            capacity: 0,
            resident: 0,
            taken: 0,
            deficit: 0,
            dont_need_count: 0,
            controller: laundry::Controller::default(),
            launderer: laundry::Launderer::default(),
            counters: Counters::default(),
            vm: VmCounters::default(),
        }
    }

    /// The parameters it was made with.
    pub fn params(&self) -> &FreebsdParams {
        &self.params
    }

    /// The daemon's targets.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Frames that are free, those with a cached page included.
    #[inline]
    pub fn available(&self) -> u64 {
        self.capacity.saturating_sub(self.resident + self.taken)
    }

    /// Tells how many frames are taken by others than pages.
    pub fn set_taken(&mut self, frames: u64) {
        self.taken = frames;
    }

    /// A request for this many frames (at least 1) was refused: the next scan frees as many more.
    pub fn refused(&mut self, frames: u64) {
        self.deficit += frames.max(1);
    }

    /// Pages of a queue from oldest to newest. O(length).
    pub fn queue(&self, queue: Queue) -> impl Iterator<Item = PageId> + '_ {
        self.queues.iter(queue)
    }

    /// The queue a page is on.
    pub fn queue_of(&self, page: PageId) -> Option<Queue> {
        self.queues.queue_of(page)
    }

    /// The activation count of a resident page.
    pub fn act_count(&self, page: PageId) -> u16 {
        self.queues.record(page).act_count
    }

    /// The page daemon's own counts, under the names of `vmstat -s`.
    pub fn vm_counters(&self) -> &VmCounters {
        &self.vm
    }

    /// Puts a page at the newest end of the active queue, unless it is active already (spec: freebsd §1).
    pub fn activate(&mut self, page: PageId) {
        let record = self.queues.record_mut(page);
        record.act_count = record.act_count.max(ACT_INIT);
        if record.queue != Some(Queue::Active) && record.wirings == 0 {
            self.queues.requeue(page, Queue::Active);
            self.counters.pgactivate += 1;
        }
    }

    /// Puts a page at the newest end of the inactive queue, unless it is inactive already.
    pub fn deactivate(&mut self, page: PageId) {
        if self.begin_deactivation(page) {
            self.queues.requeue(page, Queue::Inactive);
        }
    }

    /// Puts a page at the oldest end of the inactive queue, to be looked at next. A page that is inactive already is
    /// moved there in versions 10 and 12 only.
    pub fn deactivate_oldest(&mut self, page: PageId) {
        let moves = self.params.version != Version::V2015 && self.queues.record(page).wirings == 0;
        if self.begin_deactivation(page) || moves {
            self.queues.requeue_oldest(page, Queue::Inactive);
        }
    }

    /// Whether the page is to be moved to the inactive queue.
    fn begin_deactivation(&mut self, page: PageId) -> bool {
        let record = self.queues.record_mut(page);
        if record.queue == Some(Queue::Inactive) || record.wirings > 0 {
            return false;
        }
        self.counters.pgdeactivate += u64::from(record.queue == Some(Queue::Active));
        record.second_chance = false;
        true
    }

    /// The end of a page fault that found its page resident: the newest end of the active queue, even from there.
    /// A fast fault does not come here (spec: freebsd §1).
    pub fn faulted(&mut self, page: PageId) {
        self.queues.unqueue(page);
        self.activate(page);
    }

    /// Takes a page off its queue until it is unwired as often as it was wired.
    pub fn wire(&mut self, page: PageId) {
        self.queues.unqueue(page);
        self.queues.record_mut(page).wirings += 1;
    }

    /// Undoes one [`Freebsd::wire`]; the last one puts the page at the newest end of the inactive queue.
    pub fn unwire(&mut self, page: PageId) {
        let record = self.queues.record_mut(page);
        debug_assert!(record.wirings > 0);
        record.wirings -= 1;
        if record.wirings == 0 {
            self.deactivate(page);
        }
    }

    /// The page has gone: off its queue, and its frame is available.
    fn forget(&mut self, page: PageId) {
        self.queues.unqueue(page);
        self.resident -= 1;
    }
}

impl Policy for Freebsd {
    const HITS: HitReport = HitReport::Kernel;
    const CACHES_PAGES: bool = true;

    /// A page brought in by a fault ends active; any other starts inactive, as read ahead or as the buffer cache leaves
    /// it when it lets go.
    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, _memory: &mut M) {
        let record = self.queues.record_mut(page);
        *record = queues::Record::default();
        record.anon = admission.page_type == PageType::Anon;
        self.resident += 1;
        if admission.in_fault {
            record.act_count = ACT_INIT;
            self.queues.requeue(page, Queue::Active);
        } else {
            self.queues.requeue(page, Queue::Inactive);
        }
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        self.queues.record_mut(page).referenced = true;
    }

    fn freed(&mut self, page: PageId) {
        self.forget(page);
        self.vm.pages_freed += 1;
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        if self.available() <= self.targets.free_reserved {
            self.refused(u64::from(request.goal));
        }
        self.run_daemon(memory)
    }

    fn grow(&mut self, pages: usize) {
        self.queues.grow(pages);
    }

    fn set_capacity(&mut self, pages: usize) {
        self.capacity = pages as u64;
        self.targets = Targets::for_frames(pages as u64).of_version(self.params.version);
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.queues.metadata_bytes()
    }

    fn lists(&self) -> Option<&impl Lists> {
        Some(self)
    }

    fn cached_pages(&self) -> Option<&impl CachedPages> {
        Some(self)
    }
}

impl Lists for Freebsd {
    fn active_inactive(&self) -> Option<[u64; 2]> {
        let [active, inactive, laundry] =
            [Queue::Active, Queue::Inactive, Queue::Laundry].map(|queue| self.queues.len(queue) as u64);
        Some([active, inactive + laundry])
    }
}

impl CachedPages for Freebsd {
    fn pools(&self) -> Option<FreePools> {
        self.params.cached_pages.then_some(FreePools { direct: true, cache: self.params.cache_pool })
    }

    /// Pages that may be resident before the frames available fall below the wakeup threshold.
    fn reclaim_threshold(&self, limit: usize) -> usize {
        limit.saturating_sub(self.targets.wakeup_threshold as usize).max(1)
    }
}
