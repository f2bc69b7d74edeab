//! refault behind a C interface: `refault.h`.
//!
//! Objects are handles, numbers in tables of this crate, so that a closed or a foreign one is found out. Every function
//! answers with a [`Status`]; the sentence and the `errno` of the last failure are kept per thread. Results are written
//! through pointers that must be valid; null is refused where a result is needed.
//!
//! Invariants: no panic crosses the border ([`status::guarded`]); a handle is never used again after it was closed; an
//! object lives until it is closed and the last call that uses it has returned.
//!
//! Cost over the Rust interface: a look-up in a table under a shared lock, some 20 ns per call.
//!
//! What a C program does, in Rust's words (`examples/` and `refault.3` have it in C's):
//!
//! ```
//! use refault_c::{refault_policy_access, refault_policy_free, refault_policy_new};
//!
//! let (mut policy, mut hit) = (0, false);
//! // SAFETY: the name is a string that ends in a zero, and both results are variables of this function.
//! let statuses = unsafe {
//!     [
//!         refault_policy_new(c"lru".as_ptr(), 2, 8, &mut policy),
//!         refault_policy_access(policy, 3, false, &mut hit),
//!         refault_policy_access(policy, 3, false, &mut hit),
//!     ]
//! };
//! assert!(statuses.iter().all(|&status| status as i32 == 0) && hit);
//! refault_policy_free(policy);
//! // A handle that was given back is refused, however often.
//! assert_ne!(refault_policy_free(policy) as i32, 0);
//! ```
#![allow(non_camel_case_types)] // They are C's names.

mod budget;
mod cache;
mod estimate;
mod handles;
mod open_file;
mod pin;
mod policy;
mod status;

pub use budget::*;
pub use cache::*;
pub use estimate::*;
pub use pin::*;
pub use policy::*;
pub use status::*;
