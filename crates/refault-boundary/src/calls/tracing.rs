//! Children that share this memory and trace its threads: how leak checkers stop a program to look through its memory.
//!
//! Such a child stops each thread where it is and reads its registers. From them it knows which part of the thread's
//! stack is in use, and what they point to. A thread that is stopped in the agent runs on the agent's stack; what the
//! child is to see is the program as it was when it called. And the child takes faults in the memory that it looks
//! through: it would wait for ever for a lock that a stopped thread holds, so no thread is stopped while it holds one.
//!
//! Invariants: registers are replaced only for threads of this memory, in the agent. Cost: a stop waits for the agent's
//! work on other threads; from the first on calls of patched sites are caught as before they were patched.

use std::mem::offset_of;

use refault_linux::calls::{SYS_ptrace, SYS_waitid};
use refault_linux::flags::{__WALL, P_PID, WEXITED, WNOWAIT, WUNTRACED};
use refault_linux::options::{NT_PRSTATUS, PTRACE_ATTACH, PTRACE_GETREGS, PTRACE_GETREGSET};
use refault_linux::sys;

use crate::calls::make::plain;
use crate::engine_lock::paging;
use crate::frame::{self, Context, register};
use crate::memory::heap;
use crate::patched::switch;
use crate::signals;
use crate::thread::Thread;

/// The general registers in the order in which the kernel shows them (`struct user_regs_struct`), a word each, and
/// where they lie in a frame. Those without a place are the kernel's to say.
const SHOWN: [Option<usize>; 27] = {
    use register::*;
    [
        Some(R15),
        Some(R14),
        Some(R13),
        Some(R12),
        Some(RBP),
        Some(RBX),
        Some(R11),
        Some(R10),
        Some(R9),
        Some(R8),
        Some(RAX),
        Some(RCX),
        Some(RDX),
        Some(RSI),
        Some(RDI),
        // The number of the call.
        None,
        Some(RIP),
        // A segment.
        None,
        Some(FLAGS),
        Some(RSP),
        // Segments and their bases.
        None,
        None,
        None,
        None,
        None,
        None,
        None,
    ]
};

/// A call of `ptrace` by a child that shares this memory, whose own memory is held.
pub(crate) fn serve(arguments: [usize; 6]) -> isize {
    let [request, traced, which, data, ..] = arguments;
    if !sys::shares_memory(traced as i32, sys::process_id()) {
        return plain(SYS_ptrace, arguments);
    }
    match request {
        PTRACE_ATTACH => attach(arguments),
        PTRACE_GETREGS => shown(arguments, data, SHOWN.len()),
        PTRACE_GETREGSET if which == NT_PRSTATUS => {
            let result = plain(SYS_ptrace, arguments);
            match frame::read::<sys::Range>(data) {
                Some(set) if result == 0 => show(set.start, set.bytes / size_of::<u64>()),
                _ => {}
            }
            result
        }
        _ => plain(SYS_ptrace, arguments),
    }
}

/// Stops a thread at a moment in which none holds a lock of the agent's.
fn attach(arguments: [usize; 6]) -> isize {
    /// The child waits for it itself.
    const STOPPED_OR_ENDED: usize = WUNTRACED | WEXITED | WNOWAIT | __WALL;
    // A call from a patched site keeps registers where the tracing child does not find them.
    switch::turn_off();
    let paging = paging();
    let blocks = Thread::stand_still();
    let actions = signals::stand_still();
    let heap = heap::stand_still();
    let result = plain(SYS_ptrace, arguments);
    if result == 0 {
        plain(SYS_waitid, [P_PID, arguments[1], 0, STOPPED_OR_ENDED, 0, 0]);
    }
    drop((heap, actions, blocks, paging));
    result
}

fn shown(arguments: [usize; 6], at: usize, words: usize) -> isize {
    let result = plain(SYS_ptrace, arguments);
    if result == 0 {
        show(at, words);
    }
    result
}

/// Replaces registers of a thread that is in the agent by those that the program called it with.
fn show(at: usize, words: usize) {
    let word = |index: usize| at + index * size_of::<u64>();
    let place = SHOWN.iter().position(|shown| *shown == Some(register::RSP)).filter(|place| *place < words);
    let Some(pointer) = place.and_then(|place| frame::read::<u64>(word(place))) else { return };
    let Some(context) = Thread::entered_with(pointer as usize) else { return };
    for (index, place) in SHOWN.into_iter().enumerate().filter_map(|(index, place)| Some((index, place?))) {
        let from = context + offset_of!(Context, registers) + place * size_of::<u64>();
        if let Some(value) = frame::read::<u64>(from) {
            frame::write(word(index), &value);
        }
    }
}
