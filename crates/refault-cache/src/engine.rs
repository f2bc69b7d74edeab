//! The policy, the pages' state and their frames: everything that is under the one lock, and nothing that does I/O.
//!
//! Invariants: a page has a frame that is not free if and only if it is resident or being filled; a page in the policy
//! is resident; a cached page is neither resident nor busy with a fill; `filling` counts the pages that hold a frame
//! and are not in the policy; a frame that is neither free nor a page's is an orphan and counted in `orphans`.
//!
//! Records (what the policy and the cache know of pages, which outlives their stay in memory) count in the cache's
//! memory: frames give way to them, and numbers of pages are used again once their records take an eighth of it
//! ([`crate::engine::groups`]).
//!
//! Cost: a hit is the policy's O(1). 23 bytes per page number and 27 to 35 per frame besides the policy's.

pub(crate) mod buffers;
pub(crate) mod compressed;
pub(crate) mod groups;
pub(crate) mod known;
pub(crate) mod lists;
pub(crate) mod pages;
pub(crate) mod pins;
mod placement;
mod records;
pub(crate) mod references;
pub(crate) mod streams;
pub(crate) mod table;

use std::sync::Arc;

use refault_core::frames::{CachedFrames, Frame, FreePools, KeepEvicted};
use refault_core::memory::Memory;
use refault_core::miniature::Miniatures;
use refault_core::policy::registry::{FrontEnd, PolicySpec, visit};
use refault_core::policy::room::{MAX_FRUITLESS_CALLS, make_room};
use refault_core::policy::{
    AccessReport, Admission, BuildContext, DescriptorReads, HitReport, PolicyError, ReclaimRequest, Visitor,
};
use refault_core::{Counters, DynPolicy, PageId, PageType, Policy};
use refault_store::PAGE_SIZE;

use crate::engine::buffers::Buffers;
use crate::engine::compressed::{Compressed, Leftover, Pool};
use crate::engine::lists::Lists;
use crate::engine::pages::Pages;
use crate::engine::pins::{MARKS, UNREAD};
use crate::engine::table::{GROUP, Table, place};
use crate::error::ReadError;
use crate::io::background::Background;
use crate::io::opened::Opened;
use crate::writeback::dirty::{At, Dirty};
use crate::writeback::parts::Parts;

use self::records::{FREE_RECORDS, RECORDS_SHARE};
use crate::writeback::through::{Listed, Through};

/// Counts of what the cache itself did. Pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Those that were found under the lock; [`crate::engine::references::References`] counts the others.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) waits: u64,
    pub(crate) read_ahead: u64,
    pub(crate) written: u64,
    pub(crate) written_back: u64,
    pub(crate) unpacked: u64,
    pub(crate) file_reads: u64,
    pub(crate) limit_hits: u64,
    pub(crate) limit_overruns: u64,
}

/// The cache's memory as a policy sees it: what goes gives its frame back, or is cached in it.
type CacheMemory<'a> = KeepEvicted<'a, Pages>;

/// A policy over it.
pub(crate) type CachePolicy = Box<dyn for<'a> DynPolicy<CacheMemory<'a>> + Send>;

/// The policy of a name with parameters.
pub(crate) fn policy(text: &str) -> Result<CachePolicy, PolicyError> {
    struct IntoBox;
    impl Visitor for IntoBox {
        type Output = CachePolicy;
        fn visit<P: Policy + Send + 'static>(self, policy: P) -> CachePolicy {
            Box::new(policy)
        }
    }
    Ok(visit(&PolicySpec::parse_for(text, FrontEnd::PageCache)?, &BuildContext::default(), IntoBox))
}

pub(crate) struct Engine {
    policy: CachePolicy,
    hits: HitReport,
    pub(crate) pages: Pages,
    pub(crate) frames: CachedFrames,
    keeps: bool,
    /// Frames that may be in use, and the number at which room is made.
    limit: u32,
    threshold: u32,
    pub(crate) filling: u32,
    reads: DescriptorReads,
    buffers: Arc<Buffers>,
    /// Frames that are pinned and have no page.
    pub(crate) orphans: u32,
    /// What is to be written.
    pub(crate) dirty: Dirty,
    /// What was written through and is not durable.
    pub(crate) through: Through,
    /// Page numbers that there are.
    numbered: u32,
    /// Bytes that records may take before numbers are used again.
    most_records: usize,
    /// Frames that have given way to records, and how many are to.
    retired: u32,
    to_retire: u32,
    /// Frames from this one on have gone, or could not.
    retires_below: u32,
    fills: u32,
    background: Arc<Background>,
    pub(crate) counts: Counts,
    /// What other policies and sizes would have missed, if that was asked for.
    pub(crate) miniatures: Option<Box<Miniatures>>,
}

impl Engine {
    /// Evicted pages stay cached if there is a `reserve`: frames that are kept free for them, 0 for none in particular.
    /// Some may be compressed, too.
    pub(crate) fn new(
        mut policy: CachePolicy,
        frames: u32,
        reserve: Option<u32>,
        buffers: Arc<Buffers>,
        background: Arc<Background>,
        pool: Option<Arc<Pool>>,
    ) -> Engine {
        let memory = u64::from(frames) * PAGE_SIZE as u64 + pool.as_ref().map_or(0, |pool| pool.limit());
        let table = Arc::new(Table::new(frames));
        // A pool of their own: in a shared one the frame just freed, alone in the queue of single frames, is the next
        // taken.
        let own = policy.cached_pools();
        let pools = own.unwrap_or(FreePools { direct: false, cache: true });
        let limit = frames - reserve.unwrap_or(0);
        policy.set_capacity(limit as usize);
        Engine {
            hits: policy.hits(),
            keeps: own.is_some() || reserve.is_some(),
            threshold: policy.reclaim_threshold(limit as usize) as u32,
            policy,
            pages: Pages::new(buffers.clone(), table, pool.map(|pool| Box::new(Compressed::new(pool, frames)))),
            frames: CachedFrames::new(frames, pools),
            limit,
            filling: 0,
            reads: DescriptorReads::default(),
            buffers,
            orphans: 0,
            dirty: Dirty::default(),
            through: Through::new(frames),
            numbered: 0,
            most_records: FREE_RECORDS + (memory / RECORDS_SHARE) as usize,
            retired: 0,
            to_retire: 0,
            retires_below: frames,
            fills: 0,
            background,
            counts: Counts::default(),
            miniatures: None,
        }
    }

    /// A file whose pages may be asked for.
    pub(crate) fn open_file(&mut self, file: Arc<Opened>) {
        self.dirty.open(file.number, file);
    }

    /// Forgets a file if it has no page, whether busy, resident or known by its number alone. Whether it had none.
    pub(crate) fn close_empty(&mut self, file: u32) -> bool {
        let is_empty = self.pages.groups.is_empty(file);
        is_empty && !self.close_some(file)
    }

    /// Forgets a file, of which no page is busy or resident, and some of its numbers at a time. False if that was all.
    pub(crate) fn close_some(&mut self, file: u32) -> bool {
        let groups = self.pages.groups.some_of(file);
        if groups.is_empty() {
            self.dirty.close(file);
            self.through.close(file);
            self.pages.groups.close(file);
            return false;
        }
        for group in groups {
            self.take_number(group);
            self.pages.groups.give_back(group);
        }
        true
    }

    /// The number of a file's page. The page keeps it while it is resident or busy. Otherwise the page keeps it while
    /// the lock is held and no other page is given a number.
    pub(crate) fn page(&mut self, file: u32, index: u64) -> Result<PageId, ReadError> {
        let (place, within) = place(index).ok_or(ReadError::TooManyPages)?;
        if let Some(group) = self.pages.groups.table().find(file, place) {
            return Ok(group * GROUP + within);
        }
        let group = match self.pages.groups.take_free() {
            Some(group) => group,
            None => self.another_group()?,
        };
        if !self.pages.groups.is_open(file)
            && let Some(opened) = self.dirty.file(file)
        {
            self.pages.groups.open(file, opened);
        }
        self.pages.groups.insert(group, file, place);
        Ok(group * GROUP + within)
    }

    fn in_use(&self) -> u32 {
        in_use(&self.frames)
    }

    /// Evicts until a page may come in. False if no frame is free.
    fn make_room(&mut self, incoming: Option<PageId>) -> bool {
        if self.in_use() >= self.threshold {
            let goal = self.policy.reclaim_batch();
            let request = ReclaimRequest { target: 0, goal, incoming };
            let mut memory = KeepEvicted::keeping(self.keeps, &mut self.pages, &mut self.frames);
            let has_room = |memory: &CacheMemory<'_>| in_use(memory.frames()) < self.limit;
            let room = make_room(&mut *self.policy, &request, &mut memory, MAX_FRUITLESS_CALLS, has_room);
            self.counts.limit_hits += u64::from(room.calls);
        }
        self.frames.available() > 0
    }

    /// Evicts until a page may come in that nothing is known of. False if there is no room for one that comes along.
    pub(crate) fn has_room(&mut self) -> bool {
        self.make_room(None) && self.in_use() < self.limit
    }

    /// A page that is not resident comes back if it is cached. Its contents are in the frame as long as the lock is
    /// held, even if it has to go again at once. `overwrites`: all of it is to be written anew.
    pub(crate) fn reactivate(&mut self, page: PageId, overwrites: bool) -> Option<Frame> {
        if !self.frames.is_cached(page) || !self.make_room(Some(page)) {
            return None;
        }
        // Making room has evicted others at most, and taken no frame.
        let frame = self.frames.reactivate(page)?;
        let _ = self.pages.take_shadow(page);
        self.admit(page, frame, overwrites, 0);
        Some(frame)
    }

    /// Gives a page that is to be filled a frame, and makes it busy. `None` if no frame is free; also if the policy
    /// gives none up and the page comes `along` or others are on their way. With the evicted page whose bytes are in
    /// the frame, which the caller may put away before it fills it.
    pub(crate) fn begin_fill(&mut self, page: PageId, along: bool) -> Option<(Frame, Option<Leftover>)> {
        self.charge_fill();
        if !self.make_room(Some(page)) {
            return None;
        }
        if self.in_use() >= self.limit {
            // What is on its way can be evicted soon: better wait for that.
            if along || self.filling > 0 {
                return None;
            }
            self.counts.limit_overruns += 1;
        }
        let frame = self.frames.allocate(page)?;
        self.pages.set_busy(page, true);
        self.filling += 1;
        Some((frame, self.pages.leftover(frame)))
    }

    /// A page has its contents; the policy gets it. `overwrites`: all of it was written anew.
    pub(crate) fn finish_fill(&mut self, page: PageId, overwrites: bool) {
        self.finish_with(page, overwrites, 0);
    }

    /// The same of a page that came along with others. `marked`: who reads it is to read ahead.
    pub(crate) fn finish_ahead(&mut self, page: PageId, marked: bool) {
        self.finish_with(page, false, if marked { MARKS } else { UNREAD });
    }

    fn finish_with(&mut self, page: PageId, overwrites: bool, marks: u32) {
        self.filling -= 1;
        self.pages.set_busy(page, false);
        let frame = self.frame(page);
        self.admit(page, frame, overwrites, marks);
    }

    /// A page did not get its contents.
    pub(crate) fn abandon_fill(&mut self, page: PageId) {
        self.filling -= 1;
        self.pages.set_busy(page, false);
        self.frames.free(page);
    }

    fn admit(&mut self, page: PageId, frame: Frame, overwrites: bool, marks: u32) {
        let admission = if overwrites { Admission::overwrite(PageType::File) } else { Admission::read(PageType::File) };
        let admission = admission.with_shadow(self.pages.take_shadow(page)).at(self.pages.groups.order(page));
        self.pages.forget_packed(page);
        self.pages.arrives(page, frame, marks);
        let mut memory = KeepEvicted::keeping(self.keeps, &mut self.pages, &mut self.frames);
        self.policy.admit(page, &admission, &mut memory);
    }

    /// A page is asked for, whatever comes of it.
    #[inline]
    pub(crate) fn asked(&mut self, page: PageId, write: bool) {
        if let Some(miniatures) = &mut self.miniatures {
            miniatures.accessed(page, write);
        }
    }

    /// A reader without the lock has found a page; it may have gone since.
    pub(crate) fn referenced(&mut self, page: PageId) {
        self.asked(page, false);
        self.accessed(page, false, true);
    }

    /// A page was read or written; if it is resident, the policy is told. `hit`: it was there before. It may have to go
    /// for that; its contents are in its frame as long as the lock is held.
    pub(crate) fn accessed(&mut self, page: PageId, write: bool, hit: bool) {
        if !self.pages.is_resident(page) {
            return;
        }
        if write {
            // No thread reads the old contents.
            self.pages.take_mark(page);
        }
        // The first access to a page that was read ahead is the one that it was read for.
        let hit = !self.pages.wanted(page) && hit;
        match self.reads.report(self.hits, page, write, hit) {
            AccessReport::Nothing => {}
            AccessReport::SetBit => self.pages.set_accessed(page),
            AccessReport::Tell => {
                let mut memory = KeepEvicted::keeping(self.keeps, &mut self.pages, &mut self.frames);
                self.policy.accessed(page, &mut memory);
            }
        }
    }

    /// A page is not to be found any more, wherever it is.
    pub(crate) fn forget(&mut self, page: PageId) {
        if let Some(miniatures) = &mut self.miniatures {
            miniatures.forgotten(page);
        }
        self.pages.forget_packed(page);
        if self.pages.is_resident(page) {
            if self.pages.is_held(page) {
                self.dirty.forget(self.pages.place(page));
            }
            self.policy.freed(page);
            self.pages.goes(page);
            self.release_frame(page);
        } else if self.frames.is_cached(page) {
            self.frames.discard(page);
        }
        let _ = self.pages.take_shadow(page);
    }

    /// A page was written to, all of it or a part: it cannot be evicted before it is in the file.
    pub(crate) fn make_dirty(&mut self, at: At, page: PageId, parts: Parts) {
        self.pages.set_dirty(page, true);
        self.dirty.insert(at, page, parts);
        if (parts.is_whole() || self.pages.is_through(page))
            && let Some(listed) = self.through.supersede(at)
        {
            self.pages.set_through(page, false);
            self.dirty.again(at, page, listed.first, listed.parts);
        }
    }

    /// The write of a dirty page begins.
    pub(crate) fn begin_write(&mut self, at: At, page: PageId) {
        self.pages.set_dirty(page, false);
        self.pages.set_writing(page, true);
        self.dirty.begin(at);
    }

    /// It has ended.
    pub(crate) fn finish_write(&mut self, at: At, page: PageId, went_well: bool) {
        self.pages.set_writing(page, false);
        if self.dirty.finish(at, went_well) {
            self.counts.written_back += 1;
            self.pages.set_unstable(page, true);
        } else {
            self.pages.set_dirty(page, true);
        }
    }

    /// A write through of parts of a page that waits has failed. The device has what they were before, or what they
    /// should become, or some of each. They are written again, as they are in memory.
    pub(crate) fn write_failed(&mut self, at: At, page: PageId, parts: Parts) {
        if self.dirty.unsettle(at) {
            self.pages.set_unstable(page, false);
            self.pages.set_dirty(page, true);
        }
        self.dirty.widen(at, parts);
    }

    /// No frame is free and a file's device refuses: discards a page that is dirty only because a sync has failed. No
    /// thread fills, writes or pins that page. Every sync tells of the loss from then on. A pinned page stays, because
    /// its frame would not come free. Returns whether there was such a page.
    pub(crate) fn give_up(&mut self, file: u32) -> bool {
        let is_pinned = |page| self.buffers.pins.count(self.frame(page)) > 0;
        let is_free = |page| !self.pages.is_busy(page) && !self.pages.is_writing(page) && !is_pinned(page);
        let Some((at, page)) = self.dirty.lost_by_sync(file).find(|(_, page)| is_free(*page)) else { return false };
        self.forget(page);
        self.through.lose(at);
        true
    }

    /// A page was written through, by a write that began when the device had failed `failures` times to make its file
    /// durable. What waited of it before is either in its frame, and waits again, or was written as well.
    pub(crate) fn wrote_through(&mut self, at: At, page: PageId, failures: u64, parts: Parts) {
        let earlier = self.dirty.resume(at);
        if let Some((number, waits)) = earlier.filter(|_| self.pages.is_resident(page)) {
            self.make_dirty(at, page, parts.and(waits));
            self.dirty.again(at, page, number, waits);
        } else if self.through.failures(at.0) == failures {
            let number = self.dirty.next_number();
            self.pages.set_through(page, self.pages.is_resident(page));
            let first = earlier.map_or(number, |(first, _)| first);
            let new = Listed { at, first, last: number, parts };
            let pages = &self.pages;
            self.through.written(new, |at| pages.through(at).is_some());
        } else if self.dirty.file(at.0).is_some_and(|file| file.forgets()) {
            // Busy on the caller's account.
            self.forget(page);
        } else if self.pages.is_resident(page) {
            self.make_dirty(at, page, parts);
        } else {
            self.through.lose(at);
        }
    }

    /// Forgets a page, unless a thread fills it or writes it.
    fn forget_idle(&mut self, page: PageId) {
        if !self.pages.is_busy(page) && !self.pages.is_writing(page) {
            self.forget(page);
        }
    }

    /// The device has made durable what it had of a file, whose writes had ended with a number up to `until`, or it has
    /// failed. What it may have lost is dirty again, as far as it is in memory, or is forgotten.
    pub(crate) fn settle(&mut self, opened: &Opened, until: u64, durable: bool) {
        let file = opened.number;
        for page in self.dirty.settle(file, until, durable) {
            self.pages.set_unstable(page, false);
            if !durable {
                self.pages.set_dirty(page, true);
                if opened.forgets() {
                    self.forget_idle(page);
                }
            }
        }
        if durable {
            for at in self.through.settle(file, until) {
                if let Some(page) = self.pages.through(at) {
                    self.pages.set_through(page, false);
                }
            }
            return;
        }
        for Listed { at, first, parts, .. } in self.through.fail(file) {
            if let Some(page) = self.pages.through(at) {
                self.pages.set_through(page, false);
                if opened.forgets() {
                    self.forget_idle(page);
                    continue;
                }
                if self.dirty.again(at, page, first, parts) {
                    self.pages.set_dirty(page, true);
                }
                continue;
            }
            if !opened.forgets() {
                self.through.lose(at);
            }
            // What readers see from now on is what the device has.
            if let Some(page) = self.pages.groups.find(at.0, at.1)
                && !self.pages.is_busy(page)
                && !self.pages.is_held(page)
            {
                self.forget(page);
            }
        }
        if opened.forgets() {
            self.through.forgive(file);
        }
    }

    /// A page's frame is free, or as soon as its last pin goes.
    fn release_frame(&mut self, page: PageId) {
        let frame = self.frame(page);
        if self.buffers.pins.count(frame) == 0 {
            self.frames.free(page);
        } else {
            self.frames.detach(page);
            self.set_orphans(self.orphans + 1);
            if self.buffers.pins.orphan(frame) {
                self.bury(frame);
            }
        }
    }

    /// The last pin of an orphan has gone.
    pub(crate) fn bury(&mut self, frame: Frame) {
        if self.buffers.pins.bury(frame) {
            self.frames.free_block(frame, 0);
            self.set_orphans(self.orphans - 1);
        }
    }

    fn set_orphans(&mut self, orphans: u32) {
        self.orphans = orphans;
        if self.policy.cached_pools().is_some() {
            self.set_capacity(self.retired);
        }
    }

    /// Tells the policy how many pages may be resident when `retired` frames have gone. Finds the threshold at which
    /// the policy wants to be asked for room. A policy that keeps a reserve counts free frames itself, and must not
    /// take orphans for some.
    fn set_capacity(&mut self, retired: u32) {
        let orphans = if self.policy.cached_pools().is_some() { self.orphans } else { 0 };
        let others = (orphans + retired).min(self.limit - 1);
        let capacity = (self.limit - others) as usize;
        self.policy.set_capacity(capacity);
        self.threshold = self.policy.reclaim_threshold(capacity) as u32 + others;
    }

    pub(crate) fn frame(&self, page: PageId) -> Frame {
        self.frames.frame(page).expect("invariant: a resident page has a frame")
    }

    /// The policy's counters with those of the cache.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.policy.counters();
        counters.file_reads += self.counts.file_reads;
        counters.limit_hits += self.counts.limit_hits;
        counters.limit_overruns += self.counts.limit_overruns;
        counters.pages_cached += self.frames.counters().cached;
        counters.pages_reactivated += self.frames.counters().reactivated;
        counters
    }

    /// Sizes of the policy's lists.
    pub(crate) fn lists(&self) -> Lists {
        let (generations, leader) = (self.policy.generations(0), self.policy.leader());
        Lists { generations, now: Memory::now(&self.pages), leader }
    }

    pub(crate) fn frames_in_use(&self) -> u32 {
        self.in_use() - self.retired
    }

    /// Frames that there are for pages.
    pub(crate) fn frames_for_pages(&self) -> u32 {
        self.frames.allocator().frames() - self.retired
    }

    /// Bytes of the records that grow with the pages that were asked for, and of those of frames.
    fn record_bytes(&self) -> usize {
        let frames = self.frames.metadata_bytes() + self.buffers.metadata_bytes();
        self.policy.metadata_bytes() + self.pages.metadata_bytes() + frames
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        let miniatures = self.miniatures.as_ref().map_or(0, |miniatures| miniatures.bytes());
        let writes = self.dirty.bytes() + self.through.bytes();
        self.record_bytes() + miniatures + writes
    }
}

fn in_use(frames: &CachedFrames) -> u32 {
    frames.allocator().frames() - frames.available()
}
