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

/// The value of a queued SIGSYS that asks a thread to make room: a word that no program queues by chance.
pub const MAKE_ROOM: usize = usize::from_le_bytes(*b"refault!");
/// See [`Slot::process`].
const TAKEN: i32 = i32::MIN;

/// One process.
#[repr(C)]
pub struct Slot {
    /// 0: free; negative: of a process that has ended, whose figures are still there; [`TAKEN`]: changing hands.
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
    /// Not 0: somebody collects the figures of each process that has ended, with [`Shared::collect`].
    pub collects: AtomicU32,
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
        let slot = slots.iter().position(free).or_else(|| {
            // Nobody has come yet for the figures of those that have ended.
            self.shared().collect(|_, _, _| {});
            slots.iter().position(free)
        });
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

    /// Makes known what is in memory: pages where they belong, pages in the staging area, bytes of the pool.
    pub fn publish_memory(&self, resident: u64, parked: u64, pool: u64) {
        if let Some(slot) = self.slot {
            self.shared().figures[slot].usage.store_memory(resident, parked, pool);
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

    /// A thread waits for a page that was there before, or does no longer.
    pub fn stalls(&self, stalls: bool) {
        if let Some(slot) = self.slot {
            self.shared().figures[slot].stalled.store(u32::from(stalls), Ordering::Relaxed);
        }
    }

    /// A page has come back after so many others were stored.
    pub fn came_back(&self, distance: u64) {
        if let Some(slot) = self.slot {
            self.shared().figures[slot].distances.count(distance);
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
            self.shared().end(slot, sys::process_id());
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
    /// The process of a slot is no more. What it counted is kept for whoever collects, or added up.
    fn end(&self, slot: usize, process: i32) {
        let (slot, figures) = (&self.slots[slot], &self.figures[slot]);
        if self.collects.load(Ordering::Relaxed) != 0 {
            slot.process.store(-process, Ordering::Release);
        } else {
            figures.end(&self.ended);
            slot.process.store(0, Ordering::Release);
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

    /// Whether the tree uses more than it may.
    pub fn is_over(&self) -> bool {
        self.total.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed) as i64
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
