//! Threads of the agent beside those of the pager: statistics, monitor, recorder.
//!
//! They never touch managed memory, so that they run while it is not served, and they block all signals, because a signal
//! handler of the program would touch it.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// How many there are.
pub(crate) fn count() -> usize {
    RUNNING.load(Ordering::Relaxed)
}

/// In a forked child none of them runs.
pub(crate) fn forget() {
    RUNNING.store(0, Ordering::Relaxed);
}

/// Starts one; returns when it runs.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let signals = crate::block_signals();
    let runs = Arc::new(Barrier::new(2));
    let thread_runs = runs.clone();
    let body = move || {
        crate::heap::own_this_thread();
        thread_runs.wait();
        drop(thread_runs);
        body();
    };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    drop(signals);
    started?;
    runs.wait();
    RUNNING.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
