//! The machine against the replay, and properties that every run has.

use refault_core::classic::{Classic, ClassicParams};
use refault_core::mglru::{Mglru, MglruParams};
use refault_core::policy::Policy;
use refault_core::textbook::{Clock, Fifo, Lru};
use refault_sim::flat_memory::Swap;
use refault_sim::machine::config::{FileConfig, GroupConfig, MachineConfig, PhaseConfig, TaskConfig};
use refault_sim::machine::costs::Costs;
use refault_sim::machine::device::DeviceModel;
use refault_sim::machine::group::GroupLimits;
use refault_sim::machine::scenario::Scenario;
use refault_sim::machine::{End, Machine};
use refault_sim::{LayoutBuilder, Limits, Replay};
use refault_trace::Source;

const PAUSE: u64 = 10_000_000_000_000;

fn workload(spec: &str) -> Source {
    Source::workload(spec.parse().unwrap())
}

/// One task in a group of `limit` pages on a machine that has memory to spare, without readahead. The run ends while
/// the task pauses, before its exit touches the counters.
fn in_group(spec: &str, [anon_pages, file_pages]: [u32; 2], limit: u64) -> MachineConfig {
    let kind = if anon_pages == 0 { "fd" } else { "anon" };
    let zram = DeviceModel::preset("zram-lz4");
    let limits = GroupLimits { max: limit, ..GroupLimits::default() };
    MachineConfig {
        nodes: vec![1 << 20],
        groups: vec![GroupConfig { name: "/g".into(), limits }],
        swap_device: zram,
        swap_pages: u64::from(u32::MAX),
        readahead: 0,
        fault_around: 0,
        files: vec![FileConfig { name: "f".into(), pages: file_pages, executable: false }],
        tasks: vec![TaskConfig {
            group: 1,
            anon_pages,
            phases: vec![
                PhaseConfig::new(workload(spec), Some(0)),
                PhaseConfig {
                    pause: PAUSE,
                    ..PhaseConfig::new(workload(&format!("cyclic:pages=1,accesses=1,kind={kind}")), Some(0))
                },
            ],
            ..TaskConfig::default()
        }],
        duration: Some(PAUSE),
        ..MachineConfig::default()
    }
}

fn replay<P: Policy>(spec: &str, limit: u64, policy: P) -> refault_core::Counters {
    let entries = workload(spec).open().unwrap().read_to_end().unwrap();
    let mut builder = LayoutBuilder::new();
    builder.observe(&entries);
    let layout = builder.finish().unwrap();
    let mut accesses = Vec::new();
    layout.translate(&entries, &mut accesses);
    let limits = Limits { memory_pages: limit as usize, swap: Swap::default() };
    let mut replay = Replay::new(&layout, policy, limits);
    replay.run(&accesses);
    replay.outcome().counters
}

/// With the pages of anonymous memory and of the file that they access, all of which the page tables must cover.
const SPECS: [(&str, [u32; 2]); 5] = [
    ("uniform:pages=8192,accesses=60000,kind=fd", [0, 8192]),
    ("zipf:theta=0.8,pages=8192,accesses=80000,kind=fd", [0, 8192]),
    ("zipf:theta=0.6,pages=8192,accesses=80000,kind=mapped", [0, 8192]),
    ("hotcold:pages=8192,hot=2000,phases=4,accesses=80000,writes=0.25", [8192, 1]),
    ("mixed:apages=6000,fpages=6000,accesses=80000,hot_share=0.5,writes=0.25", [6000, 6000]),
];

fn same_counters<P: Policy + Send + 'static>(make: impl Fn() -> P) {
    for (spec, pages) in SPECS {
        let limit = 3000;
        let mut machine = Machine::new(in_group(spec, pages, limit), make()).unwrap();
        let report = machine.run().unwrap();
        assert_eq!(report.end, End::Duration);
        let mut expected = replay(spec, limit, make());
        if !spec.contains("kind=mapped") && pages[1] > 0 {
            // The replay maps its file even if it is only read; the machine maps what is accessed through a mapping, so
            // its walks have fewer entries to look at. They find the same pages.
            expected.walk_entries = report.counters.walk_entries;
        }
        assert_eq!(report.counters, expected, "{spec}");
    }
}

#[test]
fn the_machine_in_a_group_counts_what_the_replay_counts() {
    same_counters(|| Classic::new(ClassicParams::default()));
    same_counters(|| Classic::new(ClassicParams::shadow_lru()));
    same_counters(|| Mglru::new(MglruParams::default()));
    same_counters(|| Mglru::new(MglruParams::with_refault_distance()));
    same_counters(Fifo::default);
    same_counters(Lru::default);
    same_counters(Clock::default);
}

/// Four tasks on four CPUs over one file and private memory, more than fits.
const CROWDED: &str = r#"
[machine]
cpus = 2
memory = "32M"
swap = "256M"
swap_device = "zram-lz4"
file_device = "nvme"
sample = "10ms"

[[file]]
name = "data"
size = "64M"

[[task]]
name = "reader"
count = 2
[[task.workload]]
spec = "zipf:theta=0.9,pages=16384,accesses=100000,kind=fd"
file = "data"
fd_write = 0.1

[[task]]
name = "mapper"
[[task.workload]]
spec = "zipf:theta=0.9,pages=16384,accesses=100000,kind=mapped"
file = "data"

[[task]]
name = "hog"
[[task.workload]]
spec = "zipf:theta=0.9,pages=8192,accesses=2000000,writes=0.5"
"#;

const ACCESSES: u64 = 2_300_000;

fn check_invariants(machine: &Machine) {
    use refault_sim::machine::memory::{entry, state};
    let memory = machine.memory();
    let resident = memory.state.iter().filter(|bits| **bits & state::RESIDENT != 0).count() as u64;
    assert_eq!(resident, memory.groups[0].usage, "the root is charged for what is resident");
    for node in &memory.nodes {
        assert!(node.free <= node.managed);
    }
    let free: u64 = memory.nodes.iter().map(|node| node.free).sum();
    assert_eq!(free + resident, memory.nodes.iter().map(|node| node.managed).sum::<u64>());
    let slots = memory.state.iter().filter(|bits| **bits & state::SLOT != 0).count() as u64;
    assert_eq!(slots, memory.swap.used);
    let dirty = (0..memory.page_ids() as u32).filter(|p| memory.has(*p, state::DIRTY) && memory.is_file(*p)).count();
    assert_eq!(dirty as u64, memory.dirty);
    for mapping in &memory.mappings {
        let first = memory.segments[mapping.segment].first as usize;
        for (offset, bits) in mapping.entries.iter().enumerate() {
            assert!(bits & entry::PRESENT == 0 || memory.state[first + offset] & state::RESIDENT != 0);
        }
    }
}

#[test]
fn a_crowded_machine_keeps_its_books() {
    for device in ["ramdisk", "zram-lz4", "nvme", "sata-ssd", "hdd"] {
        let text = CROWDED.replace("swap_device = \"zram-lz4\"", &format!("swap_device = \"{device}\""));
        let scenario = Scenario::parse(&text, "crowded.toml").unwrap();
        let mut machine = Machine::new(scenario.config.clone(), Classic::new(ClassicParams::default())).unwrap();
        let report = machine.run().unwrap();
        assert_eq!((report.end, report.accesses), (End::Finished, ACCESSES), "{device}");
        check_invariants(&machine);
        assert!(report.counters.pswpout > 0, "{device} {report:?}");
        assert!(report.counters.file_reads > 0 && report.pageoutrun > 0, "{device}");
        let by_whom = report.statistics;
        assert_eq!(by_whom.pgscan.iter().sum::<u64>(), report.counters.pgscan, "kswapd and direct reclaim scan all");
        assert_eq!(by_whom.pgsteal.iter().sum::<u64>(), report.counters.pgsteal);
        assert!(by_whom.pgfault > report.counters.pgmajfault && by_whom.pgsteal[0] > 0);
        assert!(report.written_back > 0);
        assert!(report.some.total_us >= report.full.total_us && report.some.total_us <= report.elapsed / 1000);
        assert!(!report.samples.is_empty());
        let mut again = Machine::new(scenario.config, Classic::new(ClassicParams::default())).unwrap();
        let repeated = again.run().unwrap();
        assert_eq!((report.elapsed, report.counters), (repeated.elapsed, repeated.counters), "{device}");
    }
}

#[test]
fn every_kind_of_policy_runs_the_machine() {
    fn run<P: Policy + Send + 'static>(policy: P) {
        let scenario = Scenario::parse(CROWDED, "crowded.toml").unwrap();
        let mut machine = Machine::new(scenario.config, policy).unwrap();
        assert_eq!(machine.run().unwrap().accesses, ACCESSES);
        check_invariants(&machine);
    }
    run(Mglru::new(MglruParams::default()));
    run(Classic::new(ClassicParams::default()));
    run(Fifo::default());
    run(Lru::default());
    run(Clock::default());
}

#[test]
fn a_slower_device_makes_a_slower_run() {
    let elapsed = ["ramdisk", "nvme", "sata-ssd", "hdd"].map(|device| {
        let text = CROWDED.replace("file_device = \"nvme\"", &format!("file_device = \"{device}\""));
        let scenario = Scenario::parse(&text, "crowded.toml").unwrap();
        Machine::new(scenario.config, Lru::default()).unwrap().run().unwrap().elapsed
    });
    assert!(elapsed.is_sorted(), "{elapsed:?}");
}

#[test]
fn without_swap_too_much_memory_kills() {
    let text =
        CROWDED.replace("swap = \"256M\"\nswap_device = \"zram-lz4\"\n", "").replace("pages=8192", "pages=16384");
    let scenario = Scenario::parse(&text, "crowded.toml").unwrap();
    let mut machine = Machine::new(scenario.config, Classic::new(ClassicParams::default())).unwrap();
    let report = machine.run().unwrap();
    assert_eq!(report.end, End::Finished);
    assert_eq!(report.kills.len(), 1, "{:?}", report.kills);
    assert_eq!(report.kills[0].task, "hog");
    check_invariants(&machine);
}

#[test]
fn no_task_left_is_an_out_of_memory_report() {
    let text = r#"
[machine]
memory = "4M"
[[task]]
name = "hog"
restart_after = "1ms"
[[task.workload]]
spec = "cyclic:pages=4096,accesses=100000"
"#;
    let scenario = Scenario::parse(text, "oom.toml").unwrap();
    let mut machine = Machine::new(scenario.config, Lru::default()).unwrap();
    let report = machine.run().unwrap();
    assert_eq!(report.end, End::OutOfMemory);
    assert_eq!(report.kills.len(), 1001, "the configured number of restarts and the kill after it");
}

#[test]
fn bad_scenarios_name_file_line_and_key() {
    let refuse = |text: &str, expected: &str| {
        let error = Scenario::parse(text, "s.toml").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\ndoes not say\n{expected}");
        assert_eq!(error.lines().count(), 1, "{error}");
    };
    let task = "[[task]]\nname = \"t\"\n[[task.workload]]\nspec = \"cyclic:pages=64,accesses=10\"\n";
    refuse(&format!("[machine]\nmemory = \"1G\"\ncpus = 0\n{task}"), "s.toml:3: cpus: ");
    refuse(&format!("[machine]\nmemory = \"lots\"\n{task}"), "s.toml:2: memory: 'lots' is not a size");
    refuse(&format!("[machine]\nmemory = \"1G\"\nspeed = 3\n{task}"), "s.toml:3: speed: unknown field");
    refuse(
        &format!("[machine]\nmemory = \"1G\"\nfile_device = \"tape\"\n{task}"),
        "s.toml:3: file_device: there is no device 'tape'",
    );
    refuse(
        &format!("[machine]\nmemory = \"1G\"\n[[group]]\nname = \"/g\"\nmax = \"31p\"\n{task}"),
        "s.toml:5: max: 31 pages are less than one batch",
    );
    refuse(
        &format!("[machine]\nmemory = \"1G\"\n[[device]]\nname = \"d\"\nbandwidth = \"0M\"\n{task}"),
        "s.toml:5: bandwidth: a device without bandwidth",
    );
    refuse(
        &format!("[machine]\nmemory = \"1G\"\n{}", task.replace("name = \"t\"", "name = \"t\"\nmemory = \"63p\"")),
        "s.toml:6: t: workload",
    );
    refuse(&format!("[machine]\nmemory = \"1G\"\n{}", task.replace("cyclic", "cyclone")), "s.toml:6: spec: ");
    let trace = "[[task]]\nname = \"t\"\n[[task.workload]]\ntrace = \"t.u64\"\n";
    refuse(
        &format!("[machine]\nmemory = \"1G\"\n{trace}"),
        "s.toml:5: trace: a trace does not say how much memory it needs: give the [[task]] a memory",
    );
    let given = trace.replace("name = \"t\"", "name = \"t\"\nmemory = \"8M\"");
    assert!(Scenario::parse(&format!("[machine]\nmemory = \"1G\"\n{given}"), "s.toml").is_ok());
    refuse("[machine]\nmemory = \"1G\"\n", "there is no task");
    refuse(
        &format!("[machine]\nmemory = \"1G\"\n{task}[[event]]\nat = \"1s\"\nlru_gen = \"- 0 0\"\n"),
        "lru_gen: '- 0 0': expected",
    );
    refuse("[machine", "s.toml:1: ");
    refuse("", "missing field `machine`");
}

#[test]
fn groups_need_a_policy_that_knows_them() {
    let text = CROWDED
        .replace("[[task]]\nname = \"hog\"", "[[group]]\nname = \"/a\"\n[[task]]\nname = \"hog\"\ngroup = \"/a\"");
    let scenario = Scenario::parse(&text, "s.toml").unwrap();
    assert!(Machine::new(scenario.config.clone(), Lru::default()).is_err());
    assert!(Machine::new(scenario.config, Classic::new(ClassicParams::default())).is_ok());
}

#[test]
fn accessed_bits_of_a_mapping_that_is_read_at_random_say_nothing() {
    // Spec: overview §2: mappings without recency never count as references and never set "in fault".
    let run = |random: bool, mglru: bool| {
        let mut config = in_group("zipf:theta=1.0,pages=4000,accesses=100000,kind=mapped,seed=3", [0, 4000], 2000);
        config.tasks[0].phases[0].random = random;
        let report = match mglru {
            true => Machine::new(config, Mglru::new(MglruParams::default())).unwrap().run().unwrap(),
            false => {
                Machine::new(config, Classic::new(ClassicParams::without_refault_activation())).unwrap().run().unwrap()
            }
        };
        report.counters
    };
    let (usual, random) = (run(false, false), run(true, false));
    assert!(usual.pgactivate > 1000 && random.pgactivate == 0, "{} {}", usual.pgactivate, random.pgactivate);
    assert_eq!(random.pgscan, random.pgsteal, "no page makes a second trip");
    let (usual, random) = (run(false, true), run(true, true));
    assert!(usual.walk_promoted > 1000, "{}", usual.walk_promoted);
    assert_eq!((random.walk_promoted, random.look_around_entries, random.walk_entries), (0, 0, 0));
    // The bit still drives policies that count hits by nothing else.
    let mut config = in_group("zipf:theta=1.0,pages=4000,accesses=100000,kind=mapped,seed=3", [0, 4000], 2000);
    let clock =
        |config: MachineConfig| Machine::new(config, Clock::default()).unwrap().run().unwrap().counters.pgmajfault;
    let expected = clock(config.clone());
    config.tasks[0].phases[0].random = true;
    assert_eq!(clock(config), expected);
}

/// The only task's latencies and time, with ample memory and a device that needs a millisecond for a page.
fn latencies(
    spec: &str,
    accesses_per_operation: u64,
    think: u64,
) -> (refault_sim::machine::latency::LatencySummary, u64) {
    let mut device = DeviceModel::preset("nvme").unwrap();
    device.read_latency = 1_000_000;
    let config = MachineConfig {
        nodes: vec![1 << 16],
        readahead: 0,
        fault_around: 0,
        file_device: device,
        files: vec![FileConfig { name: "f".into(), pages: 100, executable: false }],
        tasks: vec![TaskConfig {
            anon_pages: 100,
            accesses_per_operation,
            think,
            phases: vec![PhaseConfig::new(workload(spec), Some(0))],
            ..TaskConfig::default()
        }],
        ..MachineConfig::default()
    };
    let report = Machine::new(config, Lru::default()).unwrap().run().unwrap();
    assert_eq!(report.tasks[0].latency, report.task_sets[0].latency);
    (report.tasks[0].latency, report.tasks[0].finished_at.unwrap())
}

#[test]
fn an_operation_takes_its_accesses_and_what_they_wait_for() {
    // Ten accesses of 100 ns; the first touches of the first ten operations cost a fault each.
    let (hits, _) = latencies("cyclic:pages=100,accesses=100000,kind=anon", 10, 0);
    assert_eq!((hits.count, hits.p50_ns, hits.p90_ns, hits.p99_ns), (10_000, 1_000, 1_000, 1_000));
    assert!(hits.max_ns > 2_000 && hits.max_ns < 100_000, "{hits:?}");
    // Thinking is between operations, not in them; getting the CPU back afterwards is.
    let (thinking, end) = latencies("cyclic:pages=100,accesses=100000,kind=anon", 10, 50_000);
    let switched = (1_000 + Costs::default().context_switch) as f64;
    for nanoseconds in [thinking.p50_ns, thinking.p99_ns] {
        assert!((nanoseconds as f64 / switched - 1.0).abs() < 0.002, "{thinking:?} {switched}");
    }
    assert!(end > 9_000 * 50_000, "{end}");
    // Each page of a file is read once: every operation waits for the device, and their sum is the task's time.
    let (misses, end) = latencies("cyclic:pages=100,accesses=100,kind=fd", 1, 0);
    assert_eq!(misses.count, 100);
    assert!(misses.p50_ns > 1_000_000 && misses.max_ns < 1_100_000, "{misses:?}");
    let sum = 100.0 * misses.p50_ns as f64;
    assert!((sum / end as f64 - 1.0).abs() < 0.01, "{sum} {end}");
    // An operation that ends in a miss is followed by its pause too, whether the miss waits for a device or not.
    let (thinking, paused) = latencies("cyclic:pages=100,accesses=100,kind=fd", 1, 5_000_000);
    assert!(thinking.max_ns < 1_100_000, "{thinking:?}");
    assert!(paused >= end + 99 * 5_000_000 && paused < end + 101 * 5_000_000, "{end} {paused}");
    let (thinking, paused) = latencies("cyclic:pages=100,accesses=100,kind=anon", 1, 50_000);
    assert!(thinking.max_ns < 50_000, "{thinking:?}");
    assert!(paused >= 99 * 50_000 && paused < 101 * 50_000 + 100 * thinking.max_ns, "{paused}");
}
