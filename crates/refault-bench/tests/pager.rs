//! `refault-bench pager`: it measures both sides, and leaves nothing behind, however it ends.

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Both tests look at the machine's swap, so one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// True, with one line that says why, where this cannot run.
fn skipped() -> bool {
    if common::skipped() {
        return true;
    }
    let needed = ["/sys/class/zram-control/hot_add", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let missing = needed.iter().find(|path| !std::path::Path::new(path).exists());
    if let Some(path) = missing {
        refault_testing::skip(format_args!("no {path}"));
    } else if !rustix::process::geteuid().is_root() {
        refault_testing::skip_required("needs root");
    } else {
        return false;
    }
    true
}

fn bench() -> Command {
    let mut command = Command::new(common::BENCH);
    command.args(["pager", "--quick", "--format", "json"]);
    command
}

/// What a run must leave as it was: swap in use, zram devices, cgroups of ours.
fn machine() -> (String, BTreeSet<String>, usize) {
    let names = |path: &str, part: &str| -> BTreeSet<String> {
        std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.contains(part))
            .collect()
    };
    // Names only: how much of it is used changes all the time.
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swaps = swaps.lines().map(|line| line.split_whitespace().next().unwrap_or_default().to_owned() + " ").collect();
    (swaps, names("/sys/block", "zram"), names("/sys/fs/cgroup/memory", "refault-bench").len())
}

#[test]
fn both_sides_are_measured_and_nothing_is_left() {
    if skipped() {
        return;
    }
    let _guard = ONE_AT_A_TIME.lock();
    let before = machine();
    let output = bench().args(["--rows", "zipf,fits"]).output().expect("refault-bench starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (index, row) in ["zipf", "fits"].into_iter().enumerate() {
        let found = &result["rows"][index];
        assert_eq!(found["row"], row);
        // In so small a cgroup the kernel may kill the load each time; then there is no other side, and that is said.
        if found["killed"].as_u64() > Some(0) {
            assert!(row != "fits" && found["ratio"].is_null(), "{found}");
            continue;
        }
        for side in ["refault", "other"] {
            assert!(found[side]["operations_per_second"].as_f64().expect("a number") > 1000.0, "{found}");
            assert!(found[side]["p99_ns"].as_f64() >= found[side]["p50_ns"].as_f64(), "{found}");
            // Faults are slower than hits, so their percentile is further out; where everything fits there are none.
            let (fault, p99) = (found[side]["fault_p99_ns"].as_f64(), found[side]["p99_ns"].as_f64());
            assert!(if row == "fits" { fault.is_none() } else { fault >= p99 }, "{found}");
        }
        assert!(found["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{found}");
    }
    // A quarter of 128 MiB may be resident on the kernel's side, and 8 MiB more; ours has that and what zram took in
    // all.
    let zipf = &result["rows"][0];
    let bytes = |side: &str, field: &str| zipf[side][field].as_f64().expect("a number");
    let budget = zipf["budget_bytes"].as_f64().expect("a number");
    let other = zipf["other"]["resident_bytes"].as_f64();
    assert!(other.is_none_or(|resident| resident <= f64::from(40 << 20)), "{result}");
    assert!(budget > f64::from(40 << 20) && budget < f64::from(112 << 20), "{result}");
    assert!(bytes("refault", "total_bytes") <= budget * 1.02, "{result}");
    assert!(bytes("refault", "compressed_bytes") > 0.0, "{result}");
    // The kernel backend is given the cgroup's limit and what zram took, or is missing for a reason that is said.
    let kernel = &zipf["kernel"]["operations_per_second"];
    let is_told = [&result["kernel_missing"], &zipf["kernel_failed"]].iter().any(|why| why.is_string());
    assert!(kernel.as_f64() > Some(1000.0) || is_told, "{result}");
    if let Some(total) = zipf["kernel"]["total_bytes"].as_f64() {
        let kernel_budget = zipf["kernel_budget_bytes"].as_f64().expect("a number");
        assert!(total <= kernel_budget * 1.02 && kernel_budget < budget + f64::from(8 << 20), "{result}");
    }
    assert!(result["sides"].as_str().is_some_and(|sides| sides.contains("Linux")), "{result}");
    assert_eq!(machine(), before);
}

#[test]
fn programs_that_end_are_measured_and_missing_ones_are_named() {
    if skipped() {
        return;
    }
    let _guard = ONE_AT_A_TIME.lock();
    let output = bench()
        .args(["--rows", "sqlite,sort,idle", "--python", "/nonexistent"])
        .output()
        .expect("refault-bench starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = |index: usize| &result["rows"][index];
    let budget = row(0)["budget_bytes"].as_f64().expect("a number");
    assert!(row(0)["refault"]["total_bytes"].as_f64().is_some_and(|total| total <= budget * 1.02), "{result}");
    // The kernel may have killed it each time; then there is no ratio, and that is said.
    assert!(row(0)["ratio"].as_f64().is_some() || row(0)["killed"].as_u64() > Some(0), "{result}");
    assert!(row(1)["left_out"].as_str().is_some_and(|reason| reason.contains("numpy")), "{result}");
    let private = |side: &str| row(2)[side]["resident_bytes"].as_f64().expect("a number");
    assert!(private("refault") > private("other"), "{result}");
}

#[test]
fn a_killed_run_is_cleaned_up_after() {
    if skipped() {
        return;
    }
    let _guard = ONE_AT_A_TIME.lock();
    // At once, before the parent has read that the group is ready, and in the middle.
    for delay in [0, 0, 0, 400] {
        kill_after(Duration::from_millis(delay));
    }
}

fn kill_after(delay: Duration) {
    let before = machine();
    let mut run = bench().args(["--rows", "zipf"]).stdout(Stdio::null()).spawn().expect("refault-bench starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    while machine().2 == before.2 {
        assert!(Instant::now() < deadline, "no cgroup appeared");
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(delay);
    run.kill().expect("kills");
    run.wait().expect("is gone");
    while machine() != before {
        assert!(Instant::now() < deadline, "{:?} was {before:?}", machine());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn without_a_comparison_no_root_is_needed() {
    if common::skipped() {
        return;
    }
    let output = bench().args(["--against", "nothing", "--rows", "scan"]).output().expect("refault-bench starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(result["rows"][0]["other"].is_null() && result["rows"][0]["ratio"].is_null(), "{result}");
}

/// Two rows of our side only, the first of which is printed while the second is measured.
fn two_rows(format: &str) -> Child {
    let mut command = Command::new(common::BENCH);
    command.args(["pager", "--quick", "--against", "nothing", "--rows", "uniform,zipf", "--format", format]);
    command.stdout(Stdio::piped()).spawn().expect("refault-bench starts")
}

#[test]
fn each_row_can_be_read_as_soon_as_it_is_measured() {
    if common::skipped() {
        return;
    }
    for format in ["table", "csv"] {
        let mut run = two_rows(format);
        let mut lines = BufReader::new(run.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let is_first = |line: &String| line.trim_start().starts_with("uniform");
        let head: Vec<String> = lines.by_ref().take_while(|line| !is_first(line)).collect();
        run.kill().expect("kills");
        run.wait().expect("is gone");
        assert!(head.last().is_some_and(|line| line.trim_start().starts_with("row")), "{head:?}");
        assert_eq!(lines.collect::<Vec<_>>(), [""; 0], "what was measured later was printed with the first row");
    }
}

#[test]
fn what_was_measured_is_printed_when_a_signal_ends_it() {
    if common::skipped() {
        return;
    }
    let mut run = two_rows("json");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !starts_a_load(run.id(), "zipf") {
        assert!(Instant::now() < deadline && run.try_wait().expect("is there").is_none(), "the second row never ran");
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(Pid::from_child(&run), Signal::TERM).expect("is there");
    let output = run.wait_with_output().expect("ends");
    assert_eq!(output.status.signal(), Some(15));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows: Vec<_> = result["rows"].as_array().expect("rows").iter().map(|row| row["row"].clone()).collect();
    assert_eq!(rows, ["uniform"], "{result}");
}

/// Whether a process has a child whose command line has this word.
fn starts_a_load(process: u32, word: &str) -> bool {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let children = read(format!("/proc/{process}/task/{process}/children"));
    children.split_whitespace().any(|child| read(format!("/proc/{child}/cmdline")).split('\0').any(|part| part == word))
}
