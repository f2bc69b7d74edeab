//! The statistics that front-ends show: one name, one unit and one meaning for each.
//!
//! `refault run`'s last line and `--summary`, `--stats`, `top`, `report`, `size`, `pool status`, `serve` and its
//! metrics take names and words from here; docs/reference/statistics.md is made from here. The counters of policies
//! have the kernel's names ([`crate::counters`]).
//!
//! ```
//! use refault_core::statistics::{self, Unit};
//!
//! let peak = statistics::find("peak_bytes").expect("a statistic");
//! assert_eq!((peak.unit, peak.word), (Unit::Bytes, "peak"));
//! assert!(statistics::ALL.iter().all(|one| one.name.ends_with(one.unit.suffix())));
//! ```

/// What a figure counts. All but counts and shares end their names with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Pages of 4 KiB.
    Pages,
    /// Events.
    Times,
    /// Pages per second.
    PagesPerSecond,
    /// A part of 1, or several parts where several threads wait.
    Share,
    /// A word.
    Word,
}

impl Unit {
    /// What names in this unit end with.
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::Bytes => "_bytes",
            Unit::Seconds => "seconds",
            Unit::Nanoseconds => "_ns",
            Unit::PagesPerSecond => "_per_second",
            Unit::Pages | Unit::Times | Unit::Share | Unit::Word => "",
        }
    }

    /// The unit in words.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Nanoseconds => "nanoseconds",
            Unit::Pages => "pages",
            Unit::Times => "times",
            Unit::PagesPerSecond => "pages per second",
            Unit::Share => "share",
            Unit::Word => "word",
        }
    }
}

/// Whose figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A run: the program and its children together, from the start. In `--summary`, in `run` of each line of
    /// `--stats`, and of a member in `pool status` and `serve`.
    Run,
    /// A process, in its lines of `--stats`.
    Process,
    /// Both: of a run the sum over its processes.
    Both,
    /// A process in its lines, and a member of a pool: the sum over its processes.
    Each,
    /// A member of a pool.
    Member,
}

impl Scope {
    /// The scope in words.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Run => "run",
            Scope::Process => "process",
            Scope::Both => "run, process",
            Scope::Each => "process, member",
            Scope::Member => "member",
        }
    }
}

/// What a later version may do to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Name, unit and meaning stay; a change is in CHANGELOG with the old name beside the new.
    Stable,
    /// It may change or go.
    Detail,
}

impl Stability {
    /// The stability in a word.
    pub fn name(self) -> &'static str {
        match self {
            Stability::Stable => "stable",
            Stability::Detail => "detail",
        }
    }
}

/// A statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// Its name in JSON and CSV; with a prefix that of its metric.
    pub name: &'static str,
    /// Its word in sentences and heads of tables.
    pub word: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Whose it is.
    pub scope: Scope,
    /// Whether it stays.
    pub stability: Stability,
    /// What it counts.
    pub meaning: &'static str,
}

macro_rules! statistics {
    ($($constant:ident $name:literal $word:literal $unit:ident $scope:ident $stability:ident $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $constant: Statistic = Statistic {
                name: $name,
                word: $word,
                unit: Unit::$unit,
                scope: Scope::$scope,
                stability: Stability::$stability,
                meaning: $meaning,
            };
        )*

        /// All of them.
        pub const ALL: &[Statistic] = &[$($constant),*];
    };
}

statistics! {
    BUDGET "budget_bytes" "budget" Bytes Both Stable
        "what the program and its children may use together; in a pool the grant";
    BACKEND "backend" "backend" Word Run Stable
        "what keeps the budget: `pager`, or `kernel` (a memory cgroup, and swap on zram)";
    BACKEND_REASON "backend_reason" "why this backend" Word Run Stable "why `--backend auto` took it, or that it was asked for";
    THRASHING "thrashing" "too small" Word Run Stable
        "that the budget is far too small, and which would make the program how fast; only where it is";
    MISSING "missing" "not counted" Word Run Stable
        "names of the figures that the backend does not count, which are left out";
    PEAK "peak_bytes" "peak" Bytes Run Stable
        "the most that they used at once: resident and compressed pages, and the tool's own memory";
    PEAK_WITH_STORED "peak_with_stored_bytes" "peak, stored pages included" Bytes Run Stable
        "the most that they would have used at once if nothing had been stored: the peak under a budget that is ample";
    FAULTS "faults" "faults" Times Both Stable "faults served";
    FIRST_TOUCHES "first_touches" "first touches" Pages Both Stable "pages touched for the first time";
    STORED "stored" "stored" Pages Both Stable "pages put into a store; a page counts each time";
    REFAULTS "refaults" "refaults" Pages Both Stable
        "pages brought back from a store, those ahead of a fault included; a page counts each time";
    PREFETCHED "prefetched" "prefetched" Pages Both Stable "refaults that were brought in ahead of a sequence of faults";
    RESCUED "rescued" "rescued" Pages Both Detail "pages touched on their way out, before they were stored";
    UNMOVABLE "unmovable" "unmovable" Pages Both Detail
        "pages that could not leave when they were to, pinned or without rights; a page counts each time";
    LOST "lost" "lost" Pages Both Stable "pages whose contents did not come back: a device failed";
    WAITED "waited_seconds" "waited" Seconds Both Stable
        "time that threads waited for pages, first touches included, summed over threads";
    FAULT_P50 "fault_p50_ns" "fault p50" Nanoseconds Both Stable "half of the faults took no longer, to an eighth";
    FAULT_P99 "fault_p99_ns" "fault p99" Nanoseconds Both Stable "99 of 100 faults took no longer, to an eighth";
    FAULT_MAX "fault_max_ns" "longest fault" Nanoseconds Both Stable "the longest fault";
    ADVICE_BYTES "would_stop_refaulting_at_bytes" "advice" Bytes Run Stable
        "the budget at which 99 of 100 refaults would not have happened, to a 32nd, and at most `peak_with_stored_bytes`: of the whole run; of its last 10 s beside `run` in `--stats`, in `top` while it runs, and of a member";
    ADVICE "advice" "state of the advice" Word Run Stable
        "`enough` (fewer than 32 refaults), `cannot be told` (refaults, but fewer than 4 followed ones) or `more` (with bytes)";
    FOLLOWED_REFAULTS "followed_refaults" "followed refaults" Pages Run Detail
        "refaults that the advice rests on: one page in 32 is followed";
    SECONDS "seconds" "seconds" Seconds Both Stable "time since the start";
    RESIDENT "resident_bytes" "resident" Bytes Each Stable "pages in memory, those on their way out included";
    PARKED "parked_bytes" "on their way out" Bytes Process Detail "pages on their way out; part of `resident_bytes`";
    COMPRESSED "compressed_bytes" "compressed" Bytes Each Stable
        "memory that the compressed pool takes, its free space included";
    STORED_BYTES "stored_bytes" "stored contents" Bytes Each Stable
        "contents that are not resident now, before compression";
    SAME_FILLED_PAGES "same_filled_pages" "same-filled" Pages Process Detail
        "stored pages that one value fills, which is all that is kept";
    POOL_PAGES "pool_pages" "pages in the pool" Pages Process Detail "stored pages in the compressed pool";
    FILE_PAGES "file_pages" "pages in the file" Pages Process Detail "stored pages in the file";
    FILE_BYTES "file_bytes" "file" Bytes Process Detail "bytes of the file that are in use";
    METADATA "metadata_bytes" "metadata" Bytes Process Stable "the tool's own memory: page table, policy, monitor";
    MANAGED_PAGES "managed_pages" "managed pages" Pages Process Detail "address space under management";
    REFAULTS_PER_SECOND "refaults_per_second" "refaults per second" PagesPerSecond Process Stable
        "refaults in the last 10 s";
    GRANT "grant_bytes" "grant" Bytes Member Stable "what the member is to keep to";
    COMMITTED "committed_bytes" "committed" Bytes Member Stable
        "what the member may be using: its grant, or more until it has confirmed a lower one";
    CHARGE "charge_bytes" "uses" Bytes Member Stable
        "what its programs use now, as `peak_bytes` counts";
    PRESSURE "pressure" "waits" Share Member Stable
        "share of time in which its threads waited for pages that had been there; above 1 if several did";
}

/// The statistic of this name.
pub fn find(name: &str) -> Option<&'static Statistic> {
    ALL.iter().find(|statistic| statistic.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_name_and_a_word_belong_to_one_statistic() {
        let names: BTreeSet<_> = ALL.iter().map(|statistic| statistic.name).collect();
        let words: BTreeSet<_> = ALL.iter().map(|statistic| statistic.word).collect();
        assert_eq!((names.len(), words.len()), (ALL.len(), ALL.len()));
        assert!(find("no_such").is_none());
    }
}
