//! What stays cold is stored one step colder: compressed harder, then in the file ([`Store::demote`]).
//!
//! The evictor does this when it has nothing else to do. It goes round the page table once in
//! [`PagerOptions::demote_after`]; a page that was in the pool in the round before too is moved one step. A page that
//! came back and was evicted again in between looks the same and is moved early, which costs time but nothing else. A
//! fault that meets a page on its way leaves a mark and is woken, as with every owned page.
//!
//! Cost: a look at each page's state word in a round. A page that is compressed again costs some 12 µs, and at most
//! [`MAX_PER_TICK`] of those are in a [`TICK`]. Memory: one bit per page.
//!
//! [`Store::demote`]: refault_store::Store::demote
//! [`PagerOptions::demote_after`]: crate::PagerOptions::demote_after

use std::sync::atomic::Ordering;
use std::time::Duration;

use refault_core::PageId;
use refault_store::{PAGE_SIZE, Slot, Tier};

use crate::fault_scratch::FaultScratch;
use crate::pager::Inner;
use crate::state::State;

/// How often some pages are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Pages that are moved in one tick at most: some 6 % of a processor.
const MAX_PER_TICK: u32 = 512;

/// Where the round is, and what was in the pool when it last came by.
#[derive(Default)]
pub(crate) struct Round {
    next: PageId,
    was_in_pool: Vec<u64>,
}

impl Inner {
    /// The part of a round that is due in one tick.
    pub(crate) fn demote_some(&self, after: Duration, round: &mut Round, worker: &mut FaultScratch) {
        let high = self.arena.high();
        if high == 0 {
            return;
        }
        round.was_in_pool.resize((high as usize).div_ceil(64), 0);
        let share = TICK.as_secs_f64() / after.as_secs_f64().max(TICK.as_secs_f64());
        let due = ((f64::from(high) * share).ceil() as u32).max(64).min(high);
        let mut moved = 0;
        for _ in 0..due {
            if moved == MAX_PER_TICK {
                return;
            }
            let page = if round.next < high { round.next } else { 0 };
            round.next = page + 1;
            let bit = 1 << (page % 64);
            let seen_before = &mut round.was_in_pool[page as usize / 64];
            let seen = self.word(page).load();
            if seen.state() != State::Stored || Slot::from_bits(seen.slot()).tier() != Tier::Pool {
                *seen_before &= !bit;
            } else if *seen_before & bit == 0 {
                *seen_before |= bit;
            } else {
                self.demote(page, worker);
                moved += 1;
            }
        }
    }

    /// Moves a stored page one step, if there is something to gain.
    fn demote(&self, page: PageId, worker: &mut FaultScratch) {
        let word = self.word(page);
        let seen = word.load();
        if seen.state() != State::Stored || !word.begin(seen, State::Moving) {
            return;
        }
        let from = Slot::from_bits(seen.slot());
        let to = self.store.demote(from, &mut worker.pages[0], &mut worker.scratch);
        if word.finish(State::Stored, to.unwrap_or(from).bits(), false) {
            let _ = self.uffd.wake(self.arena.address(page), PAGE_SIZE);
        }
        if to.is_some() {
            self.release(from.bits());
            self.counts.demoted.fetch_add(1, Ordering::Relaxed);
        }
    }
}
