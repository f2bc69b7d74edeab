//! The first process of a guest: prepares the machine and replays a job, runs a program, or has one under a limit that pulses, once for
//! each kind of lists.
//!
//! A replay is a process of its own, which joins a group when it has what it needs: what it took before is charged to
//! the root group and competes with nothing. What makes two runs equal: nothing else runs, swap is fresh, caches are
//! dropped, and nothing is read ahead. The replay flushes the TLB every 256 accesses, so that accessed bits are set
//! as on hardware with a small TLB, and has the kernel fold its statistics, so that decisions see exact values.

#![allow(unsafe_code)] // Swap, mappings and locked memory are system calls without a safe form.

mod counted;
mod kernel_files;
mod program;
mod pulse;
mod replay;
mod setup;

use std::process::{Command, ExitStatus};

use crate::job::program::Program;
use crate::job::pulse::Pulse;
use crate::job::{Job, Lists, Said};
use kernel_files::{say, text};
pub use setup::{MODULES, ORDER};

/// Where the initial file system has what the guest is to do: the job and its lists.
pub const JOB: &str = "refault-ask/job";
/// One word per line: which lists, in which order.
pub const LISTS: &str = "refault-ask/lists";
/// Tells a replay's process which lists it runs on, or a program that it is one.
const RUN: &str = "REFAULT_ASK_RUN";

/// Whether this process is the first one of a guest, or one of its replays: then it does what the guest is for, and does
/// not return.
pub fn run_if_guest() {
    if !std::path::Path::new("/").join(JOB).exists() {
        return;
    }
    if let Ok(lists) = std::env::var(RUN) {
        let ended = match lists.as_str() {
            pulse::PROGRAM => pulse::program(),
            lists => lists.parse().and_then(|lists| replay::run(&job()?, lists)),
        };
        std::process::exit(match ended {
            Ok(()) => 0,
            Err(why) => {
                say(&Said::Failed(why));
                1
            }
        });
    }
    if std::process::id() == 1 {
        if let Err(why) = first() {
            say(&Said::Failed(why));
        }
        setup::power_off();
    }
}

/// What this guest is to do.
fn job_text() -> Result<String, String> {
    text(&format!("/{JOB}"))
}

fn job() -> Result<Job, String> {
    job_text()?.parse()
}

fn first() -> Result<(), String> {
    setup::mount_all()?;
    setup::load_modules()?;
    let told = job_text()?;
    if Program::is_told_by(&told) {
        setup::settle_for_programs();
        say(&Said::Begun);
        return programs(&told.parse()?);
    }
    setup::settle();
    say(&Said::Begun);
    if Pulse::is_told_by(&told) {
        let pulse = told.parse()?;
        return text(&format!("/{LISTS}"))?.lines().try_for_each(|lists| pulse::run(&pulse, lists.parse()?));
    }
    let job = job()?;
    for lists in text(&format!("/{LISTS}"))?.lines() {
        setup::prepare(&job, lists.parse()?)?;
        let ended = Command::new("/init").env(RUN, lists).status().map_err(|error| format!("no process: {error}"))?;
        tidy(lists.parse()?, ended)?;
    }
    Ok(())
}

/// Runs a program on each kind of lists, each time on a disk that was not used yet.
fn programs(program: &Program) -> Result<(), String> {
    let lists = text(&format!("/{LISTS}"))?;
    for (lists, disk) in lists.lines().zip(setup::DISKS) {
        program::run(program, lists.parse()?, disk)?;
        say(&Said::Ended);
    }
    Ok(())
}

/// What remains of a replay goes away.
fn tidy(lists: Lists, ended: ExitStatus) -> Result<(), String> {
    setup::clear();
    match ended.code() {
        Some(0) => {
            say(&Said::Ended);
            Ok(())
        }
        // It has said why.
        Some(_) => Ok(()),
        None => Err(format!(
            "the replay on the {} lists was killed, as there was no memory left for it: give it more, or more swap",
            lists.name()
        )),
    }
}
