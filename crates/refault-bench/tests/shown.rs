//! The benchmarks that README and the pages of `docs` name: each is read, and those that take seconds are run.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Parser;

/// Benchmarks that run here, with the options by which they take seconds.
const RUN: [(&str, &str); 3] = [
    ("cache", "--memory-mib 4 --times 2 --seconds 0.1 --runs 1 --warm-up 0 --alone --directory"),
    ("sim", "--accesses 100000 --pages 10000 --runs 1"),
    ("pager", "--quick --runs 1 --rows uniform --against nothing"),
];

/// Pages of README and docs.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// What is named in backquotes: the words behind `refault-bench`.
fn named() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md")];
    pages(&root.join("docs"), &mut found);
    let texts = found.iter().map(|page| std::fs::read_to_string(page).expect("a page"));
    let codes = texts.flat_map(|text| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    let commands = codes.filter_map(|code| {
        code.strip_prefix("sudo ").unwrap_or(&code).strip_prefix("refault-bench ").map(str::to_owned)
    });
    commands.collect()
}

#[test]
fn benchmarks_that_pages_name_are_there() {
    let named = named();
    assert!(named.len() >= 8, "only {named:?}");
    for command in &named {
        let words = std::iter::once("refault-bench").chain(command.split_whitespace());
        refault_bench::Bench::try_parse_from(words).unwrap_or_else(|error| panic!("refault-bench {command}: {error}"));
    }
    for (command, _) in RUN {
        assert!(named.iter().any(|named| named.starts_with(command)), "no page names {command} any more");
    }
}

#[test]
fn benchmarks_that_pages_name_run() {
    if common::skipped() {
        return;
    }
    for (command, options) in RUN {
        let mut command = common::command(&[command]);
        command.args(options.split(' '));
        if options.ends_with("--directory") {
            // Not on tmpfs, which does no direct I/O.
            command.arg(env!("CARGO_TARGET_TMPDIR"));
        }
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty(), "{options} says nothing");
    }
}

#[test]
fn every_benchmark_has_help_with_examples() {
    let help = |arguments: &[&str]| {
        let output = common::command(arguments).arg("--help").output().expect("it starts");
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).expect("help is text")
    };
    let all = help(&[]);
    let listed = all.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What a description goes on with is indented further.
    let named = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = named.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 9 && all.contains("Examples:"), "{all}");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(help(&[name]).contains("Examples:"), "{name}");
    }
}

#[test]
fn wrong_usage_is_refused_in_one_line() {
    for arguments in [&["sim", "--runs", "many"][..], &["nothing"], &["here", "no-such-experiment"]] {
        let output = common::command(arguments).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.lines().count() == 1, "{arguments:?}: {error}");
        assert!(error.starts_with("refault: "), "{error}");
    }
}

#[test]
fn the_speed_table_is_printed() {
    let arguments = ["sim", "--accesses", "20000", "--pages", "1024", "--runs", "1", "--format", "csv"];
    let output = common::command(&arguments).output().expect("it starts");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(&output.stdout[..]);
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("well-formed")).collect();
    assert!(rows.len() > 8 && &rows[1][0] == "clock" && &rows[1][4] == "100000000", "{rows:?}");
    assert!(rows[1..].iter().all(|row| row[3].parse::<f64>().expect("a speed") > 0.0), "{rows:?}");
}

/// `refault reproduce --here` finds the benchmarks beside it, and puts what they measure beside the model.
#[test]
fn experiments_are_measured_here() {
    let Some(refault) = common::refault() else { return };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut command = std::process::Command::new(refault);
    command.args(["reproduce", "freepool", "--small", "--here", "--format", "json"]).current_dir(directory.path());
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(result["here"].as_array().is_some_and(|rows| !rows.is_empty()), "{result}");
}
