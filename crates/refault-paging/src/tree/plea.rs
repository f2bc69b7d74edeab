//! Room within what a pool protects of its member: it comes from other members, at once, and not from the member itself.
//!
//! A process that finds no room evicts pages of its own. Where its tree is a member of a pool and has less than its
//! `min` or `low`, others are to give instead. So the process says what the tree lacks, and naps until the limit is
//! raised. The command that made the segment takes what was said to the pool. It says up to which limit that is of
//! use: nothing, while the pool has nothing to give or does not answer.
//!
//! Invariant: no process naps longer than [`PATIENCE`] before it evicts its own after all; then none of the tree naps
//! until the command says anew that it is of use. A process naps with its engine locked, so its other threads wait as
//! long at most, also one that is asked to make room. Cost: two loads where a process finds no room.
//! Kernel: `try_charge_memcg` in `mm/memcontrol.c`, which reclaims from others before it charges (spec: overview §4.5).

use core::sync::atomic::{AtomicU64, Ordering};

use refault_linux::sys;

/// Nanoseconds of a nap, and of all naps for one request.
const NAP: u64 = 300_000;
const PATIENCE: u64 = 1_000_000_000;

/// All zeros: there is no pool.
#[repr(C)]
pub(crate) struct Plea {
    /// Pages: below this limit the pool gives more at once.
    protected: AtomicU64,
    /// Pages that a process waits for, beyond the limit.
    lacks: AtomicU64,
}

/// For how long a process has waited.
#[derive(Default)]
pub(crate) struct Waiting {
    since: Option<u64>,
}

impl Plea {
    /// Below a limit of `pages` pages processes say what they lack and wait for it; 0: they do not.
    pub(crate) fn protect(&self, pages: u64) {
        self.protected.store(pages, Ordering::Relaxed);
    }

    /// Pages that processes wait for beyond the limit. They say so again if they still do.
    pub(crate) fn take(&self) -> u64 {
        self.lacks.swap(0, Ordering::AcqRel)
    }

    /// Whether a process waits.
    pub(crate) fn is_said(&self) -> bool {
        self.lacks.load(Ordering::Relaxed) != 0
    }

    /// Naps for a limit of `limit` pages to be raised, where that is of use and there is something that the tree `lacks`.
    /// `wakes` the command. False: it did not nap.
    pub(crate) fn waits(
        &self,
        limit: u64,
        lacks: impl FnOnce() -> u64,
        wakes: impl FnOnce(),
        waiting: &mut Waiting,
    ) -> bool {
        if limit >= self.protected.load(Ordering::Relaxed) {
            return false;
        }
        let lacks = lacks();
        if lacks == 0 {
            return false;
        }
        let now = sys::now();
        if now.saturating_sub(*waiting.since.get_or_insert(now)) > PATIENCE {
            self.protect(0);
            return false;
        }
        if self.lacks.fetch_max(lacks, Ordering::AcqRel) == 0 {
            wakes();
        }
        sys::sleep(NAP);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Shared;
    use crate::tree::account::Account;

    const PAGE: u64 = crate::PAGE as u64;

    fn member(limit: u64) -> (&'static Shared, Account) {
        // SAFETY: a fresh mapping of atomics, for which zeros are values; it is never given up.
        let shared: &'static Shared = unsafe { &*(sys::map(Shared::BYTES) as *const Shared) };
        shared.set_limit(limit * PAGE);
        // SAFETY: the segment stays mapped.
        (shared, unsafe { Account::join(shared, None) })
    }

    #[test]
    fn only_below_what_is_protected_and_where_the_tree_has_no_room_a_process_waits_for_the_pool() {
        let (shared, mut account) = member(1000);
        assert!(account.reserve(900));
        let waits = |account: &Account, pages| account.waits_for_pool(pages, &mut Waiting::default());
        assert!(!waits(&account, 1200), "there is no pool");
        shared.protect(1000 * PAGE);
        assert!(!waits(&account, 1200) && !shared.pleads(), "it has all that is protected");
        shared.protect(1001 * PAGE);
        assert!(!waits(&account, 950) && !shared.pleads(), "there is room in the tree");
        assert!(waits(&account, 1200) && shared.pleads());
        // 15 of 1000 pages are not given out.
        assert_eq!((shared.take_plea(), shared.pleads()), (215 * PAGE, false));
        // SAFETY: the segment stays mapped.
        let own = unsafe { Account::join(shared, Some(100)) };
        assert!(!waits(&own, 1200), "its budget is its own");
    }

    #[test]
    fn a_pool_that_does_not_answer_is_not_waited_for_again_until_the_command_says_so() {
        let (shared, account) = member(1000);
        shared.protect(2000 * PAGE);
        let mut waiting = Waiting::default();
        let begun = sys::now();
        while account.waits_for_pool(1200, &mut waiting) {
            assert!(sys::now() - begun < 10 * PATIENCE);
        }
        assert!(sys::now() - begun >= PATIENCE);
        assert!(!account.waits_for_pool(1200, &mut Waiting::default()));
        shared.protect(2000 * PAGE);
        assert!(account.waits_for_pool(1200, &mut Waiting::default()));
    }

    #[test]
    fn a_raised_limit_ends_the_wait() {
        let (shared, mut account) = member(1000);
        shared.protect(2000 * PAGE);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !shared.pleads() {
                    std::thread::yield_now();
                }
                shared.set_limit((1000 * PAGE) + shared.take_plea() + 100 * PAGE);
            });
            let mut waiting = Waiting::default();
            while !account.reserve(1200) {
                assert!(account.waits_for_pool(1200, &mut waiting), "it came in time");
            }
        });
    }
}
