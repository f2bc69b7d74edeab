//! The policy, the pages' state and their frames: everything that is under the one lock, and nothing that does I/O.
//!
//! Invariants: a page has a frame that is not free if and only if it is resident or being filled; a page in the policy
//! is resident; a cached page is neither resident nor busy with a fill; `filling` counts the pages that hold a frame
//! and are not in the policy.
//!
//! Cost: a hit is the policy's O(1) and a look-up of page and frame. 12 bytes per page and 13 per frame besides the
//! policy's.

use refault_core::frames::{CachedFrames, Frame, FreePools, KeepEvicted};
use refault_core::miniature::Miniatures;
use refault_core::page::NO_PAGE;
use refault_core::policy::registry::{FrontEnd, PolicySpec, visit};
use refault_core::policy::room::{MAX_FRUITLESS_CALLS, make_room};
use refault_core::policy::{
    AccessReport, Admission, BuildContext, DescriptorReads, HitReport, PolicyError, ReclaimRequest, Visitor,
};
use refault_core::{Counters, DynPolicy, PageId, PageType, Policy};

use crate::error::ReadError;
use crate::pages::Pages;

/// Pages of a file that get their numbers together: 2 MiB.
const SEGMENT: u32 = 512;

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
    /// First page of each segment of each file.
    files: Vec<Vec<PageId>>,
    free_files: Vec<FileId>,
    free_segments: Vec<PageId>,
    /// Pages that have numbers.
    numbered: u32,
    pub(crate) counts: Counts,
    /// What other policies and sizes would have missed, if that was asked for.
    pub(crate) miniatures: Option<Box<Miniatures>>,
}

impl Engine {
    /// Evicted pages stay cached if there is a `reserve`: frames that are kept free for them, 0 for none in particular.
    pub(crate) fn new(mut policy: CachePolicy, frames: u32, reserve: Option<u32>) -> Engine {
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
            pages: Pages::new(),
            frames: CachedFrames::new(frames, pools),
            limit,
            filling: 0,
            reads: DescriptorReads::default(),
            files: Vec::new(),
            free_files: Vec::new(),
            free_segments: Vec::new(),
            numbered: 0,
            counts: Counts::default(),
            miniatures: None,
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

    /// The pages of a file from an index on that have numbers, ascending.
    pub(crate) fn numbered_from(&self, file: FileId, index: u64) -> Vec<PageId> {
        let (segment, place) = ((index / u64::from(SEGMENT)) as usize, (index % u64::from(SEGMENT)) as u32);
        let segments = self.files[file].iter().enumerate().skip(segment).filter(|(_, first)| **first != NO_PAGE);
        segments.flat_map(|(at, first)| first + if at == segment { place } else { 0 }..first + SEGMENT).collect()
    }

    fn number_more(&mut self) -> Result<PageId, ReadError> {
        let first = self.numbered;
        let end = first.checked_add(SEGMENT).filter(|end| *end < NO_PAGE).ok_or(ReadError::TooManyPages)?;
        self.numbered = end;
        self.policy.grow(end as usize);
        self.pages.grow(end as usize);
        self.frames.grow(end as usize);
        Ok(first)
    }

    fn in_use(&self) -> u32 {
        in_use(&self.frames)
    }

    /// Evicts until a page may come in. False if no frame is free.
    fn make_room(&mut self, incoming: PageId) -> bool {
        if self.in_use() >= self.threshold {
            let goal = self.policy.reclaim_batch();
            let request = ReclaimRequest { target: 0, goal, incoming: Some(incoming) };
            let mut memory = KeepEvicted::keeping(self.keeps, &mut self.pages, &mut self.frames);
            let has_room = |memory: &CacheMemory<'_>| in_use(memory.frames()) < self.limit;
            let room = make_room(&mut *self.policy, &request, &mut memory, MAX_FRUITLESS_CALLS, has_room);
            self.counts.limit_hits += u64::from(room.calls);
        }
        self.frames.available() > 0
    }

    /// A page that is not resident comes back if it is cached. Its contents are in the frame as long as the lock is
    /// held, even if it has to go again at once. `overwrites`: all of it is to be written anew.
    pub(crate) fn reactivate(&mut self, page: PageId, overwrites: bool) -> Option<Frame> {
        if !self.frames.is_cached(page) || !self.make_room(page) {
            return None;
        }
        // Making room has evicted others at most, and taken no frame.
        let frame = self.frames.reactivate(page)?;
        let _ = self.pages.take_shadow(page);
        self.admit(page, overwrites);
        Some(frame)
    }

    /// Gives a page that is to be filled a frame, and makes it busy. `None` if no frame is free; for one that comes
    /// `along`, if the policy gives none up.
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
        let admission = if overwrites { Admission::overwrite(PageType::File) } else { Admission::read(PageType::File) };
        let admission = admission.with_shadow(self.pages.take_shadow(page));
        self.pages.set_resident(page, true);
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

    /// A page was read or written; if it is resident, the policy is told. `hit`: it was there before. It may have to go
    /// for that; its contents are in its frame as long as the lock is held.
    pub(crate) fn accessed(&mut self, page: PageId, write: bool, hit: bool) {
        if !self.pages.is_resident(page) {
            return;
        }
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
        if self.pages.is_resident(page) {
            self.pages.set_resident(page, false);
            self.policy.freed(page);
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
        let mut counters = self.policy.counters();
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
        let miniatures = self.miniatures.as_ref().map_or(0, |miniatures| miniatures.bytes());
        self.policy.metadata_bytes()
            + self.pages.metadata_bytes()
            + self.frames.metadata_bytes()
            + segments
            + miniatures
    }
}

fn in_use(frames: &CachedFrames) -> u32 {
    frames.allocator().frames() - frames.available()
}
