//! Says at once that a budget is far too small, how slow the program runs, and which budget would make it how fast.
//!
//! A program *thrashes* if for some seconds its threads wait most of the time for pages that had been there. What the
//! refaults of that time needed says what a larger budget would bring ([`super`]). With `--grow` the budget is
//! raised step by step instead, up to a bound.
//!
//! Cost: a copy of a thousand counts twice per second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use refault_lab::size::bytes_text;
use refault_paging::PAGE;
use refault_paging::figures::SizeCounts;

/// How long a program is looked at before it is said to thrash.
const WINDOW: Duration = Duration::from_secs(3);
const MIN_APART: Duration = Duration::from_millis(500);
/// Share of the time that threads wait, and refaults per second, from which on it thrashes.
const MIN_WAITING: f64 = 0.8;
const MIN_REFAULTS_PER_SECOND: f64 = 100.0;
/// A share that is not exceeded: what is measured is no closer.
const MAX_WAITING: f64 = 0.998;
/// Steps of `--grow`: a quarter more at least, twice as much at most.
const MIN_STEP: f64 = 1.25;
const MAX_STEP: f64 = 2.0;

/// What a run has counted at a moment.
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// Nanoseconds in which threads waited for pages that had been there.
    pub(crate) waited_ns: u64,
    pub(crate) refaults: u64,
    /// The sizes with which refaults would not have happened, as far as they are known.
    pub(crate) needed: SizeCounts,
}

/// What is to be said and done.
#[derive(Debug, PartialEq)]
pub(crate) struct Thrashing {
    pub(crate) line: String,
    /// The budget from now on, in bytes.
    pub(crate) budget: Option<u64>,
}

/// Looks at a run.
pub(crate) struct Thrash {
    grow: Option<u64>,
    /// Oldest first, none before the budget was raised by a step.
    earlier: VecDeque<Seen>,
    budget: u64,
    /// Whether the budget can be raised by `--grow`: not where a pool gives it.
    may_grow: bool,
    is_said: bool,
}

impl Thrash {
    /// With the bound of `--grow`, in bytes.
    pub(crate) fn new(grow: Option<u64>) -> Thrash {
        Thrash { grow, earlier: VecDeque::new(), budget: 0, may_grow: true, is_said: false }
    }

    /// Under a budget that a pool gives.
    pub(crate) fn in_pool(mut self) -> Thrash {
        self.may_grow = false;
        self
    }

    /// Whether a look is due.
    pub(crate) fn is_due(&self) -> bool {
        !self.is_said && self.earlier.back().is_none_or(|last| last.at.elapsed() >= MIN_APART)
    }

    /// Looks at a run under a budget, whose processes have had `most` bytes. The answer is given once, or once for each
    /// step of the budget.
    pub(crate) fn look(&mut self, seen: Seen, budget: u64, most: u64) -> Option<Thrashing> {
        if self.is_said || self.earlier.back().is_some_and(|last| seen.at - last.at < MIN_APART) {
            return None;
        }
        // What came before says nothing of a much larger budget. A pool changes one a little all the time.
        let before = std::mem::replace(&mut self.budget, budget);
        if budget as f64 >= before as f64 * MIN_STEP {
            self.earlier.clear();
        }
        while self.earlier.len() > 1 && seen.at - self.earlier[1].at >= WINDOW {
            self.earlier.pop_front();
        }
        let began = self.earlier.front().filter(|first| seen.at - first.at >= WINDOW);
        let verdict = began.and_then(|began| self.judge(began, &seen, budget, most));
        self.earlier.push_back(seen);
        if let Some(verdict) = &verdict {
            self.earlier.clear();
            self.is_said = verdict.budget.is_none();
        }
        verdict
    }

    fn judge(&self, began: &Seen, now: &Seen, budget: u64, most: u64) -> Option<Thrashing> {
        let seconds = (now.at - began.at).as_secs_f64();
        let waiting = now.waited_ns.saturating_sub(began.waited_ns) as f64 / 1e9 / seconds;
        let refaults = now.refaults.saturating_sub(began.refaults) as f64 / seconds;
        // A budget that is as large as all that the program has had is not what it waits for.
        if waiting < MIN_WAITING || refaults < MIN_REFAULTS_PER_SECOND || most <= budget {
            return None;
        }
        let waiting = waiting.min(MAX_WAITING);
        let needed = now.needed.since(&began.needed);
        let size = |share: f64| match needed.count() {
            0 => most,
            _ => (needed.quantile(share) * PAGE as u64).min(most),
        };
        let times = |share: f64| times_text(1.0 / (1.0 - waiting * share));
        let state = format!(
            "the budget of {} is far too small: for {seconds:.0} s {:.0} % of the time is waiting for pages, {} slower than with enough",
            bytes_text(budget),
            waiting * 100.0,
            times(1.0),
        );
        let raised = self.grow.map(|grow| {
            let step = |times: f64| (budget as f64 * times) as u64;
            size(0.5).clamp(step(MIN_STEP), step(MAX_STEP)).min(grow)
        });
        let raised = raised.filter(|raised| *raised > budget);
        let line = match (raised, self.grow) {
            (Some(raised), _) => format!("{state}; raised to {}", bytes_text(raised)),
            (None, Some(_)) => format!("{state}; --grow allows for no more"),
            (None, None) => {
                // Of two sizes that are one the share that the larger stands for counts.
                let sizes = [(size(0.5), 0.5), (size(0.99), 0.99)];
                let is_alone = |bytes: u64| bytes_text(bytes) == bytes_text(sizes[1].0);
                let larger =
                    sizes.iter().filter(|(bytes, share)| *bytes > budget && (*share > 0.5 || !is_alone(*bytes)));
                let each: String = larger
                    .map(|(bytes, share)| format!("; {} would make it {} as fast", bytes_text(*bytes), times(*share)))
                    .collect();
                let remedy =
                    if self.may_grow { "--grow MAX raises it step by step" } else { "the pool gives no more now" };
                format!("{state}{each}; {remedy}")
            }
        };
        Some(Thrashing { line, budget: raised })
    }
}

fn times_text(times: f64) -> String {
    if times < 10.0 { format!("{times:.1} times") } else { format!("{times:.0} times") }
}

#[cfg(test)]
mod tests {
    use refault_paging::figures::Sizes;

    use super::*;

    const BUDGET: u64 = 32 << 20;
    const MAX_SIZE: u64 = 256 << 20;

    /// Looks every half second for this many seconds at a run that waits for this much of the time.
    fn looked(thrash: &mut Thrash, seconds: u64, waiting: f64, sizes: &Sizes) -> Vec<Thrashing> {
        let begun = Instant::now();
        let looks = (0..=seconds * 2).filter_map(|half| {
            let passed = half as f64 / 2.0;
            // Twenty followed refaults that would not have happened with 64 MiB.
            (0..20).for_each(|_| sizes.count((64 << 20) / PAGE as u64));
            let seen = Seen {
                at: begun + Duration::from_secs_f64(passed),
                waited_ns: (passed * waiting * 1e9) as u64,
                refaults: (passed * 5000.0) as u64,
                needed: sizes.counts(),
            };
            thrash.look(seen, BUDGET, MAX_SIZE)
        });
        looks.collect()
    }

    #[test]
    fn what_thrashes_is_told_once_and_how_fast_it_would_be() {
        let said = looked(&mut Thrash::new(None), 10, 0.95, &Sizes::default());
        assert_eq!((said.len(), said[0].budget), (1, None));
        let line = &said[0].line;
        assert!(
            line.contains("32 MiB is far too small: for 3 s 95 % of the time") && line.contains("20 times slower"),
            "{line}"
        );
        // Half of the refaults and nearly all would end with one size.
        assert_eq!(line.matches("MiB would make it").count(), 1, "{line}");
        assert!(line.contains("MiB would make it 17 times as fast"), "{line}");
        assert!(looked(&mut Thrash::new(None), 10, 0.5, &Sizes::default()).is_empty());
        assert!(looked(&mut Thrash::new(None), 2, 0.95, &Sizes::default()).is_empty());
    }

    #[test]
    fn a_budget_as_large_as_all_that_there_was_is_not_too_small() {
        let mut thrash = Thrash::new(None);
        let begun = Instant::now();
        let seen = |half: u64| Seen {
            at: begun + Duration::from_millis(500 * half),
            waited_ns: half * 500_000_000,
            refaults: half * 1000,
            needed: Sizes::default().counts(),
        };
        assert!((0..12).all(|half| thrash.look(seen(half), BUDGET, BUDGET).is_none()));
        // Raised by a step, the looks begin anew; what a pool gives and takes in small amounts does not count as one.
        let mut thrash = Thrash::new(None).in_pool();
        let mut look = |half, budget| thrash.look(seen(half), budget, BUDGET);
        assert!((0..5).all(|half| look(half, BUDGET / 4).is_none()));
        assert!((5..11).all(|half| look(half, BUDGET / 2 + half * PAGE as u64).is_none()));
        let said = look(11, BUDGET / 2).expect("it thrashes");
        // One size is named once.
        assert_eq!(said.line.matches("32 MiB would make it").count(), 1, "{}", said.line);
        assert!(said.line.ends_with("would make it 83 times as fast; the pool gives no more now"), "{}", said.line);
    }

    #[test]
    fn grow_raises_the_budget_up_to_its_bound_and_says_so() {
        let said = looked(&mut Thrash::new(Some(48 << 20)), 10, 0.95, &Sizes::default());
        assert!(said.len() >= 2, "{said:?}");
        assert_eq!(said[0].budget, Some(48 << 20));
        assert!(said[0].line.ends_with("raised to 48 MiB"), "{}", said[0].line);
        let said = looked(&mut Thrash::new(Some(BUDGET)), 10, 0.95, &Sizes::default());
        assert_eq!((said.len(), said[0].budget), (1, None));
        assert!(said[0].line.ends_with("--grow allows for no more"), "{}", said[0].line);
    }
}
