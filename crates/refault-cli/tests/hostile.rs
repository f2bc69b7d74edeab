//! What programs may do to the agent: odd calls, signals at bad moments, foreign allocators. Right results, or a
//! refusal in words.

use std::process::Command;

use crate::c_program::Program;
use crate::common::{skipped, text};

#[test]
fn addresses_of_managed_memory_may_be_reused_replaced_and_given_up_twice() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/reused_addresses.c"));
    program.comes_through("3M", &[]);
    program.comes_through("3M", &[]);
}

#[test]
fn mremap_moves_to_a_given_place_and_may_leave_the_old_one() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/moves_to_a_place.c"));
    program.comes_through("3M", &[]);
}

/// The kernel joins what moves with neighbours that are advised alike, and then tells of no fault of theirs any more.
#[test]
fn what_moves_beside_advised_memory_takes_nothing_of_it_along() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/advised_neighbours.c"));
    program.comes_through("3M", &[]);
}

/// The kernel says nothing of what it has moved before it finds the hole.
#[test]
fn what_goes_past_the_cache_into_a_hole_is_refused_whole() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/direct_into_a_hole.c"));
    program.comes_through("3M", &[]);
}

/// Each program loses memory, or is told otherwise than alone, where the agent overlooks one thing.
fn comes_through(program: &str, words: &[&[&str]]) {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(program);
    for words in words {
        program.comes_through_with("3M", &[], words);
    }
}

/// A pipe or a socket keeps pages that have left, and reads them later.
#[test]
fn pages_that_the_kernel_keeps_are_not_used_for_others() {
    comes_through(include_str!("c/pages_given_away.c"), &[&[], &["socket"]]);
}

#[test]
fn a_mapping_may_be_replaced_while_other_threads_read_it() {
    comes_through(include_str!("c/replaced_while_read.c"), &[&[]]);
}

/// A call that waits holds addresses: what is there when its time comes, it finds.
#[test]
fn memory_may_change_while_a_call_waits_for_it() {
    comes_through(include_str!("c/changed_while_awaited.c"), &[&[]]);
}

#[test]
fn a_signal_may_come_while_a_calls_memory_is_brought_in() {
    comes_through(include_str!("c/interrupted_while_held.c"), &[&[]]);
}

/// The kernel walks a thread's list of robust mutexes when it ends, and stops at a page that is out.
#[test]
fn mutexes_of_who_ends_are_found() {
    comes_through(include_str!("c/dies_with_mutexes.c"), &[&["exit"], &["kill"], &["fault"], &["program"]]);
}

#[test]
fn calls_may_come_by_odd_ways() {
    comes_through(include_str!("c/odd_ways_in.c"), &[&[]]);
}

#[test]
fn threads_may_have_descriptors_of_their_own_and_children_those_of_their_parents() {
    comes_through(include_str!("c/parted_descriptors.c"), &[&["unshare"], &["close_range"], &["child"]]);
}

#[test]
fn what_is_refused_in_the_middle_has_changed_before() {
    comes_through(include_str!("c/refused_in_the_middle.c"), &[&[]]);
}

#[test]
fn children_need_no_page_map() {
    comes_through(include_str!("c/forks_without_page_map.c"), &[&[]]);
}

#[test]
fn shared_memory_may_be_attached_over_what_is_managed() {
    comes_through(include_str!("c/attached_over.c"), &[&[]]);
}

/// A child that is killed in the middle of the agent's work leaves nothing whole: that is said, and nothing waits for it.
#[test]
fn who_waits_for_a_child_that_was_killed_is_told() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/killed_while_borrowing.c"));
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "60", env!("CARGO_BIN_EXE_refault"), "run", "--memory", "3M", "--"]).arg(&program.path);
    let output = command.output().expect("timeout starts");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let is_told = output.status.code() == Some(1) && err.contains("was killed while it used it");
    assert!(out.ends_with("done\n") || is_told, "{:?}\n{out}\n{err}", output.status);
}

/// What the agent maps meanwhile must not lie in a hole of the program's memory.
#[test]
fn programs_may_unmap_and_map_over_holes_in_their_memory() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/punched.c"));
    program.comes_through("40M", &[]);
    program.comes_through("400M", &[]);
}

/// Libc's frequent calls jump to memory near it by then.
#[test]
fn programs_may_take_all_addresses_near_libc_for_their_own() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/sites_in_holes.c"));
    for how in ["unmap", "map", "remap"] {
        program.comes_through_with("40M", &[], &[how]);
    }
}

/// Addresses that are limited do not suffice for what the tool keeps for itself.
#[test]
fn what_more_threads_need_is_not_in_holes_either() {
    if skipped(&["gcc", "sh"]) {
        return;
    }
    let program = Program::new(include_str!("c/threads_in_holes.c"));
    let (done, said) = limited("-v 1000000", "64M", &program);
    assert!(done, "{said}");
}

/// As Chromium's has, and others that are the program's `malloc`.
#[test]
fn what_an_allocator_reserved_before_the_agent_began_is_managed() {
    if skipped(&["gcc"]) {
        return;
    }
    let said = Program::new(include_str!("c/own_reservation.c")).comes_through("8M", &[]);
    assert!(!said.contains(" 0 pages stored"), "{said}");
}

/// As Chromium does before it begins.
#[test]
fn a_filter_that_is_not_there_changes_nothing() {
    if skipped(&["gcc"]) {
        return;
    }
    let said = Program::new(include_str!("c/asks_for_filters.c")).comes_through("8M", &[]);
    assert!(!said.contains(" 0 pages stored"), "{said}");
}

/// Chromium's sandbox ends its process if a folder is open.
#[test]
fn the_agents_descriptors_are_not_listed() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/listed_descriptors.c"));
    program.comes_through("2M", &[]);
    program.comes_through("40M", &[]);
}

#[test]
fn what_does_not_become_executable_stays_as_it_is() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/executable_behind_hole.c"));
    program.comes_through("4M", &[]);
}

/// The kernel joins mappings by whether anything was written to them.
#[test]
fn memory_that_was_only_read_is_joined_with_what_is_beside_it() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/only_read.c"));
    let alone = Command::new(&program.path).output().expect("it starts");
    if text(&alone.stdout) != "done\n" {
        refault_testing::skip_required(format_args!("this kernel joins otherwise: {}", text(&alone.stdout)));
        return;
    }
    program.comes_through("4M", &[]);
    program.comes_through("16M", &[]);
}

#[test]
fn a_forked_child_keeps_the_rights_of_its_parents_memory() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/child_keeps_rights.c"));
    program.comes_through("2M", &[]);
    program.comes_through("2M", &[]);
}

#[test]
fn signal_handlers_may_touch_evicted_memory_and_fork_whatever_they_interrupt() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/handler_touches_and_forks.c"));
    program.comes_through("3M", &[]);
    program.comes_through("3M", &[]);
}

#[test]
fn faults_are_served_whatever_becomes_of_sigbus() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/sigbus_is_taken.c"));
    program.comes_through("2M", &[]);
}

#[test]
fn blocks_of_other_allocators_are_told_apart() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/foreign_blocks.c"));
    program.comes_through("2M", &[]);
    program.comes_through("2M", &[]);
}

const STRINGS_AND_OPERATORS: &str = include_str!("c/strings_and_operators.cc");

#[test]
fn cpp_programs_are_managed_also_when_linked_to_another_allocator() {
    if skipped(&["g++"]) {
        return;
    }
    for library in [None, Some("-l:libjemalloc.so.2"), Some("-l:libtcmalloc_minimal.so.4")] {
        let directory = tempfile::TempDir::new().expect("a directory");
        let (source, path) = (directory.path().join("program.cc"), directory.path().join("program"));
        std::fs::write(&source, STRINGS_AND_OPERATORS).expect("writes");
        let mut gcc = Command::new("g++");
        gcc.args(["-O1", "-fno-builtin", "-w", "-pthread", "-o"]).arg(&path).arg(&source);
        let built = gcc.arg("-Wl,--no-as-needed").args(library).output().expect("g++ starts");
        if !built.status.success() {
            let library = library.expect("a program without other libraries can be built");
            refault_testing::skip_required(format_args!("{library} is not installed"));
            continue;
        }
        let stats = directory.path().join("stats");
        let output = Command::new("timeout")
            .args(["-k", "5", "60", env!("CARGO_BIN_EXE_refault"), "run", "--memory", "4M", "--stats"])
            .arg(&stats)
            .arg("--")
            .arg(&path)
            .output()
            .expect("timeout starts");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out == "done\n", "{library:?} {:?}\n{out}\n{err}", output.status);
        let lines = std::fs::read_to_string(&stats).expect("statistics");
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().expect("a line")).expect("JSON");
        // 3 threads with more than 4 MB each.
        assert!(last["pswpout"].as_u64().expect("a number") > 2000, "{library:?} {last}");
    }
}

/// A shell that sets limits and goes on as the command.
fn limited(limit: &str, memory: &str, program: &Program) -> (bool, String) {
    let script = format!("ulimit {limit} && exec timeout -k 5 60 \"$0\" run --memory {memory} -- \"$1\"");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_refault")])
        .arg(&program.path)
        .output()
        .expect("a shell starts");
    let done = output.status.success() && text(&output.stdout) == "done\n";
    (done, format!("{limit} {:?}\n{}{}", output.status, text(&output.stdout), text(&output.stderr)))
}

#[test]
fn the_heap_of_many_threads_is_whole() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/heap_of_many_threads.c"));
    program.comes_through("8M", &[]);
}

/// A process whose first thread has ended answers fewer questions about itself, so the pager drops entries another way.
#[test]
fn a_program_goes_on_without_its_first_thread() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/without_first_thread.c"));
    program.comes_through("2M", &[]);
    program.comes_through("2M", &[]);
}

#[test]
fn limits_on_addresses_files_and_descriptors_are_kept_or_named() {
    if skipped(&["gcc", "sh"]) {
        return;
    }
    let program = Program::new(include_str!("c/under_limits.c"));
    for limit in ["-v 4000000", "-d 500000", "-n 16", "-n 64", "-f 20000"] {
        let (done, said) = limited(limit, "2M", &program);
        assert!(done, "{said}");
    }
    let (done, said) = limited("-f 1000", "2M", &program);
    assert!(!done && said.contains("limit on file sizes (ulimit -f)"), "{said}");
    let (done, said) = limited("-v 20000", "2M", &program);
    assert!(!done, "{said}");
    let (done, said) = limited("-n 32", "3M", &Program::new(include_str!("c/full_of_descriptors.c")));
    assert!(done, "{said}");
    // Too few for the pager, for a fork, for the child's pager: always in words.
    for descriptors in 4..12 {
        let (done, said) = limited(&format!("-n {descriptors}"), "2M", &program);
        let words = ["too many open files", "Too many open files", "fork: 1", "Error 24", "no descriptor is left"];
        assert!(done || words.iter().any(|words| said.contains(words)), "{said}");
        assert!(!said.contains("the child ended with") || said.contains("ended with 100\n"), "{said}");
    }
}

/// What a thread needs while it is in the pager, where it holds what serving a fault takes, must not be evicted under
/// it: its stack, and what libc keeps for it at the end of that stack.
#[test]
fn threads_and_coroutines_may_evict_the_stacks_on_which_they_run() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/evicts_its_stack.c"));
    program.comes_through("2M", &[]);
    program.comes_through("2M", &[]);
}

/// What libc allocates for locales comes from the agent's own heap, and in-thread so do larger copies of strings.
/// A thread that evicts uses that heap too.
#[test]
fn signal_handlers_may_touch_evicted_memory_while_the_agents_heap_is_in_use() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/handler_while_the_heap_is_used.c"));
    program.comes_through("2M", &[]);
    program.comes_through("2M", &[]);
}
