//! Against traces that lie outside the repository, where they are at hand, and the fingerprints of the sequences that
//! kernels were measured on.

use std::collections::HashMap;

use refault_testing::{kernel_table, shared};
use refault_trace::page_ids::PageIds;
use refault_trace::reuse::{DistanceHistogram, ReuseDistances};
use refault_trace::{Entry, Options, Source, WorkloadSpec};

fn rows(text: &str) -> Vec<HashMap<String, String>> {
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().expect("a header").split(',').map(str::to_owned).collect();
    lines.map(|line| names.iter().cloned().zip(line.split(',').map(str::to_owned)).collect()).collect()
}

fn number(row: &HashMap<String, String>, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} of {row:?} is a number"))
}

fn for_each_block(source: &Source, mut use_block: impl FnMut(&[Entry])) {
    let (mut reader, mut buffer) = (source.open().expect("opens"), Vec::new());
    loop {
        let block = reader.next_block(&mut buffer).expect("reads");
        if block.is_empty() {
            return;
        }
        use_block(block);
    }
}

#[test]
fn lru_misses_of_real_traces_are_those_of_libcachesim() {
    let Some(table) = shared("traces/oracle-libcachesim.csv") else { return };
    let mut by_trace: HashMap<String, Vec<_>> = HashMap::new();
    let text = std::fs::read_to_string(&table).expect("a readable table");
    for row in rows(&text).into_iter().filter(|row| row["policy"] == "lru") {
        by_trace.entry(row["trace"].clone()).or_default().push(row);
    }
    assert!(!by_trace.is_empty());
    for (trace, mut rows) in by_trace {
        rows.sort_by_key(|row| number(row, "memory_pages"));
        let source = Source::file(table.with_file_name(format!("{trace}.u64.zst")), Options::default());
        assert_eq!(source.name(), trace);
        let (mut ids, mut reuse, mut histogram) = (PageIds::new(), ReuseDistances::new(0), DistanceHistogram::new());
        for_each_block(&source, |block| {
            for entry in block {
                let id = ids.id(*entry).expect("few pages");
                histogram.record(reuse.access(id));
            }
        });
        let sizes: Vec<_> = rows.iter().map(|row| number(row, "memory_pages")).collect();
        let expected: Vec<_> = rows.iter().map(|row| number(row, "misses")).collect();
        assert_eq!(histogram.lru_misses(&sizes), expected, "{trace}");
        assert_eq!((histogram.accesses(), ids.len() as u64), (number(&rows[0], "accesses"), number(&rows[0], "pages")));
    }
}

#[test]
fn generated_sequences_are_those_of_every_measured_workload() {
    for row in rows(&kernel_table("workloads.csv")) {
        let (generator, arguments) = row["generator_arguments"].split_once(' ').expect("a generator and arguments");
        let name = generator.strip_prefix("kind=").expect("the generator comes first");
        let spec: WorkloadSpec = format!("{name}:{}", arguments.replace(' ', ",")).parse().expect("understood");
        let (mut accesses, mut hash) = (0, 0xCBF2_9CE4_8422_2325u64);
        for_each_block(&Source::workload(spec), |block| {
            accesses += block.len() as u64;
            for byte in block.iter().flat_map(|entry| entry.0.to_le_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
            }
        });
        assert_eq!((accesses, format!("{hash:016x}")), (number(&row, "accesses"), row["fnv1a64"].clone()), "{row:?}");
    }
}
