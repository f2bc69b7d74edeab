//! Moving: pages on their way out of reach and back, and everything that is asked of the userfaultfd.
//!
//! A page leaves by being moved to the [`staging`] area, and comes back moved or copied, whichever is cheaper
//! ([`way_back`]). Access sampling moves pages [`aside`].
//!
//! Invariants: only pages that the caller names are moved, and only between places that are empty and addresses that
//! are missing; the area and its memory are this part's alone; what is copied to it cannot be written to. It knows
//! nothing of states, stores, policies and budgets: the caller says what a page is. Cost: one call of the kernel per
//! run of neighbours.

pub(crate) mod aside;
pub(crate) mod staging;
pub(crate) mod way_back;

use refault_store::Page;

use crate::PAGE;
use refault_linux::errno::{EEXIST, ENOMEM};
use refault_linux::sys;
use refault_linux::uffd::{self, RETRIES, Uffd};
use staging::Staging;
use way_back::WayBack;

/// Pages that are filled with zeros at once at most.
pub(crate) const MAX_FILLED: usize = 32;
/// Pages that are copied away at once at most: until the first are given back they are there twice.
const MAX_COPIED: usize = 16;
static ZEROS: [Page; MAX_FILLED] = [Page::ZERO; MAX_FILLED];

/// See the module.
pub(crate) struct Mover {
    uffd: Uffd,
    staging: Staging,
    way_back: WayBack,
    several_threads: bool,
    /// What is stored leaves its memory for pages that are read back.
    keeps_spares: bool,
    /// See [`Mover::gives_pages_away`].
    gives_away: bool,
}

impl Mover {
    /// With an area of this many places, from which a page that is touched comes back by a fault.
    ///
    /// # Errors
    /// Says what is not to be had.
    pub(crate) fn new(uffd: Uffd, places: usize) -> Result<Mover, &'static str> {
        let staging = Staging::new(places).ok_or("no addresses are left")?;
        let way_back = WayBack::default();
        let mover = Mover { uffd, staging, way_back, several_threads: false, keeps_spares: false, gives_away: false };
        mover.arm()?;
        Ok(mover)
    }

    /// In a forked child, whose only thread has a userfaultfd of its own.
    ///
    /// # Errors
    /// As for [`Mover::new`].
    pub(crate) fn after_fork(&mut self, uffd: Uffd) -> Result<(), &'static str> {
        (self.uffd, self.several_threads) = (uffd, false);
        self.arm()
    }

    fn arm(&self) -> Result<(), &'static str> {
        let (start, bytes) = self.staging.range();
        if self.register(start, bytes) { Ok(()) } else { Err("the staging area cannot be registered") }
    }

    /// The userfaultfd.
    pub(crate) fn uffd(&self) -> Uffd {
        self.uffd
    }

    /// Faults of a range are told from now on. False if the kernel refuses.
    pub(crate) fn register(&self, start: usize, bytes: usize) -> bool {
        self.uffd.register(start, bytes) == 0
    }

    /// They are not any more. False if the kernel refuses.
    pub(crate) fn unregister(&self, start: usize, bytes: usize) -> bool {
        self.uffd.unregister(start, bytes) == 0
    }

    /// The pages of a range that are there may not be written to, or may again.
    pub(crate) fn protect(&self, start: usize, bytes: usize, on: bool) {
        self.uffd.protect(start, bytes, on);
    }

    /// The pages of a range may be written to again, or the kernel's error. Lack of memory is waited out for a while.
    pub(crate) fn open(&self, start: usize, bytes: usize) -> isize {
        const PAUSE_NANOSECONDS: u64 = 1_000_000;
        let mut error = self.uffd.protect(start, bytes, false);
        for _ in 0..RETRIES {
            if error != ENOMEM {
                break;
            }
            sys::sleep(PAUSE_NANOSECONDS);
            error = self.uffd.protect(start, bytes, false);
        }
        error
    }

    /// Fills [`MAX_FILLED`] missing pages at most with zeros: with memory of their own if they are about to be written
    /// to. Bytes from the front, or the kernel's error.
    pub(crate) fn fill_zeros(&self, start: usize, pages: usize, write: bool) -> isize {
        if write { self.fill(start, &ZEROS[..pages]) } else { self.uffd.zero(start, pages * PAGE) }
    }

    /// Fills missing pages with these contents. Bytes from the front, or the kernel's error.
    pub(crate) fn fill(&self, start: usize, contents: &[Page]) -> isize {
        // SAFETY: `contents` has this many bytes.
        unsafe { self.uffd.copy(start, contents.as_ptr().cast(), size_of_val(contents)) }
    }

    /// Whether the program has several threads: a copy needs no word to other processors, a move does.
    pub(crate) fn threads(&mut self, several: bool) {
        self.several_threads = several;
    }

    /// Whether it was told that there are several.
    pub(crate) fn has_threads(&self) -> bool {
        self.several_threads
    }

    /// Whether a page comes back at less cost if it is moved.
    pub(crate) fn is_moving_cheaper(&self) -> bool {
        !self.several_threads || self.way_back.is_moving_cheaper()
    }

    /// Whether the next page is to be moved back rather than copied: the cheaper way, or a trial of the other.
    pub(crate) fn next_is_moved(&mut self) -> bool {
        !self.several_threads || self.way_back.next_is_moved()
    }

    /// Pages that wait here.
    #[inline]
    pub(crate) fn parked(&self) -> usize {
        self.staging.live()
    }

    /// Pages of memory here: what waits, husks, and spare memory.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        self.staging.occupied()
    }

    /// Pages of memory that were left by pages that were copied back.
    #[inline]
    pub(crate) fn husks(&self) -> usize {
        self.staging.husks()
    }

    /// Gives the memory of husks back.
    pub(crate) fn drop_husks(&mut self) {
        self.staging.drop_husks();
    }

    /// Gives the memory of spare places back. Returns the pages that this was.
    pub(crate) fn drop_spares(&mut self) -> usize {
        self.staging.drop_spares()
    }

    /// Moves neighbouring pages out of reach. How many were moved, or why the first cannot be; `None`: there is no
    /// room. What was moved is to be [`Mover::receive`]d, in order.
    ///
    /// # Safety
    /// The pages are in memory and managed, and their contents may be moved.
    pub(crate) unsafe fn park(&mut self, start: usize, pages: usize) -> Option<Result<usize, isize>> {
        let (place, room) = self.staging.room(pages);
        if room == 0 {
            return None;
        }
        // SAFETY: promised by the caller; the places are empty.
        let mut moved = unsafe { self.uffd.relocate(self.staging.address(place), start, room * PAGE) };
        if moved < 0 && room > 1 {
            // Neighbours that are not one mapping for the kernel.
            // SAFETY: as above.
            moved = unsafe { self.uffd.relocate(self.staging.address(place), start, PAGE) };
        }
        Some(if moved < 0 { Err(moved) } else { Ok(moved as usize / PAGE) })
    }

    /// As [`Mover::park`], of pages that can be read and not moved: they are copied, and their memory is given back.
    ///
    /// # Safety
    /// As for [`Mover::park`], and nothing writes to the pages meanwhile.
    pub(crate) unsafe fn park_copies(&mut self, start: usize, pages: usize) -> Option<Result<usize, isize>> {
        let (place, room) = self.staging.room(pages.min(MAX_COPIED));
        if room == 0 {
            return None;
        }
        let to = self.staging.address(place);
        // SAFETY: promised by the caller; the places are empty, and have as many bytes.
        let copied = unsafe { self.uffd.copy(to, start as *const u8, room * PAGE) };
        if copied < 0 {
            return Some(Err(copied));
        }
        // SAFETY: the contents were copied, and are what they were.
        let error = unsafe { sys::discard(start, copied as usize) };
        if error < 0 {
            // It stops where a mapping is sealed: what lies before is gone, and its copies are all there is.
            let gone = (start..start + copied as usize).step_by(PAGE).take_while(|page| !uffd::is_there(*page)).count();
            // SAFETY: copies, which are not wanted: these pages are where they were.
            unsafe { sys::discard(to + gone * PAGE, copied as usize - gone * PAGE) };
            return Some(if gone > 0 { Ok(gone) } else { Err(error) });
        }
        Some(Ok(copied as usize / PAGE))
    }

    /// The next place holds the page of an address, which [`Mover::park`] or [`Mover::park_copies`] has brought there.
    pub(crate) fn receive(&mut self, owner: usize, is_held_by_others: bool) -> u32 {
        let place = self.staging.fill(owner);
        if is_held_by_others {
            self.staging.note_held_by_others(place);
        }
        place
    }

    /// The page of a place.
    ///
    /// # Safety
    /// The place holds a page or spare memory, which is neither moved nor given back while the reference lives.
    pub(crate) unsafe fn page<'a>(&self, place: u32) -> &'a Page {
        // SAFETY: promised by the caller; no code but this part's can reach the area.
        unsafe { &*(self.staging.address(place) as *const Page) }
    }

    /// A place's page is the program's at another address from now on.
    pub(crate) fn reown(&mut self, place: u32, owner: usize) {
        self.staging.reown(place, owner);
    }

    /// The page of a place is not wanted any more. Whether a fork shares it.
    pub(crate) fn discard(&mut self, place: u32) -> bool {
        // SAFETY: the place is in the area, and its page is not wanted.
        unsafe { sys::discard(self.staging.address(place), PAGE) };
        self.staging.leave(place)
    }

    /// Moves pages back from neighbouring places. How many; each place is to be [`Mover::leave`]d.
    pub(crate) fn move_back(&mut self, first: usize, lowest: u32, pages: usize) -> usize {
        let from = self.staging.address(lowest);
        // SAFETY: the pages were moved here from `first` on, which are missing since.
        let moved = self.timed(true, pages, |uffd| unsafe { uffd.relocate(first, from, pages * PAGE) });
        if moved > 0 { moved as usize / PAGE } else { 0 }
    }

    /// A place's page was moved back. Whether a fork shared it.
    pub(crate) fn leave(&mut self, place: u32) -> bool {
        self.staging.leave(place)
    }

    /// Copies a page back, which leaves a husk. Whether a fork shared it.
    ///
    /// # Errors
    /// The kernel's number: nothing has changed.
    pub(crate) fn copy_back(&mut self, address: usize, place: u32) -> Result<bool, isize> {
        let from = self.staging.address(place) as *const u8;
        // SAFETY: the place holds a page.
        let copied = self.timed(false, 1, |uffd| unsafe { uffd.copy(address, from, PAGE) });
        if copied < 0 && copied != EEXIST { Err(copied) } else { Ok(self.staging.leave_husk(place)) }
    }

    /// Asks the kernel to bring pages back, moved or copied, and notes how long that took where it may be either.
    fn timed(&mut self, is_moved: bool, pages: usize, call: impl FnOnce(Uffd) -> isize) -> isize {
        if !self.several_threads || pages > 1 {
            return call(self.uffd);
        }
        let begun = sys::now();
        let done = call(self.uffd);
        if done > 0 {
            self.way_back.took(is_moved, sys::now() - begun);
        }
        done
    }

    /// The pages that wait longest, in neighbouring places: the first place, and how many places of at most `most`.
    pub(crate) fn oldest(&self, most: usize) -> (u32, usize) {
        self.staging.oldest(most)
    }

    /// Whose page a place holds; 0: none.
    pub(crate) fn owner(&self, place: u32) -> usize {
        self.staging.owner(place)
    }

    /// Whether others had the page of a place when it came here.
    pub(crate) fn is_held_by_others(&self, place: u32) -> bool {
        self.staging.is_held_by_others(place)
    }

    /// The page of a place is stored. Whether a fork shared it.
    pub(crate) fn is_stored(&mut self, place: u32) -> bool {
        self.staging.leave_spare(place)
    }

    /// The oldest places have no page any more: their memory is given back, or is spare. Returns the pages that this
    /// is.
    pub(crate) fn take_back(&mut self, places: usize) -> usize {
        self.staging.take_back(places, self.keeps_spares)
    }

    /// Whether what is stored leaves spare memory.
    pub(crate) fn keep_spares(&mut self, keeps: bool) {
        self.keeps_spares = keeps && !self.gives_away;
    }

    /// The kernel may read memory later that was a page's when it left: it is not written to.
    pub(crate) fn gives_pages_away(&mut self) {
        self.gives_away = true;
        self.staging.drop_spares();
    }

    /// A place whose memory a page may be read into, if there is one.
    pub(crate) fn spare(&self) -> Option<u32> {
        self.staging.spare()
    }

    /// The memory of [`Mover::spare`].
    pub(crate) fn spare_page(&mut self, place: u32) -> &mut Page {
        // SAFETY: the place has memory that no page is in.
        unsafe { &mut *(self.staging.address(place) as *mut Page) }
    }

    /// Moves the memory of a spare place to a missing page. False if this is not possible.
    pub(crate) fn move_spare(&mut self, address: usize, place: u32) -> bool {
        let spare = self.staging.address(place);
        // SAFETY: both are the engine's to change; the page is missing where it goes.
        let moved = self.timed(true, 1, |uffd| unsafe { uffd.relocate(address, spare, PAGE) });
        if moved != PAGE as isize {
            return false;
        }
        self.staging.spend(place);
        true
    }

    /// A fork shares all that is here, of which husks and spare memory have been dropped.
    pub(crate) fn share(&mut self) {
        self.staging.share();
    }

    /// Spare places.
    #[cfg(test)]
    pub(crate) fn spares(&self) -> usize {
        self.staging.spares()
    }
}
