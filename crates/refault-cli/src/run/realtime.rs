//! Real-time signals that are sent to `refault run --watch` and meant for the program.
//!
//! Unlike the others they queue and carry a value. A handler that notes what came would lose some, so they stay blocked
//! here and are read from a descriptor (signalfd(2)), in order and with their values, and sent on one by one. The
//! program starts with the mask that this command was started with.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{c_int, signalfd_siginfo, sigset_t};

/// Signals read at once.
const BATCH: usize = 16;

/// Real-time signals, held until they are passed on.
pub(super) struct RealTime {
    arrivals: File,
    /// The mask that was in force before.
    before: sigset_t,
}

impl RealTime {
    /// Holds them from now on, in this thread: the only one that takes signals.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub(super) fn hold() -> io::Result<RealTime> {
        // SAFETY: signal sets are plain bytes; all calls take pointers to live ones.
        unsafe {
            let mut all: sigset_t = std::mem::zeroed();
            let mut before: sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut all);
            (libc::SIGRTMIN()..=libc::SIGRTMAX()).for_each(|number| _ = libc::sigaddset(&mut all, number));
            let fd = libc::signalfd(-1, &all, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
            if fd == -1 {
                return Err(io::Error::last_os_error());
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            Ok(RealTime { arrivals: File::from_raw_fd(fd), before })
        }
    }

    /// Starts the program of a command with the mask from before.
    pub(super) fn release_in(&self, command: &mut Command) {
        let before = self.before;
        let release = move || {
            // SAFETY: the set is the one that was in force; the call is allowed between fork and exec.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
            Ok(())
        };
        // SAFETY: the closure makes one system call and touches nothing else.
        unsafe { command.pre_exec(release) };
    }

    /// Sends what has arrived to a child that was not waited for yet.
    pub(super) fn pass_on(&self, child: u32) {
        // SAFETY: plain integers, for which zeros are values.
        let mut arrived: [signalfd_siginfo; BATCH] = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: the array's own bytes, of which the kernel fills in whole structures.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(arrived.as_mut_ptr().cast::<u8>(), size_of_val(&arrived)) };
            let count = (&self.arrivals).read(bytes).unwrap_or(0) / size_of::<signalfd_siginfo>();
            for one in &arrived[..count] {
                send(child, one);
            }
            if count < BATCH {
                return;
            }
        }
    }

    /// Ends this process by a signal that ended the program, if it is one of these and its default action is in force.
    pub(super) fn end_by(&self, number: c_int) {
        if (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number) {
            // SAFETY: restores a mask and sends this thread a signal.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
                libc::raise(number);
            }
        }
    }
}

fn send(child: u32, one: &signalfd_siginfo) {
    let (pid, number) = (child as libc::pid_t, one.ssi_signo as c_int);
    let value = libc::sigval { sival_ptr: one.ssi_ptr as *mut _ };
    // SAFETY: both calls take numbers; the child is ours and was not waited for, so its id has not been reused.
    unsafe {
        if one.ssi_code != libc::SI_QUEUE || libc::sigqueue(pid, number, value) != 0 {
            libc::kill(pid, number);
        }
    }
}
