//! What other rules would have chosen, from the processes that the log lists.
//!
//! - The kernel kills the process with the highest score: resident, swapped and page-table pages, and this many
//!   thousandths of the memory in question as its `oom_score_adj` says; −1000 is never killed (`oom_badness`, from 4.17 on).
//!   Of equal ones the last that is listed. earlyoom goes by the same score.
//! - Android's lmkd goes by `oom_score_adj` first: of those with the highest, which is at least 0, the one with most
//!   resident memory.
//! - systemd-oomd kills groups: for swap, which must be used to 90 %, the one that has most there; for pressure the one
//!   that reclaim scanned most. The log tells neither of other groups, so only whether it would have acted for swap can be said.

use serde::Serialize;

use super::{Kill, Task};

/// systemd-oomd acts for swap from this share on.
const OOMD_SWAP: f64 = 0.9;
const PAGE: u64 = 4096;
/// The adjustment of a process that is never killed.
const NEVER: i64 = -1000;

/// A choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Whose rule it is.
    pub rule: &'static str,
    /// The process; none if it would have killed none.
    pub pid: Option<u32>,
    /// Its name, or why none.
    pub words: String,
}

/// The kernel's score of a process, in pages; none if it is never killed. `memory_pages` is the limit and swap.
pub fn score(task: &Task, memory_pages: u64) -> Option<i64> {
    if task.adjustment <= NEVER || task.pid == 1 {
        return None;
    }
    let pages =
        (task.resident_bytes / PAGE).saturating_add(task.swapped_bytes / PAGE).saturating_add(task.table_bytes / PAGE);
    let raised = task.adjustment.saturating_mul(i64::try_from(memory_pages).unwrap_or(i64::MAX) / 1000);
    Some(i64::try_from(pages).unwrap_or(i64::MAX).saturating_add(raised))
}

/// The process with the highest score.
pub fn highest(tasks: &[Task], memory_pages: u64) -> Option<&Task> {
    tasks
        .iter()
        .filter_map(|task| Some((score(task, memory_pages)?, task)))
        .max_by_key(|(score, _)| *score)
        .map(|it| it.1)
}

/// The memory that scores are shares of, in pages: the limit and the swap beside it. Without a limit in the log, none.
pub fn memory_pages(kill: &Kill) -> Option<u64> {
    let limit = kill.memory?.limit_bytes?;
    let swap = kill.swap.and_then(|swap| swap.limit_bytes).unwrap_or(0);
    Some(limit.saturating_add(swap) / PAGE)
}

/// What the rules would have chosen; empty where the log lists no processes.
pub fn choices(kill: &Kill) -> Vec<Choice> {
    if kill.tasks.is_empty() {
        return Vec::new();
    }
    let of = |rule, task: Option<&Task>, none: &str| Choice {
        rule,
        pid: task.map(|task| task.pid),
        words: task.map_or_else(|| none.to_owned(), |task| task.name.clone()),
    };
    let is_plain = kill.tasks.iter().all(|task| task.adjustment == 0 || task.adjustment <= NEVER);
    let kernel = match memory_pages(kill) {
        Some(pages) => of("kernel", highest(&kill.tasks, pages), "no process may be killed"),
        // Without adjustments the memory does not matter.
        None if is_plain => of("kernel", highest(&kill.tasks, 0), "no process may be killed"),
        None => of("kernel", None, "the log does not say how much memory there was"),
    };
    let plain: Vec<Task> = kill
        .tasks
        .iter()
        .map(|task| Task { adjustment: task.adjustment.clamp(NEVER, 0) / 1000 * 1000, ..task.clone() })
        .collect();
    let unadjusted = of("kernel without oom_score_adj", highest(&plain, 0), "no process may be killed");
    let candidates = kill.tasks.iter().filter(|task| task.adjustment >= 0 && task.pid != 1);
    let lmkd = candidates.max_by_key(|task| (task.adjustment, task.resident_bytes));
    let swap =
        kill.swap.and_then(|swap| Some(swap.used_bytes as f64 / swap.limit_bytes.filter(|most| *most > 0)? as f64));
    let oomd = match swap {
        Some(share) if share >= OOMD_SWAP => {
            "a whole group, for swap: the one with most in it, which the log does not tell"
        }
        Some(_) => "nothing for swap, which was not used to 90 %; of pressure the log tells nothing",
        None => "nothing for swap, as far as the log shows any; of pressure the log tells nothing",
    };
    vec![
        kernel,
        unadjusted,
        of("lmkd", lmkd, "no process with an adjustment of 0 or more"),
        of("systemd-oomd", None, oomd),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(pid: u32, resident_pages: u64, swapped_pages: u64, adjustment: i64) -> Task {
        Task {
            pid,
            name: format!("task-{pid}"),
            resident_bytes: resident_pages * PAGE,
            swapped_bytes: swapped_pages * PAGE,
            table_bytes: 0,
            adjustment,
        }
    }

    #[test]
    fn the_score_is_the_kernel_s() {
        assert_eq!(score(&task(7, 100, 50, 0), 10_000), Some(150));
        assert_eq!(score(&task(7, 100, 50, 500), 10_000), Some(5_150));
        assert_eq!(score(&task(7, 100, 50, -500), 10_000), Some(-4_850));
        assert_eq!(score(&task(7, 100, 50, -1000), 10_000), None);
        assert_eq!(score(&task(1, 100, 50, 0), 10_000), None);
        let huge = Task {
            resident_bytes: u64::MAX,
            swapped_bytes: u64::MAX,
            table_bytes: u64::MAX,
            ..task(7, 0, 0, i64::MAX)
        };
        assert!(score(&huge, u64::MAX).is_some());
        // Of equal ones the last is taken.
        assert_eq!(
            highest(&[task(7, 5, 0, 0), task(8, 5, 0, 0), task(9, 4, 0, 0)], 1000).map(|task| task.pid),
            Some(8)
        );
    }
}
