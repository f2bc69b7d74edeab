//! `refault bench cache` in small: every row is there in every format, and wrong usage is refused.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.args(["bench", "cache", "--memory-mib", "1", "--seconds", "0.05", "--warm-up", "0.05", "--alone"]);
    command.args(["--directory", env!("CARGO_TARGET_TMPDIR")]).args(arguments).output().expect("refault starts")
}

#[test]
fn every_policy_and_share_has_a_row() {
    let output = bench(&["--patterns", "zipf,scan", "--policies", "mglru,lru,freebsd", "--format", "csv"]);
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("direct I/O") {
        refault_testing::skip_required(error);
        return;
    }
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8_lossy(&output.stdout);
    // Three rows for a policy, one for freebsd, in each pattern; and the head.
    assert_eq!(text.lines().count(), 15, "{text}");
    assert!(text.lines().all(|line| line.split(',').count() == 8), "{text}");
    let output = bench(&["--patterns", "uniform", "--policies", "lru", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let compressing = bench(&["--patterns", "uniform", "--policies", "lru", "--format", "json", "--compressed", "25%"]);
    let compressing: serde_json::Value = serde_json::from_slice(&compressing.stdout).expect("JSON");
    let read = |json: &serde_json::Value| json["rows"][0]["figures"]["pages_read_percent"].as_f64().expect("a number");
    assert!(read(&compressing) < read(&json) / 2.0, "{compressing} {json}");
    let figures = &json["rows"][2]["figures"];
    assert!(figures["reactivated_percent"].as_f64().expect("a number") > 0.0, "{json}");
    assert!(figures["pages_read_percent"].as_f64().expect("a number") > 30.0, "{json}");
}

#[test]
fn wrong_usage_is_refused() {
    for arguments in
        [["--policies", "opt"], ["--keep-evicted", "70%"], ["--compressed", "80%"], ["--patterns", "backwards"]]
    {
        assert_eq!(bench(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}
