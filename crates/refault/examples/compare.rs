//! Which policy suits a trace, and how much memory is enough?
//!
//! `cargo run --release --example compare -- trace.u64.zst` reads a trace in any format that the command reads; without
//! one it takes a generated workload.

use refault::lab::curve::{CurvePlan, curves};
use refault::lab::policies::parse_policies;
use refault::lab::size::pages_text;
use refault::lab::sweep::{Sweep, jobs, memory_budget, sweep};
use refault::trace::{Options, Source};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = match std::env::args_os().nth(1) {
        Some(path) => Source::file(path, Options::default()),
        None => Source::workload("scanhot:pages=16384,accesses=400000,hot=2458,kind=fd".parse()?),
    };
    let policies = parse_policies(&["lru,arc,s3fifo,classic,mglru,opt".into()])?;

    let sizes = vec!["10%".parse()?, "25%".parse()?, "50%".parse()?];
    let result = sweep(&source, &Sweep::new(policies.clone(), sizes), &())?;
    println!("{}: {} accesses to {} pages", result.trace, result.accesses, result.distinct_pages);
    for run in &result.runs {
        println!("{:12} {:>9}  {:5.2} % miss", run.policy, pages_text(run.memory_pages), 100.0 * run.miss_ratio());
    }

    let plan = CurvePlan {
        policies: parse_policies(&["lru".into()])?,
        sampling: None,
        jobs: jobs(None),
        memory_budget: memory_budget(),
    };
    let found = curves(&source, &plan, |footprint| vec![footprint], &())?;
    if let Some(enough) = found.curves[0].memory_for(found.first_touches() + 0.01) {
        println!("lru: {} gives at most 1 % misses beyond first touches", pages_text(enough.memory_pages));
    }
    Ok(())
}
