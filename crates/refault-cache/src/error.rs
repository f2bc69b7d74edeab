//! What can go wrong, by what was asked for.

use std::io;
use std::path::PathBuf;

/// Why a cache cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// No such policy, or not one for a page cache.
    #[error(transparent)]
    Policy(#[from] refault_core::policy::PolicyError),
    /// Less than the least.
    #[error("{0} bytes are too little for a page cache: give at least {1}")]
    TooSmall(u64, u64),
    /// More than can be named.
    #[error("{0} bytes are more than a page cache can have: give at most {1}")]
    TooLarge(u64, u64),
    /// A share that leaves the policy too little.
    #[error("{0} of memory for evicted pages: give at least 0 and at most 0.5")]
    BadShare(f64),
    /// A share for compressed pages that leaves too little for others.
    #[error("{0} of memory for compressed pages: give at least 0 and at most 0.75")]
    BadCompressed(f64),
    /// Ratios of dirty memory that make no sense.
    #[error(
        "{0} of memory dirty before pages are written, {1} at most: give at most 0.5, and the first below the second"
    )]
    BadRatios(f64, f64),
    /// io_uring was asked for and the kernel gives none.
    #[error("io_uring: {0}; leave the choice to the cache, or ask for threads")]
    NoUring(io::Error),
    /// The statistics file cannot be appended to.
    #[error("{}: cannot write statistics of the page cache: {error}; name another file, or none", path.display())]
    Statistics {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The kernel does not give the addresses.
    #[error("reserving memory for the page cache: {0}")]
    Memory(io::Error),
}

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file system does not do direct I/O.
    #[error("{}: this file system does not do direct I/O (O_DIRECT); use a file on ext4, xfs, btrfs or a block device", .0.display())]
    NoDirect(PathBuf),
    /// A directory, a pipe, a socket or a terminal.
    #[error("{}: neither a file nor a block device; name one", .0.display())]
    NoFile(PathBuf),
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The device refused.
    #[error("reading the page at byte {offset}: {error}")]
    Io {
        /// Where the page begins.
        offset: u64,
        /// What the system said.
        error: io::Error,
    },
    /// The file has become shorter than it was, or the device stops in the middle of a sector.
    #[error("the page at byte {offset} ends too early: was the file truncated by another program?")]
    Short {
        /// Where the page begins.
        offset: u64,
    },
    /// Nothing can be evicted, and no page is on its way.
    #[error("no frame is free and the policy gives none up: raise the memory limit")]
    NoRoom,
    /// It lies beyond what a file can have.
    #[error("a file in a cache may have 64 TiB")]
    TooManyPages,
}

/// Why bytes could not be written. What was to be written is not acknowledged; pages of the write have their old or
/// their new contents, as the device has them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The device refused.
    #[error("writing at byte {offset}: {error}")]
    Io {
        /// Where the first page of the refused write begins.
        offset: u64,
        /// What the system said.
        error: io::Error,
    },
    /// A page that is written in part could not be read before.
    #[error("before writing a part of a page: {0}")]
    Read(#[from] ReadError),
    /// The file was opened for reading only (`EBADF`).
    #[error("writing at byte {offset}: the file was opened for reading only: open it for writing")]
    NotForWriting {
        /// Where the write was to begin.
        offset: u64,
    },
}
