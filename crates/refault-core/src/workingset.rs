//! Working-set estimation: the words left behind by evicted pages and what they say when a page comes back.
//!
//! Kernel: `mm/workingset.c`.
//! Source: spec: workingset.
//!
//! ```
//! use refault_core::workingset::shadow::distance;
//!
//! // Evictions between an eviction at 100 and a refault at 130, as a clock of 12 bits counts them.
//! assert_eq!(distance(130, 100, 0, 12), 30);
//! assert_eq!(distance(5, 4090, 0, 12), 11); // the clock has wrapped
//! ```

pub mod shadow;

pub use shadow::ShadowFields;
