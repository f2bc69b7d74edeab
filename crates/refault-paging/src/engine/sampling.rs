//! Accesses seen by setting pages aside ([`crate::moving::aside`]).

use refault_core::{PageId, Shadow};
use refault_store::noted;

use super::{Engine, MAX_WINDOW, Outcome};
use crate::PAGE;
use crate::moving::aside::{Aside, MIRROR_BYTES, RETRY_EVERY};
use crate::page::table::State;
use refault_linux::errno::EEXIST;
use refault_linux::sys;

impl Engine {
    /// Makes it possible to set pages aside. `notes`: touches are noted for [`Engine::look`], of one page in `2^shift`
    /// (below 64): one that is drawn of each group of neighbours.
    ///
    /// # Errors
    /// Says what is not to be had.
    pub fn note_accesses_aside(&mut self, notes: bool, shift: u32) -> Result<(), &'static str> {
        let mirror = sys::map(MIRROR_BYTES);
        if mirror == 0 {
            return Err("no addresses are left to set pages aside (ulimit -v limits them)");
        }
        noted::note(mirror, MIRROR_BYTES);
        let nothing =
            Aside { mirror, touched: Vec::new(), stuck: Vec::new(), looks: 0, notes, shift, taken_back: 0, waited: 0 };
        self.aside = Some(Box::new(nothing));
        self.arm_mirror()
    }

    /// In this process, which may be a forked child, pages may be moved to the mirror.
    pub(crate) fn arm_mirror(&mut self) -> Result<(), &'static str> {
        let Some(aside) = &mut self.aside else { return Ok(()) };
        // What the parent has noted is the parent's; its pages are to be looked at here too.
        aside.stuck.extend(aside.touched.drain(..).map(|touch| touch & !(PAGE - 1)));
        if self.uffd.register(aside.mirror, MIRROR_BYTES) == 0 {
            Ok(())
        } else {
            Err("the mirror cannot be registered")
        }
    }

    /// Pages that were set aside and touched since the start, and the nanoseconds that serving those faults took.
    pub fn taken_back(&self) -> (u64, u64) {
        self.aside.as_ref().map_or((0, 0), |aside| (aside.taken_back, aside.waited))
    }

    /// Appends what was touched since the last look, addresses with the lowest bit for a write, and sets those pages
    /// aside.
    pub fn look(&mut self, touched: &mut Vec<usize>) {
        let Some(aside) = &mut self.aside else { return };
        aside.looks += 1;
        let mut pages: Vec<usize> = aside.touched.iter().map(|touch| touch & !(PAGE - 1)).collect();
        let retries = aside.looks.is_multiple_of(RETRY_EVERY);
        let mut stuck = std::mem::take(&mut aside.stuck);
        if retries {
            pages.append(&mut stuck);
        }
        touched.append(&mut aside.touched);
        self.set_aside(&mut pages);
        stuck.extend(pages.into_iter().filter(|address| self.table.state(*address) == State::Resident));
        if let Some(aside) = &mut self.aside {
            aside.stuck = stuck;
        }
    }

    /// Sets the pages at these addresses aside, as far as they are in memory and can be moved. Sorts the list.
    pub fn set_aside(&mut self, addresses: &mut Vec<usize>) {
        addresses.sort_unstable();
        addresses.dedup();
        let Some(mirror) = self.aside.as_ref().map(|aside| aside.mirror) else { return };
        let mut at = 0;
        while at < addresses.len() {
            let Some(first) = self.movable(addresses[at]) else {
                at += 1;
                continue;
            };
            let run = (1..addresses.len() - at)
                .take_while(|i| {
                    let address = addresses[at] + i * PAGE;
                    addresses[at + i] == address && self.movable(address) == Some(first + *i as PageId)
                })
                .count()
                + 1;
            let mut done = 0;
            while done < run {
                let (from, place) = (addresses[at + done], mirror + (first as usize + done) * PAGE);
                // SAFETY: resident managed pages go to their own places, which are empty.
                let moved = unsafe { self.uffd.relocate(place, from, (run - done) * PAGE) };
                if moved <= 0 {
                    // This one cannot go: on with the next.
                    done += 1;
                    continue;
                }
                for page in first + done as PageId..first + (done + moved as usize / PAGE) as PageId {
                    self.table.set(page, State::SetAside, Shadow::NONE);
                }
                done += moved as usize / PAGE;
            }
            at += run;
        }
    }

    /// The page at an address, if it is in memory and may be set aside.
    fn movable(&self, address: usize) -> Option<PageId> {
        let (page, entry) = self.table.find(address)?;
        let there = entry.state() == State::Resident && !entry.is_held() && (page as usize) < MIRROR_BYTES / PAGE;
        let (.., attributes) = self.ranges.find(address).filter(|_| there && !self.given_up)?;
        (attributes.can_be_evicted() && !attributes.guard).then_some(page)
    }

    /// Whether the page at an address is in memory and not set aside.
    pub fn was_touched(&self, address: usize) -> bool {
        self.table.state(address) == State::Resident
    }

    /// Serves a fault on a page that was set aside.
    pub(crate) fn touch_aside(&mut self, address: usize, write: bool) -> Outcome {
        let begun = sys::now();
        let outcome = self.take_back(address);
        if outcome == Outcome::Served {
            self.note_touch(address, write);
        }
        if let Some(aside) = &mut self.aside {
            aside.taken_back += 1;
            aside.waited += sys::now() - begun;
        }
        outcome
    }

    /// A page was touched that was not there.
    pub(crate) fn note_touch(&mut self, address: usize, write: bool) {
        if let Some(aside) = self.aside.as_mut().filter(|aside| aside.is_noted(address, aside.touched.len())) {
            let page = address & !(PAGE - 1);
            // The page that was touched itself is among those that came with it.
            let came = |noted: &usize| noted & !(PAGE - 1) == page;
            if aside.shift == 0 || !aside.touched.iter().rev().take(MAX_WINDOW).any(came) {
                aside.touched.push(page | usize::from(write));
            }
        }
    }

    /// A page is in memory that nobody has touched: the next look but few sets it aside.
    pub(crate) fn look_later(&mut self, address: usize) {
        if let Some(aside) = self.aside.as_mut().filter(|aside| aside.is_noted(address, aside.stuck.len())) {
            aside.stuck.push(address);
        }
    }

    /// Pages have come in along with one that was touched: in a sample they count as touched too, because a sequence of
    /// faults nearly always reaches them, and would go unseen otherwise where pages do not stay until a look.
    pub(crate) fn came_along(&mut self, first: usize, pages: usize) {
        if self.aside.as_ref().is_some_and(|aside| aside.notes && aside.shift > 0) {
            (0..pages).for_each(|index| self.note_touch(first + index * PAGE, false));
        }
    }

    /// Whether faults bring in what was touched, and nothing along with it.
    pub(crate) fn notes_all_touches(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.notes && aside.shift == 0)
    }

    /// Moves a page back that was set aside.
    pub(crate) fn take_back(&mut self, address: usize) -> Outcome {
        let (Some((page, _)), Some(aside)) = (self.table.find(address), &self.aside) else { return Outcome::Served };
        let outcome = self.empty_place(aside.mirror + page as usize * PAGE, address);
        if outcome == Outcome::Served {
            self.table.set(page, State::Resident, Shadow::NONE);
        }
        outcome
    }

    /// Moves the page of a place in the mirror to an address without one.
    fn empty_place(&mut self, place: usize, to: usize) -> Outcome {
        // SAFETY: the page was moved to this place, and is missing where it goes.
        if unsafe { self.uffd.relocate(to, place, PAGE) } < 0 {
            // Shared since a fork, or its mapping has changed so that pages cannot be moved into it: copy.
            // SAFETY: the place holds a page.
            let copied = unsafe { self.uffd.copy(to, place as *const u8, PAGE) };
            if copied < 0 && copied != EEXIST {
                self.last_error = copied;
                return Outcome::Lost;
            }
            // SAFETY: the page has been copied.
            unsafe { sys::discard(place, PAGE) };
        }
        Outcome::Served
    }

    /// The page of an id is in memory at another address from now on, where it belongs to nobody yet. False if it could
    /// not be moved there.
    pub(crate) fn move_from_mirror(&mut self, page: PageId, to: usize) -> bool {
        let Some(mirror) = self.aside.as_ref().map(|aside| aside.mirror) else { return false };
        self.empty_place(mirror + page as usize * PAGE, to) == Outcome::Served
    }

    /// The contents of a page that is set aside are not wanted any more.
    pub(crate) fn drop_aside(&mut self, page: PageId) {
        if let Some(aside) = &self.aside {
            // SAFETY: the place holds a page that is nobody's any more.
            unsafe { sys::discard(aside.mirror + page as usize * PAGE, PAGE) };
        }
    }
}
