//! Calls that change page-table entries take turns.
//!
//! While one thread is between changing entries and flushing TLBs, the kernel makes every other call that ends in the same
//! address space flush all of it on all processors, although it may have found nothing to change (`mm_tlb_flush_nested`; the
//! other call might have seen an entry that is gone but still cached). In a virtual machine each of those costs more than
//! compressing a page. So write-protecting, punching and dropping are done by one thread at a time in a process. Before
//! and after, zipf with two threads, one run each: 44 and 36 µs of processor time a fault.
//!
//! Invariant: whoever holds the turn does nothing else and takes no other lock. It lasts for a batch of such calls, at most
//! some 0.3 ms, so that threads do not hand it over for each of them. Fills need no turn: they add entries.

use std::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::new(());

/// The right to change page-table entries, asked for by all calls that do.
pub(crate) struct Turn(#[expect(dead_code, reason = "held, not looked at")] MutexGuard<'static, ()>);

impl Turn {
    /// Waits for this thread's turn, which lasts until the value is dropped.
    pub(crate) fn take() -> Turn {
        Turn(TURN.lock().expect("invariant: nothing panics under this lock"))
    }
}
