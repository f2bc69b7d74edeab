//! A memory cgroup of version 1 or 2, for one budget.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::hierarchy::{Hierarchy, Version};
use crate::places::{number, value, write};

/// What anonymous memory is reclaimed for beside file pages: equally, as swap is memory here.
const SWAPPINESS: u32 = 100;

/// A memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    version: Version,
    path: PathBuf,
    /// In version 1 a group beside it with the same processes, which can be paused.
    freezer: Option<PathBuf>,
}

/// What a group's statistics say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Page faults since it was made.
    pub faults: u64,
    /// Those of them that waited for a page to be read.
    pub major_faults: u64,
    /// Pages of it that are in the swap cache: in memory and in swap at once.
    pub swap_cached_bytes: u64,
}

impl Group {
    /// A group of this hierarchy that is about to be made.
    pub fn named(hierarchy: &Hierarchy, name: &str) -> Group {
        let freezer = hierarchy.freezer.as_ref().map(|parent| parent.join(name));
        Group { version: hierarchy.version, path: hierarchy.parent.join(name), freezer }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which files it has.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Makes it. In version 1 a thread that finds no memory is paused, and none is killed.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make(&self) -> io::Result<()> {
        std::fs::create_dir(&self.path)?;
        if self.version == Version::One {
            write(&self.path.join("memory.oom_control"), 1)?;
            // Not in kernels without swap.
            let _ = write(&self.path.join("memory.swappiness"), SWAPPINESS);
        }
        self.freezer.as_ref().map_or(Ok(()), std::fs::create_dir)
    }

    /// Limits it; makes room first if it has more, in this thread.
    ///
    /// # Errors
    /// The kernel finds no room (`EBUSY`), in version 1.
    pub fn set_limit(&self, bytes: u64) -> io::Result<()> {
        match self.version {
            Version::One => write(&self.path.join("memory.limit_in_bytes"), bytes),
            Version::Two => write(&self.path.join("memory.high"), bytes),
        }
    }

    /// Takes the limit away, so that what waits goes on.
    pub fn lift(&self) -> io::Result<()> {
        match self.version {
            Version::One => write(&self.path.join("memory.limit_in_bytes"), -1),
            Version::Two => write(&self.path.join("memory.high"), "max"),
        }
    }

    /// Bytes that are charged to it: resident memory, files' pages, page tables and the kernel's objects.
    ///
    /// # Errors
    /// The group is not there.
    pub fn usage(&self) -> io::Result<u64> {
        match self.version {
            Version::One => number(&self.path.join("memory.usage_in_bytes"), 0),
            Version::Two => number(&self.path.join("memory.current"), 0),
        }
    }

    /// Bytes of it that are in swap and not in memory, before compression; 0 if the kernel does not say.
    pub fn swapped(&self) -> u64 {
        match self.version {
            Version::One => {
                let both = number(&self.path.join("memory.memsw.usage_in_bytes"), 0).unwrap_or(0);
                both.saturating_sub(self.usage().unwrap_or(0))
            }
            Version::Two => {
                let slots = number(&self.path.join("memory.swap.current"), 0).unwrap_or(0);
                slots.saturating_sub(self.counts().swap_cached_bytes)
            }
        }
    }

    /// Bytes of it that have a place in swap: those in swap, and those in memory that are to be written, could not be, or
    /// were read back.
    pub fn placed(&self) -> u64 {
        self.swapped() + self.counts().swap_cached_bytes
    }

    /// Whether a thread that finds no memory waits for it at a fault of its own alone. In the kernel it finds that the
    /// memory cannot be had: a call fails, and a thread whose restartable sequence (rseq) cannot be updated is ended.
    pub fn fails_in_the_kernel(&self) -> bool {
        self.version == Version::One
    }

    /// Whether a thread of it waits because it found no memory.
    pub fn is_paused(&self) -> bool {
        let text = std::fs::read_to_string(self.path.join("memory.oom_control")).unwrap_or_default();
        self.version == Version::One && value(&text, "under_oom") == Some(1)
    }

    /// Threads that the kernel has killed for want of memory.
    pub fn kills(&self) -> u64 {
        let file = if self.version == Version::One { "memory.oom_control" } else { "memory.events" };
        let text = std::fs::read_to_string(self.path.join(file)).unwrap_or_default();
        value(&text, "oom_kill").unwrap_or(0)
    }

    /// Its statistics.
    pub fn counts(&self) -> Counts {
        let text = std::fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let either = |one: &str, two: &str| value(&text, if self.version == Version::One { one } else { two });
        Counts {
            faults: either("total_pgfault", "pgfault").unwrap_or(0),
            major_faults: either("total_pgmajfault", "pgmajfault").unwrap_or(0),
            swap_cached_bytes: either("total_swapcached", "swapcached").unwrap_or(0),
        }
    }

    /// Nanoseconds in which threads of it waited for memory, if the kernel counts them.
    pub fn waited_ns(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.path.join("memory.pressure")).ok()?;
        let total = text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total="))?.1;
        Some(total.trim().parse::<u64>().ok()? * 1000)
    }

    /// Pauses its processes, or lets them go on. Those in the kernel are paused when they leave it.
    pub fn pause(&self, is_paused: bool) {
        let group = self.freezer.as_ref().unwrap_or(&self.path);
        // Where neither is there, a process that finds no memory looks for it all the while.
        if write(&group.join("cgroup.freeze"), u32::from(is_paused)).is_err() {
            let _ = write(&group.join("freezer.state"), if is_paused { "FROZEN" } else { "THAWED" });
        }
    }

    /// What a process writes `0` to in order to enter: each of them.
    ///
    /// # Errors
    /// One cannot be opened.
    pub fn entrances(&self) -> io::Result<Vec<File>> {
        let open = |group: &PathBuf| File::options().write(true).open(group.join("cgroup.procs"));
        self.freezer.iter().chain([&self.path]).map(open).collect()
    }

    /// The processes in it and below.
    pub fn processes(&self) -> Vec<i32> {
        let mut found = Vec::new();
        let mut todo = vec![self.path.clone()];
        while let Some(group) = todo.pop() {
            let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
            todo.extend(below(&group));
        }
        found
    }

    /// Moves what still runs in it to the group above, without a limit.
    pub fn release(&self) {
        let _ = self.lift();
        self.pause(false);
        let processes = self.processes();
        for group in self.freezer.iter().chain([&self.path]) {
            let Some(above) = group.parent().map(|above| above.join("cgroup.procs")) else { continue };
            processes.iter().for_each(|process| _ = write(&above, process));
        }
    }

    /// Removes it and the groups below.
    ///
    /// # Errors
    /// Something runs in it.
    pub fn remove(&self) -> io::Result<()> {
        self.freezer.iter().chain([&self.path]).try_for_each(|group| remove(group))
    }
}

fn below(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

fn remove(group: &Path) -> io::Result<()> {
    below(group).iter().try_for_each(|group| remove(group))?;
    match std::fs::remove_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
