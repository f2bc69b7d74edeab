//! Pages that a process shares with its relatives since a fork: whether it guards them, how many it had at the last
//! look, and which it gives up first.
//!
//! Shared pages that a relative has evicted go first ([`super::dropped`]), so that their memory becomes free.
//! Invariant: a page is named only if it is guarded, evictable and in no call's use. Cost: see [`super::dropped`].

use refault_core::PageId;

use super::dropped::Dropped;
use crate::PAGE;
use crate::page::Pages;
use crate::page::table::CHUNK_PAGES;
use refault_linux::sys;

/// Nanoseconds after which a process looks again which of its guarded pages are its own by now.
const LOOK_AGAIN: u64 = 5_000_000;
/// Chunks that are looked at in one step.
const MAX_CHUNKS: usize = 256;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedPages {
    /// Pages may be guarded.
    guards: bool,
    /// Pages that were shared at the last look, and when that was, in nanoseconds.
    pages: usize,
    looked: u64,
    /// Pages went since this was last asked that others have still.
    left_to_others: bool,
    /// The processes that descend from one program by forks alone have one number; 0 before the first fork.
    family: u64,
    /// The next address to look at.
    at: usize,
    /// Notes that there were when this round began, and when the last whole one did.
    began: u64,
    seen: u64,
}

impl SharedPages {
    /// Whether pages may be guarded.
    #[inline]
    pub(crate) fn guards(&self) -> bool {
        self.guards
    }

    /// More is shared from now on: all of it is to be looked at.
    pub(crate) fn starts(&mut self) {
        self.guards = true;
        (self.at, self.began, self.seen) = (0, u64::MAX, u64::MAX);
    }

    /// Nothing is shared any more.
    pub(crate) fn ends(&mut self) {
        self.guards = false;
    }

    /// Before a fork: the process has a family from now on.
    pub(crate) fn join(&mut self, family: impl FnOnce() -> u64) {
        if self.family == 0 {
            self.family = family();
        }
    }

    /// Whether it is time to look how many pages are shared still.
    pub(crate) fn is_due(&self) -> bool {
        sys::now().saturating_sub(self.looked) >= LOOK_AGAIN
    }

    /// A look has just found this many shared.
    pub(crate) fn has_looked(&mut self, pages: usize) {
        (self.pages, self.looked) = (pages, sys::now());
    }

    /// Pages that were shared at the last look.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// A shared page was given up: others are to give it up as well.
    pub(crate) fn left(&mut self, address: usize, dropped: &Dropped) {
        self.left_to_others = true;
        dropped.note(self.family, address);
    }

    /// Whether pages went since this was last asked that others have still.
    pub(crate) fn take_left_to_others(&mut self) -> bool {
        core::mem::take(&mut self.left_to_others)
    }

    /// Names shared pages that others have given up already, to `take`, which says how many it has: `wanted` and less
    /// than a chunk more. Goes on where it ended.
    pub(crate) fn choose_dropped(
        &mut self,
        wanted: usize,
        dropped: &Dropped,
        pages: &Pages,
        mut take: impl FnMut(PageId) -> usize,
    ) {
        let notes = dropped.notes();
        if notes == self.seen || self.family == 0 {
            return;
        }
        let (mut looks, mut taken) = (0, 0);
        while looks < MAX_CHUNKS && taken < wanted {
            looks += 1;
            let Some((start, end, attributes)) = pages.next_range(self.at) else {
                (self.at, self.seen, self.began) = (0, self.began, notes);
                return;
            };
            let start = start.max(self.at);
            let known = if attributes.can_be_evicted() { pages.next_known(start, end) } else { None };
            let Some((known, chunk_end)) = known else {
                self.at = end;
                continue;
            };
            self.at = chunk_end;
            let noted = dropped.noted(self.family, known);
            for address in (known..chunk_end).step_by(PAGE) {
                if noted >> (address / PAGE % CHUNK_PAGES) & 1 == 1
                    && let Some((page, entry)) = pages.find(address)
                    && entry.is_guarded()
                    && !entry.is_held()
                {
                    taken = take(page);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use refault_core::Shadow;

    use super::*;
    use crate::page::ranges::Attributes;
    use crate::page::table::State;

    fn nothing() -> &'static Dropped {
        let at = sys::map(size_of::<Dropped>());
        assert_ne!(at, 0);
        // SAFETY: a fresh mapping of atomics, for which zeros are values; it is never given up.
        unsafe { &*(at as *const Dropped) }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Beside sets of pages: exactly those are named, each once, that are noted, guarded and in no call's use.
        #[test]
        fn exactly_what_is_noted_guarded_and_free_is_named(
            noted in proptest::collection::btree_set(0usize..400, 0..60),
            guarded in proptest::collection::btree_set(0usize..400, 0..300),
            held in proptest::collection::btree_set(0usize..400, 0..60),
            wanted in 1usize..40,
        ) {
            const START: usize = 1 << 32;
            let (dropped, mut pages, mut sharing) = (nothing(), Pages::default(), SharedPages::default());
            // A hole between two ranges.
            let attributes = Attributes { protection: Attributes::READ_WRITE, ..Attributes::default() };
            pages.insert(START, START + 150 * PAGE, attributes);
            pages.insert(START + 200 * PAGE, START + 400 * PAGE, attributes);
            let is_managed = |page: &usize| !(150..200).contains(page);
            for page in guarded.iter().filter(|page| is_managed(page)) {
                let (id, _) = pages.make(START + page * PAGE);
                pages.set(id, State::Resident, Shadow::NONE);
                pages.guard(id, true);
                if held.contains(page) {
                    pages.hold(id, 1);
                }
            }
            sharing.join(|| 9);
            sharing.join(|| 10);
            sharing.starts();
            noted.iter().for_each(|page| sharing.left(START + page * PAGE, dropped));
            prop_assert_eq!(sharing.take_left_to_others(), !noted.is_empty());
            prop_assert!(!sharing.take_left_to_others());
            let mut found: Vec<usize> = Vec::new();
            // Steps go on where the last one ended; what was taken is not guarded any more.
            for _ in 0..noted.len() + 20 {
                let mut step = Vec::new();
                sharing.choose_dropped(wanted, dropped, &pages, |page| {
                    step.push(page);
                    step.len()
                });
                prop_assert!(step.len() < wanted + CHUNK_PAGES);
                for page in step {
                    found.push((pages.address(page) - START) / PAGE);
                    pages.guard(page, false);
                }
            }
            let expected: BTreeSet<usize> =
                noted.iter().filter(|page| is_managed(page) && guarded.contains(page) && !held.contains(page)).copied().collect();
            prop_assert_eq!(found.len(), expected.len());
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}
