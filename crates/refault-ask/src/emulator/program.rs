//! Has a guest run a program: on a disk of its own, in a group under a limit, on each kind of lists.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use refault_lab::LabError;

use super::tree::Tree;
use super::{Accelerator, COMMAND_LINE, Idle, Machine, OWN_MEMORY, answers, temporary_directory, write_initial};
use crate::job::program::{EXIT_STATUS, Program, SIGNAL};
use crate::job::{Counters, Lists};
use crate::kernel::Kernel;

const MKFS: &str = "mkfs.ext4";
const DISK: &str = "program.img";
const TREE: &str = "tree";
/// Room on the disk beyond the files that are there.
const SCRATCH: u64 = 2 << 30;
/// Memory of the guest beyond twice the limit: what is swapped is compressed there.
const ROOM: u64 = 256 << 20;

/// A program, with the files that it needs.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// What is run.
    pub program: &'a Program,
    /// Files and directories that it needs beside itself and its libraries, by their whole paths.
    pub with: &'a [PathBuf],
    /// After which the guest is stopped.
    pub patience: Duration,
}

/// What became of a program on one kind of lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was counted, by the names of [`crate::job::program::counters`].
    pub counters: Counters,
    /// Its exit status, or the signal that killed it.
    pub ended: Result<u64, u64>,
    /// The last lines that it wrote.
    pub printed: Vec<String>,
}

/// The disk from which guests boot with a program: it is made once for all kernels.
#[derive(Debug)]
pub struct Disk {
    directory: tempfile::TempDir,
    /// Bytes of the program and what it needs.
    pub bytes: u64,
}

impl Disk {
    /// Gathers a program and what it needs.
    ///
    /// # Errors
    /// Something is missing, or the disk cannot be made.
    pub fn new(asked: &Asked<'_>) -> Result<Disk, LabError> {
        let directory = temporary_directory()?;
        let root = directory.path().join(TREE);
        let mut tree = Tree::new(&root)?;
        tree.directory(Path::new(&asked.program.directory))?;
        for path in asked.program.arguments.first().map(PathBuf::from).iter().chain(asked.with) {
            tree.add(path)?;
        }
        let bytes = tree.bytes();
        make(&root, &directory.path().join(DISK), bytes)?;
        // The disk has it all.
        let _ = std::fs::remove_dir_all(&root);
        Ok(Disk { directory, bytes })
    }
}

/// Makes a file system of a tree. Without a journal and without anything that is left to do in the background, two runs
/// are alike.
fn make(root: &Path, disk: &Path, bytes: u64) -> Result<(), LabError> {
    let mut command = Command::new(MKFS);
    // Programs for the administrator are not on everybody's path.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    command.env("PATH", std::env::join_paths(places).unwrap_or(path));
    command.args(["-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal,^metadata_csum"]);
    command.args(["-U", "clear", "-E", "lazy_itable_init=0,root_owner=0:0"]).arg("-d").arg(root).arg(disk);
    command.arg(format!("{}k", (bytes + bytes / 4 + SCRATCH) / 1024));
    let output = command.output().map_err(|error| {
        let remedy = "install it (Debian, Ubuntu: apt-get install e2fsprogs; Fedora: dnf install e2fsprogs)";
        LabError::failed(format!("no disk can be made: {error}"), MKFS, remedy)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().last().unwrap_or("it does not say why").trim().to_owned();
    Err(LabError::failed(format!("no disk can be made: {said}"), disk.display(), "make room there, or set TMPDIR"))
}

/// Asks a kernel about a program. `progress` hears how many kinds of lists are done, and for how many seconds of the
/// guest's the program has run on the next one.
///
/// # Errors
/// There is no qemu, the kernel does not begin, it cannot run the program, or time is up; what the guest said is in the
/// sentence.
pub fn ask(
    kernel: &Kernel,
    asked: &Asked<'_>,
    disk: &Disk,
    lists: &[Lists],
    progress: &dyn Fn(usize, u64),
) -> Result<(Accelerator, Vec<Outcome>), LabError> {
    let directory = disk.directory.path();
    let initial = write_initial(directory, kernel, &asked.program.to_string(), lists)?;
    // What a guest writes is forgotten, so that each kind of lists has the disk as it was made.
    let drive = format!("file={},if=virtio,format=raw,snapshot=on", directory.join(DISK).display());
    let machine = Machine {
        directory,
        kernel,
        memory: OWN_MEMORY + initial + 2 * asked.program.limit + ROOM,
        drives: vec![drive; lists.len()],
        command_line: COMMAND_LINE.to_owned(),
        idle: Idle::Waited,
        patience: Some(asked.patience),
    };
    let (accelerator, runs) = answers(&machine, lists.len(), progress)?;
    let outcomes = runs.into_iter().map(|mut run| {
        let signal = run.counters.remove(SIGNAL);
        let status = run.counters.remove(EXIT_STATUS).unwrap_or(0);
        Outcome { counters: run.counters, ended: signal.map_or(Ok(status), Err), printed: run.printed }
    });
    Ok((accelerator, outcomes.collect()))
}
