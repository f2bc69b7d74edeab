//! docs/reference/semantics.md, sentence by sentence, where tests/run.rs does not hold it already.

use crate::common;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::c_program::Program;
use crate::common::{skipped, text};

/// Pages of a file that begin with the mark. Holes, most of a dump, are passed over.
fn marked_pages(path: &std::path::Path) -> usize {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(path).expect("opens");
    let mut at = 0;
    let mut marked = 0;
    while let Ok(data) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(data)).expect("data ends somewhere");
        let mut page = [0; 8];
        for offset in (data..end).step_by(4096) {
            let read = file.read_at(&mut page, offset).expect("reads");
            marked += usize::from(read == 8 && page == *b"MARK0000");
        }
        at = end;
    }
    marked
}

#[test]
fn a_core_dump_holds_the_resident_pages_and_ends_soon() {
    if skipped(&["gcc"]) {
        return;
    }
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('|') || pattern.contains('/') {
        refault_testing::skip("core dumps do not go to the working directory here");
        return;
    }
    let program = Program::new(include_str!("c/dumps_core.c"));
    let output = program.run("4M", &[]);
    assert_eq!(output.status.signal(), Some(6), "{}", text(&output.stderr));
    let core = std::fs::read_dir(program.directory.path())
        .expect("reads")
        .flatten()
        .find(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with("core")));
    let Some(core) = core else {
        refault_testing::skip("no core dump was written");
        return;
    };
    // A dump that walked what is only reserved would take minutes; the holes tell how much was walked.
    let walked = core.metadata().expect("is there").len();
    assert!(walked < 4 << 30, "{walked} bytes");
    let marked = marked_pages(&core.path());
    assert!((100..=1024).contains(&marked), "{marked} of 4096 pages, 1024 may be resident");
}

#[test]
fn any_thread_may_fork_whatever_is_evicted() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/threads_fork.c"));
    program.succeeds("3M", &[]);
}

/// A thread that starts reads the locale's tables, and in a forked child it does so before faults are served there.
#[test]
fn a_child_is_whole_when_the_locale_was_evicted() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/fork_after_setlocale.c"));
    program.succeeds("2M", &[]);
}

#[test]
fn set_uid_programs_and_those_of_another_libc_are_told_apart() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/done.c"));
    let refused = |path: &std::path::Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_refault"))
            .args(["run", "--backend", "pager", "--memory", "64M", "--"])
            .arg(path)
            .output()
            .expect("refault starts");
        (output.status.code(), text(&output.stderr))
    };
    // The loader's name, replaced by another libc's of the same length.
    let mut bytes = std::fs::read(&program.path).expect("reads");
    const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
    let other = b"/lib/ld-musl-x86_64.so.1\0\0\0\0";
    match bytes.windows(LOADER.len()).position(|window| window == LOADER) {
        Some(at) => {
            bytes[at..at + LOADER.len()].copy_from_slice(other);
            let path = program.directory.path().join("musl");
            std::fs::write(&path, &bytes).expect("writes");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permits");
            let (code, line) = refused(&path);
            assert!(code == Some(1) && line.contains("glibc build") && line.contains("ld-musl"), "{line}");
        }
        None => refault_testing::skip("another loader than x86-64 glibc's"),
    }
    let path = program.directory.path().join("setuid");
    std::fs::copy(&program.path, &path).expect("copies");
    if std::os::unix::fs::chown(&path, Some(65534), Some(65534)).is_err() {
        refault_testing::skip_required("only root can make another user's set-uid program");
        return;
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("permits");
    let (code, line) = refused(&path);
    assert!(code == Some(1) && line.contains("set-uid") && line.lines().count() == 1, "{line}");
}

#[test]
fn a_program_in_valgrind_is_not_managed_and_runs() {
    if skipped(&["valgrind"]) {
        return;
    }
    let run = common::refault(&["run", "--memory", "8M", "--", "valgrind", "-q", "echo", "hi"]);
    let said = text(&run.stderr);
    assert!(run.status.success() && text(&run.stdout) == "hi\n", "{:?} {said}", run.status);
    assert!(said.contains("runs in valgrind: it is not managed"), "{said}");
}

/// Between two looks of once per second such a child would not be seen.
#[test]
fn an_unmanaged_child_that_lives_for_a_quarter_of_a_second_is_named() {
    if skipped(&["gcc", "sh", "env"]) {
        return;
    }
    let program = Program::new(include_str!("c/lives_shortly.c"));
    let command = "sleep 0.5; env -i ./program; true";
    let run = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["run", "--memory", "20M", "--", "sh", "-c", command])
        .current_dir(program.directory.path())
        .output()
        .expect("refault starts");
    let said = text(&run.stderr);
    assert!(run.status.success() && text(&run.stdout) == "done\n", "{:?} {said}", run.status);
    let line = said.lines().find(|line| line.contains("processes that are not managed")).unwrap_or_default();
    let (_, size) = line.split_once("up to ").unwrap_or_default();
    let mib = size.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    assert!(mib.is_some_and(|mib| (24.0..26.0).contains(&mib)), "{said}");
}

/// What shares a process's memory until it becomes another program has nothing beside it.
#[test]
fn children_that_are_about_to_become_programs_are_not_named() {
    if skipped(&["gcc", "true"]) {
        return;
    }
    let program = Program::new(include_str!("c/lives_shortly.c"));
    for arguments in [&["300"][..], &["4", "200000"]] {
        let said = program.comes_through_with("40M", &[], arguments);
        assert!(!said.contains("not managed"), "{arguments:?} {said}");
    }
}

/// The emulator is managed, and with it what it emulates; there is no userfaultfd in what it emulates.
#[test]
fn an_emulated_program_is_managed_with_its_emulator() {
    if skipped(&["qemu-x86_64"]) {
        return;
    }
    let count = "awk 'BEGIN { for (i = 0; i < 200000; i++) a[i] = i \"x\"; n = 0; for (i in a) n++; print n }'";
    let run = common::refault(&["run", "--memory", "32M", "--", "qemu-x86_64", "/bin/sh", "-c", count]);
    let said = text(&run.stderr);
    assert!(run.status.success() && text(&run.stdout) == "200000\n", "{:?} {said}", run.status);
    assert!(said.contains("is emulated: it is managed with its emulator's memory"), "{said}");
}

/// `write` to a socket is made of pieces by `sendmsg`, which may be forbidden to a program that never calls it.
#[test]
fn what_is_sent_needs_no_more_calls_than_the_program_makes() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/no_sendmsg.c"));
    let run = std::process::Command::new("timeout")
        .args(["-k", "5", "60"])
        .arg(&program.path)
        .args([env!("CARGO_BIN_EXE_refault"), "run", "--memory", "8M", "--"])
        .arg(&program.path)
        .output()
        .expect("timeout starts");
    assert!(run.status.success() && text(&run.stdout) == "done\n", "{:?} {}", run.status, text(&run.stderr));
}

/// What is locked by many calls, or by all processes together, fits into the budget, as what is locked by one does.
#[test]
fn what_is_locked_bit_by_bit_fits_into_the_budget() {
    if skipped(&["gcc"]) {
        return;
    }
    const MIB: u64 = 1 << 20;
    let program = Program::new(include_str!("c/small_locks.c"));
    let summary = program.directory.path().join("summary.json");
    let output = program.run("24M", &["--summary", summary.to_str().expect("UTF-8")]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    let numbers = |line: &str| -> Vec<i64> {
        let line = said.lines().find_map(|each| each.strip_prefix(line)).unwrap_or_else(|| panic!("{line} {said}"));
        line.split(|c: char| !c.is_ascii_digit() && c != '-').filter_map(|word| word.parse().ok()).collect()
    };
    // All but what the tool itself takes and a process cannot do without.
    let [one, changed] = numbers("one: ")[..] else { panic!("{said}") };
    assert!((18..24).contains(&one) && changed == 0 && said.contains("Cannot allocate memory, changed"), "{said}");
    assert_eq!(numbers("again: "), [0, -1, 0, 0, 0], "{said}");
    assert!(said.contains("all: -1 Cannot allocate memory, then 0\n"), "{said}");
    let summary = std::fs::read_to_string(&summary).expect("a summary");
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    let peak = summary["peak_bytes"].as_u64().unwrap_or_else(|| panic!("{summary}"));
    assert!(peak <= 24 * MIB * 102 / 100, "{peak} bytes: {summary}");
}

/// What `small_locks.c` prints with this argument in 24 MiB. It is ended after a minute.
fn small_locks(argument: &str) -> String {
    small_locks_in("24M", argument)
}

fn small_locks_in(memory: &str, argument: &str) -> String {
    let program = Program::new(include_str!("c/small_locks.c"));
    let output = Command::new("timeout")
        .args(["-k", "5", "60", env!("CARGO_BIN_EXE_refault"), "run", "--memory", memory, "--"])
        .arg(&program.path)
        .arg(argument)
        .output()
        .expect("timeout starts");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{:?} {said} {}", output.status, text(&output.stderr));
    said
}

/// What the tool has reserved does not stand in the way of a program that limits its addresses. The program may use up
/// all of them.
#[test]
fn a_programs_limit_of_addresses_is_its_own() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/own_limit.c"));
    let output = program.run("16M", &["--quiet"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{:?} {said} {}", output.status, text(&output.stderr));
    let (got, rest) = said.split_once(" MiB, ").unwrap_or_else(|| panic!("{said}"));
    // Alone it gets 197. The tool takes less than half: addresses for the compressed pool and its tables, and itself.
    assert!((80..200).contains(&got.parse::<u64>().expect("a number")) && rest == "0 wrong, thread 0\n", "{said}");
}

#[test]
fn what_is_locked_counts_when_it_grows_and_without_rights() {
    if skipped(&["gcc"]) {
        return;
    }
    let said = small_locks("moves");
    assert!(said.contains("moves: 0 Resource temporarily unavailable -1 0, wrong 0\n"), "{said}");
    assert!(said.contains("rights: 0 0 -1 0, -1 -1 0, wrong 0\n"), "{said}");
    // What a call in progress needs stays, whatever becomes of a lock.
    assert_eq!(small_locks("reads"), "reads: 32768 32768 32768\n");
    // Rights that the kernel has given count, though the call says ENOMEM.
    // What is compressed beside much that is locked goes to the file.
    let said = small_locks("beside");
    let numbers: Vec<u64> = said.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
    assert!(numbers.len() == 2 && numbers[0] >= 18 && numbers[1] <= 24, "{said}");
    let said = small_locks("hole");
    let resident = said.strip_prefix("hole: -1 ").and_then(|rest| rest.trim().parse::<u64>().ok());
    assert!(resident.is_some_and(|mebibytes| mebibytes <= 24), "{said}");
}

#[test]
fn what_processes_lock_together_fits_into_the_budget() {
    if skipped(&["gcc"]) {
        return;
    }
    let said = small_locks("children");
    let counts: Vec<u32> = said.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
    assert!(counts.len() == 2 && counts[0] >= 17 && counts[0] + counts[1] < 24, "{said}");
    // Those of a process that was killed are free at once; those of a parent are known after a fork and a failed exec.
    assert_eq!(small_locks("heirs"), "heirs: 0 0 -1 -1\n");
}

/// What is mapped locked counts as what is locked later does, and leaves memory once it is unlocked.
#[test]
fn what_is_mapped_locked_counts_and_leaves_when_it_is_unlocked() {
    if skipped(&["gcc"]) {
        return;
    }
    let said = small_locks("mapped");
    let (answers, rest) = said.rsplit_once(", wrong ").unwrap_or_else(|| panic!("{said}"));
    let (answers, stays) = answers.rsplit_once(", ").unwrap_or_else(|| panic!("{said}"));
    let again = "Resource temporarily unavailable";
    assert_eq!(answers, format!("mapped: Success, {again}, 0 0, Success, {again}, Cannot allocate memory"));
    assert!(stays.parse::<u64>().is_ok_and(|mebibytes| mebibytes <= 24) && rest == "0\n", "{said}");
}

/// Keys and their kin: whatever the others need, a process can lock a quarter of a mebibyte.
#[test]
fn a_little_can_be_locked_though_nothing_is_left() {
    if skipped(&["gcc"]) {
        return;
    }
    assert_eq!(small_locks_in("6M", "little"), "little: 0 0 0 0, changed 0\n");
}

/// The kernel does not move pages that may not be written to. They go by a copy, whatever order the policy gives pages up in.
#[test]
fn pages_that_may_not_be_written_go_too() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/only_read_part.c"));
    for (quarters, begin) in [("4", "0"), ("8", "0"), ("8", "7"), ("16", "12"), ("48", "2"), ("64", "0")] {
        program.comes_through_with("8M", &["--summary", "summary.json"], &[quarters, begin]);
        let text = std::fs::read_to_string(program.directory.path().join("summary.json")).expect("it was written");
        let summary: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let peak = summary["peak_bytes"].as_u64().unwrap_or_else(|| panic!("{summary}"));
        assert!(peak <= 8 << 20, "{quarters} quarters at {begin}: {peak} bytes");
    }
}

#[test]
fn what_a_program_has_from_its_start_is_there_as_alone() {
    if skipped(&["gcc", "setsid"]) {
        return;
    }
    let program = Program::new(include_str!("c/inherits.c"));
    let ends_well = |command: &mut Command, argument: &str| {
        command
            .args(["run", "--memory", "8M", "--"])
            .arg(&program.path)
            .args((!argument.is_empty()).then_some(argument));
        let output = command.output().expect("it starts");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out == "done\n", "{argument}: {:?}\n{out}\n{err}", output.status);
    };
    let refault = env!("CARGO_BIN_EXE_refault");
    // Ignored and blocked signals.
    ends_well(&mut Command::new(refault), "");
    ends_well(Command::new("setsid").args(["-w", refault]), "group");
    ends_well(Command::new("sh").args(["-c", "trap '' PIPE; exec \"$0\" \"$@\"", refault]), "pipe");
    ends_well(Command::new("sh").args(["-c", "exec \"$0\" \"$@\" <&- 2>&-", refault]), "closed");
    ends_well(Command::new(refault).env("LD_PRELOAD", library(&program, "LIBRARY")), "alternate");
}

/// The library that a program's source is with this defined.
fn library(program: &Program, defined: &str) -> std::path::PathBuf {
    let library = program.directory.path().join(defined).with_extension("so");
    let built = Command::new("gcc")
        .args(["-shared", "-fPIC", "-w", "-pthread", "-DLIBRARY"])
        .arg(format!("-D{defined}"))
        .arg("-o")
        .args([&library, &program.directory.path().join("program.c")])
        .status()
        .expect("gcc starts");
    assert!(built.success());
    library
}

#[test]
fn threads_of_libraries_that_are_there_before_use_memory_as_all_do_or_it_is_not_managed() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/threads_before.c"));
    for (defined, is_managed) in [("LIBRARY", true), ("UNREACHABLE", false)] {
        // Its constructor runs before the agent begins, as that of every library that a program is linked with.
        let linked = program.directory.path().join(format!("with-{defined}"));
        let built = Command::new("gcc")
            .args(["-O1", "-w", "-pthread", "-Wl,--no-as-needed", "-o"])
            .args([&linked, &program.directory.path().join("program.c"), &library(&program, defined)])
            .status()
            .expect("gcc starts");
        assert!(built.success());
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60", env!("CARGO_BIN_EXE_refault"), "run", "--memory", "8M", "--"]).arg(&linked);
        let output = command.output().expect("it starts");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out == "done\n", "{defined}: {:?}\n{out}\n{err}", output.status);
        assert_eq!(err.contains("is not managed: a library has started a thread"), !is_managed, "{err}");
        assert_ne!(err.contains(" 0 pages stored"), is_managed, "{err}");
    }
}

#[test]
fn refusals_of_a_filter_come_as_signals_in_threads_that_begin_later() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/filter_traps_threads.c"));
    program.comes_through("8M", &[]);
    program.comes_through_with("8M", &[], &["all threads"]);
}
