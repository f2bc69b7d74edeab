//! The memory of a call: brought in before the call is made, held until it has returned. Here are also the copies that
//! take the place of times and masks that the agent must be able to change meanwhile.
//!
//! What a call names stands in [`crate::table`]. Invariant: what is held is released when the call has returned, by
//! [`engine_lock::release`]. Cost: the engine's lock once for each span.

use refault_linux::calls::{SYS_clock_nanosleep, SYS_futex};
use refault_linux::flags::{FUTEX_OPERATION, FUTEX_WAIT, TIMER_ABSTIME};
use refault_linux::sys;

use crate::calls::pointed;
use crate::engine_lock;
use crate::frame::{self, ARGUMENTS, Context};
use crate::signals::sets::ALWAYS_OPEN;
use crate::table::{self, By, Memory, Row};
use crate::thread::Thread;

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// Copies that replace what the program has passed.
#[derive(Default)]
pub(crate) struct OwnMemory {
    mask: u64,
    pair: [usize; 2],
    /// How long to sleep, and what is left of that.
    time: [u64; 2],
    rest: [u64; 2],
}

/// Holds what a call reads and writes.
pub(crate) fn hold(thread: &mut Thread, row: &Row, arguments: &[usize; 6]) {
    row.each(arguments, &mut |(start, bytes, write)| engine_lock::hold(thread, start, bytes, write));
}

/// Holds what a message is, or what it is to be written to.
pub(crate) fn hold_message(thread: &mut Thread, message: usize, write: bool) {
    table::message(message, write, &mut |(start, bytes, write)| engine_lock::hold(thread, start, bytes, write));
}

/// Words that the kernel writes to by itself, later: they stay where they are for good.
pub(crate) fn hold_for_good(start: usize, bytes: usize) {
    if start != 0 {
        let mut paging = engine_lock::paging();
        if paging.manages(start, bytes) {
            paging.keep(start, bytes);
        }
    }
}

/// Holds what a call reads and writes, and replaces what the kernel must not be given as it stands.
pub(crate) fn prepare(thread: &mut Thread, row: &Row, arguments: &mut [usize; 6], own: &mut OwnMemory) {
    hold(thread, row, arguments);
    if row.by == By::Device {
        pointed::prepare(thread, arguments[1], arguments[2]);
    }
    for memory in row.memory {
        match *memory {
            Memory::MaskMeanwhile(at) => replace_mask(thread, &mut arguments[at], &mut own.mask),
            Memory::MaskByPair(at) => {
                if let Some(pair) = frame::read::<[usize; 2]>(arguments[at]) {
                    own.pair = pair;
                    replace_mask(thread, &mut own.pair[0], &mut own.mask);
                    arguments[at] = own.pair.as_ptr() as usize;
                }
            }
            Memory::Wait(at) if is_relative(row.number, arguments) => {
                if let Some(wanted) = frame::read::<[u64; 2]>(arguments[at]) {
                    own.time = wanted;
                    arguments[at] = own.time.as_ptr() as usize;
                    // The kernel does not say what is left.
                    thread.began = sys::now();
                }
            }
            Memory::Sleep(time, rest) if is_relative(row.number, arguments) => {
                if let Some(wanted) = frame::read::<[u64; 2]>(arguments[time]) {
                    own.time = wanted;
                    arguments[time] = own.time.as_ptr() as usize;
                    if arguments[rest] == 0 {
                        arguments[rest] = own.rest.as_mut_ptr() as usize;
                    }
                }
            }
            Memory::Milliseconds(_) => thread.began = sys::now(),
            _ => {}
        }
    }
}

/// [`prepare`] for a call that is made from a patched site. False if something must be replaced: it is made otherwise.
pub(crate) fn prepare_plain(thread: &mut Thread, row: &Row, arguments: [usize; 6]) -> bool {
    let (mut held, mut own) = (arguments, OwnMemory::default());
    prepare(thread, row, &mut held, &mut own);
    held == arguments
}

/// Whether a call's time is a while, and not a moment at which it ends.
fn is_relative(number: usize, arguments: &[usize; 6]) -> bool {
    match number {
        SYS_clock_nanosleep => arguments[1] & TIMER_ABSTIME == 0,
        SYS_futex => arguments[1] & FUTEX_OPERATION == FUTEX_WAIT,
        _ => true,
    }
}

/// Prepares a call that was ended to let this thread make room for being made again: it waits for what is left of its
/// time.
pub(crate) fn again(thread: &mut Thread, context: &mut Context, number: usize) {
    let Some(row) = table::of(number) else { return };
    let arguments = ARGUMENTS.map(|place| context.registers[place] as usize);
    if !is_relative(number, &arguments) {
        return;
    }
    for memory in row.memory {
        match *memory {
            Memory::Sleep(time, rest) => _ = frame::copy(arguments[time], arguments[rest], size_of::<[u64; 2]>()),
            Memory::Wait(at) => shorten(thread, arguments[at]),
            Memory::Milliseconds(at) => {
                let timeout = &mut context.registers[ARGUMENTS[at]];
                let milliseconds = *timeout as i32;
                if milliseconds > 0 {
                    // Rounded up: never less than was asked for.
                    let passed = (sys::now() - thread.began) / MILLISECOND;
                    let left = (milliseconds as u64).saturating_sub(passed);
                    thread.began += passed * MILLISECOND;
                    *timeout = left;
                }
            }
            _ => {}
        }
    }
}

/// Takes off a time of [`Memory::Wait`] what has passed of it.
fn shorten(thread: &mut Thread, time: usize) {
    if let Some([seconds, nanoseconds]) = frame::read::<[u64; 2]>(time) {
        let passed = sys::now() - thread.began;
        let left = seconds.saturating_mul(SECOND).saturating_add(nanoseconds).saturating_sub(passed);
        thread.began += passed;
        frame::write(time, &[left / SECOND, left % SECOND]);
    }
}

/// A mask that a call sets while it waits must leave the agent's signals open.
fn replace_mask(thread: &mut Thread, argument: &mut usize, own: &mut u64) {
    if *argument == 0 {
        return;
    }
    if let Some(mask) = frame::read::<u64>(*argument) {
        *own = mask & !ALWAYS_OPEN;
        thread.waiting_mask = Some(mask);
        *argument = std::ptr::from_ref(own) as usize;
    }
}

/// Whether a call that says EFAULT met a page that was out, and so is to be made again. Its row says that this changes
/// nothing. Besides, its memory had to be brought in anew, or another thread may have brought it in meanwhile. What is
/// brought in here is held from now on. All other calls have their EFAULT from the kernel, and it stays.
pub(crate) fn lacked_memory(thread: &mut Thread, number: usize, arguments: [usize; 6]) -> bool {
    let Some(row) = table::of(number).filter(|row| row.twice.is_allowed()) else { return false };
    let before = brought_in();
    hold(thread, row, &arguments);
    brought_in() != before || !thread.is_last()
}

/// Pages brought in so far.
fn brought_in() -> u64 {
    let paging = engine_lock::paging();
    paging.statistics().brought_in()
}
