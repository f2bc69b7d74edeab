//! Cyclic scans under any policy: what does not fit passes through, the rest stays.
//!
//! A range that is read from beginning to end, again and again, and is larger than memory defeats every policy that
//! evicts what was used longest ago: each page is gone just before its turn. [`Cyclic`] wraps a policy. For ranges that
//! the front-end says are scanned so ([`AccessPattern::Cyclic`]), and for those that show it (`scan_detector`), the
//! pages that came in last, a little behind the scan, are evicted first, so that the rest of the range stays and only
//! the part that does not fit passes through. That is evicting the most recently used, which is optimal for such scans.
//!
//! Every policy that the registry makes is wrapped, and the parameter `cyclic` says whether it does anything: the
//! replay and the pager run this very type. Page ids must follow addresses within a range. Groups and nodes are not
//! told apart, so a machine that has them refuses it.
//!
//! Invariants: the wrapped policy knows every resident page; a page that goes here is reported to it as freed. Nothing
//! is allocated after [`Policy::grow`]. Cost: with `cyclic=no` a test of a pointer per call; otherwise O(1) per page
//! that comes in, and a bit per page id.
//!
//! ```
//! use refault_core::Policy;
//! use refault_core::policy::Cyclic;
//! use refault_core::textbook::Clock;
//!
//! let mut policy = Cyclic::new(Clock::default(), true);
//! policy.grow(1000);
//! assert_eq!(policy.cyclic_scans().expect("it looks for scans").found(), 0);
//! assert!(Cyclic::new(Clock::default(), false).cyclic_scans().is_none());
//! ```

use std::collections::VecDeque;

use super::scan_detector::{Change, Detector};
use super::{
    AccessPattern, Admission, Bypass, CachedPages, GenerationCommands, HitReport, Lists, NodeReclaim, Policy,
    ReclaimRequest, Sorting,
};
use crate::counters::Counters;
use crate::memory::{Eviction, Memory};
use crate::page::{PageId, Shadow};
use crate::parameter::Parameter;

/// Pages that came in last and are remembered. Older ones belong to the wrapped policy again.
const REMEMBERED: usize = 4096;

/// Pages that came in last and are left alone: a window of readahead and those that the scan stands on.
const LEFT_ALONE: usize = 128;

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
    /// A bit for each page that came in and was not freed since: if it comes in again, it was evicted.
    admitted: Vec<u64>,
    /// Pages of cyclic ranges in the order in which they came in.
    recent: VecDeque<PageId>,
    /// Pages that may be resident.
    capacity: u64,
    found: u64,
    counters: Counters,
}

impl CyclicScans {
    fn new() -> CyclicScans {
        CyclicScans {
            detector: Detector::default(),
            admitted: Vec::new(),
            recent: VecDeque::with_capacity(REMEMBERED),
            capacity: u64::MAX,
            found: 0,
            counters: Counters::default(),
        }
    }

    /// Ranges that were found to be cyclic and are still, as first page and the page after the last; at most 4.
    pub fn ranges(&self) -> impl Iterator<Item = (PageId, PageId)> {
        self.detector.cyclic()
    }

    /// How often a range was found to be cyclic.
    pub fn found(&self) -> u64 {
        self.found
    }

    fn covers(&self, page: PageId) -> bool {
        self.ranges().any(|(first, end)| (first..end).contains(&page))
    }

    fn comes_in(&mut self, page: PageId, pattern: AccessPattern) {
        let (word, bit) = (&mut self.admitted[page as usize / 64], 1 << (page % 64));
        let returns = *word & bit != 0;
        *word |= bit;
        if returns && pattern == AccessPattern::Unknown {
            match self.detector.returned(page, self.capacity) {
                Some(Change::Found) => self.found += 1,
                Some(Change::Lost) => self.recent.clear(),
                None => {}
            }
        }
        if pattern == AccessPattern::Cyclic || self.covers(page) {
            if self.recent.len() == REMEMBERED {
                self.recent.pop_front();
            }
            self.recent.push_back(page);
        }
    }

    fn freed(&mut self, page: PageId) {
        self.admitted[page as usize / 64] &= !(1 << (page % 64));
        self.detector.forget(page, 1);
    }

    /// Evicts up to `goal` pages that the scan has just left.
    fn evict<P: Policy, M: Memory>(&mut self, goal: u32, policy: &mut P, memory: &mut M) -> u32 {
        let mut freed = 0;
        while freed < goal && self.recent.len() > LEFT_ALONE {
            // The one that came in last but for those that are left alone: older ones are what stays.
            let Some(page) = self.recent.remove(self.recent.len() - LEFT_ALONE - 1) else { break };
            // The policy may have evicted it since.
            if !memory.is_resident(page) {
                continue;
            }
            self.counters.pgscan += 1;
            if matches!(memory.evict(page, Shadow::NONE), Eviction::Freed { .. }) {
                self.counters.pgsteal += 1;
                policy.freed(page);
                freed += 1;
            }
        }
        freed
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
            scans.comes_in(page, admission.pattern);
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

    #[inline]
    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        match self.evict_passing(request.goal, memory) {
            0 => self.policy.reclaim(request, memory),
            freed => freed,
        }
    }

    fn grow(&mut self, pages: usize) {
        if let Some(scans) = &mut self.scans {
            scans.admitted.resize(pages.div_ceil(64).max(scans.admitted.len()), 0);
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
        let scans = self.scans.as_ref().map_or(0, |scans| scans.admitted.capacity() * 8 + scans.recent.capacity() * 4);
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
        self.policy.lists()
    }

    fn cyclic_scans(&self) -> Option<&CyclicScans> {
        self.scans.as_deref()
    }

    #[inline]
    fn prefetch_hint(&self, page: PageId) -> u64 {
        self.policy.prefetch_hint(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::References;
    use crate::page::PageType;
    use crate::policy::room::{MAX_FRUITLESS_CALLS, make_room};
    use crate::textbook::Fifo;

    struct Resident(Vec<bool>);

    impl Memory for Resident {
        fn take_references(&mut self, _page: PageId) -> References {
            References::default()
        }
        fn evict(&mut self, page: PageId, _shadow: Shadow) -> Eviction {
            assert!(std::mem::take(&mut self.0[page as usize]), "page {page} is evicted twice");
            Eviction::Freed { pages_written: 0 }
        }
        fn is_resident(&self, page: PageId) -> bool {
            self.0[page as usize]
        }
    }

    /// Misses of accesses under a limit of 1000 pages, and how many ranges were found.
    fn misses(accesses: impl IntoIterator<Item = PageId>, detects: bool, pattern: AccessPattern) -> (usize, u64) {
        const CAPACITY: usize = 1000;
        let mut policy = Cyclic::new(Fifo::default(), detects);
        policy.grow(5000);
        policy.set_capacity(CAPACITY);
        let (mut memory, mut misses, mut resident) = (Resident(vec![false; 5000]), 0, 0);
        for page in accesses {
            if memory.is_resident(page) {
                continue;
            }
            misses += 1;
            if resident == CAPACITY {
                let request = ReclaimRequest { target: 0, goal: 1, incoming: Some(page) };
                let room = make_room(&mut policy, &request, &mut memory, MAX_FRUITLESS_CALLS, |_| true);
                assert_eq!((room.made, room.freed), (true, 1));
                resident -= 1;
            }
            policy.admit(page, &Admission::fault(PageType::Anon).with_pattern(pattern), &mut memory);
            memory.0[page as usize] = true;
            resident += 1;
        }
        (misses, policy.cyclic_scans().map_or(0, CyclicScans::found))
    }

    fn scans(pages: PageId, passes: usize) -> impl Iterator<Item = PageId> {
        (0..passes).flat_map(move |_| 0..pages)
    }

    #[test]
    fn a_scan_that_does_not_fit_misses_only_what_does_not_fit() {
        let (plain, _) = misses(scans(1500, 20), false, AccessPattern::Unknown);
        assert_eq!(plain, 20 * 1500, "a queue misses everything");
        let (detected, found) = misses(scans(1500, 20), true, AccessPattern::Unknown);
        assert_eq!(found, 1);
        // Four passes until it is found and the newest pages are known, then what does not fit, and what is left alone.
        assert!(detected < 4 * 1500 + 16 * (500 + 2 * LEFT_ALONE), "{detected}");
        let (told, found) = misses(scans(1500, 20), true, AccessPattern::Cyclic);
        assert_eq!(found, 0, "what is told need not be found out");
        assert!(told < detected, "{told} against {detected}");
    }

    #[test]
    fn other_orders_are_left_to_the_policy() {
        let random = |seed: u32| (0..40_000u32).map(move |n| (n ^ seed).wrapping_mul(2_654_435_761) % 4999);
        assert_eq!(
            misses(random(1), true, AccessPattern::Unknown),
            (misses(random(1), false, AccessPattern::Unknown).0, 0)
        );
        let (with, without) = (scans(1500, 20), scans(1500, 20));
        let (with, without) =
            (misses(with, true, AccessPattern::Other).0, misses(without, false, AccessPattern::Other).0);
        assert_eq!(with, without, "a hint of another order is believed");
    }
}
