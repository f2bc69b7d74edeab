//! What a tree of processes has in common: a segment that all of them map, with a slot for each.
//!
//! All zeros but the limit is a good start. Processes go in and out by [`crate::tree::account`]. Any process can ask
//! here, from outside too: for sums, who lives, who has more than its part. Here also end those that died without
//! giving anything back.
//!
//! Invariants: the sum is that of the slots, up to calls in progress. A process changes no slot but its own, those of
//! the dead, and its children's. Of a child's it changes the charge, when it ceases to share a page with the child.
//! Cost: a look at the slots that were ever used.
//!
//! ```
//! use refault_linux::sys;
//! use refault_paging::{Account, PAGE, Shared};
//!
//! // SAFETY: a fresh mapping of atomics, for which zeros are values; it is never given up.
//! let shared: &Shared = unsafe { &*(sys::map(Shared::BYTES) as *const Shared) };
//! shared.set_limit(1000 * PAGE as u64);
//! // SAFETY: the segment stays mapped.
//! let mut process = unsafe { Account::join(shared, None) };
//! process.charge(1200); // what it cannot do without, whatever the limit says
//! assert!(shared.is_over());
//! shared.set_limit(2000 * PAGE as u64);
//! assert!(!shared.is_over());
//! ```

pub mod account;
pub(crate) mod dropped;
pub(crate) mod inherited;
pub(crate) mod plea;
mod rollup;
mod segment;
pub mod share;
pub(crate) mod shared_pages;
mod token;
pub mod unmanaged;
pub mod visit;

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::figures::{Ended, Published, Sizes, Statistics, Times};
use crate::tree::dropped::Dropped;
use crate::tree::plea::Plea;
use crate::tree::token::Token;
use crate::tree::unmanaged::Unmanaged;
use crate::tree::visit::Visit;
use refault_linux::sys;
use share::{Division, Need};

/// Processes that can be in a tree at once; more get no slot.
pub const SLOTS: usize = 2048;
/// Pages that a process may use whatever the others do: with less it does not get on. It waits for them first.
pub const MIN_PAGES: u64 = 128;
/// Pages of those that a process may have locked whatever the others do: as many are left to it that come and go. It
/// takes nothing that it has not.
pub const MIN_LOCKED: u64 = MIN_PAGES / 2;
/// This part of the budget is not given out, within these bounds in pages. It is for memory that grows before it is
/// known by how much. Compressed pages do while the pages that they were made of are still there.
const SLACK: (u64, u64, u64) = (64, 4, 64);
/// A process is not asked for less than this: pages.
const WORTH_ASKING: i64 = 16;

/// The value of a queued SIGSYS that asks a thread to make room: a word that no program queues by chance.
pub const MAKE_ROOM: usize = usize::from_le_bytes(*b"refault!");
/// The name of the agent's own thread, as a process that is recorded or monitored has one. Every signal is blocked in
/// it, so it cannot be asked.
pub const OWN_THREAD: &str = "refault-watch";
/// See [`Slot::process`].
pub(crate) const TAKEN: i32 = i32::MIN;
/// Numbers from here on are of no process: they stand for processes of another namespace, and what is added is the
/// number there. (No process has a number of more than 22 bits.)
const ELSEWHERE: i32 = 1 << 24;

/// One process.
#[repr(C)]
pub struct Slot {
    /// 0: free; negative: of a process that has ended, whose figures are still there; [`TAKEN`]: changing hands. A
    /// process that knows itself by the numbers of another namespace has one that no process has ([`is_elsewhere`]): by
    /// its own another process would be asked for room, or found dead.
    pub process: AtomicI32,
    /// Processes that had the slot: tells one from the next.
    pub turn: AtomicU32,
    /// Pages charged.
    pub charged: AtomicI64,
    /// Pages that it has, in memory and out of it, and those that the agent takes: what it would use if none were
    /// stored.
    pub(crate) has: AtomicI64,
    /// Pages that it has given up so far.
    pub(crate) gave: AtomicU64,
    /// Pages that it has stored so far while others shared them.
    pub(crate) apart: AtomicU64,
    /// Pages that it would like to have, and when it said so.
    pub(crate) wanted: AtomicI64,
    pub(crate) said: AtomicU64,
    /// Pages in which it can hold all that it has compressed.
    pub(crate) tight: AtomicI64,
    /// When it last faulted.
    pub(crate) faulted: AtomicU64,
    /// The slot of its parent and that slot's turn at the fork ([`Slot::lender_word`]); 0: it was not forked.
    pub(crate) lender: AtomicU64,
    /// Pages that it shares with its parent, which is charged for them.
    pub(crate) lent: AtomicI64,
    /// Pages that the program has locked, or is about to.
    pub(crate) locked: AtomicU64,
    /// Pages of the agent's in it, as of when either was last said.
    pub(crate) own: AtomicU64,
    /// 1: it cannot be asked for room.
    pub(crate) deaf: AtomicU32,
    /// 1: a process is about to ask it. It does not become another program meanwhile, which would die of being asked.
    pub(crate) asking: AtomicU32,
    /// What another process wants of its memory.
    pub(crate) visit: Visit,
}

impl Slot {
    /// The value of [`Slot::lender`] for a child of the process that has this slot in this turn.
    pub(crate) fn lender_word(slot: usize, turn: u32) -> u64 {
        (slot as u64 + 1) << 32 | u64::from(turn)
    }

    pub(crate) fn need(&self, now: u64) -> Need {
        self.need_at(now, self.faulted.load(Ordering::Relaxed))
    }

    /// The same, as if it had last faulted then.
    fn need_at(&self, now: u64, faulted: u64) -> Need {
        let since = |then: &AtomicU64| now.saturating_sub(then.load(Ordering::Relaxed));
        let (charged, wanted) = (self.charged.load(Ordering::Relaxed), self.wanted.load(Ordering::Relaxed));
        Need::of(charged, now.saturating_sub(faulted), wanted, since(&self.said), self.tight.load(Ordering::Relaxed))
    }
}

/// The segment. All zeros but the limit is a good start. Of its slots only those in use take memory.
#[repr(C)]
pub struct Shared {
    /// Pages that all may use together.
    pub limit: AtomicU64,
    /// Pages that all use.
    pub total: AtomicI64,
    /// Pages that the command takes that made the segment.
    pub command: AtomicI64,
    /// The most that `total` and `command` were together.
    pub peak: AtomicI64,
    /// Pages that all have, in memory and out of it, as [`Slot::has`].
    pub(crate) has: AtomicI64,
    /// The most that `has` and `command` were together: what the tree would have used if none of it had been stored.
    pub most: AtomicI64,
    /// Pages that all have stored so far.
    pub(crate) stored: AtomicU64,
    /// In how many pages of memory a page that came back would have stayed, for one page in 32: what all might use
    /// then, and the pages that were stored, by all, between its storing and its return.
    pub(crate) needed: Sizes,
    /// What processes counted that have ended.
    pub ended: Ended,
    /// Last time a process looked for dead ones, in nanoseconds.
    pub looked: AtomicU64,
    /// Not 0: a reader collects the figures of each process that has ended, with [`Shared::collect`].
    pub collects: AtomicU32,
    /// When a process last said what it lacks. Processes look at this when they enter the kernel.
    pub lacking: AtomicU64,
    /// Who comes first.
    pub(crate) token: Token,
    /// What the pool is asked for.
    pub(crate) plea: Plea,
    /// 1: a process lacks memory that others have, and `refault run`, which asks them for it, has not looked yet.
    /// Waited for, as a futex.
    pub asked: AtomicU32,
    /// Programs that processes were about to become so far. Waited for, as a futex.
    pub executed: AtomicU32,
    /// The namespace of the numbers by which processes are known here; 0: any.
    pub(crate) namespace: AtomicU64,
    /// Slots from here on were never used.
    pub(crate) used: AtomicU32,
    /// See [`Slot`].
    pub slots: [Slot; SLOTS],
    /// Shared pages that a process has evicted.
    pub(crate) dropped: Dropped,
    /// What the process of each slot counts. Apart from the slots, so that those not in use are never touched.
    pub(crate) figures: [Published; SLOTS],
    /// Programs that run in the tree and are not managed.
    pub unmanaged: Unmanaged,
}

/// Whether a number stands for a process of another namespace.
pub fn is_elsewhere(process: i32) -> bool {
    process >= ELSEWHERE
}

/// The number that such a process has in its own namespace, or in the one that it was forked in.
pub fn number_elsewhere(process: i32) -> Option<i32> {
    is_elsewhere(process).then_some(process - ELSEWHERE)
}

impl Shared {
    /// Processes are known here by their numbers in the namespace of the calling process.
    pub fn is_in_this_namespace(&self) {
        self.namespace.store(sys::pid_namespace(), Ordering::Relaxed);
    }

    /// By what number a process is known here that has this one in the calling process's namespace. Where `/proc` does
    /// not say which one that is, it is taken to be this one.
    pub(crate) fn known_as(&self, process: i32) -> i32 {
        let (known, here) = (self.namespace.load(Ordering::Relaxed), sys::pid_namespace());
        if known == 0 || here == 0 || known == here { process } else { ELSEWHERE + process }
    }

    /// A process is about to become another program, which may be one that is not managed.
    pub fn executes(&self) {
        self.executed.fetch_add(1, Ordering::Relaxed);
        sys::wake_everywhere(&self.executed);
    }

    /// The process of a slot is no more. What it counted is kept for the reader that collects, or added up.
    pub(crate) fn end(&self, slot: usize, process: i32) {
        let (slot, figures) = (&self.slots[slot], &self.figures[slot]);
        if self.collects.load(Ordering::Relaxed) != 0 {
            slot.process.store(-process, Ordering::SeqCst);
        } else {
            figures.end(&self.ended);
            slot.process.store(0, Ordering::SeqCst);
        }
    }

    /// Gives back what processes had that are gone, and keeps what they counted.
    pub fn bury(&self, is_gone: impl Fn(i32) -> bool) {
        for (index, slot) in self.slots.iter().enumerate() {
            let process = slot.process.load(Ordering::Acquire);
            if process > 0
                && is_gone(process)
                && slot.process.compare_exchange(process, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                let charged = slot.charged.swap(0, Ordering::Relaxed);
                self.total.fetch_sub(charged, Ordering::Relaxed);
                self.has.fetch_sub(slot.has.swap(0, Ordering::Relaxed), Ordering::Relaxed);
                self.end(index, process);
            }
        }
    }

    /// Hands over what processes counted that have ended: process, turn of its slot, figures.
    pub fn collect(&self, mut take: impl FnMut(i32, u32, &Published)) {
        for (slot, figures) in self.slots.iter().zip(&self.figures) {
            let process = slot.process.load(Ordering::Acquire);
            if process < 0
                && process != TAKEN
                && slot.process.compare_exchange(process, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                take(-process, slot.turn.load(Ordering::Relaxed), figures);
                figures.end(&self.ended);
                slot.process.store(0, Ordering::Release);
            }
        }
    }

    /// The children of a process that are in the tree or about to be: those whose [`Slot::lender`] is `word`.
    pub(crate) fn heirs(&self, word: u64) -> impl Iterator<Item = &Slot> {
        let is_there = |slot: &Slot| matches!(slot.process.load(Ordering::Acquire), TAKEN | 1..);
        self.in_use().filter(move |slot| slot.lender.load(Ordering::Relaxed) == word && is_there(slot))
    }

    /// Slots that were ever used.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Slot> + Clone {
        let used = (self.used.load(Ordering::Relaxed) as usize).min(SLOTS);
        self.slots[..used].iter()
    }

    /// Pages that the process of a slot may have, when `limit` are given out.
    pub(crate) fn allowed(&self, slot: usize, limit: u64, now: u64) -> i64 {
        if now.saturating_sub(self.lacking.load(Ordering::Relaxed)) >= share::CLAIMS_LAST {
            return i64::MAX;
        }
        let living = self.in_use().enumerate().filter(|(_, process)| process.process.load(Ordering::Relaxed) > 0);
        let others = living.clone().filter(|(index, _)| *index != slot).map(|(index, other)| (index, other.need(now)));
        let own = self.slots[slot].need(now);
        let Some(first) = self.token_holder(now) else {
            return share::allowed(limit as i64, own, others.map(|(_, need)| need));
        };
        // Who comes first and does not fault needs what it has.
        let behind = living.filter(|(index, _)| *index != first).map(|(_, other)| other.need(now));
        let division = Division::new(limit as i64, self.slots[first].need_at(now, now), behind);
        let part = |index, need| if index == first { division.of_first() } else { division.of_other(need) };
        let taken: i64 = others.map(|(index, other)| other.charged.max(part(index, other))).sum();
        (limit as i64 - taken).max(part(slot, own))
    }

    /// Below a limit of `bytes` bytes processes ask the pool for room and wait for it; 0: they do not.
    pub fn protect(&self, bytes: u64) {
        self.plea.protect(bytes / crate::PAGE as u64);
    }

    /// Bytes that processes wait for beyond the limit. They say so again if they still do.
    pub fn take_plea(&self) -> u64 {
        self.plea.take() * crate::PAGE as u64
    }

    /// Whether a process waits for the pool.
    pub fn pleads(&self) -> bool {
        self.plea.is_said()
    }

    /// Wakes who asks processes.
    pub(crate) fn ask_again(&self) {
        if self.asked.swap(1, Ordering::AcqRel) == 0 {
            sys::wake_everywhere(&self.asked);
        }
    }

    /// Does something with a process that stays the program that it is meanwhile; nothing if it is not there any more.
    pub fn while_it_stays(&self, process: i32, act: impl FnOnce()) {
        let is_it =
            |slot: &&Slot| slot.process.load(Ordering::SeqCst) == process && slot.deaf.load(Ordering::SeqCst) == 0;
        if let Some(slot) = self.in_use().find(is_it) {
            slot.asking.store(1, Ordering::SeqCst);
            if is_it(&slot) {
                act();
            }
            slot.asking.store(0, Ordering::SeqCst);
        }
    }

    /// Processes that have more than they may have while others lack it, and how many pages they have.
    pub fn with_too_much(&self) -> impl Iterator<Item = (i32, i64)> {
        let (now, limit) = (sys::now(), self.to_give_out());
        let too_much = move |(index, slot): (usize, &Slot)| {
            let (process, charged) = (slot.process.load(Ordering::Relaxed), slot.charged.load(Ordering::Relaxed));
            let allowed = self.allowed(index, limit, now).max(MIN_PAGES as i64);
            (process > 0 && charged - allowed.min(charged) >= WORTH_ASKING).then_some((process, charged))
        };
        self.in_use().enumerate().filter_map(too_much)
    }

    /// The processes that are in the tree now.
    pub fn living(&self) -> impl Iterator<Item = (&Slot, &Published)> {
        self.slots.iter().zip(&self.figures).filter(|(slot, _)| slot.process.load(Ordering::Acquire) > 0)
    }

    /// Slots whose figures are not among those of the ended.
    fn not_added(&self) -> impl Iterator<Item = (&Slot, &Published)> {
        self.slots.iter().zip(&self.figures).filter(|(slot, _)| slot.process.load(Ordering::Acquire) != 0)
    }

    /// What all processes counted, those that have ended included.
    pub fn statistics(&self) -> Statistics {
        let mut sum = self.ended.statistics.load();
        self.not_added().for_each(|(_, figures)| sum.add(&figures.statistics.load()));
        sum
    }

    /// How long the faults of all processes took.
    pub fn times(&self) -> Times {
        let sum = Times::default();
        self.ended.times.add_to(&sum);
        self.not_added().for_each(|(_, figures)| figures.times.add_to(&sum));
        sum
    }

    /// In how many pages of memory pages that came back would have stayed, for some of them, of all processes.
    pub fn needed(&self) -> &Sizes {
        &self.needed
    }

    /// Pages that all processes have locked, and those that none of them can do without, its agent's among them.
    pub(crate) fn unmovable(&self) -> u64 {
        let is_there = |slot: &&Slot| slot.process.load(Ordering::Acquire) > 0;
        let of = |slot: &Slot| {
            let locked = slot.locked.load(Ordering::SeqCst);
            MIN_PAGES + slot.own.load(Ordering::Relaxed) + if locked > MIN_LOCKED { locked } else { 0 }
        };
        self.in_use().filter(is_there).map(of).sum()
    }

    /// Whether the tree uses more than it may.
    pub fn is_over(&self) -> bool {
        self.used() > self.limit.load(Ordering::Relaxed) as i64
    }

    /// Pages that all use, the command's own among them.
    fn used(&self) -> i64 {
        self.total.load(Ordering::Relaxed) + self.command.load(Ordering::Relaxed)
    }

    /// A process uses more than before.
    pub(crate) fn raise_peak(&self) {
        self.peak.fetch_max(self.used(), Ordering::Relaxed);
    }

    /// A process has more than before, or less.
    pub(crate) fn have(&self, change: i64) {
        let has = self.has.fetch_add(change, Ordering::Relaxed) + change;
        if change > 0 {
            self.most.fetch_max(has + self.command.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// What the command that made the segment takes, in pages.
    pub fn set_command(&self, pages: u64) {
        self.command.store(i64::try_from(pages).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.raise_peak();
    }

    /// Pages that the processes may have together.
    pub(crate) fn to_give_out(&self) -> u64 {
        let command = self.command.load(Ordering::Relaxed).max(0) as u64;
        without_slack(self.limit.load(Ordering::Relaxed)).saturating_sub(command)
    }

    /// Changes what the tree may use. Processes make room when they enter the kernel, fault, or are asked to with
    /// [`MAKE_ROOM`].
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes / crate::PAGE as u64, Ordering::Relaxed);
    }

    /// Bytes that the tree may use.
    pub fn limit_bytes(&self) -> u64 {
        self.limit.load(Ordering::Relaxed) * crate::PAGE as u64
    }
}

/// Of a limit, what is given out.
pub(crate) fn without_slack(limit: u64) -> u64 {
    let (part, least, most) = SLACK;
    limit.saturating_sub((limit / part).clamp(least, most))
}
