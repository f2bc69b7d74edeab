//! Why there is no policy, in words: what is wrong, where, what to do about it.
//!
//! ```
//! use refault_core::policy::PolicySpec;
//!
//! let error = PolicySpec::parse("lru2").unwrap_err().to_string();
//! assert!(error.starts_with("unknown policy: 'lru2': choose from fifo, clock, lru"), "{error}");
//! ```

use std::fmt;

use super::registry::{FrontEnd, names};
use crate::parameter::ParameterError;

/// Why there is no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// The text is not of the form `name{key=value,…}`; says what is wrong.
    Unreadable(String),
    /// There is no policy of this name.
    Unknown(String),
    /// The policy has no such parameter or value.
    BadParameter(String, ParameterError),
    /// This front-end cannot run it.
    Refused {
        /// The policy as asked for.
        policy: String,
        /// The front-end.
        front_end: FrontEnd,
        /// Why.
        reason: &'static str,
    },
}

/// What is wrong, where, what to do about it.
impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Unreadable(what) => write!(f, "cannot read policy: {what}"),
            PolicyError::Unknown(name) => {
                write!(f, "unknown policy: '{name}': choose from {}", names(FrontEnd::Replay))
            }
            PolicyError::BadParameter(call, error) => {
                write!(f, "bad parameter: '{call}': {error}; see 'refault policies'")
            }
            PolicyError::Refused { policy, front_end, reason } => {
                let (front_end, others) = (front_end.name(), names(*front_end));
                write!(f, "{front_end} cannot run this policy: '{policy}': {reason}; choose from {others}")
            }
        }
    }
}

impl std::error::Error for PolicyError {}
