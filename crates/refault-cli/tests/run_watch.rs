//! `refault run --watch`, judged by what a terminal shows: the picture, what was printed meanwhile, and how it ends.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::skipped;
use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("some")
}

/// A terminal with a program that leads its session, and everything that was ever painted on it.
struct Screen {
    leader: File,
    follower: OwnedFd,
    parser: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Screen {
    /// Runs `refault run` with these arguments in a terminal of 100 × 30.
    fn run(arguments: &[&str], stdout: Option<Stdio>) -> Screen {
        Screen::open(&[], arguments, stdout)
    }

    /// The same as a job of a shell, which says when it has stopped, and lets it go on after a line of input.
    fn run_in_shell(arguments: &[&str]) -> Screen {
        let script = "set -m; \"$@\"; echo has stopped; read line; fg > /dev/null";
        Screen::open(&["bash", "-c", script, "shell"], arguments, None)
    }

    fn open(before: &[&str], arguments: &[&str], stdout: Option<Stdio>) -> Screen {
        let leader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&leader).and_then(|()| unlockpt(&leader)).expect("is ours");
        let name = ptsname(&leader, Vec::new()).expect("a name").into_string().expect("text");
        let follower: OwnedFd = File::options().read(true).write(true).open(name).expect("opens").into();
        tcsetwinsize(&follower, Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).expect("resizes");
        let end = || Stdio::from(follower.try_clone().expect("clones"));
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .args(before)
            .args([env!("CARGO_BIN_EXE_refault"), "run", "--memory", "64M"])
            .args(["--stats-interval", "100", "--quiet"])
            .args(arguments)
            .stdin(end())
            .stdout(stdout.unwrap_or_else(end))
            .stderr(end())
            .spawn()
            .expect("setsid starts");
        let leader = File::from(leader);
        let parser = Arc::new(Mutex::new(vt100::Parser::new(cells(30), cells(100), 0)));
        let (mut reader, painted) = (leader.try_clone().expect("clones"), parser.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                painted.lock().expect("whole").process(&bytes[..read]);
            }
        });
        Screen { leader, follower, parser, child }
    }

    fn contents(&self) -> String {
        self.parser.lock().expect("whole").screen().contents()
    }

    fn alternate(&self) -> bool {
        self.parser.lock().expect("whole").screen().alternate_screen()
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    fn until(&self, wanted: impl Fn(&Screen) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !wanted(self) {
            assert!(Instant::now() < deadline, "alternate {}:\n{}", self.alternate(), self.contents());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the picture with figures is there.
    #[track_caller]
    fn until_shown(&self) {
        self.until(|screen| screen.alternate() && screen.contents().contains("resident"));
    }

    fn types(&mut self, keys: &[u8]) {
        self.leader.write_all(keys).expect("types");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("is there");
    }

    /// Waits for the end; the screen must be the terminal's own again, with echo.
    #[track_caller]
    fn end(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("ends");
        self.until(|screen| !screen.alternate());
        let modes = tcgetattr(&self.follower).expect("a terminal").local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "{modes:?}");
        status
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_picture_is_shown_and_the_programs_output_after_it() {
    if skipped(&["setsid"]) {
        return;
    }
    let script = "echo to the output; echo to the errors >&2; read word; echo the last; exit 7";
    let mut screen = Screen::run(&["--watch", "--", "sh", "-c", script], None);
    screen.until_shown();
    screen.until(|screen| screen.contents().contains("of output are held"));
    // Known from the first fault on.
    screen.until(|screen| screen.contents().contains("Way of choosing what goes"));
    let picture = screen.contents();
    for part in ["refault run  process", "accesses by parking", "of 64 MiB", "fault latency", "pressure some", "  sh"] {
        assert!(picture.contains(part), "{part}\n{picture}");
    }
    assert!(!picture.contains("to the"), "{picture}");
    screen.types(b"\n");
    assert_eq!(screen.end().code(), Some(7));
    screen.until(|screen| screen.contents().contains("the last"));
    assert_eq!(screen.contents().trim(), "to the output\nto the errors\nthe last");
}

#[test]
fn the_picture_follows_the_size_of_the_terminal() {
    if skipped(&["setsid"]) {
        return;
    }
    let mut screen = Screen::run(&["--watch", "--", "sh", "-c", "read word"], None);
    screen.until_shown();
    tcsetwinsize(&screen.follower, Winsize { ws_row: 40, ws_col: 70, ws_xpixel: 0, ws_ypixel: 0 }).expect("resizes");
    screen.parser.lock().expect("whole").screen_mut().set_size(cells(40), cells(70));
    let right = |screen: &Screen| {
        let contents = screen.contents();
        contents.lines().filter(|line| line.chars().count() == 70 && line.ends_with(['┐', '┘', '│'])).count() > 10
    };
    screen.until(right);
    screen.types(b"\n");
    assert_eq!(screen.end().code(), Some(0));
}

#[test]
fn output_that_goes_elsewhere_goes_there_at_once() {
    if skipped(&["setsid"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (out, stats) = (directory.path().join("out"), directory.path().join("stats"));
    let file = File::create(&out).expect("a file");
    let stats = stats.to_str().expect("text");
    let arguments = ["--watch", "--stats", stats, "--", "sh", "-c", "echo out; echo err >&2; read word"];
    let mut screen = Screen::run(&arguments, Some(file.into()));
    screen.until_shown();
    assert_eq!(std::fs::read_to_string(&out).expect("reads"), "out\n");
    screen.types(b"\n");
    assert_eq!(screen.end().code(), Some(0));
    // The tool's own line about the statistics comes first.
    screen.until(|screen| screen.contents().trim().lines().next_back() == Some("err"));
    assert!(std::fs::read_to_string(stats).expect("the user's statistics").lines().count() >= 1);
}

#[test]
fn signals_reach_the_program_and_its_end_is_ours() {
    if skipped(&["setsid"]) {
        return;
    }
    let script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut screen = Screen::run(&["--watch", "--", "sh", "-c", script], None);
    screen.until(|screen| screen.contents().contains("of output are held"));
    screen.signal(Signal::TERM);
    assert_eq!(screen.end().code(), Some(3));
    screen.until(|screen| screen.contents().trim() == "ready\ncaught");

    let mut screen = Screen::run(&["--watch", "--", "sh", "-c", "read word; kill -USR1 $$"], None);
    screen.until_shown();
    screen.types(b"\n");
    assert_eq!(screen.end().signal(), Some(Signal::USR1.as_raw()));
    let mut screen = Screen::run(&["--watch", "--", "sh", "-c", "read word; kill -KILL $$"], None);
    screen.until_shown();
    screen.types(b"\n");
    assert_eq!(screen.end().signal(), Some(Signal::KILL.as_raw()));
}

/// Prints the values of the real-time signals that come.
const WAITS_FOR_SIGNALS: &str = include_str!("c/waits_for_signals.c");

#[test]
fn real_time_signals_reach_the_program_in_order_and_with_their_values() {
    if skipped(&["setsid", "gcc"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (source, program) = (directory.path().join("waits.c"), directory.path().join("waits"));
    std::fs::write(&source, WAITS_FOR_SIGNALS).expect("writes");
    assert!(Command::new("gcc").arg("-o").arg(&program).arg(&source).status().expect("gcc starts").success());
    let out = directory.path().join("out");
    let file = File::create(&out).expect("a file");
    let arguments = ["--watch", "--", program.to_str().expect("text")];
    let mut screen = Screen::run(&arguments, Some(file.into()));
    let printed = |wanted: &str| std::fs::read_to_string(&out).expect("reads") == wanted;
    screen.until(|_| printed("ready\n"));
    let pid = screen.pid().as_raw_nonzero().get();
    for value in 0..40usize {
        // SAFETY: sends a signal to a child that was not waited for.
        let sent = unsafe { libc::sigqueue(pid, libc::SIGRTMIN() + 2, libc::sigval { sival_ptr: value as *mut _ }) };
        assert_eq!(sent, 0);
    }
    let wanted = (0..40).map(|value| format!("{value} ")).collect::<String>();
    screen.until(|_| printed(&format!("ready\n{wanted}")));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGRTMIN() + 3) }, 0);
    assert_eq!(screen.end().signal(), Some(libc::SIGRTMIN() + 3));
}

#[test]
fn the_keyboard_is_the_programs() {
    if skipped(&["setsid"]) {
        return;
    }
    let script = "trap 'echo interrupted; exit 4' INT; read word; echo \"read $word\"; while :; do sleep 0.05; done";
    // A shell traps nothing that was ignored when it started, as SIGINT is in what runs in the background.
    let program = ["--watch", "--", "env", "--default-signal=INT", "sh", "-c", script];
    let mut screen = Screen::run(&program, None);
    screen.until_shown();
    screen.types(b"typed\n");
    screen.until(|screen| screen.contents().contains("of output are held"));
    assert!(!screen.contents().contains("typed"), "{}", screen.contents());
    screen.types(b"\x03");
    assert_eq!(screen.end().code(), Some(4));
    screen.until(|screen| screen.contents().contains("interrupted"));
    assert!(screen.contents().trim().starts_with("read typed\ninterrupted"), "{}", screen.contents());
}

#[test]
fn a_stop_gives_the_terminal_back_and_going_on_takes_it_again() {
    if skipped(&["setsid"]) {
        return;
    }
    let mut screen = Screen::run_in_shell(&["--watch", "--", "sh", "-c", "read word"]);
    screen.until_shown();
    screen.types(b"\x1a");
    screen.until(|screen| !screen.alternate() && screen.contents().contains("has stopped"));
    let modes = tcgetattr(&screen.follower).expect("a terminal").local_modes;
    assert!(modes.contains(LocalModes::ECHO), "{modes:?}");
    screen.types(b"go on\n");
    screen.until_shown();
    screen.types(b"\n");
    assert_eq!(screen.end().code(), Some(0));
}

#[test]
fn a_killed_command_takes_the_program_along() {
    if skipped(&["setsid"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("pid");
    let script = format!("echo $$ > {}; while :; do sleep 0.05; done", place.display());
    let mut screen = Screen::run(&["--watch", "--", "sh", "-c", &script], None);
    screen.until_shown();
    let program = std::fs::read_to_string(&place).expect("its process id");
    let program = format!("/proc/{}", program.trim());
    assert!(Path::new(&program).exists());
    screen.signal(Signal::KILL);
    assert_eq!(screen.child.wait().expect("ends").signal(), Some(Signal::KILL.as_raw()));
    screen.until(|_| !Path::new(&program).exists());
}

#[test]
fn without_a_terminal_it_says_so_and_runs() {
    if skipped(&["setsid"]) {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["run", "--memory", "64M", "--watch", "--quiet", "--", "sh", "-c", "echo out; exit 5"])
        .output()
        .expect("refault starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(5), &b"out\n"[..]));
    assert!(said.starts_with("refault: --watch needs a terminal") && said.lines().count() == 1, "{said}");
}
