//! Whether the agent's library can be preloaded into a program, from a look at the program's file.
//!
//! [`look`] follows scripts to their interpreters, and a loader that was given as the program to the program that it
//! loads. It reads the headers of what it comes to: machine, loader, libraries. [`preload`] makes the value of
//! `LD_PRELOAD` that such a program can start with. The command asks before it starts the first program, the agent
//! before each that a managed process executes.
//!
//! Invariants: neither libc nor an allocator is used, and nothing is written but to what the caller gives. A file that
//! is no regular one is never opened. Cost: a look makes some twenty system calls, which take some 20 µs.
//!
//! ```
//! use refault_image::{Obstacle, look};
//!
//! let arguments = |_: usize, _: &mut [u8]| None;
//! assert!(matches!(look(c"/nonexistent", &arguments, None), Err(Obstacle::Unreadable(_))));
//! ```

#![cfg_attr(not(test), no_std)]
#![allow(unsafe_code)]

mod elf;
mod file;
mod judge;
mod loader;
mod obstacle;
pub mod preload;
mod text;

pub use file::Place;
pub use judge::{Image, is_executable, look, look_at, name_of};
pub use loader::Arguments;
pub use obstacle::Obstacle;
pub use text::Text;

/// The newest version of glibc's symbols that the agent's library asks for. A test reads the library's needs.
pub const NEEDED_GLIBC: &str = "GLIBC_2.3.4";
