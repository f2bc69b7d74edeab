//! Where control groups lie: the memory group of a process, a directory's path in its hierarchy, and how much more a
//! group may have in swap.
//!
//! ```
//! use refault_pool::reclaim::groups::{of_process, swap_room_bytes};
//!
//! if let Some(directory) = of_process(std::process::id()) {
//!     println!("{} may swap {:?} bytes more", directory.display(), swap_room_bytes(&directory));
//! }
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A hierarchy of control groups that counts memory, as `/proc/self/mountinfo` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What of the hierarchy is mounted.
    pub root: String,
    /// Where.
    pub point: PathBuf,
    /// 1 or 2.
    pub version: u8,
}

/// The hierarchies that may count memory: of version 2 also where version 1 counts it.
fn mounts(text: &str) -> Vec<Mount> {
    let one = |line: &str| {
        let (first, last) = line.split_once(" - ")?;
        let mut first = first.split(' ').skip(3).map(unescaped);
        let (root, point) = (first.next()?, PathBuf::from(first.next()?));
        let mut last = last.split(' ');
        match (last.next()?, last.nth(1)?) {
            ("cgroup2", _) => Some(Mount { root, point, version: 2 }),
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => {
                Some(Mount { root, point, version: 1 })
            }
            _ => None,
        }
    };
    text.lines().filter_map(one).collect()
}

/// Blanks are written as `\040`, and so on.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

/// The hierarchies of this host that may count memory: of version 2 also where version 1 counts it.
pub fn host_mounts() -> Vec<Mount> {
    mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// The path of a group's directory below the root of its hierarchy, such as `/system.slice`.
///
/// # Errors
/// It is not in a hierarchy of control groups.
pub fn path_in_hierarchy(directory: &Path) -> io::Result<String> {
    let directory = directory.canonicalize()?;
    path_below(&host_mounts(), &directory)
        .ok_or_else(|| io::Error::other(format!("{} is in no hierarchy of memory groups", directory.display())))
}

fn path_below(mounts: &[Mount], directory: &Path) -> Option<String> {
    let within = |mount: &&Mount| directory.starts_with(&mount.point);
    // Version 2 is often mounted below version 1's directories.
    let mount = mounts.iter().filter(within).max_by_key(|mount| mount.point.as_os_str().len())?;
    let below = directory.strip_prefix(&mount.point).ok()?.to_string_lossy();
    let path = format!("{}/{below}", mount.root.trim_end_matches('/'));
    Some(if path.len() > 1 { path.trim_end_matches('/').to_owned() } else { path })
}

/// The directory of the group that a process's memory is charged to, if it can be seen from here.
pub fn of_process(pid: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    directory_of(&host_mounts(), &groups)
}

/// The directory of the group that memory is charged to, by the text of a process's `cgroup` file.
pub fn directory_of(mounts: &[Mount], groups: &str) -> Option<PathBuf> {
    let of = |version: u8| {
        let path = groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let counts = match version {
                1 => controllers.split(',').any(|controller| controller == "memory"),
                _ => controllers.is_empty(),
            };
            counts.then_some(path)
        })?;
        let mount = mounts.iter().find(|mount| mount.version == version)?;
        let below = path.strip_prefix(mount.root.trim_end_matches('/'))?;
        Some(mount.point.join(below.trim_start_matches('/')))
    };
    // Memory is counted in version 1 wherever that has it.
    of(1).or_else(|| of(2))
}

/// How many bytes more a group may have in swap, by its own limit and those above it; nothing if there is no limit.
///
/// That is `memory.swap.max` of version 2. The limit of version 1 is of memory and swap together: what goes from one to
/// the other does not change the sum, so it hinders nothing.
pub fn swap_room_bytes(directory: &Path) -> Option<u64> {
    let number =
        |directory: &Path, file: &str| fs::read_to_string(directory.join(file)).ok()?.trim().parse::<u64>().ok();
    directory
        .ancestors()
        .take_while(|directory| directory.join("cgroup.procs").exists())
        .filter_map(|directory| {
            // "max" is no number, and the root has no such file.
            let most = number(directory, "memory.swap.max")?;
            Some(most.saturating_sub(number(directory, "memory.swap.current").unwrap_or(0)))
        })
        .min()
}

/// How readily the kernel swaps for a group (version 1), or for all (version 2): at 0 nothing is swapped to shrink a
/// group. A process's own pages go at any.
pub fn swappiness(directory: &Path) -> u32 {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse().ok();
    number(&directory.join("memory.swappiness")).or_else(|| number(Path::new("/proc/sys/vm/swappiness"))).unwrap_or(60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
41 31 0:38 /a\\040slice /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw
";

    #[test]
    fn a_directory_has_a_path_and_a_process_a_directory() {
        let both = mounts(MOUNTS);
        assert_eq!(both.len(), 2);
        let path = |directory: &str| path_below(&both, Path::new(directory));
        assert_eq!(path("/sys/fs/cgroup/memory").as_deref(), Some("/"));
        assert_eq!(path("/sys/fs/cgroup/memory/web/one").as_deref(), Some("/web/one"));
        assert_eq!(path("/sys/fs/cgroup/unified/web").as_deref(), Some("/a slice/web"));
        assert_eq!(path("/sys/fs/cgroup/devices/web"), None);
        let of = |groups| directory_of(&both, groups).map(|path| path.display().to_string());
        assert_eq!(of("4:memory:/web\n0::/a slice/x\n").as_deref(), Some("/sys/fs/cgroup/memory/web"));
        assert_eq!(of("0::/a slice/x\n").as_deref(), Some("/sys/fs/cgroup/unified/x"));
        assert_eq!(of("0::/elsewhere\n"), None);
    }

    #[test]
    fn the_narrowest_limit_of_swap_counts() {
        let root = tempfile::tempdir().expect("a directory");
        let inner = root.path().join("slice/web");
        fs::create_dir_all(&inner).expect("room");
        let write = |directory: &Path, file: &str, text: &str| fs::write(directory.join(file), text).expect("room");
        let outer = root.path().join("slice");
        for directory in [root.path(), &outer, &inner] {
            write(directory, "cgroup.procs", "");
        }
        assert_eq!(swap_room_bytes(&inner), None);
        write(&inner, "memory.swap.max", "max\n");
        assert_eq!(swap_room_bytes(&inner), None);
        write(&outer, "memory.swap.max", "1000\n");
        write(&outer, "memory.swap.current", "300\n");
        assert_eq!(swap_room_bytes(&inner), Some(700));
        write(&inner, "memory.swap.max", "500\n");
        write(&inner, "memory.swap.current", "600\n");
        assert_eq!(swap_room_bytes(&inner), Some(0));
        write(&inner, "memory.swappiness", "7\n");
        assert_eq!(swappiness(&inner), 7);
    }
}
