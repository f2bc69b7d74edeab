//! Failures that are known: a list beside the tests that may only shrink.
//!
//! A test that is listed must still fail; one that passes has to leave the list. So the list says at every moment what
//! is not right, and nothing on it is forgotten.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::ProofError;

/// The name that stands for all that are not listed.
const EVERYTHING: &str = "*";

/// What a list says of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Known {
    /// It fails each time.
    Fails,
}

/// A list of known failures, by name.
#[derive(Debug, Clone, Default)]
pub struct KnownFailures(BTreeMap<String, Known>);

/// What to make of a result, given the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Right, as it should be.
    Right,
    /// Wrong, and it should be right.
    Wrong,
    /// Wrong, as the list says.
    KnownWrong,
    /// Right, although the list says that it fails: take it off the list.
    Mended,
}

impl Verdict {
    /// Whether a test must fail over it.
    pub fn is_failure(self) -> bool {
        matches!(self, Verdict::Wrong | Verdict::Mended)
    }

    /// The word for a table.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Right => "right",
            Verdict::Wrong => "WRONG",
            Verdict::KnownWrong => "wrong (known)",
            Verdict::Mended => "RIGHT, BUT LISTED AS A KNOWN FAILURE",
        }
    }
}

impl KnownFailures {
    /// Reads the lines `"name" = "fails"` of a section. A section that is not there is empty.
    ///
    /// # Errors
    /// Another shape, with its place.
    pub fn section(text: &str, section: &str) -> Result<KnownFailures, ProofError> {
        let sections: BTreeMap<String, BTreeMap<String, Known>> = toml::from_str(text)
            .map_err(|error| ProofError::Table { table: "known failures".into(), error: error.to_string() })?;
        Ok(KnownFailures(sections.get(section).cloned().unwrap_or_default()))
    }

    /// What a result means.
    pub fn judge(&self, name: &str, right: bool) -> Verdict {
        match (self.0.get(name).or_else(|| self.0.get(EVERYTHING)), right) {
            (None, true) => Verdict::Right,
            (None, false) => Verdict::Wrong,
            (Some(_), false) => Verdict::KnownWrong,
            (Some(Known::Fails), true) => Verdict::Mended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_must_fail_and_what_is_not_must_pass() {
        let known =
            KnownFailures::section("[x]\n\"a\" = \"fails\"\n[y]\n\"c\" = \"fails\"", "x").expect("it is well-formed");
        assert_eq!(known.judge("a", false), Verdict::KnownWrong);
        assert_eq!(known.judge("a", true), Verdict::Mended);
        assert_eq!(known.judge("c", true), Verdict::Right);
        assert_eq!(known.judge("c", false), Verdict::Wrong);
        let all = KnownFailures::section("[x]\n\"*\" = \"fails\"", "x").expect("it is well-formed");
        assert_eq!(all.judge("b", false), Verdict::KnownWrong);
        assert_eq!(all.judge("b", true), Verdict::Mended);
        assert!(KnownFailures::section("[x]\n\"a\" = \"sometimes\"", "x").is_err());
    }
}
