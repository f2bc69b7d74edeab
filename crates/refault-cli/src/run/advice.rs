//! The advice: with how much memory a program would hardly bring anything back.
//!
//! A refault says how much more memory would have kept its page (its distance, counted by the program's processes). The
//! budget and the distance that 99 of 100 do not exceed is the advice, over the last seconds of a program that runs or
//! over a whole run. Cost: a copy of a few hundred counts for each look.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use refault_paging::PAGE;
use refault_paging::figures::TimeCounts;

/// Refault distances of this long decide the advice.
const WINDOW: Duration = Duration::from_secs(10);
/// Looks closer together than this are one, so that a frequent look needs no more memory.
const MIN_APART: Duration = Duration::from_millis(500);
/// Refaults of followed pages below which there is no advice.
const MIN_FOLLOWED: u64 = 4;

/// What the budget must hold beside the program's pages: what is kept of each page, up to 96 bytes, …
const OWN_PART: u64 = 42;
/// … and what a process's agent takes in any case.
const OWN_BYTES: u64 = 1 << 20;

/// The budget at which 99 of 100 of these refaults would not have happened: the budget and their distance, but never
/// more than the program has ever had and what is kept of that. `None`: nothing, or hardly anything, came back.
pub(super) fn would_stop_refaulting_at(budget: u64, everything: u64, distances: &TimeCounts) -> Option<u64> {
    (distances.count() >= MIN_FOLLOWED).then(|| {
        let missing = distances.quantile(0.99) * PAGE as u64;
        (budget + missing).min((everything + everything / OWN_PART + OWN_BYTES).max(budget))
    })
}

/// What came back within the last seconds.
#[derive(Default)]
pub(super) struct Recent {
    /// Pages brought back and distances at earlier moments, oldest first.
    earlier: VecDeque<(Instant, u64, TimeCounts)>,
    /// The most bytes that it has had.
    everything: u64,
}

/// What [`Recent::look`] finds.
pub(super) struct CameBack {
    /// Pages per second.
    pub per_second: f64,
    /// Refaults whose distance is known.
    pub followed: u64,
    /// The advice.
    pub would_stop_at: Option<u64>,
}

impl Recent {
    /// A look at a program that has brought back so many pages so far, from these distances, has so many bytes, in
    /// memory or out of it, and may use `budget`.
    pub(super) fn look(&mut self, refaults: u64, distances: TimeCounts, has: u64, budget: u64) -> CameBack {
        let now = Instant::now();
        while self.earlier.len() > 1 && now - self.earlier[1].0 >= WINDOW {
            self.earlier.pop_front();
        }
        let (per_second, window) = match self.earlier.front() {
            Some((at, before, counts)) => {
                let seconds = (now - *at).as_secs_f64().max(0.001);
                (refaults.saturating_sub(*before) as f64 / seconds, distances.since(counts))
            }
            None => (0.0, distances.clone()),
        };
        self.everything = self.everything.max(has);
        if self.earlier.back().is_none_or(|(last, ..)| now - *last >= MIN_APART) {
            self.earlier.push_back((now, refaults, distances));
        }
        CameBack {
            per_second,
            followed: window.count(),
            would_stop_at: would_stop_refaulting_at(budget, self.everything, &window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refault_paging::figures::Times;

    #[test]
    fn the_advice_is_the_budget_and_what_was_missing_but_no_more_than_the_program_has() {
        let distances = Times::default();
        let mut recent = Recent::default();
        assert_eq!(recent.look(0, distances.counts(), 100 << 20, 64 << 20).would_stop_at, None);
        (0..1000).for_each(|_| distances.count(2048));
        let came = recent.look(1000, distances.counts(), 100 << 20, 64 << 20);
        assert_eq!(came.followed, 1000);
        let advice = came.would_stop_at.expect("a thousand pages came back");
        // Eight MiB were missing; counts are by buckets, a few per cent wide.
        assert!((72 << 20..=80 << 20).contains(&advice), "{advice}");
        (0..100_000).for_each(|_| distances.count(1 << 20));
        let came = recent.look(101_000, distances.counts(), 100 << 20, 64 << 20);
        assert_eq!(came.would_stop_at, Some((100 << 20) + (100 << 20) / OWN_PART + OWN_BYTES));
    }
}
