//! The tree of memory cgroups, as lruvecs see it.
//!
//! Lruvec 0 is the root. Each node of the tree knows its ancestors (itself first) and its subtree in pre-order (itself
//! first). Pre-order is the order in which reclaim walks it (spec: overview §4.4).
//!
//! Kernel: `mem_cgroup_iter`, `parent_mem_cgroup` in `mm/memcontrol.c`.

use crate::page::LruvecId;

/// Parents, ancestors and subtrees. Adding a member is O(members); queries return slices.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    parents: Vec<Option<LruvecId>>,
    ancestors: Vec<Vec<LruvecId>>,
    subtrees: Vec<Vec<LruvecId>>,
}

impl Default for Hierarchy {
    fn default() -> Hierarchy {
        Hierarchy::new()
    }
}

impl Hierarchy {
    /// Only the root.
    pub fn new() -> Hierarchy {
        Hierarchy { parents: vec![None], ancestors: vec![vec![0]], subtrees: vec![vec![0]] }
    }

    /// Adds a child of `parent`, which must exist, and returns its id. `None` gives another root (another node's).
    pub fn add(&mut self, parent: Option<LruvecId>) -> LruvecId {
        let id = self.parents.len() as LruvecId;
        self.parents.push(parent);
        let mut ancestors = vec![id];
        if let Some(parent) = parent {
            ancestors.extend_from_slice(&self.ancestors[parent as usize]);
        }
        self.ancestors.push(ancestors);
        self.subtrees = (0..self.parents.len()).map(|top| self.pre_order(top as LruvecId)).collect();
        id
    }

    /// The lruvec and those above it, nearest first.
    #[inline]
    pub fn ancestors(&self, lruvec: LruvecId) -> &[LruvecId] {
        &self.ancestors[lruvec as usize]
    }

    /// The lruvec and all below it, in pre-order.
    #[inline]
    pub fn subtree(&self, lruvec: LruvecId) -> &[LruvecId] {
        &self.subtrees[lruvec as usize]
    }

    fn pre_order(&self, top: LruvecId) -> Vec<LruvecId> {
        let mut order = vec![top];
        for (child, parent) in self.parents.iter().enumerate() {
            if *parent == Some(top) {
                order.extend(self.pre_order(child as LruvecId));
            }
        }
        order
    }
}
