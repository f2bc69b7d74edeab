//! Which files fill the page cache, and of which groups.
//!
//! Files are opened, never read: `cachestat` (Linux 6.5) says how many pages of one are cached, dirty and lately
//! evicted. Where there is no such call, `mincore` tells cached pages alone, and those only to a file's owner and root.
//! Neither moves a page on the kernel's lists. The groups of a file's pages are found by a sample of them ([`pages`]),
//! for root.
//!
//! Cost: some microseconds for each file whose directory entry is cached, on all processors; what is kept is the largest files
//! that were asked for.
//!
//! ```
//! use refault_host::files::{Scan, scan};
//!
//! let found = scan(&Scan { paths: vec!["/etc".into()], top: 3, crosses_mounts: false })?;
//! assert!(found.files > 0 && found.largest.len() <= 3);
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod change;
#[allow(unsafe_code)] // Two system calls and a mapping, each with its reason.
pub mod pages;
mod walk;

use std::io;
use std::path::PathBuf;

use serde::Serialize;

pub use walk::{mounts, scan};

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// How many of the largest files are kept.
    pub top: usize,
    /// Goes on into other file systems that are mounted below.
    pub crosses_mounts: bool,
}

/// What is cached of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cached {
    /// Bytes in the page cache.
    pub cached_bytes: u64,
    /// Bytes of them that are to be written; none where the kernel does not say.
    pub dirty_bytes: Option<u64>,
    /// Bytes that were evicted lately; none where the kernel does not say.
    pub recently_evicted_bytes: Option<u64>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CachedFile {
    /// Its path, printable.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// What is cached of it.
    #[serde(flatten)]
    pub cached: Cached,
    /// Seconds since it was accessed or changed, as its times say: of most mounts the first access of a day counts.
    pub age_seconds: u64,
    /// The groups that most of its cached pages are charged to, each with its share of those that were looked at.
    pub groups: Vec<GroupShare>,
    /// Where it is.
    #[serde(skip)]
    pub place: PathBuf,
}

/// A group's share of a file's cached pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupShare {
    /// The group's path.
    pub path: String,
    /// Its share, in percent.
    pub percent: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    /// Files that were looked at.
    pub files: u64,
    /// Files that this user may not open.
    pub refused: u64,
    /// Bytes cached of all files.
    pub cached_bytes: u64,
    /// Bytes of them that are to be written; none where the kernel does not say.
    pub dirty_bytes: Option<u64>,
    /// The call that knew.
    pub source: &'static str,
    /// The largest, by what is cached of them.
    pub largest: Vec<CachedFile>,
}

/// Adds the groups of the largest files, as far as this user may see them.
///
/// # Errors
/// There are no memory cgroups.
pub fn add_groups(found: &mut Found) -> io::Result<()> {
    let groups = crate::tree::groups()?;
    let names = groups.iter().map(|group| (group.id, group.path.as_str())).collect();
    for file in &mut found.largest {
        file.groups = pages::groups(&file.place, file.size_bytes, &names).unwrap_or_default();
    }
    Ok(())
}
