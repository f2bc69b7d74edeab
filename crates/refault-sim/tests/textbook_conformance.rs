//! Miss counts of the textbook policies on real traces against the reference simulator's.
//!
//! The traces and the table are not part of the project (see `refault_testing::shared`); without them the test is
//! skipped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use refault_core::policy::registry::{BuildContext, PolicySpec};
use refault_core::textbook::NextUse;
use refault_sim::flat_memory::Swap;
use refault_sim::{Access, Layout, LayoutBuilder, Limits, named};
use refault_testing::shared;
use refault_trace::Entry;

/// A decoded trace.
struct Trace {
    layout: Layout,
    accesses: Vec<Access>,
    context: BuildContext,
}

impl Trace {
    fn read(path: &Path) -> Trace {
        let mut bytes = Vec::new();
        let file = File::open(path).expect("a trace that the table names");
        zstd::Decoder::new(file).and_then(|mut d| d.read_to_end(&mut bytes)).expect("a whole zstd file");
        let (words, []) = bytes.as_chunks::<8>() else { panic!("whole entries") };
        let entries: Vec<Entry> = words.iter().map(|word| Entry(u64::from_le_bytes(*word))).collect();
        let mut builder = LayoutBuilder::new();
        builder.observe(&entries);
        let layout = builder.finish().expect("fewer than 2^32 pages");
        let mut accesses = Vec::with_capacity(entries.len());
        layout.translate(&entries, &mut accesses);
        let pages = accesses.iter().map(|access| access.page()).collect();
        let next_use = Some(NextUse::new(pages).expect("fewer than 2^32 accesses").into());
        let page_numbers = Some(layout.page_numbers().into());
        Trace { layout, accesses, context: BuildContext { next_use, page_numbers } }
    }

    fn misses(&self, policy: &str, memory_pages: usize) -> u64 {
        let spec = PolicySpec::parse(policy).expect("one of the registry");
        let limits = Limits { memory_pages, swap: Swap::default() };
        let mut replay = named::replay(&spec, &self.context, &self.layout, limits);
        replay.run(&self.accesses);
        replay.outcome().misses
    }
}

/// A policy's name in the table, its default variant, and by how much its misses may differ.
struct Contender {
    name: &'static str,
    /// Largest allowed difference, as a share of the table's misses.
    tolerance: f64,
}

const CONTENDERS: &[Contender] = &[
    Contender { name: "fifo", tolerance: 0.0 },
    Contender { name: "clock", tolerance: 0.0 },
    Contender { name: "lru", tolerance: 0.0 },
    Contender { name: "2q", tolerance: 0.0 },
    Contender { name: "arc", tolerance: 0.0 },
    Contender { name: "s3fifo", tolerance: 0.0 },
    Contender { name: "sieve", tolerance: 0.0 },
    Contender { name: "lirs", tolerance: 0.01 },
    Contender { name: "wtinylfu", tolerance: 0.02 },
    Contender { name: "opt", tolerance: 0.0 },
];

/// Rows where the reference simulator holds more pages than its memory: its LIRS with one resident HIR page loses track
/// of a page whose hits it goes on counting. In this row that happens 445 times, with up to two pages at once. Trace,
/// memory, tolerance.
const OVERFULL_LIRS: &[(&str, usize, f64)] = &[("spec-gcc", 15, 0.015)];

/// One line of the table.
struct Row {
    policy: String,
    memory_pages: usize,
    accesses: usize,
    misses: u64,
}

#[test]
fn misses_equal_the_reference_simulator() {
    let Some(table_path) = shared("traces/oracle-libcachesim.csv") else { return };
    let mut unknown = 0;
    let mut totals: BTreeMap<&str, Totals> = BTreeMap::new();
    for (name, rows) in table(&table_path) {
        let trace = Trace::read(&table_path.with_file_name(format!("{name}.u64.zst")));
        for (row, contender, ours) in replay_all(&trace, &rows) {
            assert_eq!(row.accesses, trace.accesses.len(), "{name}: accesses");
            let Some(contender) = contender else {
                unknown += 1;
                continue;
            };
            let error = (ours as f64 - row.misses as f64) / row.misses as f64;
            let overfull =
                OVERFULL_LIRS.iter().find(|o| contender.name == "lirs" && (o.0, o.1) == (&name, row.memory_pages));
            let tolerance = overfull.map_or(contender.tolerance, |o| o.2);
            totals.entry(contender.name).or_default().add(error, error.abs() > tolerance);
            if ours != row.misses {
                println!(
                    "{name:20} {:8} memory {:8} misses {:9} ours {ours:9} {:+.3} %",
                    row.policy,
                    row.memory_pages,
                    row.misses,
                    100.0 * error
                );
            }
        }
    }
    println!("policy      rows  exact  worst %  allowed %  outside");
    for contender in CONTENDERS {
        let total = totals.get(contender.name).expect("the table has rows of every policy");
        println!(
            "{:10} {:5} {:6} {:8.3} {:10.1} {:8}",
            contender.name,
            total.rows,
            total.exact,
            100.0 * total.worst,
            100.0 * contender.tolerance,
            total.outside
        );
    }
    assert_eq!(unknown, 0, "rows of policies that this test does not know");
    assert!(totals.values().all(|t| t.outside == 0), "some rows differ by more than is allowed, see the table above");
}

#[derive(Default)]
struct Totals {
    rows: usize,
    exact: usize,
    outside: usize,
    worst: f64,
}

impl Totals {
    fn add(&mut self, error: f64, outside: bool) {
        self.rows += 1;
        self.exact += usize::from(error == 0.0);
        self.outside += usize::from(outside);
        self.worst = self.worst.max(error.abs());
    }
}

/// Replays every row of one trace, on all cores.
fn replay_all<'a>(trace: &Trace, rows: &'a [Row]) -> Vec<(&'a Row, Option<&'static Contender>, u64)> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let contender = CONTENDERS.iter().find(|c| c.name == row.policy);
                    let misses = contender.map_or(0, |c| trace.misses(c.name, row.memory_pages));
                    results.lock().expect("no worker panicked").push((row, contender, misses));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no worker panicked");
    results.sort_by_key(|(row, _, _)| (row.policy.clone(), row.memory_pages));
    results
}

/// The rows of the table by trace.
fn table(path: &Path) -> BTreeMap<String, Vec<Row>> {
    let text = std::fs::read_to_string(path).expect("the table beside the traces");
    let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let [trace, _pages, policy, memory, accesses, misses] =
            line.split(',').collect::<Vec<_>>().try_into().expect("six columns");
        rows.entry(trace.to_owned()).or_default().push(Row {
            policy: policy.to_owned(),
            memory_pages: memory.parse().expect("pages"),
            accesses: accesses.parse().expect("accesses"),
            misses: misses.parse().expect("misses"),
        });
    }
    rows
}
