//! The tool's end of a keeper's process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::group::Group;
use crate::sample::Sample;
use crate::service::Report;

/// How long the tool waits for group and devices to be removed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A keeper's process that has made a group.
#[derive(Debug)]
pub struct Served {
    child: Child,
    input: Option<File>,
    output: File,
    pending: Vec<u8>,
    group: Group,
    swap: String,
    latest: Sample,
    is_gone: bool,
}

/// What is known when the program has ended.
#[derive(Debug)]
pub struct Ended {
    /// The last figures.
    pub last: Sample,
    /// How many of its processes go on. The keeper removes the group after them.
    pub processes: usize,
    /// What is in use by others still, in words: devices on which other groups have pages, or the group. The keeper removes
    /// it when it no longer is.
    pub in_use: Option<String>,
}

impl Served {
    /// Starts the command, which calls [`crate::serve`] with its standard input and output, and waits until it is ready.
    ///
    /// # Errors
    /// It could not be started, or has ended.
    ///
    /// The inner error is what is in the way: what, where, and what to do about it.
    pub fn start(mut command: Command) -> io::Result<Result<Served, [String; 3]>> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let output = child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let mut output = output.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let mut line = Vec::new();
        let mut byte = [0];
        while output.read(&mut byte)? == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        match serde_json::from_slice(&line) {
            Ok(Report::Ready { group, swap }) => {
                rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK)?;
                let (pending, latest) = (Vec::new(), Sample::default());
                Ok(Ok(Served { child, input, output, pending, group, swap, latest, is_gone: false }))
            }
            Ok(Report::Refused { what, place, remedy }) => {
                child.wait()?;
                Ok(Err([what, place, remedy]))
            }
            _ => {
                let status = child.wait()?;
                Err(io::Error::other(format!("the keeper of the group has ended: {status}")))
            }
        }
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Where swapped pages go, in words.
    pub fn swap(&self) -> &str {
        &self.swap
    }

    /// Changes the budget.
    pub fn set_budget(&mut self, bytes: u64) {
        if let Some(input) = &mut self.input {
            // A keeper that is gone keeps no budget: what it made is removed at the end.
            let _ = input.write_all(format!("{bytes}\n").as_bytes());
        }
    }

    /// The latest figures.
    pub fn look(&mut self) -> &Sample {
        // A pipe that is empty says so by an error; one without a writer ends.
        self.is_gone = self.output.read_to_end(&mut self.pending).is_ok();
        self.take_lines();
        &self.latest
    }

    /// Whether the keeper had ended at the last look: it was killed, or group or device were taken from it. What it made is
    /// there still.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The keeper's process.
    pub fn keeper(&self) -> u32 {
        self.child.id()
    }

    /// Takes up whole lines. Whether one of them was the last.
    fn take_lines(&mut self) -> bool {
        let mut is_last = false;
        let end = self.pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.pending.drain(..end).collect();
        for line in lines.split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Report::Sample(sample)) => self.latest = sample,
                Ok(Report::Last(sample)) => (self.latest, is_last) = (sample, true),
                _ => {}
            }
        }
        is_last
    }

    /// The program has ended. Waits until all is removed, but not when some of its processes go on, nor when other
    /// groups' pages stay on a device: then the keeper goes on, until they do not.
    pub fn end(mut self) -> Ended {
        drop(self.input.take());
        let _ = rustix::fs::fcntl_setfl(&self.output, OFlags::empty());
        let mut bytes = [0; 4096];
        while !self.take_lines() {
            match self.output.read(&mut bytes) {
                Ok(read @ 1..) => self.pending.extend_from_slice(&bytes[..read]),
                // It was killed.
                _ => break,
            }
        }
        let processes = self.group.processes().len();
        let begun = Instant::now();
        let mut is_removed = false;
        while processes == 0 && !is_removed && begun.elapsed() < PATIENCE {
            // It was killed, if it cannot be waited for.
            is_removed = !matches!(self.child.try_wait(), Ok(None));
            std::thread::sleep(LOOK_EVERY);
        }
        let in_use = (processes == 0 && !is_removed).then(|| {
            let group = self.group.path();
            if group.exists() { group.display().to_string() } else { self.swap }
        });
        Ended { last: self.latest, processes, in_use }
    }
}
