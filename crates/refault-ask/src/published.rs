//! Published figures that kernels' answers speak to: the rows of experiments, measured by real kernels over the accesses
//! that the tables of answers have.
//!
//! A kernel is not the document's machine: sizes and devices differ. So its values are shown and never judged.

use refault_lab::experiment::{Asked, Experiment, Values};
use refault_lab::experiments::lru_sort::pulsed::METRICS;
use refault_lab::experiments::lru_sort::{SLOW_DOWN, Variant};
use refault_lab::{LabError, Progress};
use refault_trace::{Kind, Source};

use crate::answers::pulses;
use crate::answers::{Answer, shipped};
use crate::job::{Counters, Lists};
use crate::kernel::version_of;
use crate::model::{Compared, beside};

/// Reads at random through descriptors, of four times memory.
const RANDOM: Question = Question { workload: "uniform:pages=16384,n=98304,type=1,seed=107", limit: 4096 };
/// Reads by fio's Zipf law, of three times memory.
const ZIPF: Question = Question {
    workload: "fio:random_distribution=zipf:0.5,norandommap=1,size=24m,io_size=614400000,numjobs=12",
    limit: 22_400,
};

/// Which answers.
struct Question {
    workload: &'static str,
    limit: u64,
}

impl Question {
    /// The shipped answers to it.
    fn answers(&self) -> Vec<&'static Answer> {
        let is_it = |answer: &&Answer| (answer.workload.as_str(), answer.limit) == (self.workload, self.limit);
        shipped().iter().filter(is_it).collect()
    }
}

/// A row of an experiment that answers have a value for.
struct Figure {
    experiment: &'static str,
    /// The row's.
    name: &'static str,
    metric: &'static str,
    question: &'static Question,
    /// The lists before and after.
    lists: [Lists; 2],
    value: fn(&Answer, &Counters) -> f64,
}

const FIGURES: [Figure; 4] = [
    Figure {
        experiment: "mglru-fio",
        name: "fio thread and kswapd",
        metric: "pgactivate",
        question: &RANDOM,
        lists: [Lists::Classic, Lists::Generations],
        value: |_, counters| counted(counters, "pgactivate"),
    },
    Figure {
        experiment: "mglru-fio",
        name: "fio thread and kswapd",
        metric: "pgdeactivate",
        question: &RANDOM,
        lists: [Lists::Classic, Lists::Generations],
        value: |_, counters| counted(counters, "pgdeactivate"),
    },
    Figure {
        experiment: "mglru-fio",
        name: "kswapd and fio thread",
        metric: "moves between lists per reclaimed page",
        question: &RANDOM,
        lists: [Lists::Classic, Lists::Generations],
        value: |_, counters| {
            let moves = counted(counters, "pgactivate") + counted(counters, "pgrefill");
            moves / counted(counters, "pgsteal").max(1.0)
        },
    },
    Figure {
        experiment: "mglru-refault",
        name: "fio zipf 0.5: multi-gen LRU off against the fix",
        metric: "hit ratio",
        question: &ZIPF,
        lists: [Lists::Generations, Lists::Classic],
        value: |answer, counters| 1.0 - counted(counters, "loads") / (answer.accesses - answer.warm_up) as f64,
    },
];

fn counted(counters: &Counters, name: &str) -> f64 {
    counters.get(name).copied().unwrap_or(0) as f64
}

/// What the shipped answers say of an experiment's rows, kernel by kernel, beside the document, the model over the same
/// accesses and, where it was measured, this machine. Cost: a replay for each kind of lists.
///
/// # Errors
/// A workload cannot be generated.
pub fn asked(experiment: &Experiment, progress: &dyn Progress) -> Result<Vec<Asked>, LabError> {
    let mut rows = pulsed(experiment)?;
    for figure in FIGURES.iter().filter(|figure| figure.experiment == experiment.experiment) {
        let same = |name: &str, metric: &str| (name, metric) == (figure.name, figure.metric);
        let Some(row) = experiment.rows.iter().find(|row| same(&row.name, &row.metric)) else { continue };
        let here = experiment.here.iter().find(|row| same(&row.name, &row.metric));
        let source = Source::workload(figure.question.workload.parse()?);
        let compared = beside(&source, figure.question.answers().into_iter().cloned().collect(), progress)?;
        for [before, after] in pairs(&compared, |of| &of.answer, figure.lists) {
            let value = |of: &Compared, counters: &Counters| (figure.value)(&of.answer, counters);
            rows.push(Asked {
                name: row.name.clone(),
                metric: row.metric.clone(),
                unit: row.unit.clone(),
                kernel: after.answer.kernel.clone(),
                published: row.published,
                values: Values::of(value(before, &before.answer.counters), value(after, &after.answer.counters)),
                model: Values::of(value(before, &before.model), value(after, &after.model)),
                here: here.map(|row| row.values),
            });
        }
    }
    Ok(rows)
}

/// For each version of the kernel that was asked about both kinds of lists, in order: before and after.
fn pairs<T>(all: &[T], answer: impl Fn(&T) -> &Answer, lists: [Lists; 2]) -> Vec<[&T; 2]> {
    let mut versions: Vec<&str> = all.iter().map(|of| version_of(&answer(of).kernel)).collect();
    versions.sort_unstable();
    versions.dedup();
    let pair = |version: &str| {
        let of =
            |lists: Lists| all.iter().find(|of| version_of(&answer(of).kernel) == version && answer(of).lists == lists);
        Some([of(lists[0])?, of(lists[1])?])
    };
    versions.into_iter().filter_map(pair).collect()
}

/// What the shipped answers say of one row of an experiment: kernels' releases, each with its values. Costs no replay.
///
/// ```
/// let kernels = refault_ask::published::of_row("mglru-fio", "fio thread and kswapd", "pgactivate");
/// assert!(kernels.iter().all(|(_, values)| values.before > Some(1000.0) && values.after < Some(10.0)));
/// ```
pub fn of_row(experiment: &str, name: &str, metric: &str) -> Vec<(String, Values)> {
    let is_it = |figure: &&Figure| (figure.experiment, figure.name, figure.metric) == (experiment, name, metric);
    let of_figure = |figure: &'static Figure| {
        let answers = figure.question.answers();
        let value = |answer: &Answer| (figure.value)(answer, &answer.counters);
        let said = |[before, after]: [&&Answer; 2]| (after.kernel.clone(), Values::of(value(before), value(after)));
        pairs(&answers, |answer| answer, figure.lists).into_iter().map(said).collect::<Vec<_>>()
    };
    let mut all: Vec<(String, Values)> = FIGURES.iter().filter(is_it).flat_map(of_figure).collect();
    if experiment == PULSED {
        let of_program = |answer: &&pulses::Answer| answer.lists == Lists::Classic && answer.pulse.program == name;
        let said = |answer: &'static pulses::Answer| {
            let runtime = |variant| answer.metric(variant, METRICS[0].0);
            let values = match metric {
                SLOW_DOWN => Values::of(runtime(Variant::Orig)?, runtime(Variant::Mprs)?),
                _ => answer.values(metric)?,
            };
            Some((answer.kernel.clone(), values))
        };
        all.extend(pulses::shipped().iter().filter(of_program).filter_map(said));
    }
    all
}

/// The experiment whose programs kernels ran under a limit that pulses.
const PULSED: &str = "lru-sort";

/// What kernels said of the experiment's programs under a limit that pulses, classic lists, each at a size of its own.
fn pulsed(experiment: &Experiment) -> Result<Vec<Asked>, LabError> {
    let mut rows = Vec::new();
    if experiment.experiment != PULSED {
        return Ok(rows);
    }
    for answer in pulses::shipped().iter().filter(|answer| answer.lists == Lists::Classic) {
        let model = answer.model()?;
        for (metric, unit) in METRICS {
            let same = |name: &str, of: &str| (name, of) == (answer.pulse.program.as_str(), metric);
            let Some(row) = experiment.rows.iter().find(|row| same(&row.name, &row.metric)) else { continue };
            rows.push(Asked {
                name: row.name.clone(),
                metric: row.metric.clone(),
                unit: unit.to_owned(),
                kernel: answer.kernel.clone(),
                published: row.published,
                values: answer.values(metric).unwrap_or(Values::NONE),
                model: model.as_ref().and_then(|model| model.values(metric)).unwrap_or(Values::NONE),
                here: experiment.here.iter().find(|here| same(&here.name, &here.metric)).map(|here| here.values),
            });
        }
    }
    Ok(rows)
}

/// What was published of a counter for accesses like these, which are told by their law: reads at random through
/// descriptors activate and deactivate nothing under generations.
pub fn counter(source: &Source, lists: Lists, counter: &str) -> Option<f64> {
    let spec = match source {
        Source::Workload(spec) => spec,
        Source::Part { whole, .. } => return self::counter(whole, lists, counter),
        _ => return None,
    };
    let at_random = spec.to_string().starts_with("uniform:") && spec.kind == Kind::Fd;
    let is_published = ["pgactivate", "pgdeactivate"].contains(&counter);
    (at_random && is_published && lists == Lists::Generations).then_some(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each question is one that shipped answers are to, of several kernels and both kinds of lists.
    #[test]
    fn questions_were_asked() {
        for question in [&RANDOM, &ZIPF] {
            let of = |lists: Lists| {
                let answers = shipped().iter().filter(|answer| answer.lists == lists);
                answers
                    .filter(|answer| (answer.workload.as_str(), answer.limit) == (question.workload, question.limit))
                    .count()
            };
            assert!(of(Lists::Classic) >= 2 && of(Lists::Generations) == of(Lists::Classic), "{}", question.workload);
        }
    }

    #[test]
    fn a_row_has_what_each_kernel_said_of_it() {
        let hits = of_row("mglru-refault", "fio zipf 0.5: multi-gen LRU off against the fix", "hit ratio");
        let versions: Vec<&str> = hits.iter().map(|(kernel, _)| version_of(kernel)).collect();
        assert_eq!(versions, ["6.12", "7.2"]);
        // Before are generations, after classic lists: 6.12's generations hit more, 7.2's less.
        assert!(hits[0].1.ratio < Some(0.95) && hits[1].1.ratio > Some(1.03), "{hits:?}");
        assert_eq!(of_row("lru-sort", "parsec3/canneal", "monitor_cpu").len(), 2);
        assert!(of_row("lru-sort", "parsec3/vips", "monitor_cpu").is_empty());
    }

    #[test]
    fn counters_were_published_of_reads_at_random_alone() {
        let of = |workload: &str, lists, name| {
            counter(&Source::workload(workload.parse().expect("a workload")), lists, name)
        };
        assert_eq!(of(RANDOM.workload, Lists::Generations, "pgactivate"), Some(0.0));
        assert_eq!(of(RANDOM.workload, Lists::Classic, "pgactivate"), None);
        assert_eq!(of(RANDOM.workload, Lists::Generations, "loads"), None);
        assert_eq!(of("uniform:pages=64,accesses=128,kind=anon", Lists::Generations, "pgactivate"), None);
        assert_eq!(of(ZIPF.workload, Lists::Generations, "pgactivate"), None);
    }
}
