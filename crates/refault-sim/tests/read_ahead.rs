//! Replays that read ahead: beside the machine, beside a slow model, and what small memories and holes do.

use std::collections::HashSet;

use proptest::prelude::*;
use refault_core::Policy;
use refault_core::classic::{Classic, ClassicParams};
use refault_core::mglru::{Mglru, MglruParams};
use refault_core::textbook::{Clock, Fifo, Lru, S3Fifo};
use refault_sim::flat_memory::Swap;
use refault_sim::machine::Machine;
use refault_sim::machine::config::{FileConfig, GroupConfig, MachineConfig, PhaseConfig, TaskConfig};
use refault_sim::machine::device::DeviceModel;
use refault_sim::machine::group::GroupLimits;
use refault_sim::{LayoutBuilder, Limits, Outcome, Replay};
use refault_trace::{Entry, Kind, Source};

const PAUSE: u64 = 10_000_000_000_000;

fn replay<P: Policy>(entries: &[Entry], memory_pages: usize, window: u32, policy: P) -> Outcome {
    let mut builder = LayoutBuilder::new();
    builder.observe(entries);
    builder.reads_ahead(window);
    let layout = builder.finish().expect("few pages");
    let mut accesses = Vec::new();
    layout.translate(entries, &mut accesses);
    let mut replay = Replay::new(&layout, policy, Limits { memory_pages, swap: Swap::default() });
    replay.read_ahead(&layout, window);
    replay.run(&accesses);
    replay.outcome()
}

fn read(pages: impl IntoIterator<Item = u64>) -> Vec<Entry> {
    pages.into_iter().map(|page| Entry::new(page, Kind::Fd, false)).collect()
}

fn workload(spec: &str) -> Source {
    Source::workload(spec.parse().expect("a specification"))
}

/// One task in a group that reads one file, from a device that answers at once.
fn machine<P: Policy + Send + 'static>(spec: &str, pages: u32, limit: u64, policy: P) -> refault_core::Counters {
    let limits = GroupLimits { max: limit, ..GroupLimits::default() };
    let at_once = DeviceModel::preset("zram-lz4").expect("it is known");
    let last = "cyclic:pages=1,accesses=1,kind=fd";
    let config = MachineConfig {
        nodes: vec![1 << 20],
        groups: vec![GroupConfig { name: "/g".into(), limits }],
        file_device: at_once.clone(),
        swap_device: Some(at_once),
        swap_pages: u64::from(u32::MAX),
        readahead: 32,
        fault_around: 0,
        files: vec![FileConfig { name: "f".into(), pages, executable: false }],
        tasks: vec![TaskConfig {
            group: 1,
            phases: vec![
                PhaseConfig::new(workload(spec), Some(0)),
                PhaseConfig { pause: PAUSE, ..PhaseConfig::new(workload(last), Some(0)) },
            ],
            ..TaskConfig::default()
        }],
        duration: Some(PAUSE),
        ..MachineConfig::default()
    };
    Machine::new(config, policy).expect("a machine").run().expect("it runs").counters
}

fn same_counters<P: Policy + Send + 'static>(make: impl Fn() -> P) {
    let specs = [
        "cyclic:pages=8192,accesses=60000,kind=fd",
        "uniform:pages=8192,accesses=60000,kind=fd",
        "zipf:theta=0.8,pages=8192,accesses=80000,kind=fd",
    ];
    for spec in specs {
        for limit in [3000, 7000] {
            let entries = workload(spec).open().expect("it opens").read_to_end().expect("it ends");
            assert!(entries.iter().any(|entry| entry.page() == 8191), "the file ends with what is read last: {spec}");
            let outcome = replay(&entries, limit as usize, 32, make());
            let mut expected = machine(spec, 8192, limit, make());
            // The replay maps its file even if it is only read; the machine's walks have fewer entries to look at.
            expected.walk_entries = outcome.counters.walk_entries;
            assert_eq!(outcome.counters, expected, "{spec} in {limit} pages");
            let counts = outcome.read_ahead.expect("it reads ahead");
            assert_eq!(outcome.counters.file_reads, outcome.misses + counts.pages, "{spec} in {limit} pages");
            assert!(counts.unused <= counts.pages && counts.pages > 0, "{spec}: {counts:?}");
        }
    }
}

#[test]
fn the_replay_reads_ahead_what_the_machine_does() {
    same_counters(|| Classic::new(ClassicParams::default()));
    same_counters(|| Classic::new(ClassicParams::shadow_lru()));
    same_counters(|| Mglru::new(MglruParams::default()));
    same_counters(Fifo::default);
}

/// The first page is waited for; each window after that is there before its reader is.
#[test]
fn a_sequential_reader_waits_once() {
    let outcome = replay(&read(0..10_000), 1000, 32, Lru::default());
    assert_eq!((outcome.misses, outcome.hits), (1, 9_999));
    let counts = outcome.read_ahead.expect("it reads ahead");
    assert_eq!((counts.pages, counts.unused, outcome.counters.file_reads), (9_999, 0, 10_000));
}

/// Each file has a reader of its own, whatever is read between.
#[test]
fn files_are_told_apart() {
    let file = |number: u64, page: u64| (number << 36) + page;
    let turns = (0..3000).flat_map(|page| (0..3).map(move |number| file(number, page)));
    let outcome = replay(&read(turns), 1000, 32, Lru::default());
    assert_eq!(outcome.misses, 3);
}

/// A reader far apart from the last brings in nothing but its page.
#[test]
fn reads_far_apart_come_alone() {
    let outcome = replay(&read((1..500).map(|number| number * 1000)), 100, 32, Lru::default());
    let counts = outcome.read_ahead.expect("it reads ahead");
    assert_eq!((outcome.misses, counts.pages), (499, 0));
}

/// Mapped pages are read around: half a window before the fault, and what the trace never accesses takes room too.
#[test]
fn faults_of_mappings_read_around() {
    let entries: Vec<Entry> = [1000, 5000].map(|page| Entry::new(page, Kind::Mapped, false)).into();
    let outcome = replay(&entries, 1000, 32, Lru::default());
    let counts = outcome.read_ahead.expect("it reads ahead");
    // The second is the last of its file that the trace knows.
    assert_eq!((outcome.misses, counts.pages, outcome.resident), (2, 31 + 16, 32 + 17));
}

/// What is read ahead counts for a textbook policy as the access that it was read for: a scan looks no more frequent.
#[test]
fn a_scan_is_no_more_frequent_for_being_read_ahead() {
    let hot = || (0..20u64).cycle().take(2000);
    let entries = read(hot().chain(10_000..14_000).chain(hot()));
    for window in [1, 32] {
        // New pages have a tenth of memory, which a window fits into.
        let outcome = replay(&entries, 2000, window, S3Fifo::default());
        let again = replay(&read(hot().chain(10_000..14_000)), 2000, window, S3Fifo::default());
        assert_eq!(outcome.misses, again.misses, "the hot pages are still there, windows of {window}");
    }
}

/// A window has at most a quarter of memory, and the page that is waited for comes in whatever else does.
#[test]
fn small_memories_read_little_ahead() {
    for memory in 1..40 {
        let outcome = replay(&read((0..300).chain(0..300)), memory, 32, Lru::default());
        assert!(outcome.resident <= memory, "{memory}");
        assert_eq!(outcome.hits + outcome.misses, 600);
        assert_eq!(outcome.counters.limit_overruns, 0, "{memory}");
    }
}

proptest! {
    /// Whatever is accessed: memory is kept, each page that came in was waited for or read ahead, and with memory for
    /// all no page is read twice.
    #[test]
    fn counts_agree(
        accesses in proptest::collection::vec((0u64..400, 0u64..3, 0usize..3, any::<bool>()), 1..400),
        memory in 1usize..200,
        window in 1u32..64,
    ) {
        let kinds = [Kind::Anon, Kind::Fd, Kind::Mapped];
        let entries: Vec<Entry> =
            accesses.iter().map(|(page, file, kind, write)| Entry::new((file << 36) + page * page, kinds[*kind], *write)).collect();
        check(&entries, memory, window, Lru::default);
        check(&entries, memory, window, Clock::default);
        check(&entries, memory, window, Fifo::default);
        check(&entries, memory, window, || Classic::new(ClassicParams::default()));
        check(&entries, memory, window, || Mglru::new(MglruParams::default()));
        let ample = replay(&entries, 1 << 20, window, Lru::default());
        let files: HashSet<u64> = entries.iter().filter(|entry| entry.kind() != Some(Kind::Anon)).map(|entry| entry.page()).collect();
        let counts = ample.read_ahead.expect("it reads ahead");
        prop_assert_eq!(counts.unused, 0);
        prop_assert!(ample.counters.file_reads <= files.len() as u64 + counts.pages);
        prop_assert_eq!(ample.counters.pgsteal, 0);
    }
}

fn check<P: Policy>(entries: &[Entry], memory: usize, window: u32, make: impl Fn() -> P) {
    let outcome = replay(entries, memory, window, make());
    let counts = outcome.read_ahead.expect("it reads ahead");
    assert!(outcome.resident <= memory, "{} of {memory}", outcome.resident);
    assert_eq!(outcome.hits + outcome.misses, entries.len() as u64);
    assert!(counts.unused <= counts.pages);
    let waited = outcome.misses.min(outcome.counters.file_reads - counts.pages);
    assert_eq!(waited, outcome.counters.file_reads - counts.pages, "what was not read ahead was waited for");
}
