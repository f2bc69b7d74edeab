//! The state of one (memory cgroup, node) pair: four lists, the non-resident age, scan costs.
//!
//! Kernel: `struct lruvec`, `enum lru_list` in `include/linux/mmzone.h`.

use crate::lists::ring::Deque;
use crate::page::PageType;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Lruvec {
    /// Inactive anon, active anon, inactive file, active file.
    lists: [Deque; 4],
    /// The clock of evictions (and activations) that refault distances are measured on, by type; the shared clock is
    /// the first.
    pub age: [u64; 2],
    /// Recent cost of reclaiming each type (spec: classic §9).
    pub cost: [u64; 2],
    /// Activated refaults by type, descendants included.
    pub workingset_activate: [u64; 2],
    /// `workingset_activate` at the end of the last reclaim with this target.
    pub snapshot: [u64; 2],
    /// Where the shared walk below this target stopped.
    pub walk_position: usize,
    /// Of a node's root: what background reclaim has found out about the node's dirty pages.
    pub pressure: NodePressure,
    /// Reclaim for this group's limit met no dirty page but such as were in flight already; until its attempt ends.
    pub group_congested: bool,
}

/// What the last background passes over a node say of its dirty pages, until the node is balanced (spec: classic §10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodePressure {
    /// A pass isolated nothing but pages whose write was in flight.
    pub writeback: bool,
    /// All file pages that a pass isolated were dirty and no write of them had begun; so also if there were none.
    pub dirty: bool,
    /// All dirty file pages that a pass met were in flight and marked already.
    pub congested: bool,
}

impl Lruvec {
    #[inline]
    pub fn list_mut(&mut self, page_type: PageType, active: bool) -> &mut Deque {
        &mut self.lists[list_index(page_type, active)]
    }

    #[inline]
    pub fn list(&self, page_type: PageType, active: bool) -> &Deque {
        &self.lists[list_index(page_type, active)]
    }

    #[inline]
    pub fn size(&self, page_type: PageType, active: bool) -> u64 {
        self.lists[list_index(page_type, active)].len() as u64
    }

    pub fn bytes(&self) -> usize {
        size_of::<Lruvec>() + self.lists.iter().map(Deque::bytes).sum::<usize>()
    }

    pub fn total(&self) -> u64 {
        self.lists.iter().map(|list| list.len() as u64).sum()
    }
}

/// Lists in the order in which a visit takes them.
#[inline]
pub(super) const fn list_index(page_type: PageType, active: bool) -> usize {
    page_type.index() * 2 + active as usize
}
