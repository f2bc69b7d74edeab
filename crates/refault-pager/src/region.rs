//! Regions: plain memory that a pager keeps within its budget.

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use refault_core::PageId;
use refault_core::policy::AccessPattern;
use refault_store::PAGE_SIZE;

use crate::budget::Budget;
use crate::fault_scratch::BATCH;
use crate::options::PagerOptions;
use crate::pager::{Inner, Pager, PagerError};
use crate::pte_lock::PteLock;
use crate::state::State;
use crate::threads::RESERVED_PAGES;

/// How a range will be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Unknown: sequences are detected, and scans again and again if the policy looks for them (`cyclic=yes`).
    Normal,
    /// From beginning to end: successors come along at once.
    Sequential,
    /// Without order: nothing comes along.
    Random,
    /// From beginning to end, again and again: under a policy with `cyclic=yes`, as much as fits stays and the rest
    /// passes through.
    Cyclic,
}

impl Hint {
    /// The same in the policy's terms.
    pub(crate) fn pattern(self) -> AccessPattern {
        match self {
            Hint::Normal => AccessPattern::Unknown,
            Hint::Cyclic => AccessPattern::Cyclic,
            Hint::Sequential | Hint::Random => AccessPattern::Other,
        }
    }
}

/// A range of memory under a pager. Dereferences to bytes; the address never changes.
pub struct Region {
    pager: Pager,
    first: PageId,
    pages: u32,
    bytes: usize,
}

impl Pager {
    /// A region of zeros. `bytes` is rounded up to pages for the budget, not for the slice.
    pub fn region(&self, bytes: usize) -> Result<Region, PagerError> {
        let pages = u32::try_from(bytes.div_ceil(PAGE_SIZE)).map_err(|_| PagerError::NoAddresses(bytes as u64))?.max(1);
        let gate = self.inner().enter();
        let first = self.inner().allocate(pages, PAGE_SIZE).ok_or(PagerError::NoAddresses(bytes as u64))?;
        drop(gate);
        Ok(Region { pager: self.clone(), first, pages, bytes })
    }

    /// A region with the contents of a file, read when they are touched. Writes stay in the region until
    /// [`Region::sync`]. Regular files that say how long they are only: not those in `/proc`.
    pub fn file_region(&self, path: &Path) -> Result<Region, PagerError> {
        let failed = |error| PagerError::File { path: path.to_owned(), error };
        // A pipe without a writer would keep us waiting.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            let why = if metadata.is_dir() {
                io::Error::from_raw_os_error(libc::EISDIR)
            } else {
                io::Error::new(io::ErrorKind::InvalidInput, "not a regular file: copy its contents to one")
            };
            return Err(failed(why));
        }
        let bytes = metadata.len();
        if bytes == 0 && file.read_at(&mut [0], 0).map_err(failed)? > 0 {
            // As of the files in /proc, which are made while they are read.
            let why = "its length is said to be 0, but it has contents: copy them to another file";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let region = self.region(usize::try_from(bytes).map_err(|_| PagerError::NoAddresses(bytes))?)?;
        // Inside, or a child of a fork might find the table's lock taken.
        let gate = self.inner().enter();
        self.inner().ranges.set_file(region.first, region.pages, file);
        drop(gate);
        Ok(region)
    }
}

impl Region {
    /// A region of zeros with a pager of its own that keeps `budget` bytes resident.
    pub fn anonymous(bytes: usize, budget: u64) -> Result<Region, PagerError> {
        Pager::new(Budget::new(budget), PagerOptions::default())?.region(bytes)
    }

    /// A region with a file's contents and a pager of its own that keeps `budget` bytes resident.
    pub fn file(path: &Path, budget: u64) -> Result<Region, PagerError> {
        Pager::new(Budget::new(budget), PagerOptions::default())?.file_region(path)
    }

    /// The pager behind the region.
    pub fn pager(&self) -> &Pager {
        &self.pager
    }

    fn inner(&self) -> &Arc<Inner> {
        self.pager.inner()
    }

    /// The pages that touch a range of bytes.
    fn pages_of(&self, range: &Range<usize>) -> (PageId, u32) {
        let end = range.end.min(self.bytes).div_ceil(PAGE_SIZE) as u32;
        let start = (range.start / PAGE_SIZE).min(end as usize) as u32;
        (self.first + start, end - start)
    }

    /// Forgets the contents of all pages that lie wholly in a range of bytes. They read as zeros (or as the file) again
    /// and take no space. Needs the region exclusively, because another thread's reference would see the change.
    pub fn discard(&mut self, range: Range<usize>) {
        let start = range.start.div_ceil(PAGE_SIZE) as u32;
        let end = if range.end >= self.bytes { self.pages } else { (range.end / PAGE_SIZE) as u32 };
        if start < end {
            let _gate = self.inner().enter();
            self.inner().discard(self.first + start, end - start);
        }
    }

    /// Brings a range in as far as the budget has room. Returns the bytes that are resident afterwards.
    pub fn prefetch(&self, range: Range<usize>) -> usize {
        let (first, pages) = self.pages_of(&range);
        let _gate = self.inner().enter();
        self.inner().prefetch(first, pages) as usize * PAGE_SIZE
    }

    /// Brings a range in and keeps it until [`Region::unpin`]. Pinned pages count against the budget. Fails, with
    /// nothing pinned, if they would not fit. Pages that are pinned twice are unpinned at once.
    ///
    /// Needed for writes into the region past the page tables, of which no fault tells the pager. These are direct
    /// reads (O_DIRECT), io_uring's registered buffers and another process's `process_vm_writev`. What they write to a
    /// page that is evicted meanwhile is lost.
    pub fn pin(&self, range: Range<usize>) -> Result<(), PagerError> {
        let (first, pages) = self.pages_of(&range);
        let _gate = self.inner().enter();
        self.inner().pin(first, pages)
    }

    /// Ends that.
    pub fn unpin(&self, range: Range<usize>) {
        let (first, pages) = self.pages_of(&range);
        let _gate = self.inner().enter();
        self.inner().unpin(first, pages);
    }

    /// Says how the region will be accessed.
    pub fn hint(&self, hint: Hint) {
        let _gate = self.inner().enter();
        self.inner().ranges.set_hint(self.first, self.pages, hint);
    }

    /// Evicts what is resident of a range, however hot. Returns the bytes that left memory.
    pub fn evict(&self, range: Range<usize>) -> usize {
        let (first, pages) = self.pages_of(&range);
        let _gate = self.inner().enter();
        self.inner().evict_range(first, pages) as usize * PAGE_SIZE
    }

    /// Writes the region to its file and waits for the disk. Without a file nothing happens.
    pub fn sync(&self, path: &Path) -> Result<(), PagerError> {
        let failed = |error| PagerError::File { path: path.to_owned(), error };
        let file = File::options().write(true).open(path).map_err(failed)?;
        file.write_all_at(self, 0).and_then(|()| file.sync_data()).map_err(failed)
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.inner().arena.address(self.first) as *const u8;
        // SAFETY: the run of pages belongs to this region and is mapped as long as its pager lives; its bytes change
        // only through `deref_mut` and `discard`, which need the region exclusively.
        unsafe { std::slice::from_raw_parts(start, self.bytes) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.inner().arena.address(self.first) as *mut u8;
        // SAFETY: as in `deref`, exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let _gate = self.inner().enter();
        self.inner().free(self.first, self.pages);
    }
}

impl Inner {
    /// Takes a run of fresh pages.
    pub(crate) fn allocate(&self, pages: u32, align: usize) -> Option<PageId> {
        let first = self.arena.take(pages, align)?;
        if first + pages > self.arena.pages() - RESERVED_PAGES {
            self.arena.give_back(first, pages);
            return None;
        }
        self.engine().grow(first + pages);
        Some(first)
    }

    /// Discards the parts of a run of pages that are taken, and gives their addresses back.
    pub(crate) fn free(&self, first: PageId, pages: u32) {
        for (first, pages) in self.arena.begin_leaving(first, pages) {
            self.ranges.forget(first, pages);
            self.unpin(first, pages);
            self.discard(first, pages);
            self.arena.give_back(first, pages);
        }
    }

    /// Makes pages fresh, whatever they were.
    pub(crate) fn discard(&self, first: PageId, pages: u32) {
        let mut page = first;
        let end = first + pages;
        while page < end {
            // Runs of resident pages are punched together.
            let run = page;
            while page < end && page - run < 512 {
                let seen = self.word(page).load();
                if seen.state() != State::Resident || !self.word(page).begin(seen, State::Moving) {
                    break;
                }
                self.give_up_slot(seen);
                page += 1;
            }
            if page > run {
                let (address, len) = (self.arena.address(run), (page - run) as usize * PAGE_SIZE);
                if let Err(error) = self.arena.punch(&PteLock::lock(), run, page - run) {
                    crate::report::end_for("freeing discarded pages", &error);
                }
                let _ = self.uffd.unprotect(&PteLock::lock(), address, len);
                self.budget.uncharge(u64::from(page - run));
                self.counts.discarded.fetch_add(u64::from(page - run), Ordering::Relaxed);
                for page in run..page {
                    if self.word(page).finish(State::Fresh, 0, false) {
                        let _ = self.uffd.wake(self.arena.address(page), PAGE_SIZE);
                    }
                    self.report(page);
                }
                continue;
            }
            let seen = self.word(page).load();
            match seen.state() {
                State::Fresh => page += 1,
                State::Stored => {
                    if self.word(page).begin(seen, State::Moving) {
                        self.release(seen.slot());
                        self.counts.discarded.fetch_add(1, Ordering::Relaxed);
                        if self.word(page).finish(State::Fresh, 0, false) {
                            let _ = self.uffd.wake(self.arena.address(page), PAGE_SIZE);
                        }
                        page += 1;
                    }
                }
                State::Lost => {
                    if self.word(page).begin(seen, State::Moving) {
                        // Dropping the entry takes the poison away.
                        self.arena.drop_entries(&PteLock::lock(), page, 1);
                        let _ = self.word(page).finish(State::Fresh, 0, false);
                        page += 1;
                    }
                }
                State::Resident => {}
                State::Filling | State::Evicting | State::Moving => std::thread::yield_now(),
            }
        }
    }

    /// Brings a run in as far as the budget has room; returns the resident pages of the run.
    pub(crate) fn prefetch(&self, first: PageId, pages: u32) -> u32 {
        let mut worker = self.spare_worker.borrow();
        let mut resident = 0;
        let mut patience = 1000;
        let mut page = first;
        while page < first + pages {
            match self.word(page).load().state() {
                State::Resident => {
                    resident += 1;
                    page += 1;
                    continue;
                }
                // On its way out, and would be left there; or on its way in, by a thread that may wait for room.
                State::Evicting | State::Moving | State::Filling if patience > 0 => {
                    patience -= 1;
                    std::thread::yield_now();
                    continue;
                }
                _ => {}
            }
            if self.budget.tightest().1 <= 1 {
                page += 1;
                continue;
            }
            let filled = self.fill_following(page, (first + pages - page).min(BATCH as u32), false, &mut worker);
            resident += filled;
            page += filled.max(1);
        }
        resident
    }

    /// Evicts what is resident and not pinned of a run; returns the pages that left memory.
    pub(crate) fn evict_range(&self, first: PageId, pages: u32) -> u64 {
        let mut worker = self.spare_worker.borrow();
        let mut victims = std::mem::take(&mut worker.victims);
        let mut freed = 0;
        let mut patience = 1000;
        let mut page = first;
        while page < first + pages {
            victims.clear();
            while page < first + pages && victims.len() < BATCH {
                let seen = self.word(page).load();
                if seen.state() == State::Filling && patience > 0 {
                    // It may be a successor that a handler is just bringing in. The thread that fills it may also wait
                    // for room.
                    patience -= 1;
                    std::thread::yield_now();
                    continue;
                }
                if seen.state() == State::Resident && !seen.pinned() && self.word(page).begin(seen, State::Evicting) {
                    victims.push(page);
                }
                page += 1;
            }
            freed += self.evict(&mut victims, &mut worker);
            victims.iter().for_each(|page| self.report(*page));
        }
        worker.victims = victims;
        freed
    }
}
