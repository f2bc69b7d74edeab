//! A host at a glance: what each control group needs, what fills the page cache, and why a process was killed.
//!
//! [`host`] looks at all memory cgroups again and again: their figures ([`figures`]), how much of them is accessed
//! within windows of some lengths ([`accessed`]), and what follows for a limit ([`curve`], [`proposal`]). [`history`]
//! keeps the figures in a small database, and [`apply`] sets limits and puts them back. [`files`] says which files fill
//! the page cache, and [`why`] what the log tells of kills. Names come from other users of the host and may hold
//! anything; [`text`] makes them printable, and nothing else of this crate hands them on.
//!
//! Cost: a look reads three to six small files for each group, and the page tables of each process; [`host::Host`]
//! measures what it spends and looks less often where that would be more than [`host::MAX_SHARE`] of a processor.
//!
//! ```
//! use refault_host::host::{AGES, Host};
//!
//! let mut host = Host::open(&AGES)?;
//! host.step()?; // begins the first windows
//! let report = host.report();
//! assert_eq!(report.groups.iter().filter(|group| group.path == "/").count().min(1), 1);
//! # Ok::<(), std::io::Error>(())
//! ```
#![deny(unsafe_code)]

pub mod accessed;
pub mod apply;
pub mod curve;
pub mod figures;
pub mod files;
pub mod history;
pub mod host;
pub mod name;
pub mod text;
pub mod tree;
pub mod why;

pub use curve::proposal;
