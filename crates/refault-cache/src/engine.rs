//! The policy, the pages' state and their frames: everything that is under the one lock, and nothing that does I/O.
//!
//! Invariants: a page has a frame that is not free if and only if it is resident or being filled; a page in the policy is
//! resident; a findable page is neither resident nor busy with a fill; `filling` counts the pages that hold a frame and are
//! not in the policy.
//!
//! Cost: a hit is the policy's O(1) and a look-up of page and frame. 12 bytes a page and 13 a frame besides the policy's.

use refault_core::frames::{CachedFrames, Frame, FreePools};
use refault_core::page::NO_PAGE;
use refault_core::policy::HitReport;
use refault_core::{Counters, PageId};

use crate::error::ReadError;
use crate::pages::Pages;
use crate::policies::{Coming, Reclaimer};

/// Pages of a file that get their numbers together: 2 MiB.
const SEGMENT: u32 = 512;

/// Fruitless reclaims after which a frame of the reserve is used, if there is one.
const RECLAIM_RETRIES: u32 = 16;

/// Number of a file within a cache.
pub(crate) type FileId = usize;

/// Counts of what the cache itself did. Pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) waits: u64,
    pub(crate) read_ahead: u64,
    pub(crate) written: u64,
    pub(crate) file_reads: u64,
    pub(crate) limit_hits: u64,
    pub(crate) limit_overruns: u64,
}

pub(crate) struct Engine {
    reclaimer: Box<dyn Reclaimer>,
    hits: HitReport,
    pub(crate) pages: Pages,
    pub(crate) frames: CachedFrames,
    keeps: bool,
    /// Frames that may be in use, and the number at which room is made.
    limit: u32,
    threshold: u32,
    pub(crate) filling: u32,
    last_read: PageId,
    /// First page of each segment of each file.
    files: Vec<Vec<PageId>>,
    free_files: Vec<FileId>,
    free_segments: Vec<PageId>,
    /// Pages that have numbers.
    numbered: u32,
    pub(crate) counts: Counts,
}

impl Engine {
    /// Evicted pages stay findable if there is a `reserve`: frames that are kept free for them, 0 for none in particular.
    pub(crate) fn new(mut reclaimer: Box<dyn Reclaimer>, frames: u32, reserve: Option<u32>) -> Engine {
        // A pool of their own: in a shared one the frame just freed, alone in the queue of single frames, is the next taken.
        let own = reclaimer.keeps_evicted();
        let pools = own.unwrap_or(FreePools { direct: false, cache: true });
        let limit = frames - reserve.unwrap_or(0);
        reclaimer.set_capacity(limit as usize);
        Engine {
            hits: reclaimer.hits(),
            keeps: own.is_some() || reserve.is_some(),
            threshold: reclaimer.threshold(limit as usize) as u32,
            reclaimer,
            pages: Pages::new(),
            frames: CachedFrames::new(frames, pools),
            limit,
            filling: 0,
            last_read: NO_PAGE,
            files: Vec::new(),
            free_files: Vec::new(),
            free_segments: Vec::new(),
            numbered: 0,
            counts: Counts::default(),
        }
    }

    pub(crate) fn add_file(&mut self) -> FileId {
        self.free_files.pop().unwrap_or_else(|| {
            self.files.push(Vec::new());
            self.files.len() - 1
        })
    }

    /// Forgets a file's pages. None of them is busy.
    pub(crate) fn remove_file(&mut self, file: FileId) {
        for first in std::mem::take(&mut self.files[file]) {
            if first == NO_PAGE {
                continue;
            }
            for page in first..first + SEGMENT {
                self.forget(page);
            }
            self.free_segments.push(first);
        }
        self.free_files.push(file);
    }

    /// The number of a file's page.
    pub(crate) fn page(&mut self, file: FileId, index: u64) -> Result<PageId, ReadError> {
        let (segment, place) = (index / u64::from(SEGMENT), (index % u64::from(SEGMENT)) as u32);
        let segment = usize::try_from(segment).map_err(|_| ReadError::TooManyPages)?;
        if let Some(first) = self.files[file].get(segment).filter(|first| **first != NO_PAGE) {
            return Ok(first + place);
        }
        if segment > (u32::MAX / SEGMENT) as usize {
            return Err(ReadError::TooManyPages);
        }
        let first = match self.free_segments.pop() {
            Some(first) => first,
            None => self.number_more()?,
        };
        let segments = &mut self.files[file];
        segments.resize(segments.len().max(segment + 1), NO_PAGE);
        segments[segment] = first;
        Ok(first + place)
    }

    fn number_more(&mut self) -> Result<PageId, ReadError> {
        let first = self.numbered;
        let end = first.checked_add(SEGMENT).filter(|end| *end < NO_PAGE).ok_or(ReadError::TooManyPages)?;
        self.numbered = end;
        self.reclaimer.grow(end as usize);
        self.pages.grow(end as usize);
        self.frames.grow(end as usize);
        Ok(first)
    }

    fn in_use(&self) -> u32 {
        self.frames.allocator().frames() - self.frames.available()
    }

    /// Evicts until a page may come in. False if no frame is free.
    fn make_room(&mut self, incoming: PageId) -> bool {
        if self.in_use() >= self.threshold {
            let mut fruitless = 0;
            loop {
                self.counts.limit_hits += 1;
                let frames = self.keeps.then_some(&mut self.frames);
                let freed = self.reclaimer.reclaim(incoming, &mut self.pages, frames);
                self.free_evicted();
                if self.in_use() < self.limit {
                    break;
                }
                if freed == 0 {
                    fruitless += 1;
                    if fruitless > RECLAIM_RETRIES {
                        break;
                    }
                }
            }
        }
        self.frames.available() > 0
    }

    /// What was evicted and is not findable gives its frame back.
    fn free_evicted(&mut self) {
        while let Some(page) = self.pages.evicted.pop() {
            if !self.keeps {
                self.frames.free(page);
            }
        }
    }

    /// A page that is not resident comes back if it is findable. Its contents are in the frame as long as the lock is held,
    /// even if it has to go again at once.
    pub(crate) fn reactivate(&mut self, page: PageId) -> Option<Frame> {
        if !self.frames.is_cached(page) || !self.make_room(page) {
            return None;
        }
        // Making room has evicted others at most, and taken no frame.
        let frame = self.frames.reactivate(page)?;
        let _ = self.pages.take_shadow(page);
        self.admit(page, false);
        Some(frame)
    }

    /// Gives a page that is to be filled a frame, and makes it busy. `None` if no frame is free; for one that comes `along`,
    /// if the policy gives none up.
    pub(crate) fn begin_fill(&mut self, page: PageId, along: bool) -> Option<Frame> {
        if !self.make_room(page) {
            return None;
        }
        if self.in_use() >= self.limit {
            if along {
                return None;
            }
            self.counts.limit_overruns += 1;
        }
        let frame = self.frames.allocate(page)?;
        self.pages.set_busy(page, true);
        self.filling += 1;
        Some(frame)
    }

    /// A page has its contents; the policy gets it. `overwrites`: all of it was written anew.
    pub(crate) fn finish_fill(&mut self, page: PageId, overwrites: bool) {
        self.filling -= 1;
        self.pages.set_busy(page, false);
        self.admit(page, overwrites);
    }

    /// A page did not get its contents.
    pub(crate) fn abandon_fill(&mut self, page: PageId) {
        self.filling -= 1;
        self.pages.set_busy(page, false);
        self.frames.free(page);
    }

    fn admit(&mut self, page: PageId, overwrites: bool) {
        let coming = Coming { overwrites, shadow: self.pages.take_shadow(page) };
        self.pages.set_resident(page, true);
        let frames = self.keeps.then_some(&mut self.frames);
        self.reclaimer.admit(page, coming, &mut self.pages, frames);
        self.free_evicted();
    }

    /// A page was read or written; if it is resident, the policy is told. `hit`: it was there before. It may have to go for
    /// that; its contents are in its frame as long as the lock is held.
    pub(crate) fn accessed(&mut self, page: PageId, write: bool, hit: bool) {
        if !self.pages.is_resident(page) {
            return;
        }
        match self.hits {
            // A read of the page that was read last says nothing new, and writes do not count (spec: classic §3).
            HitReport::Kernel if write || page == self.last_read => {}
            HitReport::Kernel => {
                self.last_read = page;
                self.tell_accessed(page);
            }
            HitReport::AccessedBit if hit => self.pages.set_accessed(page),
            HitReport::EachAccess if hit => self.tell_accessed(page),
            _ => {}
        }
    }

    fn tell_accessed(&mut self, page: PageId) {
        let frames = self.keeps.then_some(&mut self.frames);
        self.reclaimer.accessed(page, &mut self.pages, frames);
        self.free_evicted();
    }

    /// A page is not to be found any more, wherever it is.
    pub(crate) fn forget(&mut self, page: PageId) {
        if self.pages.is_resident(page) {
            self.pages.set_resident(page, false);
            self.reclaimer.freed(page);
            self.frames.free(page);
        } else if self.frames.is_cached(page) {
            self.frames.discard(page);
        }
        let _ = self.pages.take_shadow(page);
    }

    pub(crate) fn frame(&self, page: PageId) -> Frame {
        self.frames.frame(page).expect("invariant: a resident page has a frame")
    }

    /// The policy's counters with those of the cache.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.reclaimer.counters();
        counters.file_reads += self.counts.file_reads;
        counters.limit_hits += self.counts.limit_hits;
        counters.limit_overruns += self.counts.limit_overruns;
        counters.pages_cached += self.frames.counters().cached;
        counters.pages_reactivated += self.frames.counters().reactivated;
        counters
    }

    pub(crate) fn frames_in_use(&self) -> u32 {
        self.in_use()
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        let segments: usize = self.files.iter().map(|segments| segments.capacity() * 4).sum();
        self.reclaimer.metadata_bytes() + self.pages.metadata_bytes() + self.frames.metadata_bytes() + segments
    }
}
