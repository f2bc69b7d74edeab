//! Pagers that every `fork` of the process takes along, whichever thread or library calls it.
//!
//! `pthread_atfork` has libc call [`prepare`] before it forks, and [`parent`] and [`child`] after it, all in the thread
//! that forks. So the pagers stand still only within `fork` itself. Meanwhile the thread that forks takes no lock but
//! those of libc and of other `fork` handlers. So no thread that waits for a page can keep it waiting, whatever locks
//! that thread holds (an interpreter's, for one).
//!
//! Invariants: [`KNOWN`] is held from `prepare` to `parent` or `child`. So one thread forks at a time, no pager is
//! added meanwhile, and the child finds the lock free. `prepare` waits until all threads are out of the gates. They
//! take no lock of the program while they are inside.
//!
//! Handlers that were registered before ours are prepared after it. One of them that waits for a thread which touches a
//! region would wait for ever.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::fork::ForkTicket;
use crate::pager::{Pager, Shared};

/// Those that are taken along, as long as they live.
static KNOWN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// A fork that this thread has begun.
struct UnderWay {
    prepared: Vec<(Pager, ForkTicket)>,
    /// Let go of last.
    known: MutexGuard<'static, Vec<Weak<Shared>>>,
}

thread_local! {
    static UNDER_WAY: RefCell<Option<UnderWay>> = const { RefCell::new(None) };
}

impl Pager {
    /// From now on every `fork` of the process gives the child this pager's regions as they are, in a budget of its
    /// own. `vfork` and `posix_spawn` do not. [`Pager::before_fork`] and its kin are not to be called then. What fails
    /// is said on standard error: the child goes on, and is ended by a signal if it touches a region.
    pub fn take_along_in_forks(&self) -> std::io::Result<()> {
        static REGISTERED: OnceLock<libc::c_int> = OnceLock::new();
        // SAFETY: the three functions take nothing, stay as long as this code, and let no panic out.
        let register = || unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        let outcome = *REGISTERED.get_or_init(register);
        if outcome != 0 {
            return Err(std::io::Error::from_raw_os_error(outcome));
        }
        let mut known = known();
        known.retain(|pager| pager.strong_count() > 0);
        known.push(Arc::downgrade(&self.0));
        Ok(())
    }
}

fn known() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the pagers, in the order in which they were made. A panic ends the process: `extern "C"` lets none out.
unsafe extern "C" fn prepare() {
    let known = known();
    let mut prepared = Vec::new();
    for pager in known.iter().filter_map(Weak::upgrade).map(Pager) {
        match pager.before_fork(0) {
            Ok(ticket) => prepared.push((pager, ticket)),
            Err(error) => crate::report::say(format_args!(
                "a forked child will not have the memory of a budget: {}",
                refault_store::ErrorNumber::from(&error)
            )),
        }
    }
    UNDER_WAY.with_borrow_mut(|under_way| *under_way = Some(UnderWay { prepared, known }));
}

unsafe extern "C" fn parent() {
    let Some(UnderWay { prepared, known }) = UNDER_WAY.take() else { return };
    // All run again before any is let go of: the last handle stops a pager's threads.
    let mut pagers = Vec::with_capacity(prepared.len());
    for (pager, ticket) in prepared {
        pager.after_fork_in_parent(ticket);
        pagers.push(pager);
    }
    drop(known);
}

unsafe extern "C" fn child() {
    let Some(UnderWay { prepared, known }) = UNDER_WAY.take() else { return };
    // All of them before the first starts threads: a stack, or what libc maps for a new thread's allocations, may lie
    // where another pager's regions are to be. What fails is said below.
    for (pager, _) in &prepared {
        let _ = pager.inner().arena.hold_after_fork();
    }
    let mut pagers = Vec::with_capacity(prepared.len());
    for (pager, ticket) in prepared {
        if let Err(error) = pager.after_fork_in_child(ticket) {
            crate::report::say(format_args!(
                "memory of a budget is lost in a forked child: {}",
                refault_store::ErrorNumber::from(&error)
            ));
            // Its threads do not run: it cannot be stopped either.
            std::mem::forget(pager);
        } else {
            pagers.push(pager);
        }
    }
    drop(known);
}
