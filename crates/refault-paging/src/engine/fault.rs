//! The fault path: bringing a page in, for a thread that touched it or for a call that will.
//!
//! Faults that go on where one ended bring more pages in at once, twice as many each time: first touches from zeros,
//! the rest from the stores. Invariant: a page is copied in only where the table says that it is missing.

use refault_store::{Page, Slot, StoreError};

use super::{Engine, MAX_WINDOW, Outcome};
use crate::PAGE;
use crate::page::ranges::Attributes;
use crate::page::table::State;
use refault_linux::errno::{EAGAIN, EEXIST, ENOMEM};

static ZEROS: [Page; MAX_WINDOW] = [Page::ZERO; MAX_WINDOW];
/// Nanoseconds between two looks at what takes longer to find out.
const PUBLISH_EVERY: u64 = 50_000_000;
/// Pages whose return is waited for at once: more than of 8 GiB that are stored.
const MAX_FOLLOWED: usize = 1 << 16;
/// Compressed copies of resident pages are kept while so many times more pages are compressed than resident.
const COPY_SHARE: usize = 16;
/// Husks take at most this part of the pages in memory, and no more than so many, whose return costs 0.3 ms.
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
        let Some((.., attributes)) = self.ranges.find(address) else { return Outcome::NotManaged };
        if attributes.guard {
            return Outcome::NotManaged;
        }
        if self.table.state(address) == State::SetAside {
            return self.touch_aside(address, write);
        }
        self.statistics.faults += 1;
        let begun = refault_linux::sys::now();
        let was_there = self.table.state(address) != State::Untouched;
        self.account.stalls(was_there);
        let outcome = self.bring_in(address, write);
        if outcome == Outcome::Served {
            self.note_touch(address, write);
        }
        self.account.stalls(false);
        let now = refault_linux::sys::now();
        self.statistics.waited += now - begun;
        if was_there {
            self.statistics.waited_again += now - begun;
        }
        self.account.took(now - begun);
        self.account.faulted(now);
        self.settle();
        if now - self.published >= PUBLISH_EVERY {
            self.published = now;
            self.publish();
        }
        outcome
    }

    /// Brings the pages of a range in and keeps them where they are until [`Engine::release`]. Unmanaged parts are left
    /// alone. False if a page is lost.
    pub fn hold(&mut self, start: usize, bytes: usize, write: bool) -> bool {
        self.hold_whole(start, bytes, write, write)
    }

    /// [`Engine::hold`] for a call that may write there, or reads: what nobody has touched is zeros of the kernel's, which
    /// it copies if it does write.
    pub fn hold_for_call(&mut self, start: usize, bytes: usize, write: bool) -> bool {
        self.hold_whole(start, bytes, write, false)
    }

    /// `may_write`: what is there may be written to. `writes`: what is not there is.
    fn hold_whole(&mut self, start: usize, bytes: usize, may_write: bool, writes: bool) -> bool {
        let (start, end) = (start & !(PAGE - 1), start.saturating_add(bytes));
        let mut held = Held { whole: true, brought_in: false };
        match self.ranges.find(start) {
            // Nearly always one range: nothing is allocated.
            Some((_, last, attributes)) if end <= last => {
                self.hold_part((start, end, attributes), may_write, writes, &mut held)
            }
            _ => {
                for (from, to, attributes) in self.ranges.within(start, end) {
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

    fn hold_part(&mut self, part: (usize, usize, Attributes), may_write: bool, writes: bool, held: &mut Held) {
        let (from, to, attributes) = part;
        if attributes.guard {
            return;
        }
        // Where nothing was written to yet, that is the kernel's to note; elsewhere it makes no difference but in time.
        let writes = if attributes.written { may_write } else { writes && attributes.can_be_written() };
        for address in (from..to).step_by(PAGE) {
            let state = self.table.state(address);
            let resident = state == State::Resident && !(may_write && self.is_guarded(address));
            held.brought_in |= !resident;
            if !resident {
                let write = if state == State::Untouched { writes } else { may_write };
                if self.bring_in(address, write) != Outcome::Served {
                    held.whole = false;
                    continue;
                }
                self.note_touch(address, may_write);
            }
            let (page, _) = self.table.find(address).expect("invariant: it was just brought in");
            self.table.hold(page, 1);
            // What was copied back has left husks, for which no room was made.
            if self.staging.husks() >= MAX_WINDOW && !self.given_up && !self.fits(self.charge()) {
                self.staging.drop_husks();
                self.give_way();
            }
        }
    }

    /// Gives back what [`Engine::hold`] held.
    pub fn release(&mut self, start: usize, bytes: usize) {
        let (start, end) = (start & !(PAGE - 1), start.saturating_add(bytes));
        match self.ranges.find(start) {
            Some((_, last, _)) if end <= last => self.release_part(start, end),
            _ => self.ranges.within(start, end).into_iter().for_each(|(from, to, _)| self.release_part(from, to)),
        }
    }

    fn release_part(&mut self, from: usize, to: usize) {
        for address in (from..to).step_by(PAGE) {
            if let Some((page, entry)) = self.table.find(address)
                && entry.state() == State::Resident
                && entry.holds() > 0
            {
                self.table.hold(page, -1);
            }
        }
    }

    fn bring_in(&mut self, address: usize, write: bool) -> Outcome {
        match self.table.state(address) {
            State::Resident if write => self.may_write(address),
            State::Resident => Outcome::Served,
            State::Untouched => self.fill_zeros(address, write),
            State::Parked(place) => self.rescue(address, place),
            State::Stored(_) => self.read_back(address),
            State::SetAside => self.take_back(address),
        }
    }

    /// The pages to bring in for a fault at an address: those in a row that are `alike`, as many as were asked for
    /// before in this direction and twice as many again. The first address, and how many.
    pub(crate) fn window(&mut self, address: usize, alike: impl Fn(usize, State) -> bool) -> (usize, usize) {
        let (start, end, _) = self.ranges.find(address).unwrap_or((address, address + PAGE, Attributes::default()));
        let max_window = if self.notes_all_touches() { 1 } else { MAX_WINDOW };
        let (most, backward) = self.streams.begin(address, max_window);
        let table = &self.table;
        let neighbour = |index: usize| if backward { address - index * PAGE } else { address + index * PAGE };
        let room = if backward { (address - start) / PAGE + 1 } else { (end - address).div_ceil(PAGE) };
        let pages = 1 + (1..most.min(room)).take_while(|index| alike(*index, table.state(neighbour(*index)))).count();
        let first = if backward { address - (pages - 1) * PAGE } else { address };
        (first, pages)
    }

    /// What a fault's window has become.
    pub(crate) fn went_to(&mut self, first: usize, pages: usize) {
        self.streams.went_to(first, pages);
        if pages > 1 {
            self.came_along(first, pages);
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
            let bytes = pages * PAGE;
            let done = if write {
                // SAFETY: `ZEROS` has MAX_WINDOW pages.
                unsafe { self.uffd.copy(first, ZEROS.as_ptr().cast(), bytes) }
            } else {
                self.uffd.zero(first, bytes)
            };
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

    /// Pages that were untouched are resident now.
    pub(crate) fn fresh(&mut self, first: usize, pages: usize) {
        for index in 0..pages {
            let page = self.page_id(first + index * PAGE);
            self.admit(page, None);
        }
        self.statistics.first_touches += pages as u64;
    }

    /// Brings a parked page back, and its neighbours if they are asked for in a row.
    fn rescue(&mut self, address: usize, place: u32) -> Outcome {
        let (first, pages) = self.window(address, |_, state| matches!(state, State::Parked(_)));
        let lowest = match self.table.state(first) {
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
        (0..pages).all(|index| self.table.state(first + index * PAGE) == State::Parked(lowest + index as u32))
    }

    fn rescue_one(&mut self, address: usize, place: u32) -> Outcome {
        // Its mapping may have changed so that pages cannot be moved into it, or there is no memory for a copy.
        let (way, other): (OneBack, OneBack) = match !self.several_threads || self.way_back.next_is_moved() {
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
        if self.is_moving_cheaper() {
            return self.move_run_back(first, lowest, pages);
        }
        (0..pages).take_while(|i| self.copy_back(first + i * PAGE, lowest + *i as u32)).count()
    }

    /// Moves pages back from neighbouring places. Returns how many.
    fn move_run_back(&mut self, first: usize, lowest: u32, pages: usize) -> usize {
        let from = self.staging.address(lowest);
        // SAFETY: the pages were moved here from `first` on, which are missing since.
        let moved = self.timed(true, pages, |engine| unsafe { engine.uffd.relocate(first, from, pages * PAGE) });
        let moved = if moved > 0 { moved as usize / PAGE } else { 0 };
        for index in 0..moved {
            let shared = self.staging.leave(lowest + index as u32);
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
        let from = self.staging.address(place) as *const u8;
        // SAFETY: the place holds a page.
        let copied = self.timed(false, 1, |engine| unsafe { engine.uffd.copy(address, from, PAGE) });
        if copied < 0 && copied != EEXIST {
            self.last_error = copied;
            return false;
        }
        let shared = self.staging.leave_husk(place);
        // Where most of what is parked comes back, they would take the memory of a part of it.
        if self.staging.husks() > (self.resident / HUSK_SHARE).clamp(MAX_WINDOW, MAX_HUSKS) {
            self.staging.drop_husks();
        }
        self.rescued(address, shared);
        true
    }

    /// A page is back from the staging area.
    fn rescued(&mut self, address: usize, shared: bool) {
        self.account.unshared(u64::from(shared));
        let (page, entry) = self.table.find(address).expect("invariant: a parked page is known");
        self.admit(page, Some(entry.shadow()));
        self.statistics.rescued += 1;
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
                self.statistics.lost += 1;
                self.last_error = if matches!(error, StoreError::Checksum(_)) { 0 } else { -5 };
                return Outcome::Lost;
            }
        };
        let mut patience = 0;
        let mut from = 0;
        let done = loop {
            // SAFETY: the buffer has MAX_WINDOW pages, of which `filled` from `from` on are read.
            let done = unsafe { self.uffd.copy(first, self.buffer[from..].as_ptr().cast(), filled * PAGE) };
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
        self.statistics.prefetched -= 1;
        self.went_to(first, done);
        Outcome::Served
    }

    pub(crate) fn is_mostly_compressed(&self, more: usize) -> bool {
        (self.resident + more) * COPY_SHARE < self.store.compressed() as usize
    }

    /// Pages that were stored are in memory again, as they are in the buffer from `from` on.
    fn stored_is_resident(&mut self, first: usize, from: usize, pages: usize) {
        let mostly_compressed = self.is_mostly_compressed(pages);
        for index in 0..pages {
            let (page, entry) = self.table.find(first + index * PAGE).expect("invariant: a stored page is known");
            if let State::Stored(slot) = entry.state() {
                if self.copies.is_worth(page, slot, mostly_compressed) {
                    self.copies.keep(page, slot, &self.buffer[from + index]);
                } else {
                    self.store.release(slot);
                }
            }
            self.came_back(first + index * PAGE);
            self.admit(page, Some(entry.shadow()));
        }
        self.statistics.read_back += pages as u64;
        self.statistics.prefetched += pages as u64;
    }

    /// Reads the pages of a range that are stored into the buffer, up to the first that is not or cannot be read.
    ///
    /// # Errors
    /// Not even the first can be read.
    fn read_stored(&mut self, first: usize, pages: usize) -> Result<usize, StoreError> {
        let mut slots = [Slot::from_bits(0); MAX_WINDOW];
        let mut many = 0;
        while many < pages
            && let State::Stored(slot) = self.table.state(first + many * PAGE)
        {
            slots[many] = slot;
            many += 1;
        }
        let mut filled = 0;
        while filled < many {
            let run = self.store.read_run(&slots[filled..many], &mut self.buffer[filled..]).unwrap_or(0);
            if run > 0 {
                filled += run;
                continue;
            }
            match self.read(slots[filled], filled) {
                Ok(()) => filled += 1,
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// A page is stored: one in 32 is followed.
    pub(crate) fn went(&mut self, address: usize) {
        if (address / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0 {
            if self.followed.len() == MAX_FOLLOWED {
                self.followed.clear();
            }
            self.followed.insert(address, self.account.stored_by_all(&self.statistics));
        }
    }

    pub(crate) fn came_back(&mut self, address: usize) {
        if !self.followed.is_empty()
            && let Some(then) = self.followed.remove(&address)
        {
            self.account.came_back(then, &self.statistics);
        }
    }

    /// Reads a slot into a page of the buffer; what may go away is tried again.
    fn read(&mut self, slot: refault_store::Slot, index: usize) -> Result<(), StoreError> {
        let mut patience = 0;
        loop {
            match self.store.read(slot, &mut self.buffer[index], &mut self.scratch) {
                Err(StoreError::Io { .. }) if patience < PATIENCE => patience += 1,
                other => return other,
            }
        }
    }

    /// Whether it is worth trying again after this error.
    fn wait_for_memory(&mut self, error: isize, patience: &mut u32) -> bool {
        *patience += 1;
        if !matches!(error, ENOMEM | EAGAIN) || *patience > PATIENCE {
            self.last_error = error;
            return false;
        }
        self.reclaim();
        refault_linux::sys::sleep(1_000_000);
        true
    }
}
