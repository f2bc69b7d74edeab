//! Forks under `refault run`, at any moment: what libc's own `fork` would have put in order in the child is in order.

use crate::c_program::Program;
use crate::common::skipped;

/// A thread is created and another is gone every moment, so that one of them holds libc's lists of threads at some
/// fork.
#[test]
fn a_child_may_be_forked_while_other_threads_come_and_go() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/fork_among_threads.c"));
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

/// The dynamic linker reads its records of such libraries when a thread is created: in the child before memory is
/// served.
#[test]
fn a_child_may_be_forked_after_a_library_with_thread_local_variables_was_opened() {
    if skipped(&["gcc", "python3"]) {
        return;
    }
    let program = Program::new(include_str!("c/fork_after_dlopen.c"));
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

/// Other threads hold the lock of a stream most of the time.
#[test]
fn a_child_finds_streams_unlocked() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/fork_while_printing.c"));
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

#[test]
fn a_stream_that_another_thread_has_locked_is_free_in_the_child() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/fork_with_locked_stream.c"));
    program.comes_through("8M", &[]);
    program.comes_through("8M", &[]);
}

#[test]
fn a_stream_that_the_forking_thread_holds_stays_its_own() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/fork_holding_stdout.c"));
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

/// The agent's threads do not keep a program alive, in a child neither.
#[test]
fn a_program_ends_with_its_last_thread() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/last_thread_ends.c"));
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

#[test]
fn handlers_of_a_library_that_was_closed_are_not_called() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/fork_after_dlclose.c"));
    let source = program.directory.path().join("library.c");
    std::fs::write(&source, include_str!("c/fork_handlers.c")).expect("writes");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-shared", "-fPIC", "-o"]).arg(program.directory.path().join("library.so")).arg(&source);
    assert!(gcc.status().expect("gcc starts").success());
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}
