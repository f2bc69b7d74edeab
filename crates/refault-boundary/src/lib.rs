//! The preloaded agent: takes a program's memory at the system call.
//!
//! Every system call of the program comes here (Syscall User Dispatch), whoever makes it: libc, an allocator that a
//! program brings, a runtime that generates code. Private anonymous memory is registered with a userfaultfd whose
//! faults are served in the thread that faults. The program's allocator, libc's `fork`, threads and locks are its own:
//! nothing of theirs is replaced or known here.
//!
//! Invariants: whatever runs in a handler uses no libc, no thread-locals and no lock that the program's code may hold;
//! it runs on stacks of its own; the kernel is never given memory that may be missing.

#![allow(unsafe_code)]
// Calls are named as the kernel names them.
#![allow(non_upper_case_globals)]

use refault_paging::settings::{AgentSettings, VARIABLE};

mod calls;
mod engine_lock;
mod entry;
mod files;
mod frame;
mod memory;
#[cfg(not(test))]
mod old_libc;
mod patched;
mod process;
mod report;
mod signals;
mod table;
mod thread;
#[cfg(not(test))]
mod unwinding;
mod user_dispatch;

#[global_allocator]
static HEAP: memory::heap::AgentHeap = memory::heap::AgentHeap;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = loaded;

extern "C" fn loaded() {
    let Some(value) = std::env::var_os(VARIABLE) else { return };
    let settings = match AgentSettings::decode(&value) {
        Ok(settings) => settings,
        Err(why) => report::end(format_args!("REFAULT_AGENT is not understood: {why}; it is written by `refault run`")),
    };
    if let Err(why) = process::start::begin(&settings) {
        report::end(format_args!("the program cannot be managed: {why}"));
    }
}
