//! `refault run --what-if`: what a running program's ghosts say of policies and sizes is what a replay of the program's
//! recording misses.

use std::path::Path;
use std::process::Output;

use refault_console::text::grouped;

use crate::common::{compiled, lines, refault, rows, skipped, stdout, text};
use serde_json::Value;
use tempfile::TempDir;

/// Arguments: MiB, rounds of accesses with pauses between.
const ROUNDS: &str = include_str!("c/rounds.c");

const MIB: u64 = 1 << 20;

#[test]
fn what_a_running_program_says_of_other_sizes_is_what_a_replay_of_its_recording_misses() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "rounds", ROUNDS);
    let place = |name: &str| directory.path().join(name).display().to_string();
    let (trace, stats, plain) = (place("app.rft"), place("run.jsonl"), place("plain.jsonl"));
    let program = ["--", &program, "64", "20"];
    let run = ["run", "--quiet", "--memory", "16M", "--stats"];
    std::thread::scope(|scope| {
        scope.spawn(|| stdout(&[&["record", "--out", &trace], &program[..]].concat()));
        stdout(&[&run[..], &[&stats, "--what-if"], &program[..]].concat());
    });

    let lines = lines(Path::new(&stats));
    let line = lines.last().expect("a line");
    let answers = line["would_miss"].as_array().expect("answers");
    let number = |answer: &Value, key: &str| answer[key].as_u64().expect("a number");
    assert_eq!(answers.len(), 9, "three policies, half, once and twice the budget");
    assert!(line["sampled_one_page_in"] == 2 && number(line, "look_ms") >= 190, "{line}");
    // It is asked while the program runs, not at its end.
    assert!(number(&lines[lines.len() / 2]["would_miss"][0], "misses") > 0);

    let memory = "2048p,4096p,8192p";
    let replayed =
        stdout(&["compare", "--trace", &trace, "--memory", memory, "--policy", "lru,clock,s3fifo", "--format", "csv"]);
    let table = rows(&replayed);
    let column = |name: &str| table[0].iter().position(|head| head == name).expect("a column");
    let counts_of = |policy: &str, bytes: u64| {
        let pages = (bytes / 4096).to_string();
        let row = table.iter().find(|row| row[column("policy")] == policy && row[column("memory_pages")] == pages);
        let row = row.expect("was compared");
        ["misses", "accesses"].map(|name| row[column(name)].parse::<u64>().expect("a count"))
    };
    let mut parts = Vec::new();
    let shown = stdout(&["top", "--once", &stats]);
    for answer in answers {
        let (policy, bytes) = (answer["policy"].as_str().expect("a name"), number(answer, "memory_bytes"));
        // Which accesses the pauses between looks fall into is not the same in two runs, and decides how many hits there
        // are: misses are compared, as parts of the same accesses.
        let [misses, accesses] = counts_of(policy, bytes);
        let part = |misses: u64| misses as f64 / accesses as f64;
        println!("{policy:7} {:3} MiB: {answer}, replayed {misses} of {accesses}", bytes / MIB);
        parts.push((policy, bytes, part(number(answer, "misses")), part(misses)));
        let row = shown.lines().find(|line| line.contains(&format!("│{policy} "))).expect("a row");
        let count = grouped(number(answer, "misses"));
        assert!(row.contains(&count), "{count} is not in\n{shown}");
    }
    let off: Vec<_> = parts.iter().filter(|(.., said, replayed)| (said - replayed).abs() > 0.01).collect();
    assert!(off.is_empty(), "{off:?}");
    // The answers differ by more than they may be off.
    let of = |index: usize| parts[index].2;
    assert!(of(0) - of(1) > 0.03 && of(1) - of(2) > 0.03 && of(0) - of(6) > 0.03, "{parts:?}");
    // No program is looked at unasked.
    stdout(&[&run[..], &[&plain, "--", "true"]].concat());
    let plain = std::fs::read_to_string(&plain).expect("statistics");
    assert!(!plain.is_empty() && !plain.contains("would_miss"), "{plain}");
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let refused = |arguments: &[&str], part: &str| {
        let Output { status, stderr, .. } =
            refault(&[&["run", "--memory", "32M"], arguments, &["--", "true"]].concat());
        assert!(status.code() == Some(2) && text(&stderr).contains(part), "{arguments:?}: {}", text(&stderr));
    };
    refused(&["--what-if"], "give --stats FILE, or --watch");
    refused(&["--what-if", "--stats", "/dev/null", "--children", "own"], "leave out --children own");
    refused(&["--what-if", "--stats", "/dev/null", "--scheme", "x.toml"], "cannot be used with");
    let several = refault(&["run", "--memory", "32M,64M", "--what-if", "--", "true"]);
    let said = text(&several.stderr);
    assert!(several.status.code() == Some(2) && said.contains("--what-if") && said.contains("one budget"), "{said}");
}
