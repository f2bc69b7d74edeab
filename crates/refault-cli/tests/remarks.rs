//! What commands say of a trace that they had to guess about, and that sizes count.

use crate::common::{refault, stdout, text};
use serde_json::Value;
use tempfile::TempDir;

/// A file of this text, by its path.
fn file(directory: &TempDir, name: &str, contents: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, contents).expect("the temporary directory can be written");
    path.to_str().expect("its path is UTF-8").to_owned()
}

/// Three objects of 1 MiB, asked for in turn.
fn large_objects(directory: &TempDir) -> String {
    let rows: String = (0..30).map(|n| format!("{n},{},1048576\n", n % 3)).collect();
    file(directory, "large.csv", &format!("time,object,size\n{rows}"))
}

#[test]
fn sizes_of_objects_count_unless_one_page_each_is_asked_for() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = large_objects(&directory);
    let compare = ["compare", &path, "--policy", "lru", "--memory"];
    let sized = stdout(&[&compare[..], &["2M"]].concat());
    assert!(sized.contains("100.00") && sized.contains("mean 1048576 bytes"), "{sized}");
    assert!(sized.contains("(3 MiB)"), "{sized}");
    let each = stdout(&[&compare[..], &["2p,3p", "--objects-one-page-each"]].concat());
    assert!(each.contains("(3 objects)") && each.contains("2 objects"), "{each}");
    assert!(each.contains("one page each, whatever their size") && !each.contains("KiB"), "{each}");
    let mrc = stdout(&["mrc", &path]);
    assert!(mrc.contains("3 MiB gives ≤ 1 %") && !mrc.contains("12 KiB"), "{mrc}");
    let mrc = stdout(&["mrc", &path, "--objects-one-page-each"]);
    assert!(mrc.contains("3 objects gives ≤ 1 %") && !mrc.contains("KiB"), "{mrc}");
    // Without sizes there is no choice, which is said.
    let keys = file(&directory, "a.keys", "a\nb\na\n");
    let each = stdout(&["mrc", &keys]);
    assert!(each.contains("because no sizes are read") && !each.contains("KiB"), "{each}");
}

#[test]
fn every_command_says_what_it_guessed_and_strict_refuses() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = file(&directory, "a.csv", "page,op,latency\n1,r,5\n2,delete,5\n1,w,5\n3,r,1\n");
    let out = directory.path().join("out.rft");
    let out = out.to_str().expect("its path is UTF-8");
    let commands: [&[&str]; 5] = [
        &["compare", &path, "--policy", "lru", "--memory", "1p"],
        &["mrc", &path],
        &["trace", "info", &path],
        &["trace", "convert", &path, out],
        &["pool", "plan", &path, "--hosts", "1", "--memory", "16K"],
    ];
    for command in commands {
        let output = refault(command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {said}");
        let mut lines = said.lines().filter(|line| line.starts_with("refault: a: "));
        assert!(lines.any(|line| line.contains("columns that are not read: latency")), "{command:?}: {said}");
        assert!(said.contains("refault: a: 1 deletion is left out"), "{command:?}: {said}");
        let _ = std::fs::remove_file(out);
        let strict = refault(&[command, &["--strict"]].concat());
        let said = text(&strict.stderr);
        assert_eq!(strict.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains("refused by --strict: columns that are not read"), "{command:?}: {said}");
        assert!(strict.stdout.is_empty() && !std::path::Path::new(out).exists(), "{command:?}");
    }
    let good = file(&directory, "good.csv", "page,op\n1,r\n2,w\n");
    assert_eq!(refault(&["mrc", &good, "--strict"]).status.code(), Some(0));
}

#[test]
fn a_scenario_counts_sizes_of_its_traces_and_says_what_was_assumed() {
    let directory = TempDir::new().expect("a temporary directory");
    let trace = large_objects(&directory);
    let machine = format!(
        "[machine]\ncpus = 1\nmemory = \"2M\"\nfile_device = \"nvme\"\npolicy = \"lru\"\n[[file]]\nname = \"f\"\nsize = \"16M\"\n\
         [[task]]\nname = \"t\"\n[[task.workload]]\ntrace = \"{trace}\"\nfile = \"f\"\n"
    );
    let path = file(&directory, "machine.toml", &machine);
    let output = refault(&["scenario", &path, "--format", "json"]);
    let said = text(&output.stderr);
    assert!(said.contains("large: 30 accesses are taken for reads") && said.contains("mean 1048576 bytes"), "{said}");
    assert!(text(&output.stdout).contains("7680"), "256 pages of each of 30 accesses: {}", text(&output.stdout));
    for command in [&["scenario", &path, "--strict"][..], &["scenario", "check", &path, "--strict"]] {
        let strict = refault(command);
        assert_eq!(strict.status.code(), Some(2));
        assert!(text(&strict.stderr).contains("refused by --strict"), "{}", text(&strict.stderr));
    }
}

/// A pipe can be read once. To look at it before its task does would wait for ever.
#[test]
fn a_scenario_replays_a_pipe_and_says_that_it_has_not_looked() {
    let directory = TempDir::new().expect("a temporary directory");
    let pipe = directory.path().join("pipe.text");
    let pipe = pipe.to_str().expect("its path is UTF-8");
    let made = std::process::Command::new("mkfifo").arg(pipe).status().expect("mkfifo starts");
    assert!(made.success());
    let machine = format!(
        "[machine]\ncpus = 1\nmemory = \"2M\"\npolicy = \"lru\"\n[[task]]\nname = \"t\"\nmemory = \"4M\"\n\
         [[task.workload]]\ntrace = \"{pipe}\"\n"
    );
    let path = file(&directory, "machine.toml", &machine);
    let writes = {
        let pipe = pipe.to_owned();
        std::thread::spawn(move || std::fs::write(pipe, "1\n2\n1\n"))
    };
    let output = refault(&["scenario", &path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no file, so nothing is said"), "{}", text(&output.stderr));
    writes.join().expect("it ends").expect("the pipe is read");
    let strict = refault(&["scenario", &path, "--strict"]);
    assert_eq!(strict.status.code(), Some(2));
    assert!(text(&strict.stderr).contains("cannot read trace twice"), "{}", text(&strict.stderr));
}

#[test]
fn a_conversion_says_what_its_format_has_no_place_for() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = file(&directory, "a.csv", "time_s,op,object,size\n1,get,7,5000\n2,set,8,5000\n");
    for (name, lost) in [
        ("o.csv", None),
        ("o.rft", Some("sizes of 2 accesses:")),
        ("o.u64", Some("sizes of 2 accesses, times of 2 accesses:")),
        ("o.oracleGeneral", Some("writes of 1 accesses:")),
    ] {
        let out = directory.path().join(name);
        let out = out.to_str().expect("its path is UTF-8");
        let output = refault(&["trace", "convert", "--strict", &path, out]);
        assert_eq!(output.status.code(), Some(if lost.is_some() { 2 } else { 0 }), "{name}");
        assert_eq!(std::path::Path::new(out).exists(), lost.is_none(), "{name}");
        let said = text(&refault(&["trace", "convert", "--force", &path, out]).stderr);
        assert_eq!(lost.is_some_and(|lost| said.contains(lost)), lost.is_some(), "{name}: {said}");
        assert_eq!(said.lines().count(), 1 + usize::from(lost.is_some()), "{name}: {said}");
    }
}

#[test]
fn remarks_are_fields_of_json_and_lines_of_the_report() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = file(&directory, "a.csv", "object,size,op\n1,5000,get\n2,100,delete\n1,5000,set\n");
    let report = directory.path().join("r.html");
    let report = report.to_str().expect("its path is UTF-8");
    for command in [&["compare", "--policy", "lru", "--memory", "1p"][..], &["mrc"]] {
        let json = stdout(&[command, &[&path, "--format", "json", "--report", report]].concat());
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["traces"][0]["trace"], "a", "{command:?}");
        assert_eq!(json["traces"][0]["remarks"][0]["code"], "deletions", "{command:?}");
        assert_eq!(json["traces"][0]["remarks"][0]["count"], 1, "{command:?}");
        assert_eq!(json["traces"][0]["objects"]["sized"], true, "{command:?}");
        let html = std::fs::read_to_string(report).expect("a report");
        assert!(html.contains("1 deletion is left out") && html.contains("mean 5000 bytes"), "{command:?}");
        std::fs::remove_file(report).expect("ours");
    }
    let info = stdout(&["trace", "info", &path, "--format", "json"]);
    let info: Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!(info["remarks"][0]["code"], "deletions");
    assert_eq!(info["accesses"], 2, "requests, not pages");
}
