//! The outputs and pictures that README and docs show are what the program makes now, byte by byte.
//!
//! `scripts/dev/shown-outputs` makes them anew.

mod common;

use std::path::Path;
use std::process::Command;

use common::text;

/// Runs the script over a repository.
fn script(root: &Path, arguments: &[&str]) -> (bool, String) {
    let binary = env!("CARGO_BIN_EXE_refault");
    let script = root.join("scripts/dev/shown-outputs");
    let output = Command::new("python3").arg(script).args(arguments).arg(binary).output().expect("python3 starts");
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn what_is_shown_is_what_is_made() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (same, said) = script(&root, &["--check"]);
    assert!(same, "{said}");
}

#[test]
fn what_differs_is_found_and_made_anew() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let place = tempfile::tempdir().expect("a directory");
    let copy = |name: &str| {
        let to = place.path().join(name);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("can be made");
        std::fs::copy(root.join(name), &to).unwrap_or_else(|error| panic!("{name}: {error}"));
        to
    };
    let (_, readme, picture) = (copy("scripts/dev/shown-outputs"), copy("README.md"), copy("docs/miss-ratios.svg"));
    assert!(script(place.path(), &["--check"]).0, "the copy is as the pages are");
    for file in [&readme, &picture] {
        let made = std::fs::read_to_string(file).expect("text");
        // One figure of the table, one place of a line.
        let stale = made.replacen("lru ", "lru 9", 1).replacen("M150.5", "M151.5", 1);
        assert_ne!(made, stale, "{}", file.display());
        std::fs::write(file, stale).expect("writes");
        let (same, said) = script(place.path(), &["--check"]);
        let name = file.file_name().expect("a name").to_string_lossy();
        assert!(!same && said.contains(&*name), "{said}");
        assert!(script(place.path(), &[]).0);
        assert_eq!(std::fs::read_to_string(file).expect("text"), made);
    }
}
