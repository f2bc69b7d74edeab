//! All that is given away with a version: tarball, `.deb`, wheel, sdist, SBOM and checksums, in one directory.
//!
//! The tarball and the package are made by `scripts/package.sh`, the wheel and the sdist by maturin, which pip fetches
//! into a virtual environment below `target`. The wheel is one for this machine's glibc; `scripts/python-wheels` makes
//! those for old systems and other machines.

use std::fs;
use std::path::Path;

use crate::sbom;
use crate::steps::{Failure, output, root, step};

/// Runs the task.
///
/// # Errors
/// A part cannot be made.
pub fn run(has_python: bool) -> Result<(), Failure> {
    let version = version()?;
    let directory = root().join(format!("target/release-{version}"));
    let out = directory.to_str().ok_or("the repository's path is not UTF-8")?;
    let failed = |error: std::io::Error| format!("{out}: {error}");
    // What an earlier one has left would be summed up too.
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(failed)?;
    }
    fs::create_dir_all(&directory).map_err(failed)?;
    step(&["scripts/package.sh", "--out", out])?;
    if has_python {
        let environment = "target/python-release";
        let maturin = format!("{environment}/bin/maturin");
        if !root().join(&maturin).exists() {
            step(&["python3", "-m", "venv", environment])?;
            step(&[&format!("{environment}/bin/pip"), "install", "--quiet", "maturin>=1.9,<2"])?;
        }
        let manifest = ["--manifest-path", "python/Cargo.toml", "--out", out];
        step(&[&[&maturin, "build", "--release", "--quiet"], &manifest[..]].concat())?;
        step(&[&[&maturin, "sdist"], &manifest[..]].concat())?;
    }
    let sbom = sbom::of_workspace()?;
    let path = directory.join(format!("refault-{version}.cdx.json"));
    fs::write(&path, format!("{sbom:#}\n")).map_err(failed)?;
    let names = names(&directory).map_err(failed)?;
    let sums = output(
        &[&["env", "-C", out, "sha256sum", "--"], &names.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat(),
    )?;
    fs::write(directory.join("SHA256SUMS"), &sums).map_err(failed)?;
    print!("{sums}");
    println!("in {out}");
    Ok(())
}

/// Names of the files in a directory, sorted.
fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// The version of all crates.
fn version() -> Result<String, Failure> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).map_err(|error| format!("Cargo.toml: {error}"))?;
    let (_, section) = manifest.split_once("[workspace.package]").ok_or("Cargo.toml has no [workspace.package]")?;
    let version = section.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    version.map(str::to_owned).ok_or_else(|| "Cargo.toml names no version".to_owned())
}
