//! Kernels that can be booted: an image and the modules that a guest may need, from packages, kept in the cache.

pub mod fetch;
pub mod modules;
pub mod package;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use refault_lab::LabError;

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its release, such as `6.12.117+deb13-amd64`.
    pub release: String,
    /// Its image.
    pub image: PathBuf,
    /// Its modules by name, unpacked, those that are needed and what they need.
    pub modules: BTreeMap<String, Vec<u8>>,
    /// Whether it came from outside the cache.
    pub is_new: bool,
}

const IMAGE: &str = "vmlinuz";
const MODULES: &str = "modules";
/// Folders of a kernel's tree that have what a guest may need.
const FOLDERS: [&str; 10] = [
    "/drivers/block/",
    "/drivers/virtio/",
    "/drivers/cdrom/",
    "/fs/isofs/",
    "/fs/ext4/",
    "/fs/jbd2/",
    "/fs/mbcache",
    "/mm/",
    "/lib/",
    "/crypto/",
];

impl Kernel {
    /// The version without what distributions add: `6.12` of `6.12.117+deb13-amd64`.
    pub fn version(&self) -> &str {
        version_of(&self.release)
    }

    /// A kernel by version (`6.12`), or from a package (`.deb`, several joined by `:`) or an image. Kernels of a version
    /// that were fetched before are taken from the cache; with `newest` they are looked for again.
    ///
    /// # Errors
    /// There is no such kernel or file, or it has no image.
    pub fn find(name: &str, cache: &Path, newest: bool, say: &dyn Fn(&str)) -> Result<Kernel, LabError> {
        let kept = cache.join("kernels");
        let files: Vec<&str> = name.split(':').collect();
        if files.iter().all(|file| Path::new(file).is_file()) {
            return from_files(&files, &kept);
        }
        if name.contains('/') || name.ends_with(".deb") {
            return Err(LabError::request("no such file", name, "name a package or an image that is there"));
        }
        if !newest && let Some(kernel) = kept_of(name, &kept) {
            return Ok(kernel);
        }
        let packages = fetch::kernel(name, say)?;
        let packages = packages.into_iter().map(|(package, contents)| (package.name, contents)).collect();
        from_packages(packages, &kept)
    }
}

/// The first two numbers of a release.
pub fn version_of(release: &str) -> &str {
    let end = release.match_indices(|c: char| !c.is_ascii_digit()).nth(1).map_or(release.len(), |(at, _)| at);
    &release[..end]
}

/// The newest kernel of a version in the cache.
fn kept_of(version: &str, kept: &Path) -> Option<Kernel> {
    let releases =
        std::fs::read_dir(kept).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_wanted = |release: &String| version_of(release) == version || release.starts_with(&format!("{version}+"));
    let numbers = |release: &String| -> Vec<u64> {
        release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    let newest = releases.filter(is_wanted).max_by_key(numbers)?;
    load(&kept.join(&newest), newest, false).ok()
}

/// A kernel as it lies in the cache.
fn load(directory: &Path, release: String, is_new: bool) -> Result<Kernel, LabError> {
    let unreadable = |error: std::io::Error| {
        LabError::failed(format!("cannot read a kernel: {error}"), directory.display(), "remove it, and ask again")
    };
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory.join(MODULES)).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        found.insert(name, std::fs::read(entry.path()).map_err(unreadable)?);
    }
    Ok(Kernel { release, image: directory.join(IMAGE), modules: found, is_new })
}

fn from_files(files: &[&str], kept: &Path) -> Result<Kernel, LabError> {
    let read = |file: &&str| {
        let contents = std::fs::read(file).map_err(|error| {
            LabError::request(format!("cannot be read: {error}"), file, "name a package or an image that can be read")
        })?;
        Ok(((*file).to_owned(), contents))
    };
    let contents: Vec<(String, Vec<u8>)> = files.iter().map(read).collect::<Result<_, LabError>>()?;
    if let [(file, image)] = &contents[..]
        && let Some(release) = release_of_image(image)
    {
        // What an image alone needs has to be part of it.
        let path = std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file));
        return Ok(Kernel { release, image: path, modules: BTreeMap::new(), is_new: true });
    }
    from_packages(contents, kept)
}

/// The release that a kernel's image for PCs says of itself.
fn release_of_image(image: &[u8]) -> Option<String> {
    const SIGNATURE: std::ops::Range<usize> = 0x202..0x206;
    const VERSION: std::ops::Range<usize> = 0x20e..0x210;
    const HEADER: usize = 0x200;
    if image.get(SIGNATURE)? != b"HdrS" {
        return None;
    }
    let place = u16::from_le_bytes(image.get(VERSION)?.try_into().ok()?) as usize + HEADER;
    let text = image.get(place..)?.split(|byte| *byte == 0 || *byte == b' ').next()?;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

fn from_packages(packages: Vec<(String, Vec<u8>)>, kept: &Path) -> Result<Kernel, LabError> {
    let place = packages.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(":");
    let (mut image, mut found, mut release) = (None, BTreeMap::new(), None);
    for (name, contents) in &packages {
        package::files(contents, name, &is_wanted, &mut |path, contents| {
            match modules::name(&path) {
                Some(module) => {
                    release = release
                        .take()
                        .or_else(|| path.split("lib/modules/").nth(1)?.split('/').next().map(str::to_owned));
                    found.insert(module, (path, contents));
                }
                None => image = Some(contents),
            }
            Ok(())
        })?;
    }
    let remedy = "name the package that has the image (linux-image-…), or several joined by :";
    let image = image.ok_or_else(|| LabError::request("no kernel image in the package", &place, remedy))?;
    let release = release.or_else(|| release_of_image(&image));
    let release = release.ok_or_else(|| LabError::request("no kernel in the package", &place, remedy))?;
    let unpacked = found.into_iter().map(|(name, (path, contents))| Ok((name, package::unpacked(contents, &path)?)));
    let unpacked: BTreeMap<String, Vec<u8>> = unpacked.collect::<Result<_, LabError>>()?;
    keep(&kept.join(&release), &image, &unpacked)?;
    load(&kept.join(&release), release, true)
}

fn is_wanted(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    let is_image = file == IMAGE || file.starts_with("vmlinuz-");
    is_image || path.contains(".ko") && FOLDERS.iter().any(|folder| path.contains(folder))
}

/// Writes a kernel into the cache: all or nothing.
fn keep(directory: &Path, image: &[u8], all: &BTreeMap<String, Vec<u8>>) -> Result<(), LabError> {
    let write = || -> std::io::Result<()> {
        let parent = directory.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent)?;
        let part = tempfile::Builder::new().prefix(".part").tempdir_in(parent)?;
        std::fs::create_dir(part.path().join(MODULES))?;
        std::fs::write(part.path().join(IMAGE), image)?;
        for name in modules::order(all) {
            std::fs::write(part.path().join(MODULES).join(&name), &all[&name])?;
        }
        if directory.exists() {
            std::fs::remove_dir_all(directory)?;
        }
        std::fs::rename(part.keep(), directory)
    };
    write().map_err(|error| {
        let remedy = "make room or set XDG_CACHE_HOME to a directory that can be written";
        LabError::failed(format!("cannot keep the kernel: {error}"), directory.display(), remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_first_two_numbers() {
        assert_eq!(version_of("6.12.117+deb13-amd64"), "6.12");
        assert_eq!(version_of("6.1.0-50-amd64"), "6.1");
        assert_eq!((version_of("7.2"), version_of("")), ("7.2", ""));
    }

    #[test]
    fn a_kept_kernel_is_found_by_version_and_what_is_not_there_is_said() {
        let cache = tempfile::tempdir().expect("a directory");
        let kept = cache.path().join("kernels");
        for release in ["6.12.9+deb13-amd64", "6.12.117+deb13-amd64", "6.1.0-50-amd64"] {
            keep(&kept.join(release), release.as_bytes(), &BTreeMap::from([("zram".into(), b"z".to_vec())]))
                .expect("kept");
        }
        let silent = |_: &str| panic!("nothing is fetched");
        let kernel = Kernel::find("6.12", cache.path(), false, &silent).expect("kept");
        assert_eq!((kernel.release.as_str(), kernel.modules.len()), ("6.12.117+deb13-amd64", 1));
        let path = cache.path().join("absent.deb").display().to_string();
        let said = Kernel::find(&path, cache.path(), false, &silent).expect_err("absent").to_string();
        assert!(said.contains("no such file") && said.contains(&path), "{said}");
        let broken = cache.path().join("broken.deb");
        std::fs::write(&broken, b"no package").expect("written");
        let said = Kernel::find(&broken.display().to_string(), cache.path(), false, &silent).expect_err("broken");
        assert!(said.to_string().contains("not a whole Debian package"), "{said}");
    }

    #[test]
    fn an_image_says_its_release() {
        let mut image = vec![0u8; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        image[0x300..0x30d].copy_from_slice(b"6.9.1 (me) #1");
        assert_eq!(release_of_image(&image).as_deref(), Some("6.9.1"));
        assert_eq!(release_of_image(b"no image"), None);
    }
}
