//! What happened in a run, in the order of time: starts, ends and kills of tasks, and what commands did.
//!
//! ```
//! use refault_sim::machine::happenings::{Happened, Happening};
//!
//! let killed = Happened::Killed { task: "server".into(), pages: 4096, group: "/db".into() };
//! let json = serde_json::to_string(&Happening { at: 1_500_000, what: killed })?;
//! assert_eq!(json, r#"{"at_ns":1500000,"event":"killed","task":"server","pages":4096,"group":"/db"}"#);
//! # Ok::<(), serde_json::Error>(())
//! ```

use serde::Serialize;

use super::Machine;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Happening {
    /// When, nanoseconds of simulated time.
    #[serde(rename = "at_ns")]
    pub at: u64,
    /// What.
    #[serde(flatten)]
    pub what: Happened,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happened {
    /// A task began its first phase.
    Started {
        /// Its name.
        task: String,
        /// The how-manieth time this is, from 1.
        start: u64,
    },
    /// A task did all that it had to do.
    Finished {
        /// Its name.
        task: String,
    },
    /// A task was killed for lack of memory, or by the user-space killer.
    Killed {
        /// Its name.
        task: String,
        /// Pages it had in memory and in swap.
        pages: u64,
        /// The group that lacked memory.
        group: String,
    },
    /// A limit or protection of a group was set.
    LimitSet {
        /// The group.
        group: String,
        /// The file of the control group that sets it, as `memory.max`.
        setting: &'static str,
        /// To this number of pages; none: no limit.
        pages: Option<u64>,
    },
    /// `memory.reclaim` was written to.
    Reclaimed {
        /// The group.
        group: String,
        /// Pages asked for.
        asked_pages: u64,
        /// Pages freed.
        freed_pages: u64,
        /// The swappiness of this request, if it named one.
        swappiness: Option<u16>,
    },
    /// A line was written to the debugging interface of the multi-gen LRU.
    Generations {
        /// The line.
        command: String,
        /// Why it was refused, if it was.
        refused: Option<String>,
    },
    /// `lru_gen/enabled` was written to.
    ListsSwitched {
        /// What it reads now.
        enabled: String,
    },
    /// A file of the module `lru-sort` was written to.
    ModuleSet {
        /// Which.
        file: String,
        /// What was written.
        value: String,
        /// Why it was refused, if it was.
        refused: Option<String>,
    },
    /// Generations were listed.
    Listed {
        /// The listing, in the kernel's layout.
        text: String,
    },
}

impl Machine {
    pub(super) fn happened(&mut self, at: u64, what: Happened) {
        self.happenings.push(Happening { at, what });
    }
}

/// In the order of time: a task's hits run a little ahead of the clock, and so does the end of its last one.
pub(super) fn ordered(happenings: &[Happening]) -> Vec<Happening> {
    let mut ordered = happenings.to_vec();
    ordered.sort_by_key(|happening| happening.at);
    ordered
}
