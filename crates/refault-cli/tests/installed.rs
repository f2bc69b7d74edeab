//! A `refault` that was installed, not only built: one file that does everything, and what the scripts make.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{skipped, text};
use tempfile::TempDir;

/// Where the binary of this build lies.
fn built() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_refault")).parent().expect("it lies in a directory").to_owned()
}

fn script(name: &str) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
    let mut command = Command::new("bash");
    command.arg(path).arg("--from").arg(built());
    command
}

/// A command of the installed binary, with nothing of the build in sight.
fn installed(binary: &Path, home: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env_remove("REFAULT_AGENT_LIBRARY").env_remove("XDG_CACHE_HOME").env("HOME", home).current_dir(home);
    command
}

fn done(output: Output) -> String {
    assert!(output.status.success(), "{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Uses a MiB budget's worth of memory twice over, and a child that was given no descriptors does it too.
const TWICE_OVER: &str = include_str!("scripts/twice_over.py");

fn runs_in_less(binary: &Path, home: &Path) {
    std::fs::write(home.join("program.py"), TWICE_OVER).expect("writes");
    let stats = home.join("run.jsonl");
    let mut command = installed(binary, home);
    command.args(["run", "--memory", "16M", "--stats"]).arg(&stats).args(["--", "python3", "program.py"]);
    let output = command.output().expect("it starts");
    let words = text(&output.stderr);
    assert!(words.contains("peak ") && words.contains("of 16 MiB"), "{words}");
    assert_eq!(done(output), "1\n1\n");
    let statistics = std::fs::read_to_string(&stats).expect("statistics");
    let evicting = |line: &&str| line.contains("\"last\":true") && !line.contains("\"pswpout\":0,");
    assert!(statistics.lines().filter(evicting).count() >= 2, "both were managed: {statistics}");
}

/// Bytes of memory of its own that the command has while a program runs: part of the budget.
fn own_of_the_command(binary: &Path, home: &Path) -> u64 {
    let mut command = installed(binary, home);
    command.args(["run", "--quiet", "--memory", "64M", "--", "sh", "-c", "echo begun; read line; true"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    // The program runs, so that all was unpacked.
    assert_eq!(child.stdout.as_mut().expect("piped").read(&mut [0; 6]).expect("it says so"), 6);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a kernel that says it");
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
}

/// Bytes that the command and its agent keep themselves.
fn kept(binary: &Path, home: &Path) -> u64 {
    let stats = home.join("kept.jsonl");
    let mut command = installed(binary, home);
    command.args(["run", "--quiet", "--memory", "64M", "--stats"]).arg(&stats).args(["--", "true"]);
    done(command.output().expect("it starts"));
    let lines = std::fs::read_to_string(&stats).expect("statistics");
    let last: serde_json::Value =
        lines.lines().last().and_then(|line| serde_json::from_str(line).ok()).expect("a line");
    last["metadata_bytes"].as_u64().expect("bytes")
}

#[test]
fn the_binary_alone_runs_programs_in_less_memory() {
    if skipped(&["python3"]) {
        return;
    }
    let home = TempDir::new().expect("a directory");
    let binary = home.path().join("refault");
    std::fs::copy(env!("CARGO_BIN_EXE_refault"), &binary).expect("copies");
    let doctor = done(installed(&binary, home.path()).args(["doctor", "--quick"]).output().expect("it starts"));
    assert!(doctor.contains("in this binary"), "{doctor}");
    assert!(!doctor.contains("os error"), "{doctor}");
    runs_in_less(&binary, home.path());
    // The library is as large as what is measured: the command keeps nothing of it.
    for measured in [kept, own_of_the_command] {
        let both = [Path::new(env!("CARGO_BIN_EXE_refault")), &binary];
        let [beside, alone] = both.map(|binary| measured(binary, home.path()));
        assert!(alone < beside + (1 << 20), "{alone} bytes, {beside} where the library lies beside it");
    }
    let is_root = rustix::process::geteuid().is_root();
    let place = if is_root { "/var/cache/refault".into() } else { home.path().join(".cache/refault") };
    // Each build's is in a directory of its own.
    let mut builds = std::fs::read_dir(place).expect("it is there").flatten();
    assert!(builds.any(|build| build.path().join("librefault_boundary.so").is_file()));
    let mut command = installed(&binary, home.path());
    command.args(["record", "--interval", "50ms", "--out", "app.rft", "--", "python3", "program.py"]);
    done(command.output().expect("it starts"));
    assert!(home.path().join("app.rft").is_file());
}

#[test]
fn without_proc_it_says_so() {
    if !rustix::process::geteuid().is_root() || skipped(&["unshare", "mount"]) {
        refault_testing::skip_required("only root can hide /proc");
        return;
    }
    let home = TempDir::new().expect("a directory");
    let binary = home.path().join("refault");
    std::fs::copy(env!("CARGO_BIN_EXE_refault"), &binary).expect("copies");
    let mut command = installed(Path::new("unshare"), home.path());
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs none /proc && exec \"$0\" run --backend pager --memory 16M -- true",
    ]);
    let output = command.arg(&binary).output().expect("it starts");
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("/proc is not mounted"), "{:?} {said}", output.status);
}

/// It must be able to read the library when it executes a program, though it cannot look into root's home.
#[test]
fn what_becomes_another_user_is_managed_still() {
    if skipped(&["setpriv", "grep"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        refault_testing::skip_required("only root can become another user");
        return;
    }
    let home = TempDir::new().expect("a directory");
    let binary = home.path().join("refault");
    std::fs::copy(env!("CARGO_BIN_EXE_refault"), &binary).expect("copies");
    let mut command = installed(&binary, home.path());
    command.args(["run", "--memory", "16M", "--", "setpriv", "--reuid", "65534", "--clear-groups"]);
    let output = command.args(["grep", "-c", "librefault_boundary", "/proc/self/maps"]).output().expect("it starts");
    let said = text(&output.stderr);
    assert!(!said.contains("cannot be preloaded"), "{said}");
    assert_ne!(done(output), "0\n");
}

#[test]
fn the_install_script_puts_everything_in_its_place_and_takes_it_away() {
    if skipped(&["bash", "python3"]) {
        return;
    }
    let home = TempDir::new().expect("a directory");
    let prefix = home.path().join("usr");
    done(script("install.sh").arg("--prefix").arg(&prefix).output().expect("bash starts"));
    for file in [
        "bin/refault",
        "lib/refault/librefault_boundary.so",
        "share/man/man1/refault.1.gz",
        "share/man/man1/refault-run.1.gz",
        "share/bash-completion/completions/refault",
        "share/zsh/site-functions/_refault",
        "share/fish/vendor_completions.d/refault.fish",
        "share/doc/refault/LICENSE-MIT",
    ] {
        assert!(prefix.join(file).is_file(), "{file}");
    }
    let binary = prefix.join("bin/refault");
    let doctor = done(installed(&binary, home.path()).args(["doctor", "--quick"]).output().expect("it starts"));
    assert!(doctor.contains("lib/refault/librefault_boundary.so"), "{doctor}");
    runs_in_less(&binary, home.path());
    assert!(!home.path().join(".cache").exists(), "what is installed need not be unpacked");
    done(script("install.sh").arg("--prefix").arg(&prefix).arg("--uninstall").output().expect("bash starts"));
    let find = Command::new("find").arg(&prefix).args(["-type", "f"]).output().expect("find starts");
    assert_eq!(done(find), "");
}

#[test]
fn the_packages_hold_a_whole_refault() {
    if skipped(&["bash", "tar", "dpkg-deb"]) {
        return;
    }
    let home = TempDir::new().expect("a directory");
    let out = home.path().join("out");
    let made = done(script("package.sh").arg("--out").arg(&out).output().expect("bash starts"));
    let files: Vec<&str> = made.lines().collect();
    let [tarball, package] = files[..] else { panic!("{made}") };
    let unpacked = home.path().join("tar");
    std::fs::create_dir(&unpacked).expect("a directory");
    done(Command::new("tar").args(["-xzf", tarball, "-C"]).arg(&unpacked).output().expect("tar starts"));
    let root = home.path().join("deb");
    done(Command::new("dpkg-deb").args(["-x", package]).arg(&root).output().expect("dpkg-deb starts"));
    let control = done(Command::new("dpkg-deb").args(["-f", package]).output().expect("dpkg-deb starts"));
    assert!(control.contains("Depends: libc6 (>= 2."), "{control}");
    let tree = std::fs::read_dir(&unpacked).expect("a directory").next().expect("one").expect("it can be read");
    for binary in [tree.path().join("bin/refault"), root.join("usr/bin/refault")] {
        let doctor = done(installed(&binary, home.path()).args(["doctor", "--quick"]).output().expect("it starts"));
        assert!(doctor.contains("lib/refault/librefault_boundary.so"), "{doctor}");
    }
}
