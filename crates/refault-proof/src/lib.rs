//! What proves `refault run` from outside.
//!
//! Nothing here knows how the tool works inside: programs are run alone and under it, and what they print, how they end
//! and what memory they use are compared.
//! - [`gauntlet`]: real programs that others wrote.
//! - [`probe`]: small C programs, each of which shows one thing that must be as it is without the tool.
//! - [`fuzz`]: random memory calls beside the bare kernel, with failures made small.
//!
//! Nothing is asserted here; the tests of `refault-cli` and the command `refault-proof` judge.

#![forbid(unsafe_code)]

pub mod fuzz;
pub mod gauntlet;
pub mod known;
pub mod look;
pub mod memory;
pub mod probe;
pub mod schedule;
pub mod trial;

/// Why nothing could be tried at all.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// A file or a directory of the harness.
    #[error("{what}: {error}")]
    Io {
        /// What was tried, and with which file.
        what: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// A table of programs or of known failures.
    #[error("{table}: {error}")]
    Table {
        /// Which.
        table: String,
        /// Where and why.
        error: String,
    },
    /// A C program that does not compile.
    #[error("cannot compile {source_name}: {message}")]
    Compile {
        /// Its name in `c/`.
        source_name: String,
        /// The compiler's words.
        message: String,
    },
}

impl ProofError {
    /// What happened with which file.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ProofError {
        let what = what.into();
        move |error| ProofError::Io { what, error }
    }
}
