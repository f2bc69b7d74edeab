//! The preloaded agent: takes a program's memory at the system call.
//!
//! Every system call of the program comes here (Syscall User Dispatch), from whatever code: libc, a program's own
//! allocator, a runtime that generates code. Private anonymous memory is registered with a userfaultfd whose faults are
//! served in the thread that faults. The program's allocator, libc's `fork`, threads and locks are its own: nothing of
//! theirs is replaced or known here.
//!
//! Invariants: whatever runs in a handler uses no libc, no thread-locals and no lock that the program's code may hold;
//! it runs on stacks of its own; the kernel is never given memory that may be missing.

#![allow(unsafe_code)]
// Calls are named as the kernel names them.
#![allow(non_upper_case_globals)]

#[cfg(debug_assertions)]
use refault_linux::faults;
use refault_paging::settings::{AgentSettings, VARIABLE};

mod engine_lock;
mod entry;
mod frame;
mod signals;
mod table;
mod thread;
mod user_dispatch;

mod calls {
    //! Calls of the program, each served as its row of the table says: found, its memory held, made.

    pub(crate) mod compat;
    pub(crate) mod dispatch;
    pub(crate) mod enter;
    pub(crate) mod holding;
    pub(crate) mod leaving;
    pub(crate) mod make;
    pub(crate) mod plain;
    pub(crate) mod pointed;
    pub(crate) mod tracing;
    pub(crate) mod visits;
}

mod mapping {
    //! Calls that change mappings, and what becomes of managed memory by them.

    pub(crate) mod advice;
    pub(crate) mod locks;
    pub(crate) mod managed;
    pub(crate) mod memory_calls;
    pub(crate) mod moves;
}

mod files {
    //! Calls that read and write files: in pieces under a budget, and what they are opened on.

    pub(crate) mod descriptors;
    pub(crate) mod memory_files;
    pub(crate) mod opened;
    pub(crate) mod pieces;
    pub(crate) mod progress;
}

mod patched {
    //! Sites of calls that are patched to jump to the agent.

    pub(crate) mod fast;
    pub(crate) mod fast_call;
    pub(crate) mod sites;
    pub(crate) mod switch;
}

mod process {
    //! A process from its start to the next program: children, programs executed, observers.

    pub(crate) mod adoption;
    pub(crate) mod clone;
    pub(crate) mod end;
    pub(crate) mod environment;
    pub(crate) mod execution;
    pub(crate) mod observer;
    pub(crate) mod owner;
    pub(crate) mod robust;
    pub(crate) mod start;
}

mod memory {
    //! The agent's own memory, and what is mapped beside it.

    pub(crate) mod addresses;
    pub(crate) mod area;
    pub(crate) mod heap;
    pub(crate) mod mappings;
    pub(crate) mod seen;
}

mod library {
    //! The library itself: what it says, and what it brings for an older libc.

    pub(crate) mod bytes;
    #[cfg(not(test))]
    pub(crate) mod old_libc;
    pub(crate) mod processor;
    pub(crate) mod report;
    #[cfg(not(test))]
    pub(crate) mod unwinding;
}

#[global_allocator]
static HEAP: memory::heap::AgentHeap = memory::heap::AgentHeap;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = loaded;

extern "C" fn loaded() {
    #[cfg(debug_assertions)]
    if let Some(text) = std::env::var_os(faults::VARIABLE) {
        match text.to_str().and_then(faults::Fault::parse) {
            Some(fault) => fault.set(),
            None => library::report::end(format_args!("{} is not understood", faults::VARIABLE)),
        }
    }
    let Some(value) = std::env::var_os(VARIABLE) else { return };
    let settings = match AgentSettings::decode(&value) {
        Ok(settings) => settings,
        Err(why) => {
            library::report::end(format_args!("REFAULT_AGENT is not understood: {why}; it is written by `refault run`"))
        }
    };
    if let Err(why) = process::start::begin(&settings) {
        library::report::end(format_args!("the program cannot be managed: {why}"));
    }
}
