//! Private anonymous memory under a budget, in the process that uses it.
//!
//! A range that is managed is registered with a userfaultfd. A page that is missing raises SIGBUS in the thread that
//! touches it, and [`Engine::fault`] brings it in there. A page to evict is moved out of reach whole ([`moving`]), and
//! stored if no thread touches it in time. A policy of [`refault_core`] chooses it.
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

mod choosing;
mod contents;
mod counts;
pub mod engine;
pub mod figures;
mod moving;
mod own;
mod page;
pub mod settings;
pub mod stores;
pub mod tree;

pub use engine::listed::Walk;
pub use engine::process_monitor::{ProcessMonitor, refusal};
pub use engine::{Engine, EngineOptions, Outcome};
pub use figures::{Statistics, Usage};
pub use page::marks::{Marks, Order};
pub use page::ranges::Attributes;
pub use refault_linux::PAGE;
pub use tree::Shared;
pub use tree::account::{Account, MIN_PROGRAM_BYTES};
