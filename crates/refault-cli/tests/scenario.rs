//! `refault scenario`: what it writes, and every mistake a file can hold.

mod common;

use common::{refault, rows, stdout, text};
use tempfile::TempDir;

const GOOD: &str = r#"
[machine]
cpus = 2
memory = "16M"
swap = "64M"
swap_device = "zram-lz4"
file_device = "nvme"
sample = "20ms"

[[group]]
name = "/g"
max = "8M"

[[file]]
name = "data"
size = "16M"

[[task]]
name = "reader"
count = 2
group = "/g"
[[task.workload]]
spec = "zipf:theta=0.8,pages=4096,accesses=50000,kind=fd"
file = "data"

[[task]]
name = "writer"
[[task.workload]]
spec = "uniform:pages=3000,accesses=100000,writes=0.5"

[[event]]
at = "10ms"
lru_gen = "+ 1 0 max"
list = true
"#;

fn file(directory: &TempDir, text: &str) -> String {
    let path = directory.path().join("machine.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn a_run_writes_tables_csv_json_samples_and_a_report() {
    let directory = TempDir::new().unwrap();
    let path = file(&directory, GOOD);
    let samples = directory.path().join("s.csv").to_str().unwrap().to_string();
    let report = directory.path().join("r.html").to_str().unwrap().to_string();
    let table = stdout(&["scenario", &path, "--policy", "classic,mglru", "--samples", &samples, "--report", &report]);
    for word in
        ["pgscan", "pressure_some_us", "kswapd_cpu_ns", "direct_reclaim_p99_ns", "memcg     1 /g", "events low 0"]
    {
        assert!(table.contains(word), "{word} is missing:\n{table}");
    }
    let csv = rows(&stdout(&["scenario", &path, "--policy", "classic,mglru", "--format", "csv"]));
    assert_eq!((csv.len(), csv[1][0].as_str(), csv[2][0].as_str()), (3, "classic", "mglru"));
    let json: serde_json::Value = serde_json::from_str(&stdout(&["scenario", &path, "--format", "json"])).unwrap();
    let run = &json["runs"][0];
    assert_eq!((run["policy"].as_str(), run["end"].as_str()), (Some("mglru"), Some("finished")));
    assert_eq!(run["accesses"], 200_000.0);
    assert_eq!(run["groups"][1]["name"], "/g");
    assert_eq!(run["tasks"].as_array().unwrap().len(), 3);
    let samples = rows(&std::fs::read_to_string(samples).unwrap());
    assert!(samples.len() > 5 && samples[0].contains(&"some_avg10".into()) && samples[0].contains(&"usage:/g".into()));
    assert!(samples.iter().all(|row| row.len() == samples[0].len()));
    let html = std::fs::read_to_string(report).unwrap();
    assert!(html.contains("<svg") && html.contains("generation"), "pictures of generations");
    // The same file gives the same figures.
    assert_eq!(table, stdout(&["scenario", &path, "--policy", "classic,mglru"]));
}

#[test]
fn mistakes_are_refused_with_file_line_and_key() {
    let directory = TempDir::new().unwrap();
    // What is replaced by what, and what the line must say after the file's name.
    let cases = [
        ("cpus = 2", "cpus = 0", ":3: cpus: "),
        ("cpus = 2", "cpus = 5000", "cpus"),
        ("memory = \"16M\"", "memory = \"64K\"", "node"),
        ("memory = \"16M\"", "memory = 3", ":4: memory: "),
        ("memory = \"16M\"\n", "", "memory"),
        ("swap = \"64M\"", "swap = \"0M\"", ":5: swap: "),
        ("swap = \"64M\"\n", "", ":5: swap_device: "),
        ("\"zram-lz4\"", "\"tape\"", ":6: swap_device: there is no device 'tape'"),
        ("file_device = \"nvme\"", "policy = \"best\"", ":7: policy: "),
        ("file_device = \"nvme\"", "policy = \"mglru{tiers=9}\"", ":7: policy: "),
        ("file_device = \"nvme\"", "policy = \"opt\"", "opt"),
        ("file_device = \"nvme\"", "kill_trigger = \"some 1 1\"", ":7: kill_trigger: "),
        ("file_device = \"nvme\"", "watermark_scale_factor = 0", "watermark_scale_factor"),
        ("sample = \"20ms\"", "sample = \"20\"", ":8: sample: "),
        ("sample = \"20ms\"", "sample = \"1us\"", ":8: sample: "),
        ("name = \"writer\"", "name = \"writer\"\ncpu = \"0ns\"", ":28: cpu: "),
        ("max = \"8M\"", "max = \"31p\"", ":12: max: "),
        ("name = \"/g\"", "name = \"g\"", ":11: name: "),
        ("size = \"16M\"", "size = \"0M\"", ":16: size: "),
        ("size = \"16M\"", "size = \"8M\"", ":22: reader: "),
        ("count = 2", "count = 0", "count"),
        ("group = \"/g\"", "group = \"/h\"", ":21: group: there is no group '/h'"),
        ("zipf:theta=0.8", "zipf:theta=much", ":23: spec: "),
        ("zipf:theta=0.8", "zapf:theta=0.8", ":23: spec: "),
        ("file = \"data\"", "file = \"date\"", ":24: file: there is no file 'date'"),
        ("file = \"data\"\n", "", "reader"),
        ("name = \"writer\"", "name = \"writer\"\nmemory = \"100p\"", "writer"),
        ("name = \"writer\"", "name = \"writer\"\nnode = 3", "node"),
        ("name = \"writer\"", "name = \"writer\"\nrounds = 0", "writer"),
        ("name = \"writer\"", "name = \"writer\"\naccesses_per_operation = 0", "writer"),
        ("lru_gen = \"+ 1 0 max\"", "lru_gen = \"+ 1\"", ":33: lru_gen: "),
        ("lru_gen = \"+ 1 0 max\"\nlist = true", "", "event"),
        ("lru_gen = \"+ 1 0 max\"", "max = \"8M\"", "group"),
        ("at = \"10ms\"", "", "at"),
        ("[[event]]", "[[events]]", "events"),
        ("[[group]]", "[[device]]\nname = \"d\"\nbandwidth = \"0M\"\n[[group]]", ":12: bandwidth: "),
        ("[[group]]", "[costs]\nscan_page = -1\n[[group]]", ":11: scan_page: "),
        ("[machine]", "[machine", ""),
    ];
    for (what, by, expected) in cases {
        assert!(GOOD.contains(what), "{what}");
        let path = file(&directory, &GOOD.replace(what, by));
        let output = refault(&["scenario", &path]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{what} → {by}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        let after = error.split_once("machine.toml").map_or("", |(_, after)| after);
        assert!(after.starts_with(':') || error.contains("opt"), "no line: {what} → {by}: {error}");
        assert!(error.contains(expected), "{what} → {by}: expected {expected:?}: {error}");
    }
    let output = refault(&["scenario", directory.path().join("nothing.toml").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_machine_without_progress_ends_out_of_memory() {
    let directory = TempDir::new().unwrap();
    let path = file(
        &directory,
        "[machine]\nmemory = \"4M\"\n[[task]]\nname = \"hog\"\nrestart_after = \"1ms\"\n[[task.workload]]\nspec = \"cyclic:pages=4096,accesses=100000\"\n",
    );
    let output = refault(&["scenario", &path]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("out of memory") && error.contains("hog") && error.lines().count() == 1, "{error}");
    assert!(text(&output.stdout).contains("hog was killed"), "the report is written all the same");
}

#[test]
fn devices_are_listed_with_where_their_numbers_come_from() {
    let list = stdout(&["scenario", "devices"]);
    for device in ["ramdisk", "zram-lz4", "nvme", "sata-ssd", "hdd"] {
        assert!(list.contains(device));
    }
    assert!(list.contains("data sheets"));
}

#[test]
fn an_example_to_begin_with_is_sound_and_mistakes_are_found_without_a_run() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = directory.path().join("machine.toml");
    let example = stdout(&["scenario", "init"]);
    std::fs::write(&path, &example).expect("writes");
    let name = path.to_str().expect("text");
    assert!(
        stdout(&["scenario", "check", name, "--policy", "mglru,classic"])
            .contains("it can be run under mglru, classic")
    );
    let json: serde_json::Value = serde_json::from_str(&stdout(&["scenario", name, "--format", "json"])).expect("JSON");
    assert!(json.to_string().contains("pgscan"), "{json}");
    std::fs::write(&path, example.replace("memory = \"64M\"", "memory = \"much\"")).expect("writes");
    let refused = refault(&["scenario", "check", name]);
    assert_eq!((refused.status.code(), text(&refused.stderr).contains("memory")), (Some(2), true));
    for arguments in [vec!["scenario", "check"], vec!["scenario", name, name]] {
        assert_eq!(refault(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}
