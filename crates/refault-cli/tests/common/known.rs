//! Results beside the list of known failures, `tests/known_failures.toml`.

#![allow(dead_code)] // Each test file uses a part of it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use refault_proof::known::{KnownFailures, Verdict};

/// The binary to try.
pub fn refault() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_refault"))
}

/// Results of one kind of test, judged by the list.
pub struct Tally {
    known: KnownFailures,
    counts: BTreeMap<&'static str, usize>,
    failures: Vec<String>,
}

impl Tally {
    /// For one section of the list.
    pub fn new(section: &str) -> Tally {
        let known = KnownFailures::section(include_str!("../known_failures.toml"), section).expect("it is well-formed");
        Tally { known, counts: BTreeMap::new(), failures: Vec::new() }
    }

    /// Takes one result and prints it.
    pub fn add(&mut self, name: &str, right: bool, details: &dyn Display) {
        println!("{name:11} {}: {details}", self.known.judge(name, right).word());
        self.add_quietly(name, right, details);
    }

    /// Takes one result that has been printed already.
    pub fn add_quietly(&mut self, name: &str, right: bool, details: &dyn Display) {
        let verdict = self.known.judge(name, right);
        *self.counts.entry(verdict.word()).or_default() += 1;
        if verdict.is_failure() {
            let advice = if verdict == Verdict::Mended { "; take it off tests/known_failures.toml" } else { "" };
            self.failures.push(format!("{name}: {}{advice}: {details}", verdict.word()));
        }
    }

    /// Fails if something was not as the list says.
    pub fn judge(self) {
        println!("{:?}", self.counts);
        assert!(!self.counts.is_empty(), "nothing was tried");
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
    }
}
