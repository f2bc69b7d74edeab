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
fn a_table_fits_a_wide_terminal_and_begins_with_the_verdict() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["freepool", "mglru-fio", "mglru-v1"] {
        let report = directory.path().join(name).display().to_string() + ".html";
        let output = refault(&["reproduce", name, "--small", "--report", &report]);
        let (said, table) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{said}");
        let long: Vec<&str> = table.lines().filter(|line| line.chars().count() > 120).collect();
        assert!(long.is_empty(), "{name}: {long:#?}");
        assert!(said.lines().next().is_some_and(|line| line.contains(&format!("running {name}"))), "{said}");
    }
}

#[test]
fn unknown_experiments_are_refused_in_one_line() {
    let output = refault(&["reproduce", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.contains("'nothing'") && line.contains("freepool") && line.lines().count() == 1, "{line}");
}
