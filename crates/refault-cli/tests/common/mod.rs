//! Running the binary and looking at what it says.
#![allow(dead_code)] // Each test file uses a part of it.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use refault_testing::skip_required;
use serde_json::Value;
use tempfile::TempDir;

/// True, with one line that says why, where live tests cannot run: no userfaultfd, or one of these programs is missing.
pub fn skipped(programs: &[&str]) -> bool {
    if let Err(error) = refault_pager::probe::Capabilities::probe().userfaultfd {
        skip_required(format_args!("no userfaultfd here: {error}"));
        return true;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = programs.iter().find(|name| !std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
    if let Some(name) = missing {
        skip_required(format_args!("{name} is not installed"));
    }
    missing.is_some()
}

/// Runs `refault` with these arguments.
pub fn refault(arguments: &[&str]) -> Output {
    Command::cargo_bin("refault").expect("the binary is built").args(arguments).output().expect("it starts")
}

/// Runs it, expects success and returns standard output.
pub fn stdout(arguments: &[&str]) -> String {
    let output = refault(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// A `.u64` trace of these pages.
pub fn trace(directory: &TempDir, name: &str, pages: impl IntoIterator<Item = u64>) -> String {
    let path = directory.path().join(name);
    let bytes: Vec<u8> = pages.into_iter().flat_map(u64::to_le_bytes).collect();
    std::fs::write(&path, bytes).expect("the temporary directory can be written");
    path.to_str().expect("its path is UTF-8").to_string()
}

/// Waits for what is sure to happen, however busy the machine is.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How many lines a file has by now.
pub fn lines_by_now(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// The rows of CSV output, header first.
pub fn rows(text: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    reader.records().map(|row| row.expect("well-formed").iter().map(str::to_string).collect()).collect()
}

/// Compiles a C program, and says where it is.
pub fn compiled(directory: &TempDir, name: &str, source: &str) -> String {
    let (file, program) = (directory.path().join(format!("{name}.c")), directory.path().join(name));
    std::fs::write(&file, source).expect("writes");
    let gcc = Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(&file).output().expect("gcc starts");
    assert!(gcc.status.success(), "{}", text(&gcc.stderr));
    program.display().to_string()
}

/// The lines of a file of statistics.
pub fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("statistics");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}
