//! What the released binary is made of, as CycloneDX 1.5: each package with its version, licence, source and what it
//! depends on. From `cargo metadata`, without what only tests, build scripts' tests or other systems use.
//!
//! Source: the specification of CycloneDX 1.5, <https://cyclonedx.org/docs/1.5/json/>.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::steps::{Failure, output};

/// The package whose parts are listed.
const PRODUCT: &str = "refault-cli";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The SBOM of this workspace.
///
/// # Errors
/// Cargo cannot say what the workspace depends on.
pub fn of_workspace() -> Result<Value, Failure> {
    let words = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", TARGET];
    let metadata: Value = serde_json::from_str(&output(&words)?).map_err(|error| format!("cargo metadata: {error}"))?;
    sbom(&metadata)
}

/// The SBOM that metadata of cargo's describe.
fn sbom(metadata: &Value) -> Result<Value, Failure> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let (product, _) = packages
        .iter()
        .find(|(_, package)| package["name"] == PRODUCT)
        .ok_or_else(|| format!("cargo metadata lists no {PRODUCT}"))?;
    // Dependencies that are no tests', by package.
    let uses: BTreeMap<String, BTreeSet<String>> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| {
            let kept = list(&node["deps"])
                .into_iter()
                .filter(|dependency| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev"));
            (text(&node["id"]), kept.map(|dependency| text(&dependency["pkg"])).collect())
        })
        .collect();
    let mut found = BTreeSet::from([product.clone()]);
    let mut ahead = vec![product.clone()];
    while let Some(id) = ahead.pop() {
        for used in uses.get(&id).into_iter().flatten() {
            if found.insert(used.clone()) {
                ahead.push(used.clone());
            }
        }
    }
    let url = |id: &String| {
        let package = &packages[id];
        format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
    };
    let component = |id: &String| {
        let package = &packages[id];
        let name = text(&package["name"]);
        let mut component = json!({
            "type": if name == PRODUCT { "application" } else { "library" },
            "bom-ref": url(id),
            "name": name,
            "version": text(&package["version"]),
            "purl": url(id),
        });
        if let Some(licence) = package["license"].as_str() {
            // Old manifests separate alternatives by a slash.
            component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
        }
        component
    };
    let dependencies: Vec<Value> = found
        .iter()
        .map(
            |id| json!({"ref": url(id), "dependsOn": uses.get(id).into_iter().flatten().map(&url).collect::<Vec<_>>()}),
        )
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(product)},
        "components": found.iter().filter(|id| *id != product).map(component).collect::<Vec<_>>(),
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the schema of CycloneDX 1.5 demands of what is written, and that references resolve.
    #[test]
    fn the_sbom_is_whole() {
        let sbom = of_workspace().expect("cargo describes the workspace");
        assert_eq!((&sbom["bomFormat"], &sbom["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
        assert!(sbom["version"].as_u64() >= Some(1));
        let components = sbom["components"].as_array().expect("a list");
        assert!(components.len() > 80, "only {} components", components.len());
        let mut references = BTreeSet::from([sbom["metadata"]["component"]["bom-ref"].as_str().expect("text")]);
        for component in components {
            for field in ["type", "name", "version", "purl", "bom-ref"] {
                assert!(component[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {component}");
            }
            let licence = component["licenses"][0]["expression"].as_str();
            assert!(licence.is_some_and(|text| !text.is_empty() && !text.contains('/')), "{component}");
            assert!(references.insert(component["bom-ref"].as_str().expect("text")), "twice: {component}");
        }
        let dependencies = sbom["dependencies"].as_array().expect("a list");
        assert_eq!(dependencies.len(), references.len());
        for dependency in dependencies {
            let used = dependency["dependsOn"].as_array().expect("a list");
            for reference in used.iter().chain([&dependency["ref"]]) {
                assert!(references.contains(reference.as_str().expect("text")), "{reference} is no component");
            }
        }
        let names: BTreeSet<&str> = components.iter().filter_map(|component| component["name"].as_str()).collect();
        assert!(names.contains("refault-core") && names.contains("zstd-sys"), "{names:?}");
        assert!(!names.contains("proptest") && !names.contains("assert_cmd"), "what only tests use is listed");
    }
}
