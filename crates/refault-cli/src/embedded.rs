//! The agent's library inside this binary, for a `refault` that was installed as one file.
//!
//! A program finds a preloaded library by its path, and so do the programs that it executes, after it may have closed
//! every descriptor. So the library becomes a file: in the user's cache directory, or in a private one for temporary
//! files. Root's lies in one that all can read: what root starts may become another user and then execute programs. It
//! is compared with the packed one each time it is used, and replaced if it differs in a byte. Each build's has a
//! directory of its own, named by what is in it. So programs that another build has started go on executing others with
//! the library of that. When `refault` writes a new one, it removes those that no process has used for a month. Where
//! no directory will do (none can be written, or nothing may be executed there), the library is memory that has a name
//! in `/proc`. Programs that are executed after all descriptors were closed then run without it.
//!
//! Cost: unpacking takes some milliseconds per run. It goes by small pieces, and what it took is given back, so that the
//! command, whose memory is part of the budget, is no larger afterwards.

use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, MemfdFlags, StatVfsMountFlags};

/// File names and contents, packed.
static LIBRARIES: &[(&str, &[u8])] = refault_embed::libraries!(refault_boundary);

/// Where root's lies.
const FOR_ALL: &str = "/var/cache/refault";
/// Libraries of other builds are removed when no process has used them for this time.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Whether a path is one that [`library`] made.
pub fn made(path: &Path) -> bool {
    path.starts_with("/proc") || places().iter().any(|place| path.starts_with(place))
}

/// A path under which the library can be preloaded; `None` if this binary does not hold it.
pub fn library(name: &str) -> Option<PathBuf> {
    let (_, packed) = LIBRARIES.iter().find(|(known, _)| *known == name)?;
    let path = places().into_iter().find_map(|place| file(&place, name, packed)).or_else(|| memory(name, packed));
    give_back();
    path
}

/// Gives the kernel back what is free: the window of a decoder is as large as the library, and the heap may keep it.
#[allow(unsafe_code)] // A call of the allocator's.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number, and pages that no allocation lies in.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The bytes of a packed library, in order.
fn unpack(packed: &[u8]) -> Option<impl Read> {
    zstd::Decoder::with_buffer(packed).ok()
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

/// The packed library as a file in this directory, if that is the user's alone and programs may be executed there.
fn file(place: &Path, name: &str, packed: &[u8]) -> Option<PathBuf> {
    let place = std::path::absolute(place).ok()?;
    // LD_PRELOAD separates its files by these.
    if place.to_string_lossy().contains([':', ' ']) {
        return None;
    }
    make_directory(&place, &place)?;
    let metadata = fs::symlink_metadata(&place).ok()?;
    let user = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        return None;
    }
    if rustix::fs::statvfs(&place).ok()?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    packed.hash(&mut hasher);
    let inner = place.join(format!("{:016x}", hasher.finish()));
    make_directory(&inner, &place)?;
    let path = inner.join(name);
    if !is_there(&path, packed) {
        // Beside and renamed: another run may be using the old one.
        let mut new = tempfile::NamedTempFile::new_in(&inner).ok()?;
        io::copy(&mut unpack(packed)?, &mut new).ok()?;
        new.as_file().set_permissions(Permissions::from_mode(0o755)).ok()?;
        keep(new.persist(&path).ok()?);
        remove_old(&place, &inner, name);
    }
    Some(path)
}

/// Makes a directory in the place or the place itself. Its parent is there, or is the user's own cache directory.
fn make_directory(directory: &Path, place: &Path) -> Option<()> {
    if !directory.exists() {
        let mode = if place == Path::new(FOR_ALL) { 0o755 } else { 0o700 };
        DirBuilder::new().recursive(true).mode(mode).create(directory).ok()?;
        if mode == 0o755 {
            // Whatever the mask is.
            fs::set_permissions(directory, Permissions::from_mode(mode)).ok()?;
        }
    }
    Some(())
}

/// Whether a file holds the bytes of a packed library. If so it is in use from now on, as long as this process lives.
fn is_there(path: &Path, packed: &[u8]) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let Some(mut wanted) = unpack(packed) else { return false };
    if !are_equal(&mut wanted, &mut file).unwrap_or(false) {
        return false;
    }
    _ = file.set_modified(SystemTime::now());
    let number = file.metadata().map(|metadata| metadata.ino()).ok();
    keep(file);
    // It may have been removed, as an old one, before it was kept.
    number.is_some() && fs::metadata(path).map(|metadata| metadata.ino()).ok() == number
}

/// Whether two sources give the same bytes up to their ends.
fn are_equal(one: &mut impl Read, other: &mut impl Read) -> io::Result<bool> {
    const PIECE: u64 = 64 << 10;
    let (mut here, mut there) = (Vec::new(), Vec::new());
    loop {
        here.clear();
        there.clear();
        one.by_ref().take(PIECE).read_to_end(&mut here)?;
        other.by_ref().take(PIECE).read_to_end(&mut there)?;
        if here != there || here.is_empty() {
            return Ok(here == there);
        }
    }
}

/// No process takes the file for an old one until this process ends.
fn keep(file: File) {
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        let _ = file.into_raw_fd();
    }
}

/// Removes the libraries of other builds that no process has used for [`KEPT`] and that no running `refault` keeps.
fn remove_old(place: &Path, own: &Path, name: &str) {
    for directory in fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let path = directory.join(name);
        let Some(file) = (directory != own).then(|| File::open(&path).ok()).flatten() else { continue };
        let is_old = || {
            let used = file.metadata().and_then(|metadata| metadata.modified()).ok();
            used.is_some_and(|used| used.elapsed().is_ok_and(|age| age > KEPT))
        };
        if is_old() && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_old() {
            _ = fs::remove_file(&path);
            _ = fs::remove_dir(&directory);
        }
    }
}

/// The packed library as memory; its descriptor stays open and is inherited.
fn memory(name: &str, packed: &[u8]) -> Option<PathBuf> {
    let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::empty()).ok()?);
    io::copy(&mut unpack(packed)?, &mut file).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let _ = file.into_raw_fd();
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 1).expect("it packs")
    }

    #[test]
    fn bytes_are_compared_to_the_end_of_both() {
        let long = vec![7; 200_000];
        let are_equal = |one: &[u8], other: &[u8]| are_equal(&mut &*one, &mut &*other).expect("they read");
        assert!(are_equal(&long, &long) && are_equal(b"", b""));
        assert!(!are_equal(&long, &long[..199_999]) && !are_equal(&long[..65_536], &long) && !are_equal(b"", b"a"));
        let mut other = long.clone();
        other[131_072] = 8;
        assert!(!are_equal(&long, &other));
    }

    #[test]
    fn a_file_is_made_once_and_mended() {
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().join("cache/refault");
        let path = file(&place, "a.so", &packed(b"bytes")).expect("a file");
        let first = fs::metadata(&path).expect("it is there").ino();
        assert_eq!(file(&place, "a.so", &packed(b"bytes")), Some(path.clone()));
        assert_eq!(fs::metadata(&path).expect("it is there").ino(), first);
        fs::write(&path, b"other").expect("writes");
        assert_eq!(file(&place, "a.so", &packed(b"bytes")), Some(path.clone()));
        assert_eq!(fs::read(&path).expect("reads"), b"bytes");
    }

    #[test]
    fn each_build_has_a_file_of_its_own() {
        let home = tempfile::tempdir().expect("a directory");
        let ours = file(home.path(), "a.so", &packed(b"ours")).expect("a file");
        let theirs = file(home.path(), "a.so", &packed(b"theirs")).expect("a file");
        assert_eq!(fs::read(&ours).expect("reads"), b"ours");
        assert_eq!(fs::read(&theirs).expect("reads"), b"theirs");
        assert_eq!((ours.file_name(), theirs.file_name()), (Some("a.so".as_ref()), Some("a.so".as_ref())));
    }

    #[test]
    fn a_file_that_nobody_has_used_for_long_goes_when_another_comes() {
        let home = tempfile::tempdir().expect("a directory");
        let old = |name: &str, seconds: u64| {
            let directory = home.path().join(name);
            fs::create_dir(&directory).expect("a directory");
            let file = File::create(directory.join("a.so")).expect("a file");
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).expect("its time");
            (directory, file)
        };
        let month = KEPT.as_secs();
        let ((unused, _), (used, held), (young, _)) =
            (old("1", month + 60), old("2", month + 60), old("3", month - 60));
        keep(held);
        file(home.path(), "a.so", &packed(b"bytes")).expect("a file");
        assert_eq!((unused.exists(), used.exists(), young.exists()), (false, true, true));
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_used() {
        let home = tempfile::tempdir().expect("a directory");
        let place = home.path().join("open");
        fs::create_dir(&place).expect("a directory");
        fs::set_permissions(&place, Permissions::from_mode(0o777)).expect("its mode");
        assert_eq!(file(&place, "a.so", &packed(b"bytes")), None);
        let link = home.path().join("link");
        std::os::unix::fs::symlink(home.path(), &link).expect("a link");
        assert_eq!(file(&link, "a.so", &packed(b"bytes")), None);
    }

    #[test]
    fn memory_stands_in_for_a_file() {
        let path = memory("a.so", &packed(b"bytes")).expect("memory");
        assert_eq!(fs::read(path).expect("reads"), b"bytes");
    }
}
