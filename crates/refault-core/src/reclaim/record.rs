//! The record that the kernels' policies keep of each page: 8 bytes.
//!
//! Invariants: a page is *on a list* iff [`LRU`] or [`IN_ACTIVATE`] is set; [`IN_ADD`] excludes both. While a page
//! waits in the batch of activations it keeps its place on its list but cannot be isolated. The two batches exclude
//! each other: the bits of both together mean that the page is culled.

use crate::lists::ring::Placed;
use crate::page::{LruvecId, PageId, PageType};

/// On a list and may be isolated.
pub const LRU: u16 = 1;
/// Waits in the batch of additions: on no list yet.
pub const IN_ADD: u16 = 1 << 1;
/// Waits in the batch of activations: still on its list.
pub const IN_ACTIVATE: u16 = 1 << 2;
/// Classic: belongs to the active list. Multi-gen LRU: an instruction to the next insertion; while a page is listed, a
/// part of where it stands.
pub const ACTIVE: u16 = 1 << ACTIVE_SHIFT;
/// One reference was seen by software.
pub const REFERENCED: u16 = 1 << 4;
/// Classic: was active earlier in its life. Multi-gen LRU: second access.
pub const WORKINGSET: u16 = 1 << 5;
/// To be rotated to the tail as soon as its write ends.
pub const RECLAIM: u16 = 1 << 6;
/// A file page.
pub const FILE: u16 = 1 << 7;
/// Keeps its swap slot.
pub const SWAPCACHE: u16 = 1 << 8;
/// Any of the flags that say the policy knows the page.
pub const KNOWN: u16 = LRU | IN_ADD | IN_ACTIVATE;

/// Unevictable and on no list, until it is evictable again.
const CULLED: u16 = IN_ADD | IN_ACTIVATE;

const ACTIVE_SHIFT: u32 = 3;
const GENERATION_SHIFT: u32 = 9;
const GENERATION_MASK: u16 = 7 << GENERATION_SHIFT;
const REFS_SHIFT: u32 = 12;
/// The two bits that count accesses after the second.
pub const REFS_MASK: u16 = 3 << REFS_SHIFT;
/// The largest count of the refs bits.
pub const REFS_MAX: u16 = 3;

const STANDING_SHIFT: u32 = 14;
const STANDING_MASK: u16 = 3 << STANDING_SHIFT;

/// Position on its list, flags, generation and lruvec of a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageRecord {
    position: u32,
    /// See the constants of this module.
    pub flags: u16,
    /// The lruvec the page is charged to.
    pub lruvec: LruvecId,
}

impl PageRecord {
    /// Whether any of the flags is set.
    #[inline]
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Sets flags.
    #[inline]
    pub fn set(&mut self, flags: u16) {
        self.flags |= flags;
    }

    /// Clears flags.
    #[inline]
    pub fn clear(&mut self, flags: u16) {
        self.flags &= !flags;
    }

    /// Whether the page was taken off the lists because it is unevictable.
    #[inline]
    pub fn is_culled(&self) -> bool {
        self.flags & KNOWN == CULLED
    }

    /// Notes that the page is unevictable and on no list; it is no longer active (spec: overview §5 row 3).
    pub fn cull(&mut self) {
        self.clear(LRU | ACTIVE);
        self.set(CULLED);
    }

    /// Notes that the page is evictable again; true if it was culled, and is to go on a list now.
    pub fn rescue(&mut self) -> bool {
        let culled = self.is_culled();
        if culled {
            self.clear(CULLED);
        }
        culled
    }

    /// Anonymous or file.
    #[inline]
    pub fn page_type(&self) -> PageType {
        if self.has(FILE) { PageType::File } else { PageType::Anon }
    }

    /// Index of the generation (sequence number modulo the widest window) while on a generation list.
    #[inline]
    pub fn generation(&self) -> Option<usize> {
        ((self.flags & GENERATION_MASK) >> GENERATION_SHIFT).checked_sub(1).map(usize::from)
    }

    /// Whether the page stands in this generation without anything that could move it on: no references beyond the
    /// first, no promotion, no pending activation.
    #[inline]
    pub fn is_plain(&self, generation: usize) -> bool {
        self.flags & (GENERATION_MASK | REFS_MASK | WORKINGSET | IN_ACTIVATE)
            == (generation as u16 + 1) << GENERATION_SHIFT
    }

    /// Sets the generation, at most index 6.
    #[inline]
    pub fn set_generation(&mut self, generation: usize) {
        self.flags = self.flags & !GENERATION_MASK | (generation as u16 + 1) << GENERATION_SHIFT;
    }

    /// Notes that the page stands on no generation's list any more.
    #[inline]
    pub fn leave_generation(&mut self) {
        self.flags &= !(GENERATION_MASK | ACTIVE);
    }

    /// Index of the generation on whose list the page stands: its own, or an older one if it was promoted and has not
    /// been sorted since. Known only while it stands on one.
    #[inline]
    pub fn standing(&self) -> usize {
        usize::from(self.flags >> STANDING_SHIFT | (self.flags & ACTIVE) >> (ACTIVE_SHIFT - 2))
    }

    /// Notes on which generation's list the page stands. Two bits are its own; windows of more than four generations
    /// use ACTIVE as a third, which says nothing else of a listed page.
    #[inline]
    pub fn set_standing(&mut self, generation: usize) {
        let (low, high) = ((generation as u16) << STANDING_SHIFT, (generation as u16 >> 2) << ACTIVE_SHIFT);
        self.flags = self.flags & !(STANDING_MASK | ACTIVE) | low | high;
    }

    /// The refs bits, 0..=3.
    #[inline]
    pub fn refs(&self) -> u16 {
        (self.flags & REFS_MASK) >> REFS_SHIFT
    }

    /// Sets the refs bits; `refs` must be at most [`REFS_MAX`].
    #[inline]
    pub fn set_refs(&mut self, refs: u16) {
        self.flags = self.flags & !REFS_MASK | refs << REFS_SHIFT;
    }
}

/// Reads the records of pages that are about to be looked at, so that their cache misses overlap instead of following
/// one another.
#[inline]
pub fn fetch(pages: impl Iterator<Item = PageId>, records: &[PageRecord]) {
    std::hint::black_box(pages.fold(0, |sum, page| sum ^ records[page as usize].flags));
}

impl Placed for PageRecord {
    #[inline]
    fn position(&self) -> u32 {
        self.position
    }

    #[inline]
    fn set_position(&mut self, position: u32) {
        self.position = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_generations_fit_beside_everything_else() {
        for (generation, standing) in (0..7).flat_map(|g| (0..7).map(move |s| (g, s))) {
            let mut record = PageRecord::default();
            record.set(LRU | FILE | WORKINGSET);
            record.set_refs(REFS_MAX);
            record.set_generation(generation);
            record.set_standing(standing);
            assert_eq!((record.generation(), record.standing(), record.refs()), (Some(generation), standing, REFS_MAX));
            record.leave_generation();
            assert_eq!(
                (record.generation(), record.has(ACTIVE)),
                (None, false),
                "{standing} is not an instruction to insert"
            );
            assert!(record.has(LRU) && record.has(FILE) && record.has(WORKINGSET));
        }
    }
}
