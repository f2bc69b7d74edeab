//! Cyclic scans under any policy: what does not fit passes through, the rest stays.
//!
//! A range larger than memory that is read from beginning to end, again and again, defeats every policy that evicts
//! what was used longest ago: each page is gone just before its turn. [`Cyclic`] wraps a policy. It acts on ranges that
//! the front-end says are scanned so ([`AccessPattern::Cyclic`]), and on those that show it (`scan_detector`). Of these
//! the pages that came in last, a little behind the scan, are evicted first. So the rest of the range remains, and only
//! the part that does not fit passes through. That is evicting the most recently used, which is optimal for such scans.
//!
//! Every policy that the registry makes is wrapped, and the parameter `cyclic` says whether it does anything: the
//! replay and the pager run this very type. Page ids must follow addresses within a range. Otherwise the front-end says
//! where each page lies ([`Admission::place`]), as the page cache does, which uses ids again. Groups and nodes are not
//! told apart, so a machine that has them refuses it.
//!
//! Invariants: the wrapped policy knows every resident page; a page that goes here is reported to it as freed. What is
//! remembered of a page ends when it is freed or goes here, so that no page goes twice for coming in once. Nothing is
//! allocated after [`Policy::grow`], but for places when the first is told, and where thousands of pages are read
//! ahead. Cost: with `cyclic=no` a test of a pointer per call; otherwise O(1) per page that comes in, and four bytes
//! per page id, twelve if places are told.
//!
//! ```
//! use refault_core::Policy;
//! use refault_core::policy::{Cyclic, Lists};
//! use refault_core::textbook::Clock;
//!
//! let mut policy = Cyclic::new(Clock::default(), true);
//! policy.grow(1000);
//! assert_eq!(policy.cyclic_scans().expect("it looks for scans").found(), 0);
//! assert!(Cyclic::new(Clock::default(), false).cyclic_scans().is_none());
//! ```

use std::collections::VecDeque;

use super::scan_detector::Detector;
use super::scan_tracker::Change;
use super::{
    AccessPattern, Admission, Bypass, CachedPages, GenerationCommands, GenerationDetails, GenerationSize, HitReport,
    Lists, NodeReclaim, Policy, ReclaimRequest, Sorting, generations,
};
use crate::counters::Counters;
use crate::memory::{Eviction, Memory};
use crate::page::{LruvecId, PageId, Shadow};
use crate::parameter::Parameter;

/// Pages that came in last and are remembered, and twice as many as were read ahead. Older ones belong to the wrapped
/// policy again.
const REMEMBERED: usize = 4096;

/// Pages that came in last and are left alone, and as many more as were read ahead and wait for their reader
/// ([`Memory::unread`]): those that the scan stands on.
const LEFT_ALONE: usize = 128;

/// Pages of a range that is believed early which go when each pass begins.
const PROBES: u32 = 16;

/// The marks of pages that are not remembered. Others are numbers of entries.
const ABSENT: u32 = 0;
const ADMITTED: u32 = 1;

/// The parameter that every policy without knowledge of the future has.
pub const PARAMETERS: &[Parameter] = &[Parameter {
    name: "cyclic",
    default: "no",
    values: "yes or no",
    meaning: "ranges that are scanned again and again and do not fit keep what fits: their newest pages go first",
}];

/// What is known of cyclic scans.
#[derive(Clone, Debug)]
pub struct CyclicScans {
    detector: Detector,
    /// Per page: [`ABSENT`], [`ADMITTED`], or the number under which it stands in `recent`. [`ADMITTED`] says that the
    /// page came in and was not freed since; a number says that too. If such a page comes in again, it was evicted.
    marks: Vec<u32>,
    /// Where pages lie that have come in, by id; empty as long as no place was told.
    places: Vec<u64>,
    /// Pages of cyclic ranges in the order in which they came in, with their numbers. An entry whose number is not the
    /// page's mark is void.
    recent: VecDeque<(PageId, u32)>,
    /// Those that came in after these, and are left alone.
    left_alone: VecDeque<(PageId, u32)>,
    /// Of a range that is believed early: the first page of its last part, and the one before which some of that part
    /// are still to be evicted in this pass. They are evicted to see whether they are read.
    probed: Option<(PageId, PageId)>,
    /// How far apart those are.
    probe_every: PageId,
    /// Something was read ahead.
    reads_ahead: bool,
    /// The number of the last entry. Numbers begin again when they are used up; no two entries have the same.
    number: u32,
    /// Pages that may be resident.
    capacity: u64,
    found: u64,
    counters: Counters,
}

impl CyclicScans {
    fn new() -> CyclicScans {
        CyclicScans {
            detector: Detector::default(),
            marks: Vec::new(),
            places: Vec::new(),
            recent: VecDeque::with_capacity(REMEMBERED),
            left_alone: VecDeque::with_capacity(LEFT_ALONE + 1),
            probed: None,
            probe_every: 1,
            reads_ahead: false,
            number: ADMITTED,
            capacity: u64::MAX,
            found: 0,
            counters: Counters::default(),
        }
    }

    /// Ranges that were found to be cyclic and are still, at most 4. Each is its first page and the page after the
    /// last, by id or, where the front-end tells them, by place.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.detector.cyclic()
    }

    /// How often a range was found to be cyclic.
    pub fn found(&self) -> u64 {
        self.found
    }

    fn covers(&self, place: u64) -> bool {
        self.ranges().any(|(first, end)| (first..end).contains(&place))
    }

    fn comes_in(&mut self, page: PageId, admission: &Admission, unread: usize) {
        let pattern = admission.pattern;
        let place = admission.place.unwrap_or(u64::from(page));
        if admission.place.is_some() {
            if self.places.is_empty() {
                self.places.resize(self.marks.len(), 0);
            }
            self.places[page as usize] = place;
        }
        self.reads_ahead |= unread > 0;
        let returns = std::mem::replace(&mut self.marks[page as usize], ADMITTED) != ABSENT;
        // Where places are told, no page is found by its place, and what the cache has forgotten was no first touch.
        let by_ids = self.places.is_empty();
        if pattern == AccessPattern::Unknown && returns {
            match self.detector.returned(place, self.capacity, self.reads_ahead, by_ids) {
                Some(Change::Found) => self.found += 1,
                Some(Change::Early(first, last)) => self.probe(first, last),
                Some(Change::Passed { confirmed, first, last }) => {
                    self.found += u64::from(confirmed);
                    self.probe(first, last);
                }
                Some(Change::Lost) => {
                    self.recent.clear();
                    self.left_alone.clear();
                    self.probed = None;
                }
                None => {}
            }
        } else if pattern == AccessPattern::Unknown && by_ids {
            self.detector.touched_first(place);
        }
        if pattern == AccessPattern::Cyclic || self.covers(place) {
            while self.recent.len() + self.left_alone.len() >= REMEMBERED + 2 * unread {
                let _ = self.recent.pop_front().or_else(|| self.left_alone.pop_front());
            }
            self.number = self.number.checked_add(1).unwrap_or(ADMITTED + 1);
            self.marks[page as usize] = self.number;
            self.left_alone.push_back((page, self.number));
        }
    }

    /// Some pages between these go next, so that it can be seen whether they are read. Only where ids are places.
    fn probe(&mut self, first: u64, last: u64) {
        self.probed = Some((first as PageId, last as PageId + 1));
        self.probe_every = ((last - first) as PageId / PROBES).max(1);
    }

    fn freed(&mut self, page: PageId) {
        self.marks[page as usize] = ABSENT;
        let place = self.places.get(page as usize).copied().unwrap_or(u64::from(page));
        self.detector.forget(place, 1);
    }

    /// Another page gets the id. Where ids are not places, nothing is given up of what is scanned.
    fn forgotten(&mut self, page: PageId) {
        if self.places.is_empty() {
            self.freed(page);
        }
        self.marks[page as usize] = ABSENT;
    }

    /// From now on leaves the `pages` pages alone that came in last, if there are as many.
    fn leave_alone(&mut self, pages: usize) {
        while self.left_alone.len() > pages
            && let Some(entry) = self.left_alone.pop_front()
        {
            self.recent.push_back(entry);
        }
        while self.left_alone.len() < pages
            && let Some(entry) = self.recent.pop_back()
        {
            self.left_alone.push_front(entry);
        }
    }

    /// Evicts up to `goal` pages that the scan has just left, and before them some of a range that is believed early.
    fn evict<P: Policy, M: Memory>(&mut self, goal: u32, policy: &mut P, memory: &mut M) -> u32 {
        let mut freed = 0;
        while freed < goal
            && let Some((first, end)) = self.probed
        {
            // It may be among those that the scan has just left, too: it goes once.
            if let Some(mark) = self.marks.get_mut(end as usize - 1).filter(|mark| **mark != ABSENT) {
                *mark = ADMITTED;
                freed += u32::from(self.evict_page(end - 1, policy, memory));
            }
            self.probed = (end > first + self.probe_every).then(|| (first, end - self.probe_every));
        }
        self.leave_alone(LEFT_ALONE + memory.unread() as usize);
        // The one that came in last but for those that are left alone: older ones are what stays.
        while freed < goal
            && let Some((page, number)) = self.recent.pop_back()
        {
            if self.marks[page as usize] != number {
                continue;
            }
            self.marks[page as usize] = ADMITTED;
            freed += u32::from(self.evict_page(page, policy, memory));
        }
        freed
    }

    /// Evicts a page that the policy may have evicted since.
    fn evict_page<P: Policy, M: Memory>(&mut self, page: PageId, policy: &mut P, memory: &mut M) -> bool {
        if !memory.is_resident(page) {
            return false;
        }
        self.counters.pgscan += 1;
        let goes = matches!(memory.evict(page, Shadow::NONE), Eviction::Freed { .. });
        if goes {
            self.counters.pgsteal += 1;
            policy.freed(page);
        }
        goes
    }
}

/// A policy under which cyclic scans are treated as such, or not. See the module.
#[derive(Clone, Debug)]
pub struct Cyclic<P> {
    policy: P,
    scans: Option<Box<CyclicScans>>,
}

impl<P: Policy> Cyclic<P> {
    /// Wraps a policy that has seen no page yet. `detects`: whether anything is done.
    pub fn new(policy: P, detects: bool) -> Cyclic<P> {
        Cyclic { policy, scans: detects.then(|| Box::new(CyclicScans::new())) }
    }

    /// The wrapped policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    #[inline]
    fn evict_passing<M: Memory>(&mut self, goal: u32, memory: &mut M) -> u32 {
        match &mut self.scans {
            Some(scans) => scans.evict(goal, &mut self.policy, memory),
            None => 0,
        }
    }
}

impl<P: Policy> Policy for Cyclic<P> {
    const HITS: HitReport = P::HITS;
    const RECLAIM_BATCH: u32 = P::RECLAIM_BATCH;
    const CACHES_PAGES: bool = P::CACHES_PAGES;

    #[inline]
    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, memory: &mut M) {
        if let Some(scans) = &mut self.scans {
            scans.comes_in(page, admission, memory.unread() as usize);
        }
        self.policy.admit(page, admission, memory);
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        self.policy.accessed(page, memory);
    }

    fn freed(&mut self, page: PageId) {
        if let Some(scans) = &mut self.scans {
            scans.freed(page);
        }
        self.policy.freed(page);
    }

    fn forgotten(&mut self, page: PageId) {
        if let Some(scans) = &mut self.scans {
            scans.forgotten(page);
        }
        self.policy.forgotten(page);
    }

    #[inline]
    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        match self.evict_passing(request.goal, memory) {
            0 => self.policy.reclaim(request, memory),
            freed => freed,
        }
    }

    fn grow(&mut self, pages: usize) {
        if let Some(scans) = &mut self.scans {
            scans.marks.resize(pages.max(scans.marks.len()), ABSENT);
            if !scans.places.is_empty() {
                scans.places.resize(scans.marks.len(), 0);
            }
        }
        self.policy.grow(pages);
    }

    fn set_capacity(&mut self, pages: usize) {
        if let Some(scans) = &mut self.scans {
            scans.capacity = pages as u64;
        }
        self.policy.set_capacity(pages);
    }

    fn counters(&self) -> Counters {
        let mut counters = self.policy.counters();
        if let Some(scans) = &self.scans {
            counters.add(&scans.counters);
        }
        counters
    }

    fn metadata_bytes(&self) -> usize {
        let bytes = |scans: &CyclicScans| {
            scans.marks.capacity() * 4
                + scans.places.capacity() * 8
                + (scans.recent.capacity() + scans.left_alone.capacity()) * 8
        };
        let scans = self.scans.as_deref().map_or(0, bytes);
        self.policy.metadata_bytes() + scans
    }

    fn nodes(&mut self) -> Option<&mut impl NodeReclaim> {
        self.policy.nodes()
    }

    fn generation_commands(&mut self) -> Option<&mut impl GenerationCommands> {
        self.policy.generation_commands()
    }

    fn sorting(&mut self) -> Option<&mut impl Sorting> {
        self.policy.sorting()
    }

    fn bypass(&mut self) -> Option<&mut impl Bypass> {
        self.policy.bypass()
    }

    fn cached_pages(&self) -> Option<&impl CachedPages> {
        self.policy.cached_pages()
    }

    fn lists(&self) -> Option<&impl Lists> {
        Some(self)
    }

    fn keeps_out(&mut self, admission: &Admission, needed: u64, bytes: &dyn Fn(PageId) -> u64) -> bool {
        self.policy.keeps_out(admission, needed, bytes)
    }

    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        self.policy.prefetch_hint(page)
    }
}

/// The wrapped policy's, and the scans.
impl<P: Policy> Lists for Cyclic<P> {
    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize> {
        generations::generations(&self.policy, lruvec)
    }

    fn generation_details(&self, lruvec: LruvecId) -> Vec<GenerationDetails> {
        generations::generation_details(&self.policy, lruvec)
    }

    fn leader(&self) -> Option<&'static str> {
        generations::leader(&self.policy)
    }

    fn active_inactive(&self) -> Option<[u64; 2]> {
        generations::active_inactive(&self.policy)
    }

    fn cyclic_scans(&self) -> Option<&CyclicScans> {
        self.scans.as_deref()
    }
}

#[cfg(test)]
mod tests;
