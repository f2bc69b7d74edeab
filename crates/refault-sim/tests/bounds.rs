//! Exact misses of OPT, LRU and FIFO on the sequences that real kernels were measured on. Beside them stands what
//! another program computed for them (`bounds.csv` of `refault-testing`).

use std::collections::BTreeMap;
use std::sync::Arc;

use refault_core::textbook::{Fifo, Lru, NextUse, Opt};
use refault_core::{Classic, ClassicParams, Mglru, MglruParams, Policy};
use refault_sim::flat_memory::Swap;
use refault_sim::{Access, Layout, LayoutBuilder, Limits, Outcome, Replay};
use refault_testing::kernel_table;
use refault_trace::{Source, WorkloadSpec};

struct Sequence {
    layout: Layout,
    accesses: Vec<Access>,
    next_use: Arc<NextUse>,
}

impl Sequence {
    fn new(spec: WorkloadSpec) -> Sequence {
        let mut reader = Source::workload(spec).open().expect("generators open");
        let entries = reader.read_to_end().expect("generators do not fail");
        let mut builder = LayoutBuilder::new();
        builder.observe(&entries);
        let layout = builder.finish().expect("a small trace");
        let mut accesses = Vec::new();
        layout.translate(&entries, &mut accesses);
        let pages = accesses.iter().map(|access| access.page()).collect();
        let next_use = NextUse::new(pages).expect("fewer than 2^32 accesses").into();
        Sequence { layout, accesses, next_use }
    }

    fn misses<P: Policy>(&self, policy: P, memory_pages: usize) -> u64 {
        self.replay(policy, memory_pages).misses
    }

    fn replay<P: Policy>(&self, policy: P, memory_pages: usize) -> Outcome {
        let mut replay = Replay::new(&self.layout, policy, Limits { memory_pages, swap: Swap::default() });
        replay.run(&self.accesses);
        replay.outcome()
    }
}

#[test]
fn opt_lru_and_fifo_miss_exactly_as_often_as_computed_elsewhere() {
    let workloads = kernel_table("workloads.csv");
    let sequences: BTreeMap<&str, &str> = workloads
        .lines()
        .skip(1)
        .map(|line| (line.split(',').next().expect("a name"), line.rsplit(',').next().expect("arguments")))
        .collect();
    let bounds = kernel_table("bounds.csv");
    let mut last: Option<(&str, Sequence)> = None;
    let mut compared = 0;
    for line in bounds.lines().skip(1) {
        let row: Vec<&str> = line.split(',').collect();
        let number = |column: usize| row[column].parse::<u64>().expect("a number");
        if last.as_ref().is_none_or(|(name, _)| *name != row[0]) {
            let arguments = sequences[row[0]].strip_prefix("kind=").expect("the kind comes first");
            let spec = arguments.replacen(' ', ":", 1).replace(' ', ",").parse().expect("a workload of ours");
            last = Some((row[0], Sequence::new(spec)));
        }
        let (_, sequence) = last.as_ref().expect("just made");
        let memory = number(2) as usize;
        let ours = [
            sequence.misses(Opt::new(sequence.next_use.clone()), memory),
            sequence.misses(Lru::default(), memory),
            sequence.misses(Fifo::default(), memory),
        ];
        assert_eq!(ours, [number(4), number(5), number(6)], "{} with {memory} pages: OPT, LRU, FIFO", row[0]);
        compared += 1;
    }
    assert!(compared >= 20, "only {compared} rows");
}

#[test]
fn no_kernel_beats_opt_or_its_limit_where_a_batch_would_be_all_of_memory() {
    for kind in ["fd", "mapped", "anon"] {
        let spec = format!("zipf:theta=0.9,pages=200,accesses=20000,kind={kind},seed=7");
        let sequence = Sequence::new(spec.parse().expect("a workload of ours"));
        for memory in 1..=40 {
            let opt = sequence.misses(Opt::new(sequence.next_use.clone()), memory);
            let kernels = [
                ("classic", sequence.replay(Classic::new(ClassicParams::default()), memory)),
                ("classic-shadow", sequence.replay(Classic::new(ClassicParams::shadow_lru()), memory)),
                ("mglru", sequence.replay(Mglru::new(MglruParams::default()), memory)),
            ];
            for (name, outcome) in kernels {
                let overruns = outcome.counters.limit_overruns;
                assert!(outcome.misses >= opt, "{name} with {memory} {kind} pages: {} of {opt} misses", outcome.misses);
                assert!(outcome.resident <= memory, "{name} with {memory} {kind} pages: {}", outcome.resident);
                assert_eq!(overruns, 0, "{name} with {memory} {kind} pages");
            }
        }
    }
}
