//! Faults resolved by the thread that takes them, in a SIGBUS handler.
//!
//! The handler runs on the faulting thread's stack, uses only what was allocated beforehand (a fixed set of workers, taken with
//! an atomic flag), and passes on every SIGBUS that is not a fault of a registered pager, as the handler before it would
//! have got it. It needs some 32 KiB of it, more than alternate signal stacks have.
//!
//! Invariant: a thread that is inside the pager never touches managed memory, so the handler never interrupts one and finds
//! no lock held by its own thread.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Once, OnceLock};

use crate::fault::Streams;
use crate::pager::Inner;
use crate::state::State;
use crate::worker::Worker;

const PAGERS: usize = 64;
const WORKERS: usize = 16;

static REGISTERED: [AtomicPtr<Inner>; PAGERS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PAGERS];
static WORKER_SLOTS: OnceLock<Vec<WorkerSlot>> = OnceLock::new();
static INSTALLED: Once = Once::new();
static mut PREVIOUS: Option<libc::sigaction> = None;

struct WorkerSlot {
    taken: AtomicBool,
    worker: UnsafeCell<(Worker, Streams)>,
}

// SAFETY: the cell is used only by the thread that has set `taken`.
unsafe impl Sync for WorkerSlot {}

pub(crate) fn register(inner: &Arc<Inner>) {
    WORKER_SLOTS.get_or_init(|| {
        let slot = || WorkerSlot {
            taken: AtomicBool::new(false),
            worker: UnsafeCell::new((Worker::new(), Streams::default())),
        };
        (0..WORKERS).map(|_| slot()).collect()
    });
    INSTALLED.call_once(|| {
        // SAFETY: the action is whole; the previous one is stored before any fault can happen, since nothing is
        // registered yet.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            let mut previous: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, &action, &mut previous);
            PREVIOUS = Some(previous);
        }
    });
    let pointer = Arc::as_ptr(inner).cast_mut();
    let free = REGISTERED
        .iter()
        .find(|slot| slot.compare_exchange(std::ptr::null_mut(), pointer, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    assert!(free.is_some(), "more than {PAGERS} pagers with in-thread faults");
}

pub(crate) fn unregister(inner: &Arc<Inner>) {
    let pointer = Arc::as_ptr(inner).cast_mut();
    for slot in &REGISTERED {
        let _ = slot.compare_exchange(pointer, std::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers; errno belongs to this thread and is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let handled = resolve((*info).si_addr() as usize, is_write(context));
        *libc::__errno_location() = errno;
        if !handled {
            pass_on(signal, info, context);
        }
    }
}

fn resolve(address: usize, write: bool) -> bool {
    for slot in &REGISTERED {
        let pointer = slot.load(Ordering::Acquire);
        if pointer.is_null() {
            continue;
        }
        // SAFETY: a registered pager lives until it is unregistered, which happens only when no region is left to fault.
        let inner = unsafe { &*pointer };
        let Some(page) = inner.arena.page_at(address) else { continue };
        let start = std::time::Instant::now();
        let before = inner.word(page).load();
        if before.state() == State::Lost {
            return false;
        }
        {
            // The gate comes first: who waits there during a fork must hold no worker, or the child would miss it for ever.
            let _gate = inner.enter();
            with_worker(|worker, streams| inner.fault(page, write, worker, streams));
        }
        if matches!(before.state(), State::Evicting | State::Filling | State::Moving) {
            // Nothing blocks here: the access is tried again and faults again until the owner is done.
            std::thread::yield_now();
        }
        inner.fault_latency.record(before.into(), start.elapsed());
        return true;
    }
    false
}

fn with_worker(work: impl FnOnce(&mut Worker, &mut Streams)) {
    let slots = WORKER_SLOTS.get().expect("invariant: workers are made before a pager is registered");
    loop {
        for slot in slots {
            if !slot.taken.swap(true, Ordering::Acquire) {
                // SAFETY: the flag was clear and is now this thread's.
                let (worker, streams) = unsafe { &mut *slot.worker.get() };
                work(worker, streams);
                slot.taken.store(false, Ordering::Release);
                return;
            }
        }
        std::thread::yield_now();
    }
}

/// Whether the access was a write, from the error code that the processor left.
#[cfg(target_arch = "x86_64")]
unsafe fn is_write(context: *mut libc::c_void) -> bool {
    const WRITE: i64 = 2;
    // SAFETY: the kernel passes a whole context (promised by the caller).
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0 }
}

/// Elsewhere every access counts as a write, which only costs a clean page its slot.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn is_write(_context: *mut libc::c_void) -> bool {
    true
}

unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the previous action was stored once, before anything was registered; it is called as the kernel would.
    unsafe {
        match PREVIOUS {
            Some(previous) if previous.sa_sigaction == libc::SIG_IGN || previous.sa_sigaction == libc::SIG_DFL => {
                // The access is repeated with the default action in force.
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
            }
            Some(previous) if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let action: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(previous.sa_sigaction);
                action(signal, info, context);
            }
            Some(previous) => {
                let action: extern "C" fn(i32) = std::mem::transmute(previous.sa_sigaction);
                action(signal);
            }
            None => {
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
            }
        }
    }
}
