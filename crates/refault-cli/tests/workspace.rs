//! The arrows between the crates are those that ARCHITECTURE.md draws, and no others; within a crate files import each other in
//! one direction, folders are small, and a type's methods stand together.

#[path = "common/bare_numbers.rs"]
mod bare_numbers;
#[path = "common/imports.rs"]
mod imports;

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

/// A crate's folder, which for the one that users add is not its package's name.
fn folder(path: &serde_json::Value) -> String {
    let path = PathBuf::from(path.as_str().expect("a path"));
    path.file_name().expect("a folder").to_str().expect("names are text").to_owned()
}

/// What cargo says of each package.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// Crate and what it depends on in any way, development included, but for what the tests of every crate may use.
fn actual() -> BTreeMap<String, BTreeSet<String>> {
    packages()
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("dependencies");
            let of_tests =
                |dependency: &serde_json::Value| dependency["kind"] == "dev" && dependency["name"] == FOR_TESTS;
            let ours = dependencies.iter().filter(|dependency| !dependency["path"].is_null() && !of_tests(dependency));
            let manifest = PathBuf::from(package["manifest_path"].as_str().expect("a path"));
            let own = serde_json::json!(manifest.parent());
            (folder(&own), ours.map(|dependency| folder(&dependency["path"])).collect())
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

/// Integration tests are linked one by one, which takes longer than most of them run.
const MAX_TEST_BINARIES: usize = 72;

#[test]
fn integration_tests_are_linked_into_few_programs_and_none_is_left_out() {
    let (mut binaries, mut left_out) = (0, Vec::new());
    for package in packages() {
        let targets = package["targets"].as_array().expect("targets").iter();
        let tests: Vec<PathBuf> = targets
            .filter(|target| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "test")))
            .map(|target| PathBuf::from(target["src_path"].as_str().expect("a path")))
            .collect();
        binaries += tests.len();
        let text = |path: &PathBuf| std::fs::read_to_string(path).expect("a readable file");
        let modules: String = tests.iter().map(text).collect();
        let folder = PathBuf::from(package["manifest_path"].as_str().expect("a path")).with_file_name("tests");
        for file in std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path()) {
            let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
            let is_held = tests.contains(&file) || modules.lines().any(|line| line == format!("mod {name};"));
            if file.extension().is_some_and(|extension| extension == "rs") && !is_held {
                left_out.push(file);
            }
        }
    }
    assert!(left_out.is_empty(), "name them in their crate's tests/all.rs, as `mod NAME;`: {left_out:?}");
    let found = BTreeMap::from([("binaries".to_owned(), binaries)]);
    may_only_fall("programs of integration tests", &found, &[("binaries", MAX_TEST_BINARIES)]);
}

/// For users; what only developers run lies in `scripts/dev`.
#[test]
fn scripts_are_few() {
    const MAX_SCRIPTS: usize = 8;
    let entries = std::fs::read_dir(root().join("scripts")).expect("a folder").map(|entry| entry.expect("an entry"));
    let names: Vec<_> = entries.filter(|entry| entry.path().is_file()).map(|entry| entry.file_name()).collect();
    assert!(names.len() <= MAX_SCRIPTS, "{MAX_SCRIPTS} is the most: {names:?}");
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
    // One draws by lot which headers each of some hundred files includes, the other asks for every number of a list.
    const GENERATED: [&str; 2] = ["crates/refault-bench/src/here/builds.rs", "crates/refault-linux/tests/header.rs"];
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

/// Each crate with the paths of its source files below `src`, and their texts.
fn sources() -> BTreeMap<String, Vec<(String, String)>> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (name, text) in rust_files() {
        if let Some((room, file)) = name.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) {
            crates.entry(room.to_owned()).or_default().push((file.to_owned(), text));
        }
    }
    crates
}

/// Holds what is found to a list of exceptions whose numbers may only fall: no more, and no less without a new number.
fn may_only_fall(what: &str, found: &BTreeMap<String, usize>, listed: &[(&str, usize)]) {
    let listed: BTreeMap<String, usize> = listed.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
    let mut wrong = Vec::new();
    for name in found.keys().chain(listed.keys()).collect::<BTreeSet<_>>() {
        let (is, was) = (found.get(name).copied().unwrap_or(0), listed.get(name).copied().unwrap_or(0));
        if is > was {
            wrong.push(format!("{name}: {is}, of which at most {was} are allowed"));
        } else if is < was {
            wrong.push(format!("{name}: {is} are left of {was}: lower the listed number"));
        }
    }
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

/// Files that import each other in circles of more than two, per crate that has any.
const CIRCLES: &[(&str, usize)] = &[
    ("refault-bench", 11),
    ("refault-cli", 29),
    ("refault-core", 21),
    ("refault-host", 3),
    ("refault-lab", 3),
    ("refault-pager", 21),
    ("refault-paging", 3),
    ("refault-remote", 3),
    ("refault-sim", 19),
    ("refault-store", 3),
    ("refault-trace", 36),
];

#[test]
fn no_more_than_two_files_import_each_other() {
    let crates = sources();
    if crates.is_empty() {
        return; // A checkout without git has no list to look at.
    }
    assert!(crates.len() > 15, "only {} crates found", crates.len());
    let in_circles = |files: &Vec<(String, String)>| {
        let circles = imports::Sources::of(files).circles();
        circles.iter().filter(|circle| circle.len() > 2).map(Vec::len).sum::<usize>()
    };
    let found = crates.iter().map(|(room, files)| (room.clone(), in_circles(files))).filter(|(_, files)| *files > 0);
    may_only_fall("files import each other in circles", &found.collect(), CIRCLES);
}

/// Source files of a folder without those of its subfolders.
const MAX_FILES: usize = 12;

/// Folders that hold more.
const LARGE_FOLDERS: &[(&str, usize)] = &[
    ("refault-bench", 18),
    ("refault-cli", 31),
    ("refault-cli/run", 22),
    ("refault-core", 23),
    ("refault-core/policy", 15),
    ("refault-core/schemes", 13),
    ("refault-core/textbook", 20),
    ("refault-kernel", 13),
    ("refault-lab", 16),
    ("refault-lab/experiments/freepool", 14),
    ("refault-pager", 44),
    ("refault-sim/machine", 26),
    ("refault-store", 15),
    ("refault-trace", 21),
    ("refault-trace/formats", 25),
];

#[test]
fn folders_hold_about_a_dozen_source_files() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for (room, files) in sources() {
        for (name, _) in files {
            let folder = name.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("/{folder}"));
            *found.entry(format!("{room}{folder}")).or_default() += 1;
        }
    }
    if found.is_empty() {
        return; // As above.
    }
    found.retain(|_, files| *files > MAX_FILES);
    may_only_fall("folders hold more source files than a newcomer can look over", &found, LARGE_FOLDERS);
}

/// Types with methods in files that are neither their own nor below it, in how many, and why.
const SCATTERED: &[(&str, usize, &str)] = &[
    ("refault-boundary Context", 1, "frames of signals are built and read beside what they mean"),
    ("refault-cli Runner", 1, "measuring servers is a part of its own beside measuring programs"),
    ("refault-core FrameAllocator", 1, "what is fragmented is asked for by reports alone"),
    ("refault-core Lruvec", 1, "tiers are a part of the lists by their own paper"),
    ("refault-core Protection", 1, "giving way compares protections, which groups hold"),
    ("refault-image Obstacle", 1, "which obstacle there is is judged where files are looked at"),
    ("refault-pager AccessSource", 1, "names of sources stand with what the kernel offers for them"),
    ("refault-pager Inner", 9, "the engine of regions is not cut into parts"),
    ("refault-pager Pager", 6, "the engine of regions is not cut into parts"),
];

#[test]
fn methods_stand_with_their_type_or_below_it() {
    let mut found = BTreeMap::new();
    for (room, files) in sources() {
        for (name, places) in imports::Sources::of(&files).scattered() {
            found.insert(format!("{room} {name}"), places.len());
        }
    }
    if found.is_empty() {
        return; // As above.
    }
    let listed: Vec<(&str, usize)> = SCATTERED.iter().map(|(name, files, _)| (*name, *files)).collect();
    may_only_fall("methods stand away from their type", &found, &listed);
    assert!(SCATTERED.iter().all(|(.., reason)| reason.len() > 10), "each exception has a reason");
}

/// Files that are made of bytes of machine code.
const MACHINE_CODE: [&str; 1] = ["patched/sites.rs"];

#[test]
fn the_kernel_s_numbers_are_called_by_their_names() {
    let known = bare_numbers::Known::new();
    let sources = sources();
    let mut wrong = Vec::new();
    for room in ["refault-boundary", "refault-paging"] {
        for (name, text) in sources.get(room).into_iter().flatten() {
            if !MACHINE_CODE.contains(&name.as_str()) && !name.ends_with("tests.rs") {
                wrong.extend(known.found(text).into_iter().map(|line| format!("{room}/src/{name}: {line}")));
            }
        }
    }
    assert!(wrong.is_empty(), "name them in refault_linux, or take the name from there:\n{}", wrong.join("\n"));
}
