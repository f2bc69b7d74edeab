//! `refault monitor` of live programs whose truth is known: recordings that are asked later, programs that run already,
//! and what is said of memory that was reserved and never touched.

mod common;

use std::process::{Child, Command, Stdio};

use common::{compiled, refault, rows, skipped, stdout, text, wait_for};
use serde_json::Value;
use tempfile::TempDir;

/// Arguments: MiB of a reserved GiB that are touched again and again, MiB that are touched once, seconds.
const HOT_IN_RESERVED: &str = include_str!("c/hot_in_reserved.c");

/// Argument: MiB of memory that are touched, three times. Prints how many bytes of it are in memory at the end.
const RESIDENT: &str = include_str!("c/resident.c");

const MIB: u64 = 1 << 20;

#[test]
fn a_recording_is_asked_later_and_knows_what_was_never_touched() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "hot", HOT_IN_RESERVED);
    let at = |name: &str| directory.path().join(name).display().to_string();
    let raw = at("app.raw");
    let faster = ["--set", "intervals.sample_us=2 ms", "--set", "intervals.aggr_us=40 ms", "--monitor-cpu", "20%"];
    let arguments =
        [&["monitor", "--out", &raw, "--scheme", "stat"], &faster[..], &["--", &program, "16", "32", "3"]].concat();
    assert_eq!(stdout(&arguments), "", "the program's output is its own");
    let json = |what: &str, more: &[&str]| -> Value {
        let text = stdout(&[&["monitor", "report", what, &raw, "--format", "json"], more].concat());
        serde_json::from_str(&text).expect("JSON")
    };
    // 16 MiB are hot, 48 were ever touched, 1024 are reserved.
    let heats = json("heats", &[]);
    let size = |place: &Value| place["end"].as_u64().expect("end") - place["start"].as_u64().expect("start");
    let places: u64 = heats["places"].as_array().expect("places").iter().map(size).sum();
    assert!((16 * MIB..56 * MIB).contains(&places), "{places}: {}", heats["places"]);
    let working_sets = json("wss", &[]);
    let sizes = &working_sets["working_set_bytes"];
    let median = sizes["50"].as_u64().expect("a size");
    assert!((12 * MIB..40 * MIB).contains(&median), "{sizes}");
    assert!(sizes["100"].as_u64().expect("a size") < 56 * MIB, "{sizes}");
    assert!(json("schemes", &[])["schemes"][0]["nr_tried"].as_u64().expect("a count") > 0);
    // A part of time and addresses has a part of the rows.
    let rows_of =
        |more: &[&str]| rows(&stdout(&[&["monitor", "report", "heats", &raw, "--format", "csv"], more].concat())).len();
    let largest = heats["places"].as_array().expect("places").iter().max_by_key(|place| size(place)).expect("one");
    let range = format!("{}-{}", largest["start"], largest["end"]);
    let (all, late, there) = (rows_of(&[]), rows_of(&["--from", "1s"]), rows_of(&["--addresses", &range]));
    assert!(late < all && there < all && late > 10 && there > 10, "{all} {late} {there}");
    let report = at("app.html");
    let table = stdout(&["monitor", "report", "all", &raw, "--report", &report]);
    for part in ["within what was touched by then", "columns", "working set, percentile", "0 stat"] {
        assert!(table.contains(part), "{part}\n{table}");
    }
    assert!(std::fs::read_to_string(&report).expect("a report").contains("<svg"));
    for (arguments, part) in [
        (vec!["heats", &program], "recording"),
        (vec!["heats", &raw, "--from", "1h"], "nothing was recorded there"),
        (vec!["heats", &raw, "--pid", "1"], "nothing was recorded there"),
        (vec!["heats", &raw, "--addresses", "9-1"], "is not a range of addresses"),
        (vec!["heat", &raw], "possible values"),
    ] {
        let refused = refault(&[&["monitor", "report"], &arguments[..]].concat());
        assert_eq!((refused.status.code(), text(&refused.stderr).lines().count()), (Some(2), 1), "{arguments:?}");
        assert!(text(&refused.stderr).contains(part), "{arguments:?}: {}", text(&refused.stderr));
    }
}

/// With a limit the monitored program runs under a budget, as far as a run without one has shown that it would not.
#[test]
fn a_monitored_program_runs_under_a_limit() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "resident", RESIDENT);
    let resident = |more: &[&str]| -> u64 {
        let printed = stdout(&[&["monitor"], more, &["--", &program, "48"]].concat());
        printed.trim().parse().expect("bytes")
    };
    let (alone, limited) = (resident(&[]), resident(&["--memory", "16M"]));
    assert!(alone >= 48 * MIB && limited < 32 * MIB, "{alone} without a limit, {limited} of 16 MiB");
}

#[test]
fn memory_whose_accesses_nobody_sees_is_not_called_hot() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "fork", include_str!("c/idle_since_fork.c"));
    let raw = directory.path().join("fork.raw").display().to_string();
    let faster = ["--set", "intervals.sample_us=2 ms", "--set", "intervals.aggr_us=40 ms", "--monitor-cpu", "20%"];
    stdout(&[&["monitor", "--out", &raw], &faster[..], &["--", &program]].concat());
    let late = stdout(&["monitor", "report", "wss", &raw, "--from", "1s", "--format", "json"]);
    let late: Value = serde_json::from_str(&late).expect("JSON");
    let most = late["working_set_bytes"]["90"].as_u64().expect("a size");
    assert!(most < 4 * MIB, "{}", late["working_set_bytes"]);
    let said = stdout(&["monitor", "report", "all", &raw]);
    assert!(said.contains("cannot be monitored (shared since a fork"), "{said}");
}

/// A program that runs until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_that_runs_already_is_monitored_by_name_of_what_monitors() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "hot", HOT_IN_RESERVED);
    let start = |seconds: &str| {
        Running(Command::new(&program).args(["16", "32", seconds]).stdout(Stdio::null()).spawn().expect("starts"))
    };
    let running = start("60");
    let pid = running.0.id().to_string();
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a field");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    };
    wait_for("it to have touched its memory", || resident() >= 48 * MIB);
    let each = ["--source", "mappings", "--set", "intervals.aggr_us=200 ms", "--format", "json"];
    let output = refault(&[&["monitor", "--pid", &pid, "--for", "2s"], &each[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("accessed bits of its mappings"), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let process = &found["processes"][0];
    // The accessed bits are exact: 16 MiB, and little of the program itself.
    let median = process["working_set_bytes"]["50"].as_u64().expect("a size");
    assert!((16 * MIB..18 * MIB).contains(&median), "{}", process["working_set_bytes"]);
    // A busy machine has fewer in two seconds.
    assert!(process["snapshots"].as_array().is_some_and(|all| !all.is_empty()), "no snapshots");
    // What is asked for by default says what monitors, whichever that is on this machine.
    let output = refault(&["monitor", "--pid", &pid, "--for", "1500ms"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("accesses: ") && text(&output.stdout).contains("working set"));
    drop(running);
    // One that ends meanwhile is told all the same.
    let short = start("2");
    let pid = short.0.id().to_string();
    let output = refault(&[&["monitor", "--pid", &pid], &each[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    drop(short);
    for (arguments, part) in [
        (vec!["--pid", &pid], "no such process"),
        (vec!["--pid", "1", "--scheme", "pageout"], "refault reclaim --pid"),
        (vec!["--pid", "1", "--source", "refault"], "from its start"),
        (vec!["--pid", "1", "--", "true"], "cannot be used with"),
        (vec!["--source", "mappings", "--", "true"], "without effect"),
        (vec!["--source", "mappings"], "nothing to monitor"),
        (vec!["--format", "raw"], "no recording"),
        (vec!["--for", "2s"], "--pid"),
    ] {
        let refused = refault(&[&["monitor"], &arguments[..]].concat());
        assert_eq!((refused.status.code(), text(&refused.stderr).lines().count()), (Some(2), 1), "{arguments:?}");
        assert!(text(&refused.stderr).contains(part), "{arguments:?}: {}", text(&refused.stderr));
    }
}
