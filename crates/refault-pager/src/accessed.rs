//! Software accessed bits: drop page-table entries, then scan for those that came back.
//!
//! A page counts as accessed if it has an entry. Taking the bit drops the entry; the contents stay in the memfd, and
//! the next touch brings the entry back without the pager (1.4 µs). Each drop costs a TLB shoot-down. So entries are
//! only noted as *spent* at first, and count as not there. They are dropped together after a walk or when there are
//! many, outside of the policy's lock ([`crate::zap`]). What is accessed in between is not seen.
//!
//! Neighbours are dropped with one call, and with them the entries of a few pages in between whose access no thread has
//! taken: these are noted as *lent* and count as accessed until the policy takes it.
//!
//! Invariant: an access that was not taken is not lost, but for one that falls between the scan and the drop. Cost:
//! three bits per page; a system call for each range that is asked about, some 17 ns per present page.

use refault_core::PageId;
use refault_store::PAGE_SIZE;

use crate::exact_accesses::ExactAccesses;
use crate::pagemap::PageMap;
use crate::zap::{Run, add_run};

/// Pages that are looked at together: 2 MiB.
pub(crate) const REGION_PAGES: u32 = 512;

/// Words that cover a region, wherever it begins.
const REGION_WORDS: usize = REGION_PAGES as usize / 64 + 1;

/// Spent entries below which dropping them is put off.
const MIN_SPENT: u32 = 512;

/// Entries between two spent ones that are worth dropping along to save a shoot-down (some 3 µs): each costs a fault of
/// 1.4 µs if the page is touched again.
const WORTH_LENDING: u32 = 2;

/// Pages that are looked at with one call where the policy asks for one after the other.
const TOGETHER: u32 = 64;

/// What a look at [`TOGETHER`] pages has found, for those that the policy asks for next.
#[derive(Default)]
struct Look {
    /// Which of these groups of pages, and which of them have an entry. `None`: no group was looked at.
    found: Option<(u32, u64)>,
    /// The page that was asked for last.
    last: PageId,
}

/// How the pager learns which pages were accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessSource {
    /// Dropping page-table entries and scanning for those that came back.
    DropAndScan,
    /// Not at all: what is evicted and comes back is the only information.
    RefaultOnly,
    /// By [`crate::Pager::note_accesses`] after each access, and nothing is evicted ahead of a fault: exact, and slow.
    /// For one thread, with [`crate::FaultMode::InThread`], where a region is compared with a replay.
    Exact,
}

/// One bit per page.
#[derive(Default)]
pub(crate) struct PageSet(Vec<u64>);

impl PageSet {
    pub(crate) fn grow(&mut self, pages: usize) {
        self.0.resize(pages.div_ceil(64), 0);
    }
    pub(crate) fn has(&self, page: PageId) -> bool {
        self.0[page as usize / 64] >> (page % 64) & 1 != 0
    }
    pub(crate) fn insert(&mut self, page: PageId) {
        self.0[page as usize / 64] |= 1 << (page % 64);
    }
    pub(crate) fn remove(&mut self, page: PageId) {
        self.0[page as usize / 64] &= !(1 << (page % 64));
    }
    pub(crate) fn take(&mut self, page: PageId) -> bool {
        let had = self.has(page);
        self.remove(page);
        had
    }
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * 8
    }
    /// Pages from 64 times `word` on, a bit each.
    fn word(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }
    /// Whether the words that `first..end` lies in are empty.
    pub(crate) fn is_empty_around(&self, first: PageId, end: PageId) -> bool {
        self.0[first as usize / 64..(end as usize).div_ceil(64)].iter().all(|word| *word == 0)
    }
    fn remove_run(&mut self, (first, end): Run) {
        (first..end).for_each(|page| self.remove(page));
    }
}

/// Calls `visit` for each bit of a word, as a page.
fn for_bits(index: usize, mut word: u64, mut visit: impl FnMut(PageId)) {
    while word != 0 {
        visit(index as PageId * 64 + word.trailing_zeros());
        word &= word - 1;
    }
}

/// The accessed bits of an arena.
pub(crate) struct AccessedBits {
    base: usize,
    pagemap: Option<PageMap>,
    /// Pages whose access was taken and whose entry is not dropped yet: it means nothing.
    spent: PageSet,
    spent_pages: u32,
    /// Pages whose entry was dropped although the policy had not taken their access.
    lent: PageSet,
    look: Look,
    /// A walk has looked at everything since the entries were last dropped.
    walked_since: bool,
    exact: Option<Box<ExactAccesses>>,
    pages: u32,
}

impl AccessedBits {
    /// Of an arena at `base`, found out as `wanted` if that works here.
    pub(crate) fn new(base: usize, wanted: AccessSource) -> AccessedBits {
        AccessedBits {
            base,
            pagemap: if wanted == AccessSource::RefaultOnly { None } else { PageMap::open().ok() },
            spent: PageSet::default(),
            spent_pages: 0,
            lent: PageSet::default(),
            look: Look::default(),
            walked_since: false,
            exact: (wanted == AccessSource::Exact).then(Box::default),
            pages: 0,
        }
    }

    /// How accesses are found out.
    pub(crate) fn source(&self) -> AccessSource {
        match (&self.pagemap, &self.exact) {
            (None, _) => AccessSource::RefaultOnly,
            (Some(_), None) => AccessSource::DropAndScan,
            (Some(_), Some(_)) => AccessSource::Exact,
        }
    }

    /// The page map of the parent describes the parent: open the child's.
    pub(crate) fn reopen_after_fork(&mut self) {
        if self.pagemap.as_mut().is_some_and(|pagemap| pagemap.reopen().is_err()) {
            self.pagemap = None;
        }
    }

    pub(crate) fn grow(&mut self, pages: u32) {
        self.pages = pages;
        self.spent.grow(pages as usize);
        self.lent.grow(pages as usize);
        if let Some(exact) = &mut self.exact {
            exact.grow(pages as usize);
        }
    }

    /// Where bits are exact: the bits.
    pub(crate) fn exact(&mut self) -> Option<&mut ExactAccesses> {
        self.exact.as_deref_mut()
    }

    pub(crate) fn bytes(&self) -> usize {
        let exact = self.exact.as_ref().map_or(0, |exact| exact.bytes());
        self.spent.bytes() + self.lent.bytes() + exact
    }

    /// Calls `visit` for each page of at most a region that was accessed, in order, and whether its entry is there.
    pub(crate) fn accessed(&self, first: PageId, end: PageId, mut visit: impl FnMut(PageId, bool)) {
        debug_assert!(end - first <= REGION_PAGES);
        let base = first as usize / 64;
        let mut present = [0u64; REGION_WORDS];
        let without_entries = self.exact.as_ref().map_or(&self.lent, |exact| exact.young());
        if self.exact.is_none() {
            self.present(first, end, |page| present[page as usize / 64 - base] |= 1 << (page % 64));
        }
        for index in base..(end as usize).div_ceil(64) {
            let present = present[index - base];
            for_bits(index, present | without_entries.word(index), |page| {
                if (first..end).contains(&page) {
                    visit(page, present >> (page % 64) & 1 != 0);
                }
            });
        }
    }

    /// Calls `visit` for each page of a range that has a page-table entry that is not about to be dropped.
    pub(crate) fn present(&self, first: PageId, end: PageId, mut visit: impl FnMut(PageId)) {
        let Some(pagemap) = &self.pagemap else { return };
        let address = |page: PageId| self.base + page as usize * PAGE_SIZE;
        let scan = pagemap.scan(address(first), address(end), &mut |from, to| {
            for address in (from..to).step_by(PAGE_SIZE) {
                let page = ((address - self.base) / PAGE_SIZE) as PageId;
                if !self.spent.has(page) {
                    visit(page);
                }
            }
        });
        // A scan that fails in the middle has reported what it saw; the rest counts as not accessed.
        drop(scan);
    }

    /// Whether a page has an entry: it was accessed since that was last dropped, by whomever.
    pub(crate) fn is_present(&self, page: PageId) -> bool {
        let mut present = false;
        self.present(page, page + 1, |_| present = true);
        present
    }

    /// Forgets what was found of pages that the policy has not asked for: it is old.
    pub(crate) fn forget_look(&mut self) {
        self.look.found = None;
    }

    /// Whether a page has an entry, and those around it if one of them was asked for just before.
    fn look_at(&mut self, page: PageId) -> bool {
        let (group, before) = (page / TOGETHER, std::mem::replace(&mut self.look.last, page) / TOGETHER);
        if self.look.found.is_none_or(|(known, _)| known != group) {
            if group.abs_diff(before) > 1 {
                return self.is_present(page);
            }
            let first = group * TOGETHER;
            let mut present = 0;
            self.present(first, (first + TOGETHER).min(self.pages), |page| present |= 1 << (page % TOGETHER));
            self.look.found = Some((group, present));
        }
        // It may be about to be dropped since.
        self.look.found.is_some_and(|(_, present)| present >> (page % TOGETHER) & 1 != 0) && !self.spent.has(page)
    }

    /// Takes the bit of a page.
    pub(crate) fn take(&mut self, page: PageId) -> bool {
        if let Some(exact) = &mut self.exact {
            return exact.take(page);
        }
        let present = self.look_at(page);
        let accessed = present || self.lent.has(page);
        if accessed {
            self.taken(page, present);
        }
        accessed
    }

    /// The access of a page that [`AccessedBits::accessed`] has named is taken.
    pub(crate) fn taken(&mut self, page: PageId, present: bool) {
        if let Some(exact) = &mut self.exact {
            exact.take(page);
        }
        self.lent.remove(page);
        if present {
            self.spent.insert(page);
            self.spent_pages += 1;
        }
    }

    /// A page came in: its entry is new.
    pub(crate) fn came_in(&mut self, page: PageId) {
        self.spent.remove(page);
        if let Some(exact) = &mut self.exact {
            exact.came_in(page);
        }
    }

    /// A page left, or is not the policy's any more.
    pub(crate) fn left(&mut self, page: PageId) {
        self.lent.remove(page);
        if let Some(exact) = &mut self.exact {
            exact.left(page);
        }
    }

    /// A walk has looked at everything.
    pub(crate) fn walked(&mut self) {
        self.walked_since = true;
    }

    /// Collects spent entries, once there are enough of them for neighbours to share a call, as far as there is room.
    /// `resident`: pages that may have entries.
    pub(crate) fn collect_drops(&mut self, resident: u32, runs: &mut Vec<Run>) {
        if !std::mem::take(&mut self.walked_since) && self.spent_pages < MIN_SPENT.max(resident / 4) {
            return;
        }
        self.spent_pages = 0;
        for first in (0..self.pages).step_by(REGION_PAGES as usize) {
            let end = (first + REGION_PAGES).min(self.pages);
            if !self.spent.is_empty_around(first, end) && !self.collect_region(first, end, runs) {
                return;
            }
        }
    }

    /// The same for a region. False if there was no room.
    fn collect_region(&mut self, first: PageId, end: PageId, runs: &mut Vec<Run>) -> bool {
        let mut others = [0u64; REGION_WORDS];
        let base = first as usize / 64;
        self.present(first, end, |page| others[page as usize / 64 - base] |= 1 << (page % 64));
        // Entries that would go along, since the last spent one.
        let (mut between, mut between_count) = ([0; WORTH_LENDING as usize], 0);
        let mut run = None;
        for index in base..(end as usize).div_ceil(64) {
            let (spent, others) = (self.spent.word(index), others[index - base]);
            let mut word = spent | others;
            while word != 0 {
                let page = index as PageId * 64 + word.trailing_zeros();
                let is_spent = spent >> word.trailing_zeros() & 1 != 0;
                word &= word - 1;
                if !is_spent {
                    if between_count < WORTH_LENDING {
                        between[between_count as usize] = page;
                    }
                    between_count += 1;
                    continue;
                }
                let joins = run.is_some() && between_count <= WORTH_LENDING;
                run = match run {
                    Some((start, _)) if joins => {
                        for lent in &between[..between_count as usize] {
                            self.lent.insert(*lent);
                        }
                        Some((start, page + 1))
                    }
                    whole => {
                        if whole.is_some_and(|(start, end)| !add_run(runs, (start, end))) {
                            return false;
                        }
                        Some((page, page + 1))
                    }
                };
                between_count = 0;
            }
        }
        run.is_none_or(|(start, end)| add_run(runs, (start, end)))
    }

    /// These entries are gone: one that is found from now on was accessed since.
    pub(crate) fn finish_drops(&mut self, runs: &[Run]) {
        self.forget_look();
        runs.iter().for_each(|run| self.spent.remove_run(*run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_one_after_the_other_are_looked_at_together() {
        const PAGES: u32 = 300;
        // SAFETY: a fresh private mapping, unmapped below.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                PAGES as usize * PAGE_SIZE,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::PRIVATE,
            )
        }
        .expect("maps") as usize;
        let touch = |page: PageId| {
            // SAFETY: inside the mapping.
            unsafe { ((base + page as usize * PAGE_SIZE) as *mut u8).write_volatile(1) };
        };
        // SAFETY: advice on that mapping: a page is one entry.
        unsafe { rustix::mm::madvise(base as *mut _, PAGES as usize * PAGE_SIZE, rustix::mm::Advice::LinuxNoHugepage) }
            .expect("advises");
        let mut bits = AccessedBits::new(base, AccessSource::DropAndScan);
        bits.grow(PAGES);
        (0..PAGES).filter(|page| page % 3 == 0).for_each(touch);
        let scans = |bits: &AccessedBits| bits.pagemap.as_ref().expect("opens").scans();
        let before = scans(&bits);
        for page in 0..PAGES {
            assert_eq!(bits.take(page), page % 3 == 0, "{page}");
            assert!(!bits.take(page), "{page}: it was taken");
        }
        assert!(scans(&bits) - before <= u64::from(PAGES.div_ceil(TOGETHER)), "{}", scans(&bits) - before);
        // What is touched after the look is seen by the next one.
        touch(298);
        assert!(!bits.take(298));
        bits.forget_look();
        assert!(bits.take(298));
        // Far from each other each is looked at by itself.
        let before = scans(&bits);
        for page in [1, 200, 4, 202] {
            touch(page);
            assert!(bits.take(page), "{page}");
        }
        assert_eq!(scans(&bits) - before, 4);
        // SAFETY: made above, not used any more.
        unsafe { rustix::mm::munmap(base as *mut _, PAGES as usize * PAGE_SIZE) }.expect("unmaps");
    }
}
