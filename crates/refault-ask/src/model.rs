//! What the policies of the core make of accesses that a kernel is asked about.

use std::collections::BTreeMap;

use refault_lab::LabError;
use refault_lab::Progress;
use refault_lab::policies::parse_policies;
use refault_lab::size::Size;
use refault_lab::source::Accesses;
use refault_lab::sweep::{Sweep, WarmUp, sweep};

use crate::answers::Answer;
use crate::job::{Counters, Lists};
use crate::kernel::version_of;

/// The policy that is a kernel's: by its version, such as `6.12`.
pub fn policy(version: &str, lists: Lists) -> &'static str {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match (lists, version) {
        // Batches of 15 pages, and costs as they were noted then.
        (Lists::Classic, (..6, _) | (6, ..=2)) => "classic{batch=15,plain_costs=yes}",
        (Lists::Classic, _) => "classic",
        (Lists::Generations, (..6, _) | (6, ..=2)) => "mglru{batch=15}",
        (Lists::Generations, (6, _)) => "mglru",
        (Lists::Generations, _) => "mglru{version=7.2}",
    }
}

/// What is asked of the model: the same as of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Pages of data in memory.
    pub limit: u64,
    /// The inclination to swap.
    pub swappiness: u64,
    /// Accesses at the start that are not counted.
    pub warm_up: u64,
}

/// The counters that the model has, by policy, in the order asked.
///
/// # Errors
/// The source cannot be read.
pub fn answer(
    source: &dyn Accesses,
    question: Question,
    policies: &[&str],
    progress: &dyn Progress,
) -> Result<Vec<Counters>, LabError> {
    let with_swappiness = |policy: &&str| {
        let swappiness = format!("swappiness={}", question.swappiness);
        match policy.strip_suffix('}') {
            Some(open) => format!("{open},{swappiness}}}"),
            None => format!("{policy}{{{swappiness}}}"),
        }
    };
    let names: Vec<String> = policies.iter().map(with_swappiness).collect();
    let mut plan = Sweep::new(parse_policies(&names)?, vec![Size::Pages(question.limit)]);
    plan.warm_up = WarmUp::Accesses(question.warm_up);
    let runs = sweep(source, &plan, progress)?.runs;
    let counted = names.iter().map(|_| Counters::new());
    let mut answers: Vec<Counters> = counted.collect();
    // One size: as many runs as policies, in their order.
    for (answer, run) in answers.iter_mut().zip(&runs) {
        let counters = &run.outcome.counters;
        let values = [
            ("loads", counters.pswpin + counters.file_reads),
            ("file_reads", counters.file_reads),
            ("pswpin", counters.pswpin),
            ("pswpout", counters.pswpout),
            ("pgscan", counters.pgscan),
            ("pgsteal", counters.pgsteal),
            ("pgactivate", counters.pgactivate),
            ("pgdeactivate", counters.pgdeactivate),
            ("pgrefill", counters.pgrefill),
            ("workingset_refault_anon", counters.workingset_refault_anon),
            ("workingset_refault_file", counters.workingset_refault_file),
            ("workingset_activate_anon", counters.workingset_activate_anon),
            ("workingset_activate_file", counters.workingset_activate_file),
            ("workingset_restore_anon", counters.workingset_restore_anon),
            ("workingset_restore_file", counters.workingset_restore_file),
        ];
        answer.extend(values.map(|(name, value)| (name.to_owned(), value)));
    }
    Ok(answers)
}

/// A kernel's answer beside the model's to the same question.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The kernel's.
    pub answer: Answer,
    /// The policy that is the kernel's.
    pub policy: &'static str,
    /// What it counts.
    pub model: Counters,
}

impl Compared {
    /// The model's value of a counter less the kernel's, in per cent of the kernel's; `None` if one of them has none or the
    /// kernel's is 0.
    pub fn off(&self, counter: &str) -> Option<f64> {
        let (kernel, model) = (*self.answer.counters.get(counter)? as f64, *self.model.get(counter)? as f64);
        (kernel > 0.0).then(|| 100.0 * (model - kernel) / kernel)
    }
}

/// Answers about a source's accesses, in their order, beside what the model says of the same accesses. A policy is replayed
/// once for each limit, swappiness and warm-up.
///
/// # Errors
/// The source cannot be read.
pub fn beside(source: &dyn Accesses, answers: Vec<Answer>, progress: &dyn Progress) -> Result<Vec<Compared>, LabError> {
    let policy_of = |answer: &Answer| policy(version_of(&answer.kernel), answer.lists);
    let question_of = |answer: &Answer| (answer.limit, answer.swappiness, answer.warm_up);
    let mut questions: BTreeMap<(u64, u64, u64), BTreeMap<&str, Counters>> = BTreeMap::new();
    for of in &answers {
        questions.entry(question_of(of)).or_default().insert(policy_of(of), Counters::new());
    }
    for ((limit, swappiness, warm_up), modelled) in &mut questions {
        let policies: Vec<&str> = modelled.keys().copied().collect();
        let question = Question { limit: *limit, swappiness: *swappiness, warm_up: *warm_up };
        let counted = answer(source, question, &policies, progress)?;
        modelled.values_mut().zip(counted).for_each(|(model, counters)| *model = counters);
    }
    let compared = |answer: Answer| {
        let policy = policy_of(&answer);
        let model = questions[&question_of(&answer)][policy].clone();
        Compared { answer, policy, model }
    };
    Ok(answers.into_iter().map(compared).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use refault_trace::Source;

    #[test]
    fn kernels_have_policies_and_policies_count() {
        assert_eq!(policy("6.1", Lists::Classic), "classic{batch=15,plain_costs=yes}");
        assert_eq!(policy("6.12", Lists::Generations), "mglru");
        assert_eq!(policy("7.2", Lists::Generations), "mglru{version=7.2}");
        let source = Source::workload("uniform:pages=4096,accesses=40000,kind=fd".parse().expect("a workload"));
        let question = Question { limit: 1024, swappiness: 60, warm_up: 10_000 };
        let policies = [policy("6.1", Lists::Classic), policy("6.12", Lists::Generations)];
        let answers = answer(&source, question, &policies, &()).expect("replayed");
        for answer in &answers {
            assert!((20_000..24_000).contains(&answer["loads"]) && answer["pswpin"] == 0, "{answer:?}");
        }
        assert_eq!(answers[1]["pgdeactivate"], 0);
    }
}
