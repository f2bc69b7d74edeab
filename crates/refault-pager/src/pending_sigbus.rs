//! SIGBUS that is sent to a thread while it is inside the pager, kept pending until it leaves.
//!
//! Where faults are served in the thread, SIGBUS cannot be blocked. The program's handler for it would touch memory
//! inside the pager and wait for its own thread. Invariants: at most one is kept for a thread, as the kernel keeps one;
//! nothing is allocated. Cost: a relaxed load when a thread leaves the pager.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Threads for which one is kept at once; beyond these it is as if it had not been sent.
const MAX_PENDING: usize = 64;

/// Threads of [`Pending::thread`] that are none: free, being used, whichever leaves first.
const FREE: i32 = 0;
const BUSY: i32 = -1;
const ANY: i32 = -2;

struct Pending {
    thread: AtomicI32,
    info: UnsafeCell<MaybeUninit<libc::siginfo_t>>,
}

// SAFETY: the cell is used only by who has made the thread [`BUSY`].
unsafe impl Sync for Pending {}

static KEPT: AtomicU32 = AtomicU32::new(0);
static KEPT_AT: [Pending; MAX_PENDING] =
    [const { Pending { thread: AtomicI32::new(FREE), info: UnsafeCell::new(MaybeUninit::uninit()) } }; MAX_PENDING];

fn this_thread() -> i32 {
    // SAFETY: the call takes nothing and touches no memory of this process.
    unsafe { libc::gettid() }
}

/// Keeps a signal that came to this thread inside the pager: for itself, or, if it was sent to the whole process, for
/// whichever thread leaves first.
pub(crate) fn keep(info: &libc::siginfo_t) {
    let thread = if info.si_code == libc::SI_TKILL { this_thread() } else { ANY };
    if KEPT_AT.iter().any(|place| place.thread.load(Ordering::Acquire) == thread) {
        return;
    }
    let place = KEPT_AT
        .iter()
        .find(|place| place.thread.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok());
    if let Some(place) = place {
        // SAFETY: it is this thread's.
        unsafe { (*place.info.get()).write(*info) };
        KEPT.fetch_add(1, Ordering::SeqCst);
        place.thread.store(thread, Ordering::Release);
    }
}

/// Whether signals are kept for threads that leave.
pub(crate) fn is_any_kept() -> bool {
    KEPT.load(Ordering::Relaxed) != 0
}

/// Sends this thread, which has left the pager, what was kept for it.
pub(crate) fn give_back() {
    if !is_any_kept() {
        return;
    }
    // SAFETY: this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let own = this_thread();
    for place in &KEPT_AT {
        let taken = |thread| place.thread.compare_exchange(thread, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !taken(own) && !taken(ANY) {
            continue;
        }
        // SAFETY: it is this thread's, and was written before a thread could take it.
        let info = unsafe { (*place.info.get()).assume_init() };
        place.thread.store(FREE, Ordering::Release);
        KEPT.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: the information is whole; both calls send this thread a signal.
        unsafe {
            let process = libc::getpid();
            // All but the first thread may send only some kinds with all that is known about them.
            if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, own, libc::SIGBUS, &raw const info) != 0 {
                libc::syscall(libc::SYS_tgkill, process, own, libc::SIGBUS);
            }
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
