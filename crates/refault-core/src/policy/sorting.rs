//! Proactive sorting of a policy's lists by what a monitor has found hot or cold (spec: lru_sort §4).
//!
//! Kernel: `damon_pa_mark_accessed_or_deactivate` in `mm/damon/paddr.c`; `folio_mark_accessed`, `folio_deactivate` in
//! `mm/swap.c`.

use super::Absent;
use crate::memory::Memory;
use crate::page::PageId;

/// How proactive sorting of the lists works on one page: the kernels changed it (spec: lru_sort §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortRule {
    /// Up to 6.x: prioritising marks the page accessed, so an inactive page moves at the second time.
    MarkAccessed,
    /// 7.0 and later: prioritising activates the page at once.
    #[default]
    Activate,
}

/// A policy whose lists can be sorted.
pub trait Sorting {
    /// The monitor found a resident page hot: move it away from the eviction end as `rule` says.
    fn prioritise<M: Memory>(&mut self, page: PageId, rule: SortRule, memory: &mut M);

    /// The monitor found a resident page cold: move it towards the eviction end as `rule` says.
    fn deprioritise<M: Memory>(&mut self, page: PageId, rule: SortRule, memory: &mut M);
}

impl Sorting for Absent {
    fn prioritise<M: Memory>(&mut self, _page: PageId, _rule: SortRule, _memory: &mut M) {
        match *self {}
    }
    fn deprioritise<M: Memory>(&mut self, _page: PageId, _rule: SortRule, _memory: &mut M) {
        match *self {}
    }
}
