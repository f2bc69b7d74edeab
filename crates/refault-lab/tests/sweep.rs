//! Sweeps: threads and neighbouring traces change no result, and traces that change or fail end in words.

use std::sync::atomic::{AtomicUsize, Ordering};

use refault_lab::LabError;
use refault_lab::policies::parse_policies;
use refault_lab::source::{Accesses, TraceReader};
use refault_lab::sweep::{Sweep, TraceRuns, run_all, sweep};
use refault_trace::{Entry, Kind, Source, TraceError};

fn plan(jobs: usize) -> Sweep {
    let policies = parse_policies(&["lru,s3fifo,mglru,adaptive,opt,wtinylfu".into()]).unwrap();
    let sizes = ["3%", "20%", "70%"].map(|size| size.parse().unwrap());
    Sweep { jobs, ..Sweep::new(policies, sizes.to_vec()) }
}

fn figures(runs: &TraceRuns) -> Vec<String> {
    let run = |run: &refault_lab::sweep::Run| format!("{} {} {:?}", run.policy, run.memory_pages, run.outcome);
    runs.runs.iter().map(run).collect()
}

#[test]
fn threads_groups_and_neighbours_change_nothing() {
    let workloads = [
        "zipf:theta=1.1,pages=3000,accesses=700000",
        "cyclic:pages=900,accesses=36000",
        "uniform:pages=70,accesses=9000",
    ];
    let sources = workloads.map(|workload| Source::workload(workload.parse().unwrap()));
    let alone: Vec<_> = sources.iter().map(|source| figures(&sweep(source, &plan(1), &()).unwrap())).collect();
    for jobs in [1, 2, 3, 40] {
        let together = run_all(&sources, &plan(jobs), &()).unwrap();
        assert_eq!(together.iter().map(figures).collect::<Vec<_>>(), alone, "{jobs} threads");
    }
    let narrow = Sweep { memory_budget: 8 * 700_000 + 1, ..plan(2) };
    assert_eq!(figures(&sweep(&sources[0], &narrow, &()).unwrap()), alone[0], "few simulations at a time");
}

/// A trace of 100 pages, `step` apart, whose later passes have `later` more on each number.
struct Changing {
    name: &'static str,
    step: u64,
    later: u64,
    passes: AtomicUsize,
}

struct Pages(Vec<Entry>);

impl TraceReader for Pages {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        *out = std::mem::take(&mut self.0);
        Ok(out.len())
    }
}

impl Accesses for Changing {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self) -> Result<Box<dyn TraceReader>, LabError> {
        let later = if self.passes.fetch_add(1, Ordering::Relaxed) == 0 { 0 } else { self.later };
        Ok(Box::new(Pages((0..100).map(|at| Entry::new(at * self.step + later, Kind::Anon, false)).collect())))
    }
}

fn changing(name: &'static str, step: u64, later: u64) -> Changing {
    Changing { name, step, later, passes: AtomicUsize::new(0) }
}

#[test]
fn a_trace_that_changes_while_it_is_read_is_refused() {
    for step in [1, 1000] {
        let lru = Sweep { policies: parse_policies(&["lru".into()]).unwrap(), ..plan(1) };
        assert_eq!(sweep(&changing("same", step, 0), &lru, &()).unwrap().distinct_pages, 100);
        let error = sweep(&changing("other pages", step, 1_000_003), &lru, &()).unwrap_err().to_string();
        assert!(error.contains("a trace has changed"), "{error}");
    }
}

#[test]
fn of_several_failures_the_first_is_told() {
    struct Empty(&'static str);
    impl Accesses for Empty {
        fn name(&self) -> String {
            self.0.into()
        }
        fn open(&self) -> Result<Box<dyn TraceReader>, LabError> {
            Ok(Box::new(Pages(Vec::new())))
        }
    }
    for jobs in [1, 2, 40] {
        let error = run_all(&[Empty("first"), Empty("second")], &plan(jobs), &()).unwrap_err().to_string();
        assert!(error.contains("first"), "{jobs} threads: {error}");
    }
}
