//! Format, lints and tests of the crates that changed, and of those on which all policies stand: within a minute, once
//! they are built.

use std::collections::BTreeSet;

use crate::steps::{Failure, output, root, step};

/// Checked always: what the others stand on.
const ALWAYS: [&str; 3] = ["refault-core", "refault-sim", "refault-trace"];

/// Crates whose tests run real programs for minutes, and the modules of their `tests/all.rs` that take seconds.
const LIVE: [(&str, &[&str]); 9] = [
    ("refault-bench", &[]),
    ("refault-boundary", &[]),
    ("refault-c", &[]),
    ("refault-cache", &[]),
    ("refault-cli", &["docs::", "mrc::", "outputs::", "specification::", "trace::", "workspace::"]),
    ("refault-lab", &[]),
    ("refault-pager", &[]),
    ("refault-paging", &[]),
    ("refault-pool", &[]),
];

/// Runs the task.
///
/// # Errors
/// A check failed.
pub fn run() -> Result<(), Failure> {
    let changed = changed()?;
    let crates: BTreeSet<String> = changed.into_iter().chain(ALWAYS.map(str::to_owned)).collect();
    println!("checking {}", crates.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    step(&["cargo", "fmt", "--all", "--", "--check"])?;
    let named: Vec<&str> = crates.iter().flat_map(|name| ["-p", name]).collect();
    step(&[&["cargo", "clippy", "--quiet"], &named[..], &["--all-targets", "--", "-D", "warnings"]].concat())?;
    let (live, pure): (Vec<&str>, Vec<&str>) =
        crates.iter().map(String::as_str).partition(|name| LIVE.iter().any(|(live, _)| live == name));
    let pure: Vec<&str> = pure.into_iter().flat_map(|name| ["-p", name]).collect();
    step(&[&["cargo", "test", "--quiet"], &pure[..], &["--lib", "--bins", "--tests"]].concat())?;
    for name in live {
        let (_, modules) = LIVE.iter().find(|(live, _)| *live == name).expect("it is live");
        let parts: &[&str] = if has_library(name) { &["--lib", "--bins"] } else { &["--bins"] };
        step(&[&["cargo", "test", "--quiet", "-p", name], parts].concat())?;
        if !modules.is_empty() {
            step(&[&["cargo", "test", "--quiet", "-p", name, "--test", "all", "--"], *modules].concat())?;
        }
    }
    Ok(())
}

/// The crates of which a file differs from where this branch left main, or that git does not know yet.
fn changed() -> Result<BTreeSet<String>, Failure> {
    let base = match output(&["git", "merge-base", "main", "HEAD"]) {
        Ok(base) => base.trim().to_owned(),
        // A clone of another branch alone.
        Err(_) => "HEAD".to_owned(),
    };
    let differing = output(&["git", "diff", "--name-only", &base])?;
    let unknown = output(&["git", "ls-files", "--others", "--exclude-standard"])?;
    let files = differing.lines().chain(unknown.lines());
    Ok(files.filter_map(crate_of).filter(|name| root().join("crates").join(name).join("Cargo.toml").exists()).collect())
}

/// The crate to which a file belongs, if it belongs to one.
fn crate_of(file: &str) -> Option<String> {
    let (name, _) = file.strip_prefix("crates/")?.split_once('/')?;
    Some(name.to_owned())
}

fn has_library(name: &str) -> bool {
    root().join("crates").join(name).join("src/lib.rs").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_crates() {
        assert_eq!(crate_of("crates/refault-core/src/lib.rs").as_deref(), Some("refault-core"));
        assert_eq!(crate_of("docs/README.md"), None);
        assert_eq!(crate_of("crates/README.md"), None);
    }

    #[test]
    fn crates_of_the_lists_exist() {
        for name in ALWAYS.iter().chain(LIVE.iter().map(|(name, _)| name)) {
            assert!(root().join("crates").join(name).is_dir(), "{name}");
        }
        for (name, tests) in LIVE {
            for module in tests {
                let test = module.trim_end_matches("::");
                assert!(root().join("crates").join(name).join(format!("tests/{test}.rs")).exists(), "{name}: {test}");
            }
        }
    }
}
