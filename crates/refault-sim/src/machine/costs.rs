//! What reclaim's work costs in CPU time, and a ledger of which context spent it on what.
//!
//! The defaults are round estimates for an idle core of a server of about 2020; they are not measurements. What they
//! are on a given machine, `refault-bench calibrate` measures with user-space stand-ins, and a scenario may replace any
//! of them. All are nanoseconds.
//!
//! ```
//! use refault_sim::machine::costs::{Ledger, Work};
//!
//! let mut ledger = Ledger::default();
//! ledger.book(Work::TableWalk, 300);
//! ledger.book(Work::TableWalk, 200);
//! assert_eq!((ledger.total(), ledger.0[Work::TableWalk as usize]), (500, 500));
//! ```

use serde::{Deserialize, Serialize};

/// Nanoseconds of each operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// A `read()` of 4 KiB that finds its page: system call and copy.
    pub read_hit: u64,
    /// A page fault, without what it has to bring in.
    pub fault: u64,
    /// Finding a free frame, charging it and putting the page in its tree.
    pub allocate: u64,
    /// Filling a new anonymous page with zeros.
    pub zero_page: u64,
    /// Submitting a request to an asynchronous device and taking its completion.
    pub submit: u64,
    /// Taking one page off a list for examination.
    pub scan_page: u64,
    /// Moving one page to another list.
    pub list_move: u64,
    /// Examining one page in the batch stage: locking, tests.
    pub examine_page: u64,
    /// Following the reverse map of one page to one page-table entry.
    pub reverse_map: u64,
    /// Looking at one page-table entry while walking a table in order.
    pub table_entry: u64,
    /// Entering one 2 MiB region during a walk.
    pub table_region: u64,
    /// Looking at one neighbour of a young entry.
    pub look_around_entry: u64,
    /// Clearing one page-table entry and its TLB entries.
    pub unmap: u64,
    /// Taking one page out of its tree, leaving the shadow entry, and freeing the frame.
    pub remove_page: u64,
    /// Of that, for a file's page, the time under the lock of the file's tree.
    pub tree_lock: u64,
    /// Marking a page accessed in a `read()`.
    pub mark_accessed: u64,
    /// Moving the non-resident age of a group and its ancestors.
    pub age_nonresident: u64,
    /// One pass of reclaim over one lruvec, before it looks at any page.
    pub lruvec_visit: u64,
    /// Changing from one task to another.
    pub context_switch: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            read_hit: 550,
            fault: 450,
            allocate: 150,
            zero_page: 100,
            submit: 1_500,
            scan_page: 25,
            list_move: 25,
            examine_page: 35,
            reverse_map: 130,
            table_entry: 2,
            table_region: 40,
            look_around_entry: 3,
            unmap: 90,
            remove_page: 160,
            tree_lock: 80,
            mark_accessed: 8,
            age_nonresident: 6,
            lruvec_visit: 300,
            context_switch: 1_200,
        }
    }
}

/// What reclaim's CPU time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Work {
    /// Taking pages off the lists.
    Isolate,
    /// Shrinking active lists (classic) or sorting pages into generations (multi-gen LRU).
    Sort,
    /// Reference checks through the reverse map.
    ReverseMap,
    /// Page-table walks.
    TableWalk,
    /// Neighbours of young entries.
    LookAround,
    /// The batch stage apart from reference checks: tests, unmapping, removal, freeing.
    Batch,
    /// Compression and other writes that the CPU does itself.
    Write,
    /// Everything else: visits, bookkeeping.
    Other,
    /// Waiting for the lock of a file's tree that another kswapd holds.
    Lock,
}

/// Kinds of [`Work`].
pub const WORK_KINDS: usize = 9;

/// Names of the kinds, in order, as reports print them.
pub const WORK_NAMES: [&str; WORK_KINDS] =
    ["isolate", "sort", "reverse_map", "table_walk", "look_around", "batch", "write", "other", "lock"];

/// Nanoseconds by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger(pub [u64; WORK_KINDS]);

impl Ledger {
    /// Books time.
    #[inline]
    pub fn book(&mut self, work: Work, nanoseconds: u64) {
        self.0[work as usize] += nanoseconds;
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds another ledger.
    pub fn add(&mut self, other: &Ledger) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum += value;
        }
    }
}
