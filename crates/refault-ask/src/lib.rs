//! Asks a real Linux kernel what it does with a sequence of page accesses.
//!
//! A kernel comes from its distribution's package ([`kernel`]; [`kernel::fetch`] downloads it, [`kernel::package`] unpacks it). It is
//! booted by qemu ([`emulator`]) with an initial file system ([`emulator::initial`]) that holds the running program itself
//! ([`own_binary`]) as the first process ([`guest`]). That replays the accesses of a [`job`] in a control group under a
//! limit, on the classic lists and under the generations, and reports the kernel's counters. [`answers`] keeps what
//! was asked, on this machine and as a table of this crate; [`model`] says what the policies make of the same accesses.
//!
//! Or the guest runs a program ([`job::program`], [`emulator::program`]) with what it needs ([`emulator::tree`]), or one of
//! laws of access under a limit that pulses, without and with DAMON's module that sorts lists ([`job::pulse`],
//! [`emulator::pulse`], [`answers::pulses`]).
//!
//! ```
//! use refault_ask::answers::shipped;
//!
//! let asked = shipped().iter().filter(|answer| answer.kernel.starts_with("6.12")).count();
//! assert!(asked > 0);
//! ```
#![deny(unsafe_code)]

pub mod answers;
pub mod emulator;
pub mod guest;
pub mod iso;
pub mod job;
pub mod kernel;
pub mod known;
pub mod model;
pub mod own_binary;
pub mod published;
pub mod sequence;

use std::path::PathBuf;

/// Where kernels and answers are kept: `refault` in the user's cache directory (`XDG_CACHE_HOME`, else `~/.cache`).
pub fn cache_directory() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("refault")
}
