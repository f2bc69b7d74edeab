//! `refault reclaim` on real programs: a node service and control groups. What needs swap makes a zram device of its
//! own.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{refault, skipped, stdout, text};
use refault_testing::{skip, skip_required};
use serde_json::Value;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Holds 200 MiB of which it looks at 20 all the time.
const SERVICE: &str = include_str!("scripts/service.js");

/// A zram device to swap to, if this user may make one; removed at the end.
struct Zram(u32);

impl Zram {
    fn new() -> Option<Zram> {
        let control = Path::new("/sys/class/zram-control/hot_add");
        let Some(id) = std::fs::read_to_string(control).ok().and_then(|id| id.trim().parse().ok()) else {
            skip("no right to make a zram device, or no zram");
            return None;
        };
        let zram = Zram(id);
        std::fs::write(format!("/sys/block/zram{id}/disksize"), "1073741824").expect("a new device has no size");
        let run = |program: &str| {
            Command::new(program).arg(zram.device()).output().is_ok_and(|output| output.status.success())
        };
        assert!(run("mkswap") && run("swapon"));
        Some(zram)
    }

    fn device(&self) -> String {
        format!("/dev/zram{}", self.0)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(self.device()).status();
        let _ = std::fs::write(format!("/sys/block/zram{}/reset", self.0), "1");
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", self.0.to_string());
    }
}

/// The service, ended with the test.
struct Service(Child);

impl Service {
    fn start() -> Service {
        Service::start_as("exec node -e \"$0\"")
    }

    fn start_as(command: &str) -> Service {
        let mut child = Command::new("sh")
            .args(["-c", command, SERVICE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        let mut reader = BufReader::new(output);
        reader.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        child.stdout = Some(reader.into_inner());
        Service(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// What it answers when all of its memory is read.
    fn sum(&mut self) -> String {
        writeln!(self.0.stdin.as_mut().expect("a pipe")).expect("it reads");
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        line
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[arguments, &["--format", "json"]].concat())).expect("JSON")
}

fn resident(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a figure");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

#[test]
fn a_node_service_gives_up_what_it_does_not_use_and_has_it_back_when_it_does() {
    if skipped(&["node"]) {
        return;
    }
    let Some(_zram) = Zram::new() else { return };
    let mut service = Service::start();
    let sum = service.sum();
    let pid = service.pid();
    let before = resident(&pid);
    assert!(before > 200 * MIB);

    let dry = json(&["reclaim", "--pid", &pid, "--pressure", "50%", "--dry-run", "--for", "3s"]);
    assert!(dry["chosen_bytes"].as_u64() > Some(0), "{dry}");
    assert_eq!(dry["reclaimed_bytes"].as_u64(), Some(0), "{dry}");
    assert!(resident(&pid) + 2 * MIB > before, "a dry run changes nothing");

    let done = json(&["reclaim", "--pid", &pid, "--idle", "2s", "--for", "6s"]);
    let after = resident(&pid);
    assert!(done["reclaimed_bytes"].as_u64() >= Some(150 * MIB), "{done}");
    assert!(after < before - 150 * MIB, "{} MiB of {}", after / MIB, before / MIB);
    assert_eq!(service.sum(), sum, "nothing is lost");
    assert!(resident(&pid) > after + 150 * MIB, "it is back");

    let done = json(&["reclaim", "--pid", &pid, "--pressure", "20%", "--for", "8s"]);
    assert!(done["means"].as_str().is_some_and(|means| means.contains("pressure from /")), "{done}");
    assert!(done["reclaimed_bytes"].as_u64() >= Some(10 * MIB), "{done}");
    assert_eq!(service.sum(), sum);
}

#[test]
fn what_would_have_gone_is_said_once_and_that_looks_clear_bits() {
    if skipped(&["python3"]) {
        return;
    }
    let Some(_zram) = Zram::new() else { return };
    let idle = "heap = bytearray(b'x' * (60 << 20)); print('ready', flush=True); import time; time.sleep(60)";
    let mut child = Command::new("python3").args(["-c", idle]).stdout(Stdio::piped()).spawn().expect("python3 starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let service = Service(child);
    let dry = ["reclaim", "--pid", &service.pid(), "--idle", "500ms", "--for", "3s", "--dry-run", "--ages", "mappings"];
    // What is idle is so to both who look.
    let both = |dry: &[&str]| {
        std::thread::scope(|scope| {
            let table = scope.spawn(|| stdout(dry));
            (json(dry), table.join().expect("it succeeds"))
        })
    };
    let (done, table) = both(&dry);
    // Some ten looks find it idle.
    let bytes = |key: &str| done[key].as_u64().expect("bytes");
    assert!(bytes("steps") > 6 && bytes("chosen_bytes") > 55 * MIB, "{done}");
    assert!(bytes("chosen_bytes") <= bytes("resident_before_bytes"), "{done}");
    assert_eq!(done["accessed_bits_cleared"], true);
    assert!(table.contains("nothing was moved; accessed bits were cleared"), "{table}");
    // Towards a pressure no bits are looked at, and what would have gone is not there to go again.
    let (done, table) = both(&["reclaim", "--pid", &service.pid(), "--pressure", "90%", "--for", "3s", "--dry-run"]);
    assert_eq!((&done["accessed_bits_cleared"], &done["came_back_bytes"]), (&false.into(), &0.into()), "{done}");
    assert!(table.contains("nothing was changed"), "{table}");
}

/// One heap, of which the first sixteenth is read all the time.
const READS_PART: &str = include_str!("scripts/reads_part.py");

#[test]
fn the_idle_part_of_a_busy_heap_goes_where_the_kernel_monitors() {
    if skipped(&["python3"]) {
        return;
    }
    let Some(_zram) = Zram::new() else { return };
    let mut python = Command::new("python3");
    python.args(["-c", READS_PART, "160", "10", "600"]);
    let mut child = python.stdout(Stdio::piped()).spawn().expect("python3 starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let service = Service(child);
    let pid = service.pid();
    // To mappings the heap is busy as a whole.
    let done = json(&["reclaim", "--pid", &pid, "--idle", "2s", "--for", "5s", "--ages", "mappings"]);
    assert!(done["means"].as_str().is_some_and(|means| means.contains("by mapping")), "{done}");
    assert!(resident(&pid) > 160 * MIB, "{done}");
    let output = refault(&["reclaim", "--pid", &pid, "--idle", "2s", "--for", "12s", "--ages", "kernel"]);
    let said = text(&output.stderr);
    if said.contains("the kernel's monitor cannot be used") || said.contains("does not take process") {
        return skip(format_args!("no kdamond to be had: {said}"));
    }
    assert!(output.status.success() && said.contains("kdamond"), "{said}");
    let left = resident(&pid);
    assert!((10 * MIB..80 * MIB).contains(&left), "{} MiB: {}", left / MIB, text(&output.stdout));
}

/// A memory cgroup of our own, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("refault-reclaim-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let made = roots.iter().map(|root| Path::new(root).join(&name)).find(|path| {
            std::fs::create_dir(path).is_ok()
                && ["memory.reclaim", "memory.limit_in_bytes"].iter().any(|file| path.join(file).exists())
        });
        if made.is_none() {
            skip("no right to make a memory cgroup");
        }
        made.map(Group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_control_group_is_shrunk_and_its_limit_is_what_it_was() {
    if skipped(&["node"]) {
        return;
    }
    let Some(_zram) = Zram::new() else { return };
    let Some(group) = Group::new() else { return };
    // What it has is charged where it was when it was touched first.
    let enter = format!("echo $$ > {}/cgroup.procs; exec node -e \"$0\"", group.0.display());
    let mut service = Service::start_as(&enter);
    let sum = service.sum();
    let limit = group.0.join("memory.limit_in_bytes");
    let before = std::fs::read_to_string(&limit).ok();
    let path = group.0.to_str().expect("UTF-8");
    let idle = json(&["reclaim", "--cgroup", path, "--idle", "2s", "--for", "6s"]);
    assert!(idle["reclaimed_bytes"].as_u64() >= Some(150 * MIB), "{idle}");
    assert_eq!(service.sum(), sum);
    let done = json(&["reclaim", "--cgroup", path, "--pressure", "20%", "--for", "5s"]);
    assert!(done["reclaimed_bytes"].as_u64() > Some(4 * MIB), "{done}");
    assert_eq!(std::fs::read_to_string(&limit).ok(), before);
    assert_eq!(service.sum(), sum);
    drop(service);
}

#[test]
fn no_more_of_a_group_is_said_to_go_than_it_may_have_in_swap() {
    let Some(_zram) = Zram::new() else { return };
    // What a group's directory looks like, with a GiB that needs swap in it, and these files; what is chosen in 3 s.
    let chosen = |more: &[(&str, &str)]| {
        let directory = TempDir::new().expect("a directory");
        std::fs::create_dir(directory.path().join("web")).expect("room");
        let usual = [
            ("web/cgroup.procs", ""),
            ("web/memory.reclaim", ""),
            ("web/memory.current", "1073741824\n"),
            ("web/memory.stat", "anon 1073741824\nshmem 0\n"),
            ("web/memory.pressure", "some avg10=0.00 total=0\n"),
        ];
        for (file, text) in usual.iter().chain(more) {
            std::fs::write(directory.path().join(file), text).expect("room");
        }
        let path = directory.path().join("web");
        let path = path.to_str().expect("UTF-8");
        let done = json(&["reclaim", "--cgroup", path, "--pressure", "50%", "--for", "3s", "--dry-run"]);
        done["chosen_bytes"].as_u64().expect("bytes")
    };
    let swap = [("web/memory.swap.max", "max\n"), ("cgroup.procs", ""), ("memory.swap.current", "4194304\n")];
    let some = [&swap[..], &[("memory.swap.max", "8388608\n")]].concat();
    let none = [&swap[..], &[("memory.swap.max", "max\n"), ("web/memory.swappiness", "0\n")]].concat();
    std::thread::scope(|scope| {
        // Each second 2 % of it.
        scope.spawn(|| assert!(chosen(&[]) > 15 * MIB));
        scope.spawn(|| assert_eq!(chosen(&some), 4 * MIB));
        assert_eq!(chosen(&none), 0, "nothing is swapped to shrink it");
    });
}

#[test]
fn sources_of_ages_that_the_kernel_does_not_have_or_that_are_not_for_the_target_are_refused() {
    let directory = TempDir::new().expect("a directory");
    for (file, text) in [("cgroup.procs", ""), ("memory.reclaim", ""), ("memory.current", "0\n")] {
        std::fs::write(directory.path().join(file), text).expect("room");
    }
    let path = directory.path().to_str().expect("UTF-8");
    let scheme = directory.path().join("cold.toml");
    std::fs::write(&scheme, "[[schemes]]\naction = \"pageout\"\n").expect("room");
    let scheme = scheme.to_str().expect("UTF-8");
    let pid = std::process::id().to_string();
    for (arguments, code, words) in [
        (&["reclaim", "--pid", &pid, "--idle", "1s", "--ages", "generations"][..], 2, "not for processes"),
        (&["reclaim", "--cgroup", path, "--scheme", scheme, "--ages", "generations"], 2, "not for schemes"),
        (&["reclaim", "--cgroup", path, "--idle", "1s", "--ages", "kernel"], 2, "not for control groups"),
        (&["reclaim", "--cgroup", path, "--idle", "1s", "--ages", "generations"], 1, "no generations of"),
        (&["wss", "--cgroup", path, "--source", "generations"], 1, "no generations of"),
        (&["wss", "--cgroup", "/tmp", "--ages", "10ms"], 2, "no memory cgroup: /tmp"),
    ] {
        let output = refault(arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{arguments:?}: {said}");
    }
    if !Path::new("/sys/kernel/mm/page_idle/bitmap").exists() {
        let output = refault(&["reclaim", "--pid", &pid, "--idle", "1s", "--ages", "pages"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("no idle-page bitmap"), "{said}");
    }
}

#[test]
fn the_working_set_of_a_group_is_that_of_its_processes() {
    if skipped(&["node"]) {
        return;
    }
    let Some(group) = Group::new() else { return };
    let enter = format!("echo $$ > {}/cgroup.procs; exec node -e \"$0\"", group.0.display());
    let service = Service::start_as(&enter);
    let path = group.0.to_str().expect("UTF-8");
    let done = json(&["wss", "--cgroup", path, "--ages", "1s,2s", "--source", "processes"]);
    let bytes = |key: &str| done["ages"][1][key].as_u64().expect("bytes");
    // 200 MiB, of which it looks at 20.
    assert!(bytes("resident_bytes") > 200 * MIB, "{done}");
    assert!((20 * MIB..120 * MIB).contains(&bytes("working_set_bytes")), "{done}");
    assert_eq!(done["cgroup"].as_str(), Some(path));
    drop(service);
}

#[test]
fn a_thread_of_the_kernel_s_has_no_memory_and_has_not_ended() {
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name != "kthreadd\n") {
        return refault_testing::skip("process 2 is not the kernel's in this namespace");
    }
    for arguments in [
        &["reclaim", "--pid", "2", "--idle", "1s", "--for", "2s"][..],
        &["reclaim", "--pid", "2", "--pressure", "1%", "--dry-run", "--for", "2s"],
        &["wss", "--pid", "2", "--ages", "1s"],
    ] {
        let output = refault(arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("it is the kernel's"), "{arguments:?}: {said}");
    }
}

#[test]
fn what_cannot_be_reclaimed_from_is_said() {
    for (arguments, code, words) in [
        (&["reclaim", "--pid", "4194305", "--idle", "1s"][..], 2, "no such process"),
        (&["reclaim", "--cgroup", "/tmp", "--pressure", "1%"], 2, "no memory cgroup: /tmp"),
        (&["reclaim", "--pid", "1"], 2, "wrong usage"),
        (&["reclaim", "--pid", "1", "--scheme", "/nonexistent"], 2, "cannot read: /nonexistent"),
    ] {
        let output = refault(arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{arguments:?}: {said}");
    }
    let swaps = std::fs::read_to_string("/proc/swaps").expect("text");
    if swaps.lines().count() == 1 {
        let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
        let output = refault(&["reclaim", "--pid", &child.id().to_string(), "--idle", "100ms", "--for", "600ms"]);
        child.kill().expect("it runs");
        child.wait().expect("it ran");
        // Other tests may have made a device meanwhile.
        let said = text(&output.stderr);
        assert!(said.contains("swap: none: only pages of files can go") || said.contains("swap: /dev/zram"), "{said}");
    } else if !Path::new("/usr/bin/node").exists() {
        skip_required("node is not installed");
    }
}
