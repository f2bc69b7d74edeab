//! Memory control groups: a tree of limits and protections (spec: overview §4.3, §4.5).
//!
//! Group 0 is the root: it has no limit. Usage counts a group's pages and those of all groups below it.
//! Invariant: a group's usage is at least the sum of its children's.
//!
//! Kernel: `page_counter_try_charge`, `page_counter_calculate_protection` in `mm/page_counter.c`; `try_charge_memcg` in
//! `mm/memcontrol.c`.
//!
//! ```
//! use refault_sim::machine::group::{GroupLimits, Groups};
//!
//! let mut groups = Groups::new(true);
//! let limits = GroupLimits { max: 100, ..GroupLimits::default() };
//! let a = groups.add("a".to_owned(), 0, limits);
//! groups.charge(a, 60);
//! assert_eq!(groups.over_limit(a, 30), None);
//! assert_eq!(groups.over_limit(a, 50), Some(a)); // 110 of 100 pages
//! ```

use refault_core::policy::giving::effective;

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;

/// Index of a group.
pub type GroupId = usize;

/// Limits and protections of a group, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// `memory.max`: beyond it the group reclaims from itself, then kills.
    pub max: u64,
    /// `memory.high`: beyond it the group reclaims from itself and is slowed down.
    pub high: u64,
    /// `memory.low`: up to it the group is spared while any group has unprotected memory.
    pub low: u64,
    /// `memory.min`: up to it the group is never reclaimed from.
    pub min: u64,
    /// `memory.swap.max`.
    pub swap_max: u64,
}

impl Default for GroupLimits {
    fn default() -> GroupLimits {
        GroupLimits { max: UNLIMITED, high: UNLIMITED, low: 0, min: 0, swap_max: UNLIMITED }
    }
}

/// `memory.events`, each counted at the group and at all above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupEvents {
    /// Reclaimed although below `low`.
    pub low: u64,
    /// Exceeded `high`.
    pub high: u64,
    /// Would have exceeded `max`.
    pub max: u64,
    /// Reclaim failed to make room.
    pub oom: u64,
    /// Tasks killed.
    pub oom_kill: u64,
}

/// A group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Path from the root, `/` for the root.
    pub name: String,
    /// The group above; none for the root.
    pub parent: Option<GroupId>,
    /// See [`GroupLimits`].
    pub limits: GroupLimits,
    /// Pages charged, descendants included.
    pub usage: u64,
    /// Swap slots in use, descendants included.
    pub swap_usage: u64,
    /// See [`GroupEvents`].
    pub events: GroupEvents,
    /// Major faults of its tasks.
    pub major_faults: u64,
    /// Effective protection as of the last computation.
    pub effective_min: u64,
    /// Effective soft protection as of the last computation.
    pub effective_low: u64,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Groups {
    groups: Vec<Group>,
    /// `memory_recursiveprot`: unclaimed protection of a parent goes to its children by usage.
    pub recursive_protection: bool,
    /// Some group has a protection.
    protected: bool,
}

impl Groups {
    /// Only the root.
    pub fn new(recursive_protection: bool) -> Groups {
        let mut groups = Groups { groups: Vec::new(), recursive_protection, protected: false };
        groups.push("/".into(), None, GroupLimits::default());
        groups
    }

    fn push(&mut self, name: String, parent: Option<GroupId>, limits: GroupLimits) -> GroupId {
        self.groups.push(Group {
            name,
            parent,
            limits,
            usage: 0,
            swap_usage: 0,
            events: GroupEvents::default(),
            major_faults: 0,
            effective_min: 0,
            effective_low: 0,
        });
        self.groups.len() - 1
    }

    /// Adds a child.
    pub fn add(&mut self, name: String, parent: GroupId, limits: GroupLimits) -> GroupId {
        self.push(name, Some(parent), limits)
    }

    /// Whether any group has a protection at all.
    #[inline]
    pub fn are_protected(&self) -> bool {
        self.protected
    }

    /// Number of groups, the root included.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Never: there is always a root.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The group of that name.
    pub fn find(&self, name: &str) -> Option<GroupId> {
        self.groups.iter().position(|g| g.name == name)
    }

    /// All groups, the root first.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    /// The group and those above it, up to the root.
    pub fn upwards(&self, group: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        std::iter::successors(Some(group), |g| self.groups[*g].parent)
    }

    /// Whether `group` is `top` or below it.
    pub fn is_below(&self, group: GroupId, top: GroupId) -> bool {
        top == 0 || self.upwards(group).any(|g| g == top)
    }

    /// The lowest level from `group` upward that has no room for `pages` more (spec: overview §4.3, `A`).
    #[inline]
    pub fn over_limit(&self, group: GroupId, pages: u64) -> Option<GroupId> {
        let mut at = group;
        loop {
            let level = &self.groups[at];
            if level.usage + pages > level.limits.max {
                return Some(at);
            }
            at = level.parent?;
        }
    }

    /// The lowest level from `group` upward that exceeds `high`.
    #[inline]
    pub fn over_high(&self, group: GroupId) -> Option<GroupId> {
        let mut at = group;
        loop {
            let level = &self.groups[at];
            if level.usage > level.limits.high {
                return Some(at);
            }
            at = level.parent?;
        }
    }

    /// Adds to the usage of a group and of all above it.
    #[inline]
    pub fn charge(&mut self, group: GroupId, pages: i64) {
        let mut at = group;
        loop {
            let level = &mut self.groups[at];
            level.usage = level.usage.wrapping_add_signed(pages);
            match level.parent {
                Some(parent) => at = parent,
                None => return,
            }
        }
    }

    /// Adds to the swap usage of a group and of all above it.
    #[inline]
    pub fn charge_swap(&mut self, group: GroupId, pages: i64) {
        let mut at = group;
        loop {
            let level = &mut self.groups[at];
            level.swap_usage = level.swap_usage.wrapping_add_signed(pages);
            match level.parent {
                Some(parent) => at = parent,
                None => return,
            }
        }
    }

    /// Swap slots that a group may still take, as far as the groups are concerned.
    #[inline]
    pub fn swap_headroom(&self, group: GroupId) -> u64 {
        let mut headroom = UNLIMITED;
        let mut at = Some(group);
        while let Some(g) = at {
            let level = &self.groups[g];
            headroom = headroom.min(level.limits.swap_max.saturating_sub(level.swap_usage));
            at = level.parent;
        }
        headroom
    }

    /// Counts an event at a group and at all above it.
    pub fn count_event(&mut self, group: GroupId, event: impl Fn(&mut GroupEvents)) {
        let mut at = Some(group);
        while let Some(g) = at {
            event(&mut self.groups[g].events);
            at = self.groups[g].parent;
        }
    }

    /// Recomputes the effective protections of everything below `top` (spec: overview §4.5). The children of `top` keep
    /// their raw settings.
    pub fn compute_protection(&mut self, top: GroupId) {
        self.protected = self.groups.iter().any(|group| group.limits.min > 0 || group.limits.low > 0);
        if !self.protected {
            return;
        }
        for group in 0..self.groups.len() {
            let Some(parent) = self.groups[group].parent else { continue };
            if group == top || !self.is_below(group, top) || self.groups[group].usage == 0 {
                continue;
            }
            let limits = self.groups[group].limits;
            if parent == top {
                (self.groups[group].effective_min, self.groups[group].effective_low) = (limits.min, limits.low);
                continue;
            }
            let siblings = |pick: fn(&GroupLimits) -> u64| -> u64 {
                self.groups.iter().filter(|g| g.parent == Some(parent)).map(|g| g.usage.min(pick(&g.limits))).sum()
            };
            let (usage, above) = (self.groups[group].usage, &self.groups[parent]);
            let recursive = self.recursive_protection;
            let min = effective(usage, above.usage, limits.min, above.effective_min, siblings(|l| l.min), recursive);
            let low = effective(usage, above.usage, limits.low, above.effective_low, siblings(|l| l.low), recursive);
            (self.groups[group].effective_min, self.groups[group].effective_low) = (min, low);
        }
    }
}

impl std::ops::Index<GroupId> for Groups {
    type Output = Group;
    #[inline]
    fn index(&self, group: GroupId) -> &Group {
        &self.groups[group]
    }
}

impl std::ops::IndexMut<GroupId> for Groups {
    #[inline]
    fn index_mut(&mut self, group: GroupId) -> &mut Group {
        &mut self.groups[group]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max: u64, low: u64) -> GroupLimits {
        GroupLimits { max, low, ..GroupLimits::default() }
    }

    #[test]
    fn the_lowest_full_level_is_found() {
        let mut groups = Groups::new(true);
        let outer = groups.add("/outer".into(), 0, limits(100, 0));
        let inner = groups.add("/outer/inner".into(), outer, limits(200, 0));
        groups.charge(inner, 100);
        assert_eq!(groups.over_limit(inner, 1), Some(outer));
        assert_eq!(groups[0].usage, 100);
        groups[inner].limits.max = 100;
        assert_eq!(groups.over_limit(inner, 1), Some(inner));
        groups.charge(inner, -1);
        assert_eq!(groups.over_limit(inner, 1), None);
    }

    #[test]
    fn overcommitted_protection_is_shared_in_proportion() {
        let mut groups = Groups::new(false);
        let outer = groups.add("/o".into(), 0, limits(UNLIMITED, 100));
        let a = groups.add("/o/a".into(), outer, limits(UNLIMITED, 150));
        let b = groups.add("/o/b".into(), outer, limits(UNLIMITED, 50));
        groups.charge(a, 150);
        groups.charge(b, 50);
        groups.compute_protection(0);
        assert_eq!((groups[a].effective_low, groups[b].effective_low), (75, 25));
    }

    #[test]
    fn unclaimed_protection_goes_down_by_usage() {
        let mut groups = Groups::new(true);
        let outer = groups.add("/o".into(), 0, limits(UNLIMITED, 100));
        let a = groups.add("/o/a".into(), outer, limits(UNLIMITED, 0));
        let b = groups.add("/o/b".into(), outer, limits(UNLIMITED, 0));
        groups.charge(a, 300);
        groups.charge(b, 100);
        groups.compute_protection(0);
        assert_eq!((groups[a].effective_low, groups[b].effective_low), (75, 25));
    }
}
