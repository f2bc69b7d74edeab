//! Threads that are there before the agent: constructors of libraries start some, as pools for linear algebra do.
//!
//! The first thread sends each a signal before anything is managed. Its handler runs on the thread's own stack, for the
//! last time: it gives the thread what all others begin with, a block, the block's stack for signals, and calls that come
//! to the agent. A thread that has the agent's signals blocked cannot be reached, nor served when it faults: its process
//! is not managed.
//!
//! Invariant: when [`all`] has returned, each thread has a block. Cost: a signal for each of them; afterwards a look at
//! a flag for each signal.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use refault_linux::calls::SYS_tgkill;
use refault_linux::signals::{SIGSYS, SS_ONSTACK};
use refault_linux::sys;

use crate::engine_lock::paging;
use crate::frame::{AlternateStack, Context};
use crate::patched::{fast, switch};
use crate::process::robust;
use crate::signals::sets::{ALWAYS_OPEN, Actions};
use crate::thread::Thread;
use crate::user_dispatch;

static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);
static ACTIONS: AtomicPtr<Actions> = AtomicPtr::new(std::ptr::null_mut());
static ADOPTED: AtomicUsize = AtomicUsize::new(0);

/// How long a thread may take to come, in all: one that the kernel does not let go on (a device) never does.
const PATIENCE_NS: u64 = 5_000_000_000;

/// The other threads of this process.
fn others() -> Vec<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let numbers = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    numbers.filter(|number| *number != sys::thread_id()).collect()
}

/// Whether a thread is there that cannot be adopted. One that has just been started has all signals blocked for a moment.
pub(crate) fn is_impossible() -> bool {
    const LOOKS: usize = 200;
    let is_reachable = |thread: &usize| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
        let blocked = refault_linux::proc::status_field(&status, "SigBlk");
        blocked.and_then(|set| u64::from_str_radix(set, 16).ok()).is_none_or(|set| set & ALWAYS_OPEN == 0)
    };
    for _ in 0..LOOKS {
        if others().iter().all(is_reachable) {
            return false;
        }
        sys::sleep(1_000_000);
    }
    true
}

/// Adopts all threads.
///
/// # Errors
/// One does not come.
pub(crate) fn all(actions: *mut Actions) -> Result<(), &'static str> {
    let mut asked: Vec<usize> = Vec::new();
    let deadline = sys::clock() + PATIENCE_NS;
    ACTIONS.store(actions, Ordering::Relaxed);
    IS_UNDER_WAY.store(true, Ordering::SeqCst);
    loop {
        let now = others();
        // They may start others meanwhile, and end.
        let new: Vec<usize> = now.iter().copied().filter(|thread| !asked.contains(thread)).collect();
        if !now.is_empty() && asked.is_empty() {
            paging().threads(true);
        }
        for thread in &new {
            // SAFETY: sends a signal that the agent handles.
            unsafe { sys::call(SYS_tgkill, [sys::process_id() as usize, *thread, SIGSYS as usize, 0, 0, 0]) };
        }
        asked.extend(&new);
        let waits = now.iter().filter(|thread| asked.contains(thread)).count() > ADOPTED.load(Ordering::Acquire);
        if new.is_empty() && !waits {
            IS_UNDER_WAY.store(false, Ordering::SeqCst);
            return Ok(());
        }
        if sys::clock() > deadline {
            return Err("a thread that a library has started before does not react");
        }
        sys::sleep(200_000);
    }
}

/// The thread whose handler runs, `context` being what it interrupted, if that thread has just been adopted.
pub(crate) fn adopt(context: &mut Context) -> Option<&'static mut Thread> {
    let place = std::ptr::from_mut(context) as usize;
    if !IS_UNDER_WAY.load(Ordering::Relaxed) || Thread::has_block(place) {
        return None;
    }
    let thread = Thread::new(ACTIONS.load(Ordering::Relaxed))?;
    thread.alternate = AlternateStack { flags: context.stack.flags & !SS_ONSTACK, ..context.stack };
    thread.hidden = context.mask & ALWAYS_OPEN;
    context.mask &= !ALWAYS_OPEN;
    let (start, bytes) = thread.stack();
    // The kernel takes it when the handler returns.
    context.stack = AlternateStack { start, flags: 0, unused: 0, bytes };
    robust::look(thread);
    if switch::is_on() {
        fast::install(thread);
    }
    crate::library::report::needs("a thread's calls cannot be caught", user_dispatch::dispatch_on());
    ADOPTED.fetch_add(1, Ordering::Release);
    Some(thread)
}
