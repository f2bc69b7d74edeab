//! `refault host --apply` on a group of this machine.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::text;
use refault_pool::reclaim::swap::Swap;
use refault_testing::cgroup::Group;
use refault_testing::skip_required;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// Reads a file once, and holds 24 MiB of which it looks at all, all the time.
const PROGRAM: &str = "\
import sys, time
data = bytearray(24 << 20)
open(sys.argv[1], 'rb').read()
print('ready', flush=True)
while True:
    for at in range(0, len(data), 4096): data[at] = 1
    time.sleep(0.05)
";

/// Reads a file, holds 24 MiB and prints a sum of both; it sleeps, and does so again for each line that it is sent.
const SLEEPER: &str = "\
import hashlib, sys
data = bytearray(i * 7 % 251 for i in range(4096)) * 6144
def all_of_it():
    with open(sys.argv[1], 'rb') as file: return hashlib.sha1(file.read() + data).hexdigest()
print('ready', all_of_it(), sep='\\n', flush=True)
for line in sys.stdin: print(all_of_it(), flush=True)
";

struct Busy {
    group: Group,
    program: Child,
    out: BufReader<ChildStdout>,
    directory: TempDir,
}

impl Busy {
    fn new(name: &str, text: &str) -> Option<Busy> {
        let group = match Group::new(name) {
            Ok(group) => group,
            Err(error) => {
                skip_required(format_args!("no memory cgroup can be made: {error}"));
                return None;
            }
        };
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on a disk");
        let file = directory.path().join("read-once");
        std::fs::write(&file, vec![1; 96 << 20]).expect("room");
        let written = std::fs::File::open(&file).expect("it is there");
        written.sync_all().expect("written");
        rustix::fs::fadvise(&written, 0, None, rustix::fs::Advice::DontNeed).expect("a file");
        let mut command = group.command("python3");
        command.args(["-c", text]).arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().expect("sh is there");
        let out = BufReader::new(program.stdout.take().expect("a pipe"));
        let mut busy = Busy { group, program, out, directory };
        assert_eq!(busy.says(), "ready\n");
        Some(busy)
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("it says so");
        line
    }

    /// What a sleeper says once it has touched all that it has.
    fn touches_all(&mut self) -> String {
        self.program.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it reads");
        self.says()
    }

    fn number(&self, files: [&str; 2]) -> u64 {
        let texts = files.iter().filter_map(|file| std::fs::read_to_string(self.group.directory().join(file)).ok());
        texts.map(|text| text.trim().parse().unwrap_or(u64::MAX)).next().expect("the group has one")
    }

    fn usage(&self) -> u64 {
        self.number(["memory.usage_in_bytes", "memory.current"])
    }

    fn limits(&self) -> (u64, u64) {
        (
            self.number(["memory.soft_limit_in_bytes", "memory.high"]),
            self.number(["memory.limit_in_bytes", "memory.max"]),
        )
    }

    fn apply(&self, more: &[&str]) -> Command {
        // A closed terminal is to be noticed also where these tests are run by nohup.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(assert_cmd::cargo::cargo_bin("refault"));
        command.args([
            "host",
            "--apply",
            "--floor",
            "1s",
            "--pressure",
            "90%",
            "--group",
            self.group.path(),
            "--journal",
        ]);
        command.arg(self.directory.path().join("journal.json")).args(more).stderr(Stdio::piped());
        command
    }

    /// Waits until the group's limit is lowered and its usage below this.
    fn falls_below(&self, bytes: u64) {
        let until = Instant::now() + Duration::from_secs(120);
        while self.usage() > bytes || self.limits().0 > bytes {
            assert!(Instant::now() < until, "{} MiB, {:?}", self.usage() / MIB, self.limits());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The first line that is told with this in it.
fn told(lines: &mut impl BufRead, part: &str) -> String {
    lines.lines().map(|line| line.expect("text")).find(|line| line.contains(part)).expect("it says so before it ends")
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn what_was_changed_is_put_back_at_the_end_and_after_a_kill_by_the_next_start() {
    let Some(mut busy) = Busy::new("apply", PROGRAM) else { return };
    let (before, usage) = (busy.limits(), busy.usage());
    assert!(usage > 110 * MIB, "{} MiB", usage / MIB);
    // A dry run is what there is without --yes.
    let dry = busy.apply(&["--for", "4s"]).output().expect("it starts");
    let said = text(&dry.stderr);
    assert!(dry.status.success() && said.contains("nothing is changed") && said.contains(": limit "), "{said}");
    assert!(said.ends_with("nothing was changed\n") && !said.contains("killed"), "{said}");
    assert_eq!(busy.limits(), before);
    assert!(busy.usage() > 110 * MIB, "a dry run reclaimed");

    let mut applied = busy.apply(&["--yes"]).spawn().expect("it starts");
    busy.falls_below(100 * MIB);
    // Two at a time would put back each other's changes.
    let second = busy.apply(&["--yes", "--for", "1s"]).output().expect("it starts");
    assert!(
        !second.status.success() && text(&second.stderr).contains("another refault host --apply"),
        "{}",
        text(&second.stderr)
    );
    applied.kill().expect("it runs");
    applied.wait().expect("it ends");
    assert!(busy.limits().0 < before.0, "a kill leaves the limit");
    let dry = text(&busy.apply(&["--for", "1s"]).output().expect("it starts").stderr);
    assert!(dry.contains("a run that was killed has left") && dry.contains("--yes puts them back first"), "{dry}");

    let mut next = busy.apply(&["--yes"]).spawn().expect("it starts");
    let mut lines = BufReader::new(next.stderr.take().expect("a pipe"));
    let line = told(&mut lines, "put back");
    assert!(line.contains("an earlier run"), "{line}");
    busy.falls_below(70 * MIB);
    // What the program accesses all the time stays, whatever the target.
    assert!(busy.limits().0 >= 24 * MIB, "{:?}", busy.limits());
    rustix::process::kill_process(rustix::process::Pid::from_child(&next), rustix::process::Signal::HUP)
        .expect("it runs");
    assert!(next.wait().expect("it ends").success());
    assert_eq!(busy.limits(), before);
    assert!(busy.program.try_wait().expect("it can be asked").is_none(), "the program was killed");
    assert!(!busy.directory.path().join("journal.json").exists());
}

#[test]
fn an_idle_group_is_parked_and_has_room_as_soon_as_it_wakes() {
    let Some(mut idle) = Busy::new("park", SLEEPER) else { return };
    // A second look would make all of the file active, as the kernel sees it.
    let whole = idle.says();
    let (before, usage) = (idle.limits(), idle.usage());
    assert!(usage > 110 * MIB, "{} MiB", usage / MIB);
    let dry = idle.apply(&["--park", "2s", "--for", "6s"]).output().expect("it starts");
    let said = text(&dry.stderr);
    assert!(dry.status.success() && said.contains(", would be parked: "), "{said}");
    assert!(idle.usage() > 110 * MIB, "a dry run reclaimed");

    let mut applied = idle.apply(&["--yes", "--park", "2s", "--for", "120s"]).spawn().expect("it starts");
    let mut lines = BufReader::new(applied.stderr.take().expect("a pipe"));
    let parked = told(&mut lines, ", parked: ");
    assert!(idle.usage() < 60 * MIB, "{} MiB: {parked}", idle.usage() / MIB);
    assert_eq!(idle.limits(), before, "a parked group has no limit");
    if Swap::of_host().expect("the kernel says").total_bytes == 0 {
        assert!(parked.contains("without room in swap (none"), "{parked}");
    }
    assert_eq!(idle.touches_all(), whole);
    told(&mut lines, ": awake again");
    assert_eq!(idle.limits(), before);
    rustix::process::kill_process(rustix::process::Pid::from_child(&applied), rustix::process::Signal::INT)
        .expect("it runs");
    assert!(applied.wait().expect("it ends").success());
    assert_eq!(idle.limits(), before);
    assert!(!idle.directory.path().join("journal.json").exists());
}
