//! Where it does not work it is said before anything is made: machines that are made of files in a directory.

use std::path::Path;

use refault_kernel::{Places, Refusal, examine, journal};
use tempfile::TempDir;

const ONE: &str = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";
const TWO: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
const HOT_ADD: &str = "sys/class/zram-control/hot_add";

/// A machine of these files, each with its contents.
fn machine(files: &[(&str, &str)]) -> (TempDir, Places) {
    let root = TempDir::new().expect("a directory");
    for (name, contents) in files {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, contents).expect("writes");
    }
    let places = Places::below(root.path());
    (root, places)
}

fn refused(files: &[(&str, &str)]) -> Refusal {
    let (_root, places) = machine(files);
    let refusal = examine(&places).expect_err("it does not work there");
    assert!(!refusal.place().is_empty() && !refusal.remedy().is_empty(), "{refusal:?}");
    refusal
}

#[test]
fn a_kernel_without_the_controller() {
    assert!(matches!(refused(&[]), Refusal::NoController));
    // Version 2 is mounted, and memory is with neither it nor version 1.
    let files = [
        ("proc/mounts", TWO),
        ("proc/self/cgroup", "0::/own\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpu pids\n"),
        ("sys/fs/cgroup/own/cgroup.controllers", ""),
        (HOT_ADD, ""),
    ];
    assert!(matches!(refused(&files), Refusal::NoController));
}

#[test]
fn a_group_in_which_none_can_be_made() {
    // What is mounted is not there for this process, as in a container without it.
    let refusal = refused(&[("proc/mounts", ONE), ("proc/self/cgroup", "4:memory:/own\n"), (HOT_ADD, "")]);
    assert!(matches!(refusal, Refusal::NoPermission { .. }), "{refusal:?}");
    assert_eq!(refusal.to_string(), "no permission to make a cgroup");
    assert!(refusal.remedy().contains("systemd-run --user --scope"), "{}", refusal.remedy());
}

/// A delegated group of version 2 in a container: the root there is no root.
fn delegated<'a>(processes: &'a str, control: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("proc/mounts", TWO),
        ("proc/self/cgroup", "0::/own\n"),
        ("sys/fs/cgroup/cgroup.type", "domain\n"),
        ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", control),
        ("sys/fs/cgroup/own/cgroup.controllers", "memory\n"),
        ("sys/fs/cgroup/own/cgroup.subtree_control", ""),
        ("sys/fs/cgroup/own/cgroup.procs", processes),
    ]
}

#[test]
fn a_group_that_is_busy() {
    let mut files = delegated("1\n", "");
    files.push((HOT_ADD, ""));
    let refusal = refused(&files);
    assert!(matches!(&refusal, Refusal::Busy { place } if place.ends_with("sys/fs/cgroup/own")), "{refusal:?}");
}

#[test]
fn a_group_of_ones_own_or_one_above_that_hands_memory_on() {
    let own = format!("{}\n", std::process::id());
    for (processes, control, place) in [(own.as_str(), "", "cgroup/own"), ("1\n", "memory\n", "fs/cgroup")] {
        let mut files = delegated(processes, control);
        files.push((HOT_ADD, ""));
        let (_root, places) = machine(&files);
        let words = examine(&places).expect("it works there");
        assert!(words.contains("version 2") && words.contains(&format!("{place}, zram of its own")), "{words}");
    }
}

#[test]
fn no_zram_and_no_other_swap() {
    let without = [("proc/mounts", ONE), ("proc/self/cgroup", "4:memory:/\n"), ("sys/fs/cgroup/memory/tasks", "")];
    let refusal = refused(&without);
    assert!(matches!(refusal, Refusal::NoZram), "{refusal:?}");
    assert!(refusal.remedy().contains("modprobe zram"), "{}", refusal.remedy());
    // Other swap will do.
    let mut with = without.to_vec();
    with.push(("proc/swaps", "Filename Type Size Used Priority\n/dev/vdb partition 1048572 0 -2\n"));
    let (_root, places) = machine(&with);
    assert!(examine(&places).expect("it works there").contains("swap of the machine"));
}

#[test]
fn what_a_keeper_left_is_found_by_its_number_and_start() {
    let (root, places) = machine(&[("proc/7/stat", "7 (a name) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 55 0 0\n")]);
    let place = journal::directory(&places);
    let is_of_root = place.starts_with(root.path());
    if !is_of_root {
        refault_testing::skip("files of an ordinary user's keepers are not below the directory");
        return;
    }
    std::fs::create_dir_all(&place).expect("a directory");
    let write = |name: &str, started: u64| {
        let text = format!(r#"{{"process":7,"started":{started},"budget":1,"group":null,"devices":[]}}"#);
        std::fs::write(place.join(name), text).expect("writes");
    };
    write("7.json", 55);
    std::fs::write(place.join("8.json"), "no JSON").expect("writes");
    assert!(journal::leftovers(&places).is_empty(), "the keeper lives");
    write("7.json", 54);
    assert_eq!(journal::leftovers(&places).len(), 1, "its number was used again");
    let (removed, failed) = journal::clean(&places);
    assert!(removed.len() == 1 && failed.is_empty(), "{removed:?} {failed:?}");
    assert!(!Path::new(&place.join("7.json")).exists());
    // In another namespace of processes numbers are other ones: the lock says that it lives.
    write("9-54.json", 54);
    let lock = std::fs::File::create(place.join("9-54.lock")).expect("a file");
    lock.lock().expect("nothing else holds it");
    assert!(journal::leftovers(&places).is_empty(), "its keeper holds the lock");
    drop(lock);
    let (removed, failed) = journal::clean(&places);
    assert!(removed.len() == 1 && failed.is_empty(), "{removed:?} {failed:?}");
    assert!(!place.join("9-54.json").exists() && !place.join("9-54.lock").exists());
}
