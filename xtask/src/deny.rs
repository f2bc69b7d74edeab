//! The rules of `deny.toml` on licences, sources and versions, held over all that Cargo.lock names.
//!
//! `cargo deny check` reads the same file and holds more of it: known vulnerabilities, for which it fetches the
//! database of advisories. It takes minutes to install, so that CI runs it only where it is there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::steps::{Failure, output, root};

/// Where packages may come from, as cargo names it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Runs the task.
///
/// # Errors
/// Names each package that a rule refuses.
pub fn run() -> Result<(), Failure> {
    let words = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"];
    let metadata: Value = serde_json::from_str(&output(&words)?).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages: Vec<Package> = metadata["packages"].as_array().into_iter().flatten().map(Package::of).collect();
    let wrong = refused(&packages, &Allowed::read()?);
    for (name, versions) in duplicates(&packages) {
        println!(
            "{name} is there in {} versions: {}",
            versions.len(),
            versions.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
    if !wrong.is_empty() {
        return Err(format!("deny.toml refuses:\n{}", wrong.join("\n")));
    }
    println!("{} packages keep to deny.toml", packages.len());
    Ok(())
}

/// What cargo says of a package.
#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    /// None: it lies in this repository.
    source: Option<String>,
}

impl Package {
    fn of(package: &Value) -> Package {
        let text = |field: &str| package[field].as_str().map(str::to_owned);
        Package {
            name: text("name").unwrap_or_default(),
            version: text("version").unwrap_or_default(),
            licence: text("license"),
            source: text("source"),
        }
    }
}

/// The licences that deny.toml allows.
struct Allowed {
    /// To all packages.
    all: BTreeSet<String>,
    /// To a package of this name.
    exceptions: BTreeSet<(String, String)>,
}

impl Allowed {
    fn read() -> Result<Allowed, Failure> {
        let text = std::fs::read_to_string(root().join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
        let rules: toml::Table = text.parse().map_err(|error| format!("deny.toml: {error}"))?;
        let licences = rules.get("licenses").ok_or("deny.toml says nothing of licences")?;
        let exceptions = licences.get("exceptions").and_then(toml::Value::as_array).into_iter().flatten();
        let of_package = |exception: &toml::Value| {
            let name = exception.get("crate").and_then(toml::Value::as_str).unwrap_or_default().to_owned();
            names(exception).into_iter().map(move |licence| (name.clone(), licence))
        };
        Ok(Allowed {
            all: names(licences).into_iter().collect(),
            exceptions: exceptions.flat_map(of_package).collect(),
        })
    }

    fn is_allowed(&self, package: &str, licence: &str) -> bool {
        self.all.contains(licence) || self.exceptions.contains(&(package.to_owned(), licence.to_owned()))
    }
}

/// The list `allow` of a table.
fn names(table: &toml::Value) -> Vec<String> {
    let allow = table.get("allow").and_then(toml::Value::as_array).into_iter().flatten();
    allow.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// A line for each package that may not be used.
fn refused(packages: &[Package], allowed: &Allowed) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let Package { name, version, licence, source } = package;
        let mut refuse = |why: String| wrong.push(format!("{name} {version}: {why}"));
        if source.as_ref().is_some_and(|source| source != REGISTRY) {
            refuse(format!("comes from {}", source.as_deref().unwrap_or_default()));
        }
        match licence.as_deref().map(|text| (text, Expression::parse_mode(text, ParseMode::LAX))) {
            None => refuse("names no licence".to_owned()),
            Some((text, Err(_))) => refuse(format!("has a licence that is no SPDX expression: {text}")),
            Some((text, Ok(expression))) => {
                if !expression.evaluate(|wanted| allowed.is_allowed(name, &wanted.to_string())) {
                    refuse(format!("has the licence {text}"));
                }
            }
        }
    }
    wrong
}

/// Packages of which there are several versions.
fn duplicates(packages: &[Package]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(licence: Option<&str>, source: Option<&str>) -> Package {
        let owned = |text: &str| text.to_owned();
        Package { name: "a".into(), version: "1.0.0".into(), licence: licence.map(owned), source: source.map(owned) }
    }

    #[test]
    fn licences_and_sources_are_refused() {
        let all = BTreeSet::from(["MIT".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()]);
        let exceptions = BTreeSet::from([("b".to_owned(), "GPL-3.0".to_owned())]);
        let allowed = Allowed { all, exceptions };
        let refused = |licence, source| !refused(&[package(licence, source)], &allowed).is_empty();
        for licence in
            ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR Zlib) AND MIT", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(!refused(Some(licence), Some(REGISTRY)), "{licence}");
        }
        for licence in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "no licence at all"] {
            assert!(refused(Some(licence), None), "{licence}");
        }
        assert!(refused(None, None));
        assert!(refused(Some("MIT"), Some("git+https://example.org/a")));
    }

    #[test]
    fn what_the_workspace_uses_is_allowed() {
        run().expect("deny.toml allows all of it");
    }

    #[test]
    fn several_versions_are_found() {
        let second = Package { version: "2.0.0".into(), ..package(None, None) };
        let packages = [package(None, None), second, package(None, None)];
        assert_eq!(duplicates(&packages)["a"], BTreeSet::from(["1.0.0", "2.0.0"]));
        assert!(duplicates(&packages[..1]).is_empty());
    }
}
