//! What schemes ask of a front-end.
//!
//! Kernel: `damon_pa_apply_scheme` in `mm/damon/paddr.c`; `damon_va_apply_scheme` in `mm/damon/vaddr.c`.

use std::ops::Range;

use super::action::Action;
use crate::page::PageId;

/// A unit of pages that the lists move as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folio {
    /// Its first page.
    pub page: PageId,
    /// Bytes.
    pub size: u64,
    /// The address asked for lies in its first page.
    pub at_head: bool,
    /// Anonymous rather than file.
    pub anon: bool,
    /// On an active list. Always false inside generations.
    pub active: bool,
    /// Mapped by at least one page-table entry.
    pub mapped: bool,
    /// The control group it is charged to, if any.
    pub memcg: Option<u32>,
}

/// The actions of the schemes, implemented by the owner of the memory. The defaults describe a memory in which nothing
/// can be done and nothing is known.
pub trait SchemeActor {
    /// Why an action has no effect here, as a sentence's end ("lru_prio: …"); `None` if it has one.
    fn refuses(&self, action: &Action) -> Option<&'static str> {
        (*action != Action::Stat).then_some("this front-end can only count")
    }

    /// The folio on a list at an address; `None` where there is none (free, not in memory, not evictable).
    fn folio(&mut self, target: usize, address: u64) -> Option<Folio> {
        let _ = (target, address);
        None
    }

    /// Whether the folio was accessed since it was last made old.
    fn is_young(&mut self, folio: &Folio) -> bool {
        let _ = folio;
        false
    }

    /// Makes the folio old, as a check does.
    fn make_old(&mut self, folio: &Folio) {
        let _ = folio;
    }

    /// Acts on a folio and returns the bytes acted upon.
    fn act(&mut self, action: &Action, folio: &Folio) -> u64 {
        let _ = (action, folio);
        0
    }

    /// The region is done; returns bytes acted upon that [`SchemeActor::act`] had put off to do at once.
    fn finish(&mut self, action: &Action) -> u64 {
        let _ = action;
        0
    }

    /// Gives advice on a whole range; true if it was taken.
    fn advise(&mut self, action: &Action, target: usize, range: Range<u64>) -> bool {
        let _ = (action, target, range);
        false
    }

    /// Free memory in 1/1000 of all.
    fn free_permille(&self) -> u64 {
        0
    }

    /// Total time in µs in which some task waited for memory.
    fn psi_some_us(&self) -> u64 {
        0
    }

    /// Total and free pages of a node.
    fn node_memory(&self, node: u32) -> Option<(u64, u64)> {
        let _ = node;
        None
    }

    /// Pages on lists that a control group has on a node.
    fn node_memcg_pages(&self, node: u32, memcg: u32) -> Option<u64> {
        let _ = (node, memcg);
        None
    }

    /// Pages on active and on inactive lists, both types together.
    fn active_inactive(&self) -> Option<[u64; 2]> {
        None
    }

    /// The node that an address of physical memory lies on.
    fn node_of(&self, address: u64) -> Option<u32> {
        let _ = address;
        None
    }
}
