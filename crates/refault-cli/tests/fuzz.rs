//! Random memory calls beside the bare kernel.
//!
//! `REFAULT_FUZZ_SEED` and `REFAULT_FUZZ_SECONDS` change where it starts and how long it goes on; the seed is the day
//! otherwise, so that every day tries something new and a failure can be had again.

mod common;
#[path = "common/known.rs"]
mod known;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::skipped;
use known::Tally;
use refault_proof::fuzz::{FOUND, Fuzzer, Tool};

const SECONDS: u64 = 10;
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
/// Apart enough that the seeds of two days do not overlap.
const SEEDS_PER_DAY: u64 = 1_000_000;

#[test]
fn random_calls_do_what_the_bare_kernel_does() {
    if skipped(&["cc"]) {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let today = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() / SECONDS_PER_DAY);
    let seed = number("REFAULT_FUZZ_SEED").unwrap_or(today * SEEDS_PER_DAY);
    let time = Duration::from_secs(number("REFAULT_FUZZ_SECONDS").unwrap_or(SECONDS));
    let fuzzer = Fuzzer::new(&Tool::new(known::refault())).expect("the walker compiles");
    let report = fuzzer.run(seed, time, 1, |failure| println!("{failure}")).expect("the walker starts");
    assert!(report.sequences > 0 && report.unsteady < report.sequences, "{report}");
    let mut tally = Tally::new("fuzz");
    tally.add("sequences", report.failures.is_empty(), &report);
    tally.judge();
}

#[test]
fn sequences_that_differed_once_do_not_any_more() {
    if skipped(&["cc"]) {
        return;
    }
    let fuzzer = Fuzzer::new(&Tool::new(known::refault())).expect("the walker compiles");
    for (name, sequence) in FOUND {
        let difference = fuzzer.compare(sequence).expect("the walker starts");
        assert!(difference.is_none(), "{name}:\n{}", difference.map(|it| it.to_string()).unwrap_or_default());
    }
}
