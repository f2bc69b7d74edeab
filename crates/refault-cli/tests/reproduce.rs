//! `refault reproduce`: names; the experiments themselves are tested where they live.

use assert_cmd::Command;

fn refault(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_refault")).args(arguments).output().expect("the binary runs")
}

#[test]
fn experiments_are_listed() {
    let output = refault(&["reproduce", "list"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("freepool"));
}

/// Of experiments without kernels beside them `pictures.rs` says the same.
#[test]
fn a_table_fits_a_wide_terminal_and_begins_with_the_verdict() {
    let directory = tempfile::tempdir().expect("a directory");
    let report = directory.path().join("report.html").display().to_string();
    let output = refault(&["reproduce", "mglru-fio", "--small", "--report", &report]);
    let (said, table) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{said}");
    let long: Vec<&str> = table.lines().filter(|line| line.chars().count() > 120).collect();
    assert!(long.is_empty(), "{long:#?}");
    assert!(said.lines().next().is_some_and(|line| line.contains("running mglru-fio")), "{said}");
    assert!(table.contains("asked of kernels"), "{table}");
    let report = std::fs::read_to_string(&report).expect("a report");
    assert!(report.contains("Asked of real kernels") && report.contains("<td>7.2</td>"));
}

#[test]
fn unknown_experiments_are_refused_in_one_line() {
    let output = refault(&["reproduce", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.contains("'nothing'") && line.contains("freepool") && line.lines().count() == 1, "{line}");
}

#[test]
fn published_figures_stand_beside_kernels_and_the_model() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let report = directory.path().join("report.html").display().to_string();
    let of = |more: &[&str]| {
        let output =
            refault(&[&["reproduce", "mglru-fio", "--small", "--force", "--report", &report][..], more].concat());
        String::from_utf8(output.stdout).expect("text")
    };
    let json: serde_json::Value = serde_json::from_str(&of(&["--format", "json"])).expect("JSON");
    let kernels = json["kernels"].as_array().expect("rows of kernels");
    assert_eq!(kernels.len(), 9, "three figures, three kernels");
    for row in kernels {
        // The document, kernels and model agree: what was moved is moved no more.
        let is_counter = row["unit"] == "pages";
        assert_eq!(row["published"]["after"].as_f64(), is_counter.then_some(0.0), "{row}");
        let part =
            |of: &str| row[of]["after"].as_f64().expect("a count") / row[of]["before"].as_f64().expect("a count");
        let most = if is_counter { 0.001 } else { 0.01 };
        assert!(part("values") < most && part("model") < most, "{row}");
    }
    let csv = of(&["--format", "csv"]);
    assert_eq!(csv.lines().filter(|line| line.contains(",7.2,")).count(), 3, "{csv}");
}

/// The list: a line per figure, of which each that is not judged says why, and no line is too wide.
#[test]
fn published_figures_are_listed_with_kernel_model_verdict_and_belief() {
    let of = |more: &[&str]| {
        let output = refault(&[&["reproduce", "published"][..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let table = of(&[]);
    let long: Vec<&str> = table.lines().filter(|line| line.chars().count() > 120).collect();
    assert!(long.is_empty(), "{long:#?}");
    let json: serde_json::Value = serde_json::from_str(&of(&["--format", "json"])).expect("JSON");
    let (figures, score) = (json["figures"].as_array().expect("figures"), &json["score"]);
    assert!(figures.len() > 300 && figures.iter().all(|figure| figure["belief"].is_string()), "{}", figures.len());
    for figure in figures {
        assert_eq!(figure["verdict"].is_null(), figure["reason"].is_string(), "{figure}");
    }
    // The score at the top is what the figures come to, each once.
    let judged = |verdict: &str| {
        figures.iter().filter(|figure| figure["counts"] == true && figure["verdict"] == verdict).count() as u64
    };
    assert_eq!(score["agree"].as_u64(), Some(judged("agrees")));
    assert_eq!(score["judged"].as_u64(), Some(judged("agrees") + judged("differs")));
    assert!(table.starts_with(&format!("{} of {} published figures", score["agree"], score["judged"])), "{table}");
    // A kernel and the model stand beside what it speaks to.
    let moved = figures.iter().find(|figure| figure["metric"] == "pgactivate").expect("a counter");
    assert_eq!(moved["kernels"].as_array().map(Vec::len), Some(3), "{moved}");
    assert!(moved["model"]["values"]["before"].as_f64() > Some(1000.0), "{moved}");
    let csv = of(&["--format", "csv"]);
    let mut records = csv::Reader::from_reader(csv.as_bytes());
    let kernels: usize = figures.iter().map(|figure| figure["kernels"].as_array().expect("kernels").len().max(1)).sum();
    assert_eq!(records.records().filter(|record| record.is_ok()).count(), kernels);
}

#[test]
fn the_list_runs_nothing_and_says_so() {
    let output = refault(&["reproduce", "published", "--null"]);
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.contains("runs nothing") && line.lines().count() == 1, "{line}");
}
