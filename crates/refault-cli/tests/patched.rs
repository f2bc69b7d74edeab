//! Calls from patched sites of libraries: signals, masks and memory are as they are without the tool.

use std::process::Command;

use crate::c_program::Program;
use crate::common::{skipped, text};

const FLAGS: &[&str] = &[];

/// Masks are exact and signals come where they are opened, and only there, while a timer interrupts every step of the way;
/// memory that is mapped and unmapped meanwhile is whole.
#[test]
fn masks_and_actions_are_exact_under_a_storm_of_signals() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/signal_masks.c"));
    program.comes_through("3M", FLAGS);
}

/// Changing masks and actions costs a fraction of a caught call, in a program that has more libraries than most too.
#[test]
fn masks_cost_a_fraction_of_a_caught_call_however_many_libraries_there_are() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/mask_cost.c"));
    program.comes_through("8M", FLAGS);
    let within = |name: &str| program.directory.path().join(name);
    std::fs::write(within("empty.c"), "int empty;").expect("writes");
    let build = "gcc -shared -o l1.so empty.c && for i in $(seq 2 60); do cp l1.so l$i.so; done && \
                 gcc -O1 -w -pthread -o program program.c -Wl,--no-as-needed -lc $(seq -f $PWD/l%g.so 60)";
    let built =
        Command::new("sh").args(["-c", build]).current_dir(program.directory.path()).output().expect("sh starts");
    assert!(built.status.success(), "{}", text(&built.stderr));
    program.comes_through("8M", FLAGS);
}
