//! How the processes of a tree share a budget: by need, as far as one can be seen.
//!
//! A process that faults and finds no room says how much it would like. Memory is then poured into all processes alike,
//! each up to what it needs, until the budget is used up. The *level* is how high that goes. A process with more than
//! the level gives as much as others lack of it. What a process needs is what it has, as long as it faults, and less
//! and less of that once it does not. So one that sleeps, or has more than it touches, gives way to those that work. If
//! it does touch what it gave, it faults, and needs it again.
//!
//! One process may come first ([`crate::tree::token`]): its need is poured first. Each other process that lacks memory
//! keeps no more than the memory that holds all its pages compressed. So none of its pages has to go to a file for
//! another process's sake.
//!
//! Invariants: what all may have together is never more than the budget, whatever they need; a process that needs less
//! than the level may have what it needs, unless another comes first and it lacks memory itself. Cost: a few passes
//! over the living processes, no memory.
//! Source: max-min fairness (Bertsekas and Gallager, *Data Networks*, 6.5.2).
//!
//! ```
//! use refault_paging::tree::share::{Need, allowed, level};
//!
//! // Of 1000 pages one process needs few; two others need more than there is, and one of them has nearly all.
//! let [few, most, starved] = [(100, 100), (800, 900), (100, 900)].map(|(charged, needed)| Need { charged, needed, least: needed });
//! assert_eq!(level(1000, [few, most, starved].into_iter()), 450);
//! assert_eq!(allowed(1000, most, [few, starved].into_iter()), 450);
//! ```

/// Nanoseconds in which the need of a process that does not fault halves.
pub const HALVED_EVERY: u64 = 100_000_000;
/// Nanoseconds after which the tree forgets what a process has said that it would like.
pub const CLAIMS_LAST: u64 = 100_000_000;

/// What one process has, and what it needs. In pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Pages that it has.
    pub charged: i64,
    /// Pages that it needs.
    pub needed: i64,
    /// Pages that are left to it, of what it needs, if another comes first: all of it, if it lacks nothing.
    pub least: i64,
}

impl Need {
    /// The need of a process that has `charged` pages, faulted `idle` nanoseconds ago, and said `said` nanoseconds ago
    /// that it would like to have `wanted`. In `tight` pages it can hold all that it has compressed.
    pub fn of(charged: i64, idle: u64, wanted: i64, said: u64, tight: i64) -> Need {
        let left = charged.max(0) >> (idle / HALVED_EVERY).min(62);
        let lacks = said < CLAIMS_LAST;
        let needed = if lacks { left.max(wanted) } else { left };
        Need { charged: charged.max(0), needed, least: if lacks { needed.min(tight) } else { needed } }
    }
}

/// How many pages each process may have, each at most what it needs, when `limit` are shared alike.
pub fn level(limit: i64, needs: impl Iterator<Item = Need> + Clone) -> i64 {
    let many = needs.clone().count() as i64;
    let mut level = limit / many.max(1);
    loop {
        let modest = needs.clone().filter(|need| need.needed <= level);
        let (used, satisfied) = modest.fold((0, 0), |(used, count), need| (used + need.needed, count + 1));
        if satisfied >= many {
            return limit;
        }
        let higher = (limit - used) / (many - satisfied);
        if higher <= level {
            return level;
        }
        level = higher;
    }
}

/// What one process may have at most now: what the others do not have and do not lack, and its own part of the level in
/// any case.
pub fn allowed(limit: i64, own: Need, others: impl Iterator<Item = Need> + Clone) -> i64 {
    let level = level(limit, others.clone().chain(core::iter::once(own)));
    let taken: i64 = others.map(|other| other.charged.max(other.needed.min(level))).sum();
    (limit - taken).max(own.needed.min(level))
}

/// How a budget is divided while one process comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// What the first may have: what it needs, or all that the least of the others leave.
    first: i64,
    /// The level if no process came first. No process keeps more than that for being among the others.
    even: i64,
    /// The level of what the first leaves.
    level: i64,
}

impl Division {
    /// Divides `limit` between the first and the others.
    pub fn new(limit: i64, first: Need, others: impl Iterator<Item = Need> + Clone) -> Division {
        let even = level(limit, others.clone().chain(core::iter::once(first)));
        let mut division = Division { first: 0, even, level: 0 };
        let all_of_others = |division: &Division| others.clone().map(|other| division.of_other(other)).sum::<i64>();
        division.first = first.needed.min(limit - all_of_others(&division));
        if division.first < first.needed {
            // It has all that the least of the others leave.
            return division;
        }
        let (mut low, mut high) = (0, limit + 1);
        while high - low > 1 {
            division.level = low.midpoint(high);
            if all_of_others(&division) <= limit - division.first {
                low = division.level;
            } else {
                high = division.level;
            }
        }
        Division { level: low, ..division }
    }

    /// What the first may have.
    pub fn of_first(&self) -> i64 {
        self.first
    }

    /// What one of the others may have.
    pub fn of_other(&self, other: Need) -> i64 {
        other.needed.min(self.level.max(other.least.min(self.even)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn need(charged: i64, needed: i64) -> Need {
        Need { charged, needed, least: needed }
    }

    #[test]
    fn two_that_want_everything_have_half_each() {
        let (full, starved) = (need(900, 1100), need(100, 1100));
        assert_eq!(level(1000, [full, starved].into_iter()), 500);
        assert_eq!(allowed(1000, full, [starved].into_iter()), 500);
        // What the other has is not there yet, but this one's part is: it waits for it.
        assert_eq!(allowed(1000, starved, [full].into_iter()), 500);
    }

    #[test]
    fn what_is_not_needed_others_have() {
        let (asleep, works) = (need(900, 0), need(100, 164));
        assert_eq!(allowed(1000, asleep, [works].into_iter()), 836);
        assert_eq!(allowed(1000, works, [asleep].into_iter()), 164);
        // The others take from it only what they want.
        assert_eq!(allowed(1000, asleep, [need(50, 50)].into_iter()), 950);
    }

    #[test]
    fn many_that_need_little_leave_the_rest_to_those_that_need_much() {
        let small = [need(10, 10); 20];
        let needs = small.into_iter().chain([need(700, 2000), need(100, 2000)]);
        assert_eq!(level(1000, needs), 400);
    }

    #[test]
    fn needs_fade() {
        assert_eq!(Need::of(800, 0, 0, u64::MAX, 1), need(800, 800));
        assert_eq!(Need::of(800, 3 * HALVED_EVERY, 0, u64::MAX, 1), need(800, 100));
        assert_eq!(Need::of(800, 3 * HALVED_EVERY, 900, 0, 1000), need(800, 900));
        assert_eq!(Need::of(800, u64::MAX, 900, CLAIMS_LAST, 1), need(800, 0));
    }

    #[test]
    fn who_comes_first_has_what_it_needs_and_who_lacks_keeps_what_it_holds_compressed() {
        let first = need(300, 700);
        let lacks = Need::of(300, 0, 400, 0, 100);
        let content = need(150, 150);
        let division = Division::new(1000, first, [lacks, content].into_iter());
        assert_eq!((division.of_first(), division.of_other(lacks), division.of_other(content)), (700, 150, 150));
        // It would have more still, and what the others keep is not touched.
        let division = Division::new(1000, need(300, 5000), [lacks, content].into_iter());
        assert_eq!((division.of_first(), division.of_other(lacks), division.of_other(content)), (750, 100, 150));
        // What does not compress stays with those who have it, up to an even part.
        let solid = Need::of(300, 0, 600, 0, 900);
        let division = Division::new(1000, need(300, 5000), [solid].into_iter());
        assert_eq!((division.of_first(), division.of_other(solid)), (500, 500));
    }

    proptest! {
        #[test]
        fn what_all_may_have_is_within_the_limit(
            limit in 1i64..100_000,
            pairs in proptest::collection::vec((0i64..50_000, 0i64..200_000), 1..12),
        ) {
            let needs: Vec<Need> = pairs.into_iter().map(|(charged, needed)| need(charged, needed)).collect();
            let level = level(limit, needs.iter().copied());
            let sum: i64 = needs.iter().map(|need| need.needed.min(level)).sum();
            prop_assert!(sum <= limit);
            // And no page of it is left while a process lacks one, but for what does not divide.
            let lacking = needs.iter().filter(|need| need.needed > level).count() as i64;
            prop_assert!(lacking == 0 || limit - sum < lacking);
        }

        #[test]
        fn whoever_comes_first_all_is_within_the_limit_and_nobody_has_less_than_its_least(
            limit in 1i64..100_000,
            wants in 0i64..200_000,
            parts in proptest::collection::vec((0i64..50_000, 0i64..50_000), 0..12),
        ) {
            let others: Vec<Need> =
                parts.into_iter().map(|(least, more)| Need { charged: 0, needed: least + more, least }).collect();
            let first = need(0, wants);
            let even = level(limit, others.iter().copied().chain([first]));
            let division = Division::new(limit, first, others.iter().copied());
            prop_assert!(division.of_first() >= wants.min(even));
            let mut sum = division.of_first();
            for other in &others {
                let part = division.of_other(*other);
                prop_assert!((other.least.min(even)..=other.needed).contains(&part));
                sum += part;
            }
            prop_assert!(sum <= limit);
            // And no page of it is left while a process lacks one, but for what does not divide.
            let lack = |need: &&Need| division.of_other(**need) < need.needed;
            let lacking = others.iter().filter(lack).count() as i64 + i64::from(division.of_first() < wants);
            prop_assert!(lacking == 0 || limit - sum < lacking.max(1) + others.len() as i64);
        }

        #[test]
        fn giving_down_to_what_is_allowed_makes_room_for_what_others_lack(
            limit in 100i64..100_000,
            parts in proptest::collection::vec((1i64..100, 0i64..200_000), 2..12),
        ) {
            // All of the limit is charged.
            let whole: i64 = parts.iter().map(|(part, _)| part).sum();
            let mut needs: Vec<Need> =
                parts.iter().map(|(part, needed)| need(limit * part / whole, *needed)).collect();
            let level = level(limit, needs.iter().copied());
            for index in 0..needs.len() {
                let others = needs.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, need)| *need);
                let may = allowed(limit, needs[index], others.collect::<Vec<_>>().into_iter());
                prop_assert!(may >= needs[index].needed.min(level));
                needs[index].charged = needs[index].charged.min(may);
            }
            let charged: i64 = needs.iter().map(|need| need.charged).sum();
            let lacked: i64 = needs.iter().map(|need| (need.needed.min(level) - need.charged).max(0)).sum();
            prop_assert!(charged + lacked <= limit, "{charged} {lacked} {limit}");
        }
    }
}
