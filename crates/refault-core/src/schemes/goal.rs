//! What a self-tuning quota aims at (spec: damos §7.3).
//!
//! Kernel: `damos_quota_score`, `damos_set_quota_goal_current_value` in `mm/damon/core.c`.

use super::actor::SchemeActor;
use crate::monitor::feedback::{GOAL, feed};

/// What is measured. Shares are in 1/10 000.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// A value the user writes.
    UserInput,
    /// Time in µs per window in which some task waited for memory.
    SomeMemPsiUs,
    /// Used share of a node's memory.
    NodeMemUsedBp {
        /// The node.
        node: u32,
    },
    /// Free share of a node's memory.
    NodeMemFreeBp {
        /// The node.
        node: u32,
    },
    /// Share of a node's memory used by a control group.
    NodeMemcgUsedBp {
        /// The node.
        node: u32,
        /// The group.
        memcg: u32,
    },
    /// Share of a node's memory not used by a control group.
    NodeMemcgFreeBp {
        /// The node.
        node: u32,
        /// The group.
        memcg: u32,
    },
    /// Active share of the LRU lists.
    ActiveMemBp,
    /// Inactive share of the LRU lists.
    InactiveMemBp,
    /// Share of the memory fitting the scheme's pattern that lies on a node.
    NodeEligibleMemBp {
        /// The node.
        node: u32,
    },
}

/// Wanted and current value of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// What is measured.
    pub metric: Metric,
    /// The wanted value; above 0.
    pub target_value: u64,
    /// The last value; for [`Metric::UserInput`] what the user wrote.
    pub current_value: u64,
    /// The stall total at the last reading.
    last_psi_us: Option<u64>,
}

impl Goal {
    /// A goal.
    pub fn new(metric: Metric, target_value: u64, current_value: u64) -> Goal {
        Goal { metric, target_value, current_value, last_psi_us: None }
    }

    /// Reads the metric and returns how far it is: 10 000 when the goal is met. `eligible` answers for
    /// [`Metric::NodeEligibleMemBp`].
    pub(crate) fn score<A: SchemeActor>(&mut self, actor: &A, eligible: impl FnOnce(u32) -> u64) -> u64 {
        let share =
            |part: u64, whole: u64| (u128::from(part) * 10_000).checked_div(u128::from(whole)).unwrap_or(0) as u64;
        self.current_value = match self.metric {
            Metric::UserInput => self.current_value,
            Metric::SomeMemPsiUs => {
                let total = actor.psi_some_us();
                let before = self.last_psi_us.replace(total);
                before.map_or(0, |before| total.saturating_sub(before))
            }
            Metric::NodeMemUsedBp { node } => {
                actor.node_memory(node).map_or(0, |(total, free)| share(total.saturating_sub(free), total))
            }
            Metric::NodeMemFreeBp { node } => {
                actor.node_memory(node).map_or(10_000, |(total, free)| share(free, total))
            }
            Metric::NodeMemcgUsedBp { node, memcg } => {
                let pages = actor.node_memory(node).zip(actor.node_memcg_pages(node, memcg));
                pages.map_or(0, |((total, _), used)| share(used, total))
            }
            Metric::NodeMemcgFreeBp { node, memcg } => {
                let pages = actor.node_memory(node).zip(actor.node_memcg_pages(node, memcg));
                pages.map_or(10_000, |((total, _), used)| share(total.saturating_sub(used), total))
            }
            Metric::ActiveMemBp => actor.active_inactive().map_or(0, |[active, rest]| share(active, active + rest)),
            Metric::InactiveMemBp => actor.active_inactive().map_or(0, |[active, rest]| share(rest, active + rest)),
            Metric::NodeEligibleMemBp { node } => eligible(node),
        };
        let score = u128::from(self.current_value) * u128::from(GOAL) / u128::from(self.target_value.max(1));
        u64::try_from(score).unwrap_or(u64::MAX)
    }
}

/// How a quota follows its goals' score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuner {
    /// Proportionally.
    #[default]
    Consist,
    /// All or nothing.
    Temporal,
}

impl Tuner {
    /// The next goal size in 1/10 000 byte; `size` is the user's byte limit, 0 for none.
    pub(crate) fn next(self, last: u64, score: u64, size: u64) -> u64 {
        match self {
            Tuner::Consist => feed(last.max(GOAL), score),
            Tuner::Temporal if score >= GOAL => 0,
            Tuner::Temporal if size == 0 => u64::MAX,
            Tuner::Temporal => size.saturating_mul(10_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lists;
    impl SchemeActor for Lists {
        fn active_inactive(&self) -> Option<[u64; 2]> {
            Some([30, 70])
        }
        fn node_memory(&self, node: u32) -> Option<(u64, u64)> {
            (node == 0).then_some((1000, 250))
        }
        fn psi_some_us(&self) -> u64 {
            620
        }
    }

    #[test]
    fn each_metric_is_read_in_its_unit() {
        let score = |metric, target| Goal::new(metric, target, 5000).score(&Lists, |_| 4321);
        assert_eq!(score(Metric::UserInput, 10_000), 5000);
        assert_eq!(score(Metric::ActiveMemBp, 6000), 5000);
        assert_eq!(score(Metric::InactiveMemBp, 7000), 10_000);
        assert_eq!(score(Metric::NodeMemFreeBp { node: 0 }, 2500), 10_000);
        assert_eq!(score(Metric::NodeMemUsedBp { node: 0 }, 7500), 10_000);
        assert_eq!(score(Metric::NodeMemFreeBp { node: 9 }, 10_000), 10_000);
        assert_eq!(score(Metric::NodeMemUsedBp { node: 9 }, 10_000), 0);
        assert_eq!(score(Metric::NodeEligibleMemBp { node: 0 }, 10_000), 4321);
        let mut pressure = Goal::new(Metric::SomeMemPsiUs, 500, 0);
        assert_eq!(pressure.score(&Lists, |_| 0), 0, "the first reading has no start");
        pressure.last_psi_us = Some(0);
        assert_eq!(pressure.score(&Lists, |_| 0), 12_400);
    }

    #[test]
    fn tuners_differ_in_patience() {
        let mut size = 0;
        let grown: Vec<u64> = (0..3)
            .map(|_| {
                size = Tuner::Consist.next(size, 0, 0);
                size
            })
            .collect();
        assert_eq!(grown, [20_000, 40_000, 80_000]);
        assert_eq!(Tuner::Temporal.next(0, 9999, 4096), 40_960_000);
        assert_eq!(Tuner::Temporal.next(0, 9999, 0), u64::MAX);
        assert_eq!(Tuner::Temporal.next(7, 10_000, 4096), 0);
    }
}
