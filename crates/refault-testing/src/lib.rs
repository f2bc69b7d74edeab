//! What tests of several crates share: skips that are counted, random numbers, and data to compare with.
//!
//! A test that cannot do its work on this machine says so with [`skip`] or [`skip_required`] and returns. `cargo test`
//! hides what passing tests print, so each skip also goes to the file that `REFAULT_SKIPS` names, if it names one: one
//! line of test and reason. With `REFAULT_REQUIRE=1` a required skip fails its test: CI sets this on a machine that can
//! run all live tests, so that none of them can go missing unseen.
#![forbid(unsafe_code)]

pub mod cgroup;

use std::env;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use refault_core::monitor::Random as Bits;

/// Notes that the running test, or a part of it, is left out for a reason that any good machine may have: it has no
/// such device, or this user may do too much or too little.
///
/// # Panics
/// If the file that `REFAULT_SKIPS` names cannot be written.
pub fn skip(why: impl Display) {
    println!("skipped: {why}");
    let Some(log) = env::var_os("REFAULT_SKIPS").filter(|log| !log.is_empty()) else { return };
    let thread = std::thread::current();
    let line = format!("{}: {}\n", thread.name().unwrap_or("a test"), why.to_string().trim().replace('\n', " "));
    // One write for each line, at the end of the file: tests run side by side.
    let written =
        OpenOptions::new().append(true).create(true).open(&log).and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot write {}: {error}", Path::new(&log).display());
    }
}

/// [`skip`] for live and conformance tests: what is missing is what a machine that is to run them has.
///
/// # Panics
/// If `REFAULT_REQUIRE` is `1`; see [`skip`] for another case.
pub fn skip_required(why: impl Display) {
    assert!(!is_required(), "REFAULT_REQUIRE=1, but this cannot run here: {why}");
    skip(why);
}

fn is_required() -> bool {
    env::var_os("REFAULT_REQUIRE").is_some_and(|value| value == "1")
}

/// Pseudo-random numbers from a seed, the same on every machine: the monitor's generator, drawn from as tests need it.
#[derive(Clone, Debug)]
pub struct Random(Bits);

impl Random {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Random {
        Random(Bits::new(seed))
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A place in something of `length`, which is not 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}

/// The counters that real kernels reported: `results.csv`, `workloads.csv` and `bounds.csv` of `data/kernels`, which
/// has a page on them.
///
/// # Panics
/// If there is no such table.
pub fn kernel_table(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/kernels").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of several steps that real kernels were asked: name and steps of each, in the order of names.
///
/// # Panics
/// If they cannot be read.
pub fn kernel_steps() -> Vec<(String, String)> {
    steps_of("steps")
}

/// Cells of members under `min` and `low`, with their names: `data/kernels/protections`. `protections.csv` has where
/// members ended in real kernels.
pub fn kernel_protections() -> Vec<(String, String)> {
    steps_of("protections")
}

fn steps_of(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/kernels").join(folder);
    let read =
        |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut cells: Vec<(String, String)> = files
        .map(|file| file.expect("a file in the folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "steps"))
        .map(|path| (path.file_stem().expect("a name").to_string_lossy().into_owned(), read(&path)))
        .collect();
    cells.sort();
    cells
}

/// A file or folder of what is not part of the repository (recorded traces), in the folder that `REFAULT_SHARED` names.
/// Where there is none, this is a [`skip`].
pub fn shared(part: &str) -> Option<PathBuf> {
    let found = env::var_os("REFAULT_SHARED").map(|folder| Path::new(&folder).join(part)).filter(|path| path.exists());
    if found.is_none() {
        skip(format_args!("no {part}: it is looked for in the folder that REFAULT_SHARED names"));
    }
    found
}
