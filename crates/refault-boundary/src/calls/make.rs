//! Making a call of the program's: at once, or with the program's signals open while it waits.
//!
//! Invariant: what interrupts a waiting call finds in its thread where the program was. Cost: a call and four words.

use refault_linux::sys;

use crate::frame::{self, Context, Frame};
use crate::signals::early::BLOCKED;
use crate::signals::sets::ALL;
use crate::thread::{Remade, Thread};

/// Makes a call that does not wait, as the program asked for it.
pub(crate) fn plain(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: the program's own call.
    unsafe { sys::make(number, arguments) }
}

/// Makes a call that may wait, with the signals open that the program has open.
pub(crate) fn make(thread: &mut Thread, context: &mut Context, number: usize, arguments: &[usize; 6]) -> isize {
    let place = std::ptr::from_mut(context) as usize - std::mem::offset_of!(Frame, context);
    thread.remade = Remade::No;
    // One that came before a piece of this call ends all of it.
    let mask = if thread.early.is_some() { BLOCKED } else { context.mask };
    let thread = std::ptr::from_mut(thread);
    // SAFETY: the program's own call. A signal that comes meanwhile reads what is written here and leaves through it,
    // which the compiler cannot know: the pointer is handed to the call, so that nothing may be moved across it.
    unsafe {
        std::ptr::write_volatile(&raw mut (*thread).waiting, place as *mut Frame);
        let result = frame::refault_waiting_call(number, arguments, &mask, &ALL, thread.cast());
        std::ptr::write_volatile(&raw mut (*thread).waiting, std::ptr::null_mut());
        (*thread).waiting_mask = None;
        result
    }
}

/// [`make`] for a call of 32 bits, by the gate that it came by.
pub(crate) fn make_by_gate(thread: &mut Thread, context: &mut Context, number: usize, arguments: &[usize; 6]) -> isize {
    let place = std::ptr::from_mut(context) as usize - std::mem::offset_of!(Frame, context);
    thread.remade = Remade::No;
    let thread = std::ptr::from_mut(thread);
    // SAFETY: as in `make`.
    unsafe {
        std::ptr::write_volatile(&raw mut (*thread).waiting, place as *mut Frame);
        let result = frame::refault_gate_call(number, arguments, &context.mask, &ALL, thread.cast());
        std::ptr::write_volatile(&raw mut (*thread).waiting, std::ptr::null_mut());
        result
    }
}
