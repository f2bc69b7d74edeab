//! Where the kernel enters the agent: one handler for every signal.
//!
//! SIGSYS brings a system call of the program, SIGBUS a page that is missing, everything else is the program's. The
//! handler runs on the agent's stack of the thread, with all signals blocked that the agent's own work cannot raise.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use refault_linux::calls::{SYS_gettid, SYS_prctl};
use refault_linux::lock::{Held, Lock};
use refault_linux::options::PR_SET_SYSCALL_USER_DISPATCH;
use refault_linux::sys;
use refault_paging::tree::MAKE_ROOM;
use refault_paging::{Engine, Outcome, Shared};

use crate::frame::{self, Context, Info, register};
use crate::signals::{self, SIGBUS, SIGSEGV, SIGSYS};
use crate::thread::Thread;

/// `si_code` of a call that was dispatched to us.
const USER_DISPATCH: i32 = 2;
/// `si_code` of a signal with a value.
const QUEUED: i32 = -1;
const EINTR: i64 = -4;
/// Faults in a row at one address that find the page there, before something is wrong.
const MAX_SPURIOUS: u32 = 100_000;

/// In the agent's area, not in the library's data: leak checkers take what lies there for the program's pointers.
static ENGINE: Lock<Option<Box<Engine>>> = Lock::new(None);
/// The segment of the tree.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
/// The budget when it was last looked at, in pages.
static SEEN_LIMIT: AtomicU64 = AtomicU64::new(0);
/// When somebody of the tree lacked memory, as it was last looked at.
static SEEN_LACKING: AtomicU64 = AtomicU64::new(0);
/// The agent's own code.
static CODE: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

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

/// Locks the engine.
pub(crate) fn paging() -> Paging {
    Paging(ENGINE.lock())
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

/// This thread was asked for what others of the tree lack: gives room, and holds what they want to read or write.
pub(crate) fn answer() {
    paging().give_room();
    crate::visits::receive();
}

/// This process is a child of a fork, which shares pages with its parent until it writes to them.
pub(crate) fn is_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// The thread that calls, by the kernel's number.
pub(crate) fn thread_id() -> usize {
    // SAFETY: touches no memory.
    unsafe { sys::call(SYS_gettid, [0; 6]) as usize }
}

/// The agent's code, from which calls are the agent's own.
pub(crate) fn set_code(start: usize, end: usize) {
    CODE[0].store(start, Ordering::Relaxed);
    CODE[1].store(end, Ordering::Relaxed);
}

/// Whether an address is in the agent's code.
pub(crate) fn is_own_code(address: usize) -> bool {
    (CODE[0].load(Ordering::Relaxed)..CODE[1].load(Ordering::Relaxed)).contains(&address)
}

/// From now on every system call of this thread comes to the agent, except those made from its code.
pub(crate) fn dispatch_on() -> isize {
    let (start, end) = (CODE[0].load(Ordering::Relaxed), CODE[1].load(Ordering::Relaxed));
    // SAFETY: changes how this thread's calls are made.
    unsafe { sys::call(SYS_prctl, [PR_SET_SYSCALL_USER_DISPATCH, 1, start, end - start, 0, 0]) }
}

/// This thread's calls go to the kernel unseen.
pub(crate) fn dispatch_off(thread: &mut Thread) {
    crate::fast::turn_off();
    thread.is_dispatched = false;
    // SAFETY: changes how this thread's calls are made.
    unsafe { sys::call(SYS_prctl, [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0]) };
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

/// The handler of every signal.
pub(crate) extern "C" fn on_signal(signal: i32, info: *mut Info, context: *mut Context) {
    let thread = Thread::of(context as usize);
    // SAFETY: the kernel passes its frame.
    let (info, context) = unsafe { (&*info, &mut *context) };
    if !thread.is_at_work(context) {
        thread.entered = context;
    }
    let rip = context.registers[register::RIP] as usize;
    if signal == SIGSYS && info.code == USER_DISPATCH {
        return crate::calls::enter(thread, info, context);
    }
    crate::calls::find_lost(thread, context);
    match signal {
        SIGSYS if asks_for_room(info) => return make_room(thread, context),
        SIGBUS if info.code > 0 => {
            let error = context.registers[register::ERROR];
            if serve(thread, info.address, error & 2 != 0, error & 1 != 0) {
                return signals::deliver_kept(thread, context);
            }
        }
        _ => {}
    }
    let copying = frame::refault_safe_copy as *const () as usize..frame::refault_safe_copy_end as *const () as usize;
    if (signal == SIGBUS || signal == SIGSEGV) && info.code > 0 && copying.contains(&rip) {
        context.registers[register::RIP] = frame::refault_safe_copy_failed as *const () as u64;
        return;
    }
    signals::arrive(thread, info, context);
    signals::deliver_kept(thread, context);
}

/// Whether a SIGSYS is the tree's request for room.
pub(crate) fn asks_for_room(info: &Info) -> bool {
    info.code == QUEUED && info.rest[0] as usize == MAKE_ROOM
}

/// The budget has shrunk, or others lack memory, and this thread was asked for some. A call that it waits in and that the
/// signal has ended is made again, so that the program sees nothing of it.
fn make_room(thread: &mut Thread, context: &mut Context) {
    if !crate::fast::make_room(thread, context) {
        return;
    }
    let rip = context.registers[register::RIP] as usize;
    let Some(window) = frame::Window::of(rip) else { return };
    thread.remade = thread.remade.after_a_request(context, window.call as u64, window.after as u64);
    let is_over = rip == window.after;
    thread.was_asked |= is_over && !window.is_gate && context.registers[register::RAX] as i64 > 0;
    if is_over && context.registers[register::RAX] as i64 == EINTR {
        let number = context.registers[if window.is_gate { register::R14 } else { register::RBX }];
        if !window.is_gate {
            crate::holding::again(thread, context, number as usize);
        }
        context.registers[register::RIP] = window.call as u64;
        context.registers[register::RAX] = number;
    }
}

/// Serves a fault, of a page that is missing or that is guarded. False if it is not ours.
fn serve(thread: &mut Thread, address: usize, write: bool, is_guarded: bool) -> bool {
    let mut paging = paging();
    let before = paging.statistics().brought_in();
    let outcome = paging.fault(address, write);
    let after = paging.statistics().brought_in();
    let why = paging.last_error();
    drop(paging);
    if before == after && outcome == Outcome::Served && !is_guarded {
        let (at, times) = thread.spurious;
        thread.spurious = if at == address { (at, times + 1) } else { (address, 0) };
        if times == MAX_SPURIOUS {
            crate::report::end(format_args!(
                "the page at {address:#x} is missing although nobody took it: it was discarded behind the agent's back"
            ));
        }
    }
    if outcome == Outcome::Lost {
        crate::report::say(format_args!("a page at {address:#x} is lost: its contents cannot be brought back ({why})"));
    }
    outcome == Outcome::Served
}
