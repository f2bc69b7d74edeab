//! The engine under its one lock, and what a call in progress holds of memory.
//!
//! Invariant: no code of the program's runs while the lock is held. A thread that waits for a child which was killed
//! with the lock ends the program in words. Cost: an exchange, and a wait while another thread's fault is served.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use refault_linux::calls::SYS_kill;
use refault_linux::errno::ESRCH;
use refault_linux::lock::{Held, Lock};
use refault_linux::{proc, sys};
use refault_paging::{Engine, Shared};

use crate::library::report;
use crate::process::owner;
use crate::thread::Thread;

/// In the agent's area, not in the library's data: leak checkers take what lies there for the program's pointers.
static ENGINE: Lock<Option<Box<Engine>>> = Lock::new(None);
/// The segment of the tree.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
/// The budget when it was last looked at, in pages.
static SEEN_LIMIT: AtomicU64 = AtomicU64::new(0);
/// `Shared::lacking` as this process last acted on it.
static SEEN_LACKING: AtomicU64 = AtomicU64::new(0);
/// The process that holds the lock, if it is one that borrows this memory; 0: it is not.
static BORROWER: AtomicI32 = AtomicI32::new(0);
/// See [`is_child`].
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// The engine, locked.
pub(crate) struct Paging(Held<'static, Option<Box<Engine>>>);

impl std::ops::Deref for Paging {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        self.0.as_deref().expect("invariant: set at the start")
    }
}

impl std::ops::DerefMut for Paging {
    fn deref_mut(&mut self) -> &mut Engine {
        self.0.as_deref_mut().expect("invariant: set at the start")
    }
}

impl Drop for Paging {
    fn drop(&mut self) {
        if BORROWER.load(Ordering::Relaxed) != 0 {
            BORROWER.store(0, Ordering::Relaxed);
        }
    }
}

/// Locks the engine.
pub(crate) fn paging() -> Paging {
    let held = ENGINE.lock_or_look(look_at_borrower);
    if owner::has_borrowers() && owner::borrows_memory() {
        BORROWER.store(sys::process_id(), Ordering::Relaxed);
    }
    Paging(held)
}

/// A child that shares this memory may have been killed while it held the lock: what it was changing is not whole.
fn look_at_borrower() {
    let borrower = BORROWER.load(Ordering::Relaxed);
    if borrower != 0 && is_dead(borrower) {
        report::end(format_args!("a child that shared this memory was killed while it used it"));
    }
}

/// Whether a process is gone, or waits to be waited for.
fn is_dead(process: i32) -> bool {
    const SIGNAL_NONE: usize = 0;
    // SAFETY: sends nothing.
    if unsafe { sys::call(SYS_kill, [process as usize, SIGNAL_NONE, 0, 0, 0, 0]) } == ESRCH {
        return true;
    }
    let path = CString::new(format!("/proc/{process}/stat"));
    let status = path.ok().and_then(|path| proc::read(&path));
    // Its name, in brackets, may hold anything.
    status.is_some_and(|status| {
        matches!(status.rsplit(") ").next().and_then(|rest| rest.chars().next()), Some('Z' | 'X'))
    })
}

/// Sets the engine.
pub(crate) fn begin(mut engine: Box<Engine>) {
    let shared = std::ptr::from_ref(engine.account().shared());
    SHARED.store(shared.cast_mut(), Ordering::Relaxed);
    *ENGINE.lock() = Some(engine);
}

/// Makes room once if the budget has changed, or others of the tree lack memory.
pub(crate) fn follow_the_budget() {
    let Some(shared) = segment() else { return };
    let limit = shared.limit.load(Ordering::Relaxed);
    let lacking = shared.lacking.load(Ordering::Relaxed);
    let is_news =
        |seen: &AtomicU64, now| seen.load(Ordering::Relaxed) != now && seen.swap(now, Ordering::Relaxed) != now;
    if is_news(&SEEN_LIMIT, limit) | is_news(&SEEN_LACKING, lacking) {
        paging().give_room();
    }
    if IS_CHILD.load(Ordering::Relaxed) {
        paging().count_what_was_written();
    }
}

/// What the processes of the tree share.
pub(crate) fn segment() -> Option<&'static Shared> {
    // SAFETY: the segment stays mapped.
    unsafe { SHARED.load(Ordering::Relaxed).as_ref() }
}

/// This process is a child of a fork, which shares pages with its parent until it writes to them.
pub(crate) fn is_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Brings the managed part of a range in for the call in progress, and keeps it there until [`release`].
pub(crate) fn hold(thread: &mut Thread, start: usize, bytes: usize, write: bool) {
    if bytes == 0 {
        return;
    }
    let mut paging = paging();
    if paging.manages(start, bytes) {
        paging.hold_for_call(start, bytes, write);
        thread.holds.push((start, bytes));
    }
}

/// The call in progress needs nothing any more.
pub(crate) fn release(thread: &mut Thread) {
    if thread.holds.is_empty() {
        return;
    }
    let mut paging = paging();
    while let Some((start, bytes)) = thread.holds.pop() {
        paging.release(start, bytes);
    }
}
