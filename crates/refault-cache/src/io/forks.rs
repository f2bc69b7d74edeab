//! Children of `fork` have no part in their parent's caches. The threads that read are not there, and a thread that
//! held a lock may be gone. What was pinned stays as it was for them, as all memory does.
//!
//! libc counts forks here (`pthread_atfork`); what was made before the last one is another process's. Cost: a load per
//! use.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Where something was made: in this process, or in one that it was forked from.
#[derive(Clone, Copy)]
pub(crate) struct Origin(u32);

impl Origin {
    /// Here.
    pub(crate) fn here() -> Origin {
        static COUNTS: OnceLock<bool> = OnceLock::new();
        // SAFETY: the handler adds to a number, which a child may do. Without memory for it forks are not noticed.
        COUNTS.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0);
        Origin(FORKS.load(Ordering::Relaxed))
    }

    /// Whether that is this process.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }

    /// An error if it is not.
    pub(crate) fn check(self) -> io::Result<()> {
        let told =
            "the file was opened by the process that this one was forked from: open it anew, in a cache of its own";
        if self.is_here() { Ok(()) } else { Err(io::Error::other(told)) }
    }
}
