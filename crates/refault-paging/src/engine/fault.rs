//! The fault path: bringing a page in, for a thread that touched it or for a call that will.
//!
//! Faults that go on where one ended bring more pages in at once, twice as many each time: first touches from zeros,
//! the rest from the stores. Invariant: a page is copied in only where the table says that it is missing.

use refault_store::{Slot, StoreError};

use super::{Engine, MAX_WINDOW, Outcome};
use crate::PAGE;
use crate::page::ranges::Attributes;
use crate::page::table::State;
use refault_linux::errno::{EAGAIN, EEXIST, EIO, ENOMEM};

/// Husks take at most this part of the pages in memory, and at most `MAX_HUSKS` pages, whose return costs 0.3 ms.
const HUSK_SHARE: usize = 32;
const MAX_HUSKS: usize = 1024;
/// Times that memory for a page is waited for.
const PATIENCE: u32 = 1000;

/// Brings the page of an address back from a place. False if that is not possible.
type OneBack = fn(&mut Engine, usize, u32) -> bool;

/// What [`Engine::hold`] has found.
struct Held {
    whole: bool,
    brought_in: bool,
}

impl Engine {
    /// Serves a fault at an address. `write`: it is about to be written.
    pub fn fault(&mut self, address: usize, write: bool) -> Outcome {
        let address = address & !(PAGE - 1);
        let Some((.., attributes)) = self.pages.range(address) else { return Outcome::NotManaged };
        if attributes.guard {
            return Outcome::NotManaged;
        }
        if self.pages.state(address) == State::SetAside {
            return self.touch_aside(address, write);
        }
        self.counts.fault();
        let begun = refault_linux::sys::now();
        let was_there = self.pages.state(address) != State::Untouched;
        self.account.stalls(was_there);
        let outcome = self.bring_in(address, write);
        if outcome == Outcome::Served {
            self.note_touch(address, write);
        }
        self.account.stalls(false);
        let now = refault_linux::sys::now();
        let is_due = self.counts.served(now - begun, was_there, now);
        self.account.took(now - begun);
        self.account.faulted(now);
        self.settle();
        if is_due {
            self.publish();
        }
        outcome
    }

    /// Brings the pages of a range in and keeps them where they are until [`Engine::release`]. Unmanaged parts are left
    /// alone. False if a page is lost.
    pub fn hold(&mut self, start: usize, bytes: usize, write: bool) -> bool {
        self.hold_whole(start, bytes, write, write)
    }

    /// [`Engine::hold`] for a call that may write there, or reads. What the program has not touched is zeros of the
    /// kernel's, which the kernel copies if the call does write.
    pub fn hold_for_call(&mut self, start: usize, bytes: usize, write: bool) -> bool {
        self.hold_whole(start, bytes, write, false)
    }

    /// `may_write`: what is there may be written to. `writes`: what is not there is.
    fn hold_whole(&mut self, start: usize, bytes: usize, may_write: bool, writes: bool) -> bool {
        let (start, end) = (start & !(PAGE - 1), start.saturating_add(bytes));
        let mut held = Held { whole: true, brought_in: false };
        match self.pages.range(start) {
            // Nearly always one range: nothing is allocated.
            Some((_, last, attributes)) if end <= last => {
                self.hold_part((start, end, attributes), may_write, writes, &mut held)
            }
            _ => {
                for (from, to, attributes) in self.pages.parts(start, end) {
                    self.hold_part((from, to, attributes), may_write, writes, &mut held);
                }
            }
        }
        if held.brought_in {
            self.account.faulted(refault_linux::sys::now());
            self.settle();
        }
        held.whole
    }

    /// [`Engine::hold`] of the pages of a range that have contents: what has none stays untouched.
    pub fn hold_contents(&mut self, start: usize, bytes: usize) -> bool {
        let mut whole = true;
        for (mut at, end, _) in self.parts(start, bytes) {
            while let Some((known, last)) = self.pages.next_known(at, end) {
                for address in (known..last).step_by(PAGE) {
                    whole &= self.pages.state(address) == State::Untouched || self.hold(address, 1, false);
                }
                at = last;
            }
        }
        whole
    }

    fn hold_part(&mut self, part: (usize, usize, Attributes), may_write: bool, writes: bool, held: &mut Held) {
        let (from, to, attributes) = part;
        if attributes.guard {
            return;
        }
        // Where nothing was written to yet, that is the kernel's to note; elsewhere it makes no difference but in time.
        let writes = if attributes.written { may_write } else { writes && attributes.can_be_written() };
        for address in (from..to).step_by(PAGE) {
            let state = self.pages.state(address);
            let resident = state == State::Resident && !(may_write && self.is_guarded(address));
            if state == State::Untouched && !attributes.can_be_touched() {
                // The kernel does not touch it either. Were it filled, its mapping would have something in common with
                // the page that its neighbours lack (`anon_vma`), and would not be joined with them later.
                self.pages.wait_for(address);
                continue;
            }
            held.brought_in |= !resident;
            if !resident {
                let write = if state == State::Untouched { writes } else { may_write };
                if self.bring_in(address, write) != Outcome::Served {
                    held.whole = false;
                    continue;
                }
                self.note_touch(address, may_write);
            }
            let (page, _) = self.pages.find(address).expect("invariant: it was just brought in");
            self.pages.hold(page, 1);
            // What was copied back has left husks, for which no room was made.
            if self.moving.husks() >= MAX_WINDOW && !self.given_up && !self.fits(self.charge()) {
                self.moving.drop_husks();
                self.give_way();
            }
        }
    }

    /// Keeps the pages of a range where they are for as long as they have contents: the kernel writes to them later, by
    /// itself.
    pub fn keep(&mut self, start: usize, bytes: usize) {
        self.hold_for_call(start, bytes, true);
        for (from, to, _) in self.parts(start & !(PAGE - 1), bytes + start % PAGE) {
            for address in (from..to).step_by(PAGE) {
                if let Some((page, entry)) = self.pages.find(address)
                    && entry.state() == State::Resident
                {
                    self.pages.keep(page);
                }
            }
        }
        self.release(start, bytes);
    }

    /// The program has changed what is between two addresses. Where calls in progress wait, the kernel must find what is
    /// there now: it reads or writes there when the call's time comes, and brings nothing in.
    pub(crate) fn serve_waiting(&mut self, start: usize, end: usize) {
        for address in self.pages.waited_for(start, end) {
            if let Some((.., attributes)) = self.pages.range(address)
                && !attributes.guard
                && attributes.protection != 0
            {
                let write = attributes.written && attributes.can_be_written();
                self.bring_in(address, write);
            }
        }
    }

    /// The pages of a range that calls in progress hold and that can be cleared where they are ([`Engine::clear`]). To
    /// let the kernel discard them would end those calls with EFAULT.
    pub fn held(&self, start: usize, bytes: usize) -> Vec<usize> {
        let mut held = self.pages.held(start, start.saturating_add(bytes));
        held.retain(|address| {
            let range = self.pages.range(*address);
            range.is_some_and(|(.., attributes)| attributes.can_be_written() && !attributes.guard && !attributes.locked)
        });
        held
    }

    /// Writes zeros to a page of [`Engine::held`].
    pub fn clear(&mut self, address: usize) {
        if self.bring_in(address, true) != Outcome::Served {
            return;
        }
        if let Some((page, _)) = self.pages.find(address) {
            self.drop_copy(page);
        }
        // SAFETY: a resident page that may be written to; the program has said that it is zeros from now on.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, PAGE) };
    }

    /// Gives back what [`Engine::hold`] held.
    pub fn release(&mut self, start: usize, bytes: usize) {
        let (start, end) = (start & !(PAGE - 1), start.saturating_add(bytes));
        for address in self.pages.waited_for(start, end) {
            if self.pages.range(address).is_none() {
                self.pages.release(address);
            }
        }
        match self.pages.range(start) {
            Some((_, last, _)) if end <= last => self.release_part(start, end),
            _ => self.pages.parts(start, end).into_iter().for_each(|(from, to, _)| self.release_part(from, to)),
        }
    }

    fn release_part(&mut self, from: usize, to: usize) {
        for address in (from..to).step_by(PAGE) {
            self.pages.release(address);
        }
    }

    fn bring_in(&mut self, address: usize, write: bool) -> Outcome {
        match self.pages.state(address) {
            State::Resident if write => self.may_write(address),
            State::Resident => Outcome::Served,
            State::Untouched => self.fill_zeros(address, write),
            State::Parked(place) => self.rescue(address, place),
            State::Stored(_) => self.read_back(address),
            State::SetAside => self.take_back(address),
        }
    }

    fn fill_zeros(&mut self, address: usize, write: bool) -> Outcome {
        let (mut first, mut pages) = self.window(address, |_, state| state == State::Untouched);
        self.make_room(pages);
        // Making room changes only what has contents.
        if !write && self.was_never_written(address) {
            if self.map_zeros(address, first, pages) {
                return Outcome::Served;
            }
            (first, pages) = (address, 1);
        }
        let mut patience = 0;
        loop {
            let done = self.moving.fill_zeros(first, pages, write);
            if done > 0 && first + done as usize > address {
                pages = done as usize / PAGE;
                break;
            }
            if done == EEXIST && pages == 1 {
                // The kernel has put a page there itself.
                break;
            }
            if pages == 1 && !self.wait_for_memory(done, &mut patience) {
                return Outcome::Lost;
            }
            if done > 0 {
                self.fresh(first, done as usize / PAGE);
            }
            // Neighbours may be different mappings for the kernel.
            (first, pages) = (address, 1);
        }
        self.fresh(first, pages);
        self.went_to(first, pages);
        self.is_written(address);
        Outcome::Served
    }

    /// Brings a parked page back, and its neighbours if they are asked for in a row.
    fn rescue(&mut self, address: usize, place: u32) -> Outcome {
        let (first, pages) = self.window(address, |_, state| matches!(state, State::Parked(_)));
        let lowest = match self.pages.state(first) {
            State::Parked(lowest) if pages > 1 && self.is_parked_run(first, lowest, pages) => lowest,
            _ => return self.rescue_one(address, place),
        };
        let moved = self.bring_back(first, lowest, pages);
        if first + moved * PAGE <= address {
            return self.rescue_one(address, place);
        }
        self.went_to(first, moved);
        Outcome::Served
    }

    /// Whether the pages from `first` on are parked in places from `lowest` on.
    fn is_parked_run(&self, first: usize, lowest: u32, pages: usize) -> bool {
        (0..pages).all(|index| self.pages.state(first + index * PAGE) == State::Parked(lowest + index as u32))
    }

    fn rescue_one(&mut self, address: usize, place: u32) -> Outcome {
        // Its mapping may have changed so that pages cannot be moved into it, or there is no memory for a copy.
        let (way, other): (OneBack, OneBack) = match self.moving.next_is_moved() {
            true => (Engine::move_back, Engine::copy_back),
            false => (Engine::copy_back, Engine::move_back),
        };
        if !way(self, address, place) && !other(self, address, place) {
            return Outcome::Lost;
        }
        self.went_to(address, 1);
        Outcome::Served
    }

    /// Brings pages back from neighbouring places. Returns how many.
    fn bring_back(&mut self, first: usize, lowest: u32, pages: usize) -> usize {
        if self.moving.is_moving_cheaper() {
            return self.move_run_back(first, lowest, pages);
        }
        (0..pages).take_while(|i| self.copy_back(first + i * PAGE, lowest + *i as u32)).count()
    }

    /// Moves pages back from neighbouring places. Returns how many.
    fn move_run_back(&mut self, first: usize, lowest: u32, pages: usize) -> usize {
        let moved = self.moving.move_back(first, lowest, pages);
        for index in 0..moved {
            let shared = self.moving.leave(lowest + index as u32);
            self.rescued(first + index * PAGE, shared);
        }
        moved
    }

    /// Moves a page back. False if that is not possible.
    fn move_back(&mut self, address: usize, place: u32) -> bool {
        self.move_run_back(address, place, 1) == 1
    }

    /// Copies a page back, which leaves a husk. False if that is not possible, which is noted.
    fn copy_back(&mut self, address: usize, place: u32) -> bool {
        let shared = match self.moving.copy_back(address, place) {
            Ok(shared) => shared,
            Err(error) => {
                self.counts.failed(error);
                return false;
            }
        };
        // Where most of what is parked comes back, they would take the memory of a part of it.
        if self.moving.husks() > (self.pages.in_memory() / HUSK_SHARE).clamp(MAX_WINDOW, MAX_HUSKS) {
            self.moving.drop_husks();
        }
        self.rescued(address, shared);
        true
    }

    /// A page is back from the staging area.
    fn rescued(&mut self, address: usize, shared: bool) {
        self.account.unshared(u64::from(shared));
        let (page, entry) = self.pages.find(address).expect("invariant: a parked page is known");
        self.admit(page, Some(entry.shadow()));
        self.counts.rescued();
    }

    fn read_back(&mut self, address: usize) -> Outcome {
        let (mut first, mut pages) = self.window(address, |_, state| matches!(state, State::Stored(_)));
        if pages == 1
            && let Some(place) = self.make_spare()
            && self.read_into_spare(address, place)
        {
            return Outcome::Served;
        }
        self.make_room(pages);
        // What making room has stored meanwhile is stored all the same.
        let mut filled = self.read_stored(first, pages);
        if first + filled.unwrap_or(0) * PAGE <= address {
            (first, pages) = (address, 1);
            filled = self.read_stored(first, pages);
        }
        let mut filled = match filled {
            Ok(filled) => filled,
            Err(error) => {
                self.counts.lost();
                self.counts.failed(if matches!(error, StoreError::Checksum(_)) { 0 } else { EIO });
                return Outcome::Lost;
            }
        };
        let mut patience = 0;
        let mut from = 0;
        let done = loop {
            let done = self.moving.fill(first, &self.contents.window()[from..from + filled]);
            if done > 0 {
                self.stored_is_resident(first, from, done as usize / PAGE);
                if first + done as usize > address {
                    break done as usize / PAGE;
                }
            }
            if filled == 1 && done < 0 && !self.wait_for_memory(done, &mut patience) {
                return Outcome::Lost;
            }
            // The page that is waited for alone: its neighbours may be different mappings for the kernel.
            from += (address - first) / PAGE;
            (first, filled) = (address, 1);
        };
        // One page was asked for.
        self.counts.was_asked_for();
        self.went_to(first, done);
        Outcome::Served
    }

    /// Pages that were stored are in memory again, as they are in the buffer from `from` on.
    fn stored_is_resident(&mut self, first: usize, from: usize, pages: usize) {
        let mostly_compressed = self.contents.is_mostly_compressed(self.pages.in_memory() + pages);
        for index in 0..pages {
            let (page, entry) = self.pages.find(first + index * PAGE).expect("invariant: a stored page is known");
            if let State::Stored(slot) = entry.state() {
                self.contents.is_back(page, slot, from + index, mostly_compressed);
            }
            self.came_back(first + index * PAGE);
            self.admit(page, Some(entry.shadow()));
        }
        self.counts.read_back(pages, pages);
    }

    /// Reads the pages of a range that are stored into the buffer, up to the first that is not or cannot be read.
    ///
    /// # Errors
    /// Not even the first can be read.
    fn read_stored(&mut self, first: usize, pages: usize) -> Result<usize, StoreError> {
        let mut slots = [Slot::from_bits(0); MAX_WINDOW];
        let mut many = 0;
        while many < pages
            && let State::Stored(slot) = self.pages.state(first + many * PAGE)
        {
            slots[many] = slot;
            many += 1;
        }
        self.contents.read(&slots[..many])
    }

    /// Whether it is worth trying again after this error.
    fn wait_for_memory(&mut self, error: isize, patience: &mut u32) -> bool {
        *patience += 1;
        if !matches!(error, ENOMEM | EAGAIN) || *patience > PATIENCE {
            self.counts.failed(error);
            return false;
        }
        self.reclaim();
        refault_linux::sys::sleep(1_000_000);
        true
    }
}
