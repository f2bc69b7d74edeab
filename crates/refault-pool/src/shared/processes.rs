//! Processes that are told from later ones with the same number by when they began, and the clock that members share.
//!
//! ```
//! use refault_pool::shared::processes::Process;
//!
//! let own = Process::of(std::process::id() as i32).expect("it runs");
//! assert!(own.is_there());
//! assert!(!Process { began: own.began + 1, ..own }.is_there()); // a later one with the same number
//! ```

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
    /// The process of a number, if it has memory.
    pub fn of(pid: i32) -> Option<Process> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, parentheses included.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if matches!(*fields.first()?, "Z" | "X") {
            return None;
        }
        Some(Process { pid, began: fields.get(19)?.parse().ok()? })
    }

    /// Whether it still has memory: one that has ended and was not waited for has none.
    pub fn is_there(&self) -> bool {
        Process::of(self.pid) == Some(*self)
    }
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
        assert!(process.is_there() && !Process { began: process.began + 1, ..process }.is_there());
        child.kill().expect("it runs");
        // Not waited for: it is a zombie, sooner or later.
        while process.is_there() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.wait().expect("it ran");
        assert_eq!(Process::of(i32::MAX), None);
    }
}
