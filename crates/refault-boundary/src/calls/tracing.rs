//! Children that share this memory and trace its threads: how leak checkers stop a program to look through its memory.
//!
//! Such a child stops each thread where it is and reads its registers, to know which of its stack is in use and what the
//! registers point to. A thread that is stopped in the agent runs on the agent's stack; what the child is to see is the
//! program as it was when it called. And the child takes faults in the memory that it looks through: it would wait for
//! ever for a lock that a stopped thread holds, so no thread is stopped while it holds one.
//!
//! Invariants: registers are replaced only for threads of this memory, in the agent. Cost: a stop waits for the agent's
//! work on other threads; from the first on calls of patched sites are caught as before they were patched.

use std::mem::offset_of;

use refault_linux::calls::{SYS_ptrace, SYS_waitid};
use refault_linux::sys;

use crate::calls::make::plain;
use crate::engine_lock::paging;
use crate::frame::{self, Context, register};
use crate::memory::heap;
use crate::patched::switch;
use crate::signals;
use crate::thread::Thread;

const GET_REGISTERS: usize = 12;
const ATTACH: usize = 16;
const GET_REGISTER_SET: usize = 0x4204;
/// The set that the general registers are (`NT_PRSTATUS`).
const GENERAL: usize = 1;

/// The general registers, as the kernel shows them (`struct user_regs_struct`): words.
const WORDS: usize = 27;
const STACK_POINTER: usize = 19;
/// Where each has its value in a signal frame. What is not there (segments and their bases, what was asked of the kernel)
/// stays.
const PLACES: [(usize, usize); 18] = [
    (0, register::R15),
    (1, register::R14),
    (2, register::R13),
    (3, register::R12),
    (4, register::RBP),
    (5, register::RBX),
    (6, register::R11),
    (7, register::R10),
    (8, register::R9),
    (9, register::R8),
    (10, register::RAX),
    (11, register::RCX),
    (12, register::RDX),
    (13, register::RSI),
    (14, register::RDI),
    (16, register::RIP),
    (18, register::FLAGS),
    (STACK_POINTER, register::RSP),
];

/// A call of `ptrace` by a child that shares this memory, whose own memory is held.
pub(crate) fn serve(arguments: [usize; 6]) -> isize {
    let [request, traced, which, data, ..] = arguments;
    if !sys::shares_memory(traced as i32, sys::process_id()) {
        return plain(SYS_ptrace, arguments);
    }
    match request {
        ATTACH => attach(arguments),
        GET_REGISTERS => shown(arguments, data, WORDS),
        GET_REGISTER_SET if which == GENERAL => {
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
    /// Whom to wait for: the thread with this number.
    const ONE: usize = 1;
    /// `WSTOPPED | WEXITED | WNOWAIT | __WALL`: the child waits for it itself.
    const STOPPED_OR_ENDED: usize = 2 | 4 | 0x0100_0000 | 0x4000_0000;
    // A call from a patched site keeps registers where nobody finds them.
    switch::turn_off();
    let paging = paging();
    let blocks = Thread::stand_still();
    let actions = signals::stand_still();
    let heap = heap::stand_still();
    let result = plain(SYS_ptrace, arguments);
    if result == 0 {
        plain(SYS_waitid, [ONE, arguments[1], 0, STOPPED_OR_ENDED, 0, 0]);
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
    let Some(pointer) = frame::read::<u64>(word(STACK_POINTER)).filter(|_| words > STACK_POINTER) else { return };
    let Some(context) = Thread::entered_with(pointer as usize) else { return };
    for (index, place) in PLACES {
        let from = context + offset_of!(Context, registers) + place * size_of::<u64>();
        if let Some(value) = frame::read::<u64>(from) {
            frame::write(word(index), &value);
        }
    }
}
