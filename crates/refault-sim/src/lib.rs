//! Replay of page accesses under a memory limit.
//!
//! One pass over a trace finds its [`Layout`] (which pages exist and where they lie); a second pass feeds
//! [`Access`]es to a [`Replay`], which owns a [`FlatMemory`] and a policy and keeps the limit as a memory cgroup does.
//!
//! ```
//! use refault_core::textbook::Lru;
//! use refault_sim::flat_memory::Swap;
//! use refault_sim::{LayoutBuilder, Limits, Replay};
//! use refault_trace::{Entry, Kind};
//!
//! let entries: Vec<Entry> = [1, 2, 3, 1].into_iter().map(|page| Entry::new(page, Kind::Anon, false)).collect();
//! let mut builder = LayoutBuilder::new();
//! builder.observe(&entries);
//! let layout = builder.finish().expect("three pages");
//! let limits = Limits { memory_pages: 2, swap: Swap { pages: 100, synchronous: true } };
//! let mut replay = Replay::new(&layout, Lru::default(), limits);
//! let mut accesses = Vec::new();
//! layout.translate(&entries, &mut accesses);
//! replay.run(&accesses);
//! assert_eq!(replay.outcome().misses, 4); // page 1 was evicted for page 3
//! ```
#![forbid(unsafe_code)]

pub mod flat_memory;
pub mod layout;
pub mod machine;
pub mod monitoring;
pub mod named;
pub mod objects;
pub mod replay;
mod shadows;

pub use flat_memory::FlatMemory;
pub use layout::{Access, Layout, LayoutBuilder};
pub use replay::{Limits, Outcome, ReadAheadCounts, Replay};
