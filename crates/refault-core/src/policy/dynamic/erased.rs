//! A policy without its type that is a [`Policy`] again, so that front-ends are compiled once for all policies in it.
//!
//! For policies that are told of each access and ask memory for nothing but evictions and residency. Their results are
//! the same; an access costs one virtual call more. A binary grows by the policy alone, not by a replay, a machine and
//! a cache for it.
//!
//! ```
//! use refault_core::Policy;
//! use refault_core::policy::Erased;
//! use refault_core::textbook::Lfu;
//!
//! let mut policy = Erased::new(Lfu::default());
//! policy.grow(100);
//! policy.set_capacity(10);
//! assert_eq!(policy.counters().pgsteal, 0);
//! ```

use super::DynPolicy;
use crate::counters::Counters;
use crate::memory::{Eviction, Memory, References};
use crate::page::{PageId, Shadow};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// What such policies ask of memory.
trait Residents {
    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction;
    fn is_resident(&self, page: PageId) -> bool;
}

impl<M: Memory> Residents for M {
    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        Memory::evict(self, page, shadow)
    }
    fn is_resident(&self, page: PageId) -> bool {
        Memory::is_resident(self, page)
    }
}

/// Any memory, of which only [`Residents`] is left.
pub struct ErasedMemory<'a>(&'a mut dyn Residents);

impl Memory for ErasedMemory<'_> {
    fn take_references(&mut self, _page: PageId) -> References {
        References::default()
    }
    fn has_accessed_bits(&self) -> bool {
        false
    }
    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        self.0.evict(page, shadow)
    }
    fn is_resident(&self, page: PageId) -> bool {
        self.0.is_resident(page)
    }
}

/// See the module.
pub struct Erased(Box<dyn for<'a> DynPolicy<ErasedMemory<'a>> + Send>);

impl Erased {
    /// Forgets the type of a policy that hears of each access, evicts one page at a time and keeps no frames.
    pub fn new<P: Policy + Send + 'static>(policy: P) -> Erased {
        const {
            assert!(matches!(P::HITS, HitReport::EachAccess) && P::RECLAIM_BATCH == 1 && !P::CACHES_PAGES);
        }
        Erased(Box::new(policy))
    }
}

impl Policy for Erased {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, memory: &mut M) {
        self.0.admit(page, admission, &mut ErasedMemory(memory));
    }

    fn accessed<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        self.0.accessed(page, &mut ErasedMemory(memory));
    }

    fn freed(&mut self, page: PageId) {
        self.0.freed(page);
    }

    fn forgotten(&mut self, page: PageId) {
        self.0.forgotten(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        self.0.reclaim(request, &mut ErasedMemory(memory))
    }

    fn keeps_out(&mut self, admission: &Admission, needed: u64, bytes: &dyn Fn(PageId) -> u64) -> bool {
        self.0.keeps_out(admission, needed, bytes)
    }

    fn grow(&mut self, pages: usize) {
        self.0.grow(pages);
    }

    fn set_capacity(&mut self, pages: usize) {
        self.0.set_capacity(pages);
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }

    fn metadata_bytes(&self) -> usize {
        self.0.metadata_bytes()
    }
}
