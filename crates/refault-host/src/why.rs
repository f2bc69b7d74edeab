//! Why processes were killed for memory: what the log says of each kill ([`log`]), what other rules would have chosen
//! ([`replay`]), and what would have prevented it ([`verdict`]).
//!
//! The log is the kernel's, which holds its own kills and those that systemd-oomd and earlyoom write there, or a file of such lines: of `dmesg`,
//! `journalctl` or `/dev/kmsg`. Anything may stand in it: processes choose their names.
//!
//! ```
//! use refault_host::why::log::kills;
//!
//! let line = "Memory cgroup out of memory: Killed process 7 (a) total-vm:9kB, anon-rss:8kB, file-rss:0kB, \
//!             shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:0";
//! let all = kills(line.as_bytes());
//! assert_eq!((all[0].victim.pid, all[0].victim.anonymous_bytes), (Some(7), Some(8 << 10)));
//! ```

pub mod kmsg;
pub mod log;
pub mod replay;
pub mod verdict;

use serde::Serialize;

use crate::figures::Stat;

/// Who killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Killer {
    /// The kernel.
    Kernel,
    /// systemd-oomd, which kills whole groups.
    SystemdOomd,
    /// earlyoom.
    Earlyoom,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// That of a group.
    Group,
    /// The host's memory, or that of some of its nodes.
    Host,
    /// The log does not say.
    Unknown,
}

/// Who was killed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Victim {
    /// Its number; none if a whole group was killed.
    pub pid: Option<u32>,
    /// Its name, or the group's path.
    pub name: String,
    /// Its user.
    pub uid: Option<u32>,
    /// Bytes in memory that are no file's.
    pub anonymous_bytes: Option<u64>,
    /// Bytes of files in memory.
    pub file_bytes: Option<u64>,
    /// Bytes of shared memory.
    pub shared_bytes: Option<u64>,
    /// What its score was raised by, in thousandths of memory.
    pub adjustment: Option<i64>,
}

/// A process that could have been killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Bytes in memory.
    pub resident_bytes: u64,
    /// Bytes in swap.
    pub swapped_bytes: u64,
    /// Bytes of page tables.
    pub table_bytes: u64,
    /// What its score is raised by, in thousandths of memory; −1000: never killed.
    pub adjustment: i64,
}

/// How much there was of something, and how much there could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes at most; none: without limit.
    pub limit_bytes: Option<u64>,
}

/// A kill, as far as the log tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kill {
    /// Seconds after the host had started; none where the log has other times.
    pub seconds_after_boot: Option<f64>,
    /// Who killed.
    pub killer: Killer,
    /// Which limit was reached.
    pub limit: Limit,
    /// The path of the group whose limit it was.
    pub group: Option<String>,
    /// The path of the victim's group.
    pub victim_group: Option<String>,
    /// Who was killed.
    pub victim: Victim,
    /// The name of the process that asked for memory.
    pub asked_by: Option<String>,
    /// Memory of the group.
    pub memory: Option<Level>,
    /// Swap of the group, or of the host; in version 1 none of a group.
    pub swap: Option<Level>,
    /// What the group's memory was.
    pub stat: Option<Stat>,
    /// What a daemon said as its reason.
    pub reason: Option<String>,
    /// Who could have been killed.
    pub tasks: Vec<Task>,
}
