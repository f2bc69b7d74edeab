//! The floor that agent, pagers, pool and commands stand on: what Linux offers, by name and without policy.
//!
//! Numbers are constants: system calls of x86-64 and of 32 bits, their flags and structures, and errors. All numbers
//! are of the width of a register, as a system call takes them; errors are negative, as the kernel returns them. On
//! them stand bare [system calls](sys), the [userfaultfd](uffd), the [page map](pagemap),
//! [mappings](mappings::Mappings), files of [`/proc`](proc), a [lock] of a futex and a [clock].
//!
//! Invariants: nothing here uses libc or its state. So code may use it that runs where libc must not, such as a signal
//! handler that interrupted anything. Nothing decides anything. Only [`proc::read`] and names of features allocate.
//! Source: the kernel's user headers.
//!
//! ```
//! use refault_linux::{calls, errno};
//!
//! assert_eq!(calls::name(calls::SYS_mprotect), Some("mprotect"));
//! assert_eq!(errno::ENOMEM, -12);
//! ```

#![no_std]
#![allow(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod clock;
#[cfg(debug_assertions)]
pub mod faults;
pub mod lock;
pub mod mappings;
mod numbers;
pub mod pagemap;
pub mod proc;
pub mod sys;
pub mod uffd;

pub use numbers::{advice, calls, clone, errno, files, flags, i386, options, requests, signals, sockets};

/// Bytes of a page: of x86-64, and of 64-bit ARM as this is built for it.
pub const PAGE: usize = 4096;

/// Where the addresses of a process end, with four levels of page tables.
pub const END_OF_ADDRESSES: usize = 1 << 47;
