//! `refault host --files`: files whose pages in the cache are known.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::common::{refault, rows, stdout, text};
use refault_testing::cgroup::Group;
use serde_json::Value;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on a disk")
}

/// What is found below a path, without ages, which go on.
fn found(path: &Path, more: &[&str]) -> Value {
    let path = path.to_str().expect("UTF-8");
    let mut found: Value =
        serde_json::from_str(&stdout(&[&["host", "--json"], more, &["--files", path]].concat())).expect("JSON");
    for file in found["largest"].as_array_mut().expect("files") {
        let age = file.as_object_mut().expect("an object").remove("age_seconds");
        assert!(age.is_some_and(|age| age.as_u64() < Some(3600)), "{file}");
    }
    found
}

fn cached(found: &Value, name: &str) -> Option<u64> {
    let all = found["largest"].as_array().expect("files");
    all.iter().find(|file| file["path"].as_str().is_some_and(|path| path.ends_with(name)))?["cached_bytes"].as_u64()
}

/// Writes a file, lets go of it, and reads its beginning.
fn file(directory: &Path, name: &std::ffi::OsStr, size: u64, read: u64) {
    let path = directory.join(name);
    std::fs::write(&path, vec![7; size as usize]).expect("room");
    let file = std::fs::File::open(&path).expect("it is there");
    file.sync_all().expect("written");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("a file");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("a file");
    file.take(read).read_to_end(&mut Vec::new()).expect("reads");
}

#[test]
fn what_is_cached_of_each_file_is_told_and_looking_changes_nothing() {
    let directory = scratch();
    let inner = directory.path().join("inner");
    std::fs::create_dir(&inner).expect("room");
    file(&inner, "large".as_ref(), 8 * MIB, 6 * MIB);
    file(directory.path(), "small".as_ref(), 4 * MIB, MIB);
    file(directory.path(), "cold".as_ref(), 4 * MIB, 0);
    std::fs::write(directory.path().join("empty"), "").expect("room");
    std::os::unix::fs::symlink("/etc/passwd", directory.path().join("link")).expect("room");
    rustix::fs::mkfifoat(rustix::fs::CWD, directory.path().join("fifo"), rustix::fs::Mode::RUSR).expect("room");
    let first = found(directory.path(), &[]);
    assert_eq!(
        (cached(&first, "/large"), cached(&first, "/small"), cached(&first, "/cold")),
        (Some(6 * MIB), Some(MIB), None)
    );
    assert_eq!((&first["files"], &first["refused"], &first["cached_bytes"]), (&4.into(), &0.into(), &(7 * MIB).into()));
    assert_eq!(first["largest"][0]["dirty_bytes"], 0);
    assert_eq!(found(directory.path(), &[]), first, "looking changed what was looked at");
    let one = found(directory.path(), &["--top", "1"]);
    assert_eq!((one["largest"].as_array().map(Vec::len), &one["cached_bytes"]), (Some(1), &(7 * MIB).into()));
    let path = directory.path().to_str().expect("UTF-8");
    let csv = rows(&stdout(&["host", "--csv", "--files", path]));
    assert_eq!((csv.len(), csv[1][2].as_str()), (3, (6 * MIB).to_string().as_str()));
}

#[test]
fn a_file_s_pages_are_of_the_group_that_read_them() {
    let Ok(group) = Group::new("files") else { return refault_testing::skip_required("no memory cgroup can be made") };
    let directory = scratch();
    file(directory.path(), "read".as_ref(), 4 * MIB, 0);
    let read = group.command("cat").arg(directory.path().join("read")).output().expect("sh is there");
    assert_eq!(read.stdout.len() as u64, 4 * MIB);
    let found = found(directory.path(), &[]);
    assert_eq!(cached(&found, "/read"), Some(4 * MIB));
    let share = &found["largest"][0]["groups"][0];
    assert_eq!((&share["path"], &share["percent"]), (&group.path().into(), &100.into()), "{found}");
    // Until nothing is charged to it any more, the group cannot go.
    group.write(&["memory.force_empty", "memory.reclaim"], "4194304").expect("it can be emptied");
}

#[test]
fn what_is_dropped_is_confirmed_and_written_first() {
    let directory = scratch();
    file(directory.path(), "clean".as_ref(), 2 * MIB, 2 * MIB);
    std::fs::write(directory.path().join("dirty"), vec![9; MIB as usize]).expect("room");
    let path = directory.path().to_str().expect("UTF-8");
    let refused = refault(&["host", "--drop", path]);
    assert!(
        refused.status.code() == Some(2) && text(&refused.stderr).contains("add --yes"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(found(directory.path(), &[])["cached_bytes"], 3 * MIB);
    assert!(text(&refused.stderr).contains(&format!("let go of 2 files below {path}, of which")));
    let one = text(&refault(&["host", "--drop", &format!("{path}/dirty")]).stderr);
    assert!(one.contains(&format!("let go of {path}/dirty, of which")), "{one}");
    let dropped = refault(&["host", "--drop", path, "--yes"]);
    assert!(dropped.status.success() && text(&dropped.stderr).contains("let go of"), "{}", text(&dropped.stderr));
    assert_eq!(found(directory.path(), &[])["cached_bytes"], 0);
    assert_eq!(std::fs::read(directory.path().join("dirty")).expect("it is there"), vec![9; MIB as usize]);
}

#[test]
fn what_is_kept_stays_in_memory_until_the_command_ends() {
    let directory = scratch();
    file(directory.path(), "kept".as_ref(), 2 * MIB, 0);
    let path = directory.path().to_str().expect("UTF-8");
    let mut keeper = std::process::Command::new(assert_cmd::cargo::cargo_bin("refault"))
        .args(["host", "--keep", path, "--yes"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut said = std::io::BufReader::new(keeper.stderr.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut said, &mut line).expect("it says so");
    assert!(line.contains("stay in memory"), "{line}");
    // Letting go does not take what is locked.
    assert!(refault(&["host", "--drop", path, "--yes"]).status.success());
    assert_eq!(cached(&found(directory.path(), &[]), "/kept"), Some(2 * MIB));
    keeper.kill().expect("it runs");
    keeper.wait().expect("it ends");
}

#[test]
fn names_of_files_break_no_line_and_no_terminal() {
    let directory = scratch();
    file(directory.path(), std::ffi::OsStr::from_bytes(b"a\n\x1b[31m\xff"), MIB, MIB);
    let path = directory.path().to_str().expect("UTF-8");
    for form in [&[][..], &["--csv"], &["--json"]] {
        let out = stdout(&[&["host"], form, &["--files", path]].concat());
        assert!(!out.chars().any(|c| c.is_control() && c != '\n'), "{out:?}");
        assert!(out.contains("a\\n\\u{1b}[31m\\xff") || out.contains("a\\\\n\\\\u{1b}[31m\\\\xff"), "{out}");
    }
    let missing = refault(&["host", "--files", "/no/such/place"]);
    assert!(missing.status.code() == Some(2) && text(&missing.stderr).contains("/no/such/place"));
}
