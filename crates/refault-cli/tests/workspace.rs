//! The arrows between the crates are those that ARCHITECTURE.md draws, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// The crate that is there for tests.
const FOR_TESTS: &str = "refault-testing";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Crate and what it may depend on, from the lines `crates/refault-x  …  → a, b` of ARCHITECTURE.md.
fn documented(names: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let mut rooms = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("crates/") else { continue };
        let name = rest.split_whitespace().next().expect("a crate's name").to_string();
        let targets = match rest.split_once('→') {
            Some((_, targets)) if targets.trim() == "all of them" => names.clone(),
            Some((_, targets)) => targets.split(',').map(|target| full_name(target.trim())).collect(),
            None => {
                assert!(rest.contains("depends on nothing of ours"), "{name} has neither arrow nor the words for none");
                BTreeSet::new()
            }
        };
        rooms.insert(name, targets);
    }
    rooms
}

/// A room's name without its prefix, which the crate that users add does not have.
fn full_name(room: &str) -> String {
    if room == "refault" { room.to_owned() } else { format!("refault-{room}") }
}

/// Crate and what it depends on in any way, development included, but for what the tests of every crate may use.
fn actual() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |package: &serde_json::Value| package["name"].as_str().expect("a name").to_string();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("dependencies");
            let of_tests =
                |dependency: &serde_json::Value| dependency["kind"] == "dev" && dependency["name"] == FOR_TESTS;
            let ours = dependencies.iter().filter(|dependency| !dependency["path"].is_null() && !of_tests(dependency));
            (name(package), ours.map(name).collect())
        })
        .collect()
}

#[test]
fn crates_depend_on_each_other_only_as_documented() {
    let actual = actual();
    assert!(actual.contains_key("refault-core") && actual["refault-cli"].contains("refault-core"), "{actual:?}");
    let documented = documented(&actual.keys().cloned().collect());
    for (name, targets) in &actual {
        let allowed =
            documented.get(name).unwrap_or_else(|| panic!("{name} is not among the rooms of ARCHITECTURE.md"));
        let undocumented: Vec<_> = targets.difference(allowed).collect();
        assert!(undocumented.is_empty(), "{name} depends on {undocumented:?}, which ARCHITECTURE.md does not draw");
    }
    for name in documented.keys() {
        assert!(actual.contains_key(name), "ARCHITECTURE.md has a room {name} that does not exist");
    }
}

#[test]
fn the_core_depends_on_functions_of_numbers_alone() {
    let manifest = std::fs::read_to_string(root().join("crates/refault-core/Cargo.toml")).expect("the core's manifest");
    let (_, dependencies) = manifest.split_once("\n[dependencies]").expect("a section of dependencies");
    let section = dependencies.split("\n[").next().expect("the section");
    let named: Vec<&str> = section.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect();
    assert_eq!(named, ["libm"], "refault-core must not depend on anything else");
}

/// Name and text of each Rust file under `crates/`; none in a checkout without git.
fn rust_files() -> Vec<(String, String)> {
    let output = Command::new("git").args(["ls-files", "crates/*.rs"]).current_dir(root()).output().expect("git runs");
    let names = String::from_utf8(output.stdout).expect("names are text");
    // A file that is being renamed may be listed and gone.
    let text = |name: &str| std::fs::read_to_string(root().join(name)).ok();
    names.lines().filter_map(|name| Some((name.to_owned(), text(name)?))).collect()
}

/// The library's page is compiled and run as a doctest; the guide shows the same.
#[test]
fn the_guide_shows_the_rust_that_is_tested() {
    let block = |page: &str| {
        let text = std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        let (_, rest) = text.split_once("\n```rust\n").unwrap_or_else(|| panic!("{page} has no Rust"));
        let (code, _) = rest.split_once("\n```").expect("the block ends");
        // What only a doctest needs is not shown.
        code.lines().filter(|line| !line.starts_with("# ")).map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(block("docs/guide/rust.md"), block("crates/refault/README.md"));
}

/// Programs are files, which editors know and compilers point into. Text that is made to be compiled is not a program.
#[test]
fn no_c_program_lives_in_a_rust_string() {
    // Draws by lot which headers each of some hundred files includes.
    const GENERATED: [&str; 1] = ["crates/refault-bench/src/here/builds.rs"];
    let header = concat!("#", "include <");
    let found: Vec<String> =
        rust_files().into_iter().filter(|(_, text)| text.contains(header)).map(|it| it.0).collect();
    let wrong: Vec<&String> = found.iter().filter(|name| !GENERATED.contains(&name.as_str())).collect();
    assert!(wrong.is_empty(), "C and C++ belong into files of their own: {wrong:?}");
    assert!(found.len() == GENERATED.len() || rust_files().is_empty(), "an exception is not needed any more");
}

#[test]
fn bounds_are_called_max_and_min_and_rates_per() {
    let files = rust_files();
    let (mut wrong, mut wrong_rates) = (Vec::new(), Vec::new());
    let mut constants = 0;
    for (file, text) in &files {
        for line in text.lines() {
            let Some((_, rest)) = line.split_once("const ") else { continue };
            constants += 1;
            if ["MOST", "LEAST", "LONGEST", "SHORTEST", "FEWEST", "MANY", "LARGEST", "SMALLEST"]
                .iter()
                .any(|word| rest.strip_prefix(word).is_some_and(|after| after.starts_with(['_', ':'])))
            {
                wrong.push(format!("{file}: {}", line.trim()));
            }
            let (name, _) = rest.split_once(':').unwrap_or((rest, ""));
            let is_singular = ["OF", "AT"].iter().any(|word| name.contains(&format!("_{word}_A_")));
            if name.contains("_A_") && !is_singular {
                wrong_rates.push(format!("{file}: {}", line.trim()));
            }
        }
    }
    // A checkout without git has no list to look at.
    assert!(constants > 500 || files.is_empty(), "only {constants} constants found");
    assert!(wrong.is_empty(), "MAX_ or MIN_ is what bounds are called:\n{}", wrong.join("\n"));
    assert!(wrong_rates.is_empty(), "_PER_ is what rates are called:\n{}", wrong_rates.join("\n"));
}
