//! What kernels have answered about accesses that are at hand, and how long asking would take.
//!
//! The criterion is strict: a kernel was asked the same accesses, entry by entry, told by their digest. A workload that
//! only looks alike can load another number of pages, as fio's Zipf law does beside a true one; so it does not count.
//!
//! Cost: nothing where no kernel was asked as many accesses, else a pass over them.

use std::path::Path;

use refault_lab::LabError;
use refault_lab::source::Accesses;

use crate::answers::{Answer, kept, shipped};
use crate::kernel::version_of;
use crate::sequence::digest_of;

/// The criterion, for those who read figures.
pub const CRITERION: &str = "the same accesses, entry by entry, by their digest";

/// The latest answer to each question about exactly these accesses, in the order of the tables; `accesses` is their
/// number. `cache` has the user's own answers.
///
/// # Errors
/// The user's answers or the accesses cannot be read.
pub fn answers(source: &dyn Accesses, accesses: u64, cache: &Path) -> Result<Vec<Answer>, LabError> {
    let own = kept(cache)?;
    let mut found: Vec<&Answer> = shipped().iter().chain(&own).filter(|answer| answer.accesses == accesses).collect();
    if !found.is_empty() {
        let digest = digest_of(source)?;
        found.retain(|answer| answer.digest == digest);
    }
    let question = |of: &Answer| (version_of(&of.kernel).to_owned(), of.lists, of.limit, of.swappiness, of.warm_up);
    let is_latest = |at: usize| !found[at + 1..].iter().any(|later| question(later) == question(found[at]));
    Ok((0..found.len()).filter(|at| is_latest(*at)).map(|at| found[at].clone()).collect())
}

/// Seconds for an emulated kernel, on two cores without KVM, to boot.
const BOOT: f64 = 20.0;
/// Seconds for an access, and more for one that loads its page.
const ACCESS: f64 = 15e-6;
const LOAD: f64 = 250e-6;

/// About how many seconds one kernel takes for a replay of `accesses` that load `loads` pages, on both kinds of lists.
/// Fitted to one answer on two busy cores without KVM: 1.8 million accesses by fio's law took eight minutes. KVM is faster.
pub fn seconds(accesses: u64, loads: u64) -> f64 {
    BOOT + 2.0 * (accesses as f64 * ACCESS + loads as f64 * LOAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use refault_lab::source::Source;

    fn known(workload: &str) -> Vec<Answer> {
        let source = Source::workload(workload.parse().expect("a workload"));
        let accesses = crate::sequence::Sequence::read(&source).expect("read").entries.len() as u64;
        let cache = tempfile::tempdir().expect("a directory");
        answers(&source, accesses, cache.path()).expect("looked up")
    }

    #[test]
    fn the_same_accesses_are_known_and_others_of_their_number_are_not() {
        let found = known("uniform:pages=16384,n=98304,type=1,seed=107");
        assert_eq!(found.len(), 12, "three kernels, two kinds of lists, two sizes");
        assert!(found.iter().all(|answer| answer.distinct <= 16384 && answer.accesses == 98304));
        // Another seed: as many accesses by the same law, and other ones.
        assert_eq!(known("uniform:pages=16384,n=98304,type=1,seed=106"), []);
        assert_eq!(known("uniform:pages=16384,n=98305,type=1,seed=107"), []);
    }

    #[test]
    fn the_latest_answer_of_a_version_counts() {
        let cache = tempfile::tempdir().expect("a directory");
        let source = Source::workload("uniform:pages=16384,n=98304,type=1,seed=107".parse().expect("a workload"));
        let mut again = answers(&source, 98304, cache.path()).expect("shipped").swap_remove(0);
        again.kernel = format!("{}.9-amd64", version_of(&again.kernel));
        again.counters.insert("loads".to_owned(), 1);
        crate::answers::keep(cache.path(), &[again.clone()]).expect("kept");
        let found = answers(&source, 98304, cache.path()).expect("found");
        assert_eq!(found.len(), 12);
        assert!(found.contains(&again));
    }
}
