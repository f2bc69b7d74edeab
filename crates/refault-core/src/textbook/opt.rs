//! OPT, Belady's MIN: the page that is needed again last goes. It needs to know the future and no policy misses less.
//!
//! Paging is on demand: the missed page is always brought in, even if it is never used again. Of several pages that are
//! never used again the one used last goes first, which changes no count.
//!
//! The accesses must be exactly those that the [`NextUse`] was made from: each is either an admission or a hit.
//!
//! Cost: [`NextUse`] takes 8 bytes per access and is shared by all memory sizes of a trace; each [`Opt`] takes 4 bytes
//! per page id and one bit per access. An access costs a few words: resident pages are a set of times ([`TimeSet`]).
//! Source: Belady, *A Study of Replacement Algorithms for a Virtual-Storage Computer*, IBM Systems Journal 5(2), 1966;
//! Mattson et al., *Evaluation Techniques for Storage Hierarchies*, IBM Systems Journal 9(2), 1970 (optimality).

use std::sync::Arc;

use super::evict;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::page::PageId;
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// The page is not resident.
const ABSENT: u32 = u32::MAX;
/// The page is not used again.
const NEVER: u32 = u32::MAX - 1;

/// For each access of a sequence, its page and when that page is used next.
#[derive(Clone, Debug)]
pub struct NextUse {
    pages: Vec<PageId>,
    /// Index of the page's next access, or [`NEVER`].
    next: Vec<u32>,
}

/// A sequence of more than 2^32 - 3 accesses: times are 32 bits wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceTooLong {
    /// Accesses in the sequence.
    pub accesses: usize,
}

impl std::fmt::Display for SequenceTooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} accesses are more than the 4 billion that opt can look ahead", self.accesses)
    }
}

impl std::error::Error for SequenceTooLong {}

impl NextUse {
    /// Looks through a sequence of accesses, backwards, in linear time.
    pub fn new(pages: Vec<PageId>) -> Result<NextUse, SequenceTooLong> {
        if pages.len() > NEVER as usize {
            return Err(SequenceTooLong { accesses: pages.len() });
        }
        let ids = pages.iter().max().map_or(0, |page| *page as usize + 1);
        let mut seen = vec![NEVER; ids];
        let mut next = vec![NEVER; pages.len()];
        for (time, page) in pages.iter().enumerate().rev() {
            next[time] = std::mem::replace(&mut seen[*page as usize], time as u32);
        }
        Ok(NextUse { pages, next })
    }

    /// Accesses in the sequence.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there is no access.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Opt {
    next_use: Arc<NextUse>,
    /// Index of the access that comes next.
    now: usize,
    /// When each resident page is used next.
    next_of: Vec<u32>,
    /// The same times as a set.
    upcoming: TimeSet,
    /// Pages not used again, in order of their last use. Those that are not resident are skipped.
    finished: Vec<PageId>,
    counters: Counters,
}

impl Opt {
    /// Before the first access of the sequence.
    pub fn new(next_use: Arc<NextUse>) -> Opt {
        Opt {
            now: 0,
            next_of: Vec::new(),
            upcoming: TimeSet::new(next_use.len()),
            finished: Vec::new(),
            next_use,
            counters: Counters::default(),
        }
    }

    /// The page is used now.
    #[inline]
    fn used(&mut self, page: PageId) {
        let before = self.next_of[page as usize];
        if before < NEVER {
            self.upcoming.remove(before);
        }
        let next = self.next_use.next.get(self.now).copied().unwrap_or(NEVER);
        self.now += 1;
        if next == NEVER {
            self.finished.push(page);
        } else {
            self.upcoming.insert(next);
        }
        self.next_of[page as usize] = next;
    }

    /// The resident page that is needed last, taken out of the sets of candidates.
    fn take_last(&mut self) -> Option<PageId> {
        while let Some(page) = self.finished.pop() {
            if self.next_of[page as usize] == NEVER {
                return Some(page);
            }
        }
        let time = self.upcoming.max()?;
        self.upcoming.remove(time);
        Some(self.next_use.pages[time as usize])
    }

    fn put_back(&mut self, page: PageId) {
        match self.next_of[page as usize] {
            NEVER => self.finished.push(page),
            time => self.upcoming.insert(time),
        }
    }
}

impl Policy for Opt {
    const HITS: HitReport = HitReport::EachAccess;

    #[inline]
    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.used(page);
    }

    #[inline]
    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        self.used(page);
    }

    fn freed(&mut self, page: PageId) {
        let time = std::mem::replace(&mut self.next_of[page as usize], ABSENT);
        if time < NEVER {
            self.upcoming.remove(time);
        }
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        let mut kept = Vec::new();
        while freed < request.goal {
            let Some(page) = self.take_last() else { break };
            if evict(page, memory, &mut self.counters) {
                self.next_of[page as usize] = ABSENT;
                freed += 1;
            } else {
                kept.push(page);
            }
        }
        kept.into_iter().rev().for_each(|page| self.put_back(page));
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.next_of.resize(pages.max(self.next_of.len()), ABSENT);
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.next_use.pages.capacity() * size_of::<PageId>()
            + self.next_use.next.capacity() * size_of::<u32>()
            + self.next_of.capacity() * size_of::<u32>()
            + self.upcoming.metadata_bytes()
            + self.finished.capacity() * size_of::<PageId>()
    }
}

/// A set of times with the largest found at once: a bitmap, and above it bitmaps of the words that are not zero.
#[derive(Clone, Debug)]
struct TimeSet {
    /// Level 0 has a bit per time; each level has a bit for each word of the one before; the last has one word.
    levels: Vec<Vec<u64>>,
}

impl TimeSet {
    /// For times below `end`.
    fn new(end: usize) -> TimeSet {
        let mut levels = vec![vec![0; end.div_ceil(64).max(1)]];
        while let Some(words) = levels.last().map(Vec::len).filter(|words| *words > 1) {
            levels.push(vec![0; words.div_ceil(64)]);
        }
        TimeSet { levels }
    }

    #[inline]
    fn insert(&mut self, time: u32) {
        let mut at = time as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                break;
            }
            at /= 64;
        }
    }

    #[inline]
    fn remove(&mut self, time: u32) {
        let mut at = time as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                break;
            }
            at /= 64;
        }
    }

    fn max(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let highest = level[at].checked_ilog2()?;
            at = at * 64 + highest as usize;
        }
        Some(at as u32)
    }

    fn metadata_bytes(&self) -> usize {
        self.levels.iter().map(|level| level.capacity() * size_of::<u64>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn time_set_equals_a_tree(end in 1..20_000usize, steps in prop::collection::vec((any::<u32>(), any::<bool>()), 0..300)) {
            let mut set = TimeSet::new(end);
            let mut model = BTreeSet::new();
            for (time, insert) in steps {
                let time = time % end as u32;
                if insert {
                    set.insert(time);
                    model.insert(time);
                } else {
                    set.remove(time);
                    model.remove(&time);
                }
                prop_assert_eq!(set.max(), model.last().copied());
            }
        }
    }

    #[test]
    fn next_use_of_a_short_sequence() {
        let next_use = NextUse::new(vec![3, 1, 3, 3, 1]).unwrap();
        assert_eq!(next_use.next, [2, 4, 3, NEVER, NEVER]);
        assert!(NextUse::new(Vec::new()).unwrap().is_empty());
    }
}
