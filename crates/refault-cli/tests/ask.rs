//! `refault ask`: what was asked before is shown without an emulator, what cannot be asked is said in one line, and one
//! kernel is booted where there is one.

mod common;

use std::process::Command;

use common::text;
use tempfile::TempDir;

/// A question whose answers ship with the program.
const KNOWN: &str = "uniform:pages=16384,n=98304,type=1,seed=107";

fn ask(cache: &TempDir, path: Option<&str>, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.arg("ask").args(arguments).env("XDG_CACHE_HOME", cache.path());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().expect("it runs")
}

#[test]
fn a_known_question_needs_no_emulator_and_the_model_is_near() {
    let cache = TempDir::new().expect("a directory");
    let arguments = ["--kernel", "6.12,7.2", "--memory", "4096p", KNOWN, "--format", "json"];
    let output = ask(&cache, Some("/nonexistent"), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let answers = json["answers"].as_array().expect("answers");
    assert_eq!(answers.len(), 4, "two kernels, two kinds of lists");
    for answer in answers {
        let loads = |of: &serde_json::Value| of["counters"]["loads"].as_f64().expect("a number");
        let (kernel, model) = (loads(answer), loads(&answer["model"]));
        assert!((kernel - model).abs() < 0.01 * kernel, "{answer}");
    }
    let table = ask(&cache, Some("/nonexistent"), &arguments[..5]);
    let shown = text(&table.stdout);
    assert!(shown.contains("The model's loads lie within") && shown.contains("98,304 accesses"), "{shown}");
}

#[test]
fn what_cannot_be_asked_is_said_in_one_line() {
    let cache = TempDir::new().expect("a directory");
    let other = "uniform:pages=4096,accesses=10000,kind=fd,seed=9";
    let broken = cache.path().join("broken.deb").display().to_string();
    std::fs::write(&broken, b"!<arch>\nno package").expect("written");
    for (arguments, part, code) in [
        (vec!["--kernel", "six", other], "not a kernel", 2),
        (vec!["--kernel", "6.12", other], "curl is not installed", 1),
        (vec!["--kernel", "/absent/linux.deb", other], "no such file", 2),
        (vec!["--kernel", &broken, other], "not a whole Debian package", 1),
        (vec!["--kernel", "6.12", "absent.rft"], "absent.rft", 2),
        (vec!["--kernel", "6.12", "--warm-up", "10000", other], "nothing would be counted", 2),
        (vec!["--kernel", "6.12", "fio:random_distribution=neither"], "neither", 2),
    ] {
        let output = ask(&cache, Some("/nonexistent"), &arguments);
        let said = text(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        assert!(
            last.contains(part) && output.status.code() == Some(code),
            "{arguments:?}: {:?}: {said}",
            output.status
        );
        assert!(output.stdout.is_empty());
    }
}

/// Where scripts/machines has fetched a kernel, and qemu is there, it answers; the second time from the cache.
#[test]
fn a_kernel_answers() {
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/machines/kernel-6.12/packages");
    let found = std::fs::read_dir(packages).into_iter().flatten().flatten().map(|entry| entry.path());
    let Some(package) = found.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb")) else {
        eprintln!("skipped: {packages} has no kernel; scripts/machines --libc none --kernel 6.12 fetches one");
        return;
    };
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        eprintln!("skipped: no qemu");
        return;
    }
    let cache = TempDir::new().expect("a directory");
    let package = package.display().to_string();
    let workload = "mixed:apages=1024,fpages=512,accesses=20000,writes=0.25";
    let arguments = ["--kernel", &package, "--lists", "generations", workload, "--format", "json"];
    let first = ask(&cache, None, &arguments);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let json: serde_json::Value = serde_json::from_slice(&first.stdout).expect("JSON");
    let answer = &json["answers"][0];
    let count = |name: &str| answer["counters"][name].as_u64().expect("a number");
    assert!(answer["kernel"].as_str().expect("a release").starts_with("6.12"), "{answer}");
    assert!(count("file_reads") > 512 && count("pswpin") > 0 && count("first_touches") <= 1024, "{answer}");
    let second = ask(&cache, None, &arguments);
    assert_eq!(second.stdout, first.stdout, "from the cache");
    assert!(!text(&second.stderr).contains("asking"), "{}", text(&second.stderr));
}
