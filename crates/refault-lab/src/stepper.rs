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

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use refault_core::policy::FrontEnd;
use refault_core::policy::registry::{BuildContext, Fact, NEEDS_FUTURE, PolicySpec};
use refault_core::{Counters, PageId};
use refault_sim::flat_memory::Swap;
use refault_sim::named::{self, DynReplay};
use refault_sim::{Access, Layout, LayoutBuilder, Limits};
use refault_trace::{Entry, Kind};

use crate::error::LabError;

/// Pages of memory and pages there are, at most: more are for a trace, not for steps by hand.
pub const MAX_PAGES: u64 = 1 << 24;

/// Numbers there are for pages at first, where any page may come.
const FIRST_NUMBERS: u64 = 1024;

struct Inside {
    layout: Layout,
    replay: Box<dyn DynReplay>,
    /// All accesses so far, from which a second memory in the same state can be made: pages by number.
    history: Vec<(u64, bool)>,
    /// The pages that have come, by number, and their numbers, where any page may come.
    numbered: Option<(Vec<u64>, HashMap<u64, u64>)>,
    /// Numbers there are.
    pages: u64,
}

/// A policy over a memory of a few pages. Threads may share it.
pub struct Stepper {
    spec: PolicySpec,
    limits: Limits,
    kind: Kind,
    inside: Mutex<Inside>,
}

impl Stepper {
    /// A policy named as on the command line, over an empty memory of `memory_pages` (1 to [`MAX_PAGES`]). Pages are
    /// numbered from 0 to below `pages` (likewise) and are accessed in one way.
    ///
    /// # Errors
    /// The policy is not known or needs the future, or a number is out of range.
    pub fn new(policy: &str, memory_pages: u64, pages: u64, kind: Kind) -> Result<Stepper, LabError> {
        Self::over(policy, memory_pages, pages, kind, None)
    }

    /// The same for any pages, at most [`MAX_PAGES`] different ones. For a policy they lie in the order in which they come.
    ///
    /// # Errors
    /// As of [`Stepper::new`].
    pub fn of_any_pages(policy: &str, memory_pages: u64, kind: Kind) -> Result<Stepper, LabError> {
        Self::over(policy, memory_pages, FIRST_NUMBERS, kind, Some(Default::default()))
    }

    fn over(
        policy: &str,
        memory_pages: u64,
        pages: u64,
        kind: Kind,
        numbered: Option<(Vec<u64>, HashMap<u64, u64>)>,
    ) -> Result<Stepper, LabError> {
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
        let layout = layout_of(pages, kind)?;
        let limits = Limits { memory_pages: memory_pages as usize, swap: Swap::default() };
        let replay = Self::start(&spec, &layout, limits);
        let inside = Mutex::new(Inside { layout, replay, history: Vec::new(), numbered, pages });
        Ok(Stepper { spec, limits, kind, inside })
    }

    fn start(spec: &PolicySpec, layout: &Layout, limits: Limits) -> Box<dyn DynReplay> {
        named::replay(spec, &BuildContext::default(), layout, limits)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A memory that has seen all accesses so far.
    fn replayed(&self, layout: &Layout, history: &[(u64, bool)]) -> Box<dyn DynReplay> {
        let mut replay = Self::start(&self.spec, layout, self.limits);
        let entries: Vec<Entry> = history.iter().map(|(page, write)| Entry::new(*page, self.kind, *write)).collect();
        let mut accesses = Vec::with_capacity(entries.len());
        layout.translate(&entries, &mut accesses);
        replay.run(&accesses);
        replay
    }

    /// The number of a page, which is given one if it has none.
    fn number(&self, inside: &mut Inside, page: u64) -> Result<u64, LabError> {
        let pages = inside.pages;
        let Some((names, numbers)) = &mut inside.numbered else {
            if page < pages {
                return Ok(page);
            }
            let remedy = format!("pages are numbered from 0 to {}", pages - 1);
            return Err(LabError::request("there is no such page", page, remedy));
        };
        if let Some(number) = numbers.get(&page) {
            return Ok(*number);
        }
        let number = names.len() as u64;
        if number == MAX_PAGES {
            let remedy = format!("there may be {MAX_PAGES}; compare a trace of them");
            return Err(LabError::request("too many different pages", page, remedy));
        }
        if number == pages {
            let layout = layout_of(2 * pages, self.kind)?;
            inside.replay = self.replayed(&layout, &inside.history);
            (inside.layout, inside.pages) = (layout, 2 * pages);
        }
        names.push(page);
        numbers.insert(page, number);
        Ok(number)
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
        let mut inside = self.inside();
        let number = self.number(&mut inside, page)?;
        let access = self.translated(&inside.layout, number, write);
        inside.history.push((number, write));
        let before = inside.replay.outcome().misses;
        inside.replay.run(&[access]);
        Ok(inside.replay.outcome().misses == before)
    }

    fn translated(&self, layout: &Layout, number: u64, write: bool) -> Access {
        let mut accesses = Vec::with_capacity(1);
        layout.translate(&[Entry::new(number, self.kind, write)], &mut accesses);
        accesses[0]
    }

    /// The pages in memory, ascending.
    pub fn resident(&self) -> Vec<u64> {
        let inside = self.inside();
        self.named(&inside, |page| inside.replay.memory().is_resident(page))
    }

    /// The pages of which something is true, ascending, by the names that they have outside.
    fn named(&self, inside: &Inside, is_wanted: impl Fn(PageId) -> bool) -> Vec<u64> {
        let names = inside.numbered.as_ref().map(|(names, _)| names);
        let numbers = 0..names.map_or(inside.pages, |names| names.len() as u64);
        let wanted = numbers.filter(|number| is_wanted(self.translated(&inside.layout, *number, false).page()));
        let mut pages: Vec<u64> = wanted.map(|number| names.map_or(number, |names| names[number as usize])).collect();
        pages.sort_unstable();
        pages
    }

    /// The pages that would leave if a page came in that was never seen, ascending; several where a policy evicts in
    /// batches. Nothing changes.
    pub fn next_victims(&self) -> Vec<u64> {
        let inside = self.inside();
        let mut twin = self.replayed(&inside.layout, &inside.history);
        // One that none has: a number more than there are has a place in the layout.
        twin.run(&[self.translated(&inside.layout, inside.pages, false)]);
        self.named(&inside, |page| inside.replay.memory().is_resident(page) && !twin.memory().is_resident(page))
    }

    /// Accesses, hits, misses, and the policy's counters under their names in `/proc/vmstat`.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let outcome = self.inside().replay.outcome();
        let own = [("accesses", outcome.accesses), ("hits", outcome.hits), ("misses", outcome.misses)];
        let counters = outcome.counters.values();
        own.into_iter().chain(Counters::NAMES.iter().copied().zip(counters.iter().copied())).collect()
    }
}

/// A place for each page, and for one more than can be named: the newcomer of [`Stepper::next_victims`].
fn layout_of(pages: u64, kind: Kind) -> Result<Layout, LabError> {
    let mut builder = LayoutBuilder::new();
    let entries: Vec<Entry> = (0..=pages).map(|page| Entry::new(page, kind, false)).collect();
    builder.observe(&entries);
    builder.finish().map_err(|error| LabError::request("too many pages", pages, error))
}
