//! Which numbers pages have, and which groups of pages may lose theirs.
//!
//! A page gets a number when it is asked for, together with its neighbours ([`crate::engine::table`]). Under that
//! number the policy and the cache keep what they know of it, also when it was evicted. The memory that their records
//! may take bounds how many numbers there are ([`crate::engine`]). Once all are given, the group that has had no page
//! in memory for the longest time loses its own. The cache then forgets what it knew of that group (spec: workingset
//! §8, where the kernel bounds its shadow entries so).
//!
//! The longest time as a hand finds it that goes round all groups: one that has had a page in memory since the hand was
//! there last is passed over, unless too many were in a row.
//!
//! Invariants: a group's state counts its pages that are used, that is resident or busy; numbers of groups below `made`
//! were given at least once. Everything is under the engine's lock. Cost: 8 to 12 bytes per group of [`GROUP`] pages
//! beside its record; O(1) per change, and O(1) amortised for a group that gives up its numbers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use foldhash::fast::RandomState;
use refault_core::PageId;

use crate::engine::table::{GROUP, GroupId, Table, place};
use crate::io::opened::Opened;

/// A group's state: pages that are used, in these bits …
const USED: u32 = 15;
/// … whether it stands for a place of a file …
const NAMED: u32 = 16;
/// … and whether a page of it was used since the hand was there.
const YOUNG: u32 = 32;

/// Groups that the hand passes over at once because they were used since it was there: the lock is held meanwhile.
const MAX_YOUNG: u64 = 1024;

/// Groups of a file that are dealt with at once where all of them are: as above.
pub(crate) const MAX_AT_ONCE: usize = 256;

/// How far a walk through the groups of a file has come.
pub(crate) enum Walk {
    /// Through the places of a range.
    Places(Range<u64>),
    /// Through the file's list; the number of groups that are left.
    Listed(usize),
}

/// Of a file that has groups.
#[derive(Default)]
struct File {
    groups: Vec<GroupId>,
    opened: Option<Arc<Opened>>,
}

pub(crate) struct Groups {
    table: Arc<Table>,
    /// Where its file lists each group.
    positions: Vec<u32>,
    /// Groups that were made and given at least once.
    made: u32,
    /// Of files that were closed.
    free: Vec<GroupId>,
    hand: GroupId,
    files: HashMap<u32, File, RandomState>,
    /// Places on the files' lists that are allocated.
    listed: usize,
}

impl Groups {
    pub(crate) fn new(table: Arc<Table>) -> Groups {
        Groups {
            table,
            positions: Vec::new(),
            made: 0,
            free: Vec::new(),
            hand: 0,
            files: HashMap::default(),
            listed: 0,
        }
    }

    /// A file is to have its first group, or has none. `opened` counts its pages that were read ahead and evicted
    /// before a caller asked for them.
    pub(crate) fn open(&mut self, file: u32, opened: Arc<Opened>) {
        self.files.entry(file).or_default().opened.get_or_insert(opened);
    }

    /// Whether it is known where a file's pages are counted.
    pub(crate) fn is_open(&self, file: u32) -> bool {
        self.files.contains_key(&file)
    }

    /// A file is closed; its groups were removed.
    pub(crate) fn close(&mut self, file: u32) {
        if let Some(file) = self.files.remove(&file) {
            self.listed -= file.groups.capacity();
        }
    }

    pub(crate) fn grow(&mut self, pages: usize) {
        let groups = pages / GROUP as usize;
        self.positions.resize(groups, 0);
        self.table.grow(groups as u32);
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The same, for readers without the lock.
    pub(crate) fn shared_table(&self) -> Arc<Table> {
        self.table.clone()
    }

    /// The number of a file's page, if it has one.
    pub(crate) fn find(&self, file: u32, index: u64) -> Option<PageId> {
        let (place, within) = place(index)?;
        self.table.find(file, place).map(|group| group * GROUP + within)
    }

    /// Where a page lies among those of all files, for policies that look for scans: a file's pages in their order, and
    /// files far apart. Numbers do not say it.
    pub(crate) fn order(&self, page: PageId) -> u64 {
        let (file, place) = self.table.of(page / GROUP);
        // A file has at most 2^34 pages; numbers of files begin anew after 2^30.
        (u64::from(file % (1 << 30)) << 34) + u64::from(place) * u64::from(GROUP) + u64::from(page % GROUP)
    }

    /// A group that stands for nothing.
    pub(crate) fn take_free(&mut self) -> Option<GroupId> {
        self.free.pop().or_else(|| {
            let next = (self.made < self.positions.len() as u32).then_some(self.made)?;
            self.made += 1;
            Some(next)
        })
    }

    #[inline]
    fn state(&self, group: GroupId) -> &AtomicU32 {
        &self.table.group(group).state
    }

    #[inline]
    fn set_state(&self, group: GroupId, change: impl FnOnce(u32) -> u32) {
        let state = self.state(group);
        state.store(change(state.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    /// A group of which no page is used, nor was for a round of the hand; or, where the hand finds none of these at
    /// [`MAX_YOUNG`] places, the next of which no page is used. `None`: all groups are used.
    pub(crate) fn oldest(&mut self) -> Option<GroupId> {
        // One round may make all of them old.
        for looks in 0..=2 * u64::from(self.made) {
            let group = self.hand;
            self.hand = if group + 1 < self.made { group + 1 } else { 0 };
            let state = self.state(group).load(Ordering::Relaxed);
            if state == NAMED || looks >= MAX_YOUNG && state & (USED | NAMED) == NAMED {
                return Some(group);
            }
            self.state(group).store(state & !YOUNG, Ordering::Relaxed);
        }
        None
    }

    /// A group stands for a place of an open file.
    pub(crate) fn insert(&mut self, group: GroupId, file: u32, place: u32) {
        self.table.insert(group, file, place);
        let list = &mut self.files.entry(file).or_default().groups;
        let before = list.capacity();
        self.positions[group as usize] = list.len() as u32;
        list.push(group);
        self.listed += list.capacity() - before;
        self.set_state(group, |_| NAMED | YOUNG);
    }

    /// A group of which no page is used stands for nothing any more, and is the caller's.
    pub(crate) fn remove(&mut self, group: GroupId) {
        debug_assert_eq!(self.state(group).load(Ordering::Relaxed) & USED, 0, "invariant: no page of it is used");
        self.set_state(group, |_| 0);
        let (file, _) = self.table.of(group);
        let position = self.positions[group as usize];
        if let Some(file) = self.files.get_mut(&file) {
            file.groups.swap_remove(position as usize);
            if let Some(moved) = file.groups.get(position as usize) {
                self.positions[*moved as usize] = position;
            }
        }
        self.table.remove(group);
    }

    /// A group that was removed can stand for another.
    pub(crate) fn give_back(&mut self, group: GroupId) {
        self.free.push(group);
    }

    /// Begins to go through a file's groups that have pages of a range.
    pub(crate) fn walk(&self, number: u32, range: &Range<u64>) -> Walk {
        let listed = self.files.get(&number).map_or(0, |file| file.groups.len());
        let places = range.start / u64::from(GROUP)..range.end.div_ceil(u64::from(GROUP));
        if places.end.saturating_sub(places.start) < listed as u64 {
            Walk::Places(places)
        } else {
            Walk::Listed(listed)
        }
    }

    /// The places of the next groups of a walk, at most [`MAX_AT_ONCE`]. Groups may come and go between the calls: each
    /// that is there all the time is met, and no other needs to be. `None`: that was all.
    pub(crate) fn next(&self, number: u32, range: &Range<u64>, walk: &mut Walk) -> Option<Vec<u32>> {
        match walk {
            Walk::Places(places) => {
                let part = places.start..places.end.min(places.start.saturating_add(MAX_AT_ONCE as u64));
                places.start = part.end.max(part.start);
                let is_there = |place: &u32| self.table.find(number, *place).is_some();
                (!part.is_empty())
                    .then(|| part.filter_map(|place| u32::try_from(place).ok()).filter(is_there).collect())
            }
            // From the end: what takes the position of a group that goes was met before, or is met once more.
            Walk::Listed(left) => {
                let groups = &self.files.get(&number)?.groups;
                let end = groups.len().min(*left);
                *left = end.saturating_sub(MAX_AT_ONCE);
                let within = range.start / u64::from(GROUP)..range.end.div_ceil(u64::from(GROUP));
                let places = groups[*left..end].iter().map(|group| self.table.of(*group).1);
                (end > 0).then(|| places.filter(|place| within.contains(&u64::from(*place))).collect())
            }
        }
    }

    /// Some groups of a file, at most [`MAX_AT_ONCE`]; none if it has none.
    pub(crate) fn some_of(&self, number: u32) -> Vec<GroupId> {
        let groups = self.files.get(&number).map_or(&[][..], |file| &file.groups);
        groups[groups.len().saturating_sub(MAX_AT_ONCE)..].to_vec()
    }

    /// Whether a file has no group.
    pub(crate) fn is_empty(&self, number: u32) -> bool {
        self.files.get(&number).is_none_or(|file| file.groups.is_empty())
    }

    /// Counts the pages of a page's file that were read ahead and evicted before a caller asked for them.
    pub(crate) fn unread(&self, page: PageId) -> Option<&AtomicU32> {
        self.files.get(&self.table.of(page / GROUP).0)?.opened.as_ref().map(|opened| &opened.unread)
    }

    /// A page is used from now on.
    #[inline]
    pub(crate) fn begin_use(&self, page: PageId) {
        self.set_state(page / GROUP, |state| (state + 1) | YOUNG);
    }

    /// A page is not used any more.
    #[inline]
    pub(crate) fn end_use(&self, page: PageId) {
        self.set_state(page / GROUP, |state| (state - 1) | YOUNG);
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        let numbers = self.positions.capacity() + self.listed + self.free.capacity();
        numbers * size_of::<u32>() + self.table.metadata_bytes(self.positions.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use refault_testing::Random;

    use super::*;
    use crate::engine::table::STEP;

    /// The same from a plain description: groups in order of their numbers, with place, used pages, and youth.
    #[derive(Default)]
    struct Model {
        groups: Vec<((u32, u32), u32, bool)>,
        hand: usize,
    }

    impl Model {
        fn oldest(&mut self) -> Option<usize> {
            if self.groups.iter().all(|(_, used, _)| *used > 0) {
                self.groups.iter_mut().for_each(|(_, _, young)| *young = false);
                return None;
            }
            loop {
                let at = self.hand;
                self.hand = (at + 1) % self.groups.len();
                match &mut self.groups[at] {
                    (_, 0, false) => return Some(at),
                    (_, _, young) => *young = false,
                }
            }
        }
    }

    #[test]
    fn the_group_goes_that_was_not_used_for_a_round() {
        let mut groups = Groups::new(Arc::new(Table::new(64)));
        groups.grow(512);
        let mut random = Random::new(5);
        let (mut model, mut used): (Model, Vec<PageId>) = (Model::default(), Vec::new());
        let mut places: BTreeMap<(u32, u32), GroupId> = BTreeMap::new();
        let mut taken = 0;
        for step in 0..20_000 {
            let at = (1 + random.below(2) as u32, random.below(200) as u32);
            let found = groups.find(at.0, u64::from(at.1 * GROUP)).map(|page| page / GROUP);
            assert_eq!(found, places.get(&at).copied(), "step {step}");
            let group = found.unwrap_or_else(|| {
                let group = groups.take_free().unwrap_or_else(|| {
                    taken += 1;
                    let oldest = groups.oldest().expect("fewer pages are used than there are groups");
                    assert_eq!(Some(oldest as usize), model.oldest(), "step {step}");
                    groups.remove(oldest);
                    places.remove(&model.groups[oldest as usize].0);
                    oldest
                });
                groups.insert(group, at.0, at.1);
                places.insert(at, group);
                model.groups.resize(model.groups.len().max(group as usize + 1), (at, 0, true));
                model.groups[group as usize] = (at, 0, true);
                group
            });
            let page = group * GROUP + random.below(u64::from(GROUP)) as u32;
            if !used.contains(&page) && used.len() < 100 {
                used.push(page);
                groups.begin_use(page);
                model.groups[group as usize].1 += 1;
                model.groups[group as usize].2 = true;
            } else if !used.is_empty() {
                let page = used.swap_remove(random.below(used.len() as u64) as usize);
                groups.end_use(page);
                model.groups[(page / GROUP) as usize].1 -= 1;
                model.groups[(page / GROUP) as usize].2 = true;
            }
        }
        assert!(taken > 1000, "{taken}");
        for range in [40..400, 0..u64::MAX, 41..43] {
            let within = |place: u32| {
                let first = u64::from(place * GROUP);
                first < range.end && range.start < first + u64::from(GROUP)
            };
            let expected = places.keys().filter(|(file, place)| *file == 1 && within(*place)).map(|(_, place)| *place);
            assert_eq!(places_of(&groups, 1, &range), expected.collect::<Vec<_>>());
        }
        assert!(places_of(&groups, 3, &(0..9)).is_empty());
    }

    fn places_of(groups: &Groups, file: u32, range: &Range<u64>) -> Vec<u32> {
        let mut walk = groups.walk(file, range);
        let mut places = Vec::new();
        while let Some(some) = groups.next(file, range, &mut walk) {
            assert!(some.len() <= MAX_AT_ONCE);
            places.extend(some);
        }
        places.sort_unstable();
        places
    }

    #[test]
    fn a_walk_meets_what_stays_while_others_come_and_go() {
        const GROUPS: u32 = 1 << 12;
        let mut random = Random::new(4);
        for range in [0..u64::MAX, 8..u64::from(GROUPS / 2)] {
            let mut groups = Groups::new(Arc::new(Table::new(GROUPS)));
            (1..=GROUPS / STEP).for_each(|steps| groups.grow((steps * STEP * GROUP) as usize));
            // In any order; a third is to go meanwhile.
            let mut order: Vec<u32> = (0..GROUPS).collect();
            (1..order.len()).for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
            for place in order {
                let group = groups.take_free().expect("a free group");
                groups.insert(group, 1, place);
            }
            let (mut walk, mut met, mut gone) = (groups.walk(1, &range), Vec::new(), 0);
            while let Some(some) = groups.next(1, &range, &mut walk) {
                assert!(some.len() <= MAX_AT_ONCE, "{} groups in one hold", some.len());
                met.extend(some);
                for _ in 0..80 {
                    let place = random.below(u64::from(GROUPS)) as u32 / 3 * 3;
                    if let Some(group) = groups.table().find(1, place) {
                        groups.remove(group);
                        groups.insert(group, 1, GROUPS + gone);
                        gone += 1;
                    }
                }
            }
            let within = range.start / u64::from(GROUP)..range.end.div_ceil(u64::from(GROUP));
            let stays = |place: &u32| !place.is_multiple_of(3) && within.contains(&u64::from(*place));
            assert!(gone > 100 && (0..GROUPS).filter(stays).all(|place| met.contains(&place)), "{range:?}");
        }
    }

    #[test]
    fn the_hand_does_not_go_round_all_groups_at_once() {
        const GROUPS: u32 = 1 << 14;
        let mut groups = Groups::new(Arc::new(Table::new(GROUPS)));
        (1..=GROUPS / STEP).for_each(|steps| groups.grow((steps * STEP * GROUP) as usize));
        for place in 0..GROUPS {
            let group = groups.take_free().expect("a free group");
            groups.insert(group, 1, place);
        }
        // All are young, as when numbers are used again for the first time, and a third is used.
        let used = |group: GroupId| group.is_multiple_of(3);
        (0..GROUPS).filter(|group| used(*group)).for_each(|group| groups.begin_use(group * GROUP));
        let mut taken = 0;
        let young = |groups: &Groups| {
            (0..GROUPS).filter(|group| groups.state(*group).load(Ordering::Relaxed) & YOUNG != 0).count() as u64
        };
        while taken < 2 * GROUPS / MAX_YOUNG as u32 {
            let before = young(&groups);
            let oldest = groups.oldest().expect("most are not used");
            assert!(!used(oldest));
            let passed = before - young(&groups);
            assert!(passed <= MAX_YOUNG + 2, "{passed} groups were passed over in one hold");
            groups.remove(oldest);
            groups.insert(oldest, 1, GROUPS + taken);
            taken += 1;
        }
        // After a round only those are passed over that were used since, or are used.
        let before = groups.hand;
        groups.oldest().expect("most are not used");
        assert!((groups.hand + GROUPS - before) % GROUPS <= 3);
    }

    #[test]
    fn nothing_goes_while_everything_is_used() {
        let mut groups = Groups::new(Arc::new(Table::new(64)));
        groups.grow(512);
        assert!(groups.oldest().is_none(), "nothing was given");
        let numbers: Vec<GroupId> = std::iter::from_fn(|| groups.take_free()).collect();
        assert_eq!(numbers.len(), 512 / GROUP as usize);
        for group in numbers {
            groups.insert(group, 1, group);
            groups.begin_use(group * GROUP);
        }
        assert!(groups.oldest().is_none());
        groups.end_use(7 * GROUP);
        assert_eq!(groups.oldest(), Some(7));
    }
}
