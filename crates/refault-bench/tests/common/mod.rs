//! Running `refault-bench` beside the program that it measures.
#![allow(dead_code)] // Each test file uses a part of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use refault_testing::skip_required;

/// The benchmarks.
pub const BENCH: &str = env!("CARGO_BIN_EXE_refault-bench");

/// The directory where cargo puts the programs of all crates.
pub fn programs() -> &'static Path {
    Path::new(BENCH).parent().expect("a directory")
}

/// `refault-bench` with these arguments.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(BENCH);
    command.args(arguments);
    command
}

/// The program `refault`; `cargo test --workspace` builds it before it runs a test.
pub fn refault() -> Option<PathBuf> {
    let path = programs().join("refault");
    if !path.is_file() {
        skip_required("refault is not built: cargo test -p refault-cli --no-run");
        return None;
    }
    Some(path)
}

/// True, with one line that says why, where `refault run` does not work.
pub fn skipped() -> bool {
    let Some(refault) = refault() else { return true };
    let probe = Command::new(refault).args(["run", "--quiet", "--memory", "64M", "--", "true"]).output();
    let output = probe.expect("refault starts");
    if !output.status.success() {
        skip_required(String::from_utf8_lossy(&output.stderr));
    }
    !output.status.success()
}
