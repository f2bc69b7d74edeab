//! What memory a tree of processes uses, seen from outside: `/proc/PID/smaps`, proportional set sizes.
//!
//! `refault run --memory N` promises that private anonymous memory, its compressed copies and the tool's own memory
//! stay within N over the program and its children. From outside those are all anonymous pages except
//! - stacks: `[stack]`, and mappings right above a small inaccessible one, which is how threads' stacks are laid out;
//! - executable anonymous memory (code that was made while running);
//! - memory that a file's mapping ends in (a library's `.bss`), and private copies of files' pages (`.data`);
//! - shared memory and huge pages.
//!
//! A mapping with a userfaultfd on it (`um`, `uw`, `ui` among its `VmFlags`) is counted whatever it looks like. The
//! rules err on the side of counting.
//!
//! A walk through a process takes milliseconds. Meanwhile thousands of pages may move from one of its mappings to
//! another, or to the next process, and are met twice or never. So after the walks all processes are asked at once how
//! much anonymous memory they have. What was counted of each is scaled by that.
//!
//! Cost: a walk through the page tables of every process per sample.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const KIB: u64 = 1024;
/// Inaccessible mappings up to this size are taken for the guard of the stack above them.
const MAX_GUARD: u64 = 64 * KIB;
/// What was counted on a walk is scaled by this at most.
const MAX_SCALE: f64 = 1.25;

/// Memory of a tree at one moment. All in bytes of proportional set size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// What must stay within the budget.
    pub counted: u64,
    /// Part of it that has a userfaultfd on it.
    pub registered: u64,
    /// Stacks of threads.
    pub stacks: u64,
    /// Huge pages.
    pub huge: u64,
    /// Everything, files included.
    pub all: u64,
    /// Processes.
    pub processes: u64,
}

impl Sample {
    fn add(&mut self, other: &Sample) {
        self.counted += other.counted;
        self.registered += other.registered;
        self.stacks += other.stacks;
        self.huge += other.huge;
        self.all += other.all;
        self.processes += other.processes;
    }
}

/// The largest values of all samples, each for itself, and how many samples there were.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peak {
    /// Per field of [`Sample`].
    pub most: Sample,
    /// How many samples.
    pub samples: u64,
}

impl Peak {
    /// Takes one more sample into account.
    pub fn take(&mut self, sample: &Sample) {
        let most = &mut self.most;
        most.counted = most.counted.max(sample.counted);
        most.registered = most.registered.max(sample.registered);
        most.stacks = most.stacks.max(sample.stacks);
        most.huge = most.huge.max(sample.huge);
        most.all = most.all.max(sample.all);
        most.processes = most.processes.max(sample.processes);
        self.samples += 1;
    }
}

/// A process and all that descend from it, those included whose parents have ended.
#[derive(Debug)]
pub struct Tree {
    root: u32,
    /// Process and start time, since numbers are used again.
    seen: BTreeSet<(u32, u64)>,
}

impl Tree {
    /// The tree below a process.
    pub fn new(root: u32) -> Tree {
        Tree { root, seen: BTreeSet::new() }
    }

    /// The processes that were found last.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.seen.iter().map(|&(pid, _)| pid)
    }

    /// Finds all processes of the tree, without a look at their memory.
    pub fn find(&mut self) {
        let mut children: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
        let mut alive = BTreeSet::new();
        let mut todo = Vec::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Process::read(pid)
        }) {
            alive.insert((process.pid, process.started));
            children.entry(process.parent).or_default().push((process.pid, process.started));
            if process.pid == self.root || process.group == self.root {
                todo.push((process.pid, process.started));
            }
        }
        todo.extend(self.seen.intersection(&alive));
        self.seen.clear();
        while let Some(process) = todo.pop() {
            if self.seen.insert(process) {
                todo.extend(children.get(&process.0).into_iter().flatten());
            }
        }
    }

    /// Looks at all processes of the tree now. Those that end meanwhile count as nothing.
    pub fn sample(&mut self) -> Sample {
        self.find();
        let read = |pid: u32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        let walk = |&(pid, _): &(u32, u64)| Some((pid, walk(&read(pid, "smaps")?)));
        let walks: Vec<(u32, Walk)> = self.seen.iter().filter_map(walk).collect();
        let status: Vec<Option<String>> = walks.iter().map(|(pid, _)| read(*pid, "status")).collect();
        let mut sum = Sample::default();
        for ((_, walk), status) in walks.iter().zip(status) {
            sum.add(&walk.at_once(status.as_deref().and_then(resident_anonymous)));
        }
        sum
    }
}

/// The anonymous memory of a process by its `status`, in bytes.
fn resident_anonymous(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * KIB)
}

struct Process {
    pid: u32,
    parent: u32,
    group: u32,
    started: u64,
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, spaces and parentheses included.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Process { pid, parent: number(1)? as u32, group: number(2)? as u32, started: number(19)? })
    }
}

/// One mapping of a process.
#[derive(Debug, Default)]
struct Mapping {
    start: u64,
    end: u64,
    permissions: String,
    inode: u64,
    path: String,
    pss: u64,
    anonymous: u64,
    huge: u64,
    flags: String,
}

/// What a walk through a process met.
#[derive(Debug, Default)]
struct Walk {
    sample: Sample,
    /// Part of what is counted that is private, by proportional size and by what is resident; and what is resident of
    /// other anonymous memory.
    private: u64,
    private_resident: u64,
    other_resident: u64,
}

impl Walk {
    /// What was there at the moment in which the process had `anonymous` bytes of anonymous memory.
    fn at_once(&self, anonymous: Option<u64>) -> Sample {
        let Some(anonymous) = anonymous.filter(|_| self.private_resident > 0) else { return self.sample };
        // One that has become another program meanwhile is not what was walked through.
        let scale =
            (anonymous.saturating_sub(self.other_resident) as f64 / self.private_resident as f64).min(MAX_SCALE);
        let scaled = |bytes: u64| (bytes as f64 * scale) as u64;
        Sample {
            counted: self.sample.counted - self.private + scaled(self.private),
            registered: scaled(self.sample.registered),
            ..self.sample
        }
    }
}

/// Sums up the text of a process's `smaps`.
pub fn classify(text: &str) -> Sample {
    walk(text).sample
}

fn walk(text: &str) -> Walk {
    let mut walk = Walk::default();
    let mut sum = Sample { processes: 1, ..Sample::default() };
    let mut below: Option<Mapping> = None;
    for mapping in mappings(text) {
        sum.all += mapping.pss;
        sum.huge += mapping.huge;
        let small_pages = mapping.pss.saturating_sub(mapping.huge);
        let registered = mapping.flags.split_whitespace().any(|flag| matches!(flag, "um" | "uw" | "ui"));
        let is_stack = !registered && mapping.is_stack(below.as_ref());
        let counts = registered || !is_stack && mapping.is_private_memory(below.as_ref());
        if registered {
            sum.registered += small_pages;
        } else if is_stack {
            sum.stacks += small_pages;
        }
        if counts {
            sum.counted += small_pages;
        }
        let small_resident = mapping.anonymous.saturating_sub(mapping.huge);
        if counts && mapping.inode == 0 {
            walk.private += small_pages;
            walk.private_resident += small_resident;
        } else {
            walk.other_resident += mapping.anonymous;
        }
        below = Some(mapping);
    }
    walk.sample = sum;
    walk
}

impl Mapping {
    fn touches(&self, below: Option<&Mapping>) -> bool {
        below.is_some_and(|below| below.end == self.start)
    }

    fn is_stack(&self, below: Option<&Mapping>) -> bool {
        let guard = |below: &Mapping| {
            below.inode == 0 && below.permissions.starts_with("---") && below.end - below.start <= MAX_GUARD
        };
        self.path.starts_with("[stack")
            || (self.inode == 0
                && self.path.is_empty()
                && self.permissions.starts_with("rw-p")
                && self.touches(below)
                && below.is_some_and(guard))
    }

    fn is_private_memory(&self, below: Option<&Mapping>) -> bool {
        // The tool's own memory files are its cost, whatever they are mapped as.
        if self.path.starts_with("/memfd:refault") {
            return true;
        }
        let kernel = self.path.starts_with("[v") || self.path.starts_with("[stack");
        let bss = self.touches(below) && self.path.is_empty() && below.is_some_and(|below| below.inode != 0);
        self.inode == 0 && !kernel && !bss && self.permissions.ends_with('p') && !self.permissions.contains('x')
    }
}

fn mappings(text: &str) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some(key) = first.strip_suffix(':') {
            let Some(mapping) = all.last_mut() else { continue };
            let kib = |words: &mut std::str::SplitWhitespace<'_>| {
                words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * KIB
            };
            match key {
                "Pss" => mapping.pss = kib(&mut words),
                "Anonymous" => mapping.anonymous = kib(&mut words),
                "AnonHugePages" => mapping.huge = kib(&mut words),
                "VmFlags" => mapping.flags = words.collect::<Vec<_>>().join(" "),
                _ => {}
            }
        } else if let Some((start, end)) = first.split_once('-') {
            let hexadecimal = |word: &str| u64::from_str_radix(word, 16).unwrap_or(0);
            all.push(Mapping {
                start: hexadecimal(start),
                end: hexadecimal(end),
                permissions: words.next().unwrap_or("").to_owned(),
                inode: words.nth(2).and_then(|word| word.parse().ok()).unwrap_or(0),
                path: words.collect::<Vec<_>>().join(" "),
                ..Mapping::default()
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
00400000-00500000 rw-p 00001000 fe:00 77 /usr/bin/program
Pss:                 400 kB
Anonymous:           400 kB
00500000-00600000 rw-p 00000000 00:00 0 
Pss:                 100 kB
01000000-02000000 rw-p 00000000 00:00 0 [heap]
Pss:                 1000 kB
VmFlags: rd wr mr mw me um uw sd
7f0000000000-7f0000001000 ---p 00000000 00:00 0 
Pss:                   0 kB
7f0000001000-7f0000801000 rw-p 00000000 00:00 0 
Pss:                  20 kB
VmFlags: rd wr mr mw me sd
7f1000000000-7f1000800000 rw-p 00000000 00:00 0 
Pss:                 5000 kB
AnonHugePages:       2048 kB
VmFlags: rd wr mr mw me sd
7f2000000000-7f2000800000 rwxp 00000000 00:00 0 
Pss:                 300 kB
7f3000000000-7f3000800000 rw-s 00000000 00:05 9 /dev/zero (deleted)
Pss:                 700 kB
7ff000000000-7ff000800000 rw-p 00000000 00:00 0 [stack]
Pss:                 60 kB
";

    #[test]
    fn anonymous_memory_is_counted_and_stacks_files_code_and_huge_pages_are_not() {
        let sample = classify(TEXT);
        assert_eq!(sample.counted, (1000 + 5000 - 2048) * KIB);
        assert_eq!(sample.registered, 1000 * KIB);
        assert_eq!(sample.stacks, 80 * KIB);
        assert_eq!(sample.huge, 2048 * KIB);
        assert_eq!(sample.all, (400 + 100 + 1000 + 20 + 5000 + 300 + 700 + 60) * KIB);
    }

    #[test]
    fn what_moved_during_a_walk_is_counted_once() {
        let text = "\
01000000-02000000 rw-p 00000000 00:00 0 [heap]
Pss:                 600 kB
Anonymous:           1200 kB
VmFlags: rd wr mr mw me um
7f2000000000-7f2000800000 rw-p 00000000 00:00 0 
Pss:                 400 kB
Anonymous:           400 kB
7ff000000000-7ff000800000 rw-p 00000000 00:00 0 [stack]
Pss:                 60 kB
Anonymous:           60 kB
";
        // 400 KiB were met twice; nothing was; less by enough to be another program's; the process has ended.
        let counted = |anonymous: Option<u64>| walk(text).at_once(anonymous.map(|kib| kib * KIB)).counted / KIB;
        assert_eq!(counted(Some(1260)), 750);
        assert_eq!(counted(Some(1660)), 1000);
        assert_eq!(counted(Some(99_999)), 1250);
        assert_eq!(counted(None), 1000);
        assert_eq!(resident_anonymous("Name:\tx\nRssAnon:\t     128 kB\nRssFile: 5 kB\n"), Some(128 * KIB));
    }

    #[test]
    fn memory_that_a_process_has_touched_is_seen() {
        let before = Tree::new(std::process::id()).sample().counted;
        let touched = std::hint::black_box(vec![7u8; 64 << 20]);
        let after = Tree::new(std::process::id()).sample();
        assert!(after.all >= before + touched.len() as u64 / 2, "{before} {after:?}");
        assert!(after.counted + after.huge >= before + touched.len() as u64 / 2, "{before} {after:?}");
    }
}
