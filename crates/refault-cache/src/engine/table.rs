//! Where pages are, for readers that hold no lock: one table for all files of a cache.
//!
//! Pages that follow each other in a file form a *group*, whose record has a word per page that says where it is
//! ([`crate::engine::pins`]). Records are found by file and place through a table of chains, and stay where they are as
//! long as the cache lives; one that no page of its group needs any more stands for another group
//! ([`crate::engine::groups`]). So a reader may come upon a record that has changed its group meanwhile. It reads the
//! group's name again once it has pinned what it found. A reader that looks in vain finds the page under the lock, or
//! learns there that it is missing.
//!
//! Invariants: names and chains change under the engine's lock, and a name only while all words of its group say
//! [`NOWHERE`]. Cost: a look-up is some four loads; 8 bytes per page number, and 10 to 18 per frame.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use refault_core::PageId;

use crate::engine::pins::{MARKS, NOWHERE};

/// Pages of a file that get their numbers together.
pub(crate) const GROUP: u32 = 4;
/// Groups whose records are made together.
pub(crate) const STEP: u32 = 128;
/// Groups at most: this many per frame, or [`MIN_GROUPS`] where that is more.
const MAX_PER_FRAME: u32 = 16;
const MIN_GROUPS: u32 = 1 << 15;
/// Records that a reader looks at before it asks under the lock: chains may change under its eyes.
const MAX_LOOKS: usize = 64;

/// A group's number.
pub(crate) type GroupId = u32;
/// The end of a chain.
const NONE: GroupId = u32::MAX;
/// The name of no group.
const NAMELESS: u64 = u64::MAX;

/// The record of a group. Two share a line of the processor's cache.
#[repr(align(32))]
pub(crate) struct Group {
    /// File and place, see [`name`].
    name: AtomicU64,
    next: AtomicU32,
    /// Of [`crate::engine::groups`], under the engine's lock.
    pub(crate) state: AtomicU32,
    words: [AtomicU32; GROUP as usize],
}

impl Group {
    fn new() -> Group {
        let words = [const { AtomicU32::new(NOWHERE) }; GROUP as usize];
        Group { name: AtomicU64::new(NAMELESS), next: AtomicU32::new(NONE), state: AtomicU32::new(0), words }
    }

    /// The word of a page by its place in the group.
    #[inline]
    pub(crate) fn word(&self, within: u32) -> &AtomicU32 {
        &self.words[within as usize]
    }
}

type Block = [Group; STEP as usize];

/// A page's word, found without the lock.
pub(crate) struct Found<'a> {
    pub(crate) page: PageId,
    pub(crate) word: &'a AtomicU32,
    group: &'a Group,
    name: u64,
}

impl Found<'_> {
    /// Whether the word is still that of the page that was looked for, and names the frame that it named when it was
    /// `seen`; that frame has been pinned since. While it is pinned no other page gets it. So a word that names it
    /// before and after the group's name was read is the same page's.
    #[inline]
    pub(crate) fn is_still(&self, seen: u32) -> bool {
        self.group.name.load(Ordering::SeqCst) == self.name && (self.word.load(Ordering::SeqCst) ^ seen) & !MARKS == 0
    }
}

/// Where a page of a file is: its group's place and its own within the group. `None`: the index lies beyond the largest
/// file.
#[inline]
pub(crate) fn place(index: u64) -> Option<(u32, u32)> {
    let place = u32::try_from(index / u64::from(GROUP)).ok().filter(|place| *place < u32::MAX)?;
    Some((place, (index % u64::from(GROUP)) as u32))
}

fn name(file: u32, place: u32) -> u64 {
    u64::from(file) << 32 | u64::from(place)
}

pub(crate) struct Table {
    /// First groups of the chains.
    heads: Box<[AtomicU32]>,
    blocks: Box<[OnceLock<Box<Block>>]>,
}

impl Table {
    /// For a cache of `frames` frames.
    pub(crate) fn new(frames: u32) -> Table {
        let chains = (2 * frames as usize).next_power_of_two().max(4096);
        let heads = (0..chains).map(|_| AtomicU32::new(NONE)).collect();
        let most = frames.saturating_mul(MAX_PER_FRAME).clamp(MIN_GROUPS, u32::MAX / GROUP - STEP);
        Table { heads, blocks: (0..most / STEP).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn head(&self, name: u64) -> &AtomicU32 {
        // Neighbours' chains lie side by side; multiples of any power of two are spread.
        let (file, place) = (name >> 32, name as u32);
        let spread = (place >> 12).wrapping_mul(0x9E37_79B1) >> 8;
        let chain = place.wrapping_add(spread).wrapping_add((file as u32).wrapping_mul(0x85EB_CA77));
        &self.heads[chain as usize & (self.heads.len() - 1)]
    }

    /// Groups that it has room for.
    pub(crate) fn most(&self) -> u32 {
        self.blocks.len() as u32 * STEP
    }

    /// Makes records of the groups below a number that is a multiple of [`STEP`]; those below the last such number are
    /// there.
    pub(crate) fn grow(&self, groups: u32) {
        self.blocks[(groups / STEP - 1) as usize].get_or_init(|| Box::new(std::array::from_fn(|_| Group::new())));
    }

    #[inline]
    pub(crate) fn group(&self, group: GroupId) -> &Group {
        let block = self.blocks[(group / STEP) as usize].get();
        &block.expect("invariant: the record was made before its number was given")[(group % STEP) as usize]
    }

    /// A group of a file, by its place there. Under the engine's lock.
    #[inline]
    pub(crate) fn find(&self, file: u32, place: u32) -> Option<GroupId> {
        self.find_named(name(file, place), usize::MAX).map(|(group, _)| group)
    }

    #[inline]
    fn find_named(&self, name: u64, looks: usize) -> Option<(GroupId, &Group)> {
        let mut next = self.head(name).load(Ordering::Acquire);
        for _ in 0..looks {
            if next == NONE {
                break;
            }
            let group = self.group(next);
            if group.name.load(Ordering::Acquire) == name {
                return Some((next, group));
            }
            next = group.next.load(Ordering::Acquire);
        }
        None
    }

    /// The word of a page of a file, for a reader without the lock.
    #[inline]
    pub(crate) fn look_up(&self, file: u32, index: u64) -> Option<Found<'_>> {
        let (place, within) = place(index)?;
        let name = name(file, place);
        let (number, group) = self.find_named(name, MAX_LOOKS)?;
        Some(Found { page: number * GROUP + within, word: group.word(within), group, name })
    }

    /// File and place of a group.
    pub(crate) fn of(&self, group: GroupId) -> (u32, u32) {
        let name = self.group(group).name.load(Ordering::Relaxed);
        ((name >> 32) as u32, name as u32)
    }

    /// A nameless group stands for a place of a file from now on. Under the engine's lock.
    pub(crate) fn insert(&self, group: GroupId, file: u32, place: u32) {
        let name = name(file, place);
        let (record, head) = (self.group(group), self.head(name));
        record.next.store(head.load(Ordering::Relaxed), Ordering::Release);
        record.name.store(name, Ordering::SeqCst);
        head.store(group, Ordering::Release);
    }

    /// A group, none of whose pages is resident or busy, stands for nothing any more. Under the engine's lock.
    pub(crate) fn remove(&self, group: GroupId) {
        let record = self.group(group);
        let name = record.name.swap(NAMELESS, Ordering::SeqCst);
        let mut link = self.head(name);
        loop {
            let next = link.load(Ordering::Relaxed);
            if next == group {
                link.store(record.next.load(Ordering::Relaxed), Ordering::Release);
                return;
            }
            link = &self.group(next).next;
        }
    }

    /// Bytes held, with records of `groups` groups. Looks at none of them.
    pub(crate) fn metadata_bytes(&self, groups: usize) -> usize {
        groups.div_ceil(STEP as usize) * size_of::<Block>()
            + self.blocks.len() * size_of::<OnceLock<Box<Block>>>()
            + self.heads.len() * size_of::<AtomicU32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_where_they_were_put_until_they_are_removed() {
        let table = Table::new(64);
        (1..=8).for_each(|steps| table.grow(STEP * steps));
        // More than there are chains for, of two files.
        let groups = 8 * STEP;
        let at = |group: u32| (group % 2, group / 2 * 4097);
        for group in 0..groups {
            let (file, place) = at(group);
            assert!(table.find(file, place).is_none());
            table.insert(group, file, place);
        }
        (0..groups).step_by(3).for_each(|group| table.remove(group));
        for group in 0..groups {
            let (file, place) = at(group);
            let removed = group % 3 == 0;
            assert_eq!(table.find(file, place), (!removed).then_some(group), "{group}");
            if !removed {
                assert_eq!(table.of(group), (file, place));
                let index = u64::from(place) * u64::from(GROUP) + 1;
                assert_eq!(table.look_up(file, index).map(|found| found.page), Some(group * GROUP + 1));
            }
        }
        assert_eq!(
            table.metadata_bytes(groups as usize),
            groups as usize * 32 + 4096 * 4 + (MIN_GROUPS / STEP) as usize * 16
        );
        assert!(place(u64::MAX).is_none() && table.look_up(0, u64::MAX).is_none());
    }
}
