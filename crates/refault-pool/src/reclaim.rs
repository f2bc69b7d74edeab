//! Reclaim from programs that are not ours: what goes is decided here, the kernel carries it out.
//!
//! [`process`] takes pages of a process away (`process_madvise`). [`cgroup`] asks the kernel to shrink a control group
//! (`memory.reclaim`, or a limit that is lowered and put back). [`idle`] finds mappings that no process accessed;
//! [`regions`] finds parts of them, where the kernel's monitor can be had. [`pages`] asks the kernel's idle-page
//! bitmap. [`generations`] finds the old pages of a group, where the kernel has the multi-gen LRU. [`probe`] tries:
//! pages that do not come back were not needed. [`Controller`](crate::pressure::Controller) says how much is to go.
//! Pages go to the swap that the host has ([`swap`]) and the control group may use ([`groups`]); file pages need none.
//!
//! Invariants: nothing but pages' places changes; what was set on a group is what it was before, after each step. Pages
//! come back when they are accessed.
//!
//! ```
//! use std::time::Duration;
//!
//! use refault_pool::reclaim::session::{Goal, Session, Target};
//!
//! # fn main() -> std::io::Result<()> {
//! // What no process has accessed for a minute; dry runs say what would go.
//! let goal = Goal::Idle(Duration::from_secs(60));
//! let mut session = Session::new(&Target::Process(std::process::id()), goal, true)?;
//! let step = session.step()?;
//! assert!(step.resident_bytes > 0);
//! assert_eq!((step.chosen_bytes, step.reclaimed_bytes), (0, 0)); // it has just begun to look
//! # Ok(())
//! # }
//! ```

pub mod cgroup;
pub mod generations;
pub mod groups;
pub mod idle;
pub mod kdamond;
pub mod pages;
pub mod probe;
#[allow(unsafe_code)] // One system call, with its reason.
pub mod process;
pub mod regions;
pub mod schemes;
pub mod session;
pub mod swap;

use std::ops::Range;

/// Addresses of a process.
pub type Addresses = Range<u64>;
