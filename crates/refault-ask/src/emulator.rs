//! Boots a kernel under qemu with a job, and hears what the guest says.
//!
//! Where the machine lets guests run on its processor (KVM), they do; otherwise, and where that fails, every instruction
//! is emulated and time is a count of instructions, so that runs repeat.

#![allow(unsafe_code)] // That the emulator ends with this process is said between fork and exec.

pub mod initial;
pub mod program;
pub mod pulse;
pub mod tree;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use refault_lab::LabError;

use initial::Archive;

use crate::guest::{JOB, LISTS, MODULES, ORDER};
use crate::job::{Counters, Job, Lists, Said};
use crate::kernel::Kernel;
use crate::kernel::modules;
use crate::{iso, own_binary};

const QEMU: &str = "qemu-system-x86_64";
const KVM: &str = "/dev/kvm";
/// A guest on the processor itself begins within seconds, or does not.
const KVM_BEGINS: Duration = Duration::from_secs(10);
/// A guest that says nothing for this time is stuck.
const SILENCE: Duration = Duration::from_secs(180);
/// Memory beyond what the job takes: the kernel's.
const OWN_MEMORY: u64 = 192 << 20;
const SEQUENCE: &str = "sequence.img";
const DISK: &str = "data.img";
const INITIAL: &str = "initial.img";
const CONSOLE: &str = "console.log";
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 quiet mitigations=off \
                            numa_balancing=disable psi=1 nokaslr damon_stat.enabled=N";

/// How a guest's instructions are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// On this machine's processor.
    Kvm,
    /// One by one, in software.
    Emulation,
}

impl Accelerator {
    /// As in tables.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Emulation => "emulation",
        }
    }

    fn arguments(self, idle: Idle) -> &'static [&'static str] {
        match (self, idle) {
            (Accelerator::Kvm, _) => &["-accel", "kvm", "-cpu", "host"],
            (Accelerator::Emulation, Idle::Skipped) => {
                &["-accel", "tcg", "-cpu", "max,-la57", "-icount", "shift=3,sleep=off"]
            }
            (Accelerator::Emulation, Idle::SkippedAtSpeed) => {
                &["-accel", "tcg", "-cpu", "max,-la57", "-icount", "shift=0,sleep=off"]
            }
            (Accelerator::Emulation, Idle::Waited) => {
                &["-accel", "tcg", "-cpu", "max,-la57", "-icount", "shift=3,sleep=on"]
            }
        }
    }
}

/// What a guest answers: the counters of each kind of lists, in the order asked.
#[derive(Clone, Debug)]
pub struct Answered {
    /// How it was run.
    pub accelerator: Accelerator,
    /// One for each kind of lists.
    pub counters: Vec<Counters>,
}

/// Asks a kernel. `sequence` are the accesses as numbers of 64 bits; `progress` hears the share that is done.
///
/// # Errors
/// There is no qemu, the kernel does not begin, or it cannot do the job; what it said is in the sentence.
pub fn ask(
    kernel: &Kernel,
    job: &Job,
    lists: &[Lists],
    sequence: &[u64],
    progress: &dyn Fn(f64),
) -> Result<Answered, LabError> {
    let directory = temporary_directory()?;
    let memory = write_images(directory.path(), kernel, job, lists, sequence)?;
    let drive = |name: &str| format!("file={},if=virtio,format=raw,readonly=on", directory.path().join(name).display());
    let machine = Machine {
        directory: directory.path(),
        kernel,
        memory,
        drives: vec![drive(DISK), drive(SEQUENCE)],
        command_line: format!("{COMMAND_LINE} transparent_hugepage=never"),
        idle: Idle::Skipped,
        patience: None,
    };
    let (accelerator, runs) = answers(&machine, lists.len(), &|ended, accesses| {
        let part = accesses as f64 / job.accesses.max(1) as f64;
        progress((ended as f64 + part) / lists.len() as f64);
    })?;
    Ok(Answered { accelerator, counters: runs.into_iter().map(|run| run.counters).collect() })
}

/// A machine that is to boot.
struct Machine<'a> {
    /// Has the initial file system, and takes what the kernel says.
    directory: &'a Path,
    kernel: &'a Kernel,
    /// Bytes.
    memory: u64,
    /// As the emulator takes them, in the order of their names in the guest.
    drives: Vec<String>,
    command_line: String,
    /// What becomes of emulated time in which no process runs.
    idle: Idle,
    /// After which the machine is stopped.
    patience: Option<Duration>,
}

/// Time in which an emulated processor does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    /// It is as if it had passed.
    Skipped,
    /// So too, and an instruction takes a nanosecond, not eight: a program that mostly waits is as fast, and the kernel's
    /// work beside it is in proportion.
    SkippedAtSpeed,
    /// It passes.
    Waited,
}

/// What a guest said of one run.
#[derive(Clone, Debug, Default)]
struct Run {
    counters: Counters,
    printed: Vec<String>,
}

/// Has a machine answer, on the processor if that can be. `progress` hears how many runs have ended, and how much of the
/// next one is done.
fn answers(
    machine: &Machine<'_>,
    runs: usize,
    progress: &dyn Fn(usize, u64),
) -> Result<(Accelerator, Vec<Run>), LabError> {
    let kvm = std::fs::OpenOptions::new().read(true).write(true).open(KVM).is_ok();
    if kvm {
        match boot(machine, Accelerator::Kvm, runs, progress) {
            Err(Ended::Silent) => {}
            Err(Ended::Failed(error)) => return Err(error),
            Ok(answered) => return Ok((Accelerator::Kvm, answered)),
        }
    }
    match boot(machine, Accelerator::Emulation, runs, progress) {
        Ok(answered) => Ok((Accelerator::Emulation, answered)),
        Err(Ended::Failed(error)) => Err(error),
        Err(Ended::Silent) => Err(silent(machine.directory, &machine.kernel.release, "it did not begin")),
    }
}

/// Why a guest has no answer.
enum Ended {
    /// It never said anything.
    Silent,
    Failed(LabError),
}

fn temporary_directory() -> Result<tempfile::TempDir, LabError> {
    tempfile::tempdir().map_err(|error| unwritable(Path::new("a temporary directory"), &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> LabError {
    LabError::failed(format!("cannot be written: {error}"), path.display(), "make room there, or set TMPDIR")
}

/// Writes what the guest boots from; how many bytes of memory it needs.
fn write_images(
    directory: &Path,
    kernel: &Kernel,
    job: &Job,
    lists: &[Lists],
    sequence: &[u64],
) -> Result<u64, LabError> {
    let initial = write_initial(directory, kernel, &job.to_string(), lists)?;
    write_image(directory, DISK, &iso::head(job.file * 4096), iso::DATA + job.file * 4096)?;
    let bytes: Vec<u8> = sequence.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    write_image(directory, SEQUENCE, &bytes, (bytes.len() as u64).next_multiple_of(1 << 20))?;
    // Accesses are in memory, and their disk's pages for a while.
    let swapped = job.anon * 4096 / 4;
    Ok(OWN_MEMORY + initial + 3 * bytes.len() as u64 + (job.limit + job.extra()) * 4096 + swapped)
}

/// Writes the initial file system, with what the guest is told to do; how many bytes of memory it takes at the start.
fn write_initial(directory: &Path, kernel: &Kernel, told: &str, lists: &[Lists]) -> Result<u64, LabError> {
    let mut archive = Archive::default();
    for place in ["proc", "sys", "dev", "tmp", "data"] {
        archive.directory(place);
    }
    archive.device("dev/console", 5, 1);
    archive.device("dev/null", 1, 3);
    for file in own_binary::files()? {
        archive.file(&file.path, &file.contents, 0o755);
    }
    archive.file(JOB, told.as_bytes(), 0o644);
    archive.file(LISTS, names(lists.iter().map(|lists| lists.name())).as_bytes(), 0o644);
    let order = modules::order(&kernel.modules);
    archive.file(ORDER, names(order.iter().map(String::as_str)).as_bytes(), 0o644);
    for name in &order {
        archive.file(&format!("{MODULES}/{name}"), &kernel.modules[name], 0o644);
    }
    let initial = archive.finish();
    write_image(directory, INITIAL, &initial, initial.len() as u64)?;
    // The archive lies in memory twice while it is unpacked.
    Ok(3 * initial.len() as u64)
}

fn write_image(directory: &Path, name: &str, contents: &[u8], bytes: u64) -> Result<(), LabError> {
    let path = directory.join(name);
    let file = std::fs::write(&path, contents).and_then(|()| std::fs::OpenOptions::new().write(true).open(&path));
    file.and_then(|file| file.set_len(bytes)).map_err(|error| unwritable(&path, &error))
}

fn names<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("{word}\n")).collect()
}

/// A running emulator, which ends with this.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn boot(
    machine: &Machine<'_>,
    accelerator: Accelerator,
    runs: usize,
    progress: &dyn Fn(usize, u64),
) -> Result<Vec<Run>, Ended> {
    let mebibytes = machine.memory.div_ceil(1 << 20).to_string();
    let (directory, release) = (machine.directory, &machine.kernel.release);
    let mut command = Command::new(QEMU);
    command.args(["-nodefaults", "-no-reboot", "-display", "none", "-monitor", "none", "-smp", "1", "-m", &mebibytes]);
    command.args(accelerator.arguments(machine.idle));
    command.arg("-kernel").arg(&machine.kernel.image).arg("-initrd").arg(directory.join(INITIAL));
    for drive in &machine.drives {
        command.args(["-drive", drive]);
    }
    command.args(["-append", &machine.command_line]);
    command.arg("-serial").arg(format!("file:{}", directory.join(CONSOLE).display())).args(["-serial", "stdio"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // SAFETY: the closure makes one system call, which is allowed between fork and exec, and allocates nothing.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?));
    }
    let began = Instant::now();
    let mut guest = command.spawn().map(Guest).map_err(|error| {
        let remedy =
            "install it (Debian, Ubuntu: apt-get install qemu-system-x86; Fedora: dnf install qemu-system-x86)";
        Ended::Failed(LabError::failed(format!("no emulator: {error}"), QEMU, remedy))
    })?;
    let lines = heard(guest.0.stdout.take().expect("invariant: piped"));
    let begins = if accelerator == Accelerator::Kvm { KVM_BEGINS } else { SILENCE };
    let mut all = Vec::new();
    let mut run = Run::default();
    let mut has_begun = false;
    let why = loop {
        let left = machine.patience.map_or(SILENCE, |patience| patience.saturating_sub(began.elapsed()));
        if left.is_zero() {
            let minutes = began.elapsed().as_secs() / 60;
            let remedy = "give the program less to do, or more time by --minutes";
            let what = format!("the guest was stopped after {minutes} minutes, {} of {runs} runs were over", all.len());
            return Err(Ended::Failed(LabError::failed(what, format_args!("kernel {release}"), remedy)));
        }
        let line = match lines.recv_timeout(if has_begun { SILENCE.min(left) } else { begins }) {
            Ok(line) => line,
            Err(_) if !has_begun => return Err(Ended::Silent),
            Err(RecvTimeoutError::Disconnected) => break "it ended before it had answered",
            Err(RecvTimeoutError::Timeout) if left < SILENCE => continue,
            Err(RecvTimeoutError::Timeout) => break "it says nothing any more",
        };
        match line.parse() {
            Ok(Said::Begun) => has_begun = true,
            Ok(Said::Done(amount)) => progress(all.len(), amount),
            Ok(Said::Counted(name, value)) => drop(run.counters.insert(name, value)),
            Ok(Said::Printed(line)) => run.printed.push(line),
            Ok(Said::Ended) => all.push(std::mem::take(&mut run)),
            Ok(Said::Failed(why)) => {
                let remedy = "ask with other options, or another kernel";
                return Err(Ended::Failed(LabError::failed(why, format_args!("kernel {release}"), remedy)));
            }
            Err(()) => {}
        }
        if all.len() == runs {
            return Ok(all);
        }
    };
    Err(Ended::Failed(silent(directory, release, why)))
}

/// What the kernel said last explains best why it gives no answer.
fn silent(directory: &Path, release: &str, why: &str) -> LabError {
    let console = std::fs::read(directory.join(CONSOLE)).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let lines: Vec<&str> = console.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let panic = lines.iter().find(|line| line.contains("panic") || line.contains("Out of memory"));
    let said = panic.or(lines.last()).map_or("nothing on its console", |line| *line);
    let remedy = "ask another kernel, or report this if it is one of Debian's";
    LabError::failed(format!("the guest gives no answer: {why} ({said})"), format_args!("kernel {release}"), remedy)
}

/// The lines of a guest, as they come.
fn heard(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            line.clear();
            if send.send(text).is_err() {
                break;
            }
        }
    });
    receive
}
