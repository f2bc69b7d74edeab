//! The kernel shrinks a control group: `memory.reclaim` (version 2), or its limit is lowered and put back (version 1).
//!
//! Version 1 has no file that reclaims a given amount. Its limit takes effect only once the kernel has brought the
//! group below it, and the one from before is written back at once; between the two the group's own allocations would
//! reclaim, not fail. If the kernel cannot, it leaves the limit as it was.
//!
//! ```
//! use refault_pool::reclaim::cgroup::Cgroup;
//!
//! // Only directories of memory control groups can be shrunk.
//! assert!(Cgroup::open("/proc".as_ref()).is_err());
//! if let Ok(group) = Cgroup::open("/sys/fs/cgroup/system.slice".as_ref()) {
//!     println!("{} bytes, shrunk by {}", group.usage_bytes()?, group.means());
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How a group is shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// `memory.reclaim`.
    Reclaim,
    /// `memory.limit_in_bytes`, lowered and put back.
    Limit,
}

/// A control group.
#[derive(Debug)]
pub struct Cgroup {
    directory: PathBuf,
    means: Means,
}

impl Cgroup {
    /// Takes the group of a directory.
    ///
    /// # Errors
    /// It is no memory cgroup, or nothing can be written there.
    pub fn open(directory: &Path) -> io::Result<Cgroup> {
        let means = [("memory.reclaim", Means::Reclaim), ("memory.limit_in_bytes", Means::Limit)];
        for (file, means) in means {
            let path = directory.join(file);
            if path.exists() {
                fs::File::options().write(true).open(path)?;
                return Ok(Cgroup { directory: directory.to_owned(), means });
            }
        }
        Err(io::Error::from(io::ErrorKind::NotFound))
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// How it is shrunk, in words.
    pub fn means(&self) -> &'static str {
        match self.means {
            Means::Reclaim => "memory.reclaim",
            Means::Limit => "memory.limit_in_bytes, lowered and put back",
        }
    }

    /// Bytes charged to it.
    ///
    /// # Errors
    /// The group is gone.
    pub fn usage_bytes(&self) -> io::Result<u64> {
        self.number(match self.means {
            Means::Reclaim => "memory.current",
            Means::Limit => "memory.usage_in_bytes",
        })
    }

    /// Bytes of it that go nowhere but to swap: those that are no file's, and shared memory. 0 where the kernel does
    /// not say.
    pub fn needs_swap_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        // Version 1 sums up over groups below in `total_`.
        let version_1 = text.lines().any(|line| line.starts_with("total_rss "));
        let names = if version_1 { ["total_rss", "total_shmem"] } else { ["anon", "shmem"] };
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(name, _)| names.contains(name)).filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum()
    }

    /// Bytes of it that are in swap; 0 where the kernel does not say.
    pub fn swapped_bytes(&self) -> u64 {
        if let Ok(bytes) = self.number("memory.swap.current") {
            return bytes;
        }
        let text = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("total_swap ")?.parse().ok()).unwrap_or(0)
    }

    /// The processes in it, not those of groups below.
    ///
    /// # Errors
    /// The group is gone.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let text = fs::read_to_string(self.directory.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Asks the kernel to take `bytes` bytes away. Returns by how many the charge fell. That the kernel found less is
    /// no error.
    ///
    /// # Errors
    /// The group is gone, or belongs to another user.
    pub fn reclaim(&self, bytes: u64) -> io::Result<u64> {
        let before = self.usage_bytes()?;
        match self.means {
            Means::Reclaim => could_not(fs::write(self.directory.join("memory.reclaim"), bytes.to_string()))?,
            Means::Limit => self.lower_limit(before.saturating_sub(bytes))?,
        }
        Ok(before.saturating_sub(self.usage_bytes()?))
    }

    fn lower_limit(&self, bytes: u64) -> io::Result<()> {
        let file = self.directory.join("memory.limit_in_bytes");
        let before = fs::read_to_string(&file)?;
        let lowered = could_not(fs::write(&file, bytes.to_string()));
        let number: u64 = before.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        // No limit is written as -1 and read as the largest number of pages.
        let back = if number > u64::MAX / 4 { "-1".to_owned() } else { number.to_string() };
        fs::write(&file, back)?;
        lowered
    }

    fn number(&self, file: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.directory.join(file))?;
        text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }
}

/// The kernel found less than was asked for.
fn could_not(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_what_it_was_afterwards() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        assert_eq!(Cgroup::open(directory.path()).expect_err("no group").kind(), io::ErrorKind::NotFound);
        for (limit, back) in [("9223372036854771712", "-1"), ("1048576", "1048576")] {
            fs::write(at("memory.limit_in_bytes"), limit).expect("room");
            fs::write(at("memory.usage_in_bytes"), "500000\n").expect("room");
            let group = Cgroup::open(directory.path()).expect("looks like one");
            assert_eq!(group.reclaim(100_000).expect("files"), 0, "these files reclaim nothing");
            assert_eq!(fs::read_to_string(at("memory.limit_in_bytes")).expect("text"), back);
        }
        fs::write(at("memory.reclaim"), "").expect("room");
        fs::write(at("memory.current"), "7\n").expect("room");
        let group = Cgroup::open(directory.path()).expect("looks like one");
        group.reclaim(4096).expect("files");
        assert_eq!(fs::read_to_string(at("memory.reclaim")).expect("text"), "4096");
        assert_eq!(group.means(), "memory.reclaim");
        for stat in ["anon 40\nfile 100\nshmem 2\n", "rss 1\nshmem 1\ntotal_rss 40\ntotal_shmem 2\ntotal_swap 9\n"] {
            fs::write(at("memory.stat"), stat).expect("room");
            assert_eq!(group.needs_swap_bytes(), 42);
            assert_eq!(group.swapped_bytes(), if stat.contains("total_swap") { 9 } else { 0 });
        }
    }
}
