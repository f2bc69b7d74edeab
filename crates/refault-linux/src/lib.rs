//! The floor that agent, pagers, pool and commands stand on: what Linux offers, by name and without policy.
//!
//! Numbers are constants: system calls of x86-64 and of 32 bits, their flags, and errors. All numbers are of the width
//! of a register, as a system call takes them; errors are negative, as the kernel returns them. On them stand bare
//! [system calls](sys), the [userfaultfd](uffd), the [page map](pagemap), [mappings](mappings::Mappings), files of
//! [`/proc`](proc), a [lock](lock) of a futex and a [clock].
//!
//! Invariants: nothing here uses libc or its state, so code may use it that runs where libc must not, such as a signal
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

pub mod advice;
pub mod calls;
pub mod clock;
pub mod clone;
pub mod errno;
pub mod flags;
pub mod i386;
pub mod lock;
pub mod mappings;
mod number;
pub mod options;
pub mod pagemap;
pub mod proc;
pub mod sys;
pub mod uffd;

/// Bytes of a page: of x86-64, and of 64-bit ARM as this is built for it.
pub const PAGE: usize = 4096;

/// Names and numbers of calls: a constant of each, all of them in order, and the name of a number.
macro_rules! names {
    ($($name:ident = $number:literal,)*) => {
        /// A number and the kernel's name for it, by number.
        pub const ALL: &[(usize, &str)] = &[$(($number, crate::without_prefix(stringify!($name)))),*];

        /// The highest number.
        pub const MAX: usize = ALL[ALL.len() - 1].0;

        $(#[doc = concat!("Number of the call: ", stringify!($name), ".")]
        #[allow(non_upper_case_globals)]
        pub const $name: usize = $number;)*

        /// The kernel's name of a call; `None`: there is none of that number.
        pub fn name(number: usize) -> Option<&'static str> {
            ALL.binary_search_by_key(&number, |(number, _)| *number).ok().map(|at| ALL[at].1)
        }
    };
}
pub(crate) use names;

/// A name as the kernel has it, without the `SYS_` of the constant.
const fn without_prefix(name: &'static str) -> &'static str {
    name.split_at("SYS_".len()).1
}
