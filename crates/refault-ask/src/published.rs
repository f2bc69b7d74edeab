//! Published figures that kernels' answers speak to: the rows of experiments, measured by real kernels over the accesses
//! that the tables of answers have.
//!
//! A kernel is not the document's machine: sizes and devices differ. So its values are shown and never judged.

use refault_lab::experiment::{Asked, Experiment, Values};
use refault_lab::experiments::lru_sort::pulsed::METRICS;
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

const FIGURES: [Figure; 3] = [
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
        let answers = shipped().iter().filter(|answer| {
            (answer.workload.as_str(), answer.limit) == (figure.question.workload, figure.question.limit)
        });
        let source = Source::workload(figure.question.workload.parse()?);
        let compared = beside(&source, answers.cloned().collect(), progress)?;
        let mut versions: Vec<&str> = compared.iter().map(|of| version_of(&of.answer.kernel)).collect();
        versions.sort_unstable();
        versions.dedup();
        for version in versions {
            let of = |lists: Lists| {
                compared.iter().find(|of| version_of(&of.answer.kernel) == version && of.answer.lists == lists)
            };
            let (Some(before), Some(after)) = (of(figure.lists[0]), of(figure.lists[1])) else { continue };
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

/// What kernels said of the experiment's programs under a limit that pulses, classic lists, each at a size of its own.
fn pulsed(experiment: &Experiment) -> Result<Vec<Asked>, LabError> {
    let mut rows = Vec::new();
    if experiment.experiment != "lru-sort" {
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
