//! What is left when `refault` or a managed program is killed: nothing.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::skipped;
use tempfile::TempDir;

/// Pages for ever, and forks children that page a little and end.
const PAGES_AND_FORKS: &str = include_str!("scripts/pages_and_forks.py");

/// A place for everything that is made, and a mark on everything that runs.
struct Scene {
    directory: TempDir,
    mark: String,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let directory = TempDir::new().expect("a directory");
        let mark = format!("{name}-{}", directory.path().display());
        for name in ["store", "temporary", "work"] {
            std::fs::create_dir(directory.path().join(name)).expect("a directory");
        }
        Scene { directory, mark }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts `refault` and waits until the program runs.
    fn start(&self, arguments: &[&str]) -> Child {
        let mut child = Command::new(env!("CARGO_BIN_EXE_refault"))
            .args(arguments)
            .args(["--", "python3", "-c", PAGES_AND_FORKS])
            .env("REFAULT_TEST_MARK", &self.mark)
            .env("TMPDIR", self.path("temporary"))
            .current_dir(self.path("work"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("refault starts");
        let mut byte = [0];
        let out = child.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(out, &mut byte).expect("the program runs");
        child
    }

    /// The processes that carry the mark.
    fn processes(&self) -> Vec<i32> {
        let pids = std::fs::read_dir("/proc").expect("lists").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(self.mark.len()).any(|window| window == self.mark.as_bytes())
        })
        .collect()
    }

    /// Waits until no process carries the mark.
    #[track_caller]
    fn until_nobody_is_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.processes().is_empty() {
            assert!(Instant::now() < deadline, "still there: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn assert_empty(&self, names: &[&str]) {
        for name in names {
            let found: Vec<_> = std::fs::read_dir(self.path(name)).expect("lists").flatten().collect();
            assert!(found.is_empty(), "left in {name}: {found:?}");
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = rustix::process::Pid::from_raw(pid)
                .map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
    }
}

/// Names of shared memory.
fn shared() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(Path::new("/dev/shm")) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.contains("refault")).collect()
}

#[test]
fn a_killed_program_leaves_nothing() {
    if skipped(&["python3"]) {
        return;
    }
    let scene = Scene::new("program");
    let store = format!("file={}", scene.path("store").display());
    let (stats, control) = (scene.path("stats").display().to_string(), scene.path("control").display().to_string());
    for (round, more) in [
        &[][..],
        &["--policy", "clock"],
        &["--children", "own"],
        &["--stats", &stats, "--stats-interval", "20", "--memory-control", &control],
    ]
    .iter()
    .enumerate()
    {
        let mut arguments = vec!["run", "--memory", "8M", "--store", &store];
        arguments.extend(*more);
        let mut child = scene.start(&arguments);
        // In the middle of something, each time of something else.
        std::thread::sleep(Duration::from_millis(130 + 170 * round as u64));
        child.kill().expect("kills");
        assert_eq!(child.wait().expect("waits").signal(), Some(9), "{more:?}: it was busy");
        scene.until_nobody_is_left();
        scene.assert_empty(&["store", "temporary", "work"]);
    }
    assert!(shared().is_empty(), "{:?}", shared());
}

#[test]
fn a_killed_command_leaves_no_files() {
    if skipped(&["python3"]) {
        return;
    }
    let scene = Scene::new("command");
    for arguments in [&["record", "--interval", "20"][..], &["monitor"]] {
        let mut child = scene.start(arguments);
        std::thread::sleep(Duration::from_millis(300));
        child.kill().expect("kills");
        child.wait().expect("waits");
        scene.assert_empty(&["temporary"]);
        // The program is the user's and goes on.
        assert!(!scene.processes().is_empty(), "{arguments:?}");
        for pid in scene.processes() {
            let pid = rustix::process::Pid::from_raw(pid).expect("a process");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        scene.until_nobody_is_left();
    }
}
