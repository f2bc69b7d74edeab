//! Which of several groups gives memory up: protections first, then the birth of the oldest generation.
//!
//! The rules are those that the kernel's documentation states for `memory.min` and `memory.low`. The simulated
//! machine's groups and the programs that share a pool follow them by the same code:
//!
//! - A group at or below its `min` gives nothing ([`Standing::Min`]).
//! - A group at or below its `low` gives only if no group has unprotected memory left, young or old.
//! - Above its protection a group gives in proportion to its overage: the memory that is not protected.
//! - Groups that claim more protection than their parent has share it in proportion to what each uses of its claim
//!   ([`effective`]).
//!
//! [`gifts`] decides for one group that needs memory. That group is a candidate too: its next byte would be unprotected
//! memory as soon as the group has come up to its protection. Then it takes only what is older than its own by a
//! quarter. It takes no generation younger than `min_ttl`, because such a generation is the working set of its group.
//! Otherwise the needy group reclaims from itself. A group below its protection takes unprotected memory of any age.
//!
//! Cost: two looks at each group. Kernel: `mem_cgroup_below_min`, `mem_cgroup_below_low` in
//! `include/linux/memcontrol.h`; `lruvec_is_reclaimable` in `mm/vmscan.c` (spec: overview §4.4, §4.5, mglru §13).
//!
//! ```
//! use refault_core::memory::Protection;
//! use refault_core::policy::giving::{Group, gifts};
//!
//! let group = |birth, low| {
//!     let protection = Protection { usage: 9, min: 0, low };
//!     Group { protection, birth, evictable: 9, weight: 100 }
//! };
//! let needy = group(80, 0);
//! // At 100, the older one gives.
//! assert_eq!(gifts(&needy, &[group(50, 0), group(20, 0)], 4, 10, 100).bytes, [0, 4]);
//! // The only older one is protected: the needy one reclaims from itself.
//! assert_eq!(gifts(&needy, &[group(90, 0), group(20, 9)], 4, 10, 100).bytes, [0, 0]);
//! ```

use crate::memory::Protection;

/// The weight of a group that says none: twice the weight makes generations count as half as old.
pub const DEFAULT_WEIGHT: u32 = 100;

/// A generation is older than that of a needy group from this ratio of their ages on, a fraction.
const OLDER: (u128, u128) = (5, 4);

/// How far a group's protection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Above both: open to reclaim.
    Open,
    /// At or below `low`: spared while any group has unprotected memory.
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

    /// How well the next unit that the group uses would be protected.
    #[inline]
    pub const fn claim(&self) -> Standing {
        if self.usage < self.min {
            Standing::Min
        } else if self.usage < self.low {
            Standing::Low
        } else {
            Standing::Open
        }
    }

    /// Up to here reclaim spares the group: at `Open` both `min` and `low` hold, at `Low` only `min` does, and at `Min`
    /// nothing is taken at all.
    #[inline]
    pub const fn spared(&self, level: Standing) -> u64 {
        match level {
            Standing::Open if self.low > self.min => self.low,
            Standing::Open | Standing::Low => self.min,
            Standing::Min => u64::MAX,
        }
    }

    /// What the group uses beyond that.
    #[inline]
    pub const fn overage(&self, level: Standing) -> u64 {
        self.usage.saturating_sub(self.spared(level))
    }
}

/// What of a group's `setting` (its `min` or its `low`) protects it, below a parent whose own protection is `parent`.
///
/// `siblings` is the sum of what the parent's children use within their settings, this group's included. If that is
/// more than the parent has, each child gets a part in proportion to its own. With `recursive` children share what no
/// child claims, in proportion to what they use beyond their settings. All in one unit.
pub fn effective(usage: u64, parent_usage: u64, setting: u64, parent: u64, siblings: u64, recursive: bool) -> u64 {
    let own = usage.min(setting);
    if siblings > parent {
        return (u128::from(own) * u128::from(parent) / u128::from(siblings)) as u64;
    }
    if recursive && parent > siblings && parent_usage > siblings && usage > own {
        let spare = u128::from(parent - siblings) * u128::from(usage - own) / u128::from(parent_usage - siblings);
        return own + spare as u64;
    }
    own
}

/// Whether a generation was born longer ago than `min_ttl`, in any unit of time.
#[inline]
pub const fn has_outlived(birth: u64, min_ttl: u64, now: u64) -> bool {
    birth.saturating_add(min_ttl) < now
}

/// A group that may have to give, or needs memory.
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

    fn overage(&self, level: Standing) -> u64 {
        self.protection.overage(level).min(self.evictable)
    }
}

/// What groups give to a needy one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gifts {
    /// `Open`: unprotected memory is taken. `Low`: there is none, and memory within a `low` is taken.
    pub level: Standing,
    /// What each of the others gives, in the order of the others.
    pub bytes: Vec<u64>,
}

/// What each of `others` gives of the `wanted` to a needy group. All zero if the needy group has to reclaim from
/// itself. `min_ttl` and `now` are in the unit of the births.
pub fn gifts(needy: &Group, others: &[Group], wanted: u64, min_ttl: u64, now: u64) -> Gifts {
    let claim = needy.protection.claim();
    let has_open = |group: &Group| group.overage(Standing::Open) > 0;
    let level = if claim == Standing::Open || others.iter().any(has_open) { Standing::Open } else { Standing::Low };
    let own_age = needy.weighted_age(now);
    // Where the needy group's own memory is protected no better than what is taken, the older goes.
    let gives = |group: &Group| {
        let is_old = || has_outlived(group.birth, min_ttl, now) && is_older(group.weighted_age(now), own_age);
        group.overage(level) > 0 && (claim > level || is_old())
    };
    let oldest = others.iter().filter(|group| gives(group)).map(|group| group.weighted_age(now)).max();
    // Those that are about as old as the oldest give together.
    let part = |group: &Group| match oldest {
        Some(oldest) if gives(group) && !is_older(oldest, group.weighted_age(now)) => group.overage(level),
        _ => 0,
    };
    let mut left = wanted;
    let mut rest: u128 = others.iter().map(|group| u128::from(part(group))).sum();
    let bytes = others.iter().map(|group| {
        let overage = part(group);
        // Of what is left, in proportion to what is left of the overages: no unit is lost to rounding.
        let bytes = (u128::from(left) * u128::from(overage)).div_ceil(rest.max(1)).min(u128::from(overage)) as u64;
        rest -= u128::from(overage);
        left -= bytes.min(left);
        bytes
    });
    Gifts { level, bytes: bytes.collect() }
}

/// Whether the first age is more than the second by a quarter.
fn is_older(one: u128, other: u128) -> bool {
    one > other && one * OLDER.1 >= other * OLDER.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With an age at the moment 1000.
    fn group(usage: u64, min: u64, low: u64, age: u64) -> Group {
        let protection = Protection { usage, min, low };
        Group { protection, birth: 1000 - age, evictable: usage, weight: DEFAULT_WEIGHT }
    }

    fn given(needy: Group, others: &[Group], wanted: u64) -> Vec<u64> {
        gifts(&needy, others, wanted, 10, 1000).bytes
    }

    #[test]
    fn protections_hold_at_their_bounds() {
        let protection = |usage| Protection { usage, min: 10, low: 20 };
        let standing = |usage| protection(usage).standing();
        assert_eq!([10, 11, 20, 21].map(standing), [Standing::Min, Standing::Low, Standing::Low, Standing::Open]);
        let claim = |usage| protection(usage).claim();
        assert_eq!([9, 10, 19, 20].map(claim), [Standing::Min, Standing::Low, Standing::Low, Standing::Open]);
        let overage = |level| protection(25).overage(level);
        assert_eq!([Standing::Open, Standing::Low, Standing::Min].map(overage), [5, 15, 0]);
        assert_eq!(Protection { usage: 25, min: 20, low: 10 }.overage(Standing::Open), 5, "min protects more than low");
    }

    #[test]
    fn within_min_nothing_is_taken_under_any_conditions() {
        for needy in [group(0, 50, 0, 0), group(10, 0, 50, 0), group(10, 0, 0, 0)] {
            assert_eq!(given(needy, &[group(90, 90, 0, 900), group(90, 90, 900, 900)], 100), [0, 0]);
            assert_eq!(given(needy, &[group(95, 90, 0, 900)], 100), [5], "down to it");
        }
    }

    #[test]
    fn within_low_nothing_is_taken_while_any_group_has_unprotected_memory_young_or_old() {
        let cold = group(90, 0, 90, 900);
        // A needy one above its protection has some itself, however young it is.
        assert_eq!(given(group(90, 0, 0, 1), &[cold, group(90, 0, 0, 1)], 10), [0, 0]);
        assert_eq!(given(group(90, 0, 0, 1), &[cold], 10), [0]);
        assert_eq!(given(group(90, 0, 90, 1), &[cold], 10), [0], "its next unit is unprotected");
        // One within its protection takes unprotected memory, however young.
        assert_eq!(given(group(50, 0, 90, 500), &[cold, group(90, 0, 0, 1)], 10), [0, 10]);
        assert_eq!(given(group(50, 0, 90, 500), &[cold, group(95, 0, 90, 1)], 10), [0, 5], "no further than its low");
    }

    #[test]
    fn where_no_unprotected_memory_is_left_the_oldest_gives_of_its_low_the_needy_one_included() {
        let others = [group(90, 20, 90, 900), group(90, 0, 95, 100)];
        assert_eq!(given(group(50, 0, 90, 50), &others, 10), [10, 0]);
        assert_eq!(given(group(50, 0, 90, 50), &others, 100), [70, 0], "down to its min");
        assert_eq!(given(group(50, 0, 90, 800), &others, 10), [0, 0], "its own is as old");
        assert_eq!(given(group(50, 0, 90, 2), &[group(90, 0, 90, 9)], 10), [0], "a working set");
        // One within its own min takes at any age.
        assert_eq!(given(group(0, 50, 0, 0), &[group(90, 0, 90, 0)], 10), [10]);
    }

    #[test]
    fn above_protection_memory_is_taken_in_proportion_to_the_overage() {
        let others = [group(100, 0, 20, 500), group(40, 0, 20, 500), group(100, 0, 0, 300)];
        assert_eq!(given(group(10, 0, 0, 20), &others, 50), [40, 10, 0], "the third is younger");
        assert_eq!(given(group(10, 0, 0, 20), &others, 1000), [80, 20, 0]);
        assert_eq!(given(group(10, 0, 0, 20), &others, 3).iter().sum::<u64>(), 3, "nothing is lost to rounding");
    }

    #[test]
    fn overcommitted_protection_is_shared_in_proportion_to_the_usage_within_it() {
        let share = |usage, setting| effective(usage, 200, setting, 100, 200, false);
        assert_eq!([share(150, 150), share(50, 60)], [75, 25]);
        assert_eq!(effective(300, 400, 0, 100, 0, true), 75, "what no child claims goes by usage");
        assert_eq!(effective(u64::MAX, u64::MAX, u64::MAX, 10, u64::MAX, false), 10);
    }

    #[test]
    fn weights_make_generations_younger_and_what_was_just_born_is_a_working_set() {
        let heavy = Group { weight: 400, ..group(9, 0, 0, 400) };
        assert_eq!(given(group(9, 0, 0, 20), &[heavy, group(9, 0, 0, 200)], 5), [0, 5], "400 old at a quarter is 100");
        assert_eq!(Group { weight: 0, ..heavy }.weighted_age(1000), 40_000);
        assert!(has_outlived(989, 10, 1000) && !has_outlived(990, 10, 1000) && !has_outlived(u64::MAX, 1, 5));
        assert_eq!(given(group(9, 0, 0, 0), &[group(9, 0, 0, 10)], 5), [0]);
        let empty = Group { evictable: 0, ..group(9, 0, 0, 900) };
        assert_eq!(given(group(9, 0, 0, 0), &[empty], 5), [0]);
    }
}
