//! Accesses a second of a workload's generator:
//! `cargo run --release --example generator_speed -- zipf:pages=1M,accesses=100M`.

use std::time::Instant;

use refault_trace::{Source, TraceError, WorkloadSpec};

fn main() -> Result<(), TraceError> {
    for text in std::env::args().skip(1) {
        let spec: WorkloadSpec = text.parse()?;
        let start = Instant::now();
        let mut reader = Source::workload(spec).open()?;
        let tables = start.elapsed();
        let (mut block, mut accesses, mut sum) = (Vec::new(), 0u64, 0u64);
        let start = Instant::now();
        while reader.read_block(&mut block)? > 0 {
            accesses += block.len() as u64;
            sum = block.iter().fold(sum, |sum, entry| sum.wrapping_add(entry.0));
        }
        let rate = accesses as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{text}: {rate:.1} M accesses/s, tables {:.3} s, sum {sum:#x}", tables.as_secs_f64());
    }
    Ok(())
}
