//! Whether patched sites jump to the agent, and which calls may be made from one.

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::table::{self, By};

/// Not 0: every call of a patched site goes to its stub.
pub(super) static OFF: AtomicU32 = AtomicU32::new(1);

/// Patched sites may come here.
pub(crate) fn turn_on() {
    OFF.store(0, Ordering::SeqCst);
}

/// Patched sites make their calls by their stubs from now on.
pub(crate) fn turn_off() {
    OFF.store(1, Ordering::SeqCst);
}

/// Whether they do.
pub(crate) fn is_on() -> bool {
    OFF.load(Ordering::Relaxed) == 0
}

/// Whether the processor has what patched sites need: compacted states. Not asked before sites are patched, as a
/// virtual machine's host answers, which takes 10 µs each time.
pub(crate) fn has_compacted_states() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const XSAVEC: u32 = 2;
    __cpuid(0).eax >= 13 && __cpuid(1).ecx & OSXSAVE != 0 && __cpuid_count(13, 1).eax & XSAVEC != 0
}

/// Whether a call may be made from a patched site, by its number alone.
pub(crate) fn is_frequent(number: usize) -> bool {
    is_served(number) || table::of(number).is_some_and(|row| row.jumps)
}

/// The calls that the agent serves itself, and that need nothing of the interrupted program but its mask: actions, mask
/// and mappings.
pub(super) fn is_served(number: usize) -> bool {
    table::of(number).is_some_and(|row| matches!(row.by, By::Actions | By::Mask | By::Mapping))
}
