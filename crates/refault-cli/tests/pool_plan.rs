//! `refault pool plan` and `refault wss` from outside.

use crate::common;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{refault, rows, stdout, text};
use serde_json::Value;

/// Two that need a loop of 2000 pages, two that are content with little: a large one and a small one fit on each host.
const JOBS: [&str; 8] = [
    "--workload",
    "cyclic:pages=2000,accesses=40000",
    "--workload",
    "cyclic:pages=2000,accesses=40001",
    "--workload",
    "cyclic:pages=400,accesses=40000",
    "--workload",
    "cyclic:pages=400,accesses=40001",
];

#[test]
fn programs_go_where_their_loops_fit() {
    let arguments = [&["pool", "plan"], &JOBS[..], &["--hosts", "2", "--memory", "2560p"]].concat();
    let json: Value = serde_json::from_str(&stdout(&[&arguments[..], &["--format", "json"]].concat())).expect("JSON");
    // Nothing is missed but the first touches.
    assert_eq!((json["misses"].as_u64(), json["proved"].as_bool()), (Some(4800), Some(true)));
    for host in json["hosts"].as_array().expect("hosts") {
        let programs = host["programs"].as_array().expect("programs");
        let pages: u64 = programs.iter().map(|program| program["memory_pages"].as_u64().expect("pages")).sum();
        assert!(programs.len() == 2 && (2400..=2560).contains(&pages), "{json}");
    }
    let table = stdout(&arguments);
    assert!(table.ends_with("No plan in parts of 80 KiB has fewer: 4,800 misses in all.\n"), "{table}");
    let csv = rows(&stdout(&[&arguments[..], &["--format", "csv"]].concat()));
    assert_eq!(csv.len(), 5);
    assert_eq!(csv[1..].iter().map(|row| row[6].parse::<u64>().expect("misses")).sum::<u64>(), 4800);
}

#[test]
fn a_plan_that_cannot_be_is_refused() {
    for (arguments, words) in [
        (&["pool", "plan", "--hosts", "2", "--memory", "1M"][..], "nothing to place"),
        (&[&["pool", "plan"], &JOBS[..], &["--hosts", "1", "--memory", "2p"]].concat(), "4 jobs do not fit on 1 hosts"),
        (&[&["pool", "plan"], &JOBS[..], &["--hosts", "0", "--memory", "1M"]].concat(), "wrong usage"),
    ] {
        let output = refault(arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn the_working_set_of_a_process_is_in_bytes_with_its_source() {
    let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().expect("it starts");
    // What it touches while it starts is not idle.
    let stat = format!("/proc/{}/stat", child.id());
    let deadline = Instant::now() + Duration::from_secs(10);
    while !std::fs::read_to_string(&stat).is_ok_and(|line| line.contains("(sleep) S")) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    let text = stdout(&["wss", "--pid", &pid, "--ages", "300ms,100ms", "--format", "json"]);
    let table = stdout(&["wss", "--pid", &pid, "--ages", "100ms"]);
    child.kill().expect("it runs");
    child.wait().expect("it ran");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let ages = json["ages"].as_array().expect("ages");
    assert_eq!((ages.len(), json["pid"].to_string()), (2, pid));
    assert!(ages[0]["age_seconds"].as_f64() < ages[1]["age_seconds"].as_f64());
    for age in ages {
        // It sleeps; of libc's pages those count as accessed that other processes use.
        let bytes = |key: &str| age[key].as_u64().expect("bytes");
        assert_eq!(bytes("idle_bytes") + bytes("working_set_bytes"), bytes("resident_bytes"));
        assert!(bytes("resident_bytes") > 0 && bytes("idle_bytes") > 0, "{json}");
    }
    assert!(json["source"].as_str().is_some_and(|source| source.contains("clear_refs")), "{json}");
    assert!(table.contains("working set") && table.contains("resident "), "{table}");
    let gone = refault(&["wss", "--pid", "4194305", "--ages", "1s"]);
    assert!(gone.status.code() == Some(2) && common::text(&gone.stderr).contains("no such process"));
}

/// Holds 48 MiB, of which it reads 12 all the time, for four seconds.
const READS_PART: &str = include_str!("scripts/reads_part.py");

#[test]
fn the_working_set_of_a_program_that_is_started_is_measured_until_it_ends() {
    if common::skipped(&["python3"]) {
        return;
    }
    let place = tempfile::TempDir::new().expect("a directory");
    let out = place.path().join("set.json");
    let path = out.to_str().expect("UTF-8");
    // A child of the program, so that children are seen; the status is the program's.
    let script = "python3 -c \"$0\" 48 12 4; exit 3";
    let output = refault(&["wss", "--ages", "600ms,150ms", "--out", path, "--", "sh", "-c", script, READS_PART]);
    let printed = text(&output.stdout);
    assert_eq!((output.status.code(), printed.as_str()), (Some(3), "ready\ndone\n"), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&std::fs::read(&out).expect("it is written")).expect("JSON");
    let ages = json["ages"].as_array().expect("ages");
    assert_eq!(ages.len(), 2, "{json}");
    assert!(json["program"].as_str().is_some_and(|words| words.starts_with("sh -c")), "{json}");
    let mib = |age: &Value, key: &str| age[key].as_u64().expect("bytes") >> 20;
    // The last look of one may come while the program ends, not of both.
    assert!(
        ages.iter().any(|age| mib(age, "resident_bytes") >= 48
            && mib(age, "working_set_bytes") >= 12
            && mib(age, "idle_bytes") >= 24),
        "{json}"
    );
    for age in ages {
        // While it starts it touches all.
        assert!(age["windows"].as_u64() > Some(1) && mib(age, "largest_working_set_bytes") >= 12, "{json}");
        assert!(mib(age, "largest_working_set_bytes") >= mib(age, "working_set_bytes"), "{json}");
    }
    let table = refault(&["wss", "--ages", "50ms", "--", "sleep", "0.3"]);
    assert!(table.status.success() && text(&table.stdout).contains("sleep 0.3: ran for "), "{}", text(&table.stdout));
    let short = refault(&["wss", "--", "true"]);
    assert!(short.status.code() == Some(1) && text(&short.stderr).contains("give shorter --ages"));
    for (arguments, words) in [
        (&["wss", "--", "no-such-program"][..], "no such program"),
        (&["wss", "--pid", "1", "--", "true"], "wrong usage"),
        (&["wss", "--ages", "10000000000000000000s", "--", "true"], "is not a time"),
    ] {
        let output = refault(arguments);
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}
