//! What `/proc` says of this process and its threads. Nothing is allocated. Cost: some microseconds per question.

use std::ffi::CStr;
use std::io::Write;

use refault_linux::proc;

/// The processor that a thread of this process last ran on: field 39 of its `stat`.
pub(crate) fn processor_of(thread: u32) -> Option<usize> {
    stat_field(format_args!("/proc/self/task/{thread}/stat\0"), 39)
}

/// Threads of this process: field 20 of its `stat`.
pub(crate) fn threads() -> Option<usize> {
    stat_field(format_args!("/proc/self/stat\0"), 20)
}

fn stat_field(path: std::fmt::Arguments<'_>, number: usize) -> Option<usize> {
    let mut name = [0u8; 64];
    (&mut name[..]).write_fmt(path).ok()?;
    let path = CStr::from_bytes_until_nul(&name).ok()?;
    proc::stat_field(proc::read_into(path, &mut [0; 1024])?, number)
}
