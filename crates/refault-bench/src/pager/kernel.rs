//! The other side: a memory cgroup and zram swap, made for one run and removed after it.
//!
//! A shell in a process group of its own makes both and takes them away when its standard input ends. It therefore
//! cleans up however the benchmark ends: by itself, by a signal, or killed, even before it has read the shell's answer.
//! Devices and swap that existed before are never touched: the zram device is a new one, and it is reset and removed
//! only under the number it was given.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use refault_console::Failure;

/// Where memory cgroups are and what their files are called.
struct Hierarchy {
    root: PathBuf,
    limit: &'static str,
    peak: &'static str,
}

const SCRIPT: &str = include_str!("../../programs/kernel_side.sh");

/// A cgroup with a limit, and zram to swap to, for as long as this lives.
pub struct Kernel {
    guard: Child,
    stdin: Option<ChildStdin>,
    group: PathBuf,
    peak: PathBuf,
    cpu_before: f64,
    zram: Option<u32>,
}

impl Kernel {
    /// Makes both. `limit` and `swap` in bytes; without swap there is no device.
    pub fn new(limit: u64, swap: u64) -> Result<Kernel, Failure> {
        let hierarchy = hierarchy()?;
        let group = hierarchy.root.join(format!("refault-bench-{}", std::process::id()));
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Failure::failed("the kernel's side cannot be set up", what, format!("{error}"))
        };
        let mut guard = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(&group)
            .arg(hierarchy.limit)
            .arg(limit.to_string())
            .arg(swap.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| failed("sh", &error))?;
        let stdin = guard.stdin.take();
        let mut line = String::new();
        let output = guard.stdout.take().expect("invariant: the output was asked for");
        BufReader::new(output).read_line(&mut line).map_err(|error| failed("sh", &error))?;
        match line.trim().split_once(' ') {
            Some(("ready", number)) => {
                let zram = number.parse().ok();
                let peak = group.join(hierarchy.peak);
                Ok(Kernel { guard, stdin, group, peak, cpu_before: children_seconds(), zram })
            }
            _ => {
                let _ = guard.wait();
                let remedy = "zram, lz4 and a memory cgroup are needed, and root";
                Err(failed(line.trim().strip_prefix("failed ").unwrap_or("sh"), &remedy))
            }
        }
    }

    /// A command that runs a program inside: the program and its arguments are to be added.
    pub fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.group);
        command
    }

    /// The same in a cgroup of its own below, which has no limit but the one above.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn command_in(&self, name: &str) -> Result<Command, Failure> {
        let below = self.group.join(name);
        std::fs::create_dir(&below).map_err(|error| Failure::write(below.display(), &error))?;
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(below);
        Ok(command)
    }

    /// Bytes of anonymous memory that are charged to the cgroup: what a pager manages. Code, files and page tables are not
    /// in it.
    pub fn anonymous_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(self.group.join("memory.stat")).unwrap_or_default();
        let mut values = text.lines().filter_map(|line| line.strip_prefix("total_rss ").or(line.strip_prefix("anon ")));
        values.next().and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
    }

    /// The most that was charged to the cgroup.
    pub fn peak_bytes(&self) -> u64 {
        number(&self.peak, 0)
    }

    /// The most memory that zram has occupied, its own overhead included.
    pub fn peak_compressed(&self) -> u64 {
        self.zram.map_or(0, |zram| number(Path::new(&format!("/sys/block/zram{zram}/mm_stat")), 4))
    }

    /// Processor time of the programs that were started since this was made, and have ended.
    pub fn cpu_seconds(&self) -> f64 {
        children_seconds() - self.cpu_before
    }

    /// Faults on pages that were swapped out, inside; not a number if the kernel does not say.
    pub fn major_faults(&self) -> f64 {
        let text = std::fs::read_to_string(self.group.join("memory.stat")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("pgmajfault "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(f64::NAN)
    }

    /// Programs that the kernel has killed inside because it found no memory.
    pub fn kills(&self) -> u64 {
        let text = ["memory.oom_control", "memory.events"]
            .iter()
            .find_map(|name| std::fs::read_to_string(self.group.join(name)).ok())
            .unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// Pages of files that are charged to the cgroup, if the kernel says.
    pub fn file_pages(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.group.join("memory.stat")).ok()?;
        let mut values = text.lines().filter_map(|line| line.strip_prefix("cache ").or(line.strip_prefix("file ")));
        values.next()?.trim().parse::<u64>().ok().map(|bytes| bytes / 4096)
    }

    /// Bytes of memory that zram occupies, its own overhead included.
    pub fn compressed_bytes(&self) -> u64 {
        self.zram.map_or(0, |zram| number(Path::new(&format!("/sys/block/zram{zram}/mm_stat")), 2))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Why no memory cgroup can be made here, if none can.
pub fn cgroup_obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root: it makes a memory cgroup, and removes it after each run".into());
    }
    hierarchy().err().map(|failure| failure.line().to_owned())
}

/// Why this cannot run here, if it cannot.
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some(
            "needs root: it makes a memory cgroup and a zram swap device, and removes them after each run".into(),
        );
    }
    if !Path::new("/sys/class/zram-control/hot_add").exists() {
        return Some("needs zram: this kernel has no /sys/class/zram-control (try `modprobe zram`)".into());
    }
    hierarchy().err().map(|failure| failure.line().to_owned())
}

fn hierarchy() -> Result<Hierarchy, Failure> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let found = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let fits =
                fields.get(2) == Some(&kind) && (option.is_empty() || fields.get(3)?.split(',').any(|o| o == option));
            fits.then(|| PathBuf::from(fields[1]))
        })
    };
    if let Some(root) = found("cgroup", "memory") {
        return Ok(Hierarchy { root, limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes" });
    }
    if let Some(root) = found("cgroup2", "") {
        let controllers = std::fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        if controllers.split_whitespace().any(|name| name == "memory") {
            return Ok(Hierarchy { root, limit: "memory.max", peak: "memory.peak" });
        }
    }
    Err(Failure::failed(
        "no memory cgroup",
        "/proc/mounts",
        "mount the memory controller, or enable it in subtree_control",
    ))
}

/// Processor seconds of all ended children and theirs.
fn children_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks: f64 = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|word| word.parse::<f64>().ok())
        .sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// The number at a place of a file of numbers; 0 if it is not there.
fn number(path: &Path, index: usize) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().nth(index).and_then(|word| word.parse().ok()).unwrap_or(0)
}
