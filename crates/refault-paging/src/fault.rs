//! The fault path: bringing a page in, for a thread that touched it or for a call that will.
//!
//! Faults that go on where one ended bring more pages in at once, twice as many each time: first touches from zeros,
//! the rest from the stores. Invariant: a page is copied in only where the table says that it is missing.

use refault_store::{Page, StoreError};

use crate::PAGE;
use crate::engine::{Engine, MAX_WINDOW, Outcome, STREAMS, Stream};
use crate::table::State;
use crate::uffd::{EEXIST, ENOMEM};

static ZEROS: [Page; MAX_WINDOW] = [Page::ZERO; MAX_WINDOW];
/// Nanoseconds between two looks at what takes longer to find out.
const PUBLISH_EVERY: u64 = 50_000_000;
/// Pages whose return is waited for at once: more than of 8 GiB that are stored.
const MAX_FOLLOWED: usize = 1 << 16;
/// Times that memory for a page is waited for.
const PATIENCE: u32 = 1000;

impl Engine {
    /// Serves a fault at an address. `write`: it is about to be written.
    pub fn fault(&mut self, address: usize, write: bool) -> Outcome {
        let address = address & !(PAGE - 1);
        let Some((_, end, attributes)) = self.ranges.find(address) else { return Outcome::NotManaged };
        if attributes.guard {
            return Outcome::NotManaged;
        }
        self.statistics.faults += 1;
        let begun = crate::sys::now();
        let was_there = self.table.state(address) != State::Untouched;
        self.account.stalls(was_there);
        let outcome = self.bring_in(address, end, write);
        self.account.stalls(false);
        let now = crate::sys::now();
        self.statistics.waited += now - begun;
        if was_there {
            self.statistics.waited_again += now - begun;
        }
        self.account.took(now - begun);
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
        let mut whole = true;
        for (from, to, attributes) in self.ranges.within(start & !(PAGE - 1), start.saturating_add(bytes)) {
            if attributes.guard {
                continue;
            }
            for address in (from & !(PAGE - 1)..to).step_by(PAGE) {
                let resident = self.table.state(address) == State::Resident;
                if !resident && self.bring_in(address, to.next_multiple_of(PAGE), write) != Outcome::Served {
                    whole = false;
                    continue;
                }
                let (page, _) = self.table.find(address).expect("invariant: it was just brought in");
                self.table.hold(page, 1);
            }
        }
        self.settle();
        whole
    }

    /// Gives back what [`Engine::hold`] held.
    pub fn release(&mut self, start: usize, bytes: usize) {
        for (from, to, _) in self.ranges.within(start & !(PAGE - 1), start.saturating_add(bytes)) {
            for address in (from & !(PAGE - 1)..to).step_by(PAGE) {
                if let Some((page, entry)) = self.table.find(address)
                    && entry.state() == State::Resident
                    && entry.holds() > 0
                {
                    self.table.hold(page, -1);
                }
            }
        }
    }

    fn bring_in(&mut self, address: usize, end: usize, write: bool) -> Outcome {
        match self.table.state(address) {
            State::Resident => Outcome::Served,
            State::Untouched => self.fill_zeros(address, end, write),
            State::Parked(place) => self.rescue(address, place),
            State::Stored(_) => self.read_back(address, end),
        }
    }

    /// Pages to bring in at an address, by what was asked for before.
    fn window(&mut self, address: usize) -> usize {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.next == address) {
            stream.window = (stream.window * 2).min(MAX_WINDOW);
            return stream.window;
        }
        self.next_stream = (self.next_stream + 1) % STREAMS;
        self.streams[self.next_stream] = Stream { next: 0, window: 1 };
        1
    }

    fn went_to(&mut self, address: usize, next: usize) {
        let current = self.streams.iter().position(|stream| stream.next == address).unwrap_or(self.next_stream);
        self.streams[current].next = next;
    }

    /// Neighbours from `address` on that are in the same state, at most `most`.
    fn alike(&self, address: usize, end: usize, most: usize, wanted: impl Fn(State) -> bool) -> usize {
        (0..most)
            .take_while(|index| address + index * PAGE < end && wanted(self.table.state(address + index * PAGE)))
            .count()
    }

    fn fill_zeros(&mut self, address: usize, end: usize, write: bool) -> Outcome {
        let window = self.window(address);
        let mut pages = self.alike(address, end, window, |state| state == State::Untouched);
        self.make_room(pages);
        // Making room changes only what has contents.
        let mut patience = 0;
        loop {
            let bytes = pages * PAGE;
            let done = if write {
                // SAFETY: `ZEROS` has MAX_WINDOW pages.
                unsafe { self.uffd.copy(address, ZEROS.as_ptr().cast(), bytes) }
            } else {
                self.uffd.zero(address, bytes)
            };
            if done > 0 {
                pages = done as usize / PAGE;
                break;
            }
            if done == EEXIST {
                // The kernel has put a page there itself.
                pages = 1;
                break;
            }
            if pages == 1 && !self.wait_for_memory(done, &mut patience) {
                return Outcome::Lost;
            }
            // Neighbours may be different mappings for the kernel.
            pages = 1;
        }
        for index in 0..pages {
            let page = self.page_id(address + index * PAGE);
            self.admit(page, None);
        }
        self.statistics.first_touches += pages as u64;
        self.went_to(address, address + pages * PAGE);
        Outcome::Served
    }

    fn rescue(&mut self, address: usize, place: u32) -> Outcome {
        // SAFETY: the page was moved here from `address`, which is missing since.
        let moved = unsafe { self.uffd.relocate(address, self.staging.address(place), PAGE) };
        if moved < 0 {
            // Its mapping has changed so that pages cannot be moved into it: copy.
            // SAFETY: the place holds a page.
            let copied = unsafe { self.uffd.copy(address, self.staging.address(place) as *const u8, PAGE) };
            if copied < 0 && copied != EEXIST {
                self.last_error = copied;
                return Outcome::Lost;
            }
            // SAFETY: the page has been copied.
            unsafe { crate::sys::discard(self.staging.address(place), PAGE) };
        }
        self.staging.leave(place);
        let (page, entry) = self.table.find(address).expect("invariant: a parked page is known");
        self.admit(page, Some(entry.shadow()));
        self.statistics.rescued += 1;
        Outcome::Served
    }

    fn read_back(&mut self, address: usize, end: usize) -> Outcome {
        let window = self.window(address);
        let pages = self.alike(address, end, window, |state| matches!(state, State::Stored(_)));
        self.make_room(pages);
        let mut filled = 0;
        while filled < pages {
            let State::Stored(slot) = self.table.state(address + filled * PAGE) else { break };
            match self.read(slot, filled) {
                Ok(()) => filled += 1,
                Err(_) if filled > 0 => break,
                Err(error) => {
                    self.statistics.lost += 1;
                    self.last_error = if matches!(error, StoreError::Checksum(_)) { 0 } else { -5 };
                    return Outcome::Lost;
                }
            }
        }
        let mut patience = 0;
        let done = loop {
            // SAFETY: the buffer has MAX_WINDOW pages, of which `filled` are read.
            let done = unsafe { self.uffd.copy(address, self.buffer.as_ptr().cast(), filled * PAGE) };
            if done > 0 {
                break done as usize / PAGE;
            }
            if filled == 1 && !self.wait_for_memory(done, &mut patience) {
                return Outcome::Lost;
            }
            filled = 1;
        };
        for index in 0..done {
            let (page, entry) = self.table.find(address + index * PAGE).expect("invariant: a stored page is known");
            if let State::Stored(slot) = entry.state() {
                self.store.release(slot);
            }
            self.came_back(address + index * PAGE);
            self.admit(page, Some(entry.shadow()));
        }
        self.statistics.read_back += done as u64;
        self.statistics.prefetched += done as u64 - 1;
        self.went_to(address, address + done * PAGE);
        Outcome::Served
    }

    /// A page is stored: one in 32 is followed.
    pub(crate) fn went(&mut self, address: usize) {
        if (address / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 == 0 {
            if self.followed.len() == MAX_FOLLOWED {
                self.followed.clear();
            }
            self.followed.insert(address, self.statistics.stored);
        }
    }

    fn came_back(&mut self, address: usize) {
        if !self.followed.is_empty()
            && let Some(then) = self.followed.remove(&address)
        {
            self.account.came_back(self.statistics.stored.saturating_sub(then));
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
        if !matches!(error, ENOMEM | crate::uffd::EAGAIN) || *patience > PATIENCE {
            self.last_error = error;
            return false;
        }
        self.reclaim();
        let pause = [0u64, 1_000_000];
        // SAFETY: nanosleep reads two words.
        unsafe { crate::sys::call(35, [pause.as_ptr() as usize, 0, 0, 0, 0, 0]) };
        true
    }
}
