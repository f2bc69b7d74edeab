//! An end for runs that may wait for ever: `refault run --backend kernel` pauses a program for which there is no room.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// From each signal to the next, stronger one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends a process unless it is dropped in time.
pub struct Deadline {
    lifted: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    has_passed: Arc<AtomicBool>,
}

impl Deadline {
    /// The process has this time. The second SIGTERM ends a program that is paused; the tool cleans up after both.
    ///
    /// # Errors
    /// There are no more file descriptors.
    pub fn of(child: &Child, time: Duration) -> std::io::Result<Deadline> {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let (lifted, is_lifted) = channel::<()>();
        let has_passed = Arc::new(AtomicBool::new(false));
        let passed = Arc::clone(&has_passed);
        let thread = std::thread::spawn(move || {
            let mut time = time;
            for signal in [Signal::TERM, Signal::TERM, Signal::KILL] {
                if is_lifted.recv_timeout(time) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
                passed.store(true, Ordering::SeqCst);
                let _ = pidfd_send_signal(&process, signal);
                time = PATIENCE;
            }
        });
        Ok(Deadline { lifted: Some(lifted), thread: Some(thread), has_passed })
    }

    /// Whether the process was told to end.
    pub fn has_passed(&self) -> bool {
        self.has_passed.load(Ordering::SeqCst)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        drop(self.lifted.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_takes_too_long_is_ended_and_another_is_not() {
        let mut sleeper = Command::new("sleep").arg("600").spawn().expect("starts");
        let deadline = Deadline::of(&sleeper, Duration::from_millis(20)).expect("is there");
        assert!(!sleeper.wait().expect("ends").success());
        assert!(deadline.has_passed());
        let mut quick = Command::new("true").spawn().expect("starts");
        let deadline = Deadline::of(&quick, Duration::from_secs(600)).expect("is there");
        assert!(quick.wait().expect("ends").success());
        assert!(!deadline.has_passed());
    }
}
