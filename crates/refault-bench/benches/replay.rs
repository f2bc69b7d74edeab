//! How fast each policy replays: accesses per second on one core, and metadata per page.
//!
//! `cargo bench -p refault-bench --bench replay -- [ACCESSES] [POLICY,…] [PAGES]`: by default 20 million accesses of
//! zipf(1.0) over 2^20 pages, made in memory; the figures that the documentation states are for 100 million. Each row
//! is the best of three runs. Time is processor time of the thread where Linux tells it, so that other programs on the
//! machine disturb little, and wall time elsewhere. Making and translating the trace is not counted.

use std::time::Instant;

use refault_core::Policy;
use refault_core::textbook::{Arc, Clock, Fifo, Lirs, Lrfu, Lru, NextUse, Opt, S3Fifo, Sieve, TwoQueue, WTinyLfu};
use refault_core::{Classic, ClassicParams, Mglru, MglruParams};
use refault_sim::flat_memory::Swap;
use refault_sim::{Access, Layout, LayoutBuilder, Limits, Replay};
use refault_trace::Source;

const MEMORY_PERCENT: [usize; 2] = [50, 10];
const REPEATS: usize = 3;
/// Entries handed to the replay at once: what a streaming front-end does.
const BLOCK: usize = 1 << 16;

/// A trace with the kind of its accesses, as some policies tell kinds apart.
struct Trace {
    layout: Layout,
    accesses: Vec<Access>,
}

impl Trace {
    fn zipf(kind: &str, accesses: usize, pages: usize) -> Trace {
        let spec = format!("zipf:theta=1.0,pages={pages},accesses={accesses},kind={kind}");
        let source = Source::workload(spec.parse().expect("a valid workload"));
        let mut builder = LayoutBuilder::new();
        for_each_block(&source, |block| builder.observe(block));
        let layout = builder.finish().expect("fewer than 2^32 pages");
        let mut trace = Trace { accesses: Vec::with_capacity(accesses), layout };
        for_each_block(&source, |block| trace.layout.translate(block, &mut trace.accesses));
        trace
    }
}

fn for_each_block(source: &Source, mut each: impl FnMut(&[refault_trace::Entry])) {
    let mut reader = source.open().expect("a workload needs no file");
    let mut buffer = Vec::new();
    loop {
        let block = reader.next_block(&mut buffer).expect("a workload cannot fail");
        if block.is_empty() {
            break;
        }
        each(block);
    }
}

/// Prints one row for each memory size, if the policy was asked for.
fn measure<P: Policy>(name: &str, wanted: &str, trace: &Trace, policy: impl Fn() -> P) {
    if !wanted.is_empty() && !wanted.split(',').any(|w| w == name) {
        return;
    }
    for percent in MEMORY_PERCENT {
        let pages = trace.layout.distinct_pages() as usize;
        let memory_pages = (pages * percent / 100).max(1);
        let mut best = f64::INFINITY;
        let (mut misses, mut bytes) = (0, 0);
        for _ in 0..REPEATS {
            let mut replay = Replay::new(&trace.layout, policy(), Limits { memory_pages, swap: Swap::default() });
            let start = Stopwatch::start();
            trace.accesses.chunks(BLOCK).for_each(|block| replay.run(block));
            best = best.min(start.seconds());
            misses = replay.outcome().misses;
            bytes = replay.policy().metadata_bytes();
        }
        let accesses = trace.accesses.len() as f64;
        println!(
            "{name:16} {percent:5} % {:12.1} {:10.4} {:10.1}",
            accesses / best / 1e6,
            misses as f64 / accesses,
            bytes as f64 / trace.layout.ids() as f64
        );
    }
}

/// Processor time of this thread, or wall time where that is unknown.
struct Stopwatch {
    cpu: Option<u64>,
    wall: Instant,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch { cpu: cpu_nanoseconds(), wall: Instant::now() }
    }

    fn seconds(&self) -> f64 {
        match (self.cpu, cpu_nanoseconds()) {
            (Some(start), Some(end)) if end > start => (end - start) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn cpu_nanoseconds() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let mut number = |default| arguments.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let accesses: usize = number(20_000_000);
    let wanted = arguments.next().unwrap_or_default();
    let pages: usize = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1 << 20);

    let trace = Trace::zipf("mapped", accesses, pages);
    println!("zipf(1.0), {pages} pages, {accesses} accesses, kind mapped");
    println!("policy            memory  M accesses/s miss ratio  bytes/page");
    measure("fifo", &wanted, &trace, Fifo::default);
    measure("clock", &wanted, &trace, Clock::default);
    measure("lru", &wanted, &trace, Lru::default);
    measure("2q", &wanted, &trace, TwoQueue::default);
    measure("arc", &wanted, &trace, Arc::default);
    measure("lirs", &wanted, &trace, Lirs::default);
    measure("s3fifo", &wanted, &trace, S3Fifo::default);
    measure("sieve", &wanted, &trace, Sieve::default);
    measure("lrfu", &wanted, &trace, Lrfu::default);
    measure("wtinylfu", &wanted, &trace, WTinyLfu::default);
    if wanted.is_empty() || wanted.split(',').any(|w| w == "opt") {
        let pages = trace.accesses.iter().map(|access| access.page()).collect();
        let next_use = std::sync::Arc::new(NextUse::new(pages).expect("fewer than 2^32 accesses"));
        measure("opt", &wanted, &trace, || Opt::new(next_use.clone()));
    }
    measure("mglru", &wanted, &trace, || Mglru::new(MglruParams::default()));
    drop(trace);

    let trace = Trace::zipf("fd", accesses, pages);
    println!("the same, kind fd");
    measure("mglru", &wanted, &trace, || Mglru::new(MglruParams::default()));
    measure("classic", &wanted, &trace, || Classic::new(ClassicParams::default()));
}
