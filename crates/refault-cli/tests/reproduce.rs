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

#[test]
fn a_table_fits_a_wide_terminal_and_begins_with_the_verdict() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["freepool", "mglru-fio", "mglru-v1"] {
        let report = directory.path().join(name).display().to_string() + ".html";
        let output = refault(&["reproduce", name, "--small", "--report", &report]);
        let (said, table) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{said}");
        let long: Vec<&str> = table.lines().filter(|line| line.chars().count() > 120).collect();
        assert!(long.is_empty(), "{name}: {long:#?}");
        assert!(said.lines().next().is_some_and(|line| line.contains(&format!("running {name}"))), "{said}");
        if name == "mglru-fio" {
            assert!(table.contains("asked of kernels"), "{table}");
            let report = std::fs::read_to_string(&report).expect("a report");
            assert!(report.contains("Asked of real kernels") && report.contains("<td>7.2</td>"));
        }
    }
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
    assert_eq!(kernels.len(), 6, "two figures, three kernels");
    for row in kernels {
        // The document, kernels and model agree: what was moved is moved no more.
        assert_eq!(row["published"]["after"], 0.0, "{row}");
        let part =
            |of: &str| row[of]["after"].as_f64().expect("a count") / row[of]["before"].as_f64().expect("a count");
        assert!(part("values") < 0.001 && part("model") < 0.001, "{row}");
    }
    let csv = of(&["--format", "csv"]);
    assert_eq!(csv.lines().filter(|line| line.contains(",7.2,")).count(), 2, "{csv}");
}
