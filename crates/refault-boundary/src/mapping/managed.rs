//! Managed memory as calls see it: how much they may hold, and calls about it made by the kernel.

use refault_linux::sys;
use refault_paging::PAGE;

use crate::engine_lock::{Paging, paging};

/// Buffers that are always held whole.
pub(crate) const ALWAYS_WHOLE: usize = 64 << 10;
/// Bytes of a populated range that are brought in at a time.
const PIECE: usize = 1 << 20;

pub(crate) fn make(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: the program's own call.
    unsafe { sys::make(number, arguments) }
}

pub(crate) fn pages(bytes: usize) -> usize {
    bytes.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Brings a range in, a piece at a time, and does something with each until that fails.
pub(crate) fn bring_in(
    paging: &mut Paging,
    start: usize,
    bytes: usize,
    write: bool,
    with: impl Fn(usize, usize) -> isize,
) -> isize {
    for at in (start..start + bytes).step_by(PIECE) {
        let piece = (start + bytes - at).min(PIECE);
        paging.hold(at, piece, write);
        let error = with(at, piece);
        paging.release(at, piece);
        if error < 0 {
            return error;
        }
    }
    0
}

/// Bytes that a call holds at once at most: a quarter of the budget, or half of what this process can keep in memory
/// now, if others leave it less. With more than it can keep, the pages that a call needs would evict one another. A
/// call that is made again after each signal would never have all of them.
pub(crate) fn most_held() -> usize {
    let can_keep = paging().can_keep() * PAGE;
    quarter_of_budget().min(can_keep / 2).max(ALWAYS_WHOLE) & !(PAGE - 1)
}

/// Bytes that a call holds at once at most where no other process takes memory.
pub(crate) fn quarter_of_budget() -> usize {
    let limit = paging().account().tree_limit() as usize * PAGE;
    (limit / 4).clamp(ALWAYS_WHOLE, 16 << 20) & !(PAGE - 1)
}

/// Whether any of the program's memory there is managed.
pub(crate) fn is_managed(start: usize, bytes: usize) -> bool {
    paging().manages(start, bytes)
}
