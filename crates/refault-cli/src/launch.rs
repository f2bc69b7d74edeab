//! Starting programs with the agent preloaded: what can be checked beforehand, and the agent's settings.
//!
//! The settings are one struct of both ([`AgentSettings`]), which one environment variable holds.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use refault_config::Config;
use refault_core::policy::{FrontEnd, PolicySpec};
use refault_lab::meminfo;
use refault_linux::uffd::{Refusal, Uffd};
use refault_linux::{proc, sys};
use refault_paging::settings::{AgentSettings, MonitorSettings, Output, VARIABLE};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::inherited::Inherited;
use crate::program;
use refault_console::Failure;
use refault_image::preload::{self, Wish};
use refault_image::{Image, Text};

/// The policy of a program unless another is named: it learns from faults which pages are hot, and many programs go through
/// memory again and again (docs/guide/regions.md has it beside others).
pub const DEFAULT_POLICY: &str = "adaptive-mapped{cyclic=yes}";
/// The policy where generations are asked for unless another is named: pools compare programs by the births of theirs, and
/// schemes sort pages into them.
pub const GENERATIONS_POLICY: &str = "mglru{cyclic=yes}";

/// Where accesses come from and what is done about them, as every command with a monitor takes it.
#[derive(clap::Args, Debug, Default)]
pub struct MonitorOptions {
    /// Monitor and schemes from a file: TOML, or the JSON of DAMON's user-space tool
    #[arg(long = "config", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Change one key of the configuration
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Add a scheme written on one line
    #[arg(long, value_name = "LINE")]
    pub scheme: Vec<String>,
}

impl MonitorOptions {
    /// The text of the file; empty without one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn text(&self) -> Result<String, Failure> {
        match &self.file {
            None => Ok(String::new()),
            Some(path) => refault_console::read_text(path).map_err(|error| {
                Failure::usage("cannot read", path.display(), format!("{error}; name a readable file"))
            }),
        }
    }

    /// The configuration, checked.
    ///
    /// # Errors
    /// Names the file or flag, the key and the reason.
    pub fn read(&self) -> Result<Config, Failure> {
        let origin = self.file.as_ref().map_or("--set".to_owned(), |path| path.display().to_string());
        let refused = |error: refault_config::ConfigError| Failure::Usage(format!("bad configuration: {error}"));
        let mut config = Config::parse_with(&self.text()?, &origin, &self.set).map_err(refused)?;
        for line in &self.scheme {
            config.add_scheme(line).map_err(refused)?;
        }
        Ok(config)
    }
}

/// A program that is about to be started with the agent.
pub struct Launch {
    program: Vec<OsString>,
    library: PathBuf,
    /// The library that has to be preloaded before it.
    first: Option<Text>,
    settings: AgentSettings,
    /// What the program inherits.
    inherited: Vec<Inherited>,
}

impl Launch {
    /// Checks the program and the machine.
    ///
    /// # Errors
    /// Says which obstacle there is, and what to do about it.
    pub fn new(program: &[OsString], memory: u64) -> Result<Launch, Failure> {
        let library = program::agent_library();
        let image = check_program(program, library.as_deref())?;
        check_kernel()?;
        let library = library.ok_or_else(|| {
            let remedy =
                "this binary does not hold it: put it beside it or into ../lib/refault, or name it in REFAULT_AGENT_LIBRARY";
            Failure::failed("the agent is missing", program::AGENT, remedy)
        })?;
        let library = std::path::absolute(&library).unwrap_or(library);
        let settings = AgentSettings {
            memory,
            policy: DEFAULT_POLICY.to_owned(),
            library: Some(library.clone().into_os_string()),
            ..AgentSettings::default()
        };
        Ok(Launch { program: program.to_vec(), library, first: image.first, settings, inherited: Vec::new() })
    }

    /// What the agent is told.
    pub fn settings(&mut self) -> &mut AgentSettings {
        &mut self.settings
    }

    /// Lets the program and what it executes inherit the segment that the tree shares.
    pub fn share_segment(&mut self, segment: Inherited) {
        self.settings.segment = Some(segment.number());
        self.inherited.push(segment);
    }

    /// A file that the agent appends to.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn output(&mut self, path: &Path) -> Result<Output, Failure> {
        let file = Inherited::append(path)?;
        let output = file.output(path);
        self.inherited.push(file);
        Ok(output)
    }

    /// Adds a monitor with its schemes. The policy's name decides what schemes can do.
    ///
    /// # Errors
    /// Something in the configuration has no meaning for a program's memory: says which key and why.
    pub fn monitor(&mut self, options: &MonitorOptions, policy: &str, most_cpu: f64) -> Result<Config, Failure> {
        let config = options.read()?;
        let refuse = |key: String, reason: &str| Err(Failure::Usage(format!("bad configuration: {key}: {reason}")));
        for (index, scheme) in config.schemes.iter().enumerate() {
            if let Some(reason) = refault_paging::refusal(&scheme.action, policy) {
                return refuse(format!("schemes[{index}].action"), &format!("{} {reason}", scheme.action.name()));
            }
        }
        let named = config.targets.iter().any(|target| target.pid.is_some() || !target.ranges.is_empty());
        if config.targets.len() > 1 || named {
            return refuse(
                "targets".to_owned(),
                "the program that is started is the target; leave pid and regions out",
            );
        }
        let (text, changes, schemes) = (options.text()?, options.set.clone(), options.scheme.clone());
        let before = self.settings.monitor.take().unwrap_or_default();
        self.settings.monitor = Some(MonitorSettings { text, changes, schemes, most_cpu, ..before });
        Ok(config)
    }

    /// The command that starts it.
    pub fn command(&self) -> Command {
        let others = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let mut preload = Vec::new();
        let library = self.library.as_os_str().as_bytes();
        preload::compose(others.as_bytes(), library, Wish::With(self.first), |part| preload.extend_from_slice(part));
        let preload = OsString::from_vec(preload);
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).env("LD_PRELOAD", preload).env(VARIABLE, self.settings.encode());
        command
    }

    /// Runs the program as a child and waits for it. What it printed, its terminal and its signals are its own; the
    /// exit code is the one to leave with (128 and the signal, if a signal ended it).
    ///
    /// # Errors
    /// It could not be started.
    pub fn run(&self, mut meanwhile: impl FnMut()) -> Result<u8, Failure> {
        self.run_with(|_| meanwhile())
    }

    /// The same, with the program's process id for what is done meanwhile.
    ///
    /// # Errors
    /// It could not be started.
    pub fn run_with(&self, mut meanwhile: impl FnMut(u32)) -> Result<u8, Failure> {
        let failed = |error| Failure::failed("cannot execute", Path::new(&self.program[0]).display(), error);
        let mut child = self.command().spawn().map_err(failed)?;
        // What interrupts the program from the terminal interrupts its group; the program decides what becomes of it,
        // and then there is still something to be said.
        let _ignored = IgnoredInterrupts::new();
        let terminated = Terminated::new();
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                use std::os::unix::process::ExitStatusExt;
                let signal = status.signal().map(|signal| 128 + signal);
                return Ok(status.code().or(signal).unwrap_or(1) as u8);
            }
            meanwhile(child.id());
            if terminated.was_asked()
                && let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// While it lives, an interrupt from the terminal does not end this process. A handler, not `SIG_IGN`, which the
/// program would inherit.
struct IgnoredInterrupts(Option<SigId>);

impl IgnoredInterrupts {
    fn new() -> IgnoredInterrupts {
        // Where none can be registered, an interrupt ends this process before the program: no more is lost.
        IgnoredInterrupts(signal_hook::flag::register(SIGINT, Arc::default()).ok())
    }
}

impl Drop for IgnoredInterrupts {
    fn drop(&mut self) {
        if let Some(registered) = self.0 {
            signal_hook::low_level::unregister(registered);
        }
    }
}

/// While it lives, a request to end is the program's: it ends as it likes, and what was found out is written.
struct Terminated {
    asked: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Terminated {
    fn new() -> Terminated {
        let asked = Arc::new(AtomicBool::new(false));
        // A closed terminal asks too.
        let signals = [SIGTERM, SIGHUP].into_iter().filter(|signal| *signal == SIGTERM || !ignores(*signal));
        let registered = signals.filter_map(|signal| signal_hook::flag::register(signal, Arc::clone(&asked)).ok());
        Terminated { registered: registered.collect(), asked }
    }

    fn was_asked(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Terminated {
    fn drop(&mut self) {
        self.registered.drain(..).for_each(|registered| _ = signal_hook::low_level::unregister(registered));
    }
}

/// Whether this process was started to ignore a signal, as `nohup` has it.
pub fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = proc::status_field(&status, "SigIgn").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

/// What keeps memory from being managed at the system call: what is wrong, where, and what to do about it.
pub struct KernelObstacle {
    /// What is wrong.
    pub what: &'static str,
    /// What was tried.
    pub tried: String,
    /// What to do about it.
    pub remedy: &'static str,
    /// The command runs under another of its kind.
    pub is_nested: bool,
}

/// Checks that the pager can work here.
///
/// # Errors
/// Says what [`kernel_obstacle`] found, and what to do about it.
pub fn check_kernel() -> Result<(), Failure> {
    match kernel_obstacle() {
        Some(KernelObstacle { what, tried, remedy, .. }) => Err(Failure::failed(what, tried, remedy)),
        None => Ok(()),
    }
}

/// What this kernel lacks, or the filter that this process runs under forbids.
pub fn kernel_obstacle() -> Option<KernelObstacle> {
    let is_nested = std::env::var_os(VARIABLE).is_some();
    let obstacle = |what, tried: String, remedy| Some(KernelObstacle { what, tried, remedy, is_nested });
    // Both read what is mapped, and the tool finds its own file there.
    if !Path::new("/proc/self/maps").exists() {
        let tried = "there is no /proc/self/maps".to_owned();
        return obstacle("/proc is not mounted", tried, "mount it: mount -t proc proc /proc");
    }
    match Uffd::probe() {
        Ok(()) if sys::can_dispatch() => None,
        Ok(()) if is_nested => obstacle(
            "this is under 'refault run' already",
            "a program has one budget, which its children share".to_owned(),
            "start the program without a second 'refault run'",
        ),
        Ok(()) => obstacle(
            "system calls cannot be taken over",
            "prctl(PR_SET_SYSCALL_USER_DISPATCH) is refused".to_owned(),
            "use Linux 5.11 or later, and no system-call filter that forbids it",
        ),
        Err(Refusal::Kernel) => obstacle(
            "userfaultfd lacks what is needed",
            "UFFDIO_MOVE and faults as signals are not offered".to_owned(),
            "use Linux 6.8 or later",
        ),
        Err(Refusal::Filter(error)) => obstacle(
            "userfaultfd is refused by a system-call filter",
            std::io::Error::from_raw_os_error(-error as i32).to_string(),
            "add to the syscalls of the container's seccomp profile: \
             {\"names\": [\"userfaultfd\"], \"action\": \"SCMP_ACT_ALLOW\"}",
        ),
    }
}

/// The file of a program that is named as for a shell.
///
/// # Errors
/// There is none.
pub fn find_program(name: &OsStr) -> Result<PathBuf, Failure> {
    let name = Path::new(name);
    program::find(name).ok_or_else(|| {
        if name.is_dir() {
            return Failure::usage("a directory, not a program", name.display(), "name a program in it");
        }
        Failure::usage("no such program", name.display(), "give a path, or a name that is found in PATH")
    })
}

/// The program that is found by its name, if a library can be preloaded into it.
fn check_program(program: &[OsString], library: Option<&Path>) -> Result<Image, Failure> {
    let path = find_program(&program[0])?;
    program::look(&path, program, library).map_err(|obstacle| {
        let remedy = format!("{}; refault doctor PROGRAM says more", program::remedy(&obstacle));
        Failure::failed("cannot be managed", path.display(), remedy)
    })
}

/// Bytes of memory that this machine has: the budget of programs that are to run unlimited.
pub fn machine_bytes() -> u64 {
    meminfo::of_this_machine("MemTotal").unwrap_or(1 << 40)
}

/// A policy's name, if live memory can run it.
///
/// # Errors
/// It cannot.
pub fn check_policy(policy: &str) -> Result<(), Failure> {
    Ok(PolicySpec::parse_for(policy, FrontEnd::Pager).map(|_| ())?)
}
