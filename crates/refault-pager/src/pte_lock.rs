//! The lock under which page-table entries are changed: one call of a process at a time.
//!
//! While one thread is between changing entries and flushing TLBs, other calls may end in the same address space. The
//! kernel makes each of those flush all of that space on all processors, although it may have found nothing to change
//! (`mm_tlb_flush_nested`; the other call might have seen an entry that is gone but still cached). In a virtual machine
//! each of those costs more than compressing a page. So write-protecting, punching and dropping are done by one thread
//! at a time in a process. Before and after, zipf with two threads, one run each: 44 and 36 µs of processor time per
//! fault.
//!
//! Invariant: its holder does nothing else and takes no other lock. A thread that makes several calls lets others in
//! between ([`PteLock::bump`]), so it is held for one call: some 4 µs, or some 0.5 ms where many entries are dropped. A
//! thread that waits spins for a while: sleeping and waking takes longer, and on an idle processor much longer. Fills
//! do not take it: they add entries.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

static LOCK: Mutex<()> = Mutex::new(());

/// Threads that wait for the lock.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// How often a waiting thread looks before it sleeps: some 0.2 ms.
const SPINS: u32 = 8000;

/// How often the thread that bumped the lock looks whether another has taken it: some 2 µs.
const PASSES: u32 = 64;

/// The right to change page-table entries, asked for by all calls that do.
pub(crate) struct PteLock(Option<MutexGuard<'static, ()>>);

impl PteLock {
    /// Waits for the lock; it is held until the value is dropped.
    pub(crate) fn lock() -> PteLock {
        PteLock(Some(lock()))
    }

    /// Lets another thread go first if one waits.
    pub(crate) fn bump(&mut self) {
        if WAITING.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.0 = None;
        for _ in 0..PASSES {
            if WAITING.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        self.0 = Some(lock());
    }
}

fn lock() -> MutexGuard<'static, ()> {
    if let Some(held) = try_lock() {
        return held;
    }
    WAITING.fetch_add(1, Ordering::Relaxed);
    let spun = (0..SPINS).find_map(|_| {
        std::hint::spin_loop();
        try_lock()
    });
    let held = spun.unwrap_or_else(|| LOCK.lock().expect(UNPOISONED));
    WAITING.fetch_sub(1, Ordering::Relaxed);
    held
}

fn try_lock() -> Option<MutexGuard<'static, ()>> {
    match LOCK.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(_)) => panic!("{UNPOISONED}"),
    }
}

const UNPOISONED: &str = "invariant: nothing panics under this lock";
