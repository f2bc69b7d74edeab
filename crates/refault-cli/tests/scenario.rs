//! `refault scenario`: what it writes, and every mistake a file can hold.

use crate::common::{refault, rows, stdout, text};
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
    for word in ["pgscan", "pressure_some_us", "limit_reclaim_p99_ns", "memcg     1 /g", "events low 0"] {
        assert!(table.contains(word), "{word} is missing:\n{table}");
    }
    let csv = rows(&stdout(&["scenario", &path, "--policy", "classic,mglru", "--format", "csv"]));
    assert_eq!((csv.len(), csv[1][0].as_str(), csv[2][0].as_str()), (3, "classic", "mglru"));
    for name in ["kswapd_cpu_ns", "direct_reclaim_p99_ns"] {
        assert!(csv[0].iter().any(|column| column == name), "{name}, whatever it is");
    }
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
        ("cpus = 2", "cpus = -4", ":3: cpus: invalid value: integer `-4`, expected a whole number, 0 or more"),
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

/// A server in a group and a batch beside it, in a machine that is too small for both.
const SERVER: &str = r#"
[machine]
cpus = 2
memory = "24M"
swap = "128M"
swap_device = "zram-lz4"
[[group]]
name = "/db"
max = "8M"
[[task]]
name = "server"
count = 3
group = "/db"
accesses_per_operation = 10
[[task.workload]]
spec = "zipf:theta=0.9,pages=1024,accesses=20000,kind=anon"
[[task]]
name = "batch"
[[task.workload]]
spec = "uniform:pages=8000,accesses=40000,kind=anon"
[[event]]
at = "1ms"
group = "/db"
max = "6M"
[[event]]
at = "2ms"
group = "/db"
reclaim = "1M"
"#;

#[test]
fn tasks_and_groups_have_throughput_latencies_and_events() {
    let directory = TempDir::new().unwrap();
    let path = file(&directory, SERVER);
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (tasks, events) = (at("tasks.csv"), at("events.jsonl"));
    let json = stdout(&["scenario", &path, "--format", "json", "--tasks", &tasks, "--events", &events]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let run = &json["runs"][0];
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("{value} is not a whole number"));
    // The copies' sums are what each of them did.
    let names: Vec<_> = run["task_sets"].as_array().unwrap().iter().map(|set| set["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["server", "batch"]);
    let servers = &run["task_sets"][0];
    let each = run["tasks"].as_array().unwrap().iter().filter(|task| task["group"] == "/db");
    assert_eq!((number(&servers["operations"]), number(&servers["tasks"])), (3 * 2000, 3));
    assert_eq!(each.map(|task| number(&task["operations"])).sum::<u64>(), 3 * 2000);
    assert_eq!(run["groups"][1]["performance"]["operations"], servers["operations"]);
    assert_eq!(run["groups"][0]["performance"]["operations"], run["operations"]);
    // An operation is ten accesses of 100 ns at least; percentiles ascend, and the longest waited for a fault.
    let latency = &servers["latency"];
    let percentiles = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"].map(|name| number(&latency[name]));
    assert!(percentiles.is_sorted() && percentiles[0] >= 1000, "{percentiles:?}");
    assert!(number(&run["task_sets"][1]["latency"]["p50_ns"]) >= 100);
    assert!(percentiles[4] > 2 * percentiles[0], "{percentiles:?}");
    // The latencies of a closed loop sum up to its time: their mean, estimated from below by the median, cannot exceed
    // it.
    let span = number(&servers["span_ns"]);
    assert!(percentiles[0] * number(&servers["operations"]) / 3 <= span, "{percentiles:?} {span}");
    let rows = rows(&std::fs::read_to_string(&tasks).unwrap());
    let of: Vec<_> = rows[1..].iter().map(|row| format!("{} {}", row[3], row[4])).collect();
    let expected =
        ["task server-0", "task server-1", "task server-2", "task batch", "copies server", "group /", "group /db"];
    assert_eq!(of, expected);
    let lines = std::fs::read_to_string(&events).unwrap();
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.is_sorted_by_key(|line| number(&line["at_ns"])));
    let of_kind = |kind: &str| lines.iter().filter(|line| line["event"] == kind).collect::<Vec<_>>();
    assert_eq!((of_kind("started").len(), of_kind("finished").len()), (4, 4));
    assert_eq!(
        (of_kind("limit_set")[0]["pages"].as_u64(), number(&of_kind("limit_set")[0]["at_ns"])),
        (Some(1536), 1_000_000)
    );
    let reclaimed = of_kind("reclaimed")[0];
    assert_eq!((number(&reclaimed["asked_pages"]), reclaimed["group"].as_str()), (256, Some("/db")));
    assert!(number(&reclaimed["freed_pages"]) > 0);
    assert_eq!(json["runs"][0]["events"].as_array().unwrap().len(), lines.len());
}

#[test]
fn sizes_and_seeds_run_in_one_go_and_are_what_they_are_alone() {
    let directory = TempDir::new().unwrap();
    let path = file(&directory, SERVER);
    let policies = ["--policy", "classic,mglru"];
    let all = stdout(
        &[&["scenario", &path, "--memory", "16M,24M,200%", "--seeds", "3", "--format", "csv"], &policies[..]].concat(),
    );
    let all = rows(&all);
    assert_eq!(all.len(), 1 + 2 * 3 * 3);
    let cell = |row: &[String], name: &str| row[all[0].iter().position(|column| column == name).unwrap()].clone();
    let runs: Vec<_> =
        all[1..].iter().map(|row| (cell(row, "policy"), cell(row, "memory_bytes"), cell(row, "run"))).collect();
    assert_eq!(runs[3], ("classic".into(), (24u64 << 20).to_string(), "1".into()));
    assert_eq!(runs[17], ("mglru".into(), (48u64 << 20).to_string(), "3".into()));
    // The file's own size and seeds give what they give alone.
    let alone = rows(&stdout(&["scenario", &path, "--policy", "classic", "--format", "csv"]));
    assert_eq!(all[4], alone[1]);
    // Other seeds make other accesses, and more memory fewer faults.
    assert_ne!(cell(&all[4], "pgscan"), cell(&all[5], "pgscan"));
    let swapped = |row: usize| cell(&all[row], "pswpin").parse::<u64>().unwrap();
    assert!(swapped(1) > swapped(4) && swapped(4) > swapped(7), "{} {} {}", swapped(1), swapped(4), swapped(7));
    let table = stdout(&["scenario", &path, "--memory", "50%", "--seeds", "2"]);
    for part in ["mglru, 12 MiB", "2 seeds, mean ± standard deviation", " ± ", "counters are 0 everywhere", "/db"] {
        assert!(table.contains(part), "{part} is missing:\n{table}");
    }
    let trace = directory.path().join("t.u64").to_str().unwrap().to_string();
    assert_eq!(refault(&["trace", "generate", "uniform:pages=500,accesses=2000", &trace]).status.code(), Some(0));
    let fixed = format!(
        "[machine]\nmemory = \"16M\"\n[[task]]\nname = \"t\"\nmemory = \"4M\"\n[[task.workload]]\ntrace = {trace:?}\nkind = \"anon\"\n"
    );
    let path = file(&directory, &fixed);
    for (arguments, part) in [
        (vec!["--seeds", "2"], "traces hold no random numbers"),
        (vec!["--memory", "16M,100%"], "named twice"),
        (vec!["--memory", "64K"], "smaller than"),
    ] {
        let refused = refault(&[&["scenario", &path], &arguments[..]].concat());
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(text(&refused.stderr).contains(part), "{arguments:?}: {}", text(&refused.stderr));
    }
}
