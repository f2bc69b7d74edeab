//! The page daemon: what the machine asks of the policy, FreeBSD's queues or any policy with kernel hit reports.
//!
//! [`Watermarked`] gives another policy what FreeBSD's has of itself: a count of available frames and the same targets.
//! So all of them keep the same frames free and are woken at the same moment. It frees to the target each time it is
//! woken, in the policy's own batches. Wiring and the "don't need" treatment mean nothing to it.

use refault_core::frames::FreePools;
use refault_core::freebsd::{Freebsd, Targets, Version, VmCounters};
use refault_core::policy::room::MAX_FRUITLESS_CALLS;
use refault_core::policy::{Admission, CachedPages, HitReport, Policy, ReclaimRequest};
use refault_core::{Counters, Memory, PageId};

use super::machine::Nanos;
use super::store::Store;

/// What the machine asks. An object: the machine and its workloads are compiled once for all policies.
pub(super) trait PageDaemon: refault_core::DynPolicy<Store> {
    fn version(&self) -> Version;
    fn available(&self) -> u64;
    fn targets(&self) -> &Targets;
    fn set_taken(&mut self, frames: u64);
    fn refused(&mut self, frames: u64);
    /// Frees up to the target; see [`Freebsd::scan`].
    fn scan(&mut self, pass: u32, elapsed: Nanos, store: &mut Store) -> u32;
    /// Pages looked at so far.
    fn examined(&self) -> u64;
    fn vm_counters(&self) -> VmCounters;

    /// A fault found its page resident, and it was no fast fault.
    fn faulted(&mut self, _page: PageId) {}
    fn wire(&mut self, _page: PageId) {}
    fn unwire(&mut self, _page: PageId) {}
    fn dont_need(&mut self, _page: PageId, _store: &mut Store) {}
    fn cache_behind(&mut self, _page: PageId, _store: &mut Store) {}
    fn try_to_let_go(&mut self, _page: PageId, _store: &mut Store) {}
    /// Lets pages go between the attempts of a contiguous allocation; returns how many went.
    fn grow_cache(&mut self, _attempt: u32, _store: &mut Store) -> u32 {
        0
    }

    fn below_min(&self) -> bool {
        self.available() < self.targets().free_min
    }
    fn severe(&self) -> bool {
        self.available() < self.targets().free_severe
    }
    fn paging_needed(&self) -> bool {
        self.available() < self.targets().wakeup_threshold
    }
}

impl PageDaemon for Freebsd {
    fn version(&self) -> Version {
        self.params().version
    }
    fn available(&self) -> u64 {
        Freebsd::available(self)
    }
    fn targets(&self) -> &Targets {
        Freebsd::targets(self)
    }
    fn set_taken(&mut self, frames: u64) {
        Freebsd::set_taken(self, frames);
    }
    fn refused(&mut self, frames: u64) {
        Freebsd::refused(self, frames);
    }
    fn scan(&mut self, pass: u32, elapsed: Nanos, store: &mut Store) -> u32 {
        Freebsd::scan(self, pass, elapsed, store)
    }
    fn examined(&self) -> u64 {
        Freebsd::vm_counters(self).page_daemon_pages
    }
    fn vm_counters(&self) -> VmCounters {
        *Freebsd::vm_counters(self)
    }
    fn faulted(&mut self, page: PageId) {
        Freebsd::faulted(self, page);
    }
    fn wire(&mut self, page: PageId) {
        Freebsd::wire(self, page);
    }
    fn unwire(&mut self, page: PageId) {
        Freebsd::unwire(self, page);
    }
    fn dont_need(&mut self, page: PageId, store: &mut Store) {
        Freebsd::dont_need(self, page, store);
    }
    fn cache_behind(&mut self, page: PageId, store: &mut Store) {
        Freebsd::cache_behind(self, page, store);
    }
    fn try_to_let_go(&mut self, page: PageId, store: &mut Store) {
        Freebsd::try_to_let_go(self, page, store);
    }
    fn grow_cache(&mut self, attempt: u32, store: &mut Store) -> u32 {
        Freebsd::grow_cache(self, attempt, |_| true, store)
    }
}

/// Another policy under FreeBSD's targets. See the module.
pub(super) struct Watermarked<P> {
    policy: P,
    keeps_evicted: Option<FreePools>,
    targets: Targets,
    capacity: u64,
    resident: u64,
    taken: u64,
}

impl<P: Policy> Watermarked<P> {
    /// `keeps_evicted`: evicted pages stay cached.
    pub fn new(policy: P, keeps_evicted: Option<FreePools>) -> Watermarked<P> {
        Watermarked { policy, keeps_evicted, targets: Targets::default(), capacity: 0, resident: 0, taken: 0 }
    }
}

impl<P: Policy> Policy for Watermarked<P> {
    const HITS: HitReport = P::HITS;
    const CACHES_PAGES: bool = true;

    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, memory: &mut M) {
        self.resident += 1;
        self.policy.admit(page, admission, memory);
    }
    fn accessed<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        self.policy.accessed(page, memory);
    }
    fn freed(&mut self, page: PageId) {
        self.resident -= 1;
        self.policy.freed(page);
    }
    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let freed = self.policy.reclaim(request, memory);
        self.resident -= u64::from(freed);
        freed
    }
    fn grow(&mut self, pages: usize) {
        self.policy.grow(pages);
    }
    fn set_capacity(&mut self, pages: usize) {
        self.capacity = pages as u64;
        self.targets = Targets::for_frames(pages as u64);
        self.policy.set_capacity(pages);
    }
    fn counters(&self) -> Counters {
        self.policy.counters()
    }
    fn metadata_bytes(&self) -> usize {
        self.policy.metadata_bytes()
    }
    fn cached_pages(&self) -> Option<&impl CachedPages> {
        Some(self)
    }
}

impl<P: Policy> CachedPages for Watermarked<P> {
    fn pools(&self) -> Option<FreePools> {
        self.keeps_evicted
    }
    fn reclaim_threshold(&self, limit: usize) -> usize {
        limit
    }
}

impl<P: Policy> PageDaemon for Watermarked<P> {
    fn version(&self) -> Version {
        Version::V2015
    }
    fn available(&self) -> u64 {
        self.capacity - self.resident - self.taken
    }
    fn targets(&self) -> &Targets {
        &self.targets
    }
    fn set_taken(&mut self, frames: u64) {
        self.taken = frames;
    }
    fn refused(&mut self, _frames: u64) {}
    fn scan(&mut self, pass: u32, _elapsed: Nanos, store: &mut Store) -> u32 {
        let (mut freed, mut fruitless) = (0, 0);
        while pass > 0 && self.available() < self.targets.free_target && fruitless < MAX_FRUITLESS_CALLS {
            let request = ReclaimRequest { target: 0, goal: P::RECLAIM_BATCH, incoming: None };
            let now = self.reclaim(&request, store);
            fruitless = if now == 0 { fruitless + 1 } else { 0 };
            freed += now;
        }
        freed
    }
    fn examined(&self) -> u64 {
        let counters = self.policy.counters();
        counters.pgscan + counters.pgrefill
    }
    fn vm_counters(&self) -> VmCounters {
        VmCounters::default()
    }
}
