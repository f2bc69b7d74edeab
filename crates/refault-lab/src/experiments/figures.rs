//! The list of published figures: each figure of the documents once, with what stands for it and what we believe.
//!
//! Two tables and the recorded results make it. `data/figures.csv` has a line per figure. One that an experiment has is
//! named there by the experiment's row, and its values are the row's; only others have values of their own.
//! `data/beliefs.csv` has the sentences, and why a figure cannot be judged. `data/recorded` has what
//! `refault reproduce NAME --format json` wrote, at the default size and seed; a test of each experiment compares its
//! published values with the experiment's.
//!
//! ```
//! use refault_lab::experiments::figures::figures;
//!
//! let moving = figures().iter().find(|figure| figure.metric.contains("shrink_active_list")).expect("listed");
//! assert_eq!(moving.published.before, Some(6.53));
//! assert!(moving.row.is_some() && moving.reason.is_empty());
//! ```

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::experiment::{Experiment, Judgement, Row, Score, Values, score};

/// A document that published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// As the list calls it.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
}

/// The documents in the order of the list. Two are further results of the one before: a discussion, and result files.
pub const DOCUMENTS: [Document; 7] = [
    Document { name: "shadow-lru", title: "Linux 2023: refault distances on a clock of evictions (Shadow LRU)" },
    Document { name: "refault-discussion", title: "Linux 2023: the same under the multi-gen LRU, in its discussion" },
    Document { name: "mglru-v2", title: "Linux 2021: multi-gen LRU, second posting, profiles of random reads" },
    Document { name: "mglru-v1", title: "Linux 2021: multi-gen LRU, first posting" },
    Document { name: "free-pool", title: "FreeBSD 2015: evicted pages lose their free pool" },
    Document { name: "lru-sort", title: "Linux 2022: a monitor sorts LRU lists" },
    Document { name: "lru-sort-programs", title: "Linux 2022: the same by program, from its result files" },
];

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedFigure {
    /// The document, one of [`DOCUMENTS`].
    pub document: &'static str,
    /// The workload.
    pub name: String,
    /// What was measured.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// What the document says; nothing where it says it in words.
    pub published: Values,
    /// What the document says in words, else empty.
    pub says: String,
    /// The experiment that has it, else empty: `refault reproduce` computes the model's figure by this name.
    pub experiment: String,
    /// The experiment's row that stands for the figure, as recorded.
    pub row: Option<Row>,
    /// Why it cannot be judged; empty where it can.
    pub reason: String,
    /// What we believe: one sentence.
    pub belief: String,
}

impl PublishedFigure {
    /// Yes, no, or neither; `None` where it cannot be judged.
    pub fn judgement(&self) -> Option<Judgement> {
        self.row.as_ref().map(|row| row.judgement).filter(|_| self.reason.is_empty())
    }

    /// Whether the score counts it: it has a number, can be judged, and is not one that another figure shows.
    pub fn counts(&self) -> bool {
        self.judgement().is_some() && self.row.as_ref().is_some_and(|row| row.counts)
    }
}

/// A line of the table of figures.
#[derive(Deserialize)]
struct Line {
    document: String,
    experiment: String,
    name: String,
    metric: String,
    /// The metric of the row that stands for it, where it is another one.
    row: String,
    unit: String,
    before: Option<f64>,
    after: Option<f64>,
    ratio: Option<f64>,
    says: String,
    belief: String,
}

/// A line of the table of beliefs.
#[derive(Deserialize)]
struct Belief {
    belief: String,
    reason: String,
    sentence: String,
}

const FIGURES: &str = include_str!("../../data/figures.csv");
const BELIEFS: &str = include_str!("../../data/beliefs.csv");
const RECORDED: [&str; 6] = [
    include_str!("../../data/recorded/shadow-lru.json"),
    include_str!("../../data/recorded/mglru-refault.json"),
    include_str!("../../data/recorded/mglru-fio.json"),
    include_str!("../../data/recorded/mglru-v1.json"),
    include_str!("../../data/recorded/freepool.json"),
    include_str!("../../data/recorded/lru-sort.json"),
];

/// The experiments as they were recorded.
pub fn recorded() -> &'static [Experiment] {
    static EXPERIMENTS: OnceLock<Vec<Experiment>> = OnceLock::new();
    EXPERIMENTS.get_or_init(|| {
        let read = |text: &&str| serde_json::from_str(text).expect("invariant: a test reads the results");
        RECORDED.iter().map(read).collect()
    })
}

/// The list, in the order of [`DOCUMENTS`] and within a document by what we believe.
pub fn figures() -> &'static [PublishedFigure] {
    static ALL: OnceLock<Vec<PublishedFigure>> = OnceLock::new();
    ALL.get_or_init(|| read().unwrap_or_else(|why| panic!("invariant: a test reads the list: {why}")))
}

/// What the figures of a document came to, or of all where none is named.
pub fn score_of(document: Option<&str>) -> Score {
    let of = figures().iter().filter(|figure| document.is_none_or(|document| figure.document == document));
    let rows: Vec<Row> = of
        .filter(|figure| figure.counts())
        .filter_map(|figure| {
            // The figure's own values, so that two workloads with the same ratio stay two.
            let row = figure.row.clone()?;
            Some(Row { published: figure.published, metric: format!("{} {}", figure.name, figure.metric), ..row })
        })
        .collect();
    score(&rows)
}

fn read() -> Result<Vec<PublishedFigure>, String> {
    let lines = |text: &'static str| csv::Reader::from_reader(text.as_bytes());
    let beliefs: Result<Vec<Belief>, _> = lines(BELIEFS).into_deserialize().collect();
    let beliefs: BTreeMap<String, Belief> =
        beliefs.map_err(|error| error.to_string())?.into_iter().map(|of| (of.belief.clone(), of)).collect();
    let mut all = Vec::new();
    for line in lines(FIGURES).into_deserialize() {
        let line: Line = line.map_err(|error| error.to_string())?;
        all.push(figure(line, &beliefs)?);
    }
    Ok(all)
}

fn figure(line: Line, beliefs: &BTreeMap<String, Belief>) -> Result<PublishedFigure, String> {
    let place = format!("{}: {}, {}", line.document, line.name, line.metric);
    let document =
        DOCUMENTS.iter().find(|of| of.name == line.document).ok_or_else(|| format!("no document: {place}"))?;
    let belief = beliefs.get(&line.belief).ok_or_else(|| format!("no belief {}: {place}", line.belief))?;
    let row = |metric: &str| {
        let experiment = recorded().iter().find(|of| of.experiment == line.experiment)?;
        experiment.rows.iter().find(|row| row.name == line.name && row.metric == metric)
    };
    let own = Values {
        before: line.before,
        after: line.after,
        ratio: line.ratio.or_else(|| Values::of(line.before?, line.after?).ratio),
    };
    let is_of_experiment = own == Values::NONE && !line.experiment.is_empty();
    let named = if is_of_experiment { row(&line.metric) } else { None };
    if is_of_experiment && named.is_none() {
        return Err(format!("{} has no such row: {place}", line.experiment));
    }
    let standing = if line.row.is_empty() { named } else { row(&line.row) };
    Ok(PublishedFigure {
        document: document.name,
        published: named.map_or(own, |row| row.published),
        unit: named.map_or(line.unit, |row| row.unit.clone()),
        row: standing.cloned(),
        says: line.says,
        reason: belief.reason.clone(),
        belief: belief.sentence.clone(),
        name: line.name,
        metric: line.metric,
        experiment: line.experiment,
    })
}

/// Holds what is recorded of an experiment to the experiment: names, units, published values and what counts do not
/// depend on its size.
#[cfg(test)]
pub(crate) fn is_recorded(experiment: &Experiment) {
    let recorded = recorded().iter().find(|of| of.experiment == experiment.experiment).expect("recorded");
    // One row names the program that the model's run time changes most by, which is the run's.
    let fixed =
        |all: &Experiment| all.rows.iter().filter(|row| !row.name.starts_with("average without")).cloned().collect();
    let (then, now): (Vec<Row>, Vec<Row>) = (fixed(recorded), fixed(experiment));
    // Numbers that were read from text may differ in their last bit.
    let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * a.abs(),
        (a, b) => a == b,
    };
    for (then, now) in then.iter().zip(&now) {
        let names = |row: &Row| (row.name.clone(), row.metric.clone(), row.unit.clone(), row.counts);
        let (a, b) = (&then.published, &now.published);
        let same = near(a.before, b.before) && near(a.after, b.after) && near(a.ratio, b.ratio);
        assert!(same && names(then) == names(now), "record {} anew: {then:?} {now:?}", experiment.experiment);
    }
    assert_eq!(then.len(), now.len(), "record {} anew", experiment.experiment);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::published::EXPERIMENTS;

    #[test]
    fn the_list_is_whole() {
        let all = figures();
        for (at, figure) in all.iter().enumerate() {
            let place = format!("{}: {}, {}", figure.document, figure.name, figure.metric);
            assert!(figure.published != Values::NONE || !figure.says.is_empty(), "nothing published: {place}");
            assert!(figure.belief.ends_with('.') && !figure.belief.contains(". "), "one sentence: {place}");
            // What can be judged was, and what cannot be says why.
            let judged = figure.judgement();
            assert_eq!(judged.is_none(), !figure.reason.is_empty(), "{place}");
            assert_ne!(judged, Some(Judgement::Unjudged), "{place}");
            let twice = all[..at]
                .iter()
                .any(|of| (of.document, &of.name, &of.metric) == (figure.document, &figure.name, &figure.metric));
            assert!(!twice, "listed twice: {place}");
        }
        let documents: Vec<&str> = all.iter().map(|figure| figure.document).collect();
        assert_eq!(documents.chunk_by(|a, b| a == b).count(), DOCUMENTS.len(), "in the order of documents");
    }

    /// Each row of an experiment that has a published figure is listed, or shows one that is.
    #[test]
    fn no_published_row_of_an_experiment_is_left_out() {
        for experiment in recorded() {
            for row in experiment.rows.iter().filter(|row| row.counts) {
                let listed = figures().iter().any(|figure| {
                    let of_row =
                        figure.row.as_ref().is_some_and(|of| (&of.name, &of.metric) == (&row.name, &row.metric));
                    figure.experiment == experiment.experiment
                        && (of_row || (&figure.name, &figure.metric) == (&row.name, &row.metric))
                });
                assert!(listed, "{}: {}, {}", experiment.experiment, row.name, row.metric);
            }
        }
        let names: Vec<&str> = recorded().iter().map(|of| of.experiment.as_str()).collect();
        assert_eq!(names, EXPERIMENTS.iter().map(|of| of.name).collect::<Vec<_>>());
    }

    /// A figure counts once: the sums of the documents are the score of all.
    #[test]
    fn the_score_counts_each_figure_once() {
        let all = score_of(None);
        let parts: Vec<Score> = DOCUMENTS.iter().map(|document| score_of(Some(document.name))).collect();
        let sum = |of: fn(&Score) -> usize| parts.iter().map(of).sum::<usize>();
        assert_eq!((all.agree, all.judged), (sum(|of| of.agree), sum(|of| of.judged)));
        let counted = figures().iter().filter(|figure| figure.counts()).count();
        assert_eq!(all.judged + all.indistinguishable + all.fitted + all.incomparable, counted);
        assert!(all.agree > 0 && all.agree < all.judged, "{all:?}");
    }

    #[test]
    fn a_wrong_line_is_told() {
        let belief = |reason: &str| Belief { belief: "b".into(), reason: reason.into(), sentence: "So.".into() };
        let beliefs = BTreeMap::from([("b".to_owned(), belief(""))]);
        let line = |document: &str, experiment: &str, belief: &str| Line {
            document: document.into(),
            experiment: experiment.into(),
            name: "n".into(),
            metric: "m".into(),
            row: String::new(),
            unit: "pages".into(),
            before: None,
            after: None,
            ratio: None,
            says: String::new(),
            belief: belief.into(),
        };
        let said = |line: Line| figure(line, &beliefs).expect_err("refused");
        assert_eq!(said(line("paper", "", "b")), "no document: paper: n, m");
        assert_eq!(said(line("mglru-v1", "", "c")), "no belief c: mglru-v1: n, m");
        assert_eq!(said(line("mglru-v1", "freepool", "b")), "freepool has no such row: mglru-v1: n, m");
    }
}
