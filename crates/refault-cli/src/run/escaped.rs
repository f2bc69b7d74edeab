//! Memory of the tree that the budget does not bound: how much, and of what kind.
//!
//! Looked at from outside, once per second, by what the kernel says of each process; what lives shorter is not seen.
//! Cost: some twenty microseconds per process of the machine; page tables are walked only where much escapes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use refault_lab::size::bytes_text;
use refault_paging::tree::{is_elsewhere, number_elsewhere};
use refault_paging::{PAGE, Shared};
use serde::{Deserialize, Serialize};

/// The first look, and those that follow.
const FIRST: Duration = Duration::from_millis(200);
const EVERY: Duration = Duration::from_secs(1);

/// The most that was seen of each kind, in bytes.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Escaped {
    /// Anonymous memory of processes that are not managed: static programs, and those with an environment of their own.
    pub unmanaged_process_bytes: u64,
    /// Huge pages of managed processes. Looked at only where much escapes.
    pub huge_page_bytes: u64,
    /// Other anonymous memory of managed processes: thread stacks, code made while running, data of libraries.
    pub beside_bytes: u64,
    /// Shared memory of the process that has most of it.
    pub shared_bytes: u64,
}

impl Escaped {
    /// Lines for what exceeds a tenth of the budget.
    pub(super) fn lines(&self, budget: u64) -> Vec<String> {
        let kinds = [
            (self.unmanaged_process_bytes, "of processes that are not managed (static, or with another environment)"),
            (self.huge_page_bytes, "of huge pages"),
            (self.beside_bytes, "of thread stacks, code made while running and data of libraries"),
            (self.shared_bytes, "of shared memory"),
        ];
        let large = kinds.into_iter().filter(|(bytes, _)| *bytes > budget / 10);
        large.map(|(bytes, kind)| format!("beside the budget: up to {} {kind}", bytes_text(bytes))).collect()
    }

    fn most(&mut self, other: &Escaped) {
        self.unmanaged_process_bytes = self.unmanaged_process_bytes.max(other.unmanaged_process_bytes);
        self.huge_page_bytes = self.huge_page_bytes.max(other.huge_page_bytes);
        self.beside_bytes = self.beside_bytes.max(other.beside_bytes);
        self.shared_bytes = self.shared_bytes.max(other.shared_bytes);
    }
}

/// Looks at the tree below a process.
pub(super) struct Watcher {
    root: i32,
    due: Instant,
    pub(super) seen: Escaped,
    /// Namespaces of process numbers that this command is in, one in the other.
    depth: usize,
}

impl Watcher {
    pub(super) fn new(root: i32) -> Watcher {
        Watcher { root, due: Instant::now() + FIRST, seen: Escaped::default(), depth: depth() }
    }

    pub(super) fn look(&mut self, shared: &Shared) {
        if Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + EVERY;
        let managed: BTreeMap<i32, u64> = shared
            .living()
            .map(|(slot, figures)| {
                let usage = figures.usage.load();
                let bytes =
                    (usage.resident_pages + usage.parked_pages) * PAGE as u64 + usage.pool_bytes + usage.own_bytes;
                (slot.process.load(Ordering::Relaxed), bytes)
            })
            .collect();
        let mut now = Escaped::default();
        let mut elsewhere = None;
        for process in tree(self.root) {
            let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/status")) else { continue };
            let is_here = namespaces(&status) <= self.depth;
            if !is_here {
                elsewhere.get_or_insert(0);
            }
            let Some((anonymous, common)) = resident(&status) else { continue };
            now.shared_bytes = now.shared_bytes.max(common);
            match managed.get(&process) {
                // Which of them is which is not known here.
                None if !is_here => elsewhere = Some(elsewhere.unwrap_or(0) + anonymous),
                None => now.unmanaged_process_bytes += anonymous,
                Some(counted) => {
                    let beside = anonymous.saturating_sub(*counted);
                    let huge = if beside > shared.limit_bytes() / 10 { huge_pages(process).min(beside) } else { 0 };
                    now.huge_page_bytes += huge;
                    now.beside_bytes += beside - huge;
                }
            }
        }
        let counted: Vec<u64> =
            managed.iter().filter(|(number, _)| is_elsewhere(**number)).map(|(_, all)| *all).collect();
        if let Some(anonymous) = elsewhere {
            let beside = anonymous.saturating_sub(counted.iter().sum());
            *if counted.is_empty() { &mut now.unmanaged_process_bytes } else { &mut now.beside_bytes } += beside;
        }
        // Those that were killed have not said so, and nobody else finds out.
        if !counted.is_empty() {
            bury_elsewhere(shared);
        }
        self.seen.most(&now);
    }
}

/// Namespaces of process numbers that this command is in.
fn depth() -> usize {
    std::fs::read_to_string("/proc/self/status").map_or(1, |status| namespaces(&status))
}

/// Gives back what processes of other namespaces had that have ended. They are told by the numbers that they had there: one that
/// has the number of a living process of another such namespace is taken for living.
pub(super) fn bury_elsewhere(shared: &Shared) {
    let known = || shared.living().map(|(slot, _)| slot.process.load(Ordering::Relaxed));
    let managed: BTreeSet<i32> = known().filter(|process| is_elsewhere(*process)).collect();
    if managed.is_empty() {
        return;
    }
    let (mut there, depth) = (BTreeSet::new(), depth());
    for process in processes() {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/status")) else { continue };
        if !status.contains("\nState:\tZ") {
            there.extend(numbers(&status).skip(depth));
        }
    }
    // Whoever came since is not among those that were known before.
    let is_gone = |process| number_elsewhere(process).is_some_and(|number| !there.contains(&number));
    shared.bury(|process| managed.contains(&process) && is_gone(process));
}

/// The numbers of a process, in the outermost namespace first, by its `status`.
fn numbers(status: &str) -> impl Iterator<Item = i32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    numbers.split_whitespace().filter_map(|number| number.parse().ok())
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}

/// In how many namespaces a process has a number, by its `status`.
fn namespaces(status: &str) -> usize {
    numbers(status).count().max(1)
}

/// A process and all below it.
fn tree(root: i32) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in processes() {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        // The name may hold anything, parentheses included.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        children.entry(parent.unwrap_or(0)).or_default().push(process);
    }
    let (mut found, mut todo) = (BTreeSet::new(), vec![root]);
    while let Some(process) = todo.pop() {
        if found.insert(process) {
            todo.extend(children.get(&process).into_iter().flatten());
        }
    }
    found
}

/// Bytes after a key of a file of `/proc`.
fn bytes_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Anonymous and shared bytes that a process has resident, by its `status`.
fn resident(status: &str) -> Option<(u64, u64)> {
    Some((bytes_of(status, "RssAnon")?, bytes_of(status, "RssShmem")?))
}

/// Anonymous memory of this command that a program's would count for: all but its stack and its files' data.
pub(super) fn own_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let (mut sum, mut counts) = (0, false);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next().is_some_and(|first| first.contains('-')) {
            // Rights, offset, device, inode, name.
            let (inode, name) = (words.nth(3), words.next().unwrap_or(""));
            counts = inode == Some("0") && !name.starts_with("[stack");
        } else if counts {
            sum += bytes_of(line, "Anonymous").unwrap_or(0);
        }
    }
    sum
}

fn huge_pages(process: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    bytes_of(&text, "AnonHugePages").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_large_is_named() {
        let seen = Escaped { huge_page_bytes: 30 << 20, beside_bytes: 9 << 20, ..Escaped::default() };
        assert_eq!(seen.lines(100 << 20), ["beside the budget: up to 30 MiB of huge pages"]);
        assert!(seen.lines(1 << 30).is_empty());
    }

    #[test]
    fn namespaces_are_counted_by_the_numbers_that_a_process_has() {
        assert_eq!(namespaces("Pid:\t7\nNSpid:\t77\t7\nNSpgid:\t77\t7\t1\n"), 2);
        assert_eq!((namespaces("NSpid:\t77\n"), namespaces("Pid:\t7\n")), (1, 1));
    }

    #[test]
    fn a_process_that_nobody_manages_is_seen() {
        let me = std::process::id() as i32;
        let touched = std::hint::black_box(vec![7u8; 32 << 20]);
        let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
        assert!(resident(&status).is_some_and(|(anonymous, _)| anonymous > touched.len() as u64 / 2));
        assert!(tree(me).contains(&me) && !tree(me).contains(&1));
        assert!(own_bytes() > touched.len() as u64);
    }
}
