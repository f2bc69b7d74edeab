//! A program as a child of `refault run` or `refault wss`, which no program is to notice but through `getppid`.
//!
//! Exit status and a signal that ends the program become ours; signals that a process sends us are sent on, in order
//! and with their values, but for those that the program has sent to its group, which we are in too; a stop from the
//! keyboard stops both; if we are killed, the program is. What the terminal sends, the program gets by itself, as a
//! member of the group.
//!
//! Invariants: all signals that are passed on stay blocked here and are read from a descriptor (signalfd(2)), so none
//! is lost; the program starts with the mask and the actions that this command was started with. Cost: asleep but when
//! something happens.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use libc::{c_int, pid_t, signalfd_siginfo, sigset_t};
use refault_console::Failure;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Signals read at once.
const BATCH: usize = 16;

/// What a process may send us that is meant for the program, besides real-time signals. SIGKILL reaches it too, by way
/// of its parent's death; SIGSTOP cannot be caught.
const PASSED_ON: [c_int; 16] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGIO,
    libc::SIGURG,
];

/// Those by which a program is asked to end.
const TO_END: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Standard input, output and error.
const STANDARD: c_int = 3;

/// Those of them that were closed when this command was started, a bit each: the program is started without them too.
static CLOSED_AT_START: AtomicU8 = AtomicU8::new(0);

/// Whether SIGPIPE was ignored then.
static IGNORES_PIPES: AtomicBool = AtomicBool::new(false);

/// Before Rust's runtime opens `/dev/null` in their place, and ignores SIGPIPE.
extern "C" fn look_at_standard() {
    // SAFETY: zeros are an action; asks only.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut present);
        IGNORES_PIPES.store(present.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
    }
    for number in 0..STANDARD {
        // SAFETY: asks only.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            CLOSED_AT_START.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

// SAFETY: the loader calls what this section lists, once, before `main`; the function needs nothing that is set up later.
#[allow(unsafe_code)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look_at_standard;

/// A program that runs.
pub(crate) struct Child {
    pid: pid_t,
    arrivals: File,
    end_requests: Cell<usize>,
}

/// What the program is doing.
pub(crate) enum News {
    /// It goes on.
    Runs,
    /// The terminal has stopped it; the caller stops too.
    Stopped,
    /// It has ended.
    Ended(End),
}

/// How a program ended, and what it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// Processor time of it and of the children that it waited for.
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl Child {
    /// Starts a program. From here on this thread takes no signals but through the result.
    ///
    /// # Errors
    /// No descriptor can be had, or the program cannot be executed.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
        // SAFETY: signal sets and actions are plain bytes; all calls take pointers to live ones.
        let (arrivals, before, actions) = unsafe {
            let mut all: sigset_t = std::mem::zeroed();
            let mut before: sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut all);
            PASSED_ON.iter().for_each(|number| _ = libc::sigaddset(&mut all, *number));
            libc::sigaddset(&mut all, libc::SIGCHLD);
            (libc::SIGRTMIN()..=libc::SIGRTMAX()).for_each(|number| _ = libc::sigaddset(&mut all, number));
            let fd = libc::signalfd(-1, &all, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
            if fd == -1 {
                return Err(io::Error::last_os_error());
            }
            // A process that ignores its children has them waited for by the kernel, and would never hear how ours
            // ended.
            let (mut actions, mut default): (libc::sigaction, libc::sigaction) =
                (std::mem::zeroed(), std::mem::zeroed());
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGCHLD, &default, &mut actions);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            (File::from_raw_fd(fd), before, actions)
        };
        let parent = std::process::id() as pid_t;
        let was_closed = CLOSED_AT_START.load(Ordering::Relaxed);
        let ignores_pipes = IGNORES_PIPES.load(Ordering::Relaxed);
        let prepare = move || {
            // SAFETY: allowed between fork and exec; the set and the action are those that were in force.
            unsafe {
                libc::sigaction(libc::SIGCHLD, &actions, std::ptr::null_mut());
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != parent {
                    libc::_exit(1);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
                if ignores_pipes {
                    libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                }
                (0..STANDARD).filter(|number| was_closed >> number & 1 == 1).for_each(|number| _ = libc::close(number));
            }
            Ok(())
        };
        // SAFETY: the closure makes a few system calls and touches nothing else.
        unsafe { command.pre_exec(prepare) };
        Ok(Child { pid: command.spawn()?.id() as pid_t, arrivals, end_requests: Cell::new(0) })
    }

    /// How many signals have arrived by which people and services ask a program to end.
    pub(crate) fn end_requests(&self) -> usize {
        self.end_requests.get()
    }

    /// The program's process id.
    pub(crate) fn id(&self) -> pid_t {
        self.pid
    }

    /// Sleeps until something happens, `timeout` at most, and sees to it.
    ///
    /// # Errors
    /// The program is not there to be waited for.
    pub(crate) fn attend(&self, timeout: Option<Duration>) -> io::Result<News> {
        self.attend_with(timeout, &[])
    }

    /// The same, or until something can be read from one of these.
    ///
    /// # Errors
    /// The program is not there to be waited for.
    pub(crate) fn attend_with(&self, timeout: Option<Duration>, others: &[BorrowedFd]) -> io::Result<News> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let arrivals = self.arrivals.as_fd();
        let all = others.iter().chain([&arrivals]);
        let mut all: Vec<PollFd> = all.map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
        let _ = rustix::event::poll(&mut all, timeout.as_ref());
        self.pass_on();
        self.look()
    }

    fn look(&self) -> io::Result<News> {
        let mut status = 0;
        // SAFETY: zeros are values of these numbers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: writes to the two words given.
        match unsafe { libc::wait4(self.pid, &mut status, libc::WNOHANG | libc::WUNTRACED, &mut usage) } {
            0 => Ok(News::Runs),
            -1 => Err(io::Error::last_os_error()),
            _ if libc::WIFSTOPPED(status) => {
                let by_terminal = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&libc::WSTOPSIG(status));
                Ok(if by_terminal { News::Stopped } else { News::Runs })
            }
            _ => {
                let time =
                    |time: libc::timeval| Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64);
                let (user, system) = (time(usage.ru_utime), time(usage.ru_stime));
                Ok(News::Ended(End { status: ExitStatus::from_raw(status), user, system }))
            }
        }
    }

    /// Sends on what has arrived.
    fn pass_on(&self) {
        // SAFETY: plain integers, for which zeros are values.
        let mut arrived: [signalfd_siginfo; BATCH] = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: the array's own bytes, of which the kernel fills in whole structures.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(arrived.as_mut_ptr().cast::<u8>(), size_of_val(&arrived)) };
            let count = (&self.arrivals).read(bytes).unwrap_or(0) / size_of::<signalfd_siginfo>();
            let by_processes = |one: &&signalfd_siginfo| {
                one.ssi_code <= 0 && one.ssi_signo as c_int != libc::SIGCHLD && !self.has_it_too(one)
            };
            arrived[..count].iter().filter(by_processes).for_each(|one| self.send(one));
            let to_end = arrived[..count].iter().filter(|one| TO_END.contains(&(one.ssi_signo as c_int)));
            self.end_requests.set(self.end_requests.get() + to_end.count());
            if count < BATCH {
                return;
            }
        }
    }

    /// Whether the program has been sent a signal as we have: one that it, or a descendant of it, has sent to the group of
    /// processes that both are in.
    fn has_it_too(&self, one: &signalfd_siginfo) -> bool {
        // SAFETY: asks only.
        let is_in_our_group = unsafe { libc::getpgid(self.pid) == libc::getpgrp() };
        is_in_our_group && ancestors(one.ssi_pid as pid_t).any(|process| process == self.pid)
    }

    fn send(&self, one: &signalfd_siginfo) {
        let number = one.ssi_signo as c_int;
        let value = libc::sigval { sival_ptr: one.ssi_ptr as *mut _ };
        // SAFETY: both calls take numbers; the child is ours and was not waited for, so its id has not been reused.
        unsafe {
            if one.ssi_code != libc::SI_QUEUE || libc::sigqueue(self.pid, number, value) != 0 {
                libc::kill(self.pid, number);
            }
        }
    }

    /// Stops this process until it is continued, which the program is then too.
    pub(crate) fn stop_along(&self) {
        // SAFETY: sends this process a signal.
        unsafe { libc::raise(libc::SIGSTOP) };
    }

    /// Ends this process as the program ended.
    ///
    /// # Errors
    /// The program's exit code, if it is not 0.
    pub(crate) fn end_as(&self, status: ExitStatus) -> Result<(), Failure> {
        if let Some(number) = status.signal() {
            // The program's core is written; ours would be of no use.
            let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
            // SAFETY: puts the default action and the mask back and sends this thread a signal.
            unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(number, &default, std::ptr::null_mut());
                let mut one: sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut one);
                libc::sigaddset(&mut one, number);
                libc::raise(number);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &one, std::ptr::null_mut());
            }
        }
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        if code == 0 { Ok(()) } else { Err(Failure::Exit(code as u8)) }
    }
}

/// Has a command's process enter cgroups before it executes the program.
pub(crate) fn enter(command: &mut Command, entrances: Vec<File>) {
    let enter = move || entrances.iter().try_for_each(|mut entrance| entrance.write_all(b"0"));
    // SAFETY: the closure makes system calls and touches nothing else.
    unsafe { command.pre_exec(enter) };
}

/// A process, its parent, and so on, as long as each is there.
fn ancestors(process: pid_t) -> impl Iterator<Item = pid_t> {
    /// The field of `/proc/PID/stat` that says the parent.
    const PARENT: usize = 4;
    let parent = |process: &pid_t| {
        refault_linux::proc::stat_field(&std::fs::read(format!("/proc/{process}/stat")).ok()?, PARENT)
    };
    std::iter::successors(Some(process), parent)
}

/// Queues a signal with a value to one thread of a process; nothing is done about a failure.
pub(crate) fn queue(process: pid_t, thread: pid_t, number: c_int, value: usize) {
    let mut info = [0u8; 128];
    let mut put = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &number.to_ne_bytes());
    put(8, &libc::SI_QUEUE.to_ne_bytes());
    put(16, &(std::process::id() as pid_t).to_ne_bytes());
    put(24, &value.to_ne_bytes());
    // SAFETY: the kernel reads the 128 bytes of a siginfo.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, number, info.as_ptr()) };
}
