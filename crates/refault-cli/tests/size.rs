//! `refault size`: the question in one command, with real programs.

mod common;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{skipped, text};
use serde_json::Value;
use tempfile::TempDir;

/// Goes some times through 16 MiB, which do not compress to nothing.
const GOES_THROUGH: &str = include_str!("scripts/goes_through.py");

fn size(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_refault")).arg("size").args(arguments).output().expect("refault starts")
}

fn json(arguments: &[&str]) -> Value {
    let output = size(arguments);
    assert!(output.status.success(), "{:?}\n{}", output.status, text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn run_under(study: &Value, mib: u64) -> &Value {
    let rows = study["runs"].as_array().expect("rows");
    rows.iter().find(|row| row["memory_bytes"] == mib << 20).unwrap_or_else(|| panic!("no {mib} MiB in {study}"))
}

#[test]
fn a_program_is_recorded_predicted_and_run_in_less() {
    if skipped(&["python3"]) {
        return;
    }
    let scratch = TempDir::new().expect("a directory");
    let report = scratch.path().join("size.html");
    let study = json(&[
        "--budgets",
        "12M,64M",
        "--runs",
        "2",
        "--slowdown",
        "100%",
        "--give-up",
        "1000",
        "--format",
        "json",
        "--report",
        report.to_str().expect("text"),
        "--",
        "python3",
        "-c",
        GOES_THROUGH,
    ]);
    let (little, much) = (run_under(&study, 12), run_under(&study, 64));
    for row in [little, much] {
        assert_eq!(row["seconds"].as_array().map(Vec::len), Some(2), "{study}");
        assert!(row["seconds_sd"].is_number() && row["longer"].is_number(), "{study}");
        assert!(row["peak_bytes"].as_u64() <= row["memory_bytes"].as_u64(), "{study}");
    }
    // 16 MiB do not fit into 12, four times over, and fit into 64: measured and predicted.
    let pages = 4 << 20 >> 12;
    assert!(little["refaults"].as_f64() > Some(f64::from(pages)), "{study}");
    assert_eq!(much["refaults"], 0.0, "{study}");
    assert!(little["predicted_refaults"].as_f64() > Some(f64::from(pages)), "{study}");
    assert_eq!(much["predicted_refaults"], 0.0, "{study}");
    assert!(little["waited_seconds"].as_f64() > much["waited_seconds"].as_f64(), "{study}");
    let footprint = study["prediction"]["footprint_bytes"].as_u64().expect("a footprint");
    assert!((16 << 20..64 << 20).contains(&footprint), "{study}");
    assert!(!study["verdict"].as_array().expect("sentences").is_empty(), "{study}");
    let html = std::fs::read_to_string(&report).expect("the report");
    assert!(html.contains("How much memory does it need?") && html.contains("12 MiB"), "{html}");
}

#[test]
fn a_server_is_started_used_and_stopped() {
    if skipped(&["python3"]) {
        return;
    }
    let scratch = TempDir::new().expect("a directory");
    let socket = scratch.path().join("s");
    let socket = socket.to_str().expect("text");
    let load = format!(
        "python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{socket}'); s.send(b'x'); assert s.recv(1)\""
    );
    let study = json(&[
        "--load",
        &load,
        "--budgets",
        "8M",
        "--runs",
        "1",
        "--give-up",
        "1000",
        "--format",
        "json",
        "--",
        "python3",
        "-c",
        include_str!("scripts/answers.py"),
        socket,
    ]);
    assert!(run_under(&study, 8)["seconds_mean"].as_f64() > Some(0.0), "{study}");
    assert!(study["prediction"].is_object(), "the server was not recorded: {study}");
}

/// Listens on the socket whose path is its argument, and serves nothing.
const LISTENS: &str = include_str!("scripts/listens.py");

#[test]
fn a_load_or_a_server_that_hangs_dies_or_is_not_there_is_said_and_not_waited_for() {
    if skipped(&["python3", "sh"]) {
        return;
    }
    let scratch = TempDir::new().expect("a directory");
    let socket = scratch.path().join("s");
    let socket = socket.to_str().expect("text");
    let (waits, dies) = ("time.sleep(1000)", "time.sleep(1); print('no more', file=sys.stderr); sys.exit(7)");
    let cases: [(&[&str], &str, &str); 8] = [
        (&["--load", "exit 3"], waits, "the load failed with the server alone: exit 3: it ended with exit code 3"),
        (&["--load", "/no/such/load"], waits, "exit code 127: "),
        (
            &["--load", "echo busy >&2; sleep 1000", "--load-timeout", "1s"],
            waits,
            "the load did not end in 1 s: echo busy >&2; sleep 1000: it was ended; --load-timeout",
        ),
        (
            &["--load", "true", "--ready", "sleep 1000", "--ready-timeout", "500ms"],
            waits,
            "'sleep 1000' did not succeed in 500 ms",
        ),
        (&["--load", "true", "--ready", "false", "--ready-timeout", "1s"], waits, "'false' did not succeed in 1 s"),
        (
            &["--load", "true", "--ready-timeout", "2s"],
            "listening.close(); time.sleep(1000)",
            "the server does not listen after 2 s",
        ),
        (&["--load", "sleep 1000"], dies, "the server ended alone, before its load did: "),
        (&["--load", "true", "--ready", "false"], "sys.exit(0)", "(tell it to stay in the foreground)"),
    ];
    for (options, then, words) in cases {
        let begin = Instant::now();
        let output = size(&[options, &["--budgets", "8M", "--", "python3", "-c", LISTENS, socket, then]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{options:?}: {said}");
        assert!(said.contains(words), "{options:?}: {said}");
        assert!(begin.elapsed() < Duration::from_secs(25), "{options:?} took {:?}", begin.elapsed());
    }
    // What was started has ended: a load that hangs, its server, and a check.
    let left = Command::new("pgrep").args(["-f", socket]).output().expect("pgrep starts");
    assert_eq!(text(&left.stdout), "");
    for wrong in ["0s", "5", "ten", "999d"] {
        let output = size(&["--load", "true", "--load-timeout", wrong, "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", text(&output.stderr));
    }
}

#[test]
fn a_budget_under_which_a_server_is_never_ready_is_too_little() {
    if skipped(&["python3"]) {
        return;
    }
    let scratch = TempDir::new().expect("a directory");
    let socket = scratch.path().join("s");
    let socket = socket.to_str().expect("text");
    // It is ready if it was not given 9 MiB.
    let ready = format!("test -S {socket} && ! pgrep -f '[m]emory 9437184 .*{socket}'");
    let options =
        ["--load", "sleep 0.1", "--ready", &ready, "--ready-timeout", "3s", "--runs", "1", "--format", "json"];
    let server = ["--budgets", "9M,32M", "--", "python3", "-c", LISTENS, socket, "time.sleep(1000)"];
    let output = size(&[&options[..], &server[..]].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("under 9 MiB '"), "{said}");
    let study: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(run_under(&study, 9)["given_up"], true, "{study}");
    assert_eq!(run_under(&study, 32)["given_up"], false, "{study}");
}

#[test]
fn a_long_program_is_told_from_a_server_without_a_load() {
    if skipped(&["python3"]) {
        return;
    }
    let scratch = TempDir::new().expect("a directory");
    let socket = scratch.path().join("s");
    let socket = socket.to_str().expect("text");
    let output = size(&["--budgets", "8M", "--", "python3", "-c", LISTENS, socket, "time.sleep(11); sys.exit(3)"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("listens on a socket: if it is a server, --load"), "{said}");
}

/// A quick answer in which a budget was tried, what was said meanwhile, and the seconds that it took. A machine that is
/// busy in between leaves no time for one: the command says so, and is asked again.
fn quick(arguments: &[&str]) -> (Value, String, f64) {
    const ATTEMPTS: usize = 8;
    let mut said = String::new();
    for _ in 0..ATTEMPTS {
        let begun = Instant::now();
        let output = size(arguments);
        let took = begun.elapsed().as_secs_f64();
        said = text(&output.stderr);
        if !output.status.success() {
            assert!(said.contains("no quick answer: "), "{said}");
            continue;
        }
        let study: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        if study["runs"].as_array().is_some_and(|runs| runs.iter().any(|run| run["memory"] == "budget")) {
            return (study, said, took);
        }
        assert!(study["verdict"].to_string().contains("there was no time left"), "{study}");
    }
    panic!("{ATTEMPTS} attempts without a budget: {said}");
}

#[test]
fn a_quick_answer_takes_a_few_runs_and_says_each_as_it_is_done() {
    if skipped(&["python3"]) {
        return;
    }
    let (study, said, _) =
        quick(&["--slowdown", "50%", "--give-up", "1000", "--format", "json", "--", "python3", "-c", GOES_THROUGH]);
    assert_eq!((&study["thorough"], &study["measurable"]), (&Value::Bool(false), &Value::Bool(true)), "{study}");
    // How long it takes is said before anything is run, and why; then a line for each run.
    let lines: Vec<&str> = said.lines().map(|line| line.trim_start_matches("refault: ")).collect();
    assert!(
        lines[0].contains(": 3 times as long as it takes alone, or 3 s;") && lines[0].contains("--thorough"),
        "{said}"
    );
    let runs: Vec<&&str> = lines
        .iter()
        .filter(|line| {
            ["alone: ", "with ample memory, and looks at its pages: ", "under "]
                .iter()
                .any(|word| line.starts_with(word))
        })
        .collect();
    assert!((2..=4).contains(&runs.len()), "{said}");
    // The loop goes four times through 16 MiB: less is not called enough.
    assert!(study["needs_bytes"].as_u64().is_none_or(|needs| needs >= 16 << 20), "{study}");
    let mut verdict = study["verdict"].as_array().expect("sentences").iter().filter_map(Value::as_str);
    assert!(verdict.next_back().is_some_and(|last| last.contains("--thorough")), "{study}");
}

/// Goes through 16 MiB for two seconds, whatever it has.
const WORKS: &str = include_str!("scripts/works.py");

#[test]
fn a_quick_answer_takes_three_times_as_long_as_the_program() {
    if skipped(&["python3"]) {
        return;
    }
    let (study, _, took) = quick(&["--format", "json", "--", "python3", "-c", WORKS, "2"]);
    let runs = study["runs"].as_array().expect("rows");
    let alone = runs[0]["seconds_mean"].as_f64().expect("seconds");
    assert!(alone > 2.0 && took < 3.0 * alone + 1.0, "{took} s of {alone}: {study}");
    // The run with ample memory has seen that all of the 16 MiB comes back; nothing is said to need more than it has had.
    let predicted = study["predicted_needs_bytes"].as_u64().expect("a prediction");
    assert!(predicted >= 16 << 20 && Some(predicted) <= runs[1]["peak_bytes"].as_u64(), "{study}");
    // What had no time to end is judged by what it waited, not as one that took too long.
    let last = runs.last().expect("a budget");
    assert_eq!(
        (&last["memory"], &last["unfinished"], &last["given_up"]),
        (&"budget".into(), &true.into(), &false.into()),
        "{study}"
    );
    assert!(last["refaults"].is_number() && last["longer"].as_f64() > Some(-0.5), "{study}");
}

#[test]
fn what_is_too_short_is_not_judged() {
    if skipped(&["true"]) {
        return;
    }
    let study = json(&["--budgets", "8M", "--runs", "2", "--format", "json", "--", "true"]);
    assert_eq!(study["measurable"], false, "{study}");
    let verdict = study["verdict"].as_array().expect("sentences");
    assert!(
        verdict.len() == 1 && verdict[0].as_str().is_some_and(|line| line.contains("no budget is judged")),
        "{study}"
    );
}

#[test]
fn what_cannot_be_sized_is_said_in_a_line() {
    if skipped(&["sh"]) {
        return;
    }
    let cases: [(&[&str], i32, &str); 7] = [
        (&["--", "true"], 1, "too short to be measured: true: it takes "),
        (&["--", "/no/such/program"], 2, "no such program: /no/such/program"),
        (&["--", "sh", "-c", "echo broken >&2; exit 4"], 1, "the program failed alone: sh -c"),
        (&["--", "sort", ""], 1, "the program failed alone: sort '': it ended"),
        (&["--budgets", "4K", "--", "true"], 2, "too little"),
        (&["--budgets", "1K", "--", "true"], 2, "write 75% (of the most that the program has alone), 4096p"),
        (&["--policy", "opt", "--", "true"], 2, "opt"),
    ];
    for (arguments, code, words) in cases {
        let output = size(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        let lines = said.lines().filter(|line| line.starts_with("refault: ")).count();
        assert!(lines >= 1, "{said}");
    }
    let output = size(&["--", "sh", "-c", "echo broken >&2; exit 4"]);
    assert!(text(&output.stderr).contains("exit code 4: broken"), "{}", text(&output.stderr));
}
