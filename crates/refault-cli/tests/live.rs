//! What looks at live programs: doctor, statistics and top, record, and what is said without permission.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{compiled, lines, lines_by_now, refault, skipped, stdout, text, wait_for};
use serde_json::Value;
use tempfile::TempDir;

/// Arguments: MiB that are read again and again, MiB that are filled once, milliseconds.
const HOT_AND_COLD: &str = include_str!("c/hot_and_cold.c");

#[test]
fn doctor_says_what_works_and_its_exit_code_whether_run_would() {
    let output = refault(&["doctor", "--format", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let works = refault_linux::uffd::Uffd::probe().is_ok() && refault_linux::sys::can_dispatch();
    assert_eq!(json["run_works"], works, "{json}");
    assert_eq!(output.status.code(), Some(i32::from(!works)), "{}", text(&output.stderr));
    let findings = json["findings"].as_array().expect("findings");
    let names: Vec<&str> = findings.iter().filter_map(|finding| finding["name"].as_str()).collect();
    for name in [
        "kernel",
        "system calls",
        "userfaultfd",
        "accessed bits",
        "io_uring",
        "memory limit",
        "swap",
        "zram",
        "pressure (PSI)",
        "DAMON",
    ] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    if refault_pager::probe::Capabilities::probe().userfaultfd.is_ok() {
        // What is said of the kernel is what it answers.
        let offered = refault_pager::uffd::Uffd::offered_features().expect("it works").0;
        let detail = |name: &str| {
            let finding = findings.iter().find(|finding| finding["name"] == name).expect("it is there");
            finding["detail"].as_str().expect("text").to_owned()
        };
        let offers = offered & (1 << 17) != 0;
        assert_eq!(detail("accessed bits").contains("is not offered by this kernel"), !offers);
        let named = detail("userfaultfd features");
        for (bit, name) in refault_pager::uffd::feature::NAMES {
            assert_eq!(named.split([',', ' ', ';']).any(|word| word == name), offered & bit != 0, "{name}: {named}");
        }
        let measured = findings.iter().find(|finding| finding["name"] == "userfaultfd").expect("it is there");
        let fault = &measured["measured"][0];
        assert!(
            fault["value"].as_f64().is_some_and(|us| us > 0.5 && us < 50_000.0) && fault["unit"] == "µs",
            "{fault}"
        );
    }
    // What is missing comes with one command each.
    assert!(
        findings.iter().filter(|finding| finding["status"] == "missing").all(|finding| finding["improve"].is_string())
    );
    let table = refault(&["doctor", "--quick"]);
    assert!(text(&table.stdout).contains("userfaultfd"));
}

/// Runs the binary as a user without rights; `None`, with a line that says why, where that cannot be done.
fn as_nobody(arguments: &[&str]) -> Option<Output> {
    if !rustix::process::geteuid().is_root() || skipped(&["setpriv"]) {
        refault_testing::skip_required("only root can become a user without rights");
        return None;
    }
    if std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|text| text.trim() == "1") {
        refault_testing::skip("userfaultfd is permitted to everybody here");
        return None;
    }
    // The build directory may be closed to others.
    let directory = TempDir::new().expect("a directory");
    let binary = directory.path().join("refault");
    std::fs::copy(env!("CARGO_BIN_EXE_refault"), &binary).expect("copies");
    use std::os::unix::fs::PermissionsExt;
    for path in [directory.path(), &binary] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("opens");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).args(arguments);
    let output = command.current_dir("/").output().expect("setpriv starts");
    if output.status.code() == Some(127) || output.status.code() == Some(126) {
        refault_testing::skip_required(text(&output.stderr));
        return None;
    }
    Some(output)
}

#[test]
fn without_permission_the_reason_and_the_command_are_named() {
    let Some(output) = as_nobody(&["doctor", "--format", "json"]) else { return };
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // Memory taken at the system call needs no permission.
    assert_eq!((output.status.code(), &json["run_works"]), (Some(0), &Value::Bool(true)), "{json}");
    let finding =
        json["findings"].as_array().expect("findings").iter().find(|finding| finding["name"] == "userfaultfd");
    let finding = finding.expect("it is there");
    assert_eq!(finding["status"], "limited");
    assert_eq!(finding["improve"], "sudo sysctl vm.unprivileged_userfaultfd=1");
    let Some(output) = as_nobody(&["run", "--memory", "64M", "--", "true"]) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn statistics_are_complete_and_top_shows_them() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "hot", HOT_AND_COLD);
    let stats = directory.path().join("run.jsonl");
    let stats_name = stats.display().to_string();
    let arguments = [
        "run",
        "--memory",
        "24M",
        "--policy",
        "mglru{cyclic=yes}",
        "--stats",
        &stats_name,
        "--stats-interval",
        "200",
        "--",
        &program,
        "32",
        "4",
        "3000",
    ];
    assert_eq!(stdout(&arguments), "whole\n");
    let lines = lines(&stats);
    assert!(lines.len() > 5, "{}", lines.len());
    let line = &lines[lines.len() - 2];
    for key in [
        "budget_bytes",
        "resident_bytes",
        "compressed_bytes",
        "stored_bytes",
        "metadata_bytes",
        "faults",
        "fault_p50_ns",
        "fault_p99_ns",
        "fault_max_ns",
        "pgmajfault",
        "pswpin",
        "pswpout",
        "workingset_refault_anon",
        "refaults_per_second",
    ] {
        assert!(line[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {line}");
    }
    assert!(line["first_touches"].as_u64() >= Some(36 << 8) && line["lost"] == 0, "{line}");
    assert!(line["fault_p99_ns"].as_u64() >= line["fault_p50_ns"].as_u64(), "{line}");
    assert!(line["generations"].as_array().is_some_and(|all| all.len() >= 2 && all[0]["age_ms"].is_u64()), "{line}");
    // A cyclic scan of 32 MiB in 24 waits for memory nearly all the time, alone; the advice is what it needs.
    let pressure = &line["pressure"];
    let total = |kind: &str| pressure[kind]["total_us"].as_u64().expect("a total");
    assert!(total("some") > 0 && total("full") <= total("some"), "{pressure}");
    assert!(pressure["some"]["avg10"].as_f64() > Some(0.0), "{pressure}");
    let advice = line["would_stop_refaulting_at_bytes"].as_u64().expect("advice");
    assert!((30 << 20..=40 << 20).contains(&advice), "{advice}");
    let screen = stdout(&["top", "--once", &stats_name]);
    assert!(screen.contains("of 24 MiB") && screen.contains("Generations") && screen.contains("p99"), "{screen}");
    let wrong = refault(&["top", "--once", "/nowhere/run.jsonl"]);
    assert_eq!(wrong.status.code(), Some(2));
    let wrong = refault(&["top", "--once", &program]);
    assert_eq!((wrong.status.code(), text(&wrong.stderr).lines().count()), (Some(2), 1));
}

#[test]
fn the_budget_follows_its_control_file() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "hot", HOT_AND_COLD);
    let (stats, control) = (directory.path().join("run.jsonl"), directory.path().join("budget"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["run", "--memory", "64M", "--stats-interval", "100", "--stats"])
        .arg(&stats)
        .arg("--memory-control")
        .arg(&control)
        .args(["--", &program, "4", "32", "3000"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("starts");
    wait_for("statistics of the first budget", || lines_by_now(&stats) > 5);
    std::fs::write(&control, format!("{}\n", 16 << 20)).expect("writes");
    assert!(child.wait().expect("ends").success());
    let lines = lines(&stats);
    let within = |line: &&Value| line["resident_bytes"].as_u64() <= Some(16 << 20);
    let limited: Vec<&Value> = lines.iter().filter(|line| line["budget_bytes"] == 16 << 20).collect();
    assert!(limited.len() > 3, "{} of {} lines", limited.len(), lines.len());
    assert!(limited.iter().skip(2).all(within), "{:?}", limited.last());
    assert!(lines[0]["budget_bytes"] == 64 << 20);
}

/// A program that neither faults nor enters the kernel, beside a thread of the agent's that waits and hears no signals.
#[test]
fn the_budget_falls_while_a_program_is_monitored() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let skewed = compiled(&directory, "skewed", include_str!("c/skewed.c"));
    let place = |name: &str| directory.path().join(name);
    let (stats, control, scheme) = (place("run.jsonl"), place("budget"), place("scheme.toml"));
    std::fs::write(&scheme, "[[schemes]]\naction = \"stat\"\n").expect("writes");
    let binary = env!("CARGO_BIN_EXE_refault");
    let mut child = Command::new(binary)
        .args(["run", "--memory", "64M", "--stats-interval", "100", "--scheme"])
        .arg(&scheme)
        .arg("--stats")
        .arg(&stats)
        .arg("--memory-control")
        .arg(&control)
        .args(["--", &skewed, "32", "1", "4"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("starts");
    wait_for("statistics of the first budget", || lines_by_now(&stats) > 5);
    std::fs::write(&control, format!("{}\n", 16 << 20)).expect("writes");
    assert!(child.wait().expect("ends").success());
    let lines = lines(&stats);
    let limited: Vec<&Value> = lines.iter().filter(|line| line["budget_bytes"] == 16 << 20).collect();
    assert!(limited.len() > 6, "{} of {} lines", limited.len(), lines.len());
    let within = |line: &&Value| line["resident_bytes"].as_u64() <= Some(16 << 20);
    // A busy machine takes its time to compress what goes.
    assert!(limited.iter().skip(limited.len() / 2).all(within), "{:?}", limited.last());
}

#[test]
fn what_a_record_says_is_enough_is_enough() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "hot", HOT_AND_COLD);
    let trace = directory.path().join("app.rft").display().to_string();
    let output = refault(&["record", "--interval", "50", "--out", &trace, "--", &program, "24", "32", "4000"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "whole\n", "the program's output is its own");
    assert!(text(&output.stderr).contains("overhead"), "{}", text(&output.stderr));

    let info: Value = serde_json::from_str(&stdout(&["trace", "info", "--format", "json", &trace])).expect("JSON");
    let noted = &info["read_as"];
    assert_eq!((&noted["processes"], noted["intervals"].is_string()), (&"1".into(), true), "{info}");
    let pages = info["distinct_pages"].as_u64().expect("pages");
    assert!((56 << 8..60 << 8).contains(&pages), "{pages} pages of 56 MiB");
    let runs =
        stdout(&["compare", "--trace", &trace, "--memory", "30%,60%", "--policy", "lru,mglru", "--format", "csv"]);
    assert_eq!(common::rows(&runs).len(), 5);

    let curve = stdout(&["mrc", "--trace", &trace, "--misses", "10%", "--format", "json"]);
    let curve: Value = serde_json::from_str(&curve).expect("JSON");
    let enough = curve["curves"][0]["enough"][0]["memory_pages"].as_u64().expect("a size") * 4096;
    // 24 MiB are hot; the rest is touched once at the beginning and once at the end.
    assert!((24 << 20..28 << 20).contains(&enough), "{enough}: {curve}");

    let refaults = |budget: u64| {
        let stats = directory.path().join(format!("{budget}.jsonl"));
        let stats_name = stats.display().to_string();
        let memory = format!("{}p", budget / 4096);
        let arguments = ["run", "--resident", &memory, "--stats", &stats_name, "--", &program, "24", "32", "1500"];
        assert_eq!(stdout(&arguments), "whole\n");
        let lines = lines(&stats);
        lines.last().expect("a line")["pswpin"].as_u64().expect("a count")
    };
    // Enough and an eighth for the reserve and what the recorder does not see; half is far too little.
    let (with_enough, with_half) = (refaults(enough + enough / 8), refaults(enough / 2));
    assert!(with_half > 20_000, "{with_half} with half");
    assert!(with_enough * 2 < with_half, "{with_enough} with what is enough, {with_half} with half of it");

    let wrong = refault(&["record", "--out", "/nowhere/x.rft", "--", &program, "1", "1", "1"]);
    assert_eq!((wrong.status.code(), text(&wrong.stderr).lines().count()), (Some(1), 1));
    let failed = refault(&["record", "--out", &trace, "--", "sh", "-c", "exit 7"]);
    assert_eq!(failed.status.code(), Some(7), "the exit code is the program's");
}

#[test]
fn a_record_for_which_there_is_no_room_is_none() {
    let script = "i = 0\nwhile i < 20_000:\n    b = bytearray(4 << 20)\n    i += 1000\n";
    let program = ["python3", "-c", script];
    let failed = |output: std::process::Output, place: &str| {
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        let line = format!("refault: cannot write: {place}");
        assert!(said.starts_with(&line) && said.contains("No space left on device"), "{said}");
    };
    if skipped(&["python3", "unshare", "mount"]) {
        return;
    }
    failed(refault(&[&["record", "--interval", "20", "--out", "/dev/full", "--"], &program[..]].concat()), "/dev/full");
    // Where the agent writes what the command makes a trace of.
    let directory = TempDir::new().expect("a directory");
    let trace = directory.path().join("app.rft");
    let small = directory.path().join("small");
    std::fs::create_dir(&small).expect("a directory");
    let mounted = |command: &str| {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args([
            "--mount",
            "sh",
            "-c",
            &format!("mount -t tmpfs -o size=8k tmpfs \"$TMPDIR\" && {command}"),
            "sh",
        ]);
        unshare.env("TMPDIR", &small);
        unshare
    };
    if !mounted("true").output().is_ok_and(|output| output.status.success()) {
        refault_testing::skip("nothing can be mounted here");
        return;
    }
    let refault = assert_cmd::cargo::cargo_bin("refault");
    let mut command = mounted("exec \"$@\"");
    command.arg(&refault).args(["record", "--interval", "20", "--out"]).arg(&trace).arg("--").args(program);
    failed(command.output().expect("it starts"), &format!("a temporary file in {}", small.display()));
    assert!(!trace.exists(), "half a record looks like a whole one");
}

#[test]
fn the_end_of_a_run_says_what_would_have_been_enough() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "hot", HOT_AND_COLD);
    let summary = directory.path().join("summary.json");
    let name = summary.display().to_string();
    // 48 MiB are read again and again.
    let run = |memory: &str| {
        let output = refault(&["run", "--memory", memory, "--summary", &name, "--", &program, "48", "1", "1500"]);
        assert_eq!(text(&output.stdout), "whole\n");
        let json = std::fs::read_to_string(&summary).expect("a summary");
        (serde_json::from_str::<Value>(&json).expect("JSON"), text(&output.stderr))
    };
    let (little, line) = run("32M");
    let enough = little["would_stop_refaulting_at_bytes"].as_u64().expect("a size");
    assert!((44 << 20..60 << 20).contains(&enough), "{enough}: {line}");
    assert!(line.contains("; advice: "), "{line}");
    let (ample, line) = run(&format!("{}p", enough / 4096));
    let came_back = |summary: &Value| summary["refaults"].as_u64().expect("a count");
    assert!(came_back(&ample) * 10 < came_back(&little), "{} {}: {line}", came_back(&ample), came_back(&little));
    let (all, line) = run("256M");
    assert!(all["would_stop_refaulting_at_bytes"].is_null() && !line.contains("advice"), "{line}");
}

#[test]
fn a_peak_under_a_large_budget_is_what_the_programs_had() {
    if skipped(&["sh"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let summary = directory.path().join("summary.json");
    let name = summary.display().to_string();
    let output = refault(&["run", "--memory", "2G", "--summary", &name, "--", "sh", "-c", "(:); (:); true"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = std::fs::read_to_string(&summary).expect("a summary");
    let peak = serde_json::from_str::<Value>(&json).expect("JSON")["peak_bytes"].as_u64().expect("a size");
    // A shell has some MiB; a part of the budget would be 64.
    assert!(peak < 24 << 20, "{peak}");
}

#[test]
fn a_program_is_monitored_while_it_runs() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "hot", HOT_AND_COLD);
    let (json, report) = (directory.path().join("m.json"), directory.path().join("m.html"));
    let (json_name, report_name) = (json.display().to_string(), report.display().to_string());
    let faster = ["--set", "intervals.sample_us=2 ms", "--set", "intervals.aggr_us=40 ms", "--monitor-cpu", "20%"];
    let mut arguments = vec!["monitor", "--format", "json", "--out", &json_name, "--report", &report_name];
    arguments.extend(faster);
    arguments.extend(["--", &program, "16", "48", "3000"]);
    assert_eq!(stdout(&arguments), "whole\n", "the program's output is its own");
    let found: Value = serde_json::from_str(&std::fs::read_to_string(&json).expect("reads")).expect("JSON");
    let process = &found["processes"][0];
    assert!(process["snapshots"].as_array().is_some_and(|all| all.len() > 20), "{}", process["snapshots"]);
    // 16 MiB are hot. The 48 cold ones are found so but for what straddles the borders.
    let median = process["working_set_bytes"]["50"].as_u64().expect("a size");
    assert!((8 << 20..48 << 20).contains(&median), "{median}");
    assert!(process["monitor_cpu_share"].as_f64().is_some_and(|share| share > 0.0 && share < 0.4), "{process}");
    let html = std::fs::read_to_string(&report).expect("a report");
    assert!(html.contains("<svg") && html.contains("Working set over time") && html.contains("Hot and cold memory"));
    assert!(!html.contains("http://") || html.matches("http").count() == html.matches("http://www.w3.org").count());

    let output = refault(&["monitor", "--scheme", "pageout nr_accesses=0 age=1s..", "--", &program, "4", "32", "4000"]);
    let table = text(&output.stderr);
    assert!(output.status.success() && table.contains("working set, percentile"), "{table}");
    assert!(table.contains("0 pageout") && table.contains("The monitor took"), "{table}");
    assert!(table.contains("Regions at the end, hottest first"), "{table}");
}

#[test]
fn a_program_that_runs_for_a_second_behind_a_shell_is_seen() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "hot", HOT_AND_COLD);
    let json = directory.path().join("m.json").display().to_string();
    let script = "exec sh -c 'exec \"$0\" 24 8 900' \"$0\"";
    // Its memory is mapped after the monitor has begun, well within the interval at which the kernel's would find that
    // out.
    let arguments =
        ["monitor", "--monitor-cpu", "20%", "--format", "json", "--out", &json, "--", "sh", "-c", script, &program];
    assert_eq!(stdout(&arguments), "whole\n");
    let found: Value = serde_json::from_str(&std::fs::read_to_string(&json).expect("reads")).expect("JSON");
    let median = found["processes"][0]["working_set_bytes"]["50"].as_u64().expect("a size");
    assert!(
        (16 << 20..40 << 20).contains(&median),
        "{median} bytes, of 24 MiB that are in use: {}",
        found["processes"]
    );
}

#[test]
fn schemes_act_on_a_program_that_runs() {
    if skipped(&["gcc"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let program = compiled(&directory, "hot", HOT_AND_COLD);
    let scheme = directory.path().join("cold.toml").display().to_string();
    let text = "[[schemes]]\naction = \"pageout\"\naccess_pattern = { nr_accesses = { max = 0 }, age = { min = \"500 ms\" } }\n";
    std::fs::write(&scheme, text).expect("writes");
    let stats = directory.path().join("run.jsonl");
    let stats_name = stats.display().to_string();
    let options = ["run", "--memory", "256M", "--monitor-cpu", "20%", "--scheme", &scheme, "--stats", &stats_name];
    let arguments = [&options[..], &["--stats-interval", "100", "--", &program, "8", "48", "4000"]].concat();
    assert_eq!(stdout(&arguments), "whole\n");
    let lines = lines(&stats);
    let number = |line: &Value, place: &str| line.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    let applied = lines.iter().map(|line| number(line, "/schemes/0/sz_applied")).max();
    assert!(applied >= Some(24 << 20), "{applied:?} bytes of 48 MiB that are cold");
    let least = lines.iter().skip(20).map(|line| number(line, "/resident_bytes")).min();
    assert!(least < Some(40 << 20), "{least:?} bytes stayed in memory");
    assert!(lines.iter().any(|line| number(line, "/monitor/checks") > 1000), "{:?}", lines.last());
}

#[test]
fn schemes_without_effect_and_bad_configurations_are_refused_by_key_and_reason() {
    if skipped(&["true"]) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("writes");
        path.display().to_string()
    };
    let scheme = |action: &str, rest: &str| format!("[[schemes]]\naction = \"{action}\"\n{rest}");
    let cases = [
        (write("a", &scheme("migrate_hot", "target_nid = 1")), "schemes[0].action: migrate_hot", "no nodes"),
        (write("b", "[nr_regions]\nmin = 50\nmax = 20"), "nr_regions.min", "above max"),
        (write("c", "[intervals]\nsample_us = \"1 s\"\naggr_us = \"100 ms\""), "intervals.sample_us", "above aggr"),
        (
            write(
                "d",
                &scheme(
                    "pageout",
                    "[schemes.quotas]\nreset_interval_ms = 1000\n[[schemes.quotas.goals]]\nmetric = \"user_input\"\ntarget_value = 5",
                ),
            ),
            "quotas.goals",
            "a goal tunes a quota",
        ),
        (write("e", &scheme("dance", "")), "schemes[0].action", "is not an action"),
        (
            write(
                "f",
                "ops = \"fvaddr\"\n[[targets]]\npid = 1\nregions = [{ start = 0, end = 8192 }, { start = 4096, end = 16384 }]",
            ),
            "targets[0].regions",
            "overlap",
        ),
        (write("g", "ops = \"vaddr\"\n[[targets]]\npid = 1"), "targets", "is the target"),
    ];
    for (file, key, reason) in &cases {
        for command in [&["run", "--memory", "64M", "--scheme"][..], &["monitor", "--config"]] {
            let mut arguments = command.to_vec();
            arguments.extend([file.as_str(), "--", "true"]);
            let output = refault(&arguments);
            let line = text(&output.stderr);
            assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1), "{arguments:?}: {line}");
            assert!(line.contains(key) && line.contains(reason), "{arguments:?}: {line}");
        }
    }
    let sorting = write("s", &scheme("lru_prio", ""));
    let output = refault(&["run", "--memory", "64M", "--policy", "fifo", "--scheme", &sorting, "--", "true"]);
    assert!(text(&output.stderr).contains("lru_prio needs a policy with lists to sort"), "{}", text(&output.stderr));
    // The command takes no other user's kernel monitor: either it uses a free one, or a sentence says why not.
    let root = Path::new("/sys/kernel/mm/damon/admin/kdamonds");
    let before = std::fs::read_to_string(root.join("nr_kdamonds")).ok();
    let state = std::fs::read_to_string(root.join("0/state")).ok();
    let output = refault(&["monitor", "--source", "kernel", "--", "sleep", "0.5"]);
    if state.as_deref().map(str::trim) == Some("on") {
        let line = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && line.contains("in use on this machine and is not touched"),
            "{line}"
        );
    }
    assert_eq!(std::fs::read_to_string(root.join("nr_kdamonds")).ok(), before);
    assert_eq!(std::fs::read_to_string(root.join("0/state")).ok(), state);
}
