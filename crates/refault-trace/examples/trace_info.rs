//! The statistics of a trace, as text: `cargo run --release -p refault-trace --example trace_info -- FILE`.

use refault_trace::statistics::{Resolution, TraceStatistics};
use refault_trace::{Options, Source, TraceError};

fn main() -> Result<(), TraceError> {
    for path in std::env::args().skip(1) {
        let source = Source::file(path, Options::default());
        let statistics = TraceStatistics::of(&source, Resolution::default(), |_| {})?;
        println!(
            "{}: {} accesses, {} distinct pages ({} anon, {} file), {} reads, {} writes",
            source.name(),
            statistics.accesses,
            statistics.distinct_pages,
            statistics.distinct_anon_pages,
            statistics.distinct_file_pages,
            statistics.reads(),
            statistics.writes(),
        );
        println!("  accesses by reuse distance (0, 1, 2-3, 4-7 ...): {:?}", statistics.reuse.log2_buckets());
    }
    Ok(())
}
