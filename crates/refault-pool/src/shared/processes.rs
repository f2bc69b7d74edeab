//! Processes that are told from later ones with the same number by when they began, and the clock that members share.
//!
//! ```
//! use refault_pool::shared::processes::Process;
//!
//! let own = Process::of(std::process::id() as i32).expect("it runs");
//! assert!(!own.is_gone());
//! assert!(Process { began: own.began + 1, ..own }.is_gone()); // a later one with the same number
//! ```

use std::io;

use refault_linux::proc;
use serde::{Deserialize, Serialize};

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it began, in the kernel's ticks since the machine's start.
    pub began: u64,
}

impl Process {
    /// The process of a number, if it has memory and that can be told.
    pub fn of(pid: i32) -> Option<Process> {
        Process::look(pid).ok().flatten()
    }

    /// The same; none is one that is gone for certain, or has ended and was not waited for.
    ///
    /// # Errors
    /// It cannot be told: for want of descriptors, say.
    pub fn look(pid: i32) -> io::Result<Option<Process>> {
        Ok(stat(pid)?.map(|(process, _)| process))
    }

    /// Whether it certainly has no memory any more. One of which that cannot be told may have some.
    pub fn is_gone(&self) -> bool {
        Process::look(self.pid).is_ok_and(|found| found != Some(*self))
    }
}

/// All processes that have memory and that may be looked at (`hidepid` of proc(5) forbids others' to some), each with
/// the number of its parent.
///
/// # Errors
/// Not all of them can be looked at now.
pub fn all() -> io::Result<Vec<(Process, i32)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            match stat(pid) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                stat => all.extend(stat?),
            }
        }
    }
    Ok(all)
}

/// Adds those of `all` to `family` that descend from one that is in it.
pub fn add_descendants(family: &mut Vec<Process>, all: &[(Process, i32)]) {
    loop {
        let is_there = |pid: i32| all.iter().any(|(process, _)| process.pid == pid && family.contains(process));
        let new = |(process, parent): &&(Process, i32)| !family.contains(process) && is_there(*parent);
        let new: Vec<Process> = all.iter().filter(new).map(|(process, _)| *process).collect();
        if new.is_empty() {
            return;
        }
        family.extend(new);
    }
}

/// Whether a process has another number for itself than here: it is in a PID namespace below ours.
///
/// # Errors
/// It cannot be told.
pub fn is_numbered_otherwise(pid: i32) -> io::Result<bool> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let numbers = proc::status_field(&status, "NSpid");
    Ok(numbers.is_some_and(|numbers| numbers.split_whitespace().count() > 1))
}

fn stat(pid: i32) -> io::Result<Option<(Process, i32)>> {
    parsed(pid, std::fs::read_to_string(format!("/proc/{pid}/stat")))
}

fn parsed(pid: i32, stat: io::Result<String>) -> io::Result<Option<(Process, i32)>> {
    let stat = match stat {
        Ok(stat) => stat,
        // The second is what a read says if the process ended after it was opened.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => return Ok(None),
        Err(error) => return Err(error),
    };
    const PARENT: usize = 4;
    const BEGAN: usize = 22;
    let nonsense = || io::Error::from(io::ErrorKind::InvalidData);
    let number = |field| proc::stat_field::<u64>(stat.as_bytes(), field).ok_or_else(nonsense);
    if matches!(proc::stat_state(stat.as_bytes()).ok_or_else(nonsense)?, b'Z' | b'X') {
        return Ok(None);
    }
    Ok(Some((Process { pid, began: number(BEGAN)? }, number(PARENT)? as i32)))
}

/// Nanoseconds on the monotonic clock, in which the births of generations are.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_there_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let process = Process::of(child.id() as i32).expect("it runs");
        assert!(!process.is_gone() && Process { began: process.began + 1, ..process }.is_gone());
        child.kill().expect("it runs");
        // Not waited for: it is a zombie, sooner or later.
        while !process.is_gone() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.wait().expect("it ran");
        assert_eq!(Process::of(i32::MAX), None);
    }

    #[test]
    fn who_cannot_be_looked_at_is_not_taken_for_gone() {
        for gone in [libc::ENOENT, libc::ESRCH] {
            assert_eq!(parsed(7, Err(io::Error::from_raw_os_error(gone))).expect("certain"), None);
        }
        for unknown in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EACCES, libc::EIO] {
            let error = parsed(7, Err(io::Error::from_raw_os_error(unknown))).expect_err("not known");
            assert_eq!(error.raw_os_error(), Some(unknown));
        }
        assert!(parsed(7, Ok("7 (half a line".to_owned())).is_err());
    }

    #[test]
    fn descendants_are_found_in_any_order_and_those_of_a_later_process_with_the_number_are_not() {
        let process = |pid, began| Process { pid, began };
        let all =
            [(process(9, 40), 8), (process(8, 30), 5), (process(5, 10), 1), (process(7, 20), 1), (process(6, 50), 3)];
        let mut family = vec![process(5, 10), process(3, 2)];
        add_descendants(&mut family, &all);
        assert_eq!(family, [process(5, 10), process(3, 2), process(8, 30), process(9, 40)]);
        let mut family = vec![process(5, 9)];
        add_descendants(&mut family, &all);
        assert_eq!(family, [process(5, 9)]);
    }

    #[test]
    fn this_process_and_its_child_are_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let own = Process::of(std::process::id() as i32).expect("it runs");
        let mut family = vec![own];
        // Another process may end at any moment, which is no error.
        add_descendants(&mut family, &all().expect("processes"));
        assert!(family.iter().any(|process| process.pid == child.id() as i32));
        assert!(!is_numbered_otherwise(own.pid).expect("it runs"));
        child.kill().and_then(|()| child.wait()).expect("it runs");
    }
}
