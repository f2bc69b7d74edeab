//! What would have prevented a kill, as far as the log and the history show.
//!
//! Each sentence says what it rests on. Where neither shows enough, that is said instead: how much a program would have
//! gone on to ask for is in no log.

use serde::Serialize;

use super::replay::{highest, memory_pages};
use super::{Kill, Killer, Limit, Task};
use crate::history::Sample;

/// Growth over the history that is called steady, a share of what there was.
const STEADY: f64 = 0.05;
/// Samples of the history that growth is judged by, at least.
const MIN_SAMPLES: usize = 3;
/// Less than this in swap helps no program.
const MIN_SWAPPED_BYTES: u64 = 1 << 20;
const MIB: f64 = (1 << 20) as f64;

/// What would have helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// A larger limit.
    Limit,
    /// Swap, or more of it.
    Swap,
    /// Other adjustments of scores, or another killer.
    Policy,
    /// The multi-gen LRU's `min_ttl_ms`.
    MinTtl,
    /// Nothing can be said.
    Nothing,
}

/// A remedy, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What would have helped.
    pub remedy: Remedy,
    /// Why, in a sentence.
    pub words: String,
}

fn verdict(remedy: Remedy, words: String) -> Verdict {
    Verdict { remedy, words }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB)
}

/// What would have prevented a kill. `before` is the history of the group whose limit it was, up to the kill, oldest first.
pub fn verdicts(kill: &Kill, before: &[Sample]) -> Vec<Verdict> {
    let mut all: Vec<Verdict> = match (kill.killer, kill.limit) {
        (Killer::Kernel, Limit::Group) => limit(kill, before).into_iter().chain(swap(kill, before)).collect(),
        (Killer::Kernel, _) => swap(kill, before).into_iter().chain(min_ttl(before)).collect(),
        _ => Vec::new(),
    };
    all.extend(policy(kill));
    if all.is_empty() {
        let why = match kill.killer {
            Killer::Kernel if kill.memory.is_some() || !kill.tasks.is_empty() => {
                "swap would have taken next to nothing more, and no adjustment chose the process"
            }
            Killer::Kernel => "the log shows neither levels nor processes, and there is no history of the group",
            _ => "the daemon's line tells neither what groups held nor what they asked for",
        };
        all.push(verdict(Remedy::Nothing, format!("nothing can be said: {why}")));
    }
    all
}

/// By the history: whether usage was steady, and how long a larger limit would have lasted where it was not.
fn limit(kill: &Kill, before: &[Sample]) -> Option<Verdict> {
    let most = kill.memory?.limit_bytes?;
    let words = match growth(before) {
        None => {
            let words = format!("a limit above {}; by how much cannot be said: no history of the group", mib(most));
            return Some(verdict(Remedy::Limit, words));
        }
        Some(growth) if growth.share <= STEADY => {
            let needed = before.iter().filter_map(|sample| sample.working_set_bytes).max().unwrap_or(0).max(most);
            format!("a limit above {}: usage was steady before, so it asked for more at once", mib(needed))
        }
        Some(growth) => format!(
            "no limit for long: usage grew by {} per minute; {} would have been reached {:.0} minutes later",
            mib((growth.bytes_per_second * 60.0) as u64),
            mib(most.saturating_mul(2)),
            most as f64 / growth.bytes_per_second / 60.0
        ),
    };
    Some(verdict(Remedy::Limit, words))
}

struct Growth {
    /// Of what there was at first.
    share: f64,
    bytes_per_second: f64,
}

fn growth(before: &[Sample]) -> Option<Growth> {
    let (first, last) = (before.first()?, before.last()?);
    let seconds = last.time_seconds.checked_sub(first.time_seconds).filter(|seconds| *seconds > 0)? as f64;
    if before.len() < MIN_SAMPLES {
        return None;
    }
    // What is no file's goes only to swap; page cache grows up to any limit.
    let grown = last.anonymous_bytes.saturating_sub(first.anonymous_bytes) as f64;
    Some(Growth { share: grown / (first.anonymous_bytes.max(1) as f64), bytes_per_second: (grown / seconds).max(1e-9) })
}

/// Swap, where there was none left and something could have gone there.
fn swap(kill: &Kill, before: &[Sample]) -> Option<Verdict> {
    let room =
        kill.swap.map_or(0, |swap| swap.limit_bytes.map_or(u64::MAX, |most| most.saturating_sub(swap.used_bytes)));
    let anonymous =
        kill.stat.map(|stat| stat.anonymous_bytes.saturating_add(stat.shared_bytes)).or(kill.victim.anonymous_bytes)?;
    if anonymous < MIN_SWAPPED_BYTES || room >= anonymous {
        return None;
    }
    let accessed = before.last().and_then(|sample| sample.working_set_bytes);
    let words = match accessed
        .and_then(|accessed| anonymous.checked_sub(accessed))
        .filter(|idle| *idle >= MIN_SWAPPED_BYTES)
    {
        Some(idle) => {
            format!("swap: {} of {} that only swap can take had not been accessed lately", mib(idle), mib(anonymous))
        }
        None if accessed.is_some() => return None, // All of it was in use: swap would have made it slow.
        None => format!("swap could take {}; how much of it was idle cannot be said: no history", mib(anonymous)),
    };
    Some(verdict(Remedy::Swap, words))
}

/// Other adjustments would have let another process be chosen.
fn policy(kill: &Kill) -> Option<Verdict> {
    let victim = kill.tasks.iter().find(|task| Some(task.pid) == kill.victim.pid)?;
    let plain: Vec<Task> = kill.tasks.iter().map(|task| Task { adjustment: 0, ..task.clone() }).collect();
    let largest = highest(&plain, memory_pages(kill).unwrap_or(0))?;
    if largest.pid == victim.pid {
        return None;
    }
    let whose = match (victim.adjustment > 0, kill.tasks.iter().find(|task| task.pid == largest.pid)) {
        (true, _) => format!("its oom_score_adj of {}", victim.adjustment),
        (false, Some(task)) if task.adjustment < 0 => {
            format!("the oom_score_adj of {} of {}", task.adjustment, task.name)
        }
        _ => return None,
    };
    let words = format!("another policy: without {whose}, {} ({}) would have been killed", largest.name, largest.pid);
    Some(verdict(Remedy::Policy, words))
}

/// Pages came back as soon as they went: the multi-gen LRU's time to live would have ended that by an earlier kill.
fn min_ttl(before: &[Sample]) -> Option<Verdict> {
    let last = before.last()?;
    let per_minute = last.refaults_per_second? * 60.0 * 4096.0;
    (per_minute > last.usage_bytes.max(1) as f64 / 10.0).then(|| {
        let words = "min_ttl_ms keeps what was accessed lately: it would have killed before the host was slow, not saved the process";
        verdict(Remedy::MinTtl, words.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Stat;
    use crate::why::log::kills;

    /// What is said of a kill for a host's memory, of which this was no file's.
    fn said(anonymous_bytes: u64, before: &[Sample]) -> Vec<Verdict> {
        let line = "Out of memory: Killed process 7 (a) total-vm:9kB, UID:0 pgtables:4kB oom_score_adj:0";
        let task =
            Task { pid: 7, name: "a".into(), resident_bytes: 9, swapped_bytes: 0, table_bytes: 0, adjustment: 0 };
        let mut kill = kills(line.as_bytes()).remove(0);
        kill.stat = Some(Stat { anonymous_bytes, ..Stat::default() });
        kill.tasks = vec![task];
        verdicts(&kill, before)
    }

    #[test]
    fn swap_that_could_take_next_to_nothing_is_no_remedy() {
        for little in [0, 1, 12 << 10, MIN_SWAPPED_BYTES - 1] {
            let all = said(little, &[]);
            assert_eq!((all.len(), all[0].remedy), (1, Remedy::Nothing), "{all:?}");
            assert!(all[0].words.contains("next to nothing"), "{all:?}");
        }
        let all = said(MIN_SWAPPED_BYTES, &[]);
        assert_eq!(all[0].remedy, Remedy::Swap);
        assert!(all[0].words.contains("could take 1.0 MiB"), "{all:?}");
        // Nor is it one where next to nothing was idle.
        let sample = Sample {
            time_seconds: 7,
            usage_bytes: 9 << 20,
            anonymous_bytes: 9 << 20,
            file_bytes: 0,
            shared_bytes: 0,
            working_set_bytes: Some((9 << 20) - 4096),
            refaults_per_second: None,
            max_bytes: None,
        };
        assert_eq!(said(9 << 20, &[sample])[0].remedy, Remedy::Nothing);
        let idle = Sample { working_set_bytes: Some(7 << 20), ..sample };
        assert!(said(9 << 20, &[idle])[0].words.starts_with("swap: 2.0 MiB of 9.0 MiB"));
    }
}
