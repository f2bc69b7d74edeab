//! What a fork and the end of the interpreter take away. A child has none of the threads of the parent's caches, and
//! none of those that held their locks. When the interpreter ends, no thread reads for a cache by Python any more.
//!
//! What such a thread would have to finish is not waited for: it is left where it is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3::prelude::*;

static GENERATION: AtomicU32 = AtomicU32::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

/// How many forks lie between the process that loaded this module and this one. Costs a load.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

unsafe extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from now on.
pub fn watch_forks() -> std::io::Result<()> {
    static WATCHED: OnceLock<libc::c_int> = OnceLock::new();
    // SAFETY: the handler only adds to an atomic number, and Python never unloads a module's code.
    let outcome = *WATCHED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(count)) });
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(outcome)) }
}

/// To be called at exit, before the interpreter is taken down.
#[pyfunction]
pub fn end() {
    ENDING.store(true, Ordering::SeqCst);
}

/// Whether the interpreter is ending.
pub fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

/// Whether what a cache has in hand may never be finished: in a child of a fork, or by Python when that is ending.
pub fn is_left(made_in: u32, is_foreign: bool) -> bool {
    made_in != generation() || is_foreign && is_ending()
}

/// Lets go of something without the interpreter's lock: a file that ends waits for reads that are under way, and they
/// may be Python's. Leaves it where it is if nothing would end them.
pub fn let_go<T: Send>(last: T, is_left: bool) {
    if is_left {
        std::mem::forget(last);
        return;
    }
    let mut last = Some(last);
    Python::try_attach(|py| {
        let last = last.take();
        py.detach(move || drop(last));
    });
}
