//! Which process of a tree comes first while several lack memory.
//!
//! Where the budget holds the memory of one process and not that of all, even parts make every process thrash. So those
//! that lack memory come first in turns: the *token* goes from one to the next, and who has it may have what it needs
//! ([`crate::tree::share::Division`]). Each keeps it for a time in which all of the budget could be brought back ten
//! times, within bounds. A process that is seen to hardly run loses it earlier. Without a holder parts are even.
//!
//! Who passes it on knows processes by the numbers that the segment has, and is none of them: `refault run`.
//! Invariants: only who lacks memory gets it; who holds it and has ended, or whose time is over, comes first no longer,
//! whether it is passed on or not. Cost: some loads; a look at the slots that were ever used per turn.
//! Source: S. Jiang and X. Zhang, *Token-ordered LRU*, Performance Evaluation 60 (2005), as in Linux 2.6.9 to 3.4.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::tree::share::CLAIMS_LAST;
use crate::tree::{Shared, Slot, is_elsewhere};

/// The time of a turn per page of the budget, and its bounds: nanoseconds. To bring a page back takes some 10 µs.
const TURN_PER_PAGE: u64 = 100_000;
const MIN_TURN: u64 = 250_000_000;
const MAX_TURN: u64 = 10_000_000_000;
/// Looks at its holder per turn.
const LOOKS: u64 = 8;
/// Who has run for less than this part of the time since the last look hardly runs.
const HARDLY: u64 = 16;

/// All zeros: no process has it.
#[repr(C)]
pub(crate) struct Token {
    /// The slot of the process that has it, and that slot's turn, as of a lender ([`Slot::lender_word`]); 0: none.
    holder: AtomicU64,
    /// Until then.
    until: AtomicU64,
    /// When it was last looked at, and how long it had run until then: nanoseconds.
    looked: AtomicU64,
    ran: AtomicU64,
}

impl Shared {
    /// The slot of the process that comes first.
    pub(crate) fn token_holder(&self, now: u64) -> Option<usize> {
        let word = self.token.holder.load(Ordering::Relaxed);
        let slot = (word >> 32).checked_sub(1)? as usize;
        let is_there = self.slots[slot].process.load(Ordering::Relaxed) > 0
            && self.slots[slot].turn.load(Ordering::Relaxed) == word as u32;
        (is_there && now < self.token.until.load(Ordering::Relaxed)).then_some(slot)
    }

    /// Passes the token on to the next process that lacks memory, if it is time. For one thread at a time, whenever a
    /// process lacks memory. `ran` says for how many nanoseconds a process has run so far, if that is known.
    pub fn pass_token(&self, now: u64, ran: impl Fn(i32) -> Option<u64>) {
        let pages = self.to_give_out();
        let turn = (pages * TURN_PER_PAGE).clamp(MIN_TURN, MAX_TURN);
        let token = &self.token;
        if let Some(slot) = self.token_holder(now) {
            let passed = now.saturating_sub(token.looked.load(Ordering::Relaxed));
            if passed < turn / LOOKS {
                return;
            }
            let before = token.ran.load(Ordering::Relaxed);
            if let Some(ran) = ran(self.slots[slot].process.load(Ordering::Relaxed))
                && ran.saturating_sub(before) >= passed / HARDLY
            {
                token.looked.store(now, Ordering::Relaxed);
                token.ran.store(ran, Ordering::Relaxed);
                return;
            }
        }
        let last = (token.holder.load(Ordering::Relaxed) >> 32) as usize;
        let all = self.in_use().count();
        let next = (0..all).map(|step| (last + step) % all).find_map(|index| {
            let slot = &self.slots[index];
            let process = slot.process.load(Ordering::Relaxed);
            let lacks = process > 0 && !is_elsewhere(process) && slot.lacks(now);
            if lacks { Some((index, ran(process)?)) } else { None }
        });
        let word = next.map_or(0, |(index, so_far)| {
            token.looked.store(now, Ordering::Relaxed);
            token.ran.store(so_far, Ordering::Relaxed);
            Slot::lender_word(index, self.slots[index].turn.load(Ordering::Relaxed))
        });
        token.until.store(now + turn, Ordering::Relaxed);
        token.holder.store(word, Ordering::Relaxed);
    }
}

impl Slot {
    /// Whether the process has said of late that it lacks memory.
    pub(crate) fn lacks(&self, now: u64) -> bool {
        now.saturating_sub(self.said.load(Ordering::Relaxed)) < CLAIMS_LAST
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed};

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// With this budget a turn takes a second.
    const PAGES: u64 = SECOND / TURN_PER_PAGE;

    /// A segment with three processes of numbers 10, 20 and 30.
    fn segment() -> &'static Shared {
        // SAFETY: atomics for which zeros are values; it is never freed.
        let shared = unsafe { &*alloc_zeroed(Layout::new::<Shared>()).cast::<Shared>() };
        // What is given out is a little less.
        shared.limit.store(PAGES + 64, Ordering::Relaxed);
        for (slot, process) in shared.slots.iter().zip([10, 20, 30]) {
            slot.process.store(process, Ordering::Relaxed);
        }
        shared.used.store(3, Ordering::Relaxed);
        shared
    }

    fn lack(shared: &Shared, slots: &[usize], now: u64) {
        slots.iter().for_each(|slot| shared.slots[*slot].said.store(now, Ordering::Relaxed));
    }

    #[test]
    fn it_goes_round_among_those_that_lack_memory() {
        let shared = segment();
        assert_eq!(shared.token_holder(SECOND), None);
        let mut holders = Vec::new();
        for tenth in 10..60 {
            let now = tenth * SECOND / 10;
            lack(shared, &[0, 2], now);
            shared.pass_token(now, |process| {
                assert_ne!(process, 20, "it lacks nothing, and is not to be looked at");
                Some(now)
            });
            holders.push(shared.token_holder(now));
        }
        let turns: Vec<_> = holders.chunk_by(|one, next| one == next).map(|turn| (turn[0], turn.len())).collect();
        assert_eq!(turns, [0, 2, 0, 2, 0].map(|slot| (Some(slot), 10)));
    }

    #[test]
    fn who_hardly_runs_loses_it_early_and_who_is_unknown_never_has_it() {
        let shared = segment();
        lack(shared, &[0, 1], SECOND);
        // The first stands still, the second runs.
        let ran = |now: u64| move |process: i32| (process != 30).then_some(if process == 10 { 5 } else { now });
        shared.pass_token(SECOND, ran(SECOND));
        assert_eq!(shared.token_holder(SECOND), Some(0));
        let now = SECOND + SECOND / LOOKS;
        lack(shared, &[1, 2], now);
        shared.pass_token(now - 1, ran(now - 1));
        assert_eq!(shared.token_holder(now), Some(0), "it is not looked at all the time");
        shared.pass_token(now, ran(now));
        assert_eq!(shared.token_holder(now), Some(1));
        lack(shared, &[2], now + 2 * SECOND);
        shared.pass_token(now + 2 * SECOND, ran(now + 2 * SECOND));
        assert_eq!(shared.token_holder(now + 2 * SECOND), None);
    }

    #[test]
    fn who_has_ended_comes_first_no_longer() {
        let shared = segment();
        lack(shared, &[1], SECOND);
        shared.pass_token(SECOND, |_| Some(0));
        assert_eq!(shared.token_holder(SECOND), Some(1));
        assert_eq!(shared.token_holder(2 * SECOND), None, "and no process after its time");
        // Another has its slot.
        shared.slots[1].turn.fetch_add(1, Ordering::Relaxed);
        assert_eq!(shared.token_holder(SECOND), None);
    }

    /// All have half of the budget and want more; to a quarter all is compressed.
    #[test]
    fn who_comes_first_may_have_what_the_others_can_do_without() {
        let shared = segment();
        shared.slots[2].process.store(0, Ordering::Relaxed);
        let half = PAGES as i64 / 2;
        for slot in &shared.slots[..2] {
            slot.charged.store(half, Ordering::Relaxed);
            slot.wanted.store(2 * half, Ordering::Relaxed);
            slot.tight.store(half / 2, Ordering::Relaxed);
        }
        lack(shared, &[0, 1], SECOND);
        shared.lacking.store(SECOND, Ordering::Relaxed);
        let parts = || [0, 1].map(|slot| shared.allowed(slot, PAGES, SECOND));
        assert_eq!(parts(), [half, half]);
        shared.pass_token(SECOND, |_| Some(0));
        // What it may have is not there yet: the other has it.
        assert_eq!(parts(), [3 * half / 2, half / 2]);
        // It has it, and faults no more: it keeps it.
        shared.slots[0].charged.store(3 * half / 2, Ordering::Relaxed);
        shared.slots[1].charged.store(half / 2, Ordering::Relaxed);
        let later = SECOND + SECOND / 2;
        lack(shared, &[1], later);
        shared.lacking.store(later, Ordering::Relaxed);
        assert_eq!([0, 1].map(|slot| shared.allowed(slot, PAGES, later)), [3 * half / 2, half / 2]);
    }
}
