//! `refault reproduce`: names; the experiments themselves are tested where they live.

use assert_cmd::Command;

fn refault(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_refault")).args(arguments).output().expect("the binary runs")
}

#[test]
fn experiments_are_listed() {
    let output = refault(&["reproduce", "list"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("freepool"));
}

#[test]
fn unknown_experiments_are_refused_in_one_line() {
    let output = refault(&["reproduce", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.contains("'nothing'") && line.contains("freepool") && line.lines().count() == 1, "{line}");
}
