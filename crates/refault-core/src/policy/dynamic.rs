//! A policy without its type, over one kind of memory.
//!
//! [`Policy`] cannot be made into an object, because its methods take any [`Memory`]. [`DynPolicy`] fixes the memory,
//! and every policy is one: `Box<dyn DynPolicy<MyMemory> + Send>` is what a page cache or a pager holds. The extensions
//! are flattened: what a policy does not have answers as the method says. Cost: one virtual call each.

mod erased;

pub use erased::Erased;

use super::CyclicScans;
use super::{
    Admission, AdmissionFilter, AdmissionThreshold, Bypass, CachedPages, GenerationSize, HitReport, Lists, Policy,
    ReclaimRequest, SortRule, Sorting,
};
use crate::counters::Counters;
use crate::frames::FreePools;
use crate::memory::Memory;
use crate::page::{LruvecId, PageId};

/// See the module; the methods are those of [`Policy`] and its extensions.
pub trait DynPolicy<M: Memory> {
    /// [`Policy::HITS`].
    fn hits(&self) -> HitReport;
    /// [`Policy::RECLAIM_BATCH`].
    fn reclaim_batch(&self) -> u32;
    /// [`Policy::admit`].
    fn admit(&mut self, page: PageId, admission: &Admission, memory: &mut M);
    /// [`Policy::accessed`].
    fn accessed(&mut self, page: PageId, memory: &mut M);
    /// [`Policy::freed`].
    fn freed(&mut self, page: PageId);
    /// [`Policy::forgotten`].
    fn forgotten(&mut self, page: PageId);
    /// [`Policy::reclaim`].
    fn reclaim(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32;
    /// [`Policy::keeps_out`].
    fn keeps_out(&mut self, admission: &Admission, needed: u64, bytes: &dyn Fn(PageId) -> u64) -> bool;
    /// [`Policy::grow`].
    fn grow(&mut self, pages: usize);
    /// [`Policy::set_capacity`].
    fn set_capacity(&mut self, pages: usize);
    /// [`Policy::counters`].
    fn counters(&self) -> Counters;
    /// [`Policy::metadata_bytes`].
    fn metadata_bytes(&self) -> usize;

    /// [`super::node::page_out`].
    fn page_out(&mut self, page: PageId, memory: &mut M) -> bool;
    /// [`Lists::leader`].
    fn leader(&self) -> Option<&'static str>;

    /// Whether [`DynPolicy::sort`] does anything.
    fn sorts(&mut self) -> bool;
    /// [`Sorting::prioritise`] (`hot`) or [`Sorting::deprioritise`]; nothing for policies that cannot be sorted.
    fn sort(&mut self, page: PageId, hot: bool, rule: SortRule, memory: &mut M);
    /// [`Lists::generations`]; empty for policies without.
    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize>;
    /// [`Lists::active_inactive`].
    fn active_inactive(&self) -> Option<[u64; 2]>;
    /// [`Bypass::admission_filter`]; `None`: every page comes in.
    fn admission_filter(&mut self) -> Option<AdmissionFilter>;
    /// [`Bypass::admission_threshold`]; without a filter, one that lets every page in.
    fn admission_threshold(&mut self) -> AdmissionThreshold;
    /// [`Bypass::bypassed`], and then [`Bypass::admission_threshold`]; without a filter, a threshold that lets every
    /// page in.
    fn bypassed(&mut self, references: usize, memory: &mut M) -> AdmissionThreshold;
    /// [`Lists::cyclic_scans`].
    fn cyclic_scans(&self) -> Option<&CyclicScans>;
    /// [`CachedPages::pools`]; `None`: what is evicted is gone.
    fn cached_pools(&self) -> Option<FreePools>;
    /// [`CachedPages::reclaim_threshold`]; the limit itself for policies without a reserve.
    fn reclaim_threshold(&self, limit: usize) -> usize;
}

impl<P: Policy, M: Memory> DynPolicy<M> for P {
    #[inline]
    fn hits(&self) -> HitReport {
        P::HITS
    }
    #[inline]
    fn reclaim_batch(&self) -> u32 {
        P::RECLAIM_BATCH
    }
    #[inline]
    fn admit(&mut self, page: PageId, admission: &Admission, memory: &mut M) {
        Policy::admit(self, page, admission, memory);
    }
    #[inline]
    fn accessed(&mut self, page: PageId, memory: &mut M) {
        Policy::accessed(self, page, memory);
    }
    #[inline]
    fn freed(&mut self, page: PageId) {
        Policy::freed(self, page);
    }
    #[inline]
    fn forgotten(&mut self, page: PageId) {
        Policy::forgotten(self, page);
    }
    #[inline]
    fn reclaim(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        Policy::reclaim(self, request, memory)
    }
    fn keeps_out(&mut self, admission: &Admission, needed: u64, bytes: &dyn Fn(PageId) -> u64) -> bool {
        Policy::keeps_out(self, admission, needed, bytes)
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
    fn page_out(&mut self, page: PageId, memory: &mut M) -> bool {
        super::node::page_out(self, page, memory)
    }
    fn leader(&self) -> Option<&'static str> {
        self.lists()?.leader()
    }
    fn sorts(&mut self) -> bool {
        self.sorting().is_some()
    }
    fn sort(&mut self, page: PageId, hot: bool, rule: SortRule, memory: &mut M) {
        match self.sorting() {
            Some(lists) if hot => lists.prioritise(page, rule, memory),
            Some(lists) => lists.deprioritise(page, rule, memory),
            None => {}
        }
    }
    fn generations(&self, lruvec: LruvecId) -> Vec<GenerationSize> {
        super::generations::generations(self, lruvec)
    }
    fn active_inactive(&self) -> Option<[u64; 2]> {
        self.lists()?.active_inactive()
    }
    fn admission_filter(&mut self) -> Option<AdmissionFilter> {
        self.bypass().map(|bypass| bypass.admission_filter())
    }
    fn admission_threshold(&mut self) -> AdmissionThreshold {
        self.bypass().map_or_else(AdmissionThreshold::default, |bypass| bypass.admission_threshold())
    }
    fn bypassed(&mut self, references: usize, memory: &mut M) -> AdmissionThreshold {
        match self.bypass() {
            Some(bypass) => {
                bypass.bypassed(references, memory);
                bypass.admission_threshold()
            }
            None => AdmissionThreshold::default(),
        }
    }
    fn cyclic_scans(&self) -> Option<&CyclicScans> {
        self.lists()?.cyclic_scans()
    }
    fn cached_pools(&self) -> Option<FreePools> {
        self.cached_pages()?.pools()
    }
    fn reclaim_threshold(&self, limit: usize) -> usize {
        self.cached_pages().map_or(limit, |cached| cached.reclaim_threshold(limit))
    }
}
