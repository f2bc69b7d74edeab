//! Signals of threads that the agent does not know.
//!
//! When a process of several threads sets a filter of system calls, the thread that sets it makes its calls itself from
//! then on, and so do the threads and children that it starts. They have no block, but the actions are the process's:
//! the agent's handler runs on the program's stack, and calls the program's handler there. Nothing is managed any more.
//!
//! Invariant: no lock is taken, because a child may have been forked while another thread held it. Cost: a walk through
//! the blocks for each signal once there was such a filter.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use refault_linux::signals::{SA_NODEFER, SIG_DFL, SIG_IGN, SIGSYS};

use crate::frame::{Context, Info};
use crate::signals::sets::{Actions, bit};
use crate::thread::Thread;

/// The program's actions, once there may be such threads.
static ACTIONS: AtomicPtr<Actions> = AtomicPtr::new(std::ptr::null_mut());
static MAY_BE: AtomicBool = AtomicBool::new(false);

/// From now on there may be threads without a block.
pub(crate) fn may_be(thread: &mut Thread) {
    ACTIONS.store(thread.actions(), Ordering::Relaxed);
    MAY_BE.store(true, Ordering::SeqCst);
}

/// What becomes of a signal that such a thread gets. False if the thread, in whose `context` it has come, has a block.
pub(crate) fn pass_on(signal: i32, info: &Info, context: &mut Context) -> bool {
    let place = std::ptr::from_mut(context) as usize;
    if !MAY_BE.load(Ordering::Relaxed) || Thread::was_given(place) {
        return false;
    }
    // SAFETY: actions live as long as the process; concurrent changes are made by whole words.
    let action = unsafe { (&(*ACTIONS.load(Ordering::Relaxed)).0)[signal as usize] };
    let is_caused = info.code > 0 && signal != SIGSYS;
    match action.handler {
        SIG_IGN if info.code <= 0 => {}
        SIG_DFL | SIG_IGN => {
            super::end_by(signal, info);
            if !is_caused && info.code > 0 {
                // The instruction is not tried again.
                super::send_again(info);
            }
        }
        handler => {
            let own = if action.flags & SA_NODEFER == 0 { bit(signal) } else { 0 };
            super::exchange_mask(context.mask | action.mask | own);
            // SAFETY: a handler has this form, or takes fewer arguments.
            let handler: extern "C" fn(i32, *const Info, *mut Context) = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
    }
    true
}
