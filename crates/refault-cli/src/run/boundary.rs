//! `refault run --at-system-call`: memory is taken where the kernel is asked for it, under one budget for the program
//! and its children.
//!
//! The command makes the segment in which the processes of the tree count what they use, finds a directory for the
//! file, and becomes the program. The first process says in one line at its end what happened.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::inherited::Inherited;
use crate::launch::Launch;
use refault_console::Failure;

/// Options that have a meaning only here.
#[derive(clap::Args, Debug)]
pub struct BoundaryOptions {
    /// Take memory at the system call instead of at libc's functions: one budget for the program and its children that
    /// counts compressed memory too, no privilege, any allocator and runtime. Takes no other options but --memory,
    /// --policy and
    /// --store yet
    #[arg(long, conflicts_with_all = ["codec", "encrypt_swap", "demote_after", "access_source", "hint", "cycles", "on_full",
        "stats", "stats_interval", "watch", "memory_control", "scheme", "set", "monitor_cpu", "keep_evicted", "keep_clean",
        "in_place", "handlers", "in_thread", "children"])]
    pub at_system_call: bool,
    /// Whether the program's children share its budget or have one each (with --at-system-call)
    #[arg(long, value_enum, default_value = "shared", requires = "at_system_call")]
    pub budget: Budgets,
}

/// Whose the budget is.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budgets {
    /// One for all
    Shared,
    /// One each
    Own,
}

/// Runs the program; returns only if it could not be started.
pub fn run(program: &[std::ffi::OsString], memory: u64, policy: &str, store: Option<&str>, budget: Budgets) -> Failure {
    match prepare(program, memory, policy, store, budget) {
        Ok(launch) => {
            let error = launch.command().exec();
            Failure::failed("cannot execute", Path::new(&program[0]).display(), error)
        }
        Err(failure) => failure,
    }
}

fn prepare(
    program: &[std::ffi::OsString],
    memory: u64,
    policy: &str,
    store: Option<&str>,
    budget: Budgets,
) -> Result<Launch, Failure> {
    let mut launch = Launch::at_system_call(program, memory)?;
    launch.push("policy", policy);
    if let Some(directory) = directory(store)? {
        launch.push("file", directory);
    }
    if budget == Budgets::Own {
        launch.push("own", "1");
    }
    let segment = Inherited::segment("refault-budget", SEGMENT_BYTES, memory / PAGE)
        .map_err(|error| Failure::failed("cannot make", "the segment that counts the budget", error))?;
    launch.push("first", std::process::id().to_string());
    launch.give_number("segment", segment);
    Ok(launch)
}

const PAGE: u64 = 4096;
/// More than the agent maps.
const SEGMENT_BYTES: u64 = 64 << 10;

/// Where the file may be: as `--store` says, or the first directory that is on a disk.
fn directory(store: Option<&str>) -> Result<Option<PathBuf>, Failure> {
    let wrong = |store: &str| {
        let remedy =
            "with --at-system-call write pool (compressed memory alone) or file=DIR (compressed memory, then a file)";
        Failure::usage("not a store", store, remedy)
    };
    match store {
        None => {
            let places = [
                Some(PathBuf::from("/var/tmp")),
                std::env::var_os("HOME").map(PathBuf::from),
                std::env::current_dir().ok(),
            ];
            Ok(places.into_iter().flatten().find(|place| is_on_disk(place) && tempfile::tempfile_in(place).is_ok()))
        }
        Some("pool") => Ok(None),
        Some(store) => {
            let place = store.trim_start_matches("pool,").strip_prefix("file=").ok_or_else(|| wrong(store))?;
            if !Path::new(place).is_dir() {
                return Err(Failure::usage("not a directory", place, "--store file=DIR needs one"));
            }
            if !is_on_disk(Path::new(place)) {
                return Err(Failure::usage(
                    "memory, not a disk",
                    place,
                    "--store file=DIR needs a directory on a disk",
                ));
            }
            std::path::absolute(place)
                .map(Some)
                .map_err(|error| Failure::failed("not a directory", OsStr::new(place).display(), error))
        }
    }
}

/// Whether files there take no memory.
fn is_on_disk(place: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    rustix::fs::statfs(place).is_ok_and(|system| ![TMPFS, RAMFS].contains(&system.f_type))
}
