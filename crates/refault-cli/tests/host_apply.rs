//! `refault host --apply` on a group of this machine.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::text;
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

struct Busy {
    group: Group,
    program: Child,
    directory: TempDir,
}

impl Busy {
    fn new(name: &str) -> Option<Busy> {
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
        let mut program = command.args(["-c", PROGRAM]).arg(&file).stdout(Stdio::piped()).spawn().expect("sh is there");
        let mut line = String::new();
        let mut out = std::io::BufReader::new(program.stdout.take().expect("a pipe"));
        std::io::BufRead::read_line(&mut out, &mut line).expect("it says so");
        assert_eq!(line, "ready\n");
        Some(Busy { group, program, directory })
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
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("refault"));
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

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn what_was_changed_is_put_back_at_the_end_and_after_a_kill_by_the_next_start() {
    let Some(mut busy) = Busy::new("apply") else { return };
    let (before, usage) = (busy.limits(), busy.usage());
    assert!(usage > 110 * MIB, "{} MiB", usage / MIB);
    // A dry run is what there is without --yes.
    let dry = busy.apply(&["--for", "4s"]).output().expect("it starts");
    let said = text(&dry.stderr);
    assert!(dry.status.success() && said.contains("nothing is changed") && said.contains(": limit "), "{said}");
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

    let mut next = busy.apply(&["--yes"]).spawn().expect("it starts");
    let mut said = std::io::BufReader::new(next.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("put back") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).expect("it says so") > 0, "it said nothing of it");
    }
    assert!(line.contains("an earlier run"), "{line}");
    busy.falls_below(70 * MIB);
    // What the program accesses all the time stays, whatever the target.
    assert!(busy.limits().0 >= 24 * MIB, "{:?}", busy.limits());
    rustix::process::kill_process(rustix::process::Pid::from_child(&next), rustix::process::Signal::INT)
        .expect("it runs");
    assert!(next.wait().expect("it ends").success());
    assert_eq!(busy.limits(), before);
    assert!(busy.program.try_wait().expect("it can be asked").is_none(), "the program was killed");
    assert!(!busy.directory.path().join("journal.json").exists());
}
