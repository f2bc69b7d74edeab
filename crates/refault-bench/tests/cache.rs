//! `refault-bench cache` in small: every row is there in every format, and wrong usage is refused.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault-bench"));
    command.args(["cache", "--memory-mib", "1", "--seconds", "0.05", "--warm-up", "0.05", "--runs", "2", "--alone"]);
    command.args(["--directory", env!("CARGO_TARGET_TMPDIR")]).args(arguments);
    command
}

fn bench(arguments: &[&str]) -> Output {
    command(arguments).output().expect("refault-bench starts")
}

#[test]
fn each_load_can_be_read_as_soon_as_it_is_measured() {
    for (format, head, first) in [("table", "zipf, 2 threads", " lru"), ("csv", "pattern,threads", "zipf,2,lru")] {
        let mut run = command(&["--patterns", "zipf,scan", "--policies", "lru", "--format", format]);
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("refault-bench starts");
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
    let output =
        bench(&["--patterns", "hits,pinned,skewed-hits,skewed-pinned,mixed", "--policies", "lru", "--format", "json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("direct I/O") {
        refault_testing::skip_required(error);
        return;
    }
    assert!(output.status.success(), "{error}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    // Hits and pinned, all alike and skewed, by one thread and two, each beside a cache of objects and an array; mixed has none.
    assert_eq!(rows.len(), 25, "{json}");
    for beside in ["array", "quick_cache"] {
        assert_eq!(rows.iter().filter(|row| row["policy"] == beside).count(), 8, "{json}");
    }
    for row in rows {
        let read = row["runs"][0]["pages_read_percent"].as_f64().expect("a number");
        match row["pattern"].as_str().expect("a name") {
            "mixed" => assert!(read > 1.0, "{row}"),
            // The hottest pages lie in equal steps: draws that happen to follow each other look like a stream, which reads some
            // pages behind those that are used, once: a few of a million.
            "skewed-hits" | "skewed-pinned" => assert!(read < 0.01, "{row}"),
            _ => assert_eq!(read, 0.0, "{row}"),
        }
        assert!(row["runs"][0]["cpu_us"].as_f64().expect("a number") > 0.0, "{row}");
    }
}

/// 400 pages that lie far apart, in an order that no readahead foresees, each twice on end, and all of that twice.
#[test]
fn a_trace_is_read_from_a_file_as_often_as_its_pages_do_not_fit() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let trace = directory.path().join("pages.u64");
    let mut order: Vec<u64> = (0..400).map(|page| page * 1_000_003).collect();
    let mut state = 7u64;
    for last in (1..order.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
    let round = || order.iter().flat_map(|page| [*page, *page]);
    let bytes: Vec<u8> = round().chain(round()).flat_map(u64::to_le_bytes).collect();
    std::fs::write(&trace, bytes).expect("written");
    let replay = |times: &str, format: &str, trace: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_refault-bench"));
        command.args(["cache", "--policies", "lru,mglru", "--runs", "2", "--times", times, "--format", format]);
        command.args(["--directory", env!("CARGO_TARGET_TMPDIR")]).arg("--trace").arg(trace);
        command.output().expect("refault-bench starts")
    };
    let output = replay("1", "json", &trace);
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("direct I/O") {
        refault_testing::skip_required(error);
        return;
    }
    assert!(output.status.success(), "{error}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["rows"][0]["pages_read"], serde_json::json!([400, 400]), "{json}");
    assert_eq!((&json["rows"][1]["policy"], &json["rows"][1]["accesses"]), (&"mglru".into(), &1600.into()), "{json}");
    // A quarter fits, of which none is still there when it is asked for again.
    let output = replay("4", "csv", &trace);
    let text = String::from_utf8_lossy(&output.stdout);
    let lru: Vec<f64> = text
        .lines()
        .filter(|line| line.contains(",lru,"))
        .filter_map(|line| line.split(',').nth(6)?.parse().ok())
        .collect();
    assert!(lru.len() == 2 && lru.iter().all(|pages| (700.0..=850.0).contains(pages)), "{text}");
    let output = replay("4", "table", &trace);
    assert!(String::from_utf8_lossy(&output.stdout).contains("lru reads "), "{output:?}");
    let output = replay("4", "table", &directory.path().join("nothing"));
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{output:?}");
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
        ["--trace", "with-memory-of-its-own"],
    ] {
        assert_eq!(bench(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}
