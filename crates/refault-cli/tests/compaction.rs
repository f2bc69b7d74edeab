//! A program under a budget while the kernel moves its pages about: nothing is lost, and nothing gets stuck.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Compaction locks pages that are just being moved out. Linux 6.18 then says of pages that it has moved that they are
/// in the way; who believes it looks for them where they were, for ever.
#[test]
fn pages_that_compaction_has_locked_are_moved_once() {
    const COMPACT: &str = "/proc/sys/vm/compact_memory";
    if common::skipped(&["gcc"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() || !std::path::Path::new(COMPACT).exists() {
        return refault_testing::skip("compaction is started by root alone");
    }
    let refault = env!("CARGO_BIN_EXE_refault");
    let directory = tempfile::TempDir::new().expect("a directory");
    let skewed = common::compiled(&directory, "skewed", include_str!("c/skewed.c"));
    // Three at once: one alone had nothing happen to it in three runs of five.
    let mut running: Vec<_> = (0..3)
        .map(|_| {
            let mut command = Command::new(refault);
            command.args(["run", "--memory", "32M", "--quiet", "--", &skewed, "64", "2", "5"]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("refault starts")
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(120);
    while running.iter_mut().any(|one| one.try_wait().expect("can be waited for").is_none()) {
        if Instant::now() > deadline {
            running.iter_mut().for_each(|one| one.kill().expect("can be killed"));
            panic!("the load does not end");
        }
        std::fs::write(COMPACT, "1").expect("root may");
    }
    for one in running {
        let output = one.wait_with_output().expect("its output can be read");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("whole"));
    }
}
