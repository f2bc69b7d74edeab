//! Replays the access sequences that real kernels were measured on, and holds our counters to theirs.
//!
//! Reads `oracle/{workloads,results}.csv` of the shared folder (`REFAULT_SHARED`, or `shared` beside the repository);
//! prints one `skipped:` line where that folder is missing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use refault_core::mglru::Version;
use refault_core::{Classic, ClassicParams, Counters, Mglru, MglruParams, Policy};
use refault_sim::flat_memory::Swap;
use refault_sim::{LayoutBuilder, Limits, Outcome, Replay};
use refault_trace::Entry;

/// Cells whose kernel figure is below this are shown but not counted, except for loads.
const SIGNIFICANT: f64 = 500.0;

#[test]
fn classic_matches_kernel_6_12() {
    check("6.12", "classic", 0.01);
}

#[test]
fn mglru_matches_kernel_6_12() {
    check("6.12", "mglru", 0.01);
}

#[test]
fn mglru_7_2_matches_kernel_7_2() {
    check("7.2", "mglru", 0.02);
}

struct Cell {
    workload: String,
    limit: String,
    limit_pages: usize,
    swappiness: u16,
    /// Mean over the repeats, by column.
    kernel: BTreeMap<String, f64>,
}

fn check(kernel: &str, mode: &str, tolerance: f64) {
    let Some(folder) = shared() else {
        eprintln!("skipped: no shared folder with the kernels' counters");
        return;
    };
    let cells = cells(&folder, kernel, mode);
    let mut within = 0;
    for cell in &cells {
        let entries = workload(&folder, &cell.workload);
        let outcome = replay(&entries, cell, mode, kernel);
        let counters = outcome.counters;
        let loads = (counters.pswpin + counters.file_reads) as f64;
        let want = cell.kernel["loads"];
        let off = error(loads, want);
        within += usize::from(off.abs() <= tolerance);
        print!(
            "{:24} {:4} s{:<3} loads {:6.0} {:6.0} {:+6.2}%",
            cell.workload,
            cell.limit,
            cell.swappiness,
            want,
            loads,
            off * 100.0
        );
        for (name, ours) in compared(&counters) {
            let theirs = cell.kernel[name];
            if theirs >= SIGNIFICANT || ours as f64 >= SIGNIFICANT {
                print!(
                    " | {} {:.0} {} {:+.1}%",
                    name.trim_start_matches("workingset_"),
                    theirs,
                    ours,
                    error(ours as f64, theirs) * 100.0
                );
            }
        }
        println!();
    }
    println!("{kernel} {mode}: loads within {:.0} % in {within} of {} cells", tolerance * 100.0, cells.len());
}

fn error(ours: f64, theirs: f64) -> f64 {
    if theirs == 0.0 { if ours == 0.0 { 0.0 } else { 1.0 } } else { ours / theirs - 1.0 }
}

fn compared(c: &Counters) -> Vec<(&'static str, u64)> {
    vec![
        ("pgscan", c.pgscan),
        ("pgsteal", c.pgsteal),
        ("pgactivate", c.pgactivate),
        ("pgdeactivate", c.pgdeactivate),
        ("pgrefill", c.pgrefill),
        ("workingset_refault_anon", c.workingset_refault_anon),
        ("workingset_refault_file", c.workingset_refault_file),
        ("workingset_activate_anon", c.workingset_activate_anon),
        ("workingset_activate_file", c.workingset_activate_file),
        ("workingset_restore_anon", c.workingset_restore_anon),
        ("workingset_restore_file", c.workingset_restore_file),
        ("pswpout", c.pswpout),
        ("events_max", c.limit_hits),
    ]
}

fn replay(entries: &[Entry], cell: &Cell, mode: &str, kernel: &str) -> Outcome {
    match mode {
        "classic" => {
            run(entries, cell, Classic::new(ClassicParams { swappiness: cell.swappiness, ..ClassicParams::default() }))
        }
        "mglru" => {
            let version = if kernel == "7.2" { Version::V7_2 } else { Version::V6_12 };
            run(
                entries,
                cell,
                Mglru::new(MglruParams { swappiness: cell.swappiness, version, ..MglruParams::default() }),
            )
        }
        other => panic!("no policy for mode {other}"),
    }
}

fn run<P: Policy>(entries: &[Entry], cell: &Cell, policy: P) -> Outcome {
    let mut builder = LayoutBuilder::new();
    builder.observe(entries);
    let layout = builder.finish().expect("small trace");
    let mut accesses = Vec::new();
    layout.translate(entries, &mut accesses);
    let limits = Limits { memory_pages: cell.limit_pages, swap: Swap::default() };
    let mut replay = Replay::new(&layout, policy, limits);
    if std::env::var("REFAULT_DEBUG").is_ok_and(|w| w == format!("{}/{}", cell.workload, cell.limit)) {
        for chunk in accesses.chunks(accesses.len() / 20) {
            replay.run(chunk);
            let c = replay.outcome().counters;
            println!(
                "   done {} load {} wa {} scan {} steal {} act {} refill {} de {} gens {:?} made {} promoted {} look {}",
                replay.outcome().accesses,
                c.pswpin + c.file_reads,
                c.workingset_activate_anon,
                c.pgscan,
                c.pgsteal,
                c.pgactivate,
                c.pgrefill,
                c.pgdeactivate,
                replay.policy().generations(0).iter().map(|g| (g.seq, g.birth, g.pages)).collect::<Vec<_>>(),
                c.generations_created,
                c.walk_promoted,
                c.look_around_entries
            );
        }
        return replay.outcome();
    }
    replay.run(&accesses);
    replay.outcome()
}

fn workload(folder: &std::path::Path, name: &str) -> Vec<Entry> {
    let _ = folder;
    let bytes = std::fs::read(format!("/tmp/oracle/{name}.u64")).expect("generated");
    bytes.chunks_exact(8).map(|b| Entry(u64::from_le_bytes(b.try_into().expect("8 bytes")))).collect()
}

fn cells(folder: &std::path::Path, kernel: &str, mode: &str) -> Vec<Cell> {
    let text = std::fs::read_to_string(folder.join("oracle/results.csv")).expect("results.csv is readable");
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("header").split(',').collect();
    let mut groups: BTreeMap<(String, String, String), Vec<Vec<&str>>> = BTreeMap::new();
    let at = |name: &str| header.iter().position(|h| *h == name).expect("known column");
    for line in lines {
        let row: Vec<&str> = line.split(',').collect();
        if row[at("kernel")] == kernel && row[at("lru_mode")] == mode && row[at("config")] == "fresh" {
            let key = (row[at("workload")].into(), row[at("limit")].into(), row[at("swappiness")].into());
            groups.entry(key).or_default().push(row);
        }
    }
    groups
        .into_iter()
        .map(|((workload, limit, swappiness), rows)| {
            let mean = |column: usize| {
                rows.iter().filter_map(|r| r[column].parse::<f64>().ok()).sum::<f64>() / rows.len() as f64
            };
            Cell {
                limit_pages: mean(at("limit_pages")) as usize,
                swappiness: swappiness.parse().expect("number"),
                kernel: header.iter().enumerate().map(|(i, name)| (name.to_string(), mean(i))).collect(),
                workload,
                limit,
            }
        })
        .collect()
}

fn shared() -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = std::env::var_os("REFAULT_SHARED").map(PathBuf::from);
    named
        .into_iter()
        .chain(["shared", "../shared", "../../shared"].map(|p| root.join(p)))
        .find(|folder| folder.join("oracle/results.csv").is_file())
}
