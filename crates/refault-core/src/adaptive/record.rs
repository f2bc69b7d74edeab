//! What is kept of each page id, shared by all directories: when it was used last, its flags, how often it was used.
//!
//! Invariants: `used` is 0 for a page never used, else distinct for each page and below [`Table::now`].
//! Cost: 12 bytes per page id.

use crate::page::PageId;

/// The page is in memory.
pub(super) const RESIDENT: u32 = 1;
/// The page is in the directory of [`super::Way`] 0, 1 or 2.
pub(super) const HELD: [u32; 3] = [1 << 1, 1 << 2, 1 << 3];
/// The page is queued as an outsider of directory 0, 1 or 2: it is resident and not in the directory.
pub(super) const QUEUED: [u32; 3] = [1 << 4, 1 << 5, 1 << 6];
/// Low inter-reference recency: see [`super::reuse`].
pub(super) const LOW: u32 = 1 << 7;
/// High inter-reference recency, in the probation queue: see [`super::reuse`].
pub(super) const PROBATION: u32 = 1 << 8;
/// The page has an entry in the window: see [`super::frequency`].
pub(super) const IN_WINDOW: u32 = 1 << 9;
/// The page has an entry on a list of ranks: see [`super::frequency`].
pub(super) const ON_LIST: u32 = 1 << 10;
/// A list of ranks has an entry of the page that had this id before: see [`super::frequency`].
pub(super) const STALE: u32 = 1 << 11;
/// How the page's own entry on a list of ranks is marked, and the stale one is not.
pub(super) const MARK: u32 = 1 << 12;
/// Room was made for the page, and it has not come yet: see [`super::ahead`].
pub(super) const EXPECTED: u32 = 1 << 13;
/// Its last reference was close to the one before (module `reuse`).
pub(super) const CLOSE: u32 = 1 << 14;
/// Flags of a page whose reference changes nothing but the time of its use and its rank.
pub(super) const SETTLED: u32 = RESIDENT | HELD[0] | HELD[1] | HELD[2] | LOW;
/// From here on the flags hold the time of the last reference that counted: see [`super::frequency`].
const TIME_SHIFT: u32 = 16;

/// 12 bytes, one line of the processor's cache for most pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// Time of the last reference.
    pub used: u32,
    /// Low half: the constants above.
    pub flags: u32,
    /// What the page's references are worth: see [`super::frequency`].
    pub rank: u32,
}

impl Record {
    /// Whether any of the flags is set.
    #[inline]
    pub fn is(self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Part of an interval in which a reference counted last, modulo 2^16.
    #[inline]
    pub fn counted_at(self) -> u16 {
        (self.flags >> TIME_SHIFT) as u16
    }

    /// Notes when a reference counted.
    #[inline]
    pub fn set_counted_at(&mut self, part: u16) {
        self.flags = self.flags & ((1 << TIME_SHIFT) - 1) | u32::from(part) << TIME_SHIFT;
    }
}

/// All records, and the clock of references.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub records: Vec<Record>,
    /// The next reference's time.
    pub now: u32,
}

impl Table {
    /// A record.
    #[inline]
    pub fn at(&self, page: PageId) -> Record {
        self.records[page as usize]
    }

    /// A record, to be changed.
    #[inline]
    pub fn at_mut(&mut self, page: PageId) -> &mut Record {
        &mut self.records[page as usize]
    }

    /// What a page's references are worth.
    #[inline]
    pub fn rank(&self, page: PageId) -> u32 {
        self.records[page as usize].rank
    }

    /// The same, to be changed.
    #[inline]
    pub fn rank_mut(&mut self, page: PageId) -> &mut u32 {
        &mut self.records[page as usize].rank
    }

    /// Reads what a reference needs, so that the cache misses of several overlap.
    #[inline]
    pub fn peek(&self, page: PageId) -> u64 {
        u64::from(self.records[page as usize].used)
    }

    /// The same for several, before each is asked for.
    #[inline]
    pub fn fetch(&self, pages: impl Iterator<Item = PageId>) {
        std::hint::black_box(pages.fold(0, |read, page| read ^ self.peek(page)));
    }

    /// Records for page ids below `pages`.
    pub fn grow(&mut self, pages: usize) {
        if pages > self.records.len() {
            self.records.resize(pages, Record::default());
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }

    /// Sets flags.
    #[inline]
    pub fn set(&mut self, page: PageId, flags: u32) {
        self.records[page as usize].flags |= flags;
    }

    /// Clears flags.
    #[inline]
    pub fn clear(&mut self, page: PageId, flags: u32) {
        self.records[page as usize].flags &= !flags;
    }

    /// Turns a flag over.
    #[inline]
    pub fn flip(&mut self, page: PageId, flag: u32) {
        self.records[page as usize].flags ^= flag;
    }

    /// The page is used now.
    #[inline]
    pub fn touch(&mut self, page: PageId) {
        self.records[page as usize].used = self.now;
        self.now += 1;
    }

    /// Times start again from 1, in the same order: O(n log n) for n page ids.
    #[cold]
    pub fn renumber(&mut self) {
        let mut pages: Vec<PageId> = (0..self.records.len() as PageId).filter(|page| self.at(*page).used > 0).collect();
        pages.sort_unstable_by_key(|page| self.at(*page).used);
        for (time, page) in (1..).zip(&pages) {
            self.at_mut(*page).used = time;
        }
        self.now = pages.len() as u32 + 1;
    }
}
