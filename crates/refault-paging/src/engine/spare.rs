//! Spare memory: a page that is read back takes the memory of one that has just been stored.
//!
//! The kernel need not give a page back, find another, clear its account and copy into it: the contents are made where
//! a page was parked until now, and moved from there to where they belong. A batch of pages that is stored leaves as
//! many spare ones; what is too much, and what is wanted for anything else, goes back to the kernel before anything
//! else does.
//!
//! Invariant: spare memory counts as long as it is there. Cost: one `UFFDIO_MOVE` instead of a `UFFDIO_COPY` and a
//! page's part of a `madvise`: 8 to 10 % of a fault's time in uniform reads.

use super::Engine;
use super::reclaim::BATCH;
use crate::page::table::State;

impl Engine {
    /// Spare memory for one page, which need not be charged any more. Where the budget has room there is none.
    pub(crate) fn make_spare(&mut self) -> Option<u32> {
        // What a fork shares is not written to.
        if !self.moving.is_moving_cheaper() || self.sharing.guards() || self.given_up {
            return None;
        }
        // What they are stored as takes memory beside them, if less than they do.
        let wanted = self.charge() + BATCH as u64;
        if self.moving.spare().is_none() && self.has_something_to_give(wanted) && !self.fits_or_is_given(wanted) {
            self.account.ask(wanted);
            self.moving.keep_spares(true);
            self.shrink(&mut 0);
            self.moving.keep_spares(false);
        }
        self.moving.spare()
    }

    /// Reads a page into spare memory and moves that to where it belongs. False if this is not possible, and if the
    /// page is one of which a copy is kept.
    pub(crate) fn read_into_spare(&mut self, address: usize, place: u32) -> bool {
        let Some((page, entry)) = self.pages.find(address) else { return false };
        let State::Stored(slot) = entry.state() else { return false };
        let can_be_moved = self.pages.can_be_moved(address);
        let mostly_compressed = self.contents.is_mostly_compressed(self.pages.in_memory() + 1);
        if !can_be_moved || self.contents.is_worth_a_copy(page, slot, mostly_compressed) {
            return false;
        }
        if !self.contents.read_into(slot, self.moving.spare_page(place)) || !self.moving.move_spare(address, place) {
            return false;
        }
        self.contents.release(slot);
        self.came_back(address);
        self.admit(page, Some(entry.shadow()));
        self.counts.read_back(1, 0);
        self.went_to(address, 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
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
        assert!(engine.manage(
            start,
            PAGES * PAGE,
            Attributes { protection: Attributes::READ_WRITE, ..Attributes::default() }
        ));
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

    /// The page of step `at`, scattered so that no stream is seen.
    fn scattered(at: usize) -> usize {
        at * 197 % PAGES
    }

    #[test]
    fn pages_are_read_into_the_memory_of_those_that_went() {
        let Some((mut engine, start)) = engine() else { return };
        let mut spent = 0;
        for at in 0..4 * PAGES {
            let before = engine.moving.spares();
            assert_eq!(touch(&mut engine, start + scattered(at) * PAGE), scattered(at) + 1);
            spent += usize::from(engine.moving.spares() + 1 == before);
        }
        assert!(spent > PAGES / 2, "{spent}");
    }

    #[test]
    fn what_else_is_wanted_takes_spare_memory_first() {
        let Some((mut engine, start)) = engine() else { return };
        let mut at = 0;
        while engine.moving.spares() < 8 {
            touch(&mut engine, start + scattered(at) * PAGE);
            at += 1;
            assert!(at < 4 * PAGES);
        }
        let (resident, stored) = (engine.pages.in_memory(), engine.statistics().stored);
        engine.make_room(LIMIT + 1 - engine.charge() as usize);
        assert_eq!(
            (engine.moving.spares(), engine.pages.in_memory(), engine.statistics().stored),
            (0, resident, stored)
        );
    }

    #[test]
    fn nothing_is_spare_where_a_fork_shares_memory_or_moves_are_dear() {
        for (guards, several_threads) in [(true, false), (false, true)] {
            let Some((mut engine, start)) = engine() else { return };
            engine.moving.drop_spares();
            for at in 0..PAGES {
                // It finds out that it is alone.
                if guards {
                    engine.sharing.starts();
                } else {
                    engine.sharing.ends();
                }
                engine.moving.threads(several_threads);
                touch(&mut engine, start + scattered(at) * PAGE);
                assert_eq!(engine.moving.spares(), 0);
            }
        }
    }
}
