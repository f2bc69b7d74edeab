//! A machine whose memory is the limit, beside real kernels: kswapd and direct reclaim at work, no group.
//!
//! `machines.csv` of `refault-testing` has what kernels did, on an emulated processor of one instruction per nanosecond
//! and on one of eight nanoseconds per instruction. The machine here has the kernel's frames and marks and the shipped
//! costs; nothing is fitted. `docs/validation.md` says what is outside, and why.

use std::collections::BTreeMap;

use refault_core::mglru::Version;
use refault_core::{Classic, ClassicParams, Mglru, MglruParams, Policy};
use refault_sim::machine::config::{FileConfig, MachineConfig, PhaseConfig, TaskConfig};
use refault_sim::machine::device::DeviceModel;
use refault_sim::machine::report::Report;
use refault_sim::machine::{End, Machine};
use refault_testing::kernel_table;
use refault_trace::{Source, WorkloadSpec};

const PAUSE: u64 = 10_000_000_000_000;
/// The recordings that the machine is compared with: one instruction per nanosecond.
const FAST: &str = "shift=0";
/// Smallest kernel figure that a counter is compared at.
const SIGNIFICANT: u64 = 500;
/// How far loads may be off, and other counters.
const LOADS_TOLERANCE: f64 = 0.03;
const COUNTER_TOLERANCE: f64 = 0.05;

/// A row of a table, by column.
struct Row(BTreeMap<String, String>);

impl Row {
    fn text(&self, column: &str) -> &str {
        self.0.get(column).unwrap_or_else(|| panic!("no column {column}"))
    }

    fn number(&self, column: &str) -> u64 {
        self.text(column).parse().unwrap_or_else(|_| panic!("{column} is not a number: {}", self.text(column)))
    }
}

fn rows(table: &str) -> Vec<Row> {
    let text = kernel_table(table);
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let row = |line: &str| header.iter().map(ToString::to_string).zip(line.split(',').map(str::to_owned)).collect();
    lines.map(|line| Row(row(line))).collect()
}

/// What is compared, under the kernel's names.
struct Figures {
    counters: Vec<(&'static str, u64)>,
    /// Pages that direct reclaim looked at.
    direct: u64,
}

impl Figures {
    fn of(&self, name: &str) -> u64 {
        self.counters.iter().find(|counter| counter.0 == name).expect("a counter").1
    }

    fn theirs(end: &Row) -> Figures {
        let both = |name: &str| end.number(&format!("{name}_kswapd")) + end.number(&format!("{name}_direct"));
        let own = ["loads", "pgactivate", "pgdeactivate", "pgrefill"].map(|name| (name, end.number(name)));
        let refaults = ["workingset_refault_anon", "workingset_refault_file"].map(|name| (name, end.number(name)));
        let sums = [("pgscan", both("pgscan")), ("pgsteal", both("pgsteal"))];
        Figures { counters: [&own[..], &refaults, &sums].concat(), direct: end.number("pgscan_direct") }
    }

    fn ours(report: &Report) -> Figures {
        let c = &report.counters;
        Figures {
            counters: vec![
                ("loads", c.pswpin + c.file_reads),
                ("pgscan", c.pgscan),
                ("pgsteal", c.pgsteal),
                ("pgactivate", c.pgactivate),
                ("pgdeactivate", c.pgdeactivate),
                ("pgrefill", c.pgrefill),
                ("workingset_refault_anon", c.workingset_refault_anon),
                ("workingset_refault_file", c.workingset_refault_file),
            ],
            direct: report.statistics.pgscan[1],
        }
    }
}

/// One task on a machine that has the frames and the marks which the kernel had for it.
fn machine<P: Policy + Send + 'static>(workload: &Row, end: &Row, policy: P) -> Report {
    let arguments = workload.text("generator_arguments").strip_prefix("kind=").expect("the kind comes first");
    let spec: WorkloadSpec = arguments.replacen(' ', ":", 1).replace(' ', ",").parse().expect("a workload of ours");
    let [anon, file] = ["anon_pages", "file_pages"].map(|column| workload.number(column) as u32);
    let kind = if anon == 0 { "fd" } else { "anon" };
    let rest = Source::workload(format!("cyclic:pages=1,accesses=1,kind={kind}").parse().expect("a workload"));
    // What holds data or could at the end, when page tables and nodes of trees have taken their part.
    let frames = ["inactive_anon", "active_anon", "inactive_file", "active_file", "free"];
    let config = MachineConfig {
        nodes: vec![frames.iter().map(|column| end.number(column)).sum()],
        min_free_kbytes: 4 * end.number("min"),
        swap_device: DeviceModel::preset("zram-lz4"),
        swap_pages: u64::from(u32::MAX),
        readahead: 0,
        fault_around: 0,
        files: vec![FileConfig { name: "f".into(), pages: file.max(1), executable: false }],
        tasks: vec![TaskConfig {
            anon_pages: anon,
            // The run ends during the pause, before the task's exit touches the counters.
            phases: vec![
                PhaseConfig::new(Source::workload(spec), Some(0)),
                PhaseConfig { pause: PAUSE, ..PhaseConfig::new(rest, Some(0)) },
            ],
            ..TaskConfig::default()
        }],
        duration: Some(PAUSE),
        ..MachineConfig::default()
    };
    let report = Machine::new(config, policy).expect("a machine").run().expect("a run");
    assert_eq!(report.end, End::Duration);
    report
}

/// The recorded cell on the machine.
fn ours(end: &Row, workloads: &[Row]) -> Figures {
    let steps = kernel_table(&format!("machines/{}.steps", end.text("cell")));
    let setting = |name: &str| {
        let line = steps.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit([' ', '=']).next()).map(str::to_owned)
    };
    let name = setting("task").expect("a task");
    let workload = workloads.iter().find(|row| row.text("workload") == name).expect("a workload");
    let swappiness = setting("swappiness").map_or(60, |text| text.parse().expect("a number"));
    let version = if end.text("kernel") == "7.2" { Version::V7_2 } else { Version::V6_12 };
    let report = if end.text("lru_mode") == "classic" {
        machine(workload, end, Classic::new(ClassicParams { swappiness, ..ClassicParams::default() }))
    } else {
        machine(workload, end, Mglru::new(MglruParams { swappiness, version, ..MglruParams::default() }))
    };
    Figures::ours(&report)
}

fn recorded(kernel: &str, lists: &str, icount: &str) -> Vec<Row> {
    let wanted = [("kernel", kernel), ("lru_mode", lists), ("icount", icount), ("record", "end")];
    let rows: Vec<Row> = rows("machines.csv")
        .into_iter()
        .filter(|row| wanted.iter().all(|(column, value)| row.text(column) == *value))
        .collect();
    assert!(rows.len() >= 8, "only {} cells of {kernel} {lists}", rows.len());
    rows
}

fn off(ours: f64, theirs: f64) -> f64 {
    ours / theirs - 1.0
}

/// Prints each cell. Asserts that loads are close in the given share of the cells, other counters in the other one.
fn check(kernel: &str, lists: &str, loads_share: f64, counters_share: f64) {
    let workloads = rows("workloads.csv");
    let cells = recorded(kernel, lists, FAST);
    let ([mut loads, mut counters], mut all) = ([0, 0], 0);
    for end in &cells {
        let (theirs, ours) = (Figures::theirs(end), ours(end, &workloads));
        println!("{kernel} {lists} {}: direct reclaim looked at {} {}", end.text("cell"), theirs.direct, ours.direct);
        for (name, theirs) in &theirs.counters {
            let off = off(ours.of(name) as f64, *theirs as f64);
            if *name == "loads" {
                loads += usize::from(off.abs() <= LOADS_TOLERANCE);
            } else if *theirs >= SIGNIFICANT {
                all += 1;
                counters += usize::from(off.abs() <= COUNTER_TOLERANCE);
            } else {
                continue;
            }
            println!("  {name}: {theirs} {} {:+.1} %", ours.of(name), off * 100.0);
        }
    }
    println!("{kernel} {lists}: loads within 3 % in {loads} of {}, other counters in {counters} of {all}", cells.len());
    assert!(loads as f64 >= loads_share * cells.len() as f64, "{kernel} {lists}: loads");
    assert!(f64::from(counters as u32) >= counters_share * f64::from(all), "{kernel} {lists}: counters");
}

#[test]
fn classic_on_a_machine_short_of_memory_does_what_kernel_6_12_does() {
    check("6.12", "classic", 1.0, 0.95);
}

/// `pgactivate` and `pgrefill` of anonymous memory follow who reclaims; see the next test.
#[test]
fn mglru_on_a_machine_short_of_memory_does_what_kernel_6_12_does() {
    check("6.12", "mglru", 1.0, 0.80);
}

#[test]
fn classic_on_a_machine_short_of_memory_does_what_kernel_7_2_does() {
    check("7.2", "classic", 1.0, 0.95);
}

/// Nine counters are outside, six of them those of the test above.
#[test]
fn mglru_7_2_on_a_machine_short_of_memory_does_what_kernel_7_2_does() {
    check("7.2", "mglru", 1.0, 0.76);
}

/// While kswapd reclaims, a walk is at hand and neighbours of young entries are promoted; direct reclaim has none unless
/// it ages, and activates them. So who reclaims decides `pgactivate`, and that is a matter of the processor's speed: the
/// slower one has kswapd do more and has fewer activations. For each page that direct reclaim looks at they agree.
#[test]
fn activations_of_generations_follow_direct_reclaim() {
    let workloads = rows("workloads.csv");
    let slow = recorded("6.12", "mglru", "shift=3");
    let rate = |activations: u64, direct: u64| activations as f64 / direct as f64;
    let mut compared = 0;
    for end in recorded("6.12", "mglru", FAST).iter().filter(|end| end.number("pgscan_direct") > 5_000) {
        let slow = slow.iter().find(|row| row.text("cell") == end.text("cell")).expect("the same cells");
        let ours = ours(end, &workloads);
        let rates = [
            rate(end.number("pgactivate"), end.number("pgscan_direct")),
            rate(slow.number("pgactivate"), slow.number("pgscan_direct")),
            rate(ours.of("pgactivate"), ours.direct),
        ];
        println!(
            "{}: activations per page, kernel {:.3}, slower {:.3}, ours {:.3}",
            end.text("cell"),
            rates[0],
            rates[1],
            rates[2]
        );
        assert!(off(rates[2], rates[0]).abs() < 0.12, "{rates:?}");
        assert!(slow.number("pgactivate") < end.number("pgactivate"));
        compared += 1;
    }
    assert_eq!(compared, 3);
}
