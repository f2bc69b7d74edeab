//! Page access traces: formats, importers and workload generators.
//!
//! Whatever the source, a trace is a stream of [`Entry`]s: a page number with its kind and a write bit.
#![forbid(unsafe_code)]

pub mod entry;

pub use entry::{Entry, Kind};
