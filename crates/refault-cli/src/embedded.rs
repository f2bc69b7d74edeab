//! The agent's library inside this binary, for a `refault` that was installed as one file.
//!
//! A program finds a preloaded library by its path, and so do the programs that it executes, after it may have closed
//! every descriptor. So the library becomes a file: in the user's cache directory, or in a private one for temporary
//! files; root's in one that all can read, for what root starts may become another user and then execute programs. It is compared with the packed one each time it is used, and replaced if it differs in a byte. Only where no
//! directory will do (none can be written, or nothing may be executed there) it is memory that has a name in `/proc`,
//! and programs that are executed after all descriptors were closed run without it.
//!
//! Cost: unpacking takes some milliseconds per run.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, StatVfsMountFlags};

/// File names and contents, packed.
static LIBRARIES: &[(&str, &[u8])] = refault_embed::libraries!(refault_boundary);

/// Where root's lies.
const FOR_ALL: &str = "/var/cache/refault";

/// Whether a path is one that [`library`] made.
pub fn made(path: &Path) -> bool {
    path.starts_with("/proc") || places().iter().any(|place| path.starts_with(place))
}

/// A path under which the library can be preloaded; `None` if this binary does not hold it.
pub fn library(name: &str) -> Option<PathBuf> {
    let (_, packed) = LIBRARIES.iter().find(|(known, _)| *known == name)?;
    let bytes = lz4_flex::decompress_size_prepended(packed).ok()?;
    places().into_iter().find_map(|place| file(&place, name, &bytes)).or_else(|| memory(name, &bytes))
}

/// Directories that may do, the best first.
fn places() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = variable("XDG_CACHE_HOME");
    let user = rustix::process::geteuid().as_raw();
    let for_all = (user == 0 && named.is_none()).then(|| PathBuf::from(FOR_ALL));
    let cache = named.or_else(|| Some(variable("HOME")?.join(".cache")));
    let own = cache.map(|cache| cache.join("refault"));
    for_all.into_iter().chain(own).chain([std::env::temp_dir().join(format!("refault-{user}"))]).collect()
}

/// The library as a file in this directory, if that is the user's alone and programs may be executed there.
fn file(place: &Path, name: &str, bytes: &[u8]) -> Option<PathBuf> {
    let place = std::path::absolute(place).ok()?;
    // LD_PRELOAD separates its files by these.
    if place.to_string_lossy().contains([':', ' ']) {
        return None;
    }
    // Its parent is there, or is the user's own cache directory.
    if !place.exists() {
        let mode = if place == Path::new(FOR_ALL) { 0o755 } else { 0o700 };
        DirBuilder::new().recursive(true).mode(mode).create(&place).ok()?;
        if mode == 0o755 {
            // Whatever the mask is.
            fs::set_permissions(&place, Permissions::from_mode(mode)).ok()?;
        }
    }
    let metadata = fs::symlink_metadata(&place).ok()?;
    let user = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        return None;
    }
    if rustix::fs::statvfs(&place).ok()?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return None;
    }
    let path = place.join(name);
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Some(path);
    }
    // Beside and renamed: another run may be using the old one.
    let mut new = tempfile::NamedTempFile::new_in(&place).ok()?;
    new.write_all(bytes).ok()?;
    new.as_file().set_permissions(Permissions::from_mode(0o755)).ok()?;
    new.persist(&path).ok()?;
    Some(path)
}

/// The library as memory; its descriptor stays open and is inherited.
fn memory(name: &str, bytes: &[u8]) -> Option<PathBuf> {
    let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::empty()).ok()?);
    file.write_all(bytes).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let _ = file.into_raw_fd();
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_once_and_mended() {
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().join("cache/refault");
        let path = file(&place, "a.so", b"bytes").expect("a file");
        let first = fs::metadata(&path).expect("it is there").ino();
        assert_eq!(file(&place, "a.so", b"bytes"), Some(path.clone()));
        assert_eq!(fs::metadata(&path).expect("it is there").ino(), first);
        fs::write(&path, b"other").expect("writes");
        assert_eq!(file(&place, "a.so", b"bytes"), Some(path.clone()));
        assert_eq!(fs::read(&path).expect("reads"), b"bytes");
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_used() {
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().join("open");
        fs::create_dir(&place).expect("a directory");
        fs::set_permissions(&place, Permissions::from_mode(0o777)).expect("its mode");
        assert_eq!(file(&place, "a.so", b"bytes"), None);
        let link = home.path().join("link");
        std::os::unix::fs::symlink(home.path(), &link).expect("a link");
        assert_eq!(file(&link, "a.so", b"bytes"), None);
    }

    #[test]
    fn memory_stands_in_for_a_file() {
        let path = memory("a.so", b"bytes").expect("memory");
        assert_eq!(fs::read(path).expect("reads"), b"bytes");
    }
}
