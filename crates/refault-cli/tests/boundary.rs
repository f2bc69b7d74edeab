//! Programs under `refault run`: memory, signals, stacks, forks and files are as they are without it.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::c_program::Program;
use crate::common::{skipped, text, wait_for};
use refault_testing::skip;

const FLAGS: &[&str] = &[];

/// Does not compress, so the file is needed; the kernel says what is resident.
#[test]
fn what_does_not_fit_goes_out_and_comes_back() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/comes_back.c"));
    let said = program.comes_through("8M", FLAGS);
    assert!(said.contains("refault: peak ") && said.contains("pages stored"), "{said}");
}

#[test]
fn forked_children_have_what_their_parent_had_and_no_more() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/children_write.c"));
    program.comes_through("6M", FLAGS);
}

/// The most that a program used of its budget, in MiB, by the line that is printed at its end.
fn peak(said: &str) -> f64 {
    let (_, rest) = said.split_once("refault: peak ").unwrap_or_else(|| panic!("no peak in {said}"));
    let mut words = rest.split(' ');
    let (number, unit) = (words.next().and_then(|word| word.parse::<f64>().ok()), words.next());
    number.expect("a number") / if unit == Some("MiB") { 1.0 } else { 1024.0 }
}

/// Executable memory is not managed: what becomes so is whole, and named beside the budget, which holds for the rest.
#[test]
fn memory_that_becomes_executable_is_left_alone_and_named() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/executable_memory.c"));
    let said = program.comes_through("8M", FLAGS);
    assert!(peak(&said) <= 8.2, "{said}");
    let beside = said.lines().find(|line| line.contains("code made while running")).unwrap_or_else(|| panic!("{said}"));
    let (_, size) = beside.split_once("up to ").expect("how much");
    let mib = size.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    assert!(mib.is_some_and(|mib| mib > 30.0), "{said}");
}

/// Sites of frequent calls are rewritten to jump to the agent, in a process that makes many calls and in one that
/// starts a thread; one that does little keeps libc as it is.
#[test]
fn frequent_calls_jump_and_idle_processes_stay_as_they_are() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/patched_sites.c"));
    program.comes_through("8M", FLAGS);
}

/// A condition's words are in memory that would be evicted; signals restart the call that waits for them.
#[test]
fn waits_in_managed_memory_survive_eviction_and_signals() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/waits_for_semaphore.c"));
    program.comes_through("4M", FLAGS);
}

#[test]
fn small_alternate_stacks_are_not_overrun() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/small_alternate_stack.c"));
    program.comes_through("4M", FLAGS);
}

#[test]
fn unmapped_memory_is_gone_and_new_memory_is_zero() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/unmapped_memory.c"));
    program.comes_through("2M", FLAGS);
}

/// The child has descriptors of its own: a file that another thread of its parent opens meanwhile it does not have.
#[test]
fn a_child_that_shares_memory_reads_what_other_threads_have_evicted() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/child_shares_memory.c"));
    program.comes_through("4M", FLAGS);
}

#[test]
fn needs_no_privilege() {
    if skipped(&["setpriv", "sort", "seq"]) {
        return;
    }
    let refault = env!("CARGO_BIN_EXE_refault");
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
        command.args(arguments).current_dir("/").output().expect("setpriv starts")
    };
    let reached = as_nobody(&[refault, "--version"]);
    if !reached.status.success() {
        skip(format_args!("another user cannot execute this build: {}", text(&reached.stderr).trim()));
        return;
    }
    let output =
        as_nobody(&[refault, "run", "--memory", "8M", "--", "sh", "-c", "seq 1 40000 | sort -r | sort -n | tail -1"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("40000\n", Some(0)), "{}", text(&output.stderr));
}

/// The line at the end and the summary, however the program ends: by returning, by its last thread, by a signal.
#[test]
fn what_happened_is_said_at_every_end() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/ends.c"));
    for (how, code, signal) in [
        ("returns", Some(0), None),
        ("thread", Some(0), None),
        ("killed", None, Some(9)),
        ("aborts", None, Some(6)),
        ("child", Some(7), None),
    ] {
        let summary = program.directory.path().join("summary.json");
        let output = Command::new(env!("CARGO_BIN_EXE_refault"))
            .args(["run", "--memory", "6M", "--summary"])
            .arg(&summary)
            .arg("--")
            .arg(&program.path)
            .arg(how)
            .current_dir(program.directory.path())
            .output()
            .expect("refault starts");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.status.signal()), (code, signal), "{how}: {said}");
        assert!(said.starts_with("refault: peak ") && said.contains(" refaults, "), "{how}: {said}");
        let summary = std::fs::read_to_string(&summary).expect("a summary");
        let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
        let number = |key: &str| summary[key].as_u64().unwrap_or_else(|| panic!("{key}: {summary}"));
        assert_eq!(
            (summary["exit_code"].as_i64(), summary["signal"].as_i64()),
            (code.map(i64::from), signal.map(i64::from))
        );
        // 10 MiB of 16 cannot be resident, and all of it was looked at again; the child wrote to all of it.
        let passes = if how == "child" { 2 } else { 1 };
        assert!(number("stored") >= passes * 2560 && number("refaults") >= 2560, "{how}: {summary}");
        assert!(
            number("first_touches") >= 4096 && number("fault_p99_ns") >= number("fault_p50_ns"),
            "{how}: {summary}"
        );
        assert_eq!(
            (number("lost"), number("budget_bytes"), number("left_running")),
            (0, 6 << 20, 0),
            "{how}: {summary}"
        );
        assert!(number("peak_bytes") > 5 << 20, "{how}: {summary}");
    }
    let quiet = program.run("32M", &["--quiet"]);
    assert_eq!(text(&quiet.stderr), "");
}

/// A process between the program and its caller changes neither signals nor stops.
#[test]
fn signals_and_stops_reach_the_program() {
    if skipped(&["bash"]) {
        return;
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["run", "--memory", "32M", "--", "bash", "-c"])
        .arg("trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("refault starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("a pipe")));
    let mut next = || lines.next().expect("a line").expect("text");
    let send = |signal| rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("sent");
    assert_eq!(next(), "ready");
    // Once: a shell forgets a signal that comes again while it runs the trap.
    send(rustix::process::Signal::USR1);
    assert_eq!(next(), "usr1");
    send(rustix::process::Signal::TERM);
    assert_eq!(next(), "term");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    // If `refault` is killed, so is the program: no other process would do it.
    let mut child = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["run", "--memory", "32M", "--", "bash", "-c", "echo $$; while :; do sleep 0.05; done"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("refault starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("a pipe")));
    let pid = lines.next().expect("a line").expect("text");
    child.kill().expect("killed");
    child.wait().expect("it ends");
    let gone = || !std::path::Path::new("/proc").join(&pid).exists();
    wait_for(&format!("the end of {pid}"), gone);
}

/// The agent's library, as it was built with the binary.
fn library() -> std::path::PathBuf {
    let directory = std::path::Path::new(env!("CARGO_BIN_EXE_refault")).parent().expect("a directory");
    let built = ["librefault_boundary.so", "deps/librefault_boundary.so"].map(|name| directory.join(name));
    built.into_iter().find(|path| path.is_file()).expect("it is built with the binary")
}

/// What is mapped is told by names of files, and those are bytes.
#[test]
fn a_program_whose_name_is_no_text_is_managed() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join(std::ffi::OsStr::from_bytes(b"echo\xff"));
    std::fs::copy("/bin/echo", &program).expect("a copy");
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    let run = command.args(["run", "--memory", "32M", "--"]).arg(&program).arg("hi").output().expect("refault starts");
    let said = text(&run.stderr);
    assert!(run.status.success() && text(&run.stdout) == "hi\n", "{said}");
    assert!(said.contains("refault: peak "), "{said}");
}

/// The agent has no unwinder; a program that needs one finds its own.
#[test]
fn threads_are_unwound_by_what_the_program_loads() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/unwinds.c"));
    program.comes_through("8M", FLAGS);
}

/// What libc keeps for itself the agent does not know.
#[test]
fn the_agent_names_nothing_private_of_libc() {
    let bytes = std::fs::read(library()).expect("it can be read");
    for name in
        ["_rtld_global", "__nptl_", "_thread_db_", "__libc_single_threaded\0_IO_", "__libc_malloc", "_dl_find_dso"]
    {
        assert!(!bytes.windows(name.len()).any(|window| window == name.as_bytes()), "{name} is in the library");
    }
}

/// A program finds none of the agent's functions in place of those of its own libraries, an unwinder least of all. The
/// loader has nothing to look for but what is there anyhow.
#[test]
fn the_library_has_no_names_for_others_and_needs_libc_alone() {
    let said = |program: &str, option: &str| {
        let output =
            Command::new(program).args([option, "--wide"]).arg(library()).output().expect("binutils are there");
        assert!(output.status.success(), "{program} cannot read it");
        String::from_utf8(output.stdout).expect("text")
    };
    let symbols = said("readelf", "--dyn-syms");
    assert!(symbols.contains(" UND abort"), "{symbols}");
    let theirs = symbols.lines().filter(|line| line.contains(" GLOBAL ") || line.contains(" WEAK "));
    let ours: Vec<_> = theirs.clone().filter(|line| !line.contains(" UND ")).collect();
    assert_eq!(ours, Vec::<&str>::new());
    let unwinds: Vec<_> = theirs.filter(|line| line.contains("_Unwind_")).collect();
    assert_eq!(unwinds, Vec::<&str>::new());
    let dynamic = said("readelf", "--dynamic");
    let needed: Vec<_> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty(), "{dynamic}");
    for line in needed {
        assert!(line.contains("[libc.so.6]") || line.contains("[ld-linux-x86-64.so.2]"), "{line}");
    }
}
