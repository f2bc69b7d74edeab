//! Private anonymous memory under a budget, in the process that uses it.
//!
//! A range that is managed is registered with a userfaultfd; a page that is missing raises SIGBUS in the thread that
//! touches it, and [`Engine::fault`] brings it in there. What has to go is moved out of reach whole ([`staging`]), and
//! stored if nobody asked for it in time. A policy of [`refault_core`] decides what goes.
//!
//! ```text
//! thread ── SIGBUS ──▶ fault ──▶ table ──▶ store ──▶ copy in
//!                        │                              ▲
//!                        ▼ room                         │ touched meanwhile: moved back
//!                     reclaim ──▶ policy ──▶ staging ───┤
//!                                               └──▶ compress, store
//! ```
//!
//! Invariants: no write is lost; pages that others hold (calls in progress, direct I/O) stay where they are; nothing
//! here uses libc, so it may run in a signal handler that interrupted anything, under [`refault_linux::lock::Lock`].

#![allow(unsafe_code)]

pub mod account;
mod aside;
mod copies;
mod dropped;
pub mod engine;
mod fault;
pub mod figures;
mod forks;
mod guard;
mod inherited;
mod own;
mod pagemap;
mod policies;
mod process_monitor;
mod ranges;
mod reclaim;
mod rollup;
mod segment;
pub mod settings;
pub mod share;
mod spare;
mod staging;
pub mod stores;
mod streams;
mod table;
mod token;
pub mod tree;
pub mod unmanaged;
mod unwritten;
pub mod visit;
mod way_back;

pub use account::{Account, MIN_PROGRAM_BYTES};
pub use engine::{Engine, EngineOptions, Outcome};
pub use figures::{Statistics, Usage};
pub use process_monitor::{ProcessMonitor, refusal};
pub use ranges::Attributes;
pub use refault_linux::PAGE;
pub use tree::Shared;
