//! A signal of the program's that comes after the program has made a call and before the agent has made it: while the
//! call's memory is brought in.
//!
//! Alone it would have met the program in its call. A call that waits would end with EINTR or be made again, and one that
//! does not wait would be over first. Were the handler to run before the call, a call that waits would miss the signal
//! that was to end it. So the signal is put aside, and the call is made with all other signals of the program blocked. A
//! timer of the thread's own ends it if it waits, as the signal would have.
//!
//! Invariants: one signal is aside at most; it is delivered when its call is over, before the program goes on. Cost: three
//! calls for each such signal, and up to [`AGAIN`] where the timer comes before the call waits.

use std::mem::MaybeUninit;

use refault_linux::calls::{SYS_timer_create, SYS_timer_delete, SYS_timer_settime};
use refault_linux::errno::EINTR;
use refault_linux::flags::CLOCK_MONOTONIC;
use refault_linux::signals::{SI_TIMER, SIGEV_THREAD_ID};
use refault_linux::sys;

use crate::frame::{Context, Info, Window, register};
use crate::signals::sets::{ALL, SIGSYS, bit};
use crate::thread::{Early, Remade, Thread};

/// What tells the timer's signal from the program's own.
const ENDS_CALL: usize = usize::from_le_bytes(*b"refault?");
/// Nanoseconds until the timer ends the call first, and from then on.
const FIRST: u64 = 50_000;
const AGAIN: u64 = 1_000_000;
/// The program's signals that are blocked while a call is made with one aside.
pub(crate) const BLOCKED: u64 = ALL & !bit(SIGSYS);

/// `struct sigevent`, for a thread.
#[repr(C)]
struct Event {
    value: usize,
    signal: i32,
    notify: i32,
    thread: i32,
    rest: [i32; 11],
}

/// Puts a signal aside that has come right before a call is made, at `context`. False if one is aside already or the
/// kernel has no timer left.
pub(crate) fn put_aside(thread: &mut Thread, info: &Info, context: &mut Context) -> bool {
    if thread.early.is_some() || thread.is_of_32_bits {
        return false;
    }
    let event = Event {
        value: ENDS_CALL,
        signal: SIGSYS,
        notify: SIGEV_THREAD_ID,
        thread: sys::thread_id() as i32,
        rest: [0; 11],
    };
    let mut timer = MaybeUninit::<i32>::zeroed();
    let (event, place) = (&raw const event as usize, timer.as_mut_ptr() as usize);
    // SAFETY: reads the event and writes a number.
    if unsafe { sys::call(SYS_timer_create, [CLOCK_MONOTONIC, event, place, 0, 0, 0]) } != 0 {
        return false;
    }
    // SAFETY: zeros, or what the kernel has written.
    let timer = unsafe { timer.assume_init() };
    let times = [0, AGAIN, 0, FIRST];
    // SAFETY: reads four words.
    unsafe { sys::call(SYS_timer_settime, [timer as usize, 0, times.as_ptr() as usize, 0, 0, 0]) };
    thread.early = Some(Early { info: *info, timer });
    context.mask = BLOCKED;
    true
}

/// The signal that was aside, which is not any more.
pub(crate) fn take(thread: &mut Thread) -> Option<Info> {
    let early = thread.early.take()?;
    // SAFETY: the timer is known here alone.
    unsafe { sys::call(SYS_timer_delete, [early.timer as usize, 0, 0, 0, 0, 0]) };
    Some(early.info)
}

/// Whether a SIGSYS is the timer's.
pub(crate) fn is_timer(info: &Info) -> bool {
    info.code == SI_TIMER && info.rest[0] as usize == ENDS_CALL
}

/// The timer's signal has come, at `context`. The signal that was aside, if its call waited and is over now.
pub(crate) fn end_call(thread: &mut Thread, context: &Context) -> Option<Info> {
    let registers = &context.registers;
    let window = Window::of(registers[register::RIP] as usize).filter(|_| thread.is_at_work(context))?;
    let ended = thread.remade.after_a_request(context, window.call as u64, window.after as u64);
    let is_over = registers[register::RIP] as usize == window.after && registers[register::RAX] as isize == EINTR;
    let is_put_back = registers[register::RIP] as usize == window.call && ended != Remade::No;
    if !(is_over || is_put_back) {
        return None;
    }
    thread.remade = ended;
    take(thread)
}
