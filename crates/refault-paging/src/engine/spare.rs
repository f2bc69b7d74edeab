//! Spare memory: a page that is read back takes the memory of one that has just been stored.
//!
//! The kernel need not give a page back, find another, clear its account and copy into it: the contents are made where a page
//! was parked until now, and moved from there to where they belong. A batch of pages that is stored leaves as many spare
//! ones; what is too much, and what is wanted for anything else, goes back to the kernel before anything else does.
//!
//! Invariant: spare memory counts as long as it is there. Cost: one `UFFDIO_MOVE` instead of a `UFFDIO_COPY` and a page's part
//! of a `madvise`: 8 to 10 % of a fault's time in uniform reads.

use refault_store::Page;

use super::Engine;
use super::reclaim::BATCH;
use crate::PAGE;
use crate::page::table::State;
use refault_linux::sys;

impl Engine {
    /// Whether a page comes back at less cost if it is moved.
    pub(crate) fn is_moving_cheaper(&self) -> bool {
        !self.several_threads || self.way_back.is_moving_cheaper()
    }

    /// Asks the kernel to bring pages back, moved or copied.
    pub(crate) fn timed(&mut self, is_moved: bool, pages: usize, call: impl FnOnce(&Engine) -> isize) -> isize {
        if !self.several_threads || pages > 1 {
            return call(self);
        }
        let begun = sys::now();
        let done = call(self);
        if done > 0 {
            self.way_back.took(is_moved, sys::now() - begun);
        }
        done
    }

    /// Spare memory for one page, which need not be charged any more. Where the budget has room there is none.
    pub(crate) fn make_spare(&mut self) -> Option<u32> {
        // What a fork shares is not written to.
        if !self.is_moving_cheaper() || self.guards || self.given_up {
            return None;
        }
        // What they are stored as takes memory beside them, if less than they do.
        let wanted = self.charge() + BATCH as u64;
        if self.staging.spare().is_none() && self.has_something_to_give(wanted) && !self.fits(wanted) {
            self.account.ask(wanted);
            self.keeps_spares = true;
            self.shrink(&mut 0);
            self.keeps_spares = false;
        }
        self.staging.spare()
    }

    /// Reads a page into spare memory and moves that to where it belongs. False if this is not possible, and if the page is
    /// one of which a copy is kept.
    pub(crate) fn read_into_spare(&mut self, address: usize, place: u32) -> bool {
        let Some((page, entry)) = self.table.find(address) else { return false };
        let State::Stored(slot) = entry.state() else { return false };
        let can_be_moved = self.ranges.find(address).is_some_and(|(.., attributes)| attributes.can_be_evicted());
        if !can_be_moved || self.copies.is_worth(page, slot, self.is_mostly_compressed(1)) {
            return false;
        }
        let spare = self.staging.address(place);
        // SAFETY: the place has memory that is nobody's.
        let contents = unsafe { &mut *(spare as *mut Page) };
        if self.store.read(slot, contents, &mut self.scratch).is_err() {
            return false;
        }
        // SAFETY: both are the engine's to change; the page is missing where it goes.
        let moved = self.timed(true, 1, |engine| unsafe { engine.uffd.relocate(address, spare, PAGE) });
        if moved != PAGE as isize {
            return false;
        }
        self.staging.spend(place);
        self.store.release(slot);
        self.came_back(address);
        self.admit(page, Some(entry.shadow()));
        self.statistics.read_back += 1;
        self.went_to(address, 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{EngineOptions, Outcome};
    use crate::page::ranges::Attributes;
    use crate::stores::Stores;
    use crate::tree::Shared;
    use crate::tree::account::Account;
    use refault_linux::sys;
    use refault_linux::uffd::Uffd;

    const PAGES: usize = 512;
    const LIMIT: usize = 256;

    /// An engine with pages of which half fit, each with its number in it. Nothing where there is no userfaultfd.
    fn engine() -> Option<(Engine, usize)> {
        let Ok(uffd) = Uffd::open() else {
            refault_testing::skip_required("userfaultfd is refused");
            return None;
        };
        // SAFETY: a fresh mapping of atomics, for which zeros are values; it is never given up.
        let shared: &Shared = unsafe { &*(sys::map(Shared::BYTES) as *const Shared) };
        shared.set_limit((LIMIT * PAGE) as u64);
        // SAFETY: the segment stays mapped.
        let account = unsafe { Account::join(shared, None) };
        let store = Stores::new(1 << 30, shared.limit_bytes(), None, 0).expect("addresses");
        let options = EngineOptions { policy: "fifo".into(), store, account, resident_only: false };
        let mut engine = Engine::new(uffd, options, || 0).expect("an engine");
        let start = sys::map(PAGES * PAGE);
        assert!(engine.manage(start, PAGES * PAGE, Attributes { protection: 3, ..Attributes::default() }));
        for page in 0..PAGES {
            touch(&mut engine, start + page * PAGE);
            // SAFETY: the page is there now.
            unsafe { *((start + page * PAGE) as *mut usize) = page + 1 };
        }
        Some((engine, start))
    }

    fn touch(engine: &mut Engine, address: usize) -> usize {
        assert_eq!(engine.fault(address, true), Outcome::Served);
        assert!(engine.charge() <= LIMIT as u64, "{}", engine.charge());
        // SAFETY: the page is there now.
        unsafe { *(address as *const usize) }
    }

    /// A page in so many steps, so that no stream is seen.
    fn scattered(at: usize) -> usize {
        at * 197 % PAGES
    }

    #[test]
    fn pages_are_read_into_the_memory_of_those_that_went() {
        let Some((mut engine, start)) = engine() else { return };
        let mut spent = 0;
        for at in 0..4 * PAGES {
            let before = engine.staging.spares();
            assert_eq!(touch(&mut engine, start + scattered(at) * PAGE), scattered(at) + 1);
            spent += usize::from(engine.staging.spares() + 1 == before);
        }
        assert!(spent > PAGES / 2, "{spent}");
    }

    #[test]
    fn what_else_is_wanted_takes_spare_memory_first() {
        let Some((mut engine, start)) = engine() else { return };
        let mut at = 0;
        while engine.staging.spares() < 8 {
            touch(&mut engine, start + scattered(at) * PAGE);
            at += 1;
            assert!(at < 4 * PAGES);
        }
        let (resident, stored) = (engine.resident, engine.statistics.stored);
        engine.make_room(LIMIT + 1 - engine.charge() as usize);
        assert_eq!((engine.staging.spares(), engine.resident, engine.statistics.stored), (0, resident, stored));
    }

    #[test]
    fn nothing_is_spare_where_a_fork_shares_memory_or_moves_are_dear() {
        for (guards, several_threads) in [(true, false), (false, true)] {
            let Some((mut engine, start)) = engine() else { return };
            engine.staging.drop_spares();
            for at in 0..PAGES {
                // It finds out that it is alone.
                (engine.guards, engine.several_threads) = (guards, several_threads);
                touch(&mut engine, start + scattered(at) * PAGE);
                assert_eq!(engine.staging.spares(), 0);
            }
        }
    }
}
