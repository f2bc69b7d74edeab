//! Which of several groups gives memory up: protections first, then the birth of the oldest generation.
//!
//! One comparison for the simulated machine's groups and for programs that share a pool. A group at or below its `min`
//! gives nothing; one at or below its `low` gives only if no other does. Among the rest the one whose oldest generation
//! is oldest goes first, as what it holds has been of no use for longest. A generation younger than `min_ttl` is
//! somebody's working set: if all are, nobody gives (spec: overview §4.4, mglru §13).
//!
//! Cost: one look at each group. Kernel: `mem_cgroup_below_min`, `mem_cgroup_below_low` in
//! `include/linux/memcontrol.h`; `lruvec_is_reclaimable` in `mm/vmscan.c`.
//!
//! ```
//! use refault_core::memory::Protection;
//! use refault_core::policy::giving::{Group, gives_first};
//!
//! let group = |birth| Group { protection: Protection { usage: 9, min: 0, low: 0 }, birth, evictable: 9, weight: 100 };
//! assert_eq!(gives_first(&[group(50), group(20)], 10, 100), Some(1)); // the older one
//! assert_eq!(gives_first(&[group(95), group(99)], 10, 100), None); // both are in use
//! ```

use crate::memory::Protection;

/// The weight of a group that says none: twice the weight makes generations count as half as old.
pub const DEFAULT_WEIGHT: u32 = 100;

/// How far a group's protection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Above both: open to reclaim.
    Open,
    /// At or below `low`: spared while others have something to give.
    Low,
    /// At or below `min`: never reclaimed from.
    Min,
}

impl Protection {
    /// Where the group stands.
    #[inline]
    pub const fn standing(&self) -> Standing {
        if self.usage <= self.min {
            Standing::Min
        } else if self.usage <= self.low {
            Standing::Low
        } else {
            Standing::Open
        }
    }
}

/// Whether a generation was born longer ago than `min_ttl`, in any unit of time.
#[inline]
pub const fn has_outlived(birth: u64, min_ttl: u64, now: u64) -> bool {
    birth.saturating_add(min_ttl) < now
}

/// A group that may have to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its usage and what is protected of it, in one unit.
    pub protection: Protection,
    /// When its oldest generation was born.
    pub birth: u64,
    /// What could be taken, in the same unit.
    pub evictable: u64,
    /// See [`DEFAULT_WEIGHT`]; 0 counts as 1.
    pub weight: u32,
}

impl Group {
    /// The age of its oldest generation as others see it.
    pub fn weighted_age(&self, now: u64) -> u128 {
        u128::from(now.saturating_sub(self.birth)) * u128::from(DEFAULT_WEIGHT) / u128::from(self.weight.max(1))
    }
}

/// The group that gives first, by its place; `None` if none has to. Of equally old ones it is the first.
pub fn gives_first(groups: &[Group], min_ttl: u64, now: u64) -> Option<usize> {
    let gives = |group: &Group| {
        group.protection.standing() != Standing::Min && group.evictable > 0 && has_outlived(group.birth, min_ttl, now)
    };
    let order = |group: &Group| (group.protection.standing(), std::cmp::Reverse(group.weighted_age(now)));
    groups.iter().enumerate().filter(|(_, group)| gives(group)).min_by_key(|(_, group)| order(group)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(usage: u64, min: u64, low: u64, birth: u64) -> Group {
        let protection = Protection { usage, min, low };
        Group { protection, birth, evictable: usage, weight: DEFAULT_WEIGHT }
    }

    #[test]
    fn protections_hold_at_their_bounds() {
        let standing = |usage| Protection { usage, min: 10, low: 20 }.standing();
        assert_eq!([10, 11, 20, 21].map(standing), [Standing::Min, Standing::Low, Standing::Low, Standing::Open]);
    }

    #[test]
    fn the_oldest_gives_first_and_the_protected_last_or_never() {
        let now = 1000;
        let all = [group(5, 5, 5, 1), group(5, 0, 5, 2), group(9, 0, 0, 800), group(9, 0, 0, 700)];
        assert_eq!(gives_first(&all, 10, now), Some(3));
        assert_eq!(gives_first(&all[..3], 10, now), Some(2), "low is spared as long as others give");
        assert_eq!(gives_first(&all[..2], 10, now), Some(1));
        assert_eq!(gives_first(&all[..1], 10, now), None);
        let empty = Group { evictable: 0, ..group(9, 0, 0, 1) };
        assert_eq!(gives_first(&[empty], 10, now), None);
    }

    #[test]
    fn weights_make_generations_younger() {
        let heavy = Group { weight: 400, ..group(9, 0, 0, 600) };
        assert_eq!(gives_first(&[heavy, group(9, 0, 0, 800)], 10, 1000), Some(1), "400 old at a quarter is 100");
        assert_eq!(Group { weight: 0, ..heavy }.weighted_age(1000), 40_000);
    }

    #[test]
    fn what_was_just_born_is_somebodys_working_set() {
        assert!(has_outlived(989, 10, 1000) && !has_outlived(990, 10, 1000) && !has_outlived(u64::MAX, 1, 5));
        assert_eq!(gives_first(&[group(9, 0, 0, 990)], 10, 1000), None);
    }
}
