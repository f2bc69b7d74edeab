//! All memory cgroups of the host, of version 1 and 2.
//!
//! Groups come and go while the tree is walked: those that are gone are left out. Cost: a directory is read for each.
//!
//! ```
//! for group in refault_host::tree::groups()? {
//!     println!("{} (version {}) with {} processes", group.path, group.version, group.processes().len());
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use refault_pool::reclaim::groups::{Mount, host_mounts};

use crate::text::printable;

/// The kernel counts memory of a group of version 1 here, and of version 2 there; the root of version 2 has only the
/// last.
const USAGE: [&str; 3] = ["memory.usage_in_bytes", "memory.current", "memory.stat"];

/// A memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its path below the root of the hierarchy, printable: `/system.slice/cron.service`.
    pub path: String,
    /// Its directory.
    pub directory: PathBuf,
    /// The inode of its directory: a group that is made anew under its name has another.
    pub id: u64,
    /// 1 or 2.
    pub version: u8,
    /// The place of the group above it in the list; none for the root.
    pub parent: Option<usize>,
}

impl Group {
    /// The processes in it that this PID namespace has, not those of groups below; none if it is gone.
    pub fn processes(&self) -> Vec<u32> {
        self.members().into_iter().filter(|pid| *pid > 0).collect()
    }

    /// All processes in it, with 0 for each that this PID namespace does not have.
    pub(crate) fn members(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// All memory cgroups of the host, each after the one above it.
///
/// # Errors
/// The host has no hierarchy that counts memory.
pub fn groups() -> io::Result<Vec<Group>> {
    let all = below(&host_mounts());
    if all.is_empty() {
        let why = "no memory cgroups: mount the memory controller of version 1, or version 2, at /sys/fs/cgroup";
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    Ok(all)
}

/// The groups of these hierarchies.
fn below(mounts: &[Mount]) -> Vec<Group> {
    let mut all = Vec::new();
    let mut seen = Vec::new();
    for mount in mounts {
        // A hierarchy may be mounted more than once.
        let Some(root) = group(&mount.point, "/", mount.version, None) else { continue };
        if seen.contains(&(mount.version, root.id)) {
            continue;
        }
        seen.push((mount.version, root.id));
        let mut next = all.len();
        all.push(root);
        while next < all.len() {
            let (directory, path) = (all[next].directory.clone(), all[next].path.clone());
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let name = printable(entry.file_name().as_bytes());
                    let path = format!("{}/{name}", path.trim_end_matches('/'));
                    all.extend(group(&entry.path(), &path, mount.version, Some(next)));
                }
            }
            next += 1;
        }
    }
    all
}

/// The group of a directory, if memory is counted there.
fn group(directory: &Path, path: &str, version: u8, parent: Option<usize>) -> Option<Group> {
    let counts = USAGE.iter().any(|file| directory.join(file).exists());
    let id = fs::metadata(directory).ok()?.ino();
    counts.then(|| Group { path: path.to_owned(), directory: directory.to_owned(), id, version, parent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_below_each_other_and_once() {
        let root = tempfile::tempdir().expect("a directory");
        let make = |path: &str, counts: bool| {
            let directory = root.path().join(path);
            fs::create_dir_all(&directory).expect("room");
            if counts {
                fs::write(directory.join("memory.current"), "0").expect("room");
            }
        };
        make("", true);
        make("system.slice/a\nb.service", true);
        make("system.slice", true);
        make("not-counted/below", false);
        fs::write(root.path().join("system.slice/a\nb.service/cgroup.procs"), "17\n0\nx\n").expect("room");
        let mount = Mount { root: "/".into(), point: root.path().to_owned(), version: 2 };
        let found = below(&[mount.clone(), mount]);
        let paths: Vec<(&str, Option<usize>)> = found.iter().map(|group| (group.path.as_str(), group.parent)).collect();
        assert_eq!(paths, [("/", None), ("/system.slice", Some(0)), ("/system.slice/a\\nb.service", Some(1))]);
        assert_eq!((found[2].members(), found[2].processes(), found[1].processes()), (vec![17, 0], vec![17], vec![]));
    }
}
