//! A keeper as a process of its own, which outlives the tool: lines of JSON out, budgets in.
//!
//! The tool starts it, reads [`Report`]s from its standard output and writes a budget in bytes per line to its standard
//! input. When that ends, the tool has ended or was killed. The keeper then goes on until nothing runs in its group,
//! and removes all that it made. A device on which other groups have pages that do not fit into their memory stays
//! until they do; the keeper waits for that.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::group::Group;
use crate::keeper::{Keeper, Plan};
use crate::places::Places;
use crate::sample::Sample;

/// Between two samples that are reported.
const REPORT_EVERY: Duration = Duration::from_millis(50);
/// Between two looks for processes, once the tool is gone.
const EMPTY_EVERY: Duration = Duration::from_millis(20);
/// Between two attempts to remove what is in use: at first, and at most. Each goes through all that is on a device.
const REMOVE_AGAIN: Duration = Duration::from_millis(200);
const MAX_REMOVE_AGAIN: Duration = Duration::from_secs(2);
/// Before the kernel's every other thread, as far as it is permitted: a look costs little and others wait for it.
const NICE: i32 = -10;

/// A line of a keeper's.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub enum Report {
    /// Group and device are there.
    Ready {
        /// The group.
        group: Group,
        /// Where swapped pages go.
        swap: String,
    },
    /// They cannot be had.
    Refused {
        /// What is in the way.
        what: String,
        /// Where.
        place: String,
        /// What to do about it.
        remedy: String,
    },
    /// What the group uses.
    Sample(Sample),
    /// The same, for the last time: the tool has closed its end.
    Last(Sample),
}

/// Keeps a budget until the tool is gone and the group is empty, and removes all.
///
/// # Errors
/// The first is the kernel's answer where group or device are gone, or cannot be removed.
pub fn serve(places: Places, plan: Plan, input: File, output: File) -> io::Result<()> {
    // Not what a user interrupts from the terminal; and a tool that has stopped does not stop this process.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let _ = rustix::process::setpriority_process(None, NICE);
    rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK)?;
    let mut keeper = match Keeper::begin(places, plan) {
        Ok(keeper) => keeper,
        Err(refusal) => {
            let (what, place, remedy) = (refusal.to_string(), refusal.place(), refusal.remedy());
            report(&output, &Report::Refused { what, place, remedy });
            return Ok(());
        }
    };
    report(&output, &Report::Ready { group: keeper.group().clone(), swap: keeper.swap() });
    let kept = keep(&mut keeper, &input, output);
    let mut pause = REMOVE_AGAIN;
    while let Err(error) = keeper.end() {
        if !is_in_use(&error) {
            return kept.and(Err(error));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_REMOVE_AGAIN);
    }
    kept
}

/// Whether what could not be removed can be later: other groups' pages are on a device, for which they have no room now,
/// or something has the device open.
fn is_in_use(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EBUSY | libc::EINTR | libc::EAGAIN))
}

fn keep(keeper: &mut Keeper, mut input: &File, output: File) -> io::Result<()> {
    rustix::fs::fcntl_setfl(input, OFlags::NONBLOCK)?;
    let (mut told, mut counted, mut pending) = (Instant::now(), Instant::now(), Vec::new());
    // Until the tool is gone.
    let mut tool = Some(output);
    loop {
        let pause = keeper.look()?;
        if let Some(output) = &tool {
            let timeout = Timespec::try_from(pause).ok();
            let _ = rustix::event::poll(&mut [PollFd::new(&input.as_fd(), PollFlags::IN)], timeout.as_ref());
            let is_there = read_budgets(&mut input, &mut pending, keeper);
            if !is_there {
                report(output, &Report::Last(keeper.sample()));
                tool = None;
            } else if told.elapsed() >= REPORT_EVERY {
                told = Instant::now();
                report(output, &Report::Sample(keeper.sample()));
            }
        } else {
            if counted.elapsed() >= EMPTY_EVERY {
                counted = Instant::now();
                if keeper.group().processes().is_empty() {
                    return Ok(());
                }
            }
            std::thread::sleep(pause);
        }
    }
}

/// Takes up what the tool has written. False once it is gone.
fn read_budgets(input: &mut impl Read, pending: &mut Vec<u8>, keeper: &mut Keeper) -> bool {
    let mut bytes = [0; 256];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => return false,
            Ok(read) => pending.extend_from_slice(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(_) => return false,
        }
    }
    while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = pending.drain(..=end).collect();
        if let Some(budget) = std::str::from_utf8(&line).ok().and_then(|line| line.trim().parse().ok()) {
            keeper.set_budget(budget);
        }
    }
    true
}

/// Writes a line, whole or not at all: one that a tool does not read yet is followed by a newer one.
fn report(mut output: &File, report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let _ = output.write(&line);
    }
}
