//! What a re-run of a published experiment produces: one row a published figure, ours and the null's beside it.
//!
//! Every experiment of `refault reproduce` answers with an [`Experiment`]. Its JSON is a contract: `experiment`,
//! `seed`, `scale` and `rows`, each row with `name`, `metric`, `unit`, `published`, `ours`, `null`, `spread`, `agrees`,
//! `judgement` and `counts`; values that do not exist are null. What only people read (the verdict, remarks, pictures) is not
//! part of it.
//!
//! An experiment measures [`Figure`]s, each once per seed and each time in three ways: before, after, and *null*, which
//! is "after" with the mechanism under test switched off. [`rule`] holds how figures become yes, no or neither.
//!
//! Invariant: `ratio` is `after / before` where both exist and `before` is not zero, unless the document gave only the
//! ratio; it is never made up.
//!
//! ```
//! use refault_lab::experiment::Values;
//!
//! let published = Values::of(4.0, 2.0);
//! assert_eq!(published.ratio, Some(0.5));
//! assert_eq!(Values::before_only(4.0).ratio, None); // what a document does not say is not made up
//! ```

pub mod rule;
mod seeds;

use serde::{Deserialize, Serialize};

pub use rule::{Direction, Judgement, Rule, Trial};
pub use seeds::{Study, over_seeds};

/// The result of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The name it is called by on the command line.
    pub experiment: String,
    /// The first seed of every random choice in it.
    pub seed: u64,
    /// Simulated size over published size (memory and everything that scales with it): 1 is the published machine.
    pub scale: f64,
    /// One row for each published figure, and for figures of our own that belong beside them.
    pub rows: Vec<Row>,
    /// Figures measured on the machine that this runs on, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub here: Vec<Here>,
    /// Figures that real kernels were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Asked>,
    /// Do direction and size agree? A few sentences.
    #[serde(skip)]
    pub verdict: String,
    /// Inputs that differ from the published ones, and which assumption decides where the result differs.
    #[serde(skip)]
    pub remarks: Vec<String>,
    /// Pictures for the report.
    #[serde(skip)]
    pub charts: Vec<Chart>,
}

/// A figure measured on the machine that this runs on. It is shown beside the model's and never judged: the machine is
/// not the document's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Here {
    /// The workload, as the model's row calls it.
    pub name: String,
    /// What was measured.
    pub metric: String,
    /// In what unit.
    pub unit: String,
    /// What served the workload, after the change.
    pub side: String,
    /// Before and after, means over seeds. One value: there is nothing to compare it with on that side.
    pub values: Values,
    /// Standard deviation of the ratio over seeds, or of the value where there is no ratio, relative to the mean.
    pub spread: Option<f64>,
}

/// A figure that a real kernel was asked for, in an emulator. It is shown and never judged: sizes are not the document's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The workload, as the model's row calls it.
    pub name: String,
    /// What was measured.
    pub metric: String,
    /// In what unit.
    pub unit: String,
    /// The kernel's release, or as much of it as was noted.
    pub kernel: String,
    /// The document's.
    pub published: Values,
    /// The kernel's.
    pub values: Values,
    /// The model's, over the accesses that the kernel was asked.
    pub model: Values,
    /// This machine's, if it was measured.
    pub here: Option<Values>,
}

/// What was measured on this machine, and what is to be said of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredHere {
    /// Rows beside the model's.
    pub rows: Vec<Here>,
    /// Sentences.
    pub remarks: Vec<String>,
}

/// What published figures came to. Each counts once, however many rows show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Figures that agree where the null does not, in each row that is judged.
    pub agree: usize,
    /// Figures that were judged: they agree or differ.
    pub judged: usize,
    /// Figures that cannot be told from the null or from chance.
    pub indistinguishable: usize,
    /// Figures that rest on a fitted input.
    pub fitted: usize,
    /// Figures of something that ours does not measure.
    pub incomparable: usize,
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} published figures that can be judged agree; {} are not distinguishable from the null or from chance",
            self.agree, self.judged, self.indistinguishable
        )?;
        for (figures, what) in [(self.fitted, "fitted"), (self.incomparable, "not comparable")] {
            if figures > 0 {
                write!(f, ", {figures} are {what}")?;
            }
        }
        Ok(())
    }
}

impl Experiment {
    /// How many published figures agree, of how many.
    pub fn score(&self) -> Score {
        score(&self.rows)
    }

    /// The same experiment with the null in the place of ours: `figures` are measured with seeds that took no part in
    /// deciding which rows can be judged. Only rows that were judged are judged again.
    pub fn of_the_null(mut self, figures: &[Figure]) -> Experiment {
        for (row, figure) in self.rows.iter_mut().zip(figures) {
            debug_assert_eq!((&row.name, &row.metric), (&figure.name, &figure.metric));
            row.ours = figure.null_values();
            row.null = Values::NONE;
            if row.judgement.agrees().is_some() {
                row.judgement = match figure.rule.null_says(&figure.published, &figure.trials) {
                    Some(true) => Judgement::Agrees,
                    Some(false) => Judgement::Differs,
                    None => Judgement::WithinChance,
                };
                row.agrees = row.judgement.agrees();
            }
        }
        let which = |judged: fn(Judgement) -> bool| self.rows.iter().filter(|row| judged(row.judgement)).count();
        self.verdict = format!(
            "the null itself, with other seeds, agrees in {} of the {} rows that are judged; a mechanism that does \
             nothing should agree in none",
            which(|judgement| judgement == Judgement::Agrees),
            which(|judgement| judgement.agrees().is_some() || judgement == Judgement::WithinChance)
        );
        self
    }
}

/// How many published figures of these rows agree, of how many. Rows with the same metric and the same published values
/// are one figure, which agrees if none of them differs; rows that do not count are left out.
pub fn score(rows: &[Row]) -> Score {
    let mut score = Score::default();
    let mut seen: Vec<&Row> = Vec::new();
    for row in rows.iter().filter(|row| row.counts) {
        let same = |other: &Row| (&other.metric, &other.published) == (&row.metric, &row.published);
        if seen.iter().any(|other| same(other)) {
            continue;
        }
        seen.push(row);
        let any = |which: fn(Judgement) -> bool| {
            rows.iter().any(|other| other.counts && same(other) && which(other.judgement))
        };
        let differs = any(|judgement| judgement == Judgement::Differs);
        if differs || any(|judgement| judgement == Judgement::Agrees) {
            score.judged += 1;
            score.agree += usize::from(!differs);
        } else if any(Judgement::is_indistinguishable) {
            score.indistinguishable += 1;
        } else if any(|judgement| judgement == Judgement::Fitted) {
            score.fitted += 1;
        } else if any(|judgement| judgement == Judgement::Incomparable) {
            score.incomparable += 1;
        }
    }
    score
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
    /// What this run measured: means over seeds.
    pub ours: Values,
    /// The same with the mechanism under test switched off.
    pub null: Values,
    /// Standard deviation over seeds of our ratio, relative; of `after` where there is no ratio.
    pub spread: Option<f64>,
    /// Whether published and ours agree; null where there is nothing to compare or it cannot be told.
    pub agrees: Option<bool>,
    /// The same with its reason.
    pub judgement: Judgement,
    /// Whether the row is one of a published figure's own; rows under other assumptions and rows without a published
    /// figure are shown beside, and no score counts them.
    pub counts: bool,
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

    /// Only the figure without the change is known.
    pub fn before_only(before: f64) -> Values {
        Values { before: Some(before), ..Values::NONE }
    }

    /// Only the figure with the change is known.
    pub fn after_only(after: f64) -> Values {
        Values { after: Some(after), ..Values::NONE }
    }
}

/// A published figure with its rule, and what each seed measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The workload.
    pub name: String,
    /// What is measured.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// What the document says.
    pub published: Values,
    /// How it is judged.
    pub rule: Rule,
    /// One for each seed.
    pub trials: Vec<Trial>,
    /// The figure is a level: there is no `before`.
    pub is_level: bool,
    /// Its row counts in the score: the document has a number for it, and no other row shows the same one.
    pub counts: bool,
}

impl Figure {
    /// A figure as one seed measured it.
    pub fn new(name: &str, metric: &str, unit: &str, published: Values, rule: Rule, trial: Trial) -> Figure {
        let is_level = matches!(rule, Rule::Level { .. });
        let [name, metric, unit] = [name, metric, unit].map(str::to_string);
        let counts = published != Values::NONE;
        Figure { name, metric, unit, published, rule, trials: vec![trial], is_level, counts }
    }

    /// The same published figure as another row's, under another assumption or in another unit: judged, not counted.
    #[must_use]
    pub fn shown_again(self) -> Figure {
        Figure { counts: false, ..self }
    }

    /// A figure of our own, without a published one.
    pub fn unpublished(name: &str, metric: &str, unit: &str, trial: Trial) -> Figure {
        Figure::new(name, metric, unit, Values::NONE, Rule::Unjudged, trial)
    }

    /// Means over seeds. The ratio is that of the means, so that the three numbers of a row fit together.
    fn mean(&self, after: impl Fn(&Trial) -> f64) -> Values {
        let n = self.trials.len().max(1) as f64;
        let after = self.trials.iter().map(after).sum::<f64>() / n;
        if self.is_level {
            return Values::after_only(after);
        }
        Values::of(self.trials.iter().map(|trial| trial.before).sum::<f64>() / n, after)
    }

    fn null_values(&self) -> Values {
        if self.trials.iter().any(|trial| trial.null.is_none()) {
            return Values::NONE;
        }
        self.mean(|trial| trial.null.unwrap_or(f64::NAN))
    }

    fn spread(&self) -> Option<f64> {
        let has_ratio = !self.is_level && self.trials.iter().all(|trial| trial.before != 0.0);
        let value = |trial: &Trial| if has_ratio { trial.after / trial.before } else { trial.after };
        let values: Vec<f64> = self.trials.iter().map(value).collect();
        let (mean, deviation) = rule::mean_and_deviation(&values)?;
        (mean != 0.0).then(|| deviation / mean)
    }

    /// The row.
    pub fn row(&self) -> Row {
        let judgement = self.rule.judge(&self.published, &self.trials);
        Row {
            name: self.name.clone(),
            metric: self.metric.clone(),
            unit: self.unit.clone(),
            published: self.published,
            ours: self.mean(|trial| trial.after),
            null: self.null_values(),
            spread: self.spread(),
            agrees: judgement.agrees(),
            judgement,
            counts: self.counts,
        }
    }
}

/// A picture: curves over one axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Its label.
    pub name: String,
    /// Points (x, y), ascending in x.
    pub points: Vec<(f64, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(after: f64, null: f64) -> Figure {
        let trial = |seed: f64| Trial { before: 8.0, after: after + 0.001 * seed, null: Some(null - 0.001 * seed) };
        let mut figure = Figure::new("w", "m", "pages", Values::of(4.0, 2.0), Rule::CHANGE, trial(0.0));
        figure.trials.extend([trial(1.0), trial(2.0)]);
        figure
    }

    #[test]
    fn json_has_exactly_the_contracted_fields() {
        let trial = Trial { before: 8.0, after: 4.0, null: Some(8.0) };
        let mut judged = Figure::new("w", "m", "pages", Values::of(4.0, 2.0), Rule::CHANGE, trial);
        judged.trials.push(trial);
        let own = Figure::unpublished("w", "n", "s", Trial { before: 0.0, after: 1.0, null: None });
        let experiment = Experiment {
            here: Vec::new(),
            kernels: Vec::new(),
            experiment: "e".into(),
            seed: 7,
            scale: 0.5,
            rows: vec![judged.row(), own.row()],
            verdict: "for people".into(),
            remarks: vec!["for people".into()],
            charts: vec![Chart::default()],
        };
        let json = serde_json::to_string(&experiment).unwrap();
        assert_eq!(
            json,
            r#"{"experiment":"e","seed":7,"scale":0.5,"rows":[{"name":"w","metric":"m","unit":"pages","published":{"before":4.0,"after":2.0,"ratio":0.5},"ours":{"before":8.0,"after":4.0,"ratio":0.5},"null":{"before":8.0,"after":8.0,"ratio":1.0},"spread":0.0,"agrees":true,"judgement":"agrees","counts":true},{"name":"w","metric":"n","unit":"s","published":{"before":null,"after":null,"ratio":null},"ours":{"before":0.0,"after":1.0,"ratio":null},"null":{"before":null,"after":null,"ratio":null},"spread":null,"agrees":null,"judgement":"unjudged","counts":false}]}"#
        );
    }

    #[test]
    fn the_null_in_the_place_of_ours_is_judged_where_ours_was() {
        let other = |after| Figure { metric: "other".into(), ..figure(4.0, after) };
        let rows = [figure(4.0, 8.0), other(4.0)].map(|figure| figure.row()).to_vec();
        assert_eq!([rows[0].judgement, rows[1].judgement], [Judgement::Agrees, Judgement::NullAgrees]);
        let experiment = Experiment {
            here: Vec::new(),
            kernels: Vec::new(),
            experiment: "e".into(),
            seed: 1,
            scale: 1.0,
            rows,
            verdict: String::new(),
            remarks: Vec::new(),
            charts: Vec::new(),
        };
        assert_eq!(experiment.score(), Score { agree: 1, judged: 1, indistinguishable: 1, ..Score::default() });
        let dead = experiment.clone().of_the_null(&[figure(4.0, 8.0), other(4.0)]);
        assert_eq!((dead.score().agree, dead.score().judged), (0, 1));
        // A null that other seeds show to agree after all is found out.
        let alive = experiment.of_the_null(&[figure(4.0, 4.0), other(4.0)]);
        assert_eq!((alive.score().agree, alive.score().judged), (1, 1));
    }
    /// One constant in many rows is one figure, and a row under another assumption is none.
    #[test]
    fn a_published_figure_counts_once() {
        let programs = (0..24).map(|_| figure(4.0, 8.0).row());
        let rows: Vec<Row> = programs.clone().chain([figure(9.0, 8.0).shown_again().row()]).collect();
        assert_eq!(rows[24].judgement, Judgement::Differs);
        assert_eq!(score(&rows), Score { agree: 1, judged: 1, ..Score::default() });
        // One row of the figure that differs makes it differ.
        let rows: Vec<Row> = programs.chain([figure(9.0, 8.0).row()]).collect();
        assert_eq!(score(&rows), Score { agree: 0, judged: 1, ..Score::default() });
        // What the document only says in words, and what ours does not measure, are no figures that agree.
        let said = Figure {
            published: Values::NONE,
            counts: false,
            rule: Rule::Statement(Direction::Falls),
            ..figure(4.0, 8.0)
        };
        let other = Figure { rule: Rule::Incomparable, ..figure(4.0, 8.0) };
        let rows = [said.row(), other.row()];
        assert_eq!([rows[0].judgement, rows[1].judgement], [Judgement::Agrees, Judgement::Incomparable]);
        assert_eq!(score(&rows), Score { incomparable: 1, ..Score::default() });
        assert!(score(&rows).to_string().ends_with("1 are not comparable"));
    }
}
