//! What a tree of processes may use together, and who uses how much: a small segment that all of them map.
//!
//! Each process has a slot with its charge; the sum is kept beside them. A process that died without giving its charge
//! back is found when somebody needs room.
//!
//! Invariants: the sum is that of the slots, up to calls in progress; a process changes no slot but its own, except
//! those of the dead. Cost: one atomic addition when a charge changes.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::engine::Statistics;
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
    /// Something of this process is unmanaged and worth a line.
    pub flags: AtomicU32,
    /// Pages charged.
    pub charged: AtomicI64,
}

/// The segment. All zeros but the limit is a good start.
#[repr(C)]
pub struct Shared {
    /// Pages that all may use together.
    pub limit: AtomicU64,
    /// Pages that all use.
    pub total: AtomicI64,
    /// The most that `total` was.
    pub peak: AtomicI64,
    /// Faults served.
    pub faults: AtomicU64,
    /// Pages stored.
    pub stored: AtomicU64,
    /// Pages read back.
    pub read_back: AtomicU64,
    /// Nanoseconds that threads waited for faults.
    pub waited: AtomicU64,
    /// Last time somebody looked for dead processes, in nanoseconds.
    pub looked: AtomicU64,
    /// Bytes of mappings that could not be managed: by reason.
    pub escaped: [AtomicI64; 8],
    /// See [`Slot`].
    pub slots: [Slot; SLOTS],
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
        self.slot = self
            .shared()
            .slots
            .iter()
            .position(|slot| slot.process.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok());
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
        let shared = self.shared();
        shared.faults.fetch_add(statistics.faults, Ordering::Relaxed);
        shared.stored.fetch_add(statistics.stored, Ordering::Relaxed);
        shared.read_back.fetch_add(statistics.read_back, Ordering::Relaxed);
        shared.waited.fetch_add(statistics.waited, Ordering::Relaxed);
        self.charge(self.inherited as u64);
        if let Some(slot) = self.slot.take() {
            self.shared().slots[slot].process.store(0, Ordering::Release);
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
        bury(shared);
    }
}

/// Gives back what processes had that are dead.
pub fn bury(shared: &Shared) {
    for slot in &shared.slots {
        let process = slot.process.load(Ordering::Acquire);
        // SAFETY: signal 0 asks only.
        if process != 0 && unsafe { sys::call(62, [process as usize, 0, 0, 0, 0, 0]) } == -3 {
            let charged = slot.charged.load(Ordering::Relaxed);
            if slot.process.compare_exchange(process, -1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                slot.charged.store(0, Ordering::Relaxed);
                shared.total.fetch_sub(charged, Ordering::Relaxed);
                slot.process.store(0, Ordering::Release);
            }
        }
    }
}
