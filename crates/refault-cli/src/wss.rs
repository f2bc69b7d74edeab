//! `refault wss`: the working set of a running process, or of a program that it starts, by age.

mod group;
pub mod host;
pub mod why;
mod write;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use refault_console::{Failure, ResultArgs, say};
use refault_lab::size::bytes_text;
use refault_linux::proc;
use refault_pool::reclaim::session::is_gone;
use refault_pool::wss::{self, Window};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use self::write::{Subject, length_text, write};
use crate::launch::{find_program, ignores};
use crate::run::child::{Child, News};

/// Looks between the ends of two windows, at most.
const LOOKS_BETWEEN: u32 = 9;
/// They are at least so far apart.
const MIN_BETWEEN: Duration = Duration::from_secs(5);
/// How often an interrupt is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault wss -- python3 analysis.py          while it runs; the table comes when it has ended
  refault wss --ages 1s,10s --out sort.json -- sort -n numbers
  refault wss --pid 4711                      1 s, 10 s, 1 min and 10 min, a line as it goes; Ctrl-C ends it
  refault wss --pid 4711 --ages 1s,30s --format json
  refault wss --pid $(pidof redis-server) --ages 10s
  refault wss --cgroup /sys/fs/cgroup/system.slice --ages 1s,1m

A program and what it starts are measured again and again, each length as soon as they have run that long. The table has
the latest window and the largest working set of each length. What several of its processes map counts for each. The exit
status is the program's, or 1 if nothing was measured.

The working set of a window is what was accessed in it; what was not has been idle for at least that long. The kernel's
accessed bits are cleared at the start of a window and read at its end. The kernel's own reclaim takes the pages for
idle until they are accessed again. A huge page counts whole; a file's page counts if any process used it.

A control group and those below it are measured by the kernel's generations where it has them and shows them to root. The
windows follow each other, each page counts once, and files that are read by calls count as idle. The generations that there
were at first are shown too. Else it is the accessed bits of the group's own processes.")]
/// Measure the working set of a program, a running process or a control group by age
#[command(group(ArgGroup::new("measured").required(true).args(["program", "pid", "cgroup"])))]
pub struct WssArgs {
    /// A process that runs already
    #[arg(long, value_name = "PID", value_parser = crate::launched::process, conflicts_with = "program")]
    pid: Option<u32>,
    /// The directory of a control group, version 1 or 2
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pid", "program"])]
    cgroup: Option<PathBuf>,
    /// Who knows what a control group accesses [default: generations where they can be had, else processes]
    #[arg(long, value_enum, value_name = "SOURCE", requires = "cgroup")]
    source: Option<group::Source>,
    /// Lengths of the windows; of a process all begin together, so the longest is how long it takes
    #[arg(long, value_name = "TIME,TIME…", value_delimiter = ',', default_value = "1s,10s,1m,10m", value_parser = time, allow_hyphen_values = true)]
    ages: Vec<Duration>,
    #[command(flatten)]
    result: ResultArgs,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// What is known of the windows of one length.
#[derive(Clone, Copy, Debug)]
struct Measured {
    latest: Window,
    /// The largest working set of all.
    largest_bytes: u64,
    /// How many there were.
    count: u64,
}

impl Measured {
    fn of(window: Window) -> Measured {
        Measured { latest: window, largest_bytes: window.accessed_bytes, count: 1 }
    }

    fn add(&mut self, window: Window) {
        self.largest_bytes = self.largest_bytes.max(window.accessed_bytes);
        (self.latest, self.count) = (window, self.count + 1);
    }
}

/// Beyond this a clock may not have the moment at which it is over.
const MAX_TIME: Duration = Duration::from_secs(u32::MAX as u64);

/// A time such as `10s`, above 0 and at most some 136 years.
pub fn time(text: &str) -> Result<Duration, String> {
    match moment(text) {
        Ok(time) if time.is_zero() => Err(format!("'{text}' is not above 0: write 1s, 500ms or 10m")),
        outcome => outcome,
    }
}

/// The same, or 0.
pub fn moment(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= MAX_TIME => Ok(time),
        Err(_) if text.trim_start().starts_with('-') => {
            Err(format!("'{text}' is negative: write 1s, 500ms or 10m, or what else is above 0"))
        }
        _ => Err(format!("'{text}' is not a time: write 1s, 500ms or 10m")),
    }
}

/// An hour.
const MAX_INTERVAL_MS: u64 = 3_600_000;

/// Milliseconds from one look, or line, to the next: `50ms`, `1s`; milliseconds without a unit.
pub fn interval(text: &str) -> Result<u64, String> {
    let milliseconds = refault_config::units::time(text, 1_000_000).map_err(|why| format!("'{text}' {why}"));
    match milliseconds {
        Ok(milliseconds @ 1..=MAX_INTERVAL_MS) => Ok(milliseconds),
        Err(why) if !text.trim_start().starts_with('-') => Err(why),
        _ => Err(format!("'{text}' is not from 1ms to 1h")),
    }
}

/// True once a signal asks this process to end; it does not end by itself any more. A closed terminal asks too, unless this
/// process was started to ignore that (`nohup`).
pub fn interrupts() -> Arc<AtomicBool> {
    let asked = Arc::new(AtomicBool::new(false));
    let of_terminals = [SIGHUP, SIGQUIT].into_iter().filter(|signal| !ignores(*signal));
    for signal in [SIGINT, SIGTERM].into_iter().chain(of_terminals) {
        // Where none can be registered, the signal ends this process, as ever.
        let _ = signal_hook::flag::register(signal, Arc::clone(&asked));
    }
    asked
}

/// Sleeps for `time`; false: was interrupted.
pub fn sleep(time: Duration, asked: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while !asked.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
    false
}

/// Why another process could not be looked at.
pub fn not_seen(pid: u32, error: &std::io::Error) -> Failure {
    if is_of_kernel(pid) {
        return of_kernel(pid);
    }
    if is_gone(error) {
        return Failure::usage("no such process", pid, "name one that runs");
    }
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Failure::failed("may not look at process", pid, format!("{error}; be its user, or root"))
        }
        // What is left of a process that has ended.
        _ => Failure::usage("cannot look at process", pid, format!("{error}; name one that runs")),
    }
}

/// Whether a process is a thread of the kernel's, which has no memory of its own.
pub fn is_of_kernel(pid: u32) -> bool {
    /// The kernel's `PF_KTHREAD`, in the ninth field.
    const THREAD: u64 = 0x20_0000;
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    proc::stat_field::<u64>(&stat, 9).is_some_and(|flags| flags & THREAD != 0)
}

/// The refusal of such a process.
pub fn of_kernel(pid: u32) -> Failure {
    Failure::usage("a process without memory of its own", pid, "it is the kernel's; name a program")
}

/// Runs the command; exits as the program does, if it starts one.
pub fn run(args: &WssArgs) -> Result<(), Failure> {
    let mut outputs = args.result.outputs();
    args.program.iter().for_each(|argument| outputs.reads(argument.as_ref()));
    let (format, out) = args.result.claim(&mut outputs)?;
    let mut ages = args.ages.clone();
    ages.sort_unstable();
    ages.dedup();
    if let Some(path) = &args.cgroup {
        let (subject, windows) = group::measure(path, args.source, &ages)?;
        return write(out, format, &subject, &windows);
    }
    let Some(pid) = args.pid else {
        let followed = follow(&args.program, &ages)?;
        let words = args.program.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ");
        if !followed.windows.is_empty() {
            write(out, format, &Subject::Program { words, seconds: followed.ran.as_secs_f64() }, &followed.windows)?;
        } else if !followed.is_unseen {
            let remedy = "it ended before the first window was over; give shorter --ages";
            say(format_args!("nothing was measured: {words}: {remedy}"));
        }
        return match followed.child.end_as(followed.status) {
            Ok(()) if followed.windows.is_empty() => Err(Failure::Exit(1)),
            ended => ended,
        };
    };
    if let Err(error) = std::fs::metadata(format!("/proc/{pid}")) {
        return Err(not_seen(pid, &error));
    }
    if is_of_kernel(pid) {
        return Err(of_kernel(pid));
    }
    say(format_args!("accesses: {}; it takes {}; Ctrl-C ends it with what is known", wss::SOURCE, takes(&ages)));
    let asked = interrupts();
    let mut windows = Vec::new();
    let looks = looks(&ages);
    let mut wanted = looks.iter().map(|(_, is_wanted)| *is_wanted);
    let lengths: Vec<Duration> = looks.iter().map(|(length, _)| *length).collect();
    let seen = |window: Window| {
        say(so_far(&window));
        if wanted.next() == Some(true) {
            windows.push(Measured::of(window));
        }
    };
    let measured = wss::measure(pid, &lengths, |left| sleep(left, &asked), seen);
    match measured {
        Err(error) if windows.is_empty() => return Err(not_seen(pid, &error)),
        Err(_) => say(format_args!("process {pid} has ended: what follows is known of it")),
        Ok(()) if windows.len() < ages.len() => say("interrupted: longer windows are left out"),
        Ok(()) => {}
    }
    if windows.is_empty() {
        return Err(Failure::Exit(1));
    }
    write(out, format, &Subject::Process(pid), &windows)
}

/// How long windows take that begin together.
fn takes(ages: &[Duration]) -> String {
    length_text(ages.last().copied().unwrap_or_default())
}

/// When to look: at the ends of the windows, which ascend, and some times between them, so that there is something to
/// read meanwhile.
fn looks(ages: &[Duration]) -> Vec<(Duration, bool)> {
    let (mut looks, mut before) = (Vec::new(), Duration::ZERO);
    for age in ages {
        let step = ((*age - before) / LOOKS_BETWEEN).max(MIN_BETWEEN);
        let mut next = before + step;
        while next + step / 2 < *age {
            looks.push((next, false));
            next += step;
        }
        looks.push((*age, true));
        before = *age;
    }
    looks
}

/// What a look has found, for people who wait.
fn so_far(window: &Window) -> String {
    let [accessed, resident] = [window.accessed_bytes, window.resident_bytes].map(bytes_text);
    format!("within {}: {accessed} accessed of {resident} resident", length_text(window.length))
}

/// A program that was started and has ended.
struct Followed {
    child: Child,
    status: ExitStatus,
    ran: Duration,
    windows: Vec<Measured>,
    /// It could not be looked at, for another reason than that it had ended.
    is_unseen: bool,
}

/// Starts a program and measures it until it has ended.
fn follow(program: &[OsString], ages: &[Duration]) -> Result<Followed, Failure> {
    find_program(&program[0])?;
    let name = program[0].to_string_lossy().into_owned();
    let failed = |error| Failure::failed("cannot execute", &name, error);
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    let begun = Instant::now();
    let child = Child::spawn(command).map_err(failed)?;
    let mut windows: Vec<Measured> = Vec::new();
    let mut ended = None;
    let measured = wss::follow(
        || wss::with_children(child.id() as u32),
        ages,
        |left| {
            ended = attend(&child, Some(left)).transpose();
            ended.is_none()
        },
        |index, window| match windows.get_mut(index) {
            Some(measured) => measured.add(window),
            None => windows.push(Measured::of(window)),
        },
    );
    let unseen = measured.err().filter(|error| !is_gone(error));
    if let Some(error) = &unseen {
        say(format_args!("the program is measured no longer: {}", not_seen(child.id() as u32, error).line()));
    }
    let status = match ended {
        Some(status) => status.map_err(failed)?,
        None => attend(&child, None).map_err(failed)?.expect("invariant: without a time it ends only with the program"),
    };
    Ok(Followed { child, status, ran: begun.elapsed(), windows, is_unseen: unseen.is_some() })
}

/// Sees to a program for `time`, or until it has ended; answers how it did.
fn attend(child: &Child, time: Option<Duration>) -> std::io::Result<Option<ExitStatus>> {
    let until = time.map(|time| Instant::now() + time);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match child.attend(left)? {
            News::Ended(end) => return Ok(Some(end.status)),
            News::Stopped => child.stop_along(),
            News::Runs if left.is_some_and(|left| left.is_zero()) => return Ok(None),
            News::Runs => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_above_zero_and_moments_may_be_zero() {
        assert_eq!((time("90s"), moment("0s")), (Ok(Duration::from_secs(90)), Ok(Duration::ZERO)));
        for (text, word) in [("0s", "not above 0"), ("-5s", "negative"), ("soon", "not a time"), ("--for", "negative")]
        {
            assert!(time(text).is_err_and(|why| why.contains(word)), "{text}");
        }
    }

    #[test]
    fn a_long_window_is_looked_at_on_the_way() {
        let seconds = |looks: Vec<(Duration, bool)>| looks.iter().map(|(at, _)| at.as_secs()).collect::<Vec<_>>();
        let ages = [1, 10, 60, 600].map(Duration::from_secs);
        let all = looks(&ages);
        assert_eq!(all.iter().filter(|(_, wanted)| *wanted).map(|(at, _)| *at).collect::<Vec<_>>(), ages);
        let all = seconds(all);
        assert!(all.windows(2).all(|pair| pair[0] < pair[1] && pair[1] - pair[0] <= 90), "{all:?}");
        assert!(all.len() < 30 && all.starts_with(&[1, 6, 10]), "{all:?}");
        assert_eq!(seconds(looks(&[Duration::from_millis(200)])), [0]);
    }

    #[test]
    fn intervals_have_units() {
        for (text, milliseconds) in [("50", 50), ("50ms", 50), ("2s", 2000), ("1h", 3_600_000)] {
            assert_eq!(interval(text), Ok(milliseconds));
        }
        for text in ["0", "500us", "2h", "fast", "5 parsecs", "-5s"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
