//! When a published figure and ours are said to agree: all rules, each with its reason, and the statistics behind them.
//!
//! A row is a yes or a no only if two things hold. The *null*, the same run with the mechanism under test switched off,
//! must fail the rule over the whole of its own interval: what a dead mechanism passes is no evidence. And our own
//! interval must lie inside the agreeing range, or outside of it, as a whole. Everything else is *not distinguishable*:
//! neither yes nor no.
//!
//! Intervals are Student's, at 95 %, of the mean over seeds of the logarithm of `after / before` (of `after` for a
//! level). Ratios are compared as logarithms, so that a doubling and a halving count alike.
//!
//! The constants were 10 (free pool) and 4 (multi-gen LRU) instead of [`SIZE_FACTOR`] before 2026; one factor for all
//! documents is stricter than each was.
//!
//! ```
//! use refault_lab::experiment::rule::{Judgement, Rule};
//!
//! assert_eq!(Judgement::NullAgrees.agrees(), None); // a dead mechanism agrees too: nothing is shown
//! assert!(matches!(Rule::MONITOR, Rule::Level { factor: 2.0 }));
//! ```

use serde::{Deserialize, Serialize};

use super::Values;

/// The size of a change agrees within a factor of three, both ways. A model of a machine that is described by a few
/// lines gives orders of magnitude. Three is the smallest whole factor beyond which people call a size another one.
const SIZE_FACTOR: f64 = 3.0;

/// What spreads between single runs of one benchmark on one machine where a document says nothing about it.
const UNSTATED_SPREAD: f64 = 0.02;

/// How a row is judged. It is stated with the row's experiment, before its result is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Nothing to compare: the document has no figure, or it is a property of the baseline that no mechanism changes.
    Unjudged,
    /// Ours was set so that the published figure comes out, or rests on such an input: shown, never judged.
    Fitted,
    /// The document's figure is of something that the model does not have: shown beside ours, never judged.
    Incomparable,
    /// The change `after / before`.
    Change {
        /// A ratio within this fraction of 1 is no change.
        noise: f64,
        /// The logarithms of the two ratios differ at most by this factor; infinite: only the direction counts.
        factor: f64,
    },
    /// The document says where a figure goes, without a number.
    Statement(Direction),
    /// The figure itself, within this factor both ways; no change is asked for.
    Level {
        /// At least 1.
        factor: f64,
    },
}

/// Where a figure goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `after` is above `before`, beyond what a document leaves unstated.
    Rises,
    /// `after` is below `before`, beyond the same.
    Falls,
    /// `after` is less than half of `before`: the work that is said to be gone.
    Vanishes,
}

impl Rule {
    /// Direction and size of a change in a document that does not say how far its runs lie apart.
    pub const CHANGE: Rule = Rule::Change { noise: UNSTATED_SPREAD, factor: SIZE_FACTOR };

    /// The same, direction only: for a document whose own size is that of a system that collapsed.
    pub const DIRECTION: Rule = Rule::Change { noise: UNSTATED_SPREAD, factor: f64::INFINITY };

    /// "Equal or slightly better", where one percent is the finest that six runs tell apart. The posting of 2023 prints
    /// averages of six, whose changes are 0.1 to 0.5 %.
    pub const EQUAL: Rule = Rule::Change { noise: 0.01, factor: SIZE_FACTOR };

    /// Seven builds of the free-pool review: their major faults vary by a tenth of the mean, so the mean of seven by a
    /// twenty-fifth.
    pub const BUILDS: Rule = Rule::Change { noise: 0.04, factor: SIZE_FACTOR };

    /// Shares of a profile: a sampled profile's larger entries differ by some percent from run to run, and a share
    /// moves with all others; under a tenth is no change.
    pub const SHARE: Rule = Rule::Change { noise: 0.10, factor: SIZE_FACTOR };

    /// The CPU time of a monitor: within a factor of two, because checks of other machines cost up to twice as much.
    pub const MONITOR: Rule = Rule::Level { factor: 2.0 };

    /// Direction and size beyond a spread that the document itself gives.
    pub const fn beyond(noise: f64) -> Rule {
        Rule::Change { noise, factor: SIZE_FACTOR }
    }

    /// The range of the statistic that agrees; `None` where nothing is compared.
    fn agreeing(&self, published: &Values) -> Option<(f64, f64)> {
        match *self {
            Rule::Unjudged | Rule::Fitted | Rule::Incomparable => None,
            Rule::Statement(Direction::Rises) => Some(((1.0 + UNSTATED_SPREAD).ln(), f64::INFINITY)),
            Rule::Statement(Direction::Falls) => Some((f64::NEG_INFINITY, (1.0 - UNSTATED_SPREAD).ln())),
            Rule::Statement(Direction::Vanishes) => Some((f64::NEG_INFINITY, 0.5f64.ln())),
            Rule::Level { factor } => {
                let level = published.after?.ln();
                Some((level - factor.ln(), level + factor.ln()))
            }
            Rule::Change { noise, factor } => {
                let change = published.ratio?.ln();
                let (low, high) = ((1.0 - noise).ln(), (1.0 + noise).ln());
                Some(if change > high {
                    ((change / factor).max(high), change * factor)
                } else if change < low {
                    (change * factor, (change / factor).min(low))
                } else {
                    (low, high)
                })
            }
        }
    }

    /// What of a trial is compared.
    fn statistic(&self, before: f64, after: f64) -> Option<f64> {
        if matches!(self, Rule::Level { .. }) {
            return (after > 0.0).then(|| after.ln());
        }
        (before > 0.0).then(|| (after / before).max(MIN_RATIO).ln())
    }

    /// Whether the mean of a statistic agrees: yes or no if its whole interval does, `None` otherwise.
    fn says(&self, published: &Values, statistics: &[f64]) -> Option<bool> {
        let (low, high) = self.agreeing(published)?;
        let (from, to) = interval(statistics)?;
        if from >= low && to <= high {
            Some(true)
        } else if to < low || from > high {
            Some(false)
        } else {
            None
        }
    }

    /// The row's judgement.
    pub(super) fn judge(&self, published: &Values, trials: &[Trial]) -> Judgement {
        match self {
            Rule::Unjudged => return Judgement::Unjudged,
            Rule::Fitted => return Judgement::Fitted,
            Rule::Incomparable => return Judgement::Incomparable,
            _ if self.agreeing(published).is_none() => return Judgement::Unjudged,
            _ => {}
        }
        if self.null_says(published, trials) != Some(false) {
            return Judgement::NullAgrees;
        }
        let ours: Option<Vec<f64>> = trials.iter().map(|t| self.statistic(t.before, t.after)).collect();
        match ours.and_then(|ours| self.says(published, &ours)) {
            Some(true) => Judgement::Agrees,
            Some(false) => Judgement::Differs,
            None => Judgement::WithinChance,
        }
    }

    /// What the rule says of the null.
    pub(super) fn null_says(&self, published: &Values, trials: &[Trial]) -> Option<bool> {
        let null: Option<Vec<f64>> =
            trials.iter().map(|t| t.null.and_then(|null| self.statistic(t.before, null))).collect();
        self.says(published, &null?)
    }
}

/// A figure that fell to nothing counts as this fraction of what it was, so that it has a logarithm.
const MIN_RATIO: f64 = 1e-4;

/// One seed's figure: without the mechanism, with it, and in the null.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Without the change.
    pub before: f64,
    /// With the change.
    pub after: f64,
    /// With the change, the mechanism under test switched off; `None` where no null was run.
    pub null: Option<f64>,
}

/// What a row came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// Ours agrees, and the null does not.
    Agrees,
    /// Ours does not agree, nor does the null.
    Differs,
    /// Not distinguishable: the null agrees too, or cannot be told from what would.
    NullAgrees,
    /// Not distinguishable: our seeds lie on both sides.
    WithinChance,
    /// An input was set so that this comes out.
    Fitted,
    /// The published figure is of something that ours does not measure.
    Incomparable,
    /// There is nothing to compare.
    Unjudged,
}

impl Judgement {
    /// Yes, no, or neither.
    pub fn agrees(self) -> Option<bool> {
        match self {
            Judgement::Agrees => Some(true),
            Judgement::Differs => Some(false),
            _ => None,
        }
    }

    /// A figure was compared and could not be judged.
    pub fn is_indistinguishable(self) -> bool {
        matches!(self, Judgement::NullAgrees | Judgement::WithinChance)
    }

    /// As in CSV and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Judgement::Agrees => "agrees",
            Judgement::Differs => "differs",
            Judgement::NullAgrees => "null-agrees",
            Judgement::WithinChance => "within-chance",
            Judgement::Fitted => "fitted",
            Judgement::Incomparable => "not-comparable",
            Judgement::Unjudged => "unjudged",
        }
    }

    /// As in tables.
    pub fn text(self) -> &'static str {
        match self {
            Judgement::Agrees => "yes",
            Judgement::Differs => "NO",
            Judgement::NullAgrees => "null too",
            Judgement::WithinChance => "chance",
            Judgement::Fitted => "fitted",
            Judgement::Incomparable => "not comparable",
            Judgement::Unjudged => "–",
        }
    }
}

/// Two-sided 95 % quantiles of Student's distribution, by degrees of freedom from 1.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// The 95 % interval of the mean; `None` with fewer than two values.
fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let (mean, deviation) = mean_and_deviation(values)?;
    let quantile = STUDENT.get(values.len() - 2).copied().unwrap_or(2.201);
    let half = quantile * deviation / (values.len() as f64).sqrt();
    Some((mean - half, mean + half))
}

/// Mean and standard deviation; `None` with fewer than two values.
pub(super) fn mean_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some((mean, variance.sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five seeds around these ratios, a thousandth apart.
    fn trials(after: f64, null: f64) -> Vec<Trial> {
        let shaken = |value: f64, seed: i32| value * (1.0 + 0.001 * f64::from(seed - 2));
        (0..5)
            .map(|seed| Trial { before: 1.0, after: shaken(after, seed), null: Some(shaken(null, 4 - seed)) })
            .collect()
    }

    fn judge(rule: Rule, published: f64, after: f64, null: f64) -> Judgement {
        rule.judge(&Values::ratio_only(published), &trials(after, null))
    }

    #[test]
    fn a_change_needs_direction_and_size() {
        assert_eq!(judge(Rule::CHANGE, 1.05, 1.10, 1.0), Judgement::Agrees);
        assert_eq!(judge(Rule::CHANGE, 1.05, 1.40, 1.0), Judgement::Differs, "seven times the change");
        assert_eq!(judge(Rule::CHANGE, 1.05, 0.90, 1.0), Judgement::Differs, "the other direction");
        assert_eq!(judge(Rule::DIRECTION, 1.05, 3.0, 1.0), Judgement::Agrees);
        assert_eq!(judge(Rule::CHANGE, 0.05, 0.0, 1.0), Judgement::Differs, "four hundred times less");
    }

    #[test]
    fn what_the_null_passes_is_neither_yes_nor_no() {
        assert_eq!(judge(Rule::CHANGE, 1.001, 1.0, 1.0), Judgement::NullAgrees, "no change was published");
        assert_eq!(judge(Rule::CHANGE, 1.001, 1.5, 1.0), Judgement::NullAgrees, "even where ours changes");
        assert_eq!(judge(Rule::EQUAL, 1.001, 1.0, 0.8), Judgement::Agrees, "a null that breaks what was equal");
        assert_eq!(judge(Rule::EQUAL, 1.001, 0.9, 0.8), Judgement::Differs);
        assert_eq!(judge(Rule::beyond(0.05), 0.96, 0.96, 1.0), Judgement::NullAgrees, "within the published spread");
    }

    #[test]
    fn seeds_on_both_sides_are_chance_and_so_is_a_single_one() {
        let mut trials = trials(1.10, 1.0);
        trials[0].after = 0.9;
        assert_eq!(Rule::CHANGE.judge(&Values::ratio_only(1.05), &trials), Judgement::WithinChance);
        let judged = Rule::CHANGE.judge(&Values::ratio_only(1.05), &trials[..1]);
        assert!(judged.is_indistinguishable(), "{judged:?}");
    }

    #[test]
    fn statements_and_levels_have_their_own_ranges() {
        assert_eq!(judge(Rule::Statement(Direction::Rises), 1.0, 1.05, 0.95), Judgement::Agrees);
        assert_eq!(judge(Rule::Statement(Direction::Rises), 1.0, 1.05, 1.03), Judgement::NullAgrees);
        assert_eq!(judge(Rule::Statement(Direction::Vanishes), 1.0, 0.6, 1.0), Judgement::Differs);
        assert_eq!(judge(Rule::Statement(Direction::Vanishes), 1.0, 0.0, 1.0), Judgement::Agrees);
        let level = |after: f64, null: f64| {
            let published = Values { after: Some(2.0), ..Values::NONE };
            Rule::MONITOR.judge(&published, &trials(after, null))
        };
        assert_eq!(level(1.5, 0.1), Judgement::Agrees);
        assert_eq!(level(5.0, 0.1), Judgement::Differs);
        assert_eq!(level(1.5, 1.5), Judgement::NullAgrees);
    }

    #[test]
    fn without_a_null_or_a_figure_nothing_is_judged() {
        let mut trials = trials(1.1, 1.0);
        assert_eq!(Rule::CHANGE.judge(&Values::NONE, &trials), Judgement::Unjudged);
        assert_eq!(Rule::Fitted.judge(&Values::ratio_only(1.1), &trials), Judgement::Fitted);
        trials.iter_mut().for_each(|trial| trial.null = None);
        assert_eq!(Rule::CHANGE.judge(&Values::ratio_only(1.1), &trials), Judgement::NullAgrees);
    }

    #[test]
    fn the_interval_is_students() {
        let (from, to) = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        // Mean 3, deviation 1.5811, quantile 2.776 with 4 degrees of freedom.
        assert!((from - 1.0371).abs() < 1e-3 && (to - 4.9629).abs() < 1e-3, "{from} {to}");
        assert_eq!(interval(&[1.0]), None);
    }
}
