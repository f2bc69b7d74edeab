//! What people type in their first hour, and what they are told: small things, one by one.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{refault, skipped, stdout, text};
use tempfile::TempDir;

/// Runs in a directory and expects this exit code; answers standard error, which holds no error number.
fn told(directory: &Path, code: i32, arguments: &[&str]) -> String {
    let output = run(directory, arguments);
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {words}");
    assert!(!words.contains("os error"), "{arguments:?}: {words}");
    words
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_refault")).args(arguments).current_dir(directory).output().expect("it starts")
}

#[test]
fn programs_that_are_none_are_told_apart() {
    if skipped(&["sh"]) {
        return;
    }
    let place = TempDir::new().expect("a directory");
    std::fs::write(place.path().join("a.py"), "print(1)\n").expect("writes");
    let cases = [
        (vec!["run", "--memory", "64M", "--", "./"], 2, "a directory, not a program"),
        (vec!["run", "--memory", "64M", "--", "./a.py"], 1, "name its interpreter before it"),
        (vec!["run", "--memory", "64M", "--", "./none"], 2, "no such program: ./none"),
        (vec!["record", "--", "true"], 1, "nothing was recorded"),
        (vec!["record", "--pid", "1"], 1, "refault monitor --pid 1"),
        (vec!["record", "--pid", "1"], 1, "idle-page tracking"),
        (vec!["record"], 2, "required arguments"),
        (vec!["top", "4000000000"], 2, "no such process: 4000000000: give the statistics file"),
        (vec!["wss", "--pid", "4000000000"], 2, "no such process"),
        (vec!["policies", "mrglu"], 2, "did you mean 'mglru'"),
        (vec!["record", "--interval", "fast", "--", "true"], 2, "'fast' must start with a number"),
        (vec!["reclaim", "--idle", "5s"], 2, "<--pid <PID>|--cgroup <PATH>>"),
        (vec!["reclaim", "--pid", "1"], 2, "<--pressure <PERCENT>|--idle <TIME>|--scheme <FILE>>"),
        (vec!["reclaim", "--pid", "1", "--idle", "-5s"], 2, "'-5s' is negative: write 1s, 500ms or 10m"),
        (vec!["reclaim", "--pid", "1", "--idle", "0s"], 2, "'0s' is not above 0: write 1s, 500ms or 10m"),
        (vec!["compare", "--workload", "uniform", "--from", "-5s"], 2, "'--from <TIME>': must not be negative"),
        (vec!["run", "--", "true"], 2, "--resident <SIZE>|--pool <NAME>>"),
        (vec!["wss"], 2, "<PROGRAM|--pid <PID>|--cgroup <PATH>>"),
        (vec!["top"], 2, "<FILE|PID|--pool <NAME>>"),
        (vec!["run", "--memory", "64M", "--stats-interval", "1us", "--", "true"], 2, "'1us' is not from 1ms to 1h"),
        (vec!["run", "--memory", "64M", "--stats-interval", "0", "--", "true"], 2, "'0' is not from 1ms to 1h"),
        (vec!["run", "--memory", "64M", "--stats-interval", "-1", "--", "true"], 2, "'-1' is not from 1ms to 1h"),
        (vec!["run", "--memory", "64M", "--slowdown", "5%", "--", "true"], 2, "without effect: --slowdown"),
        (vec!["run", "--memory", "64M,32M", "--stats", "s.jsonl", "--", "true"], 2, "not possible with several runs"),
    ];
    for (arguments, code, words) in cases {
        let said = told(place.path(), code, &arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn statistics_that_cannot_be_written_are_said_once_and_the_program_runs() {
    if skipped(&["sh"]) || !Path::new("/dev/full").exists() {
        return;
    }
    let place = TempDir::new().expect("a directory");
    let arguments = [
        "run",
        "--memory",
        "64M",
        "--stats",
        "/dev/full",
        "--stats-interval",
        "50",
        "--",
        "sh",
        "-c",
        "sleep 0.5; echo done",
    ];
    let output = run(place.path(), &arguments);
    let words = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "done\n".to_owned()), "{words}");
    assert!(words.to_lowercase().contains("no space left on device"), "{words}");
    // The shell says it, and sleep, which it executes.
    assert!(words.matches("incomplete").count() <= 2, "{words}");
}

#[test]
fn values_are_taken_as_people_write_them() {
    let zipf = "zipf:pages=100,accesses=1000";
    for memory in ["64MB", "64MiB", "64m", "64M"] {
        stdout(&["compare", "--workload", zipf, "--policy", "LRU", "--memory", memory, "--format", "CSV"]);
    }
}

#[test]
fn what_was_meant_is_named() {
    let place = TempDir::new().expect("a directory");
    let cases = [
        (vec!["mrc", "--workload", "zpif:pages=100"], "did you mean 'zipf'?"),
        (vec!["mrc", "--workload", "zipf:pagse=100"], "did you mean 'pages'?"),
        (vec!["compare", "--policy", "mglru{tier=1}"], "did you mean 'tiers'?"),
        (vec!["compare", "--policy", "mrglu"], "did you mean 'mglru'?"),
        (vec!["monitor", "--pattern", "stairs", "--max-regions", "1"], "it is below the least, 10"),
        (vec!["monitor", "--pattern", "stairs", "--scheme", "pageout nr_accesses=x"], "'x' must start with a number"),
        (vec!["scenario", "none.toml"], "No such file or directory"),
        (vec!["top", "none.jsonl"], "No such file or directory"),
        (vec!["report", "none.jsonl"], "No such file or directory"),
    ];
    for (arguments, words) in cases {
        let said = told(place.path(), 2, &arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn the_main_options_of_help_come_first() {
    for command in ["compare", "mrc"] {
        let help = stdout(&[command, "--help"]);
        let at = |word: &str| help.find(word).unwrap_or_else(|| panic!("{command}: no {word}"));
        assert!(
            ["--policy", "--memory", "--format", "--out", "--report"]
                .iter()
                .all(|option| at(option) < at("How traces are read"))
        );
    }
    let help = stdout(&["--help"]);
    assert!(help.contains("refault man --out") && help.contains("refault completions"), "{help}");
    assert!(help.find("  size").expect("size") < help.find("  run").expect("run"), "the first question comes first");
}

#[test]
fn statistics_of_an_earlier_run_outlive_one_that_cannot_begin() {
    let place = TempDir::new().expect("a directory");
    let old = "{\"pid\":1}\n";
    std::fs::write(place.path().join("run.jsonl"), old).expect("writes");
    for stats in ["run.jsonl", "new.jsonl"] {
        told(place.path(), 2, &["run", "--memory", "64M", "--stats", stats, "--", "no-such-program"]);
    }
    assert_eq!(std::fs::read_to_string(place.path().join("run.jsonl")).expect("is there"), old);
    assert!(!place.path().join("new.jsonl").exists());
}

#[test]
fn prose_below_help_is_broken_once() {
    for command in ["record", "top", "size", "run", "monitor", "wss"] {
        let help = stdout(&[command, "--help"]);
        let lines: Vec<&str> = help.lines().skip_while(|line| !line.starts_with("Examples:")).collect();
        assert!(lines.len() > 3, "{command} has examples");
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
        let broken = lines.windows(2).find(|pair| is_prose(pair[0]) && is_prose(pair[1]) && pair[0].len() < 70);
        assert_eq!(broken, None, "{command}: a line that ends before the terminal does");
    }
}

#[test]
fn what_is_named_twice_runs_once_and_what_is_no_text_has_a_line() {
    let place = TempDir::new().expect("a directory");
    let zipf = "zipf:pages=100,accesses=1000";
    let twice = ["compare", "--workload", zipf, "--policy", "lru,lru", "--memory", "10%,10%", "--format", "csv"];
    assert_eq!(stdout(&twice).lines().count(), 2);
    std::fs::write(place.path().join("m.toml"), b"[machine]\nmemory = \"\xff\"\n").expect("writes");
    for arguments in
        [vec!["scenario", "m.toml"], vec!["monitor", "--config", "m.toml"], vec!["monitor", "--pattern", "m.toml"]]
    {
        let said = told(place.path(), 2, &arguments);
        assert!(said.contains("line 2 is no UTF-8 text"), "{arguments:?}: {said}");
    }
    let said = told(place.path(), 2, &["compare", "--workload", zipf, "--seed", "-1"]);
    assert!(said.contains("whole number, 0 or more"), "{said}");
}

#[test]
fn a_report_is_not_made_of_something_else() {
    let place = TempDir::new().expect("a directory");
    std::fs::write(place.path().join("run.jsonl"), "").expect("writes");
    assert!(told(place.path(), 2, &["report", "run.jsonl"]).contains("no statistics yet"));
    let line = "{\"pid\":1,\"seconds\":1.0,\"resident_bytes\":4096,\"budget_bytes\":8192,\"last\":true}\n";
    std::fs::write(place.path().join("run.jsonl"), line).expect("writes");
    told(place.path(), 0, &["report", "run.jsonl"]);
    let page = std::fs::read_to_string(place.path().join("run.html")).expect("the page");
    assert!(page.contains("Process 1") && page.contains("4 KiB"), "{page}");
    // The statistics themselves are not written over.
    assert!(told(place.path(), 2, &["report", "run.jsonl", "--out", "run.jsonl"]).contains("same file"));
    assert_eq!(refault(&["report", "/dev/null"]).status.code(), Some(2));
}

#[test]
fn a_manual_page_is_printed_for_the_command_that_is_named() {
    assert!(stdout(&["man"]).contains(".TH refault 1"));
    let page = stdout(&["man", "trace", "info"]);
    assert!(page.contains(".TH refault-trace-info 1") && page.contains("columns"), "{page}");
    let words = told(Path::new("."), 2, &["man", "rum"]);
    assert!(words.contains("no such command: rum"), "{words}");
}
