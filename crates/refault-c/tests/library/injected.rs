//! Calls to the kernel that fail, under the doors in C and in SQLite: strace has one call of a kind fail, each in turn.
//! What was told to be durable is in the file, and a failed sync is told, with the file's name.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use refault_testing::skip_required;

use crate::common::archive;
use crate::shell::{extension, scratch};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const BYTES: usize = 8 * 4096;
const WRITES: usize = 6;
/// What may fail, and how.
const FAULTS: [(&str, &str); 6] = [
    ("pwritev", "EIO"),
    ("pwritev", "ENOSPC"),
    ("pwrite64", "EIO"),
    ("fdatasync", "EIO"),
    ("fsync", "EIO"),
    ("pread64", "EIO"),
];
/// Which of the calls of a kind fails, in turn.
const MAX_TURN: usize = 4;

/// Whether strace is here and may trace.
fn can_inject() -> bool {
    let tried = Command::new("strace").args(["-o", "/dev/null", "-e", "trace=none", "true"]).output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        skip_required("strace is not installed, or may not trace");
    }
    can
}

/// A command of whose calls of a kind on some files the `turn`th fails.
fn injected(call: &str, error: &str, turn: usize, files: &[&Path], program: &Path) -> Command {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    files.iter().for_each(|file| _ = traced.arg("-P").arg(file));
    traced.args(["-e", &format!("inject={call}:error={error}:when={turn}")]).arg(program);
    traced
}

fn text(output: &Output) -> String {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    assert!(output.status.success(), "{:?}: {}", output.status, String::from_utf8_lossy(&said));
    String::from_utf8(said).expect("text")
}

#[test]
fn what_c_was_told_is_durable_is_there_and_a_failed_sync_is_told_whichever_call_fails() {
    if !can_inject() {
        return;
    }
    let directory = scratch();
    let (program, path) = (directory.path().join("writes_on"), directory.path().join("data"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(Path::new(HERE).join("include"));
    cc.arg(Path::new(HERE).join("tests/c/writes_on.c")).arg(archive());
    let built = cc.args(["-lgcc_s", "-lm", "-ldl", "-lrt", "-lutil", "-o"]).arg(&program).output().expect("cc runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut told_of_syncs = 0;
    for (call, error) in FAULTS {
        for turn in 1..=MAX_TURN {
            std::fs::write(&path, vec![0; WRITES * BYTES]).expect("room");
            // Nothing of it is dirty when it is opened.
            File::open(&path).and_then(|file| file.sync_all()).expect("synced");
            let said = text(&injected(call, error, turn, &[&path], &program).arg(&path).output().expect("strace runs"));
            let case = format!("{call} {error} {turn}:\n{said}");
            let found = std::fs::read(&path).expect("reads");
            let (mut durable, mut failed) = (None, 0);
            let mut refused = [false; WRITES];
            for line in said.lines() {
                let (what, rest) = line.split_once(' ').expect("two words");
                let number = |text: &str| text.split(' ').next().and_then(|word| word.parse::<usize>().ok());
                match what {
                    "durable" => durable = durable.max(number(rest)),
                    "refused" => refused[number(rest).expect("a number")] = true,
                    "failed" => failed += 1,
                    _ => panic!("{case}"),
                }
                assert!(what == "durable" || line.contains("data"), "the file is not named: {case}");
            }
            for n in (0..WRITES).filter(|n| durable.is_some_and(|last| *n <= last) && !refused[*n]) {
                let whole = found[n * BYTES..][..BYTES].iter().all(|byte| usize::from(*byte) == n + 1);
                assert!(whole, "write {n} was told to be durable and is lost: {case}");
            }
            if matches!(call, "fdatasync" | "fsync") {
                told_of_syncs += failed;
            }
        }
    }
    assert!(told_of_syncs >= MAX_TURN, "failed syncs were told {told_of_syncs} times");
}

#[test]
fn what_sqlite_was_told_is_committed_is_there_whichever_call_fails() {
    let Some(extension) = extension() else { return };
    if !can_inject() {
        return;
    }
    let directory = scratch();
    let mut failures = 0;
    for mode in ["delete", "wal"] {
        for (call, error) in FAULTS {
            for turn in 1..=MAX_TURN {
                let database = directory.path().join(format!("{mode}-{call}-{error}-{turn}.db"));
                let plain = |script: &str| {
                    let output = Command::new("sqlite3").arg("-batch").arg(&database).arg(script).output();
                    text(&output.expect("sqlite3 runs"))
                };
                plain(&format!("PRAGMA journal_mode = {mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, x);"));
                let mut script = format!(
                    ".load {} sqlite3_refaultvfs_init\n.open file:{}?vfs=refault\nPRAGMA synchronous = full;\n",
                    extension.display(),
                    database.display()
                );
                let before = script.lines().count();
                for id in 1..=WRITES {
                    script += &format!("INSERT INTO t VALUES({id}, randomblob(9000));\n");
                }
                let statements = directory.path().join("statements");
                std::fs::write(&statements, script).expect("room");
                let beside = ["db-journal", "db-wal"].map(|extension| database.with_extension(extension));
                let files = [&database, &beside[0], &beside[1]].map(|file| file.as_path());
                let mut shell = injected(call, error, turn, &files, Path::new("sqlite3"));
                shell.args(["-batch", ":memory:"]).env("REFAULT_MEMORY", "1048576");
                shell.stdin(Stdio::from(File::open(&statements).expect("written")));
                // Its status is 1 when a statement has failed.
                let output = shell.output().expect("strace runs");
                let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
                let case = format!("{mode} {call} {error} {turn}:\n{said}");
                let failed = |id: usize| said.contains(&format!("near line {}:", before + id));
                let has_opened = !(1..=before).any(|line| said.contains(&format!("near line {line}:")));
                let missing: Vec<usize> = (1..=WRITES).filter(|id| failed(*id)).collect();
                failures += missing.len();
                assert!(plain("PRAGMA integrity_check;").trim() == "ok", "{case}");
                let there = plain("SELECT id FROM t ORDER BY id;");
                for id in (1..=WRITES).filter(|id| has_opened && !missing.contains(id)) {
                    assert!(there.lines().any(|line| line == id.to_string()), "row {id} was committed: {case}");
                }
            }
        }
    }
    assert!(failures > 0, "no fault was met");
}
