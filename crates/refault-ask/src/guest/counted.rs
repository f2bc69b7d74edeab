//! The kernel's counters at a moment.

use std::time::Duration;

use super::kernel_files::{numbers, pressure, text};
use super::setup::GROUP;
use crate::job::{COUNTERS, Counters};
use crate::kernel::version_of;

const PAGE: u64 = 4096;
const SECTOR: u64 = 512;
/// The first version that folds a group's statistics when they are read.
pub(super) const FOLDS_WHEN_READ: (u32, u32) = (6, 2);
/// Longer than older kernels take to fold statistics by themselves.
const FOLDED_BY_ITSELF: Duration = Duration::from_secs(3);
/// Where a disk's statistics have sectors read and sectors written.
const READ: usize = 2;
const WRITTEN: usize = 6;

/// Has the kernel fold all its statistics. Old kernels do so by themselves only, every two seconds.
pub(super) fn fold() {
    for name in ["cpu.stat", "memory.zswap.current"] {
        let _ = text(&format!("{GROUP}/{name}"));
    }
    let _ = text("/proc/sys/vm/stat_refresh");
    if version().is_some_and(|version| version < FOLDS_WHEN_READ) {
        std::thread::sleep(FOLDED_BY_ITSELF);
    }
}

/// The kernel's version.
pub(super) fn version() -> Option<(u32, u32)> {
    let release = text("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = version_of(release.trim()).split('.').filter_map(|number| number.parse::<u32>().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// The kernel's counters now; of files, those of the disk of this name.
pub(super) fn snapshot(disk: &str) -> Result<Counters, String> {
    fold();
    let (group, machine) = (text(&format!("{GROUP}/memory.stat"))?, text("/proc/vmstat")?);
    let (group, machine) = (numbers(&group), numbers(&machine));
    let mut counters: Counters = COUNTERS
        .iter()
        .chain(&["pgfault", "oom_kill"])
        .filter_map(|name| Some(((*name).to_owned(), *group.get(name).or_else(|| machine.get(name))?)))
        .collect();
    // A group counts swapping by itself from 6.13 on; the machine does in every kernel.
    for name in ["pswpin", "pswpout"] {
        counters.insert(name.to_owned(), machine.get(name).copied().unwrap_or(0));
    }
    // A guest that needs no disk has none.
    let disk = text(&format!("/sys/block/{disk}/stat")).unwrap_or_default();
    let pages = |at: usize| {
        let sectors = disk.split_whitespace().nth(at).and_then(|number| number.parse::<u64>().ok());
        sectors.unwrap_or(0) * SECTOR / PAGE
    };
    let file_reads = pages(READ);
    let [some, full] = pressure(&text(&format!("{GROUP}/memory.pressure")).unwrap_or_default());
    let of_group = |name: &str| group.get(name).copied().unwrap_or(0) / PAGE;
    let cpu = text(&format!("{GROUP}/cpu.stat")).unwrap_or_default();
    let peak = text(&format!("{GROUP}/memory.peak")).unwrap_or_default();
    counters.extend(
        [
            ("file_reads", file_reads),
            ("file_writes", pages(WRITTEN)),
            ("loads", file_reads + counters["pswpin"]),
            ("kswapd_us", thread_us("kswapd0")),
            ("pressure_some_us", some),
            ("pressure_full_us", full),
            ("resident_anon", of_group("anon")),
            ("resident_file", of_group("file")),
            ("cpu_us", numbers(&cpu).get("usage_usec").copied().unwrap_or(0)),
            ("peak_bytes", peak.trim().parse().unwrap_or(0)),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    Ok(counters)
}

/// What was counted between two moments; what is no sum is as at the end.
pub(super) fn between(before: &Counters, after: &Counters, name: &str) -> u64 {
    let value = |of: &Counters| of.get(name).copied().unwrap_or(0);
    let is_state = name.starts_with("resident") || name.starts_with("peak");
    if is_state { value(after) } else { value(after).saturating_sub(value(before)) }
}

/// The CPU time of the first thread of the kernel whose name begins so, in microseconds: `kswapd0` reclaims in the
/// background, `kdamond.` monitors. 0 if there is none.
pub(super) fn thread_us(name: &str) -> u64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_it = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim().starts_with(name))
    };
    let schedstat = processes.map(|entry| entry.path()).find(is_it).map(|path| path.join("schedstat"));
    let text = schedstat.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1000
}
