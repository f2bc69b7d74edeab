//! Small C programs that behave under `refault run` as without, each for one thing that is easily got wrong.

mod common;
#[path = "common/known.rs"]
mod known;

use common::skipped;
use known::Tally;
use refault_proof::probe::{Attempt, Bench, PROBES};
use refault_testing::skip;

#[test]
fn probes_see_no_difference() {
    if skipped(&["cc"]) {
        return;
    }
    let bench = Bench::new().expect("a directory can be made");
    let mut tally = Tally::new("probes");
    for probe in &PROBES {
        match bench.run(probe, known::refault(), &[]).expect("the probe compiles and starts") {
            Attempt::Ran(comparison) => tally.add(probe.name, comparison.is_right(), &comparison),
            Attempt::Skipped(why) => skip(format_args!("{}: {why}", probe.name)),
        }
    }
    tally.judge();
}
