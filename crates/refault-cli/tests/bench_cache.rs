//! `refault bench cache` in small: every row is there in every format, and wrong usage is refused.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.args([
        "bench",
        "cache",
        "--memory-mib",
        "1",
        "--seconds",
        "0.05",
        "--warm-up",
        "0.05",
        "--runs",
        "2",
        "--alone",
    ]);
    command.args(["--directory", env!("CARGO_TARGET_TMPDIR")]).args(arguments);
    command
}

fn bench(arguments: &[&str]) -> Output {
    command(arguments).output().expect("refault starts")
}

#[test]
fn each_load_can_be_read_as_soon_as_it_is_measured() {
    for (format, head, first) in [("table", "zipf, 2 threads", " lru"), ("csv", "pattern,threads", "zipf,2,lru")] {
        let mut run = command(&["--patterns", "zipf,scan", "--policies", "lru", "--format", format]);
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("refault starts");
        let mut lines = BufReader::new(run.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let before: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with(first)).collect();
        // Ended by a signal, it removes its file.
        rustix::process::kill_process(Pid::from_child(&run), Signal::TERM).expect("is there");
        let output = run.wait_with_output().expect("ends");
        let error = String::from_utf8_lossy(&output.stderr);
        if error.contains("direct I/O") {
            refault_testing::skip_required(error);
            return;
        }
        assert!(before.first().is_some_and(|line| line.starts_with(head)), "{before:?} {error}");
        let rest: Vec<String> = lines.collect();
        assert!(!rest.iter().any(|line| line.contains("scan,")), "{rest:?}");
        assert_eq!(output.status.signal(), Some(15));
    }
}

#[test]
fn every_policy_and_share_has_a_row() {
    let output = bench(&[
        "--patterns",
        "zipf,scan",
        "--policies",
        "mglru,lru,freebsd",
        "--keep-evicted",
        "0%,5%",
        "--format",
        "csv",
    ]);
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("direct I/O") {
        refault_testing::skip_required(error);
        return;
    }
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8_lossy(&output.stdout);
    // Three rows for a policy, one for freebsd, in zipf by two threads and in scans by one and by two, twice; and the head.
    assert_eq!(text.lines().count(), 7 * 3 * 2 + 1, "{text}");
    assert!(text.lines().all(|line| line.split(',').count() == 11), "{text}");
    let uniform = ["--patterns", "uniform", "--policies", "lru", "--keep-evicted", "0%,5%", "--format", "json"];
    let output = bench(&uniform);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let compressing = bench(&[&uniform[..], &["--compressed", "25%"]].concat());
    let compressing: serde_json::Value = serde_json::from_slice(&compressing.stdout).expect("JSON");
    let read = |json: &serde_json::Value| json["rows"][0]["runs"][0]["pages_read_percent"].as_f64().expect("a number");
    assert!(read(&compressing) < read(&json) / 2.0, "{compressing} {json}");
    let figures = &json["rows"][2]["runs"][1];
    assert!(figures["reactivated_percent"].as_f64().expect("a number") > 0.0, "{json}");
    assert!(figures["pages_read_percent"].as_f64().expect("a number") > 30.0, "{json}");
}

#[test]
fn what_is_in_memory_is_not_read_and_what_is_written_is_there() {
    let output = bench(&["--patterns", "hits,pinned,mixed", "--policies", "lru", "--format", "json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("direct I/O") {
        refault_testing::skip_required(error);
        return;
    }
    assert!(output.status.success(), "{error}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    // Hits and pinned by one thread and two, each beside an array; mixed has none.
    assert_eq!(rows.len(), 9, "{json}");
    assert_eq!(rows.iter().filter(|row| row["policy"] == "array").count(), 4, "{json}");
    for row in rows {
        let read = row["runs"][0]["pages_read_percent"].as_f64().expect("a number");
        let all_hits = row["pattern"] != "mixed";
        assert_eq!(read == 0.0, all_hits, "{row}");
        assert!(row["runs"][0]["cpu_us"].as_f64().expect("a number") > 0.0, "{row}");
    }
}

#[test]
fn wrong_usage_is_refused() {
    for arguments in [
        ["--seconds", "NaN"],
        ["--warm-up", "inf"],
        ["--seconds", "1e300"],
        ["--policies", "opt"],
        ["--keep-evicted", "70%"],
        ["--compressed", "80%"],
        ["--patterns", "backwards"],
    ] {
        assert_eq!(bench(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}
