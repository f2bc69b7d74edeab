//! Reservations under `ulimit -v` and `ulimit -d`: addresses count there, whether memory lies behind them or not.
//!
//! Without limits everything is reserved so large that nobody meets the end. With one, half of the addresses are for managed
//! memory, a quarter for the compressed pool, and a quarter stays for the program. Cost: two system calls a question.

use rustix::process::{Resource, getrlimit};

/// The limits on all addresses and on private writable ones; enormous without.
fn limits() -> (u64, u64) {
    let current = |resource| getrlimit(resource).current.unwrap_or(1 << 60);
    (current(Resource::As), current(Resource::Data))
}

/// Bytes of addresses for managed memory. Their page table is private.
pub(crate) fn arena_bytes(most: u64) -> u64 {
    let (all, private) = limits();
    most.min(all / 2).min(private.saturating_mul(16))
}

/// Bytes of the agent's own heap.
pub(crate) fn heap_bytes(most: u64) -> u64 {
    let (all, private) = limits();
    (most.min(all / 32).min(private / 8) & !0xffff).max(1 << 20)
}

/// Bytes of the compressed pool.
pub(crate) fn pool_bytes(most: u64) -> u64 {
    let (all, private) = limits();
    most.min(all / 4).min(private / 2)
}

/// Bytes of a file store, whose checksums are kept in memory.
pub(crate) fn file_bytes(most: u64) -> u64 {
    let (all, private) = limits();
    most.min(all.saturating_mul(2)).min(private.saturating_mul(2))
}

/// There is no heap, so nothing may be allocated.
pub(crate) fn end_without_addresses() -> ! {
    const LINE: &[u8] =
        b"refault: no addresses are left for the agent: the limit on them (ulimit -v, ulimit -d) is too low\n";
    let _ = rustix::io::write(rustix::stdio::stderr(), LINE);
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(1) }
}
