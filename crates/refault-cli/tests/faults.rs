//! Each call that the agent makes itself fails: the program's data stay right, or it is ended with one line that says why.
//!
//! What may never be: another result, memory that is wrong, death by a signal without a word, a program that stands still.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use crate::c_program::Program;
use crate::common::{skipped, text};
use refault_linux::faults::{Fault, VARIABLE};
use refault_linux::{advice, calls, errno, flags, uffd};

/// A way for calls to fail: its name, the call, the argument that tells it from others, and errors that the kernel may give.
type Point = (&'static str, usize, Option<(usize, usize)>, &'static [isize]);

const REQUEST: usize = 1;
const ADVICE: usize = 2;
const OPERATION: usize = 1;
/// A thread that waits for another: one that is woken has no error to be told.
const WAITS: usize = flags::FUTEX_WAIT | flags::FUTEX_PRIVATE_FLAG;

/// The calls that the agent makes itself while the program runs. Lists of advice, and calls of other ways of use, are not
/// among them.
const POINTS: &[Point] = &[
    ("userfaultfd", calls::SYS_userfaultfd, None, &[errno::EMFILE, errno::ENOMEM, errno::EPERM]),
    ("the userfaultfd's beginning", calls::SYS_ioctl, Some((REQUEST, uffd::UFFDIO_API)), &[errno::EINVAL]),
    ("registering", calls::SYS_ioctl, Some((REQUEST, uffd::UFFDIO_REGISTER)), &[errno::ENOMEM, errno::EBUSY]),
    ("unregistering", calls::SYS_ioctl, Some((REQUEST, uffd::UFFDIO_UNREGISTER)), &[errno::ENOMEM]),
    (
        "copying in",
        calls::SYS_ioctl,
        Some((REQUEST, uffd::UFFDIO_COPY)),
        &[errno::ENOMEM, errno::EAGAIN, errno::EEXIST],
    ),
    ("zeros", calls::SYS_ioctl, Some((REQUEST, uffd::UFFDIO_ZEROPAGE)), &[errno::ENOMEM, errno::EAGAIN]),
    ("moving", calls::SYS_ioctl, Some((REQUEST, uffd::UFFDIO_MOVE)), &[errno::EBUSY, errno::ENOMEM, errno::EAGAIN]),
    ("protecting", calls::SYS_ioctl, Some((REQUEST, uffd::UFFDIO_WRITEPROTECT)), &[errno::ENOMEM, errno::EAGAIN]),
    ("discarding", calls::SYS_madvise, Some((ADVICE, advice::MADV_DONTNEED)), &[errno::ENOMEM, errno::EAGAIN]),
    ("mappings", calls::SYS_mmap, None, &[errno::ENOMEM]),
    ("rights", calls::SYS_mprotect, None, &[errno::ENOMEM]),
    ("residency", calls::SYS_mincore, None, &[errno::ENOMEM, errno::EAGAIN]),
    ("opening", calls::SYS_openat, None, &[errno::EMFILE, errno::EPERM]),
    ("reading", calls::SYS_read, None, &[errno::EIO, errno::EINTR]),
    ("reading at a place", calls::SYS_pread64, None, &[errno::EIO, errno::EINTR]),
    ("waiting", calls::SYS_futex, Some((OPERATION, WAITS)), &[errno::EINTR, errno::EAGAIN]),
    ("descriptors", calls::SYS_fcntl, None, &[errno::EMFILE]),
    ("descriptors at a number", calls::SYS_dup3, None, &[errno::EBUSY, errno::EMFILE]),
    ("files", calls::SYS_fstat, None, &[errno::EIO]),
    ("file systems", calls::SYS_fstatfs, None, &[errno::EIO]),
    ("limits", calls::SYS_getrlimit, None, &[errno::EPERM]),
    ("alternate stacks", calls::SYS_sigaltstack, None, &[errno::ENOMEM]),
    ("actions", calls::SYS_rt_sigaction, None, &[errno::EINVAL]),
    ("masks", calls::SYS_rt_sigprocmask, None, &[errno::EINVAL]),
    ("clocks", calls::SYS_clock_gettime, None, &[errno::EINVAL]),
    ("chance", calls::SYS_getrandom, None, &[errno::ENOSYS, errno::EAGAIN]),
    ("process options", calls::SYS_prctl, None, &[errno::EINVAL]),
    ("the base of gs", calls::SYS_arch_prctl, None, &[errno::EPERM]),
];

/// Whether a call of this kind is made is chance: threads wait for each other only where they meet.
const BY_CHANCE: [&str; 1] = ["waiting"];

/// Which of a call's times fail: the first, one later, and all from some on.
const TIMES: [(i64, i64); 4] = [(1, 1), (20, 1), (1, i64::MAX), (20, i64::MAX)];

/// An error that says "again" is not given for ever by any kernel: it is given this many times instead.
const AGAIN: i64 = 200;

fn run(program: &Program, fault: &Fault) -> Output {
    Command::new("timeout")
        .args(["-k", "5", "60", env!("CARGO_BIN_EXE_refault"), "run", "--backend", "pager", "--memory", "3M", "--"])
        .arg(&program.path)
        .env(VARIABLE, fault.text())
        .current_dir(program.directory.path())
        .output()
        .expect("timeout starts")
}

/// Why an outcome is not one that may be; nothing if it may.
fn wrong(output: &Output) -> Option<String> {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    // A line of its own: what a run says at its end is no reason.
    let says_why = err.lines().any(|line| line.starts_with("refault: ") && !line.starts_with("refault: peak "));
    // Memory that cannot be brought back is what a disk that fails is for the kernel's own swap: SIGBUS, in words.
    let is_lost = output.status.signal() == Some(7) && err.contains("is lost, its contents cannot be brought back: ");
    match output.status.code() {
        Some(0) if out.ends_with("done\n") => None,
        None if is_lost => None,
        // The program was told of an error that the kernel could have given, or the agent has ended it in words.
        Some(1..=3) if says_why || out.contains("is false: ") && !out.contains("whole") && !out.contains("zero") => {
            None
        }
        code => Some(format!("{code:?}, {:?}: {}{}", output.status, out, err)),
    }
}

#[test]
fn a_failing_call_of_the_agents_never_makes_data_wrong() {
    if skipped(&["gcc"]) {
        return;
    }
    let mut cases = Vec::new();
    for &(name, number, argument, errors) in POINTS {
        for &error in errors {
            for (from, times) in TIMES {
                let times = if [errno::EINTR, errno::EAGAIN].contains(&error) { times.min(AGAIN) } else { times };
                cases.push((name, Fault { number, argument, from, times, error }));
            }
        }
    }
    let (next, (sender, outcomes)) = (AtomicUsize::new(0), channel());
    let mut happened: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    // Two at a time, each in a directory of its own.
    std::thread::scope(|scope| {
        for sender in [sender.clone(), sender] {
            let (next, cases) = (&next, &cases);
            scope.spawn(move || {
                let program = Program::new(include_str!("c/uses_all_ways.c"));
                while let Some((name, fault)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    sender.send((name, fault, run(&program, fault))).expect("the judge receives");
                }
            });
        }
        for (name, fault, output) in outcomes {
            if !text(&output.stderr).contains("injected: ") {
                // It is not made as many times.
                continue;
            }
            *happened.entry(name).or_default() += 1;
            if let Some(why) = wrong(&output) {
                let word = if fault.times == 1 { "only" } else { "and all after" };
                failures.push(format!("{name} with {}, time {} {word}: {why}", fault.error, fault.from));
            }
        }
    });
    let surely = POINTS.iter().map(|point| point.0).filter(|name| !BY_CHANCE.contains(name));
    let never: Vec<_> = surely.filter(|name| !happened.contains_key(name)).collect();
    assert!(failures.is_empty(), "{} outcomes that may not be:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(never, Vec::<&str>::new(), "calls that were never made: {happened:?}");
}
