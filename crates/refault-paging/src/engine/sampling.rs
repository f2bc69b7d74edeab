//! Accesses seen by setting pages aside ([`crate::moving::aside`]): the faults of those pages, and looks.

use refault_core::{PageId, Shadow};

use super::{Engine, Outcome};
use crate::PAGE;
use crate::moving::aside::Aside;
use crate::page::table::State;
use refault_linux::sys;

impl Engine {
    /// Makes it possible to set pages aside. `notes`: touches are noted for [`Engine::look`], of one page in `2^shift`
    /// (below 64): one that is drawn of each group of neighbours.
    ///
    /// # Errors
    /// Says what is not to be had.
    pub fn note_accesses_aside(&mut self, notes: bool, shift: u32) -> Result<(), &'static str> {
        self.aside = Some(Box::new(Aside::new(notes, shift)?));
        self.arm_mirror()
    }

    /// In this process, which may be a forked child, pages may be moved to the mirror.
    pub(crate) fn arm_mirror(&mut self) -> Result<(), &'static str> {
        self.aside.as_mut().map_or(Ok(()), |aside| aside.arm(&self.moving))
    }

    /// Pages that were set aside and touched since the start, and the nanoseconds that serving those faults took.
    pub fn taken_back(&self) -> (u64, u64) {
        self.aside.as_ref().map_or((0, 0), |aside| aside.taken_back())
    }

    /// Appends what was touched since the last look, addresses with the lowest bit for a write, and sets those pages
    /// aside.
    pub fn look(&mut self, touched: &mut Vec<usize>) {
        let Some(aside) = &mut self.aside else { return };
        let mut pages = aside.begin_look(touched);
        self.set_aside(&mut pages);
        let stuck = pages.into_iter().filter(|address| self.pages.state(*address) == State::Resident);
        if let Some(aside) = &mut self.aside {
            aside.end_look(stuck);
        }
    }

    /// Sets the pages at these addresses aside, as far as they are in memory and can be moved. Sorts the list.
    pub fn set_aside(&mut self, addresses: &mut Vec<usize>) {
        self.keep_listed();
        addresses.sort_unstable();
        addresses.dedup();
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
                let Some(aside) = &self.aside else { return };
                let page = first + done as PageId;
                // SAFETY: resident managed pages, which no call holds.
                let moved = unsafe { aside.take(page, addresses[at + done], run - done, &self.moving) };
                for page in page..page + moved as PageId {
                    self.pages.set(page, State::SetAside, Shadow::NONE);
                }
                // One that cannot go: on with the next.
                done += moved.max(1);
            }
            at += run;
        }
    }

    /// The page at an address, if it is in memory and may be set aside.
    fn movable(&self, address: usize) -> Option<PageId> {
        let (page, entry) = self.pages.find(address)?;
        let has_place = self.aside.as_ref().is_some_and(|aside| aside.has_place(page));
        let there = entry.state() == State::Resident && !entry.is_held() && has_place;
        let (.., attributes) = self.pages.range(address).filter(|_| there && !self.given_up)?;
        (attributes.can_be_moved() && !attributes.guard).then_some(page)
    }

    /// Whether the page at an address is in memory and not set aside.
    pub fn was_touched(&self, address: usize) -> bool {
        self.pages.state(address) == State::Resident
    }

    /// Serves a fault on a page that was set aside.
    pub(crate) fn touch_aside(&mut self, address: usize, write: bool) -> Outcome {
        let begun = sys::now();
        let outcome = self.take_back(address);
        if outcome == Outcome::Served {
            self.note_touch(address, write);
        }
        if let Some(aside) = &mut self.aside {
            aside.served(sys::now() - begun);
        }
        outcome
    }

    /// A page was touched that was not there.
    pub(crate) fn note_touch(&mut self, address: usize, write: bool) {
        if let Some(aside) = &mut self.aside {
            aside.note(address, write);
        }
    }

    /// A page is in memory that no thread has touched: the next look but few sets it aside.
    pub(crate) fn look_later(&mut self, address: usize) {
        if let Some(aside) = &mut self.aside {
            aside.note_later(address);
        }
    }

    /// Pages have come in along with one that was touched.
    pub(crate) fn came_along(&mut self, first: usize, pages: usize) {
        if let Some(aside) = &mut self.aside {
            aside.came_along(first, pages);
        }
    }

    /// Whether faults bring in what was touched, and nothing along with it.
    pub(crate) fn notes_all_touches(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.notes_all())
    }

    /// Moves a page back that was set aside.
    pub(crate) fn take_back(&mut self, address: usize) -> Outcome {
        let Some((page, _)) = self.pages.find(address) else { return Outcome::Served };
        if self.aside.is_some() {
            if !self.move_from_mirror(page, address) {
                return Outcome::Lost;
            }
            self.pages.set(page, State::Resident, Shadow::NONE);
        }
        Outcome::Served
    }

    /// The page of an id is in memory at another address from now on, where no page is yet. False if it could
    /// not be moved there.
    pub(crate) fn move_from_mirror(&mut self, page: PageId, to: usize) -> bool {
        let Some(aside) = &self.aside else { return false };
        match aside.give_back(page, to, &self.moving) {
            Ok(()) => true,
            Err(error) => {
                self.counts.failed(error);
                false
            }
        }
    }

    /// The contents of a page that is set aside are not wanted any more.
    pub(crate) fn drop_aside(&mut self, page: PageId) {
        if let Some(aside) = &self.aside {
            aside.discard(page);
        }
    }
}
