//! Accesses a second of the exact reuse-distance engine and of the whole way to an LRU miss-ratio curve:
//! `cargo run --release --example reuse_speed -- zipf:pages=1M,accesses=100M`.

use std::time::{Duration, Instant};

use refault_trace::page_ids::PageIds;
use refault_trace::reuse::{DistanceHistogram, ReuseDistances};
use refault_trace::{Source, TraceError, WorkloadSpec};

fn main() -> Result<(), TraceError> {
    for text in std::env::args().skip(1) {
        let spec: WorkloadSpec = text.parse()?;
        let mut reader = Source::workload(spec).open()?;
        let (mut ids, mut engine) = (PageIds::new(), ReuseDistances::new(0));
        let mut histogram = DistanceHistogram::new();
        let (mut block, mut pages, mut distances) = (Vec::new(), Vec::new(), Vec::new());
        let (mut numbering, mut reuse, mut counting) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let mut accesses = 0u64;
        while reader.read_block(&mut block)? > 0 {
            let start = Instant::now();
            pages.clear();
            pages.extend(block.iter().filter_map(|entry| ids.id(*entry)));
            let numbered = Instant::now();
            engine.access_all(&pages, &mut distances);
            let measured = Instant::now();
            distances.iter().for_each(|distance| histogram.record(*distance));
            counting += measured.elapsed();
            (numbering, reuse) = (numbering + (numbered - start), reuse + (measured - numbered));
            accesses += block.len() as u64;
        }
        let rate = |time: Duration| accesses as f64 / time.as_secs_f64() / 1e6;
        let misses = histogram.lru_misses(&[engine.distinct_pages() as u64 / 10, engine.distinct_pages() as u64 / 2]);
        println!(
            "{text}: page ids {:.1}, distances {:.1}, histogram {:.1}, all three {:.1} M accesses/s; misses at 10 % and 50 %: {misses:?}",
            rate(numbering),
            rate(reuse),
            rate(counting),
            rate(numbering + reuse + counting)
        );
    }
    Ok(())
}
