//! The lab: many policies at many memory sizes over traces, miss-ratio curves, and published experiments run again.
//!
//! [`sweep`] replays a trace under every policy and size in two passes, and [`curve`] finds how misses depend on
//! memory. [`own`] replays a policy that is not in the registry. [`results`] writes what was found as CSV or JSON.
//! [`experiments`] holds the published experiments, and [`scenarios`] runs simulated machines described in files.
//! Policies are named as on the command line ([`policies`]), amounts of memory too ([`size`]).
//!
//! Invariant: no result depends on the number of threads, on the clock, or on the order in which threads work.
//!
//! ```
//! use refault_lab::policies::parse_policies;
//! use refault_lab::sweep::{Sweep, sweep};
//! use refault_trace::Source;
//!
//! let source = Source::workload("zipf:theta=1,pages=1000,accesses=20000".parse().unwrap());
//! let plan = Sweep::new(parse_policies(&["lru,mglru{tiers=1}".into()])?, vec!["10%".parse().unwrap()]);
//! let result = sweep(&source, &plan, &())?;
//! assert_eq!(result.runs.len(), 2);
//! assert!(result.runs[0].outcome.misses < 20_000);
//! # Ok::<(), refault_lab::LabError>(())
//! ```
#![forbid(unsafe_code)]

pub mod curve;
mod error;
pub mod experiment;
pub mod experiments;
pub mod meminfo;
pub mod own;
pub mod policies;
mod progress;
pub mod results;
pub mod scenarios;
pub mod size;
pub mod source;
pub mod stepper;
pub mod sweep;
pub mod verdict;

pub use error::LabError;
pub use experiment::Experiment;
pub use progress::Progress;
