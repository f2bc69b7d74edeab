//! What the threads of a command do that has not ended in time: two looks at its processes, a moment apart.
//!
//! A lost wakeup and a processor that others have look the same from outside: nothing comes. What tells them apart is
//! in `/proc`: whether a thread has run between the looks, or stood in a queue for a processor. That is state R, which
//! a thread that starves has all the time. If it did neither, `/proc` has the system call in which it waits, and where
//! in the kernel. If gdb is there, it says where each thread is in the program: what it stops is killed afterwards.
//!
//! Nothing here takes the lock of a process's memory, which a process that stands still may hold.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::memory::Tree;

/// How long after the first look the second is taken.
pub const INTERVAL: Duration = Duration::from_secs(2);
/// All threads together have moved if they ran for this share of the time between the looks. The tool has threads that
/// look after something now and then.
const MOVED: f64 = 0.05;
/// Functions of the kernel that are shown for a thread.
const SHOWN_FUNCTIONS: usize = 6;
/// Seconds that gdb may take for a process.
const DEBUGGER_SECONDS: &str = "20";
/// Lines of gdb that are shown for a process.
const SHOWN_LINES: usize = 80;

/// One thread at one moment.
#[derive(Debug, Clone, Default)]
struct Thread {
    name: String,
    state: char,
    /// On a processor, and in a queue for one since it was created, as far as the kernel has noted it.
    ran: Duration,
    queued: Duration,
    switches: u64,
    /// The number and the arguments of the call that it is in, or "running".
    call: String,
    /// Functions of the kernel, innermost first.
    functions: Vec<String>,
    /// Signals that wait for the thread, for its process, and that it does not take now, as sets in hexadecimal.
    signals: String,
}

/// Two looks at the threads of a command.
#[derive(Debug, Clone)]
pub struct Look {
    /// By process and thread.
    before: BTreeMap<(u32, u32), Thread>,
    after: BTreeMap<(u32, u32), Thread>,
    interval: Duration,
    /// What gdb says of each process.
    places: Vec<String>,
}

impl Look {
    /// Looks, waits for [`INTERVAL`], and looks again.
    pub fn take(tree: &mut Tree) -> Look {
        let start = Instant::now();
        let before = threads(tree);
        std::thread::sleep(INTERVAL);
        let after = threads(tree);
        Look { before, after, interval: start.elapsed(), places: Vec::new() }
    }

    /// No thread ran, began or ended between the looks, and none waited for a processor.
    pub fn stands_still(&self) -> bool {
        let runnable = |threads: &BTreeMap<_, Thread>| threads.values().any(|thread| thread.state == 'R');
        let same = self.before.keys().eq(self.after.keys());
        same && !runnable(&self.before)
            && !runnable(&self.after)
            && self.moved().as_secs_f64() < MOVED * self.interval.as_secs_f64()
    }

    /// How long threads ran or waited for a processor between the looks, all together.
    fn moved(&self) -> Duration {
        let time = |key, thread: &Thread| {
            let before = self.before.get(key).cloned().unwrap_or_default();
            thread.ran.saturating_sub(before.ran) + thread.queued.saturating_sub(before.queued)
        };
        self.after.iter().map(|(key, thread)| time(key, thread)).sum()
    }

    /// Has gdb say where each thread is, if there is gdb. What it stops goes on afterwards, but calls may have been
    /// interrupted.
    pub fn ask_debugger(&mut self) {
        let mut processes: Vec<u32> = self.after.keys().map(|&(process, _)| process).collect();
        processes.dedup();
        for process in processes {
            let said = Command::new("timeout")
                .args(["--kill-after=1", DEBUGGER_SECONDS, "gdb", "-batch", "-nx"])
                .args(["-iex", "set auto-load off", "-iex", "set debuginfod enabled off"])
                .args(["-ex", "thread apply all backtrace 12", "-p", &process.to_string()])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output();
            let Ok(said) = said else { return };
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            let lines = text.lines().filter(|line| line.starts_with("Thread ") || line.starts_with('#'));
            let lines: Vec<&str> = lines.take(SHOWN_LINES).collect();
            if !lines.is_empty() {
                self.places.push(format!("process {process}:\n    {}", lines.join("\n    ")));
            }
        }
    }
}

impl fmt::Display for Look {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.stands_still() { "stands still" } else { "moves" };
        writeln!(to, "it {verdict}; {:.1} s between two looks:", self.interval.as_secs_f64())?;
        for (key @ (process, thread), now) in &self.after {
            write!(to, "  {process}/{thread} {} ", now.name)?;
            match self.before.get(key) {
                None => write!(to, "new {}", now.state)?,
                Some(before) => {
                    let milliseconds = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() * 1e3;
                    write!(
                        to,
                        "{}, then {}; +{:.1} ms on a processor, +{:.1} ms in a queue for one, +{} switches",
                        before.state,
                        now.state,
                        milliseconds(now.ran, before.ran),
                        milliseconds(now.queued, before.queued),
                        now.switches.saturating_sub(before.switches),
                    )?;
                }
            }
            writeln!(
                to,
                "; {:.3} and {:.3} s in all; call {}; in {}; signals {}",
                now.ran.as_secs_f64(),
                now.queued.as_secs_f64(),
                now.call,
                if now.functions.is_empty() {
                    "no function of the kernel".to_owned()
                } else {
                    now.functions.join(" < ")
                },
                now.signals,
            )?;
        }
        for (process, thread) in self.before.keys().filter(|key| !self.after.contains_key(key)) {
            writeln!(to, "  {process}/{thread} ended between the looks")?;
        }
        for place in &self.places {
            writeln!(to, "  {place}")?;
        }
        Ok(())
    }
}

/// Processor time of all processes of a tree and of what they have waited for.
pub fn processor_time(tree: &mut Tree) -> Duration {
    tree.find();
    let ticks: u64 = tree.processes().map(|process| ticks(process).unwrap_or(0)).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn ticks(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold anything. What follows it begins with field 3; the times are fields 14 to 17.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum())
}

fn threads(tree: &mut Tree) -> BTreeMap<(u32, u32), Thread> {
    tree.find();
    let mut all = BTreeMap::new();
    for process in tree.processes() {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in tasks.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            if let Some(found) = look_at(process, thread) {
                all.insert((process, thread), found);
            }
        }
    }
    all
}

/// None if it has ended.
fn look_at(process: u32, thread: u32) -> Option<Thread> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/task/{thread}/{file}")).ok();
    let status = read("status")?;
    let value = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("").trim().to_owned()
    };
    let times: Vec<u64> = read("schedstat")?.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let time = |index: usize| Duration::from_nanos(times.get(index).copied().unwrap_or(0));
    let count = |name: &str| value(name).parse::<u64>().unwrap_or(0);
    let short = |set: String| match set.trim_start_matches('0') {
        "" => "0".to_owned(),
        rest => rest.to_owned(),
    };
    // "[<0>] futex_wait+0x5d/0x100"
    let function = |line: &str| Some(line.split_whitespace().nth(1)?.split('+').next()?.to_owned());
    let stack = read("stack").unwrap_or_default();
    Some(Thread {
        name: value("Name"),
        state: value("State").chars().next().unwrap_or('?'),
        ran: time(0),
        queued: time(1),
        switches: count("voluntary_ctxt_switches") + count("nonvoluntary_ctxt_switches"),
        call: read("syscall").unwrap_or_default().trim().to_owned(),
        functions: stack.lines().filter_map(function).take(SHOWN_FUNCTIONS).collect(),
        signals: format!(
            "{} and {} wait, {} are blocked",
            short(value("SigPnd")),
            short(value("ShdPnd")),
            short(value("SigBlk"))
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;

    /// A look at a shell once it runs the program that is named, or itself.
    fn look_at_shell(text: &str, runs: &str) -> Look {
        let mut shell = Command::new("sh").args(["-c", text]).process_group(0).spawn().expect("a shell");
        let mut tree = Tree::new(shell.id());
        let is_it = |thread: &Thread| thread.name == runs;
        let start = Instant::now();
        while !threads(&mut tree).values().any(is_it) && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // It has begun, and is about to wait.
        std::thread::sleep(Duration::from_secs(1));
        let look = Look::take(&mut tree);
        for process in tree.processes() {
            let pid = rustix::process::Pid::from_raw(process as i32).expect("a process");
            _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        shell.wait().expect("it ends");
        look
    }

    #[test]
    fn what_waits_for_nothing_stands_still() {
        let look = look_at_shell("sleep 100; :", "sleep");
        assert!(look.stands_still(), "{look}");
        assert_eq!(look.after.len(), 2, "the shell and what it waits for: {look}");
        let said = look.to_string();
        assert!(said.contains("it stands still") && said.contains(" sleep S, then S"), "{said}");
    }

    #[test]
    fn what_runs_or_starves_moves() {
        let mut look = look_at_shell("while :; do :; done", "sh");
        assert!(!look.stands_still(), "{look}");
        // One that gets no processor at all has neither run nor been noted to wait.
        look.after.clone_from(&look.before);
        look.before.values_mut().chain(look.after.values_mut()).for_each(|thread| thread.state = 'R');
        assert!(!look.stands_still(), "{look}");
        look.before.values_mut().chain(look.after.values_mut()).for_each(|thread| thread.state = 'S');
        assert!(look.stands_still(), "{look}");
    }

    #[test]
    fn processor_time_counts_what_was_waited_for() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'ulimit -t 1; while :; do :; done'; exec sleep 1000"])
            .process_group(0)
            .spawn()
            .expect("a shell");
        let mut tree = Tree::new(shell.id());
        let start = Instant::now();
        // What the shell waits for is ended after a second of processor time, however long it takes to get that.
        let only_sleeps = |tree: &mut Tree| threads(tree).values().all(|thread| thread.name == "sleep");
        while !only_sleeps(&mut tree) && start.elapsed() < Duration::from_secs(300) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let used = processor_time(&mut tree);
        shell.kill().and_then(|()| shell.wait()).expect("it ends");
        assert!(used >= Duration::from_millis(900), "{used:?}");
    }
}
