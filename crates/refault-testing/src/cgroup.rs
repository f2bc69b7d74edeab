//! A memory cgroup for a test, and programs in it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where memory is counted, version 1 first.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A memory cgroup, removed at the end; its processes must have ended by then.
#[derive(Debug)]
pub struct Group {
    directory: PathBuf,
    path: String,
}

impl Group {
    /// Makes one with this in its name.
    ///
    /// # Errors
    /// This user may make none, or memory is not counted.
    pub fn new(name: &str) -> io::Result<Group> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = format!("refault-{}-{number}-{name}", std::process::id());
        let mut refused = io::Error::from(io::ErrorKind::NotFound);
        for root in ROOTS {
            let directory = Path::new(root).join(&path);
            match std::fs::create_dir(&directory) {
                Ok(()) if directory.join("memory.stat").exists() => {
                    return Ok(Group { directory, path: format!("/{path}") });
                }
                Ok(()) => drop(std::fs::remove_dir(&directory)),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its path below the root of the hierarchy.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A command that runs a program in the group.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\"; exec \"$@\""]).arg(self.directory.join("cgroup.procs")).arg(program);
        command
    }

    /// Writes a file of the group, of the first of these names that it has.
    ///
    /// # Errors
    /// The group has none of them, or the kernel refuses.
    pub fn write(&self, files: &[&str], text: &str) -> io::Result<()> {
        let file = files.iter().map(|file| self.directory.join(file)).find(|file| file.exists());
        std::fs::write(file.ok_or(io::ErrorKind::NotFound)?, text)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.directory);
    }
}
