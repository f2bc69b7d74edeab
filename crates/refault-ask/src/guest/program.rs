//! One run of a program: in a group under a limit, in a tree of files of its own, with the kernel's counters around it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::counted::{between, snapshot};
use super::kernel_files::say;
use super::setup::{DATA, GROUP, clear_program, prepare_program};
use crate::job::program::{EXIT_STATUS, Program, SIGNAL, counters};
use crate::job::{Lists, Said};

/// How often the host hears that the program runs.
const BETWEEN_SAYINGS: Duration = Duration::from_secs(1);
/// Between two looks whether it has ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// Of what a program writes, the last lines are kept, and of each line its beginning.
const MAX_LINES: usize = 40;
const MAX_LINE: usize = 400;

/// Runs the program and says what the kernel counted, how it ended, and what it wrote last.
pub(super) fn run(program: &Program, lists: Lists, disk: &str) -> Result<(), String> {
    let counted = prepare_program(program, lists, disk).and_then(|()| {
        let before = snapshot(disk)?;
        let began = Instant::now();
        let (ended, written) = run_to_its_end(program, began)?;
        let run_us = began.elapsed().as_micros() as u64;
        let mut after = snapshot(disk)?;
        after.insert("run_us".to_owned(), run_us);
        Ok((before, after, ended, written))
    });
    clear_program();
    let (before, after, ended, written) = counted?;
    for name in counters() {
        say(&Said::Counted(name.to_owned(), between(&before, &after, name)));
    }
    let (name, value) = match (ended.code(), ended.signal()) {
        (Some(code), _) => (EXIT_STATUS, code),
        (None, signal) => (SIGNAL, signal.unwrap_or(0)),
    };
    say(&Said::Counted(name.to_owned(), value as u64));
    written.lines().into_iter().for_each(|line| say(&Said::Printed(line)));
    Ok(())
}

fn run_to_its_end(program: &Program, began: Instant) -> Result<(ExitStatus, Written), String> {
    let (output, writer) = std::io::pipe().map_err(|error| format!("no pipe: {error}"))?;
    let mut child = start(program, writer)?;
    let mut output = File::from(std::os::fd::OwnedFd::from(output));
    let mut written = Written::default();
    let mut next = BETWEEN_SAYINGS;
    let mut is_open = true;
    loop {
        if is_open {
            is_open = take_what_comes(&mut output, BETWEEN_LOOKS, &mut written)?;
        } else {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        if let Some(ended) = child.try_wait().map_err(|error| format!("the program: {error}"))? {
            // What it wrote since the look at its output.
            take_what_comes(&mut output, Duration::ZERO, &mut written)?;
            return Ok((ended, written));
        }
        if began.elapsed() >= next {
            say(&Said::Done(began.elapsed().as_secs()));
            next = began.elapsed() + BETWEEN_SAYINGS;
        }
    }
}

/// Reads all that comes with no longer pause than this, but for no longer than a second. False if all writers are gone,
/// which the program may outlive.
fn take_what_comes(output: &mut File, pause: Duration, written: &mut Written) -> Result<bool, String> {
    let wait = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
    let (began, mut buffer) = (Instant::now(), [0; 4096]);
    while began.elapsed() < BETWEEN_SAYINGS
        && poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&wait)).is_ok_and(|ready| ready > 0)
    {
        match output.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(bytes) => written.take(&buffer[..bytes]),
            Err(error) => return Err(format!("the program's output: {error}")),
        }
    }
    Ok(true)
}

fn start(program: &Program, writer: std::io::PipeWriter) -> Result<Child, String> {
    let path = program.arguments.first().ok_or("no program")?;
    let members = format!("{GROUP}/cgroup.procs");
    let mut group = OpenOptions::new().write(true).open(&members).map_err(|error| format!("{members}: {error}"))?;
    let directory = program.directory.clone();
    let errors = writer.try_clone().map_err(|error| format!("no pipe: {error}"))?;
    let mut command = Command::new(path);
    command.args(&program.arguments[1..]).env_clear();
    command.envs(program.environment.iter().filter_map(|variable| variable.split_once('=')));
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    // SAFETY: the closure makes system calls that are allowed between fork and exec; the one thread of this process holds
    // no lock, so that the paths' copies may be allocated.
    unsafe {
        command.pre_exec(move || {
            group.write_all(b"0")?;
            rustix::process::chroot(DATA)?;
            Ok(rustix::process::chdir(directory.as_str())?)
        });
    }
    command.spawn().map_err(|error| format!("{path} cannot be run in the guest: {error}"))
}

/// The last lines that a program wrote.
#[derive(Debug, Default)]
struct Written {
    whole: VecDeque<String>,
    line: Vec<u8>,
}

impl Written {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                // What follows is written over the line.
                b'\r' => self.line.clear(),
                _ if self.line.len() < MAX_LINE => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let text = String::from_utf8_lossy(&self.line).replace(|c: char| c.is_control() && c != '\t', " ");
        self.line.clear();
        self.whole.push_back(text.trim_end().to_owned());
        if self.whole.len() > MAX_LINES {
            self.whole.pop_front();
        }
    }

    fn lines(mut self) -> VecDeque<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut written = Written::default();
        for at in 0..MAX_LINES + 5 {
            written.take(format!("line {at}\n").as_bytes());
        }
        written.take(b"10 %\r20 %\r100 % \x1b[0m\nno end");
        let lines = written.lines();
        assert_eq!(lines.len(), MAX_LINES);
        assert_eq!((lines[0].as_str(), lines[MAX_LINES - 2].as_str()), ("line 7", "100 %  [0m"));
        assert_eq!(lines[MAX_LINES - 1], "no end");
        let mut long = Written::default();
        long.take(&vec![b'x'; 3 * MAX_LINE]);
        assert_eq!(long.lines()[0].len(), MAX_LINE);
    }
}
