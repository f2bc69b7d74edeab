//! Working-set estimation: the words left behind by evicted pages and what they say when a page comes back.
//!
//! Kernel: `mm/workingset.c`.
//! Source: spec: workingset.

pub mod shadow;

pub use shadow::ShadowFields;
