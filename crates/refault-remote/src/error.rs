//! What can go wrong.

use std::io;
use std::path::PathBuf;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// Not a URL of a store.
    #[error("{url}: {source}; give file:///DIRECTORY, http://HOST/DIRECTORY/ or s3://BUCKET/DIRECTORY")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong.
        source: object_store::Error,
    },
    /// Not a URL at all, or of a kind that this build does not know.
    #[error("{url}: {why}; give file:///DIRECTORY, http://HOST/DIRECTORY/ or s3://BUCKET/DIRECTORY")]
    Unknown {
        /// What was given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// An option that makes no sense.
    #[error("{0}")]
    BadOption(&'static str),
    /// The thread for requests cannot be started.
    #[error("starting the thread for requests: {0}")]
    Runtime(io::Error),
}

/// Why an object cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store refused, or has no such object.
    #[error("{path}: {message}")]
    Store {
        /// Which object.
        path: String,
        /// What the store said.
        message: String,
    },
    /// The local file cannot be used.
    #[error("{}: the local file of cached blocks: {error}", path.display())]
    Tier {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}
