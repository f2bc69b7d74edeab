//! Debian's packages of a kernel: found in the index of a suite by version, fetched by `curl`, checked by their hashes.

use std::process::Command;

use lzma_rust2::XzReader;
use refault_lab::LabError;
use sha2::{Digest, Sha256};

const MIRROR: &str = "https://deb.debian.org/debian";
/// Suites in the order in which a version is looked for.
const SUITES: [&str; 4] = ["trixie", "bookworm", "sid", "trixie-backports"];
/// The parts that kernels come in: older ones in one, newer ones in several.
const PARTS: [&str; 4] = ["image", "binary", "modules", "base"];
/// How names of the packages of plain kernels end.
const FLAVOUR: &str = "-amd64";
const UNSIGNED: &str = "-unsigned";
const REMEDY: &str = "try again with the network there, or name a package: --kernel PATH.deb";

/// A package of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Where it lies on the mirror.
    pub path: String,
    /// The hash of its contents, in hexadecimal digits.
    pub sha256: String,
}

/// Downloads the packages of the newest kernel of a version such as `6.12`; `say` hears what is done.
///
/// # Errors
/// No suite has one, or the mirror cannot be reached, or what comes is damaged.
pub fn kernel(version: &str, say: &dyn Fn(&str)) -> Result<Vec<(Package, Vec<u8>)>, LabError> {
    if !is_version(version) {
        let remedy = "name a version such as 6.12, or a package or an image that is there";
        return Err(LabError::request("not a kernel", version, remedy));
    }
    for suite in SUITES {
        say(&format!("looking for kernel {version} in Debian {suite}"));
        let packed = download(&format!("{MIRROR}/dists/{suite}/main/binary-amd64/Packages.xz"))?;
        let mut index = String::new();
        std::io::Read::read_to_string(&mut XzReader::new(&packed[..], true), &mut index)
            .map_err(|error| LabError::failed(format!("damaged list of packages: {error}"), suite, REMEDY))?;
        let wanted = packages(&index, version);
        if wanted.is_empty() {
            continue;
        }
        return wanted
            .into_iter()
            .map(|package| {
                say(&format!("fetching {}", package.name));
                let contents = download(&format!("{MIRROR}/{}", package.path))?;
                check(&package, &contents)?;
                Ok((package, contents))
            })
            .collect();
    }
    let remedy =
        "Debian's suites have other versions (6.1, 6.12, 7.2 for instance); or name a package: --kernel PATH.deb";
    Err(LabError::request("no such kernel in Debian", version, remedy))
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    (2..=3).contains(&parts.len()) && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

fn check(package: &Package, contents: &[u8]) -> Result<(), LabError> {
    let found: String = Sha256::digest(contents).iter().map(|byte| format!("{byte:02x}")).collect();
    if found == package.sha256 {
        return Ok(());
    }
    Err(LabError::failed("the package is not what its index says", &package.name, REMEDY))
}

/// The packages of the newest kernel of a version in an index. A signed image goes before one without a signature.
fn packages(index: &str, version: &str) -> Vec<Package> {
    let mut found: Vec<(Vec<u64>, Package)> = index
        .split("\n\n")
        .filter_map(|entry| {
            let field = |key: &str| entry.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            let name = field("Package:")?;
            let numbers = numbers_of(name, version)?;
            let package =
                Package { name: name.into(), path: field("Filename:")?.into(), sha256: field("SHA256:")?.into() };
            Some((numbers, package))
        })
        .collect();
    let Some(newest) = found.iter().map(|(numbers, _)| numbers.clone()).max() else { return Vec::new() };
    found.retain(|(numbers, _)| *numbers == newest);
    let is_unsigned = |(_, package): &(Vec<u64>, Package)| package.name.ends_with(UNSIGNED);
    if !found.iter().all(is_unsigned) {
        found.retain(|one| !is_unsigned(one));
    }
    found.into_iter().map(|(_, package)| package).collect()
}

/// The numbers in the name of a kernel's package, if it is one of the version.
fn numbers_of(name: &str, version: &str) -> Option<Vec<u64>> {
    let release = PARTS.iter().find_map(|part| name.strip_prefix(&format!("linux-{part}-")))?;
    let release = release.strip_suffix(UNSIGNED).unwrap_or(release).strip_suffix(FLAVOUR)?;
    let rest = release.strip_prefix(version)?;
    // 6.1 is not 6.12, and neither is a flavour such as 6.12.1-rt.
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let rest_is_plain = rest.replace("deb", "").chars().all(is_number);
    if !rest.starts_with(['.', '-', '+']) || !rest_is_plain {
        return None;
    }
    Some(release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect())
}

/// The contents behind an address.
fn download(address: &str) -> Result<Vec<u8>, LabError> {
    let output = Command::new("curl").args(["-fsSL", "--retry", "2", "--connect-timeout", "20", address]).output();
    match output {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().last().unwrap_or("curl failed").trim_start_matches("curl: ").to_owned();
            Err(LabError::failed(format!("cannot be fetched: {why}"), address, REMEDY))
        }
        Err(_) => Err(LabError::failed(
            "curl is not installed, which fetches packages",
            address,
            "install curl, or name a package: --kernel PATH.deb",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> String {
        format!("Package: {name}\nVersion: 1\nFilename: pool/{name}.deb\nSHA256: ab\n")
    }

    fn found(names: &[&str], version: &str) -> Vec<String> {
        let index = names.iter().map(|name| entry(name)).collect::<Vec<_>>().join("\n");
        packages(&index, version).into_iter().map(|package| package.name).collect()
    }

    #[test]
    fn the_newest_plain_kernel_of_a_version_is_found() {
        let names = [
            "linux-image-6.12.9+deb13-amd64",
            "linux-image-6.12.117+deb13-amd64",
            "linux-image-6.12.117+deb13-amd64-unsigned",
            "linux-image-6.12.117+deb13-rt-amd64",
            "linux-image-6.12.200+deb13-cloud-amd64",
            "linux-image-6.12.117+deb13-arm64",
            "linux-headers-6.12.300+deb13-amd64",
            "linux-image-6.1.0-50-amd64",
        ];
        assert_eq!(found(&names, "6.12"), ["linux-image-6.12.117+deb13-amd64"]);
        assert_eq!(found(&names, "6.12.9"), ["linux-image-6.12.9+deb13-amd64"]);
        assert_eq!(found(&names, "6.1"), ["linux-image-6.1.0-50-amd64"]);
        assert!(found(&names, "6.3").is_empty());
        assert_eq!(found(&["linux-image-5.1-amd64-unsigned"], "5.1").len(), 0, "a version without a number of its own");
        let parts = ["linux-binary-7.2.13+deb14-amd64", "linux-modules-7.2.13+deb14-amd64"];
        assert_eq!(found(&parts, "7.2"), parts);
        assert_eq!(found(&["linux-image-6.1.0-9-amd64-unsigned"], "6.1"), ["linux-image-6.1.0-9-amd64-unsigned"]);
    }

    #[test]
    fn versions_are_numbers_and_damage_is_found() {
        let refused = kernel("six", &|_| panic!("nothing is fetched")).expect_err("no version").to_string();
        assert!(refused.contains("not a kernel") && refused.contains("6.12"), "{refused}");
        assert!(is_version("6.12") && is_version("6.12.117") && !is_version("6") && !is_version("6.x"));
        let package = Package { name: "p".into(), path: "p".into(), sha256: "00".into() };
        assert!(
            check(&package, b"contents").expect_err("another hash").to_string().contains("not what its index says")
        );
        let sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".into();
        assert!(check(&Package { sha256, ..package }, b"").is_ok());
    }
}
