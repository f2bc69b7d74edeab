//! Lets go of what is cached of files.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use super::pages;
use super::walk::open;

/// What was let go of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Files.
    pub files: u64,
    /// Bytes by which they are cached less.
    pub bytes: u64,
}

/// All regular files at or below a path, on its file system.
///
/// # Errors
/// The path is not there.
pub fn below(path: &Path) -> io::Result<Vec<PathBuf>> {
    use std::os::unix::fs::MetadataExt;

    let data = std::fs::symlink_metadata(path)?;
    let device = data.dev();
    let (mut left, mut all) = (vec![path.to_owned()], Vec::new());
    while let Some(next) = left.pop() {
        let Ok(data) = std::fs::symlink_metadata(&next) else { continue };
        if data.is_file() {
            all.push(next);
        } else if data.is_dir() && data.dev() == device {
            left.extend(std::fs::read_dir(&next).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    all.sort();
    Ok(all)
}

/// Writes what is dirty of these files, and lets go of what is cached of them; what a process maps or has locked stays.
///
/// # Errors
/// What is dirty of a file cannot be written. Files that cannot be opened are left out.
pub fn drop_cached(files: &[PathBuf]) -> io::Result<Dropped> {
    let mut dropped = Dropped::default();
    for path in files {
        let Ok(file) = open(path) else { continue };
        let size = file.metadata()?.len();
        let cached = || pages::cached(&file, size).map_or(0, |(cached, _)| cached.cached_bytes);
        let before = if size > 0 { cached() } else { 0 };
        if before == 0 {
            continue;
        }
        // Dirty pages stay otherwise.
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        dropped.files += 1;
        dropped.bytes += before.saturating_sub(cached());
    }
    Ok(dropped)
}
