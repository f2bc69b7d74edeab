//! Faults resolved by the thread that takes them, in a SIGBUS handler.
//!
//! The handler runs on the faulting thread's stack. It uses only what was allocated beforehand (a fixed set of workers,
//! taken with an atomic flag). It passes on every SIGBUS that is not a fault of a registered pager, as the handler
//! before it would have got it. It needs some 32 KiB of stack, more than alternate signal stacks have.
//!
//! Invariant: a thread that is inside the pager never touches managed memory. So the handler never interrupts one, and
//! finds no lock held by its own thread.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock};

use refault_core::PageId;

use crate::fault_scratch::FaultScratch;
use crate::options::FaultMode;
use crate::pager::Inner;
use crate::signals::{self, BlockedSignals, Mask};
use crate::state::State;

const PAGERS: usize = 64;
const WORKERS: usize = 16;

static REGISTERED: [AtomicPtr<Inner>; PAGERS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PAGERS];
static WORKER_SLOTS: OnceLock<Vec<WorkerSlot>> = OnceLock::new();
static INSTALLED: Once = Once::new();
/// What the program wants to be done about SIGBUS.
static PREVIOUS: Mutex<Option<libc::sigaction>> = Mutex::new(None);

/// glibc's numbers.
const PTHREAD_CANCEL_ENABLE: i32 = 0;
const PTHREAD_CANCEL_DISABLE: i32 = 1;
const PTHREAD_CANCEL_DEFERRED: i32 = 0;
const PTHREAD_CANCEL_ASYNCHRONOUS: i32 = 1;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
    fn pthread_setcanceltype(kind: i32, before: *mut i32) -> i32;
    fn pthread_testcancel();
}

/// While this thread serves its fault, libc's functions do not cancel it: it would leave what it holds. The state
/// before.
fn disable_cancellation() -> i32 {
    let mut before = 0;
    // SAFETY: concerns this thread only and takes a pointer to a live variable.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
    before
}

/// Ends that. A thread that was cancelled meanwhile and may be anywhere is unwound from here. So its cleanup handlers
/// find the `mask` that it had, if that is not in force.
fn restore_cancellation(before: i32, mask: Option<Mask>) {
    if before != PTHREAD_CANCEL_ENABLE {
        return;
    }
    let mut kind = 0;
    // SAFETY: as above. No frame up to the handler has anything to drop.
    unsafe {
        // By the test, because to enable asynchronous cancellation ends the thread without its result (glibc 2.34 to
        // 2.40).
        pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &mut kind);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, std::ptr::null_mut());
        if kind == PTHREAD_CANCEL_ASYNCHRONOUS {
            let here = mask.map(signals::set_mask);
            pthread_testcancel();
            // This tests too.
            pthread_setcanceltype(kind, std::ptr::null_mut());
            here.map(signals::set_mask);
        }
    }
}

struct WorkerSlot {
    taken: AtomicBool,
    worker: UnsafeCell<FaultScratch>,
}

// SAFETY: the cell is used only by the thread that has set `taken`.
unsafe impl Sync for WorkerSlot {}

pub(crate) fn register(inner: &Arc<Inner>) {
    WORKER_SLOTS.get_or_init(|| {
        let slot = || WorkerSlot { taken: AtomicBool::new(false), worker: UnsafeCell::new(FaultScratch::new()) };
        (0..WORKERS).map(|_| slot()).collect()
    });
    INSTALLED.call_once(|| {
        // SAFETY: the action is whole; the previous one is stored before any fault can happen, since nothing is
        // registered yet.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            // A handler of the program that ran inside the pager would touch memory and wait for its own thread.
            action.sa_mask = signals::set_of(signals::inside(FaultMode::InThread));
            let mut previous: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, &action, &mut previous);
            *previous_action() = Some(previous);
        }
    });
    let pointer = Arc::as_ptr(inner).cast_mut();
    let free = REGISTERED
        .iter()
        .find(|slot| slot.compare_exchange(std::ptr::null_mut(), pointer, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    assert!(free.is_some(), "more than {PAGERS} pagers with in-thread faults");
}

fn previous_action() -> MutexGuard<'static, Option<libc::sigaction>> {
    PREVIOUS.lock().expect("invariant: nothing panics under this lock")
}

pub(crate) fn unregister(inner: &Arc<Inner>) {
    let pointer = Arc::as_ptr(inner).cast_mut();
    for slot in &REGISTERED {
        let _ = slot.compare_exchange(pointer, std::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

// A thread that was cancelled meanwhile, and may be anywhere, is unwound from here.
extern "C-unwind" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers; errno belongs to this thread and is put back.
    unsafe {
        allow_unaligned(context);
        let mask = signals::interrupted_mask(context);
        // A signal that a process sent has no address.
        let is_sent = (*info).si_code <= 0;
        if is_sent && signals::is_inside(mask) {
            crate::pending_sigbus::keep(&*info);
            return;
        }
        if is_sent || !serve_fault((*info).si_addr() as usize, context) {
            pass_on(signal, info, context);
        }
        if crate::pending_sigbus::is_any_kept() && !signals::is_inside(mask) {
            signals::set_mask(mask);
            crate::pending_sigbus::give_back();
        }
    }
}

/// Serves the fault of this thread at an address. False if it is not a pager's.
///
/// # Safety
/// `context` is what the kernel has given to the handler.
unsafe fn serve_fault(address: usize, context: *mut libc::c_void) -> bool {
    // SAFETY: promised by the caller; errno and the state of cancellation are this thread's, and are put back.
    unsafe {
        let errno = *libc::__errno_location();
        let cancellation = disable_cancellation();
        let served = resolve(address, is_write(context));
        *libc::__errno_location() = errno;
        restore_cancellation(cancellation, Some(signals::interrupted_mask(context)));
        served
    }
}

fn resolve(address: usize, write: bool) -> bool {
    for slot in &REGISTERED {
        let pointer = slot.load(Ordering::Acquire);
        if pointer.is_null() {
            continue;
        }
        // SAFETY: a registered pager lives until it is unregistered, which happens only when no region is left to
        // fault.
        let inner = unsafe { &*pointer };
        let Some(page) = inner.arena.page_at(address) else { continue };
        if inner.word(page).load().state() == State::Lost {
            return false;
        }
        serve(inner, page, address, write);
        return true;
    }
    false
}

/// Serves a fault of this thread, which is not inside the pager.
fn serve(inner: &Inner, page: PageId, address: usize, write: bool) {
    let start = std::time::Instant::now();
    let before = inner.word(page).load();
    {
        // The gate comes first: who waits there during a fork must hold no worker, or the child would miss it for ever.
        let _gate = inner.enter();
        with_worker(|worker| inner.fault(page, Some(address), write, worker));
    }
    if matches!(before.state(), State::Evicting | State::Filling | State::Moving) {
        // Nothing blocks here: the access is tried again and faults again until the owner is done.
        std::thread::yield_now();
    }
    inner.fault_latency.record(before.into(), start.elapsed());
}

/// Brings a page in for a thread that is about to give it to a system call: as a fault would, without one.
pub(crate) fn serve_uninterrupted(inner: &Inner, page: PageId, write: bool) {
    let signals = BlockedSignals::new(FaultMode::InThread);
    let cancellation = disable_cancellation();
    serve(inner, page, inner.arena.address(page), write);
    drop(signals);
    restore_cancellation(cancellation, None);
}

fn with_worker(work: impl FnOnce(&mut FaultScratch)) {
    let slots = WORKER_SLOTS.get().expect("invariant: workers are made before a pager is registered");
    loop {
        for slot in slots {
            if !slot.taken.swap(true, Ordering::Acquire) {
                // SAFETY: the flag was clear and is now this thread's.
                let worker = unsafe { &mut *slot.worker.get() };
                work(worker);
                slot.taken.store(false, Ordering::Release);
                return;
            }
        }
        std::thread::yield_now();
    }
}

/// Lets this handler access memory as it likes, although the thread that it has interrupted must not: handlers begin
/// with that thread's flag for unaligned accesses, and a fault of the handler's own would be one of the pager's.
///
/// # Safety
/// `context` is what the kernel has given to the handler.
#[cfg(target_arch = "x86_64")]
unsafe fn allow_unaligned(context: *mut libc::c_void) {
    const CHECKS_ALIGNMENT: i64 = 1 << 18;
    // SAFETY: promised by the caller; the flag is this thread's and has no other effect.
    unsafe {
        if (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] & CHECKS_ALIGNMENT != 0 {
            std::arch::asm!("pushfq", "and dword ptr [rsp], {keep}", "popfq", keep = const !(CHECKS_ALIGNMENT as i32));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn allow_unaligned(_context: *mut libc::c_void) {}

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
    // Not held while the program's handler runs, which may change it.
    let previous = *previous_action();
    // SAFETY: the program's action is called as the kernel would, with its mask in force until this handler returns.
    unsafe {
        match previous.filter(|previous| previous.sa_sigaction != libc::SIG_DFL) {
            // The access is repeated with the default action in force, as it is where the kernel finds a fault ignored.
            // A signal that a process sent and the program ignores does nothing.
            Some(previous) if previous.sa_sigaction == libc::SIG_IGN && (*info).si_code <= 0 => {}
            Some(previous) if previous.sa_sigaction != libc::SIG_IGN => {
                signals::set_mask(signals::while_handled(signals::interrupted_mask(context), &previous));
                if previous.sa_flags & libc::SA_SIGINFO != 0 {
                    let action: extern "C-unwind" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(previous.sa_sigaction);
                    action(signal, info, context);
                } else {
                    let action: extern "C-unwind" fn(i32) = std::mem::transmute(previous.sa_sigaction);
                    action(signal);
                }
            }
            _ => {
                signals::reset(signal);
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}
