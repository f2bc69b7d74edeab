//! The advice: with how much memory a program would hardly bring anything back.
//!
//! A refault says in how much memory its page would have stayed: the budget of that moment, and a page for each that
//! was stored between its storing and its return. The program's processes count these, for one page in 32. What 99 of
//! 100 refaults do not exceed is the advice: of the whole run in its totals, of the last seconds while it is watched.
//!
//! Its error: sizes are rounded up by a 32nd at most; a policy that evicts the same pages again and again makes it too
//! large, up to its bound. `scripts/dev/advice.py` compares it with bisection. Invariant: it never exceeds what the
//! program has had, with the tool's own memory. Where refaults are there but too few were followed, it says so. Cost: a
//! copy of a thousand counts for each look.

pub(crate) mod curve;
pub(crate) mod thrash;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use refault_core::statistics;
use refault_lab::size::bytes_text;
use refault_paging::PAGE;
use refault_paging::figures::SizeCounts;
use serde::{Deserialize, Serialize};

use super::totals::Totals;

/// Refaults within this last time decide the advice while a program is watched.
const WINDOW: Duration = Duration::from_secs(10);
/// Looks closer together than this are one, so that a frequent look needs no more memory.
const MIN_APART: Duration = Duration::from_millis(500);
/// Fewer refaults are hardly any: the budget is enough.
pub(super) const MIN_REFAULTS: u64 = 32;
/// With fewer refaults of followed pages nothing can be told.
const MIN_FOLLOWED: u64 = 4;

/// What refaults say of a budget.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Hardly anything came back.
    #[default]
    #[serde(rename = "enough")]
    Enough,
    /// Something came back, too little to judge by.
    #[serde(rename = "cannot be told")]
    CannotBeTold,
    /// With the bytes that stand beside this, hardly anything would have come back.
    #[serde(rename = "more")]
    More,
}

impl Advice {
    /// The advice, and its bytes, by refaults of which some were followed, for a program that has had `most` bytes.
    pub(super) fn of(refaults: u64, needed: &SizeCounts, most: u64) -> (Advice, Option<u64>) {
        if refaults < MIN_REFAULTS {
            return (Advice::Enough, None);
        }
        if needed.count() < MIN_FOLLOWED {
            return (Advice::CannotBeTold, None);
        }
        (Advice::More, Some((needed.quantile(0.99) * PAGE as u64).min(most)))
    }

    /// In words, with its bytes.
    pub fn text(self, bytes: Option<u64>) -> String {
        let word = statistics::ADVICE_BYTES.word;
        match (self, bytes) {
            (Advice::Enough, _) => format!("{word}: the budget is enough"),
            (Advice::More, Some(bytes)) => {
                format!("{word}: {}, with which hardly any page comes back", bytes_text(bytes))
            }
            _ => format!("{word}: cannot be told, too few pages came back"),
        }
    }
}

/// What was counted at earlier moments, to tell what came within the last seconds.
pub(super) struct Window<T> {
    /// Oldest first.
    earlier: VecDeque<(Instant, T)>,
}

impl<T> Default for Window<T> {
    fn default() -> Window<T> {
        Window { earlier: VecDeque::new() }
    }
}

impl<T: Clone> Window<T> {
    /// Takes what is counted now; answers with what was when the window began, and how many seconds ago that is. Nothing
    /// at the first look.
    pub(super) fn look(&mut self, counted: T) -> Option<(f64, T)> {
        let now = Instant::now();
        while self.earlier.len() > 1 && now - self.earlier[1].0 >= WINDOW {
            self.earlier.pop_front();
        }
        let began = self.earlier.front().map(|(at, then)| ((now - *at).as_secs_f64().max(0.001), then.clone()));
        if self.earlier.back().is_none_or(|(last, _)| now - *last >= MIN_APART) {
            self.earlier.push_back((now, counted));
        }
        began
    }
}

/// The advice of the last seconds.
#[derive(Default)]
pub(super) struct Recent(Window<(u64, SizeCounts)>);

impl Recent {
    /// The totals with the advice of the last seconds instead of that of the whole run.
    pub(super) fn look(&mut self, totals: &Totals, needed: SizeCounts) -> Totals {
        let (refaults, counts) = match self.0.look((totals.refaults, needed.clone())) {
            Some((_, (before, counts))) => (totals.refaults.saturating_sub(before), needed.since(&counts)),
            None => (totals.refaults, needed),
        };
        totals.advised(refaults, &counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refault_paging::figures::Sizes;

    const MAX_USED: u64 = 100 << 20;

    #[test]
    fn the_advice_is_what_99_of_100_refaults_needed_but_no_more_than_the_program_has_had() {
        let needed = Sizes::default();
        // 64 MiB and eight more.
        (0..990).for_each(|_| needed.count((72 << 20) / PAGE as u64));
        (0..10).for_each(|_| needed.count(1 << 30));
        let (advice, bytes) = Advice::of(32_000, &needed.counts(), MAX_USED);
        let bytes = bytes.expect("a thousand were followed");
        assert!(advice == Advice::More && (72 << 20..=75 << 20).contains(&bytes), "{bytes}");
        assert_eq!(advice.text(Some(72 << 20)), "advice: 72 MiB, with which hardly any page comes back");
        (0..90).for_each(|_| needed.count(1 << 30));
        assert_eq!(Advice::of(32_000, &needed.counts(), MAX_USED), (Advice::More, Some(MAX_USED)));
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        let needed = Sizes::default();
        (0..3).for_each(|_| needed.count(1000));
        assert_eq!(Advice::of(31, &needed.counts(), MAX_USED), (Advice::Enough, None));
        assert_eq!(Advice::of(32, &needed.counts(), MAX_USED), (Advice::CannotBeTold, None));
        assert_eq!(Advice::CannotBeTold.text(None), "advice: cannot be told, too few pages came back");
    }

    #[test]
    fn the_last_seconds_do_not_know_what_came_before() {
        let needed = Sizes::default();
        (0..1000).for_each(|_| needed.count(5000));
        let mut recent = Recent::default();
        let totals = |refaults| Totals { refaults, peak_with_stored_bytes: MAX_USED, ..Totals::default() };
        let bytes = |totals: Totals| totals.would_stop_refaulting_at_bytes.expect("advice");
        assert!(bytes(recent.look(&totals(1000), needed.counts())) >= 5000 << 12);
        (0..40).for_each(|_| needed.count(100));
        let lately = recent.look(&totals(1040), needed.counts());
        assert_eq!(lately.followed_refaults, 40);
        assert!(bytes(lately) < 110 << 12);
    }
}
