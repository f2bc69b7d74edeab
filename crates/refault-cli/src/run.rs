//! `refault run`: an unmodified program under a memory budget.
//!
//! The command looks at the program and the machine, says in one line what stands in the way if something does, and then
//! becomes the program, with the agent preloaded: exit status, signals, terminal and output are the program's own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use refault_pager::probe::Capabilities;

use crate::failure::Failure;
use crate::program::{self, Obstacle};
use crate::size::Size;

/// What separates the agent's settings in its environment variable.
const SEPARATOR: &str = "\u{1f}";

/// Runs a program in less memory than it asks for
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault run --memory 512M -- python3 analysis.py
  refault run --memory 2G --stats run.jsonl -- redis-server --save ''
  refault run --memory 1G --store pool=2G,file=/var/tmp --encrypt-swap -- sort big.txt

The heap and large anonymous mappings of the program are managed: what does not fit is compressed, then written
to the file. Code, files, stacks and the compressed pool itself are not counted. Forked children and, unless
--children none, programs they execute have a budget of their own, as large as this one.")]
pub struct RunArgs {
    /// Bytes of managed memory that may be resident, such as 512M or 2G
    #[arg(long, value_name = "SIZE")]
    memory: Size,
    /// Policy that decides what stays
    #[arg(long, value_name = "NAME", default_value = refault_pager::POLICIES[0])]
    policy: String,
    /// Where evicted pages go, in this order: pool[=SIZE] (compressed memory), file=DIR[:SIZE]
    #[arg(long, value_name = "STORES", default_value = "pool")]
    store: String,
    /// Codec of the compressed pool
    #[arg(long, value_enum, default_value = "lz4")]
    codec: CodecName,
    /// Encrypt the file with a key that lives only in the process
    #[arg(long)]
    encrypt_swap: bool,
    /// What happens when the stores are full: exceed the budget, wait, or end the program
    #[arg(long, value_enum, default_value = "grow")]
    on_full: OnFullName,
    /// Write counters as JSON lines to this file
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Milliseconds between two lines of the statistics
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    stats_interval: u64,
    /// Threads that serve faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    handlers: usize,
    /// Serve faults in the faulting thread: faster, but a system call that touches an evicted page fails with EFAULT
    #[arg(long)]
    in_thread: bool,
    /// Whether programs that the program executes are managed too
    #[arg(long, value_enum, default_value = "managed")]
    children: Children,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum CodecName {
    Lz4,
    Zstd,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum OnFullName {
    Grow,
    Block,
    End,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Children {
    Managed,
    None,
}

/// Runs the command; returns only if the program could not be started.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let (library, settings) = prepare(args)?;
    let name = &args.program[0];
    let error = Command::new(name)
        .args(&args.program[1..])
        .env("LD_PRELOAD", preload(&library))
        .env("REFAULT_AGENT", settings)
        .exec();
    Err(Failure::failed("cannot execute", Path::new(name).display(), error))
}

/// Checks everything that can be checked beforehand; the agent's library and its settings.
fn prepare(args: &RunArgs) -> Result<(PathBuf, OsString), Failure> {
    let settings = settings(args)?;
    let name = Path::new(&args.program[0]);
    let path = program::find(name).ok_or_else(|| {
        Failure::usage("no such program", name.display(), "give a path, or a name that is found in PATH")
    })?;
    if let Some(obstacle) = program::obstacle(&path) {
        let remedy = match obstacle {
            Obstacle::Unreadable(ref error) => format!("{error}"),
            Obstacle::Static => {
                "it is statically linked, so nothing can be preloaded; use a dynamically linked build".to_owned()
            }
            Obstacle::OtherLibc(ref interpreter) => {
                format!("its loader is {interpreter}, the agent is built for this system's glibc; use a glibc build")
            }
            Obstacle::Privileged => {
                "it is set-uid or has file capabilities, so the kernel ignores preloading; run it as its owner"
                    .to_owned()
            }
            Obstacle::NotElf => "it is neither a script nor a program of this machine".to_owned(),
        };
        return Err(Failure::failed("cannot be managed", path.display(), remedy));
    }
    if let Err(error) = Capabilities::probe().userfaultfd {
        let remedy = "run as root or with CAP_SYS_PTRACE, or set vm.unprivileged_userfaultfd=1, or give this user access to \
                      /dev/userfaultfd; 'refault doctor' says more";
        return Err(Failure::failed("userfaultfd is not permitted", error, remedy));
    }
    let library = program::agent_library().ok_or_else(|| {
        Failure::failed(
            "the agent is missing",
            "librefault_agent.so",
            "put it beside this binary or into ../lib/refault, or name it in REFAULT_AGENT_LIBRARY",
        )
    })?;
    Ok((library, settings))
}

fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

fn settings(args: &RunArgs) -> Result<OsString, Failure> {
    let bytes = |size: Size, what: &str| match size {
        Size::Share(_) => {
            Err(Failure::usage("a percentage of what", what, "give bytes such as 512M, or pages such as 4096p"))
        }
        other => Ok(other.pages(1) * crate::size::PAGE_BYTES),
    };
    if !refault_pager::POLICIES.contains(&args.policy.as_str()) {
        let known = refault_pager::POLICIES.join(", ");
        return Err(Failure::usage("not a policy for live memory", &args.policy, format!("choose one of {known}")));
    }
    let memory = bytes(args.memory, "--memory")?;
    let mut settings = OsString::from(format!("memory={memory}"));
    let mut push = |key: &str, value: &std::ffi::OsStr| {
        settings.push(SEPARATOR);
        settings.push(key);
        settings.push("=");
        settings.push(value);
    };
    push("policy", args.policy.as_ref());
    for store in args.store.split(',') {
        let (kind, value) = store.split_once('=').map_or((store, None), |(kind, value)| (kind, Some(value)));
        let size = |text: &str| {
            let size = text.parse().map_err(|why| Failure::usage("wrong usage", "--store", why))?;
            bytes(size, "--store")
        };
        match (kind, value) {
            ("pool", None) => push("pool", "1099511627776".as_ref()),
            ("pool", Some(limit)) => push("pool", size(limit)?.to_string().as_ref()),
            ("file", Some(place)) => {
                let (directory, limit) = place.rsplit_once(':').map_or((place, None), |(d, l)| (d, Some(l)));
                if !Path::new(directory).is_dir() {
                    return Err(Failure::usage("not a directory", directory, "--store file=DIR needs one"));
                }
                push("file", directory.as_ref());
                if let Some(limit) = limit {
                    push("file-limit", size(limit)?.to_string().as_ref());
                }
            }
            _ => {
                let remedy = "write pool, pool=SIZE, file=DIR or file=DIR:SIZE, separated by commas";
                return Err(Failure::usage("not a store", store, remedy));
            }
        }
    }
    push("codec", if matches!(args.codec, CodecName::Zstd) { "zstd" } else { "lz4" }.as_ref());
    push("encrypt", if args.encrypt_swap { "1" } else { "0" }.as_ref());
    let on_full = match args.on_full {
        OnFullName::Grow => "grow",
        OnFullName::Block => "block",
        OnFullName::End => "end",
    };
    push("on-full", on_full.as_ref());
    push("children", if matches!(args.children, Children::Managed) { "1" } else { "0" }.as_ref());
    push("handlers", args.handlers.max(1).to_string().as_ref());
    if args.in_thread {
        push("in-thread", "1".as_ref());
    }
    if let Some(stats) = &args.stats {
        // The program may change its directory before its children open the file.
        let path = std::path::absolute(stats).map_err(|error| Failure::write(stats.display(), &error))?;
        std::fs::File::create(&path).map_err(|error| Failure::write(stats.display(), &error))?;
        push("stats", path.as_ref());
        push("interval-ms", args.stats_interval.to_string().as_ref());
    }
    Ok(settings)
}
