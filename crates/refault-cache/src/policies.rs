//! The policies of a page cache, by name: all that do not need to know the future, because a cache sees every access.

use refault_core::frames::{CachedFrames, FreePools, KeepEvicted};
use refault_core::policy::{Admission, HitReport, ReclaimRequest};
use refault_core::textbook::{Arc, Clock, Fifo, Lirs, LirsParams, Lru, S3Fifo, S3FifoParams, Sieve, TwoQueue};
use refault_core::textbook::{TwoQueueParams, WTinyLfu, WTinyLfuParams};
use refault_core::{
    Classic, ClassicParams, Counters, Freebsd, FreebsdParams, Mglru, MglruParams, PageId, PageType, Policy, Shadow,
};

use crate::pages::Pages;

/// The names that [`crate::CacheOptions::policy`] takes, the default first.
pub const POLICIES: &[&str] = &[
    "mglru",
    "mglru-refault",
    "classic",
    "classic-shadow",
    "freebsd",
    "freebsd-nocache",
    "fifo",
    "clock",
    "lru",
    "2q",
    "arc",
    "lirs",
    "s3fifo",
    "sieve",
    "wtinylfu",
];

/// A policy without its type. Whatever a call evicts becomes findable in `frames`, if given.
pub(crate) trait Reclaimer: Send {
    fn hits(&self) -> HitReport;
    fn keeps_evicted(&self) -> Option<FreePools>;
    fn threshold(&self, limit: usize) -> usize;
    fn admit(&mut self, page: PageId, coming: Coming, pages: &mut Pages, frames: Option<&mut CachedFrames>);
    fn accessed(&mut self, page: PageId, pages: &mut Pages, frames: Option<&mut CachedFrames>);
    fn freed(&mut self, page: PageId);
    fn reclaim(&mut self, incoming: PageId, pages: &mut Pages, frames: Option<&mut CachedFrames>) -> u32;
    fn grow(&mut self, pages: usize);
    fn set_capacity(&mut self, pages: usize);
    fn counters(&self) -> Counters;
    fn metadata_bytes(&self) -> usize;
}

/// How a page comes in: written anew as a whole, and with what its last eviction left.
pub(crate) struct Coming {
    pub(crate) overwrites: bool,
    pub(crate) shadow: Option<Shadow>,
}

impl<P: Policy + Send> Reclaimer for P {
    fn hits(&self) -> HitReport {
        P::HITS
    }
    fn keeps_evicted(&self) -> Option<FreePools> {
        Policy::keeps_evicted(self)
    }
    fn threshold(&self, limit: usize) -> usize {
        self.reclaim_threshold(limit)
    }
    fn admit(&mut self, page: PageId, coming: Coming, pages: &mut Pages, frames: Option<&mut CachedFrames>) {
        let Coming { overwrites, shadow } = coming;
        let admission = Admission {
            page_type: PageType::File,
            lruvec: 0,
            in_fault: false,
            overwrites,
            keeps_slot: false,
            shadow: if overwrites { None } else { shadow },
        };
        match frames {
            Some(frames) => Policy::admit(self, page, &admission, &mut KeepEvicted::new(pages, frames)),
            None => Policy::admit(self, page, &admission, pages),
        }
    }
    fn accessed(&mut self, page: PageId, pages: &mut Pages, frames: Option<&mut CachedFrames>) {
        match frames {
            Some(frames) => Policy::accessed(self, page, &mut KeepEvicted::new(pages, frames)),
            None => Policy::accessed(self, page, pages),
        }
    }
    fn freed(&mut self, page: PageId) {
        Policy::freed(self, page);
    }
    fn reclaim(&mut self, incoming: PageId, pages: &mut Pages, frames: Option<&mut CachedFrames>) -> u32 {
        let request = ReclaimRequest { target: 0, goal: self.reclaim_goal(), incoming: Some(incoming) };
        match frames {
            Some(frames) => Policy::reclaim(self, &request, &mut KeepEvicted::new(pages, frames)),
            None => Policy::reclaim(self, &request, pages),
        }
    }
    fn grow(&mut self, pages: usize) {
        Policy::grow(self, pages);
    }
    fn set_capacity(&mut self, pages: usize) {
        Policy::set_capacity(self, pages);
    }
    fn counters(&self) -> Counters {
        Policy::counters(self)
    }
    fn metadata_bytes(&self) -> usize {
        Policy::metadata_bytes(self)
    }
}

pub(crate) fn by_name(name: &str) -> Option<Box<dyn Reclaimer>> {
    Some(match name {
        "mglru" => Box::new(Mglru::new(MglruParams::default())),
        "mglru-refault" => Box::new(Mglru::new(MglruParams::with_refault_distance())),
        "classic" => Box::new(Classic::new(ClassicParams::default())),
        "classic-shadow" => Box::new(Classic::new(ClassicParams::shadow_lru())),
        "freebsd" => Box::new(Freebsd::new(FreebsdParams::default())),
        "freebsd-nocache" => Box::new(Freebsd::new(FreebsdParams::no_cache())),
        "fifo" => Box::new(Fifo::default()),
        "clock" => Box::new(Clock::default()),
        "lru" => Box::new(Lru::default()),
        "2q" => Box::new(TwoQueue::new(TwoQueueParams::default())),
        "arc" => Box::new(Arc::default()),
        "lirs" => Box::new(Lirs::new(LirsParams::default())),
        "s3fifo" => Box::new(S3Fifo::new(S3FifoParams::default())),
        "sieve" => Box::new(Sieve::default()),
        "wtinylfu" => Box::new(WTinyLfu::new(WTinyLfuParams::default())),
        _ => return None,
    })
}
