//! One policy, step by step: for teaching, and for looking closely at what a comparison counts.
//!
//! A [`Stepper`] is a replay of accesses that come one at a time. It counts what [`crate::sweep`] counts.
//!
//! Cost: a replay's, 8 bytes per access for the history, and a lock per call; [`Stepper::next_victims`] replays the
//! whole history.
//!
//! ```
//! use refault_lab::stepper::Stepper;
//! use refault_trace::Kind;
//!
//! let lru = Stepper::new("lru", 2, 10, Kind::Fd)?;
//! let hits: Vec<bool> = [1, 2, 1, 3].map(|page| lru.access(page, false)).into_iter().collect::<Result<_, _>>()?;
//! assert_eq!(hits, [false, false, true, false]);
//! assert_eq!((lru.resident(), lru.next_victims()), (vec![1, 3], vec![1]));
//! # Ok::<(), refault_lab::LabError>(())
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};

use refault_core::Counters;
use refault_core::policy::FrontEnd;
use refault_core::policy::registry::{BuildContext, Fact, NEEDS_FUTURE, PolicySpec};
use refault_sim::flat_memory::Swap;
use refault_sim::named::{self, DynReplay};
use refault_sim::{Access, Layout, LayoutBuilder, Limits};
use refault_trace::{Entry, Kind};

use crate::error::LabError;

/// Pages of memory and pages there are, at most: more are for a trace, not for steps by hand.
pub const MAX_PAGES: u64 = 1 << 24;

struct Inside {
    replay: Box<dyn DynReplay>,
    /// All accesses so far, from which a second memory in the same state can be made.
    history: Vec<Access>,
}

/// A policy over a memory of a few pages. Threads may share it.
pub struct Stepper {
    spec: PolicySpec,
    layout: Layout,
    limits: Limits,
    pages: u64,
    kind: Kind,
    inside: Mutex<Inside>,
}

impl Stepper {
    /// A policy named as on the command line, over an empty memory of `memory_pages` (1 to [`MAX_PAGES`]), for pages
    /// numbered from 0 to below `pages` (likewise) that are accessed in one way.
    ///
    /// # Errors
    /// The policy is not known or needs the future, or a number is out of range.
    pub fn new(policy: &str, memory_pages: u64, pages: u64, kind: Kind) -> Result<Stepper, LabError> {
        let spec = PolicySpec::parse_for(policy, FrontEnd::Replay)?;
        if spec.entry.is(Fact::NeedsFuture) {
            return Err(LabError::request("cannot go step by step", format!("'{}'", spec.label), NEEDS_FUTURE));
        }
        for (what, value) in [("memory_pages", memory_pages), ("pages", pages)] {
            if !(1..=MAX_PAGES).contains(&value) {
                let remedy = format!("give 1 to {MAX_PAGES}");
                return Err(LabError::request("out of range", format!("{what} = {value}"), remedy));
            }
        }
        let mut builder = LayoutBuilder::new();
        // One page more than can be named: the newcomer of `next_victims`.
        let entries: Vec<Entry> = (0..=pages).map(|page| Entry::new(page, kind, false)).collect();
        builder.observe(&entries);
        let layout = builder.finish().map_err(|error| LabError::request("too many pages", pages, error))?;
        let limits = Limits { memory_pages: memory_pages as usize, swap: Swap::default() };
        let inside = Mutex::new(Inside { replay: Self::start(&spec, &layout, limits), history: Vec::new() });
        Ok(Stepper { spec, layout, limits, pages, kind, inside })
    }

    fn start(spec: &PolicySpec, layout: &Layout, limits: Limits) -> Box<dyn DynReplay> {
        named::replay(spec, &BuildContext::default(), layout, limits)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn translated(&self, page: u64, write: bool) -> Access {
        let mut accesses = Vec::with_capacity(1);
        self.layout.translate(&[Entry::new(page, self.kind, write)], &mut accesses);
        accesses[0]
    }

    /// The policy with its parameters.
    pub fn name(&self) -> &str {
        &self.spec.label
    }

    /// Accesses a page; whether it was in memory.
    ///
    /// # Errors
    /// There is no such page.
    pub fn access(&self, page: u64, write: bool) -> Result<bool, LabError> {
        if page >= self.pages {
            let remedy = format!("pages are numbered from 0 to {}", self.pages - 1);
            return Err(LabError::request("there is no such page", page, remedy));
        }
        let access = self.translated(page, write);
        let mut inside = self.inside();
        inside.history.push(access);
        let before = inside.replay.outcome().misses;
        inside.replay.run(&[access]);
        Ok(inside.replay.outcome().misses == before)
    }

    /// The pages in memory, ascending.
    pub fn resident(&self) -> Vec<u64> {
        let inside = self.inside();
        (0..self.pages)
            .filter(|page| inside.replay.memory().is_resident(self.translated(*page, false).page()))
            .collect()
    }

    /// The pages that would leave if a page came in that was never seen, ascending; several where a policy evicts in
    /// batches. Nothing changes.
    pub fn next_victims(&self) -> Vec<u64> {
        let inside = self.inside();
        let mut twin = Self::start(&self.spec, &self.layout, self.limits);
        twin.run(&inside.history);
        twin.run(&[self.translated(self.pages, false)]);
        let left = |page: &u64| {
            let id = self.translated(*page, false).page();
            inside.replay.memory().is_resident(id) && !twin.memory().is_resident(id)
        };
        (0..self.pages).filter(left).collect()
    }

    /// Accesses, hits, misses, and the policy's counters under their names in `/proc/vmstat`.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let outcome = self.inside().replay.outcome();
        let own = [("accesses", outcome.accesses), ("hits", outcome.hits), ("misses", outcome.misses)];
        let counters = outcome.counters.values();
        own.into_iter().chain(Counters::NAMES.iter().copied().zip(counters.iter().copied())).collect()
    }
}
