//! Whose memory this is, and which children share it with descriptors of their own.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use refault_linux::sys;

/// The process whose memory this is.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Children that share this memory and have descriptors of their own.
static BORROWERS: AtomicU32 = AtomicU32::new(0);

/// Another process has this table of descriptors, from which nothing of the agent's is closed then.
static SHARES_DESCRIPTORS: AtomicBool = AtomicBool::new(false);

/// A child with memory of its own is about to have this process's table of descriptors.
pub(crate) fn shares_descriptors() {
    SHARES_DESCRIPTORS.store(true, Ordering::Relaxed);
}

/// Whether what is closed here is closed for another process too.
pub(crate) fn has_shared_descriptors() -> bool {
    SHARES_DESCRIPTORS.load(Ordering::Relaxed)
}

/// A forked child has memory of its own.
pub(crate) fn owns_memory() {
    OWNER.store(sys::process_id(), Ordering::Relaxed);
    BORROWERS.store(0, Ordering::Relaxed);
}

/// A child is about to share this memory; under the engine's lock. It knows the descriptors that there are now, and
/// must be able to read what is stored, so no file is opened until [`has_memory_back`].
pub(crate) fn lends_memory() {
    BORROWERS.fetch_add(1, Ordering::Relaxed);
}

/// A child that shared this memory has left it.
pub(crate) fn has_memory_back() {
    BORROWERS.fetch_sub(1, Ordering::Relaxed);
}

/// Whether this process has descriptors beside those of the memory's owner.
pub(crate) fn borrows_memory() -> bool {
    sys::process_id() != OWNER.load(Ordering::Relaxed)
}

/// Whether a child has descriptors of its own beside this memory's.
pub(crate) fn has_borrowers() -> bool {
    BORROWERS.load(Ordering::Relaxed) > 0
}
