//! What a tree of processes may use together, and who uses how much: a small segment that all of them map.
//!
//! Each process has a slot with its charge; the sum is kept beside them. A process that died without giving its charge
//! back is found when somebody needs room.
//!
//! Invariants: the sum is that of the slots, up to calls in progress; a process changes no slot but its own, except
//! those of the dead. Cost: one atomic addition when a charge changes.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use refault_core::Counters;
use refault_core::policy::GenerationSize;

use crate::figures::{Ended, Published, Statistics, Times, Usage};
use crate::sys;

/// Processes that can be in a tree at once; more are charged to nobody.
pub const SLOTS: usize = 2048;
/// Pages that a process may use whatever the others do: with less it does not get on.
pub const MIN_PAGES: u64 = 128;

/// One process.
#[repr(C)]
pub struct Slot {
    /// 0: free.
    pub process: AtomicI32,
    /// Processes that had the slot: tells one from the next.
    pub turn: AtomicU32,
    /// Pages charged.
    pub charged: AtomicI64,
}

/// The segment. All zeros but the limit is a good start. Of its slots only those in use take memory.
#[repr(C)]
pub struct Shared {
    /// Pages that all may use together.
    pub limit: AtomicU64,
    /// Pages that all use.
    pub total: AtomicI64,
    /// The most that `total` was.
    pub peak: AtomicI64,
    /// What processes counted that have ended.
    pub ended: Ended,
    /// Last time somebody looked for dead processes, in nanoseconds.
    pub looked: AtomicU64,
    /// See [`Slot`].
    pub slots: [Slot; SLOTS],
    /// What the process of each slot counts. Apart from the slots, so that those not in use are never touched.
    figures: [Published; SLOTS],
}

/// A process's part in it.
pub struct Account {
    shared: *const Shared,
    slot: Option<usize>,
    charged: i64,
    /// Pages of its own budget, if it has one.
    own_limit: Option<u64>,
    /// Inherited from the parent and charged there.
    inherited: i64,
}

// SAFETY: the segment holds atomics only and stays mapped.
unsafe impl Send for Account {}

impl Account {
    /// Joins a tree.
    ///
    /// # Safety
    /// The segment stays mapped as long as the process lives.
    pub unsafe fn join(shared: *const Shared, own_limit: Option<u64>) -> Account {
        let mut account = Account { shared, slot: None, charged: 0, own_limit, inherited: 0 };
        account.enter();
        account
    }

    /// The segment.
    pub fn shared(&self) -> &Shared {
        // SAFETY: it stays mapped (promised to `join`).
        unsafe { &*self.shared }
    }

    fn enter(&mut self) {
        let me = sys::process_id();
        let slots = &self.shared().slots;
        let free = |slot: &Slot| slot.process.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = slots.iter().position(free);
        if let Some(slot) = slot {
            slots[slot].turn.fetch_add(1, Ordering::Relaxed);
        }
        self.slot = slot;
    }

    /// Makes the counts known.
    pub fn publish(&self, statistics: &Statistics) {
        if let Some(slot) = self.slot {
            self.shared().figures[slot].statistics.store(statistics);
        }
    }

    /// Makes known where memory is and what the policy says.
    pub fn publish_state(&self, usage: &Usage, counters: &Counters, generations: &[GenerationSize]) {
        if let Some(slot) = self.slot {
            let figures = &self.shared().figures[slot];
            figures.usage.store(usage);
            figures.store_policy(counters, generations);
        }
    }

    /// A fault took so long.
    pub fn took(&self, nanoseconds: u64) {
        if let Some(slot) = self.slot {
            self.shared().figures[slot].times.count(nanoseconds);
        }
    }

    /// In a forked child: what it inherited stays charged to the parent until the child has pages of its own.
    pub fn after_fork(&mut self) {
        self.inherited += self.charged;
        self.charged = 0;
        self.enter();
    }

    /// Pages that this process may use now.
    pub fn limit(&self) -> u64 {
        let shared = self.shared();
        let limit = self.own_limit.unwrap_or_else(|| shared.limit.load(Ordering::Relaxed));
        let others = if self.own_limit.is_some() { 0 } else { shared.total.load(Ordering::Relaxed) - self.charged };
        (limit as i64 - others.max(0)).max(MIN_PAGES as i64) as u64 + self.inherited as u64
    }

    /// What the tree may use.
    pub fn tree_limit(&self) -> u64 {
        self.own_limit.unwrap_or_else(|| self.shared().limit.load(Ordering::Relaxed))
    }

    /// This process uses so many pages now.
    pub fn charge(&mut self, pages: u64) {
        let pages = (pages as i64 - self.inherited).max(0);
        let change = pages - self.charged;
        if change == 0 {
            return;
        }
        self.charged = pages;
        let shared = self.shared();
        let total = shared.total.fetch_add(change, Ordering::Relaxed) + change;
        if change > 0 {
            shared.peak.fetch_max(total, Ordering::Relaxed);
        }
        if let Some(slot) = self.slot {
            shared.slots[slot].charged.store(pages, Ordering::Relaxed);
        }
    }

    /// The process ends, or becomes another program.
    pub fn leave(&mut self, statistics: &Statistics) {
        self.publish(statistics);
        self.charge(self.inherited as u64);
        if let Some(slot) = self.slot.take() {
            let shared = self.shared();
            shared.figures[slot].end(&shared.ended);
            shared.slots[slot].process.store(0, Ordering::Release);
        }
    }

    /// It did not become another program after all.
    pub fn enter_again(&mut self) {
        self.enter();
    }

    /// Gives back what processes had that are dead. At most ten times per second.
    pub fn bury(&self) {
        let shared = self.shared();
        let (now, looked) = (sys::now(), shared.looked.load(Ordering::Relaxed));
        if now.saturating_sub(looked) < 100_000_000
            || shared.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        shared.bury(is_gone);
    }
}

/// Whether there is no such process. One that has ended and was not waited for is there.
fn is_gone(process: i32) -> bool {
    // SAFETY: signal 0 asks only.
    unsafe { sys::call(62, [process as usize, 0, 0, 0, 0, 0]) == -3 }
}

impl Shared {
    /// Gives back what processes had that are gone, and keeps what they counted.
    pub fn bury(&self, is_gone: impl Fn(i32) -> bool) {
        for (slot, figures) in self.slots.iter().zip(&self.figures) {
            let process = slot.process.load(Ordering::Acquire);
            if process > 0
                && is_gone(process)
                && slot.process.compare_exchange(process, -1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                let charged = slot.charged.swap(0, Ordering::Relaxed);
                self.total.fetch_sub(charged, Ordering::Relaxed);
                figures.end(&self.ended);
                slot.process.store(0, Ordering::Release);
            }
        }
    }

    /// The processes that are in the tree now.
    pub fn living(&self) -> impl Iterator<Item = (&Slot, &Published)> {
        self.slots.iter().zip(&self.figures).filter(|(slot, _)| slot.process.load(Ordering::Acquire) > 0)
    }

    /// What all processes counted, those that have ended included.
    pub fn statistics(&self) -> Statistics {
        let mut sum = self.ended.statistics.load();
        self.living().for_each(|(_, figures)| sum.add(&figures.statistics.load()));
        sum
    }

    /// How long the faults of all processes took.
    pub fn times(&self) -> Times {
        let sum = Times::default();
        self.ended.times.add_to(&sum);
        self.living().for_each(|(_, figures)| figures.times.add_to(&sum));
        sum
    }

    /// Bytes that the tree may use.
    pub fn limit_bytes(&self) -> u64 {
        self.limit.load(Ordering::Relaxed) * crate::PAGE as u64
    }

    /// Maps a segment that was made with [`Shared::BYTES`] bytes of zeros, for as long as this process lives.
    ///
    /// # Errors
    /// There are no addresses, or the descriptor is none of a segment.
    pub fn map(descriptor: i32) -> Result<&'static Shared, i32> {
        // SAFETY: a fresh shared mapping.
        let at = unsafe { sys::call(sys::nr::MMAP, [0, Shared::BYTES, 3, 1, descriptor as usize, 0]) };
        // SAFETY: atomics for which zeros are values; nothing unmaps it.
        if at > 0 { Ok(unsafe { &*(at as *const Shared) }) } else { Err(-at as i32) }
    }

    /// Bytes of a segment.
    pub const BYTES: usize = size_of::<Shared>().next_multiple_of(crate::PAGE);
}
