//! Where the kernel's files are: below `/`, or below a directory that a test has made.

use std::io;
use std::path::{Path, PathBuf};

/// The root of `/proc`, `/sys`, `/dev` and `/run`.
#[derive(Clone, Debug)]
pub struct Places {
    root: PathBuf,
}

impl Default for Places {
    fn default() -> Places {
        Places::below("/")
    }
}

impl Places {
    /// Files below a directory.
    pub fn below(root: impl AsRef<Path>) -> Places {
        Places { root: root.as_ref().to_owned() }
    }

    /// The path of a file that stands at this absolute path on a machine.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The contents of such a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<String> {
        std::fs::read_to_string(self.at(path))
    }

    /// Bytes of the machine's memory.
    pub fn memory_bytes(&self) -> u64 {
        let text = self.read("/proc/meminfo").unwrap_or_default();
        let kilobytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
        kilobytes.and_then(|number| number.trim().parse::<u64>().ok()).map_or(u64::MAX, |number| number << 10)
    }

    /// Nanoseconds in which a process, and children that it has waited for, computed in user mode; 0 if there is none.
    pub fn user_ns(&self, process: i32) -> u64 {
        /// `utime` among the fields behind the name, and `cutime`.
        const FIELDS: [usize; 2] = [11, 13];
        let stat = self.read(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |parts| parts.1).split_whitespace().collect();
        let ticks: u64 = FIELDS.iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
        ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second()
    }

    /// Whether all threads of a process wait for an event, are stopped, or have ended; also if there is none.
    pub fn is_asleep(&self, process: i32) -> bool {
        let threads = std::fs::read_dir(self.at(format!("/proc/{process}/task"))).into_iter().flatten().flatten();
        let state = |thread: std::fs::DirEntry| {
            let text = std::fs::read(thread.path().join("stat")).unwrap_or_default();
            refault_linux::proc::stat_state(&text)
        };
        threads.filter_map(state).all(|state| matches!(state, b'S' | b'T' | b't' | b'I' | b'X' | b'Z'))
    }

    /// Whether the machine has swap.
    pub fn has_swap(&self) -> bool {
        self.read("/proc/swaps").is_ok_and(|text| text.lines().nth(1).is_some())
    }
}

/// Writes a value to a file of the kernel's.
pub(crate) fn write(path: &Path, value: impl std::fmt::Display) -> io::Result<()> {
    use std::io::Write;
    // One call: such a file takes each write for a value.
    std::fs::File::options().write(true).open(path)?.write_all(value.to_string().as_bytes())
}

/// The number at a place of a file of words.
pub(crate) fn number(path: &Path, at: usize) -> io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    let word = text.split_whitespace().nth(at).and_then(|word| word.parse().ok());
    word.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no number"))
}

/// The number after a key, in a file of lines of keys and numbers.
pub(crate) fn value(text: &str, key: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    values.next()?.trim().parse().ok()
}
