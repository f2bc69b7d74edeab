//! Real programs under `refault run`: the same output and the same end as alone, memory within the budget, and a table
//! of both and of time.
//!
//! `REFAULT_GAUNTLET=all` adds the programs that take long. Programs that are not installed are named.

mod common;
#[path = "common/known.rs"]
mod known;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use common::skipped;
use known::Tally;
use refault_proof::gauntlet::{Attempt, Gauntlet};
use refault_testing::skip;

#[test]
fn real_programs_do_under_a_budget_what_they_do_alone() {
    if skipped(&["bash"]) {
        return;
    }
    let gauntlet = Gauntlet::new().expect("the programs are there");
    let all = std::env::var_os("REFAULT_GAUNTLET").is_some_and(|which| which == "all");
    let (mut tally, mut budgets) = (Tally::new("gauntlet"), Tally::new("budget"));
    let programs: Vec<_> = gauntlet.programs().iter().filter(|program| all || !program.long).collect();
    let (next, (sender, attempts)) = (AtomicUsize::new(0), channel());
    // Two at a time: most programs keep one processor busy.
    std::thread::scope(|scope| {
        for sender in [sender.clone(), sender] {
            let (programs, next, gauntlet) = (&programs, &next, &gauntlet);
            scope.spawn(move || {
                while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let attempt = gauntlet.run(program, known::refault(), &[]).expect("a shell can be started");
                    sender.send((program, attempt)).expect("the judge receives");
                }
            });
        }
        for (program, attempt) in attempts {
            match attempt {
                Attempt::Ran(row) => {
                    tally.add(&program.name, row.is_right(), &row);
                    budgets.add_quietly(&program.name, row.keeps_its_bound(), &row);
                }
                Attempt::Missing(what) => skip(format_args!("{}: missing: {what}", program.name)),
                Attempt::Unusable(why) => skip(format_args!("{}: does not run alone: {why}", program.name)),
            }
        }
    });
    println!("what they print and how they end:");
    tally.judge();
    println!("what they use of memory:");
    budgets.judge();
}
