//! What the policies of the core make of accesses that a kernel is asked about.

use refault_lab::LabError;
use refault_lab::Progress;
use refault_lab::policies::parse_policies;
use refault_lab::size::Size;
use refault_lab::source::Accesses;
use refault_lab::sweep::{Sweep, WarmUp, sweep};

use crate::job::{Counters, Lists};

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
