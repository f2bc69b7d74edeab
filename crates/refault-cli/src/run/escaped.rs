//! Memory of the tree that the budget does not bound: how much, and of what kind.
//!
//! Looked at from outside, by what the kernel says of each process: soon after a program is executed and as long as
//! more and more is found, otherwise less and less often, once per second at least. What lives for some hundredths of a
//! second is not seen. Cost: some ten microseconds per thread of the tree and look, 2 % of a processor at most. It is
//! some twenty per process of the machine where the kernel does not say whose children are which; page tables are
//! walked only where much escapes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use refault_lab::size::bytes_text;
use refault_linux::proc;
use refault_linux::sys::shares_memory;
use refault_paging::tree::{is_elsewhere, number_elsewhere};
use refault_paging::{PAGE, Shared};
use serde::{Deserialize, Serialize};

/// Between two looks, at least and at most.
const SOON: Duration = Duration::from_millis(20);
const EVERY: Duration = Duration::from_secs(1);
/// A look is followed by a pause of `PAUSES` times the processor's time that it took.
const PAUSES: u32 = 50;
/// Less than this part of the budget is no news.
const PART: u64 = 64;

/// The most that was seen of each kind, in bytes.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Escaped {
    /// Anonymous memory of processes that are not managed: static programs, and those with an environment of their own.
    pub unmanaged_process_bytes: u64,
    /// Huge pages of managed processes. Looked at only where much escapes.
    pub huge_page_bytes: u64,
    /// Other anonymous memory of managed processes: thread stacks, code made while running, data of libraries.
    pub beside_bytes: u64,
    /// Shared memory, a page of which counts once however many mappings it has.
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

    /// Takes up what was found to be more. Whether anything was more by over `news` bytes.
    fn most(&mut self, other: &Escaped, news: u64) -> bool {
        let kinds = [
            (&mut self.unmanaged_process_bytes, other.unmanaged_process_bytes),
            (&mut self.huge_page_bytes, other.huge_page_bytes),
            (&mut self.beside_bytes, other.beside_bytes),
            (&mut self.shared_bytes, other.shared_bytes),
        ];
        let mut is_news = false;
        for (most, now) in kinds {
            is_news |= now > *most + news;
            *most = now.max(*most);
        }
        is_news
    }
}

/// Looks at the tree below a process, in a thread of its own.
pub(super) struct Watcher {
    state: Arc<Mutex<State>>,
}

/// A program with many libraries takes as long until the agent in it begins, on a busy machine.
const STARTS: Duration = Duration::from_secs(2);

struct State {
    root: i32,
    seen: Escaped,
    /// Namespaces of process numbers that this command is in, one in the other.
    depth: usize,
    /// Processes that had no slot at the last look, and when they were first seen without.
    known: BTreeMap<i32, Instant>,
    /// Processes that had one at some look, and are there still.
    managed: BTreeSet<i32>,
}

impl Watcher {
    /// Looks from now on. The calling thread's signals are to be blocked.
    pub(super) fn begin(root: i32, shared: &'static Shared) -> Watcher {
        let state =
            State { root, seen: Escaped::default(), depth: depth(), known: BTreeMap::new(), managed: BTreeSet::new() };
        let state = Arc::new(Mutex::new(state));
        let theirs = Arc::clone(&state);
        let watch = move || {
            let (mut executed, mut soonest, mut pause) = (shared.executed.load(Ordering::Relaxed), SOON, SOON);
            loop {
                std::thread::sleep(soonest);
                refault_linux::sys::wait_everywhere_for(
                    &shared.executed,
                    executed,
                    (pause - soonest).as_nanos() as u64,
                );
                let (begun, before) = (time_run(), executed);
                executed = shared.executed.load(Ordering::Relaxed);
                let is_news = theirs.lock().unwrap_or_else(PoisonError::into_inner).look(shared);
                soonest = ((time_run() - begun) * PAUSES).clamp(SOON, EVERY);
                pause = if is_news || executed != before { soonest } else { (pause * 2).clamp(soonest, EVERY) };
            }
        };
        // Without it only what is there at the end is seen.
        let _ = std::thread::Builder::new().name("watch".to_owned()).stack_size(256 << 10).spawn(watch);
        Watcher { state }
    }

    /// The most that was seen of each kind, now included.
    pub(super) fn seen(&self, shared: &Shared) -> Escaped {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.look(shared);
        state.seen
    }
}

impl State {
    /// Whether there is more than before.
    fn look(&mut self, shared: &Shared) -> bool {
        let limit = shared.limit_bytes();
        let before = managed(shared);
        let found: Vec<(i32, String)> = tree(self.root)
            .into_iter()
            .filter_map(|process| Some((process, std::fs::read_to_string(format!("/proc/{process}/status")).ok()?)))
            .collect();
        // What a process has charged meanwhile is no more beside the budget than what it had before.
        let mut managed = managed(shared);
        for (process, bytes) in before {
            managed.entry(process).and_modify(|now| *now = bytes.max(*now)).or_insert(bytes);
        }
        let mut now = Escaped::default();
        let mut shared_parts = 0;
        let mut elsewhere = None;
        let mut known = BTreeMap::new();
        for (process, status) in &found {
            let is_here = namespaces(status) <= self.depth;
            if !is_here {
                elsewhere.get_or_insert(0);
            }
            let Some((anonymous, common)) = resident(status) else { continue };
            match common > limit / 10 {
                true => shared_parts += shared_part(*process).map_or(common, |part| part.min(common)),
                false => now.shared_bytes = now.shared_bytes.max(common),
            }
            let counted = managed.get(process).filter(|_| is_here);
            match counted {
                // Which of them is which is not known here.
                None if !is_here => elsewhere = Some(elsewhere.unwrap_or(0) + anonymous),
                // Until it executes a program.
                None if parent(status).is_some_and(|parent| shares_memory(*process, parent)) => {}
                // It ends: what it counted is in the segment, and its memory goes.
                None if self.managed.contains(process) && has_agent(*process) => {}
                None => {
                    let seen = self.known.get(process).copied().unwrap_or_else(Instant::now);
                    known.insert(*process, seen);
                    let is_new = seen.elapsed() < STARTS;
                    let is_large = anonymous > limit / PART;
                    now.unmanaged_process_bytes +=
                        if is_large { own_image(*process, is_new) } else { anonymous }.min(anonymous);
                }
                // A forked child that has its parent's memory and has not said so yet.
                Some(0) => {}
                Some(counted) => {
                    let beside = anonymous.saturating_sub(*counted);
                    let huge = if beside > limit / 10 { huge_pages(*process).min(beside) } else { 0 };
                    now.huge_page_bytes += huge;
                    now.beside_bytes += beside - huge;
                }
            }
        }
        now.shared_bytes = now.shared_bytes.max(shared_parts);
        self.known = known;
        self.managed.extend(managed.keys());
        self.managed.retain(|process| found.iter().any(|(here, _)| here == process));
        let counted: Vec<u64> =
            managed.iter().filter(|(number, _)| is_elsewhere(**number)).map(|(_, all)| *all).collect();
        if let Some(anonymous) = elsewhere {
            let beside = anonymous.saturating_sub(counted.iter().sum());
            *if counted.is_empty() { &mut now.unmanaged_process_bytes } else { &mut now.beside_bytes } += beside;
        }
        // Processes that were killed have not said so, and no other thread finds out.
        if !counted.is_empty() {
            bury_elsewhere(shared);
        }
        self.seen.most(&now, limit / PART)
    }
}

/// Bytes of each managed process that the budget bounds.
fn managed(shared: &Shared) -> BTreeMap<i32, u64> {
    let bytes = shared.living().map(|(slot, figures)| {
        let usage = figures.usage.load();
        let counted = (usage.resident_pages + usage.parked_pages) * PAGE as u64 + usage.pool_bytes + usage.own_bytes;
        let charged = slot.charged.load(Ordering::Relaxed).max(0) as u64 * PAGE as u64;
        (slot.process.load(Ordering::Relaxed), counted.max(charged))
    });
    bytes.collect()
}

/// Processor's time of this thread.
fn time_run() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Anonymous memory of a process without a slot. Nothing if it is new and has the agent. It may be a child that has its
/// parent's memory until it has a slot or becomes another program. Otherwise its libraries are being loaded, which is
/// done before the agent starts.
fn own_image(process: i32, is_new: bool) -> u64 {
    if is_new && has_agent(process) {
        return 0;
    }
    // Read after the maps: until then it may have been its parent's.
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    resident(&status).map_or(0, |(anonymous, _)| anonymous)
}

/// Whether the agent's library is mapped in a process.
fn has_agent(process: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/maps")).is_ok_and(|maps| maps.contains(crate::program::AGENT))
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
    // A process that came since is not among those that were known before.
    let is_gone = |process| number_elsewhere(process).is_some_and(|number| !there.contains(&number));
    shared.bury(|process| managed.contains(&process) && is_gone(process));
}

/// The numbers of a process, in the outermost namespace first, by its `status`.
fn numbers(status: &str) -> impl Iterator<Item = i32> {
    let numbers = proc::status_field(status, "NSpid").unwrap_or_default();
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
    let mut found = BTreeSet::new();
    let mut todo = vec![root];
    while let Some(process) = todo.pop() {
        if found.insert(process) {
            match children(process) {
                Ok(children) => todo.extend(children),
                Err(()) => return tree_of_all(root),
            }
        }
    }
    found
}

/// What the threads of a process have started and not waited for. An error if the kernel does not say.
fn children(process: i32) -> Result<Vec<i32>, ()> {
    let mut found = Vec::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Ok(found) };
    for task in tasks.flatten() {
        match std::fs::read_to_string(task.path().join("children")) {
            Ok(children) => found.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok())),
            // It has ended, or there is no such file.
            Err(_) if task.path().exists() => return Err(()),
            Err(_) => {}
        }
    }
    Ok(found)
}

/// The field of a process's `stat` that holds its parent.
const PARENT: usize = 4;

/// The same by the parents of all processes.
fn tree_of_all(root: i32) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in processes() {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        let parent = proc::stat_field(stat.as_bytes(), PARENT);
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

/// A process's parent, by its `status`.
fn parent(status: &str) -> Option<i32> {
    proc::status_field(status, "PPid")?.parse().ok()
}

/// Anonymous and shared bytes that a process has resident, by its `status`.
fn resident(status: &str) -> Option<(u64, u64)> {
    Some((proc::kib_field(status.as_bytes(), "RssAnon")?, proc::kib_field(status.as_bytes(), "RssShmem")?))
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
            sum += proc::kib_field(line.as_bytes(), "Anonymous").unwrap_or(0);
        }
    }
    sum
}

/// Bytes of shared memory that a process has in proportion: a page that is mapped several times, here or in other
/// processes, counts once in the sum over all of them. `status` counts it for each mapping.
fn shared_part(process: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    proc::kib_field(text.as_bytes(), "Pss_Shmem")
}

fn huge_pages(process: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    proc::kib_field(text.as_bytes(), "AnonHugePages").unwrap_or(0)
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
    fn shared_memory_that_is_mapped_three_times_counts_once() {
        let script = include_str!("../../tests/scripts/maps_thrice.py");
        let mut command = std::process::Command::new("python3");
        command.args(["-c", script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            return refault_testing::skip_required("there is no python3");
        };
        let mut ready = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut ready)
            .expect("it says that it is ready");
        let process = child.id() as i32;
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        let (by_mapping, part) = (resident(&status).map(|(_, shared)| shared >> 20), shared_part(process));
        // The kernel rounds a third of each page down.
        let mib = |bytes: u64| (bytes + (1 << 19)) >> 20;
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert_eq!((by_mapping, part.map(mib)), (Some(96), Some(32)));
    }

    #[test]
    fn a_process_that_nobody_manages_is_seen() {
        let me = std::process::id() as i32;
        let touched = std::hint::black_box(vec![7u8; 32 << 20]);
        let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
        assert!(resident(&status).is_some_and(|(anonymous, _)| anonymous > touched.len() as u64 / 2));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        for tree in [tree(me), tree_of_all(me)] {
            assert!(tree.contains(&me) && tree.contains(&(child.id() as i32)) && !tree.contains(&1));
        }
        assert_eq!(
            parent(&std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it is there")),
            Some(me)
        );
        assert!(!shares_memory(child.id() as i32, me));
        let _ = (child.kill(), child.wait());
        assert!(own_bytes() > touched.len() as u64);
    }
}
