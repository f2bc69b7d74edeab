//! Many programs, one memory: which hosts recorded programs go onto, how large the working set of a running program is,
//! and who gives way when several share one memory.
//!
//! ```
//! use refault_pool::plan::Packing;
//!
//! // Two jobs that each miss 90 times until they have three units, on two hosts of three: one goes onto each.
//! let misses = vec![90, 90, 0];
//! let plan = Packing { hosts: 2, misses: &[misses.clone(), misses] }.solve()?;
//! assert_eq!(plan.misses, 0);
//! # Ok::<(), refault_pool::plan::PlanError>(())
//! ```
#![deny(unsafe_code)]

mod connections;
pub mod mappings;
pub mod plan;
pub mod pressure;
pub mod reclaim;
#[cfg(feature = "serve")]
pub mod serve;
pub mod shared;
pub mod wss;
