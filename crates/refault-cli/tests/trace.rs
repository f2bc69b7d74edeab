//! `refault trace`, `workloads`, `policies`, `completions` and `man` from outside.

use crate::common::{refault, rows, stdout, text, trace};
use serde_json::Value;
use tempfile::TempDir;

const WORKLOAD: &str = "mixed:apages=512,fpages=256,accesses=5000,writes=0.25";

#[test]
fn a_trace_survives_every_format() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("its path is UTF-8").to_string();
    let first = path("a.u64");
    stdout(&["trace", "generate", WORKLOAD, &first]);
    let mut from = first.clone();
    for name in ["b.rft", "c.u64.zst", "d.u64.gz", "e.u64"] {
        stdout(&["trace", "convert", &from, &path(name)]);
        from = path(name);
    }
    assert_eq!(std::fs::read(&first).expect("the first"), std::fs::read(&from).expect("the last"));
    let run = |source: &[&str]| {
        let common = ["--policy", "mglru,opt", "--memory", "20%", "--format", "csv"];
        let rows = rows(&stdout(&[&["compare"], source, &common].concat()));
        rows[1..].iter().map(|row| row[2..30].to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(run(&["--workload", WORKLOAD]), run(&["--trace", &path("b.rft")]));
}

#[test]
fn info_counts_what_is_there() {
    let directory = TempDir::new().expect("a temporary directory");
    let write = 1u64 << 56;
    let mapped = 2u64 << 57;
    let path = trace(&directory, "few.u64", [1, 2 | write, 1, 9 | mapped, 2]);
    let info: Value = serde_json::from_str(&stdout(&["trace", "info", "--format", "json", &path])).expect("JSON");
    assert_eq!((&info["accesses"], &info["distinct_anon_pages"]), (&5.into(), &2.into()));
    assert_eq!((&info["distinct_file_pages"], &info["writes"]), (&1.into(), &1.into()));
    assert_eq!((&info["first_accesses"], &info["kinds"][2]["reads"]), (&3.into(), &1.into()));
    // Page 1 comes back after page 2, page 2 after pages 1 and 9.
    let counts: Vec<u64> = info["reuse_distances"]
        .as_array()
        .expect("buckets")
        .iter()
        .map(|bucket| bucket["accesses"].as_u64().expect("a count"))
        .collect();
    assert_eq!(counts, [0, 1, 1]);
    let table = stdout(&["trace", "info", &path]);
    for part in ["accesses        5", "3 (12 KiB): 2 anonymous, 1 file", "first access  60.00 %", "Heat map", "│"] {
        assert!(table.contains(part), "'{part}' is not in\n{table}");
    }
    let report = directory.path().join("info.html");
    stdout(&["trace", "info", &path, "--report", report.to_str().expect("its path is UTF-8")]);
    let report = std::fs::read_to_string(report).expect("a report");
    assert_eq!(report.matches("role=\"img\"").count(), report.matches("The figures as a table").count());
}

#[test]
fn csv_columns_can_be_named() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("odd.csv");
    std::fs::write(&path, "when,where,what\n1,8,r\n2,16,w\n3,8,r\n").expect("the temporary directory can be written");
    let path = path.to_str().expect("its path is UTF-8");
    let info = stdout(&["trace", "info", "--format", "json", "--columns", "page=where,operation=what", path]);
    let info: Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!((&info["accesses"], &info["distinct_pages"], &info["writes"]), (&3.into(), &2.into(), &1.into()));
}

#[test]
fn unconvertible_input_is_refused_in_one_line() {
    let directory = TempDir::new().expect("a temporary directory");
    let good = trace(&directory, "good.u64", [1, 2, 3]);
    let torn = directory.path().join("torn.u64");
    std::fs::write(&torn, [0; 12]).expect("the temporary directory can be written");
    let torn = torn.to_str().expect("its path is UTF-8");
    let out = directory.path().join("out.u64");
    let out = out.to_str().expect("its path is UTF-8");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["convert", &good, "out.parquet"], 2, "name it .rft"),
        (&["convert", &good, &good], 2, "same file"),
        (&["convert", torn, out], 2, "torn.u64"),
        (&["convert", &good, "/nowhere/at-all/out.u64"], 1, "/nowhere/at-all/out.u64"),
        (&["generate", "nope", out], 2, "no workload is called 'nope'"),
        (&["info", torn], 2, "torn.u64"),
        (&["info", "/nowhere/at-all.u64"], 2, "no such file"),
    ];
    for (arguments, code, expected) in cases {
        let output = refault(&[&["trace"], *arguments].concat());
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {line}");
        assert!(line.starts_with("refault: ") && line.lines().count() == 1 && line.contains(expected), "{line}");
    }
    assert!(!std::path::Path::new(out).exists(), "half a trace must not stay");
}

#[test]
fn everything_listed_can_be_run() {
    let workloads: Value = serde_json::from_str(&stdout(&["workloads", "--format", "json"])).expect("JSON");
    let mut arguments = vec!["compare".to_string()];
    for workload in workloads["workloads"].as_array().expect("workloads") {
        let name = workload["name"].as_str().expect("a name");
        // fio has words of its own.
        let length = if name == "fio" { "number_ios=500" } else { "accesses=500" };
        arguments.extend(["--workload".to_string(), format!("{name}:{length}")]);
    }
    let policies: Value = serde_json::from_str(&stdout(&["policies", "--format", "json"])).expect("JSON");
    let names: Vec<&str> = policies["policies"]
        .as_array()
        .expect("policies")
        .iter()
        .map(|p| p["name"].as_str().expect("a name"))
        .collect();
    arguments.extend(["--policy", &names.join(","), "--memory", "10%", "--format", "csv"].map(str::to_string));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runs = rows(&stdout(&arguments)).len() - 1;
    assert_eq!(runs, names.len() * workloads["workloads"].as_array().expect("workloads").len());
}

#[test]
fn shells_and_manuals_know_every_command() {
    let directory = TempDir::new().expect("a temporary directory");
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&["completions", shell]).contains("compare"));
    }
    stdout(&["man", "--out", directory.path().to_str().expect("its path is UTF-8")]);
    for page in ["refault.1", "refault-compare.1", "refault-mrc.1", "refault-trace-info.1"] {
        assert!(directory.path().join(page).exists(), "{page}");
    }
}

#[test]
fn every_command_has_help_with_examples() {
    let commands: [&[&str]; 13] = [
        &[],
        &["compare"],
        &["mrc"],
        &["trace"],
        &["trace", "info"],
        &["trace", "convert"],
        &["trace", "generate"],
        &["reproduce"],
        &["bench"],
        &["policies"],
        &["workloads"],
        &["completions"],
        &["man"],
    ];
    for command in commands {
        let help = stdout(&[command, &["--help"]].concat());
        assert!(help.contains("Examples:") && help.contains("Usage:"), "{command:?}");
    }
}

#[test]
fn the_way_to_the_benchmarks_is_told() {
    let output = refault(&["bench", "pager", "--against", "zram"]);
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("cargo run --release -p refault-bench -- pager --against zram"), "{error}");
}

#[test]
fn a_pipe_is_read_once_or_not_at_all() {
    let bytes: Vec<u8> = [1u64, 2, 1, 3].iter().flat_map(|page| page.to_le_bytes()).collect();
    let run = |arguments: &[&str]| {
        let mut command = assert_cmd::Command::cargo_bin("refault").expect("the binary is built");
        command.args(arguments).write_stdin(bytes.clone()).output().expect("it starts")
    };
    let once = run(&["mrc", "--trace-format", "u64", "--trace", "/dev/stdin", "--memory", "2p", "--format", "csv"]);
    assert_eq!(rows(&text(&once.stdout))[1][2..7], ["2", "8192", "4", "3", "0.75"]);
    for arguments in [&["compare", "--trace", "/dev/stdin"][..], &["trace", "info", "/dev/stdin"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("store it first"), "{}", text(&output.stderr));
    }
}

#[cfg(unix)]
#[test]
fn a_file_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new().expect("a temporary directory");
    let path = trace(&directory, "secret.u64", [1, 2, 3]);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o0)).expect("it is ours");
    if std::fs::File::open(&path).is_ok() {
        refault_testing::skip("this user may read everything");
        return;
    }
    let output = refault(&["compare", "--trace", &path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("secret.u64: no permission to read it"));
}
