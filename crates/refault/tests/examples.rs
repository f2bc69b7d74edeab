//! The examples run to their end, as a newcomer runs them: without arguments.
//!
//! `cargo test` builds them beside the tests; where this file alone is tested, and they were not built before, that is said.

use std::path::PathBuf;
use std::process::Command;

/// Where cargo puts examples: beside the folder of this test's own program.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this test has a file");
    let folder = own.parent().and_then(|deps| deps.parent()).expect("invariant: tests lie in deps");
    folder.join("examples").join(name)
}

/// Runs one, and answers what it printed; nothing if it is not there or cannot run here.
fn run(name: &str) -> Option<String> {
    let program = built(name);
    if !program.exists() {
        refault_testing::skip_required(format_args!("{name} is not built: cargo build --examples"));
        return None;
    }
    // Not on tmpfs, which does no direct I/O.
    let output = Command::new(&program).current_dir(env!("CARGO_TARGET_TMPDIR")).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{error}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_policy_is_compared_with_lru() {
    let Some(said) = run("policy") else { return };
    assert!(said.starts_with("lru ") && said.lines().count() == 2, "{said}");
}

#[test]
fn a_policy_of_ones_own_is_replayed_and_shown() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/rust.md");
    let page = std::fs::read_to_string(page).expect("the guide");
    let source = include_str!("../examples/own_policy.rs");
    let (_, policy) = source.split_once("/// Evicts the youngest page.\n").expect("the policy");
    let (policy, main) = policy.split_once("\nfn main()").expect("the program");
    assert!(page.contains(policy.trim_end()) && page.contains(main.trim_end()), "the guide shows another policy");
    // The loop never hits under LRU; half of it stays under this policy, but for the page that goes each time.
    let (_, promised) = page.split_once("It prints \"").expect("the guide says what it prints");
    let (promised, _) = promised.split_once('"').expect("and ends it");
    assert!(promised.starts_with("lru misses 20000 times, newest 10"), "{promised}");
    let Some(said) = run("own_policy") else { return };
    assert_eq!(said.trim_end(), promised, "the guide says that it prints something else");
}

#[test]
fn policies_are_compared_over_a_workload() {
    let Some(said) = run("compare") else { return };
    assert!(said.contains("mglru") && said.contains("at most 1 % misses"), "{said}");
}

#[test]
fn a_monitor_finds_what_is_hot() {
    let Some(said) = run("monitor") else { return };
    assert!(said.ends_with("hot: 16.0 MiB found, 16.0 MiB true\n"), "{said}");
}

#[test]
fn a_file_is_read_through_a_cache() {
    let Some(said) = run("page_cache") else { return };
    assert!(said.contains("of reads were hits"), "{said}");
}

#[test]
fn a_region_stays_within_its_budget() {
    if let Err(error) = refault::region::probe::Capabilities::probe().userfaultfd {
        return refault_testing::skip_required(format_args!("no userfaultfd here: {error}"));
    }
    let Some(said) = run("region") else { return };
    assert!(said.contains("the budget is 64 MiB"), "{said}");
}
