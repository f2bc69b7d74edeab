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
use refault_linux::errno::EINTR;
use refault_linux::signals::{SI_TKILL, SIGSYS, SS_ONSTACK};
use refault_linux::{proc, sys};

use crate::engine_lock::paging;
use crate::frame::{self, AlternateStack, Context, Info, register};
use crate::patched::{fast, switch};
use crate::process::robust;
use crate::signals;
use crate::signals::sets::{ALWAYS_OPEN, Actions};
use crate::thread::Thread;
use crate::user_dispatch;

static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);
static ACTIONS: AtomicPtr<Actions> = AtomicPtr::new(std::ptr::null_mut());
/// The threads that have got the signal, by their numbers, and how many they are.
static ANSWERED: [AtomicUsize; MAX_THREADS] = [const { AtomicUsize::new(0) }; MAX_THREADS];
static ANSWERS: AtomicUsize = AtomicUsize::new(0);
static ADOPTED: AtomicUsize = AtomicUsize::new(0);

/// A process that begins with more is not managed.
const MAX_THREADS: usize = 1024;

/// How long a thread may take to come, in all: one that the kernel does not let go on (a device) never does.
const PATIENCE_NS: u64 = 5_000_000_000;

/// The other threads of this process. Where there are some, libc's allocator is asked for memory, which the program has
/// without the agent then.
fn others() -> Vec<usize> {
    /// The field of `stat` that says how many threads there are.
    const THREADS: usize = 20;
    let mut text = [0; 1024];
    let stat = proc::read_into(c"/proc/self/stat", &mut text);
    if stat.and_then(|stat| proc::stat_field(stat, THREADS)) == Some(1) {
        return Vec::new();
    }
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let numbers = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    numbers.filter(|number| *number != sys::thread_id()).collect()
}

/// Whether a thread is there that cannot be adopted. One that has just been started has all signals blocked for a moment.
pub(crate) fn is_impossible() -> bool {
    const LOOKS: usize = 200;
    let is_reachable = |thread: &usize| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
        let blocked = proc::status_field(&status, "SigBlk");
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

/// Adopts all threads. Those that are there are asked, round by round, until two rounds have found none that was not
/// known: whatever thread begins later is started by one whose calls come to the agent.
///
/// # Errors
/// One does not come.
pub(crate) fn all(actions: *mut Actions) -> Result<(), &'static str> {
    let deadline = sys::clock() + PATIENCE_NS;
    ACTIONS.store(actions, Ordering::Relaxed);
    IS_UNDER_WAY.store(true, Ordering::SeqCst);
    let mut quiet_rounds = 0;
    while quiet_rounds < 2 {
        let (before, now) = (ADOPTED.load(Ordering::Acquire), others());
        if now.is_empty() {
            break;
        }
        paging().threads(true);
        for thread in now.iter().filter(|thread| !has_answered(**thread)) {
            // SAFETY: sends a signal that the agent handles.
            unsafe { sys::call(SYS_tgkill, [sys::process_id() as usize, *thread, SIGSYS as usize, 0, 0, 0]) };
        }
        while others().iter().any(|thread| now.contains(thread) && !has_answered(*thread)) {
            if sys::clock() > deadline || ANSWERS.load(Ordering::Relaxed) > MAX_THREADS {
                return Err("a thread that a library has started before does not react, or there are more than 1,024");
            }
            sys::sleep(200_000);
        }
        quiet_rounds = if ADOPTED.load(Ordering::Acquire) == before { quiet_rounds + 1 } else { 0 };
    }
    IS_UNDER_WAY.store(false, Ordering::SeqCst);
    Ok(())
}

fn has_answered(thread: usize) -> bool {
    ANSWERED.iter().any(|answered| answered.load(Ordering::Acquire) == thread)
}

/// What a signal has to do with adoption.
pub(crate) enum Arrival {
    /// Nothing: it is for a thread that has a block.
    Known,
    /// The thread that got it is adopted by now.
    Adopted(&'static mut Thread),
    /// It was the agent's question alone, to a thread that is adopted by now.
    Answered,
    /// It was the question, to a thread that has a block: what it interrupted goes on as after a request for room.
    Asked,
}

/// A signal has come, `context` being what it interrupted.
pub(crate) fn arrive(signal: i32, info: &Info, context: &mut Context) -> Arrival {
    if !IS_UNDER_WAY.load(Ordering::Relaxed) {
        return Arrival::Known;
    }
    let adopted = adopt(context);
    // Threads that an adopted one has started have blocks, and are asked too.
    if signal == SIGSYS && info.code == SI_TKILL {
        if let Some(place) = ANSWERED.get(ANSWERS.fetch_add(1, Ordering::Relaxed)) {
            place.store(sys::thread_id(), Ordering::Release);
        }
        if adopted.is_none() {
            return Arrival::Asked;
        }
        make_again(context);
        return Arrival::Answered;
    }
    adopted.map_or(Arrival::Known, Arrival::Adopted)
}

/// Has a call made again that the question has ended and that the kernel does not begin again by itself, as one that
/// waits for a time. Its number is gone from the registers: it stands before the instruction in most libraries.
fn make_again(context: &mut Context) {
    const MOVE_TO_EAX: u8 = 0xb8;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let behind = context.registers[register::RIP] as usize;
    if context.registers[register::RAX] as isize != EINTR {
        return;
    }
    if let Some([MOVE_TO_EAX, a, b, c, d, first, second]) = frame::read::<[u8; 7]>(behind.wrapping_sub(7))
        && [first, second] == SYSCALL
    {
        context.registers[register::RAX] = u64::from(u32::from_le_bytes([a, b, c, d]));
        context.registers[register::RIP] = (behind - SYSCALL.len()) as u64;
    }
}

/// Adopts the thread whose handler runs, if it has no block.
fn adopt(context: &mut Context) -> Option<&'static mut Thread> {
    let place = std::ptr::from_mut(context) as usize;
    if Thread::has_block(place) {
        return None;
    }
    let thread = Thread::new(ACTIONS.load(Ordering::Relaxed))?;
    thread.alternate = AlternateStack { flags: context.stack.flags & !SS_ONSTACK, ..context.stack };
    thread.hidden = context.mask & ALWAYS_OPEN;
    context.mask &= !ALWAYS_OPEN;
    let (start, bytes) = thread.stack();
    let stack = AlternateStack { start, flags: 0, unused: 0, bytes };
    // The handler may be on an alternate stack of the thread's own, which the kernel would keep otherwise.
    signals::set_kernel_stack(&stack, context.registers[register::RSP] as usize);
    context.stack = stack;
    robust::look(thread);
    if switch::is_on() {
        fast::install(thread);
    }
    crate::library::report::needs("a thread's calls cannot be caught", user_dispatch::dispatch_on());
    ADOPTED.fetch_add(1, Ordering::Release);
    Some(thread)
}
