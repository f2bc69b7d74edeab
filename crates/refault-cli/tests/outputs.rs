//! Nothing is lost: outputs that are inputs, files of another kind, commands that fail or are interrupted, and a
//! standard error without a reader.

use crate::common;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{refault, stdout, text, trace, wait_for};
use tempfile::TempDir;

fn binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("refault")
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("its path is UTF-8")
}

/// The files of a directory, hidden ones too.
fn listed(directory: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(directory.path()).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn refused(arguments: &[&str], expected: &str) {
    let output = refault(arguments);
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
    assert!(line.contains(expected) && line.lines().count() == 1, "{arguments:?}: {line}");
}

#[test]
fn an_output_is_no_input_whatever_it_is_called() {
    let directory = TempDir::new().expect("a temporary directory");
    let csv = directory.path().join("m.csv");
    std::fs::write(&csv, "page,op\n1,r\n2,w\n1,r\n").expect("ours");
    let (hard, soft) = (directory.path().join("hard.csv"), directory.path().join("soft.csv"));
    std::fs::hard_link(&csv, &hard).expect("ours");
    std::os::unix::fs::symlink(&csv, &soft).expect("ours");
    let before = std::fs::read(&csv).expect("ours");
    let (csv, hard, soft) = (utf8(&csv), utf8(&hard), utf8(&soft));
    let some = ["--policy", "lru", "--memory", "1p"];
    for output in [csv, hard, soft] {
        for option in ["--out", "--report"] {
            refused(&[&["compare", csv], &some[..], &[option, output]].concat(), "is the same file as an input");
            refused(&["mrc", csv, option, output], "is the same file as an input");
        }
        refused(&["trace", "info", csv, "--report", output], "is the same file as an input");
        refused(&["trace", "convert", csv, output], "is the same file as an input");
    }
    let both = utf8(&directory.path().join("same.txt")).to_owned();
    refused(&[&["compare", csv], &some[..], &["--out", &both, "--report", &both]].concat(), "same file as --out");
    let scenario = directory.path().join("s.toml");
    std::fs::write(&scenario, SCENARIO).expect("ours");
    for option in ["--out", "--samples", "--report"] {
        refused(&["scenario", utf8(&scenario), option, utf8(&scenario)], "is the same file as an input");
    }
    assert_eq!(std::fs::read(csv).expect("ours"), before);
    assert_eq!(listed(&directory), ["hard.csv", "m.csv", "s.toml", "soft.csv"]);
}

const SCENARIO: &str = "[machine]\nmemory = \"16M\"\nsample = \"1s\"\nfile_device = \"nvme\"\n\n[[task]]\nname = \"t\"\n\
                        [[task.workload]]\nspec = \"uniform:pages=100,accesses=2000,kind=anon\"\n";

#[test]
fn a_file_of_another_kind_needs_force() {
    let directory = TempDir::new().expect("a temporary directory");
    let input = trace(&directory, "t.u64", [1, 2, 1]);
    let script = directory.path().join("v.py");
    std::fs::write(&script, "import sys\nprint(1)\n").expect("ours");
    let script = utf8(&script);
    let compare = ["compare", &input, "--policy", "lru", "--memory", "1p"];
    refused(&[&compare[..], &["--out", script]].concat(), "would replace a file that is not a table");
    // A table is no page and no trace, in a new file as well.
    for (name, named) in [("x.html", "an HTML report"), ("w.rft", "an .rft trace")] {
        let path = directory.path().join(name);
        let expected = format!("--out would write a table to a file that is named as {named}");
        refused(&[&compare[..], &["--out", utf8(&path)]].concat(), &expected);
        assert!(!path.exists());
    }
    refused(&[&compare[..], &["--report", script]].concat(), "would replace a file that is not an HTML report");
    refused(&["record", "--out", script, "--", "true"], "would replace a file that is not an .rft trace");
    refused(&["record", "--out", script, "--", "python3", script], "is the same file as an input");
    assert_eq!(std::fs::read_to_string(script).expect("ours"), "import sys\nprint(1)\n");
    stdout(&[&compare[..], &["--out", script, "--force"]].concat());
    assert!(std::fs::read_to_string(script).expect("ours").contains("distinct pages"));
    // What is of the kind is replaced without a word.
    let report = directory.path().join("r.html");
    for _ in 0..2 {
        stdout(&[&compare[..], &["--report", utf8(&report)]].concat());
    }
}

#[test]
fn paths_are_checked_before_the_work() {
    let directory = TempDir::new().expect("a temporary directory");
    let input = trace(&directory, "t.u64", [1, 2, 1]);
    for (option, path) in [("--out", "/nowhere/at-all/x.csv"), ("--report", "/nowhere/at-all/x.html")] {
        for command in ["compare", "mrc"] {
            let output = refault(&[command, &input, option, path]);
            assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
            assert!(text(&output.stderr).contains(path) && output.stdout.is_empty(), "{command} {option}");
        }
    }
}

#[test]
fn a_command_that_fails_leaves_the_old_file() {
    let directory = TempDir::new().expect("a temporary directory");
    let good = trace(&directory, "good.u64", [1, 2, 3]);
    let bad = directory.path().join("bad.text");
    std::fs::write(&bad, "1\nx\n").expect("ours");
    let before = std::fs::read(&good).expect("ours");
    let output = refault(&["trace", "convert", utf8(&bad), &good]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(&good).expect("ours"), before);
    assert_eq!(listed(&directory), ["bad.text", "good.u64"]);
}

#[test]
fn an_interrupted_command_leaves_nothing() {
    let directory = TempDir::new().expect("a temporary directory");
    let old = directory.path().join("old.u64");
    std::fs::write(&old, [0; 8]).expect("ours");
    for name in ["old.u64", "new.u64.zst", "new.rft"] {
        let path = directory.path().join(name);
        let workload = "zipf:theta=1,pages=1M,accesses=1G";
        let mut child = Command::new(binary())
            .args(["trace", "generate", workload, utf8(&path)])
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let pid = rustix::process::Pid::from_child(&child);
        // A file without a name is one of its descriptors all the same.
        let is_ours = |file: PathBuf| std::fs::read_link(file).is_ok_and(|place| place.starts_with(directory.path()));
        let descriptors = format!("/proc/{}/fd", child.id());
        wait_for("its output to be open", || {
            std::fs::read_dir(&descriptors).expect("it runs").flatten().any(|entry| is_ours(entry.path()))
        });
        // Not SIGINT, which what a shell starts in the background ignores.
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(!child.wait().expect("it ends").success());
    }
    assert_eq!(listed(&directory), ["old.u64"]);
    assert_eq!(std::fs::read(&old).expect("ours"), [0; 8]);
}

#[test]
fn an_output_keeps_permissions_and_links() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new().expect("a temporary directory");
    let input = trace(&directory, "t.u64", [1, 2, 1]);
    let target = directory.path().join("r.csv");
    std::fs::write(&target, "a,b\n").expect("ours");
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).expect("ours");
    let link = directory.path().join("link.csv");
    std::os::unix::fs::symlink("r.csv", &link).expect("ours");
    stdout(&["compare", &input, "--policy", "lru", "--memory", "1p", "--out", utf8(&link)]);
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    let metadata = std::fs::metadata(&target).expect("there");
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len() > 4), (0o640, true));
}

/// Every way in which a standard error can be of no use.
fn deaf() -> Vec<(&'static str, Stdio)> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    vec![
        ("full", Stdio::from(File::options().write(true).open("/dev/full").expect("there"))),
        ("read-only", Stdio::from(File::open("/dev/null").expect("there"))),
        ("a broken pipe", Stdio::from(writer)),
    ]
}

#[test]
fn a_deaf_standard_error_changes_no_exit_code() {
    let directory = TempDir::new().expect("a temporary directory");
    let input = trace(&directory, "t.u64", [1, 2, 1]);
    let (report, out) = (directory.path().join("r.html"), directory.path().join("o.rft"));
    let compare = ["compare", &input, "--policy", "lru", "--memory", "1p", "--report", utf8(&report)];
    let cases: [(&[&str], i32); 6] = [
        (&compare, 0),
        (&["mrc", &input, "--report", utf8(&report)], 0),
        (&["trace", "convert", &input, utf8(&out)], 0),
        (&["compare", "--trace", "nope.u64"], 2),
        (&["nonsense"], 2),
        (&["trace", "convert", &input, "/nowhere/at-all.u64"], 1),
    ];
    for (arguments, code) in cases {
        for (name, stderr) in deaf() {
            let status = Command::new(binary()).args(arguments).stdout(Stdio::null()).stderr(stderr).status();
            assert_eq!(status.expect("it starts").code(), Some(code), "{arguments:?} with {name}");
        }
    }
}

#[test]
fn a_deaf_standard_error_stops_no_program() {
    if common::skipped(&["python3"]) {
        return;
    }
    let directory = TempDir::new().expect("a temporary directory");
    let (mark, stats) = (directory.path().join("mark"), directory.path().join("s.jsonl"));
    let program = format!("open({:?}, 'w').close(); raise SystemExit(3)", utf8(&mark));
    for (name, stderr) in deaf() {
        let _ = std::fs::remove_file(&mark);
        let status = Command::new(binary())
            .args(["run", "--memory", "64M", "--stats", utf8(&stats), "--", "python3", "-c", &program])
            .stderr(stderr)
            .status()
            .expect("it starts");
        assert_eq!((status.code(), mark.exists()), (Some(3), true), "{name}");
    }
}

#[test]
fn a_full_standard_output_is_an_error_and_a_broken_one_is_none() {
    let directory = TempDir::new().expect("a temporary directory");
    let stats = directory.path().join("run.jsonl");
    let line = r#"{"pid":1,"resident_bytes":4096,"refaults_per_second":1.0,"budget_bytes":8192}"#;
    std::fs::write(&stats, format!("{line}\n")).expect("ours");
    let mut cases = vec![
        vec!["top", "--once", utf8(&stats)],
        vec!["policies"],
        vec!["workloads", "--format", "json"],
        vec!["completions", "bash"],
        vec!["man", "run"],
        vec!["scenario", "init"],
        vec!["--version"],
        vec!["help", "trace"],
        vec!["trace", "info", "--help"],
        vec!["--help"],
        vec!["-h"],
    ];
    let help = stdout(&["--help"]);
    let commands: Vec<&str> = listed_commands(&help).collect();
    assert!(commands.len() > 15 && commands.contains(&"run"), "{commands:?}");
    cases.extend(commands.iter().map(|command| vec![*command, "--help"]));
    for arguments in cases {
        let said = |stdout: Stdio| {
            let output = Command::new(binary()).args(&arguments).stdout(stdout).stderr(Stdio::piped()).output();
            let output = output.expect("it starts");
            (output.status.code(), text(&output.stderr))
        };
        for (place, words) in [
            (File::options().write(true).open("/dev/full"), "No space left on device"),
            (File::open("/dev/null"), "Bad file descriptor"),
        ] {
            let (code, line) = said(Stdio::from(place.expect("there")));
            let expected = format!("refault: cannot write: standard output: {words}; ");
            assert!(line.starts_with(&expected) && line.lines().count() == 1, "{arguments:?}: {line}");
            assert_eq!(code, Some(1), "{arguments:?}: {words}");
        }
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(said(Stdio::from(writer)), (Some(0), String::new()), "{arguments:?}");
    }
}

/// The commands that a help lists.
fn listed_commands(help: &str) -> impl Iterator<Item = &str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What goes on from the line before stands further in.
    listed.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' ')).filter_map(|line| {
        let name = line.split_whitespace().next()?;
        (name != "help").then_some(name)
    })
}

#[test]
fn options_without_effect_are_refused() {
    let directory = TempDir::new().expect("a temporary directory");
    let input = trace(&directory, "t.u64", [1, 2, 1]);
    for option in
        [&["--skip-instructions"][..], &["--columns", "page=1"], &["--objects-have-sizes"], &["--block-bytes", "512"]]
    {
        refused(&[&["compare", &input][..], option].concat(), option[0]);
        refused(&[&["trace", "info", &input][..], option].concat(), "an option without effect");
    }
    refused(&["compare", "--workload", "uniform", "--collapse"], "--collapse");
    refused(&["monitor", "--report", "x.html", "--pattern", "stairs"], "--report");
}

/// What a child took of a processor, which does not depend on who else is waiting for one.
fn processor_time(child: Child) -> Duration {
    // SAFETY: of zeroes, which are a usage.
    let (mut status, mut usage) = (0, unsafe { std::mem::zeroed::<libc::rusage>() });
    // SAFETY: both are variables of this function, and the child is not waited for elsewhere.
    let ended = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert_eq!((ended, status), (child.id() as i32, 0));
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[test]
fn the_view_of_a_long_file_takes_time_in_proportion_to_it() {
    let directory = TempDir::new().expect("a temporary directory");
    let line = format!(
        r#"{{"pid":1,"resident_bytes":4096,"refaults_per_second":1.0,"budget_bytes":8192,"pad":"{}"}}"#,
        "x".repeat(1800)
    );
    let time = |lines: usize| {
        let path = directory.path().join(format!("{lines}.jsonl"));
        std::fs::write(&path, format!("{line}\n").repeat(lines)).expect("ours");
        let mut command = Command::new(binary());
        let child = command.args(["top", "--once", utf8(&path)]).stdout(Stdio::null()).spawn().expect("it starts");
        processor_time(child)
    };
    time(100);
    let (short, long) = (time(2_000), time(20_000));
    // Ten times the lines took over seventy times as long when each line moved all that follow it.
    assert!(long < short * 25 + Duration::from_millis(500), "{short:?}, {long:?}");
    let broken = directory.path().join("broken.jsonl");
    std::fs::write(&broken, format!("{line}\nnonsense\n")).expect("ours");
    refused(&["top", "--once", utf8(&broken)], "line 2");
}
