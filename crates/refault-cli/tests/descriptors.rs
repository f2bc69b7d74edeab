//! Descriptors under `refault run`: the program's own are its own, whatever numbers it chooses; what it inherits of
//! ours lasts as long as it can.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::c_program::Program;
use crate::common::{lines, skipped, text};
use serde_json::Value;
use tempfile::TempDir;

fn run(command: &mut Command) -> Output {
    command.output().expect("refault starts")
}

fn refault(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.args(["run", "--memory", "8M"]).args(arguments);
    command
}

/// Opens files under every small number, then uses and forks with more memory than fits.
const OPENS_SMALL_NUMBERS: &str = include_str!("scripts/opens_small_numbers.sh");

#[test]
fn numbers_that_a_program_chooses_are_its_own() {
    if skipped(&["bash"]) {
        return;
    }
    for store in ["pool", "file=/var/tmp"] {
        let directory = TempDir::new().expect("a directory");
        let place = directory.path().to_str().expect("text");
        let stats = directory.path().join("stats");
        let mut command = refault(&["--store", store, "--stats", stats.to_str().expect("text")]);
        let output = run(command.args(["--", "bash", "-c", OPENS_SMALL_NUMBERS, "bash", place]));
        assert!(output.status.success(), "{store}: {:?} {}", output.status, text(&output.stderr));
        assert_eq!(text(&output.stdout), "120000\n", "{store}");
        for number in 3..10 {
            let wanted = if number == 7 { "child\nfile 7\n".to_owned() } else { format!("file {number}\n") };
            let found = std::fs::read_to_string(directory.path().join(number.to_string())).expect("reads");
            assert_eq!(found, wanted, "{store}");
        }
        let line = last_line(&stats);
        assert!(line["pswpout"].as_u64() > Some(1000) && line["lost"] == 0, "{line}");
    }
}

fn last_line(path: &Path) -> Value {
    lines(path).pop().expect("a line")
}

#[test]
fn generations_of_children_do_not_collect_descriptors() {
    if skipped(&["python3"]) {
        return;
    }
    let script = include_str!("scripts/twelve_generations.py");
    // A generation that stores pages on disk has a file of its own, for its children go on reading the one before.
    for (store, files) in [("pool", 0), ("file=/var/tmp", 1)] {
        let command = ["--store", store, "--", "python3", "-c", script];
        let output = run(refault(&command).env("PYTHONUNBUFFERED", "1"));
        let said = text(&output.stdout);
        let counts: Vec<usize> = said.lines().map(|count| count.parse().expect("a number")).collect();
        assert!(output.status.success() && counts.len() == 12, "{:?} {said} {}", output.status, text(&output.stderr));
        for (generation, count) in counts.iter().enumerate() {
            // The first may have counted before it stored anything.
            let most = counts[0] + (generation + 1) * files;
            assert!((counts[0]..=most).contains(count), "{store}: {counts:?}");
        }
    }
}

/// Changes the user to one that cannot open the statistics, and executes.
const CHANGES_USER: &str = include_str!("scripts/changes_user.py");

/// The agent's library, where everybody may read it.
fn library_for_all(directory: &TempDir) -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_refault")).parent().expect("a directory");
    let places = ["librefault_boundary.so", "deps/librefault_boundary.so"].map(|name| beside.join(name));
    let built = places.into_iter().filter(|path| path.is_file());
    let built = built.max_by_key(|path| path.metadata().and_then(|it| it.modified()).expect("is there"));
    let built = built.expect("the agent is built");
    let path = directory.path().join("librefault_boundary.so");
    std::fs::copy(built, &path).expect("copies");
    for path in [directory.path(), &path] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("opens");
    }
    path
}

const PYTHON: &str = "/usr/bin/python3";

/// True, with a line that says why.
fn cannot_change_user() -> bool {
    if !rustix::process::geteuid().is_root() || skipped(&["setpriv"]) {
        refault_testing::skip_required("only root can change the user");
        return true;
    }
    // Others than root cannot read what is installed for root alone.
    let missing = [PYTHON, "/dev/userfaultfd"].into_iter().find(|path| !Path::new(path).exists());
    if let Some(path) = missing {
        refault_testing::skip_required(format_args!("there is no {path}"));
    }
    missing.is_some()
}

#[test]
fn users_and_groups_are_changed_by_capabilities_as_without_the_agent() {
    if cannot_change_user() {
        return;
    }
    let open = TempDir::new().expect("a directory");
    let library = library_for_all(&open);
    let script = include_str!("scripts/tells_its_user.py");
    // It changes the user, then the group by a capability that it keeps, and drops that.
    let changes = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PYTHON, "-c", script];
    let mut command = refault(&["--"]);
    let output = run(command.args(changes).env("REFAULT_AGENT_LIBRARY", &library).current_dir("/"));
    let (said, out) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{:?} {said}", output.status);
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("0 (65534, 65534, 65534) (65534, 65534, 65534) [] True"), "{said}");
    let threads: Vec<&str> = lines.collect();
    let none = "65534 65534 0000000000000000 0000000000000000";
    assert!(!threads.is_empty() && threads.iter().all(|thread| *thread == none), "{threads:?}");
}

#[test]
fn a_program_that_changes_its_user_goes_on() {
    if cannot_change_user() {
        return;
    }
    let open = TempDir::new().expect("a directory");
    let library = library_for_all(&open);
    // Only root may look into a temporary directory.
    let directory = TempDir::new().expect("a directory");
    let stats = directory.path().join("stats");
    let name = stats.to_str().expect("text");
    let mut command = refault(&["--stats", name, "--"]);
    command.args([PYTHON, "-c", CHANGES_USER]);
    let output = run(command.env("REFAULT_AGENT_LIBRARY", &library).current_dir("/"));
    let said = text(&output.stderr);
    assert!(output.status.success(), "{:?} {said}", output.status);
    assert_eq!(text(&output.stdout), "65534 True\n");
    // The program that ends is the one that has paged.
    let paged = lines(&stats).iter().any(|line| line["last"] == true && line["pswpout"].as_u64() > Some(1000));
    assert!(paged, "{:?}", lines(&stats));
}

#[test]
fn who_reads_the_standard_error_of_a_daemon_hears_that_it_is_closed() {
    if skipped(&["gcc"]) {
        return;
    }
    Program::new(include_str!("c/closes_standard_error.c")).comes_through("8M", &[]);
}
