//! Why a piece of work in the lab ends without its result.

use std::fmt;

use refault_trace::TraceError;

/// The end of a piece of work that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A trace could not be read, or a workload not be made.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A policy is not known, or cannot be run.
    #[error(transparent)]
    Policy(#[from] refault_core::policy::PolicyError),
    /// The request, or what it was asked of, cannot be used as it is.
    #[error("{what}: {place}: {remedy}")]
    Request {
        /// What is wrong.
        what: String,
        /// Where.
        place: String,
        /// What to do about it.
        remedy: String,
    },
    /// The work itself failed.
    #[error("{what}: {place}: {remedy}")]
    Failed {
        /// What failed.
        what: String,
        /// Where.
        place: String,
        /// What to do about it.
        remedy: String,
    },
    /// [`crate::Progress::is_cancelled`] said so.
    #[error("cancelled")]
    Cancelled,
}

impl LabError {
    /// The request cannot be used: `what` is wrong, `place` says where, `remedy` what to do about it.
    pub fn request(what: impl fmt::Display, place: impl fmt::Display, remedy: impl fmt::Display) -> LabError {
        LabError::Request { what: what.to_string(), place: place.to_string(), remedy: remedy.to_string() }
    }

    /// The work itself failed.
    pub fn failed(what: impl fmt::Display, place: impl fmt::Display, remedy: impl fmt::Display) -> LabError {
        LabError::Failed { what: what.to_string(), place: place.to_string(), remedy: remedy.to_string() }
    }
}
