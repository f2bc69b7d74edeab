//! The controller that quotas and intervals share (spec: damos §7.3).
//!
//! Kernel: `damon_feed_loop_next_input` in `mm/damon/core.c`.
//!
//! ```
//! use refault_core::monitor::feedback::feed;
//!
//! let aim = 10_000;
//! assert!(feed(100_000, aim / 2) > 100_000); // half of the goal: more
//! assert!(feed(100_000, aim * 2) < 100_000); // twice the goal: less
//! ```

/// A score of exactly the goal, and the smallest value the controller gives.
pub const GOAL: u64 = 10_000;

/// The next value of a quantity whose last value led to `score` (10 000 = goal met): proportional, at most doubled,
/// never below 10 000.
pub fn feed(last: u64, score: u64) -> u64 {
    if score == GOAL {
        return last;
    }
    if score >= 2 * GOAL {
        return GOAL;
    }
    let distance = score.abs_diff(GOAL);
    let change = last.checked_mul(distance).map_or(last / GOAL * distance, |product| product / GOAL);
    if score > GOAL { last.saturating_sub(change).max(GOAL) } else { last.saturating_add(change) }
}

#[cfg(test)]
mod tests {
    use super::feed;

    #[test]
    fn worked_values() {
        assert_eq!(feed(100_000, 8000), 120_000);
        assert_eq!(feed(100_000, 15_000), 50_000);
        assert_eq!(feed(100_000, 20_000), 10_000);
        assert_eq!(feed(100_000, 1234), 187_660);
        assert_eq!(feed(100_000, 10_000), 100_000);
        assert_eq!(feed(u64::MAX, 0), u64::MAX);
        assert_eq!(feed(10_000, 19_999), 10_000);
    }
}
