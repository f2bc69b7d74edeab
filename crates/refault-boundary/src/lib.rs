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

mod calls;
mod clone;
mod descriptors;
mod entry;
mod fast;
mod frame;
mod heap;
mod memory_calls;
mod moves;
mod observer;
mod report;
mod settings;
mod signals;
mod sites;
mod start;
mod thread;

use std::ffi::{CStr, c_char};

#[global_allocator]
static HEAP: heap::AgentHeap = heap::AgentHeap;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(i32, *const *const c_char, *const *const c_char) = loaded;

/// Called by the loader. libc's `environ` may be unset still, so what the loader passes is read.
extern "C" fn loaded(_count: i32, _arguments: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: the loader passes the program's environment.
    let Some(text) = (unsafe { variable(environment, "REFAULT_AGENT=") }) else { return };
    let settings = match settings::Settings::parse(&text) {
        Ok(settings) => settings,
        Err(why) => report::end(format_args!("REFAULT_AGENT is not understood: {why}; it is written by `refault run`")),
    };
    if let Err(why) = start::begin(&settings) {
        report::end(format_args!("the program cannot be managed: {why}"));
    }
}

/// What follows `name` in the entry of an environment that begins with it.
///
/// # Safety
/// `environment` is null, or a list of texts that ends in a null.
unsafe fn variable(mut environment: *const *const c_char, name: &str) -> Option<String> {
    while !environment.is_null() {
        // SAFETY: the caller's list has not ended yet.
        let entry = unsafe { environment.read() };
        if entry.is_null() {
            break;
        }
        // SAFETY: an entry is a text.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(value) = entry.strip_prefix(name.as_bytes()) {
            return Some(String::from_utf8_lossy(value).into_owned());
        }
        // SAFETY: as above.
        environment = unsafe { environment.add(1) };
    }
    None
}
