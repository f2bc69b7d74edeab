//! `refault run --backend kernel`: right, within the budget as seen from outside, and nothing left behind.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{compiled, refault, text};
use serde_json::Value;
use tempfile::TempDir;

const FILLS_AND_CHECKS: &str = include_str!("c/fills_and_checks.c");
const JOURNALS: &str = "/run/refault-kernel";

/// The machine's swap, which one test has at a time: what is seen from outside of a device may be another run's. None,
/// with a line that says why, where this user has no cgroup or no zram.
fn alone() -> Option<std::fs::File> {
    if skipped() {
        return None;
    }
    let lock = std::fs::File::create(std::env::temp_dir().join("refault-test-swap")).expect("a file");
    lock.lock().expect("another test ends");
    Some(lock)
}

fn skipped() -> bool {
    match refault_kernel::examine(&refault_kernel::Places::default()) {
        Ok(words) if words.contains("zram") => false,
        Ok(words) => {
            refault_testing::skip_required(format_args!("no zram of one's own: {words}"));
            true
        }
        Err(refusal) => {
            refault_testing::skip_required(format_args!("{refusal}: {}", refusal.place()));
            true
        }
    }
}

fn started(options: &[&str], program: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.args(["run", "--backend", "kernel"]).args(options).arg("--").args(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("refault starts")
}

/// The group and the device that a run's keeper has made, as its journal says.
struct Made {
    group: PathBuf,
    devices: Vec<u64>,
}

impl Made {
    /// Of the keeper that this process has started, once the journal names both.
    fn of(tool: u32) -> Made {
        wait_for("a group and a device", || {
            let files = std::fs::read_dir(JOURNALS).ok()?.flatten();
            let entries =
                files.filter_map(|file| serde_json::from_slice::<Value>(&std::fs::read(file.path()).ok()?).ok());
            let mut own = entries.filter(|entry| parent(entry["process"].as_u64()) == Some(tool));
            let entry = own.next()?;
            let group = PathBuf::from(entry["group"]["path"].as_str()?);
            let devices: Vec<u64> = entry["devices"].as_array()?.iter().filter_map(Value::as_u64).collect();
            (!devices.is_empty()).then_some(Made { group, devices })
        })
    }

    /// Resident, page tables and compressed, as the kernel says. None when they are gone.
    fn total(&self) -> Option<u64> {
        let usage = ["memory.usage_in_bytes", "memory.current"]
            .iter()
            .find_map(|file| std::fs::read_to_string(self.group.join(file)).ok()?.trim().parse::<u64>().ok())?;
        let compressed = self.devices.iter().map(|number| {
            let text = std::fs::read_to_string(format!("/sys/block/zram{number}/mm_stat")).ok()?;
            text.split_whitespace().nth(2)?.parse::<u64>().ok()
        });
        Some(usage + compressed.sum::<Option<u64>>()?)
    }

    fn is_gone(&self) -> bool {
        let swaps = std::fs::read_to_string("/proc/swaps").expect("it is there");
        let is_there = |number: &u64| {
            Path::new(&format!("/sys/block/zram{number}")).exists() || swaps.contains(&format!("/zram{number} "))
        };
        !self.group.exists() && !self.devices.iter().any(is_there)
    }
}

fn parent(process: Option<u64>) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process?)).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The line in which a run says that it is paused. On a busy machine another may come first, that it is slow.
fn says_that_it_is_paused(run: &mut Child) -> String {
    let mut said = BufReader::new(run.stderr.as_mut().expect("piped")).lines().map_while(Result::ok);
    said.find(|line| line.starts_with("refault: paused: ")).expect("it says so before it ends")
}

/// What a run printed, and the most that was seen of it from outside.
fn watched(options: &[&str], program: &[&str]) -> (String, String, u64) {
    let child = started(options, program);
    let made = Made::of(child.id());
    let watch = std::thread::spawn(move || {
        let mut most = 0;
        while let Some(total) = made.total() {
            most = most.max(total);
            std::thread::sleep(Duration::from_millis(1));
        }
        (made, most)
    });
    let output = child.wait_with_output().expect("it ends");
    let (made, most) = watch.join().expect("it ends");
    assert!(made.is_gone(), "{} or its device is left", made.group.display());
    (text(&output.stdout), text(&output.stderr), most)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a summary")).expect("JSON")
}

#[test]
fn within_the_budget_from_the_first_megabyte_on_whatever_compresses() {
    let Some(_alone) = alone() else { return };
    let place = TempDir::new().expect("a directory");
    let program = compiled(&place, "fills", FILLS_AND_CHECKS);
    let summary = place.path().join("summary.json");
    // Memory, eighths of it that do not compress, and the budget in MiB.
    for (memory, eighths, budget) in [("60", "2", 30), ("34", "5", 30), ("200", "1", 64), ("20", "8", 30)] {
        let options = ["--memory", &format!("{budget}M"), "--summary", summary.to_str().expect("text")];
        let (out, said, most) = watched(&options, &[&program, memory, eighths, "2"]);
        assert_eq!(out, "right\n", "{said}");
        assert!(
            most <= (budget << 20) * 102 / 100,
            "{most} bytes seen of {budget} MiB, {memory} MiB, {eighths}: {said}"
        );
        let written = json(&summary);
        assert_eq!((&written["backend"], &written["backend_reason"]), (&"kernel".into(), &"asked for".into()));
        let number = |name: &str| written[name].as_u64().unwrap_or_else(|| panic!("no {name}: {written}"));
        assert!(number("peak_bytes") <= (budget << 20) * 102 / 100, "{written}");
        assert!(number("faults") > 1000 && (eighths == "8" || number("refaults") > 100), "{written}");
        // What the kernel does not count is named, and not there.
        let missing: Vec<&str> =
            written["missing"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
        assert!(missing.contains(&"fault_p99_ns") && written.get("fault_p99_ns").is_none(), "{written}");
        assert!(said.contains("kernel backend: asked for; not counted: "), "{said}");
    }
}

#[test]
fn what_does_not_compress_waits_and_goes_on_with_more() {
    let Some(_alone) = alone() else { return };
    let place = TempDir::new().expect("a directory");
    let program = compiled(&place, "fills", FILLS_AND_CHECKS);
    let control = place.path().join("budget");
    let options = ["--memory", "24M", "--memory-control", control.to_str().expect("text")];
    let mut child = started(&options, &[&program, "40", "8", "1"]);
    let made = Made::of(child.id());
    let line = says_that_it_is_paused(&mut child);
    assert!(line.contains("24 MiB"), "{line}");
    assert!(made.total().expect("it runs") <= (24 << 20) * 102 / 100);
    std::fs::write(&control, (64u64 << 20).to_string()).expect("writes");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "right\n");
    assert!(made.is_gone());
}

/// Swap is the machine's: pages of one budget, which is full, go to the device of another. That has room as before, and ends
/// first.
#[test]
fn a_device_that_another_budget_needs_is_removed_once_its_pages_have_room() {
    let Some(_alone) = alone() else { return };
    let place = TempDir::new().expect("a directory");
    let program = compiled(&place, "fills", FILLS_AND_CHECKS);
    let control = place.path().join("budget");
    let mut ends = started(&["--memory", "40M"], &[&program, "60", "2", "1", "waits"]);
    let mut filled = String::new();
    BufReader::new(ends.stdout.as_mut().expect("piped")).read_line(&mut filled).expect("it is filled");
    let made = Made::of(ends.id());
    let options = ["--memory", "24M", "--memory-control", control.to_str().expect("text")];
    let mut stays = started(&options, &[&program, "60", "7", "1"]);
    says_that_it_is_paused(&mut stays);
    // It reads its memory once more, and ends.
    drop(ends.stdin.take());
    let until = Instant::now() + Duration::from_secs(60);
    while ends.try_wait().expect("it is a child").is_none() {
        if Instant::now() > until {
            // Both are paused, and would be for ever: their keepers remove what they have made.
            _ = (ends.kill(), stays.kill());
            panic!("a budget that is large enough waits for one that is not");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut told = String::new();
    ends.stderr.take().expect("piped").read_to_string(&mut told).expect("text");
    assert!(ends.wait().expect("it ends").success(), "{told}");
    let is_there = !made.is_gone();
    assert_eq!(is_there, told.contains(" is in use by other programs; it is removed when it no longer is"), "{told}");
    std::fs::write(&control, (128u64 << 20).to_string()).expect("writes");
    let output = stays.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "right\n");
    wait_for("all is removed", || made.is_gone().then_some(()));
}

#[test]
fn nothing_is_left_when_the_tool_is_killed() {
    let Some(_alone) = alone() else { return };
    let place = TempDir::new().expect("a directory");
    let program = compiled(&place, "fills", FILLS_AND_CHECKS);
    for extra in [&[][..], &["sh", "-c", "setsid \"$0\" \"$@\" & wait"]] {
        let words = [extra, &[&program, "40", "2", "1", "waits"]].concat();
        let mut child = started(&["--memory", "24M"], &words);
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut first).expect("it is filled");
        assert_eq!(first, "filled\n");
        let made = Made::of(child.id());
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        // A process that goes on has its input, and the group, until that ends.
        drop(child.stdin.take());
        wait_for("all is removed", || made.is_gone().then_some(()));
    }
}

fn kill_keeper(run: &Child) {
    let keeper = wait_for("the keeper", || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).ok()?;
        let is_keeper = |number: &&str| {
            std::fs::read_to_string(format!("/proc/{number}/cmdline")).is_ok_and(|line| line.contains("kernel-keeper"))
        };
        children.split_whitespace().find(is_keeper)?.parse().ok()
    });
    signal(keeper, rustix::process::Signal::KILL);
}

fn signal(process: i32, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_raw(process).expect("a number");
    rustix::process::kill_process(process, signal).expect("it runs");
}

/// Without its keeper a group can be full for ever.
#[test]
fn a_program_whose_keeper_is_killed_goes_on_and_is_told_to_have_no_budget() {
    let Some(_alone) = alone() else { return };
    let place = TempDir::new().expect("a directory");
    let program = compiled(&place, "fills", FILLS_AND_CHECKS);
    let mut child = started(&["--memory", "24M"], &["sh", "-c", "echo; read line; exec \"$0\" 60 8 1", &program]);
    // It has begun, under its keeper.
    assert_eq!(child.stdout.as_mut().expect("piped").read(&mut [0]).expect("it says so"), 1);
    let made = Made::of(child.id());
    kill_keeper(&child);
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
    let line = said.next().expect("a line").expect("text");
    assert!(line.ends_with(" was killed: the program goes on without a budget"), "{line}");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && text(&output.stdout) == "right\n", "{output:?}");
    assert!(made.is_gone());
}

/// A handler of its own needs memory, which a paused program has not.
#[test]
fn what_is_paused_is_ended_by_the_second_request() {
    let Some(_alone) = alone() else { return };
    let place = TempDir::new().expect("a directory");
    let program = compiled(&place, "handles", include_str!("c/handles_while_it_fills.c"));
    let mut child = started(&["--memory", "24M"], &[&program]);
    let made = Made::of(child.id());
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    said.find(|line| line.starts_with("refault: paused: ")).expect("it says so before it ends");
    signal(child.id() as i32, rustix::process::Signal::TERM);
    said.find(|line| line.contains("the same once more ends it at once")).expect("it says so before it ends");
    signal(child.id() as i32, rustix::process::Signal::TERM);
    let status = child.wait().expect("it ends");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
    wait_for("all is removed", || made.is_gone().then_some(()));
}

#[test]
fn what_a_killed_keeper_left_is_removed_by_doctor_and_by_the_next_run() {
    let Some(_alone) = alone() else { return };
    let place = TempDir::new().expect("a directory");
    let program = compiled(&place, "fills", FILLS_AND_CHECKS);
    for by_doctor in [true, false] {
        let mut child = started(&["--memory", "24M"], &[&program, "40", "2", "1", "waits"]);
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut first).expect("it is filled");
        let made = Made::of(child.id());
        kill_keeper(&child);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        if by_doctor {
            let cleaned = refault(&["doctor", "--clean"]);
            assert!(cleaned.status.success(), "{}", text(&cleaned.stderr));
            // Another run may have been sooner.
            let said = text(&cleaned.stdout);
            assert!(said.contains("removed: ") || said.contains("nothing was left"), "{said}");
        } else {
            let next = refault(&["run", "--backend", "kernel", "--memory", "16M", "--", "true"]);
            assert!(next.status.success(), "{}", text(&next.stderr));
        }
        wait_for("all is removed", || made.is_gone().then_some(()));
    }
}

#[test]
fn auto_takes_the_kernel_for_what_cannot_be_preloaded_into() {
    let Some(_alone) = alone() else { return };
    let place = TempDir::new().expect("a directory");
    let source = place.path().join("static.c");
    std::fs::write(&source, FILLS_AND_CHECKS).expect("writes");
    let program = place.path().join("static");
    let gcc = Command::new("gcc").args(["-O1", "-static", "-o"]).arg(&program).arg(&source).status();
    if !gcc.is_ok_and(|status| status.success()) {
        refault_testing::skip_required("gcc cannot link statically here");
        return;
    }
    let program = program.to_str().expect("text");
    let summary = place.path().join("summary.json");
    let output = refault(&[
        "run",
        "--memory",
        "30M",
        "--summary",
        summary.to_str().expect("text"),
        "--",
        program,
        "50",
        "2",
        "1",
    ]);
    assert_eq!(text(&output.stdout), "right\n", "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("kernel backend: it is statically linked"), "{said}");
    assert_eq!(json(&summary)["backend"], "kernel");
    let doctor = refault(&["doctor", program]);
    let found = text(&doctor.stdout);
    assert!(doctor.status.success() && found.contains("leaves this program's budget to the kernel"), "{found}");
    assert!(found.contains("statically linked") && !found.contains("does not manage"), "{found}");
    let dynamic = refault(&["run", "--memory", "30M", "--summary", summary.to_str().expect("text"), "--", "true"]);
    assert!(dynamic.status.success());
    assert_eq!(json(&summary)["backend"], "pager");
    // What only the pager has keeps the pager, which says why it cannot.
    let refused = refault(&["run", "--memory", "30M", "--policy", "clock", "--", program, "1", "0", "1"]);
    assert!(text(&refused.stderr).contains("statically linked"), "{}", text(&refused.stderr));
    let refused = refault(&["run", "--backend", "kernel", "--memory", "30M", "--policy", "clock", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_budget_that_is_far_too_small_is_said_at_once_and_grows_where_it_may() {
    let Some(_alone) = alone() else { return };
    let place = TempDir::new().expect("a directory");
    let program = compiled(&place, "fills", FILLS_AND_CHECKS);
    let try_with = |backend: &str| {
        let stats = place.path().join(backend);
        let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
        command.args(["run", "--backend", backend, "--memory", "12M", "--grow", "200M", "--stats"]).arg(&stats);
        // However fast the machine is, it lacks memory until the line is there.
        command.args(["--", &program, "80", "1", "1", "reads"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("refault starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
        let line = said.next().expect("a line").expect("text");
        drop(child.stdin.take());
        assert!(
            (line.contains("the budget of 12 MiB is far too small") || line.contains("does not compress into 12 MiB"))
                && line.contains("; raised to "),
            "{backend}: {line}"
        );
        let rest: Vec<String> = said.map_while(Result::ok).collect();
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(text(&output.stdout), "right\n", "{backend}: {rest:?}");
        let last = common::lines(&stats).pop().expect("a line");
        let is_said = last["thrashing"].as_str().is_some_and(|line| line.contains("too small"));
        assert!(is_said || backend == "kernel", "{backend}: {last}");
        assert!(last["run"]["budget_bytes"].as_u64() > Some(12 << 20), "{backend}: {last}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| try_with("kernel"));
        try_with("pager");
    });
}
