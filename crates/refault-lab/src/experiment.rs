//! What a re-run of a published experiment produces: one row a published figure, ours beside it.
//!
//! Every experiment of `refault reproduce` answers with an [`Experiment`]. Its JSON is a contract: `experiment`,
//! `seed`, `scale` and `rows`, each row with `name`, `metric`, `unit`, `published`, `ours` and `agrees`; values that do
//! not exist are null. What only people read (the verdict, remarks, pictures) is not part of it.
//!
//! Invariant: `ratio` is `after / before` where both exist and `before` is not zero, unless the document gave only the
//! ratio; it is never made up.

use serde::{Deserialize, Serialize};

/// The result of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The name it is called by on the command line.
    pub experiment: String,
    /// Seed of every random choice in it.
    pub seed: u64,
    /// Simulated size over published size (memory and everything that scales with it): 1 is the published machine.
    pub scale: f64,
    /// One row for each published figure, and for figures of our own that belong beside them.
    pub rows: Vec<Row>,
    /// One sentence: do direction and size agree?
    #[serde(skip)]
    pub verdict: String,
    /// Inputs that differ from the published ones, and which assumption decides where the result differs.
    #[serde(skip)]
    pub remarks: Vec<String>,
    /// Pictures for the report.
    #[serde(skip)]
    pub charts: Vec<Chart>,
}

/// One figure, published and measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The workload.
    pub name: String,
    /// What is measured, under its counter's name where it has one.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// What the document says.
    pub published: Values,
    /// What this run measured.
    pub ours: Values,
    /// Whether the two agree (see [`Agreement`]); null where there is nothing to compare.
    pub agrees: Option<bool>,
}

/// A figure without and with the change under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Values {
    /// Without the change.
    pub before: Option<f64>,
    /// With the change.
    pub after: Option<f64>,
    /// `after / before`.
    pub ratio: Option<f64>,
}

impl Values {
    /// Nothing is known.
    pub const NONE: Values = Values { before: None, after: None, ratio: None };

    /// Both figures, and their ratio if `before` is not zero.
    pub fn of(before: f64, after: f64) -> Values {
        Values { before: Some(before), after: Some(after), ratio: (before != 0.0).then(|| after / before) }
    }

    /// Only the change is known, as a factor.
    pub fn ratio_only(ratio: f64) -> Values {
        Values { ratio: Some(ratio), ..Values::NONE }
    }

    /// Neither figure is known to be other than zero.
    fn is_zero(&self) -> bool {
        self.before == Some(0.0) && self.after == Some(0.0)
    }
}

/// When two changes are said to agree. The rule is stated with the row's experiment, before its result is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// A ratio within this fraction of 1 is "no change": the spread of the published or of our own repeats.
    pub unchanged_within: f64,
    /// The logarithms of the two ratios differ at most by this factor. [`Agreement::DIRECTION`] ignores the size.
    pub size_within: f64,
}

impl Agreement {
    /// Only the direction counts; less than 2 % is no change.
    pub const DIRECTION: Agreement = Agreement { unchanged_within: 0.02, size_within: f64::INFINITY };

    /// Direction, and the size of the change up to a factor of three; less than 2 % is no change.
    pub const SIZE: Agreement = Agreement { unchanged_within: 0.02, size_within: 3.0 };

    /// Whether the changes agree; `None` if either is unknown. Two rows of zeros agree.
    pub fn judge(&self, published: &Values, ours: &Values) -> Option<bool> {
        if published.is_zero() && ours.before.is_some() && ours.after.is_some() {
            return Some(ours.is_zero());
        }
        let (published, ours) = (published.ratio?, ours.ratio?);
        let (direction, our_direction) = (self.direction(published), self.direction(ours));
        if direction != our_direction {
            return Some(false);
        }
        if direction == 0 || self.size_within.is_infinite() {
            return Some(true);
        }
        let factor = ours.ln() / published.ln();
        Some(factor <= self.size_within && factor >= 1.0 / self.size_within)
    }

    fn direction(&self, ratio: f64) -> i8 {
        i8::from(ratio > 1.0 + self.unchanged_within) - i8::from(ratio < 1.0 - self.unchanged_within)
    }
}

impl Row {
    /// A row judged by `agreement`.
    pub fn judged(name: &str, metric: &str, unit: &str, published: Values, ours: Values, agreement: Agreement) -> Row {
        let agrees = agreement.judge(&published, &ours);
        Row { name: name.into(), metric: metric.into(), unit: unit.into(), published, ours, agrees }
    }

    /// A figure of our own, without a published one.
    pub fn unpublished(name: &str, metric: &str, unit: &str, ours: Values) -> Row {
        Row { name: name.into(), metric: metric.into(), unit: unit.into(), published: Values::NONE, ours, agrees: None }
    }
}

/// A picture: curves over one axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Meaning and unit of the horizontal axis.
    pub x_axis: String,
    /// Meaning and unit of the vertical axis.
    pub y_axis: String,
    /// Whether the curves are shares that add up and are drawn as stacked bands.
    pub stacked: bool,
    /// The curves.
    pub series: Vec<Series>,
}

/// One curve of a [`Chart`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its label.
    pub name: String,
    /// Points (x, y), ascending in x.
    pub points: Vec<(f64, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_exactly_the_contracted_fields() {
        let row = Row::judged("w", "m", "pages", Values::of(4.0, 2.0), Values::of(8.0, 2.0), Agreement::SIZE);
        let experiment = Experiment {
            experiment: "e".into(),
            seed: 7,
            scale: 0.5,
            rows: vec![row, Row::unpublished("w", "n", "s", Values::of(0.0, 1.0))],
            verdict: "for people".into(),
            remarks: vec!["for people".into()],
            charts: vec![Chart::default()],
        };
        let json = serde_json::to_string(&experiment).unwrap();
        assert_eq!(
            json,
            r#"{"experiment":"e","seed":7,"scale":0.5,"rows":[{"name":"w","metric":"m","unit":"pages","published":{"before":4.0,"after":2.0,"ratio":0.5},"ours":{"before":8.0,"after":2.0,"ratio":0.25},"agrees":true},{"name":"w","metric":"n","unit":"s","published":{"before":null,"after":null,"ratio":null},"ours":{"before":0.0,"after":1.0,"ratio":null},"agrees":null}]}"#
        );
    }

    #[test]
    fn agreement_needs_direction_and_size() {
        let judge = |published: f64, ours: f64| {
            Agreement::SIZE.judge(&Values::ratio_only(published), &Values::ratio_only(ours))
        };
        assert_eq!(judge(1.05, 1.10), Some(true));
        assert_eq!(judge(1.05, 1.40), Some(false), "seven times the change");
        assert_eq!(judge(1.05, 0.90), Some(false), "other direction");
        assert_eq!(judge(1.001, 0.999), Some(true), "both are no change");
        assert_eq!(judge(1.001, 1.05), Some(false), "a change where there was none");
        assert_eq!(Agreement::DIRECTION.judge(&Values::ratio_only(1.05), &Values::ratio_only(3.0)), Some(true));
        assert_eq!(Agreement::SIZE.judge(&Values::NONE, &Values::of(1.0, 2.0)), None);
        assert_eq!(Agreement::SIZE.judge(&Values::of(0.0, 0.0), &Values::of(0.0, 0.0)), Some(true));
        assert_eq!(Agreement::SIZE.judge(&Values::of(0.0, 0.0), &Values::of(0.0, 3.0)), Some(false));
    }
}
