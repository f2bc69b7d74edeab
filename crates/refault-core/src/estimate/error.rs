//! Why there is no estimator, in words.

use std::fmt;

use super::{MAX_CACHES, POLICIES};

/// Why there is no estimator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EstimateError {
    /// The policy is not one of [`POLICIES`]; empty if none was named.
    UnknownPolicy(String),
    /// This many sizes of the cache.
    Sizes(usize),
    /// The memory is too small, in bytes.
    Memory {
        /// What the smallest sample takes.
        least: usize,
        /// What was given.
        given: usize,
    },
}

/// What is wrong, and what to do about it.
impl fmt::Display for EstimateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EstimateError::UnknownPolicy(name) => {
                write!(f, "no estimates of this policy: '{name}': choose from {}", POLICIES.join(", "))
            }
            EstimateError::Sizes(given) => {
                write!(f, "{given} sizes of the cache: give 1 to {MAX_CACHES}, in bytes")
            }
            EstimateError::Memory { least, given } => {
                write!(f, "the estimator does not fit in {given} bytes: give at least {least}")
            }
        }
    }
}

impl std::error::Error for EstimateError {}
