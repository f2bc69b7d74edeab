//! What the kernel says of a group: what is charged to it, of which kind, its limits, refaults and pressure.
//!
//! Version 1 sums up over groups below in `total_`, version 2 always. What a version does not say is none, not 0.
//!
//! ```
//! use refault_host::figures::{Stat, of};
//!
//! let stat = Stat::parse("anon 4096\nfile 12288\nshmem 4096\nworkingset_refault_file 3\n");
//! assert_eq!((stat.anonymous_bytes, stat.file_bytes, stat.shared_bytes), (4096, 8192, 4096));
//! # let _ = of;
//! ```

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// Version 1 writes no limit as the largest number of pages.
const NO_LIMIT: u64 = u64::MAX / 4;

/// What `memory.stat` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stat {
    /// Bytes that are no file's and not shared.
    pub anonymous_bytes: u64,
    /// Bytes of files, shared memory left out.
    pub file_bytes: u64,
    /// Bytes of shared memory: tmpfs, SysV, memfd.
    pub shared_bytes: u64,
    /// Bytes of files and shared memory that a process maps.
    pub mapped_bytes: u64,
    /// Bytes of huge pages among what is no file's.
    pub huge_bytes: u64,
    /// Bytes of files that the kernel would evict first.
    pub inactive_file_bytes: u64,
    /// Bytes of files that were accessed at least twice, as the kernel sees it.
    pub active_file_bytes: u64,
    /// The same of what is no file's or shared; with need for memory, other accesses count too.
    #[serde(skip)]
    pub active_anonymous_bytes: u64,
    /// Bytes that cannot be evicted.
    pub unevictable_bytes: u64,
    /// Bytes of files that differ from what is on disk.
    pub dirty_bytes: u64,
    /// Bytes that the compressed pool takes for it; none where the kernel does not say.
    pub compressed_bytes: Option<u64>,
    /// Bytes in swap, the compressed pool included; none where the kernel does not say.
    pub swapped_bytes: Option<u64>,
    /// Pages that came back soon after they were evicted, since the group began.
    pub refaults: u64,
    /// What is charged to the group itself, as opposed to those below it; version 2 does not say.
    #[serde(skip)]
    pub own: Option<Own>,
}

/// Bytes that processes map and that are charged to a group itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// No file's.
    pub anonymous_bytes: u64,
    /// Of files and shared memory.
    pub mapped_bytes: u64,
}

impl Stat {
    /// Reads the text of a `memory.stat`.
    pub fn parse(text: &str) -> Stat {
        let all: HashMap<&str, u64> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(k, v)| Some((k, v.trim().parse().ok()?)))
            .collect();
        let is_first = all.contains_key("total_rss");
        let any = |name: &str| all.get(name).copied();
        let one = |name: &str| any(name).unwrap_or(0);
        if is_first {
            let total = |name: &str| one(&format!("total_{name}"));
            return Stat {
                anonymous_bytes: total("rss"),
                file_bytes: total("cache").saturating_sub(total("shmem")),
                shared_bytes: total("shmem"),
                mapped_bytes: total("mapped_file"),
                huge_bytes: total("rss_huge"),
                inactive_file_bytes: total("inactive_file"),
                active_file_bytes: total("active_file"),
                active_anonymous_bytes: total("active_anon"),
                unevictable_bytes: total("unevictable"),
                dirty_bytes: total("dirty"),
                compressed_bytes: any("total_zswap"),
                swapped_bytes: any("total_swap"),
                refaults: total("workingset_refault_anon").saturating_add(total("workingset_refault_file")),
                own: Some(Own { anonymous_bytes: one("rss"), mapped_bytes: one("mapped_file") }),
            };
        }
        Stat {
            anonymous_bytes: one("anon"),
            file_bytes: one("file").saturating_sub(one("shmem")),
            shared_bytes: one("shmem"),
            mapped_bytes: one("file_mapped"),
            huge_bytes: one("anon_thp"),
            inactive_file_bytes: one("inactive_file"),
            active_file_bytes: one("active_file"),
            active_anonymous_bytes: one("active_anon"),
            unevictable_bytes: one("unevictable"),
            dirty_bytes: one("file_dirty"),
            compressed_bytes: any("zswap"),
            swapped_bytes: None,
            refaults: one("workingset_refault_anon").saturating_add(one("workingset_refault_file")),
            own: None,
        }
    }

    /// Bytes that go only to swap.
    pub fn swap_backed_bytes(&self) -> u64 {
        self.anonymous_bytes.saturating_add(self.shared_bytes)
    }

    /// Bytes that are pages on the kernel's lists.
    pub fn listed_bytes(&self) -> u64 {
        self.anonymous_bytes.saturating_add(self.file_bytes).saturating_add(self.shared_bytes)
    }
}

/// What is known of a group at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Bytes charged to it, kernel memory included.
    pub usage_bytes: u64,
    /// Of which kinds.
    #[serde(flatten)]
    pub stat: Stat,
    /// The limit at which the kernel kills; none if there is none.
    pub max_bytes: Option<u64>,
    /// The limit at which the kernel reclaims (version 2).
    pub high_bytes: Option<u64>,
    /// The limit above which the kernel reclaims first (version 1).
    pub soft_bytes: Option<u64>,
    /// Processes that were killed for its limit, since it began.
    pub kills: Option<u64>,
    /// Since it began, microseconds in which something waited for memory; none where the kernel does not say.
    #[serde(skip)]
    pub stalled_us: Option<u64>,
}

impl Figures {
    /// Bytes that are on none of the kernel's lists: its own memory for the group, as far as the charge shows it.
    pub fn other_bytes(&self) -> u64 {
        self.usage_bytes.saturating_sub(self.stat.listed_bytes())
    }

    /// What cadvisor and the kubelet call the working set: usage without files that the kernel would evict first.
    pub fn usage_less_inactive_file_bytes(&self) -> u64 {
        self.usage_bytes.saturating_sub(self.stat.inactive_file_bytes)
    }
}

/// What the kernel says of what is charged to a group; none if the group is gone.
pub fn stat(directory: &Path) -> Option<Stat> {
    fs::read_to_string(directory.join("memory.stat")).ok().map(|text| Stat::parse(&text))
}

/// The figures of a group's directory; none if the group is gone.
pub fn of(directory: &Path) -> Option<Figures> {
    let text = |file: &str| fs::read_to_string(directory.join(file)).ok();
    let number = |file: &str| text(file)?.trim().parse::<u64>().ok();
    let limit = |file: &str| number(file).filter(|bytes| *bytes < NO_LIMIT);
    let field = |file: &str, name: &str| {
        let text = text(file)?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    let mut stat = stat(directory)?;
    if stat.swapped_bytes.is_none() {
        stat.swapped_bytes = number("memory.swap.current");
    }
    let stalled = text("memory.pressure").and_then(|text| {
        text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total=")?.1.trim().parse().ok())
    });
    let usage = number("memory.usage_in_bytes").or_else(|| number("memory.current"));
    Some(Figures {
        // The root of version 2 has no file of its own.
        usage_bytes: usage.unwrap_or(stat.listed_bytes()),
        stat,
        max_bytes: limit("memory.limit_in_bytes").or_else(|| limit("memory.max")),
        high_bytes: limit("memory.high"),
        soft_bytes: limit("memory.soft_limit_in_bytes"),
        kills: field("memory.events", "oom_kill").or_else(|| field("memory.oom_control", "oom_kill")),
        stalled_us: stalled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_the_same_of_the_same_group() {
        let first = tempfile::tempdir().expect("a directory");
        let second = tempfile::tempdir().expect("a directory");
        let write = |directory: &Path, file: &str, text: &str| fs::write(directory.join(file), text).expect("room");
        write(first.path(), "memory.usage_in_bytes", "1000\n");
        write(first.path(), "memory.limit_in_bytes", "9223372036854771712\n");
        write(first.path(), "memory.soft_limit_in_bytes", "700\n");
        write(first.path(), "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        write(
            first.path(),
            "memory.stat",
            "rss 1\ntotal_cache 500\ntotal_rss 300\ntotal_shmem 100\ntotal_swap 9\ntotal_inactive_file 60\n\
             total_workingset_refault_anon 3\ntotal_workingset_refault_file 4\n",
        );
        write(second.path(), "memory.current", "1000\n");
        write(second.path(), "memory.max", "max\n");
        write(second.path(), "memory.high", "900\n");
        write(second.path(), "memory.events", "low 0\noom 1\noom_kill 2\noom_group_kill 0\n");
        write(second.path(), "memory.swap.current", "9\n");
        write(second.path(), "memory.pressure", "some avg10=0.00 total=77\nfull avg10=0.00 total=5\n");
        write(
            second.path(),
            "memory.stat",
            "anon 300\nfile 500\nshmem 100\ninactive_file 60\nworkingset_refault_anon 3\nworkingset_refault_file 4\n",
        );
        let (one, two) = (of(first.path()).expect("a group"), of(second.path()).expect("a group"));
        assert_eq!(one.stat.own, Some(Own { anonymous_bytes: 1, mapped_bytes: 0 }));
        assert_eq!(Stat { own: None, ..one.stat }, two.stat);
        assert_eq!((one.stat.file_bytes, one.stat.refaults, one.other_bytes()), (400, 7, 200));
        assert_eq!(one.usage_less_inactive_file_bytes(), 940);
        assert_eq!((one.max_bytes, one.soft_bytes, one.kills, one.stalled_us), (None, Some(700), Some(2), None));
        assert_eq!((two.max_bytes, two.high_bytes, two.kills, two.stalled_us), (None, Some(900), Some(2), Some(77)));
        assert_eq!(of(Path::new("/nowhere")), None);
    }

    #[test]
    fn nonsense_is_no_figure() {
        for text in ["", "anon", "anon x\nfile -4\n", "total_rss 99999999999999999999999\n", "\0\u{fffd} 7\n"] {
            assert_eq!(Stat::parse(text).listed_bytes(), 0, "{text}");
        }
        let huge = Stat::parse("anon 18446744073709551615\nfile 18446744073709551615\nshmem 1\n");
        assert_eq!(huge.listed_bytes(), u64::MAX);
    }
}
