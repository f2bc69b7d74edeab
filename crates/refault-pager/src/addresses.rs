//! The pager by address: what an agent needs that stands in for `mmap` and its relatives.
//!
//! Runs of pages are handed out as bare addresses; who uses them owns them. All lengths are rounded up to pages. Addresses
//! that are not the pager's are refused, so that the caller can pass them on to the kernel.

use refault_store::{PAGE_SIZE, Page};

use crate::engine::for_runs;
use crate::pager::{Inner, Pager, PagerError};
use crate::region::Hint;
use crate::state::State;
use crate::turn::Turn;

impl Pager {
    /// Whether an address belongs to the pager's arena.
    pub fn owns(&self, address: usize) -> bool {
        self.inner().arena.page_at(address).is_some()
    }

    /// Takes `len` bytes of zeros at an address aligned to `align`. `None` if the arena has no such run.
    pub fn map(&self, len: usize, align: usize) -> Option<usize> {
        let inner = self.inner();
        let _gate = inner.enter();
        let pages = u32::try_from(len.div_ceil(PAGE_SIZE)).ok()?;
        inner.allocate(pages, align).map(|first| inner.arena.address(first))
    }

    /// Takes exactly this run of zeros, if nobody has it.
    pub fn map_at(&self, address: usize, len: usize) -> bool {
        let inner = self.inner();
        let _gate = inner.enter();
        let Some((first, pages)) = inner.run_at(address, len) else { return false };
        inner.allocate_at(first, pages)
    }

    /// Takes exactly this run of zeros, and what it held before is gone. False if it is not wholly the pager's.
    ///
    /// # Safety
    /// Nobody uses the run.
    pub unsafe fn claim(&self, address: usize, len: usize) -> bool {
        let inner = self.inner();
        let _gate = inner.enter();
        match inner.run_at(address, len) {
            Some((first, pages)) if pages as usize == len.div_ceil(PAGE_SIZE) => inner.claim(first, pages),
            _ => false,
        }
    }

    /// Whether somebody has all of a run.
    pub fn is_taken(&self, address: usize, len: usize) -> bool {
        let inner = self.inner();
        let _gate = inner.enter();
        inner.run_at(address, len).is_some_and(|run| inner.is_wholly_taken(run, len))
    }

    /// Start and end of all addresses that are the pager's.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let arena = &self.inner().arena;
        arena.base()..arena.base() + arena.len()
    }

    /// Discards a run and gives its addresses back. What nobody has of it stays as it is.
    ///
    /// # Safety
    /// The run is not used any more.
    pub unsafe fn unmap(&self, address: usize, len: usize) {
        let inner = self.inner();
        let _gate = inner.enter();
        if let Some((first, pages)) = inner.run_at(address, len) {
            inner.free(first, pages);
        }
    }

    /// Makes a run read as zeros.
    ///
    /// # Safety
    /// Nobody relies on the contents.
    pub unsafe fn discard(&self, address: usize, len: usize) {
        let inner = self.inner();
        let _gate = inner.enter();
        if let Some((first, pages)) = inner.run_at(address, len) {
            inner.discard(first, pages);
        }
    }

    /// Moves the contents of a run to another taken run, page by page: what is stored changes hands without being read.
    ///
    /// # Safety
    /// Both runs are taken and do not overlap; nobody touches them meanwhile.
    pub unsafe fn move_contents(&self, from: usize, to: usize, len: usize) {
        let inner = self.inner();
        let _gate = inner.enter();
        if let (Some((from, pages)), Some((to, _))) = (inner.run_at(from, len), inner.run_at(to, len)) {
            inner.move_pages(from, to, pages);
        }
    }

    /// Brings a run in as far as there is room.
    pub fn prefetch(&self, address: usize, len: usize) {
        let inner = self.inner();
        let _gate = inner.enter();
        if let Some((first, pages)) = inner.run_at(address, len) {
            inner.prefetch(first, pages);
        }
    }

    /// Brings a run in and keeps it.
    pub fn pin(&self, address: usize, len: usize) -> Result<(), PagerError> {
        let inner = self.inner();
        let _gate = inner.enter();
        match inner.run_at(address, len).filter(|run| inner.is_wholly_taken(*run, len)) {
            Some((first, pages)) => inner.pin(first, pages),
            None => Err(PagerError::NotTaken { address, bytes: len as u64 }),
        }
    }

    /// Ends that.
    pub fn unpin(&self, address: usize, len: usize) {
        let inner = self.inner();
        let _gate = inner.enter();
        if let Some((first, pages)) = inner.run_at(address, len) {
            inner.unpin(first, pages);
        }
    }

    /// Ends that for all pages.
    pub fn unpin_all(&self) {
        let inner = self.inner();
        let _gate = inner.enter();
        for (first, pages) in inner.arena.taken() {
            inner.unpin(first, pages);
        }
    }

    /// Evicts a run.
    pub fn evict(&self, address: usize, len: usize) {
        let inner = self.inner();
        let _gate = inner.enter();
        if let Some((first, pages)) = inner.run_at(address, len) {
            inner.evict_range(first, pages);
        }
    }

    /// Says how a run will be accessed.
    pub fn hint(&self, address: usize, len: usize, hint: Hint) {
        let inner = self.inner();
        let _gate = inner.enter();
        if let Some((first, pages)) = inner.run_at(address, len) {
            inner.ranges.set_hint(first, pages, hint);
        }
    }
}

impl Inner {
    fn run_at(&self, address: usize, len: usize) -> Option<(u32, u32)> {
        let first = self.arena.page_at(address)?;
        let end = address.checked_add(len)?.saturating_sub(self.arena.base()).div_ceil(PAGE_SIZE);
        let end = u32::try_from(end).ok()?.min(self.arena.pages());
        Some((first, end.saturating_sub(first)))
    }

    /// Whether somebody has all of a run, which is to have `len` bytes.
    fn is_wholly_taken(&self, (first, pages): (u32, u32), len: usize) -> bool {
        pages as usize == len.div_ceil(PAGE_SIZE)
            && self.arena.taken_within(first, pages).iter().map(|run| run.1).sum::<u32>() == pages
    }

    fn move_pages(&self, from: u32, to: u32, pages: u32) {
        let mut emptied = Vec::new();
        for offset in 0..pages {
            let (source, target) = (from + offset, to + offset);
            let seen = loop {
                let seen = self.word(source).load();
                match seen.state() {
                    State::Filling | State::Evicting | State::Moving => std::thread::yield_now(),
                    State::Fresh | State::Lost => break seen,
                    State::Resident | State::Stored => {
                        if self.word(source).begin(seen, State::Moving) {
                            break seen;
                        }
                    }
                }
            };
            if seen.state() == State::Fresh {
                continue;
            }
            self.own_fresh(target);
            match seen.state() {
                State::Stored => {
                    let _ = self.word(target).finish(State::Stored, seen.slot(), false);
                    let _ = self.word(source).finish(State::Fresh, 0, false);
                }
                State::Resident => {
                    self.give_up_slot(seen);
                    // Both pages are owned here, and nothing has the target mapped yet.
                    if let Err(error) = self.copy_page(source, target) {
                        crate::report::end_with(format_args!(
                            "moving a page failed: {}",
                            refault_store::ErrorNumber::from(&error)
                        ));
                    }
                    let _ = self.word(target).finish(State::Resident, 0, false);
                    self.report(target);
                    emptied.push(source);
                }
                // What is lost stays lost where it goes.
                _ => {
                    let _ = self.uffd.unprotect(&Turn::take(), self.arena.address(target), PAGE_SIZE);
                    let _ = self.uffd.poison(self.arena.address(target), PAGE_SIZE);
                    let _ = self.word(target).finish(State::Lost, 0, false);
                }
            }
            if seen.pinned() {
                self.move_pin(source, target);
            }
        }
        // The charge went along with the contents.
        for_runs(&emptied, |first, pages| {
            if let Err(error) = self.arena.punch(&Turn::take(), first, pages) {
                crate::report::end_with(format_args!(
                    "freeing moved pages failed: {}",
                    refault_store::ErrorNumber::from(&error)
                ));
            }
            let _ = self.uffd.unprotect(&Turn::take(), self.arena.address(first), pages as usize * PAGE_SIZE);
        });
        for page in emptied {
            let _ = self.word(page).finish(State::Fresh, 0, false);
            self.report(page);
        }
    }

    /// Makes the page `target` with the contents of the resident page `source`.
    fn copy_page(&self, source: u32, target: u32) -> std::io::Result<()> {
        let mut contents = [Page::ZERO];
        self.arena.read(source, &mut contents)?;
        // SAFETY: the source is a whole page.
        unsafe { self.uffd.copy(self.arena.address(target), contents.as_ptr().cast(), PAGE_SIZE, false) }
    }

    /// Owns a page that holds nothing, as [`State::Moving`]. It may have come in ahead of somebody else's faults.
    fn own_fresh(&self, page: u32) {
        loop {
            let seen = self.word(page).load();
            if seen.state() != State::Fresh {
                self.discard(page, 1);
            } else if self.word(page).begin(seen, State::Moving) {
                return;
            }
        }
    }
}
