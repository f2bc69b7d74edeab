//! `refault monitor`: tables, pictures, schemes, and what is refused.

use assert_cmd::Command;

fn refault(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_refault")).args(arguments).output().expect("the binary runs")
}

/// A small pattern in a directory that goes away with the test.
fn pattern() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.masim");
    let text =
        "cold, 8388608\nhot, 1048576\n\nfill\n500\ncold, 0, 4096, 8\nhot, 0, 4096, 1\n\nrun\n6000\nhot, 1, 0, 1\n";
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (directory, path)
}

#[test]
fn accuracy_is_a_table_with_a_map_and_a_picture() {
    let (directory, pattern) = pattern();
    let picture = directory.path().join("map.svg").display().to_string();
    let arguments =
        ["monitor", "--pattern", &pattern, "--speed", "200000", "--max-regions", "100", "--picture", &picture];
    let output = refault(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("events found %") && table.contains("truth"), "{table}");
    assert!(std::fs::read_to_string(picture).unwrap().contains("<svg"));
    let json = refault(&[
        "monitor",
        "--pattern",
        &pattern,
        "--speed",
        "200000",
        "--max-regions",
        "50,100",
        "--format",
        "json",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert!(runs[1]["events_found"].as_f64().unwrap() > 0.5 && runs[1]["checks"].as_u64().unwrap() > 0);
}

#[test]
fn schemes_act_and_report_in_the_tools_tree() {
    let (_directory, pattern) = pattern();
    let arguments = [
        "monitor",
        "--pattern",
        &pattern,
        "--speed",
        "200000",
        "--scheme",
        "pageout nr_accesses=0 age=1s..",
        "--format",
        "json",
    ];
    let output = refault(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &json["runs"][0];
    let applied = run["damo"]["kdamonds"][0]["contexts"][0]["schemes"][0]["stats"]["sz_applied"].as_u64().unwrap();
    assert!(applied > 4 << 20, "{run}");
    assert!(run["resident_pages"].as_u64().unwrap() < 1500, "{run}");
}

#[test]
fn bad_requests_are_one_line_and_exit_2() {
    let (directory, pattern) = pattern();
    let config = directory.path().join("c.toml").display().to_string();
    std::fs::write(&config, "nr_regions = { min = 50, max = 20 }\n").unwrap();
    for (arguments, words) in [
        (vec!["--config", &config], "nr_regions.min: is above max_nr_regions"),
        (vec!["--config", "/nowhere/c.toml"], "/nowhere/c.toml"),
        (vec!["--set", "intervals.sample_us=1 s"], "intervals.sample_us: is above aggr_interval"),
        (vec!["--scheme", "dance"], "is not an action"),
        (vec!["--scheme", "lru_prio", "--policy", "fifo"], "needs a policy with lists to sort"),
        (vec!["--scheme", "stat", "--policy", "opt"], "must know all accesses to come"),
        (vec!["--scheme", "stat", "--max-regions", "10"], "--max-regions with schemes"),
        (vec!["--max-regions", "2"], "--max-regions 2"),
        (vec!["--pattern", "/nowhere/p.masim"], "/nowhere/p.masim"),
        (vec!["--memory", "many"], "many"),
    ] {
        let mut all = vec!["monitor"];
        if !arguments.contains(&"--pattern") {
            all.extend(["--pattern", &pattern]);
        }
        all.extend(&arguments);
        let output = refault(&all);
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
        assert!(line.contains(words) && line.lines().count() == 1, "{arguments:?}: {line}");
    }
}
