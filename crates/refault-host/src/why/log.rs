//! Finds kills in a log.
//!
//! The kernel writes some fifty lines for each: who asked for memory, the group's levels and statistics, the processes,
//! the line `oom-kill:` with the groups, and `Killed process`. Lines of other processors may stand between them. What
//! comes before `Killed process` belongs to it, back to the kill before. Each line is looked at by itself, whatever the
//! log puts in front of it; nothing of a line is taken for a number that is none.
//!
//! Cost: one pass; what is kept of a kill is bounded by [`MAX_TASKS`] and the length of a name.

use super::{Kill, Killer, Level, Limit, Task, Victim};
use crate::figures::Stat;
use crate::text::printable;

/// Processes that are kept of a kill, at most.
pub const MAX_TASKS: usize = 10_000;
/// Lines of a group's statistics.
const MAX_STAT_LINES: usize = 200;
const PAGE: u64 = 4096;
/// The kernel writes no limit as the largest number of pages, in KiB.
const NO_LIMIT_KIB: u64 = u64::MAX / 4096;

/// What was read since the last kill.
#[derive(Debug, Default)]
struct Before {
    asked_by: Option<String>,
    memory: Option<Level>,
    swap: Option<Level>,
    free_swap_kib: Option<u64>,
    stat: Option<Vec<String>>,
    tasks: Vec<Task>,
    group: Option<String>,
    victim_group: Option<String>,
    limit: Option<Limit>,
}

/// All kills of a log, in its order.
pub fn kills(log: &[u8]) -> Vec<Kill> {
    let (mut all, mut before) = (Vec::new(), Before::default());
    for line in log.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let (seconds, text) = timed(line.trim_end_matches('\r'));
        if let Some(mut kill) = by_daemon(text).or_else(|| by_kernel(text, &mut before)) {
            kill.seconds_after_boot = seconds;
            all.push(kill);
        } else {
            before.read(text);
        }
    }
    all
}

/// A line without what a log puts in front of it, and its time: `6,999,5906198436,-;text`, `[ 5906.19] text`.
fn timed(line: &str) -> (Option<f64>, &str) {
    if let Some((head, text)) = line.split_once(';') {
        let mut numbers = head.split(',').map(str::parse::<u64>);
        if let (Some(Ok(_)), Some(Ok(_)), Some(Ok(microseconds))) = (numbers.next(), numbers.next(), numbers.next()) {
            return (Some(microseconds as f64 / 1e6), text);
        }
    }
    let text = line.split_once(" kernel: ").map_or(line, |(_, text)| text);
    let seconds = text.strip_prefix('[').and_then(|rest| {
        let (time, text) = rest.split_once(']')?;
        // A number without a fraction is that of a process.
        let seconds = time.trim().parse::<f64>().ok().filter(|_| time.contains('.'));
        Some((seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?, text))
    });
    match seconds {
        Some((seconds, text)) => (Some(seconds), text.strip_prefix(' ').unwrap_or(text)),
        None => (None, text),
    }
}

fn name(text: &str) -> String {
    printable(text.as_bytes())
}

/// `Killed process 7 (name) total-vm:9kB, …`, of a group or of the host.
fn by_kernel(text: &str, before: &mut Before) -> Option<Kill> {
    let (head, rest) = text.split_once("Killed process ")?;
    let head = head.to_lowercase();
    if !head.ends_with("out of memory: ") && !head.ends_with("oom_kill_allocating_task): ") {
        return None;
    }
    let (pid, rest) = rest.split_once(" (")?;
    // A name may hold parentheses, but what follows it does not.
    let (comm, figures) = rest.rsplit_once(") total-vm:").or_else(|| rest.rsplit_once(')'))?;
    let field = |key: &str| figures.split([' ', ',']).find_map(|word| word.strip_prefix(key));
    let kib = |key: &str| field(key)?.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024);
    let victim = Victim {
        pid: Some(pid.parse().ok()?),
        name: name(comm),
        uid: field("UID:").and_then(|uid| uid.parse().ok()),
        anonymous_bytes: kib("anon-rss:"),
        file_bytes: kib("file-rss:"),
        shared_bytes: kib("shmem-rss:"),
        adjustment: field("oom_score_adj:").and_then(|adjustment| adjustment.parse().ok()),
    };
    let before = std::mem::take(before);
    let of_group = head.contains("memory cgroup");
    Some(Kill {
        seconds_after_boot: None,
        killer: Killer::Kernel,
        limit: before.limit.unwrap_or(if of_group { Limit::Group } else { Limit::Host }),
        group: before.group,
        victim_group: before.victim_group,
        victim,
        asked_by: before.asked_by,
        memory: before.memory,
        swap: before.swap,
        stat: before.stat.map(|lines| Stat::parse(&lines.join("\n"))),
        reason: None,
        tasks: before.tasks,
    })
}

/// What systemd-oomd and earlyoom write.
fn by_daemon(text: &str) -> Option<Kill> {
    let kill = |killer, victim, limit, group, reason: &str| Kill {
        seconds_after_boot: None,
        killer,
        limit,
        group,
        victim_group: None,
        victim,
        asked_by: None,
        memory: None,
        swap: None,
        stat: None,
        reason: Some(name(reason)),
        tasks: Vec::new(),
    };
    if let Some((_, rest)) = text.split_once("systemd-oomd").filter(|(_, rest)| rest.contains("Killed /")) {
        let (_, rest) = rest.split_once("Killed ")?;
        let (path, reason) = rest.split_once(" due to ")?;
        let victim = Victim { name: name(path), ..Victim::default() };
        let pressed = reason.strip_prefix("memory pressure for ").and_then(|rest| rest.split_once(" being "));
        let limit = if pressed.is_some() { Limit::Group } else { Limit::Host };
        let mut found = kill(Killer::SystemdOomd, victim, limit, pressed.map(|(group, _)| name(group)), reason);
        found.victim_group = Some(name(path));
        return Some(found);
    }
    let (_, rest) = text.split_once("earlyoom").filter(|(_, rest)| rest.contains("sending SIG"))?;
    let (_, rest) = rest.split_once(" to process ")?;
    let (pid, rest) = rest.split_once(' ')?;
    let quoted = rest.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    let (comm, figures) = quoted?;
    // Newer ones write the command line behind the figures, in quotes too.
    let (comm, figures) = comm.split_once("\": ").map_or((comm, figures), |(comm, figures)| (comm, figures));
    let uid = rest.strip_prefix("uid ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    let resident = figures
        .split_once("VmRSS ")
        .and_then(|(_, rest)| rest.trim_start().split_once(" MiB")?.0.parse::<u64>().ok()?.checked_mul(1 << 20));
    let victim =
        Victim { pid: Some(pid.parse().ok()?), name: name(comm), uid, anonymous_bytes: resident, ..Victim::default() };
    Some(kill(Killer::Earlyoom, victim, Limit::Host, None, "available memory and free swap fell below its limits"))
}

impl Before {
    fn read(&mut self, text: &str) {
        if let Some((comm, _)) = text.split_once(" invoked oom-killer: ") {
            // A kill of which no victim was written is none.
            *self = Before { asked_by: Some(name(comm)), ..Before::default() };
        } else if let Some(rest) = text.strip_prefix("memory: usage ") {
            self.memory = level(rest);
        } else if let Some(rest) = text.strip_prefix("swap: usage ") {
            self.swap = level(rest);
        } else if let Some(rest) = text.strip_prefix("Free swap ") {
            self.free_swap_kib = kib_behind(rest);
        } else if let Some(rest) = text.strip_prefix("Total swap ") {
            let total = kib_behind(rest).and_then(|total| total.checked_mul(1024));
            let free = self.free_swap_kib.and_then(|free| free.checked_mul(1024));
            self.swap = total
                .zip(free)
                .map(|(total, free)| Level { used_bytes: total.saturating_sub(free), limit_bytes: Some(total) });
        } else if text.starts_with("Memory cgroup stats for ") {
            self.stat = Some(Vec::new());
        } else if let Some(rest) = text.strip_prefix("oom-kill:constraint=") {
            self.constraint(rest);
        } else if let Some(task) = task(text) {
            if self.tasks.len() < MAX_TASKS {
                self.tasks.push(task);
            }
        } else if let Some(lines) = self.stat.as_mut().filter(|lines| lines.len() < MAX_STAT_LINES) {
            lines.push(text.trim().to_owned());
        }
    }

    /// `CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=x,pid=7,uid=0`
    fn constraint(&mut self, text: &str) {
        let is_group = text.starts_with("CONSTRAINT_MEMCG");
        self.limit = Some(if is_group { Limit::Group } else { Limit::Host });
        // Paths may hold commas; the keys that follow bound them.
        let between = |key: &str, end: &str| Some(text.split_once(key)?.1.split_once(end)?.0);
        self.group = between(",oom_memcg=", ",task_memcg=").map(name);
        // A name of its group may hold what looks like the next key, so the last one counts.
        let victim = text.split_once(",task_memcg=").and_then(|(_, rest)| rest.rsplit_once(",task="));
        self.victim_group = victim.map(|(path, _)| name(path));
        if !is_group {
            self.group = None;
        }
    }
}

/// `20480kB, limit 20480kB, failcnt 56`
fn level(text: &str) -> Option<Level> {
    let (used, rest) = text.split_once("kB, limit ")?;
    let limit = rest.split_once("kB")?.0.parse::<u64>().ok()?;
    let used_bytes = used.parse::<u64>().ok()?.checked_mul(1024)?;
    Some(Level { used_bytes, limit_bytes: if limit >= NO_LIMIT_KIB { None } else { limit.checked_mul(1024) } })
}

/// `= 20480kB`
fn kib_behind(text: &str) -> Option<u64> {
    text.trim_start_matches(['=', ' ']).strip_suffix("kB")?.parse().ok()
}

/// `[   1234]     0  1234     6000      500      400      100        0    98304        0             0 name`; older
/// kernels leave out the three kinds of resident pages.
fn task(text: &str) -> Option<Task> {
    let (pid, rest) = text.trim_start().strip_prefix('[')?.split_once(']')?;
    let pid = pid.trim().parse().ok()?;
    // A name may hold blanks and numbers, so the numbers in front of it are counted.
    let (mut numbers, mut left) = (Vec::new(), rest);
    while let Some((word, rest)) = left.trim_start().split_once(' ') {
        let Ok(number) = word.parse::<i64>() else { break };
        numbers.push(number);
        left = rest;
        if numbers.len() == 10 {
            break;
        }
    }
    // uid, tgid, total_vm, rss, [rss_anon, rss_file, rss_shmem,] pgtables, swapents, adjustment
    let (tables, swapped, adjustment) = match numbers[..] {
        [_, _, _, _, _, _, _, tables, swapped, adjustment] => (tables, swapped, adjustment),
        [_, _, _, _, tables, swapped, adjustment] => (tables, swapped, adjustment),
        _ => return None,
    };
    let pages = |count: i64| u64::try_from(count).ok()?.checked_mul(PAGE);
    Some(Task {
        pid,
        name: name(left.trim_start()),
        resident_bytes: pages(numbers[3])?,
        swapped_bytes: pages(swapped)?,
        table_bytes: tables.try_into().ok()?,
        adjustment,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_may_be_named_like_the_keys_behind_it() {
        let mut before = Before::default();
        before.constraint(
            "CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/g,task=init,pid=1,uid=0,\
             task=worker,pid=7,uid=1000",
        );
        assert_eq!(before.group.as_deref(), Some("/a"));
        assert_eq!(before.victim_group.as_deref(), Some("/a/g,task=init,pid=1,uid=0"));
    }
}
