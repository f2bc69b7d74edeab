//! Replay of page accesses under a memory limit.
//!
//! One pass over a trace finds its [`Layout`] (which pages exist and where they lie); a second pass feeds
//! [`Access`]es to a [`Replay`], which owns a [`FlatMemory`] and a policy and keeps the limit as a memory cgroup does.
#![forbid(unsafe_code)]

pub mod flat_memory;
pub mod layout;
pub mod machine;
pub mod monitoring;
pub mod replay;
mod shadows;

pub use flat_memory::FlatMemory;
pub use layout::{Access, Layout, LayoutBuilder};
pub use replay::{Limits, Outcome, Replay};
