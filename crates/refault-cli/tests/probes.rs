//! Small C programs that behave under `refault run` as without, each for one thing that is easily got wrong.

mod common;
#[path = "common/known.rs"]
mod known;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use common::skipped;
use known::Tally;
use refault_proof::probe::{Attempt, Bench, PROBES};
use refault_testing::skip;

#[test]
fn probes_see_no_difference() {
    if skipped(&["cc"]) {
        return;
    }
    let mut tally = Tally::new("probes");
    let (next, (sender, attempts)) = (AtomicUsize::new(0), channel());
    // Two at a time, each in a directory of its own: most keep one processor busy at most.
    std::thread::scope(|scope| {
        for sender in [sender.clone(), sender] {
            let next = &next;
            scope.spawn(move || {
                let bench = Bench::new().expect("a directory can be made");
                while let Some(probe) = PROBES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let attempt = bench.run(probe, known::refault(), &[]).expect("the probe compiles and starts");
                    sender.send((probe, attempt)).expect("the judge receives");
                }
            });
        }
        for (probe, attempt) in attempts {
            match attempt {
                Attempt::Ran(comparison) => tally.add(probe.name, comparison.is_right(), &comparison),
                Attempt::Skipped(why) => skip(format_args!("{}: {why}", probe.name)),
            }
        }
    });
    tally.judge();
}
