//! Walks directories with all processors and keeps the files of which most is cached.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Cached, CachedFile, Found, Scan, pages};
use crate::text::printable;

/// File systems without a device whose files are cached all the same.
const CACHED: [&str; 9] = ["tmpfs", "overlay", "nfs", "nfs4", "cifs", "smb3", "zfs", "9p", "virtiofs"];
const MAX_THREADS: usize = 16;

/// Directories that are left, and how many threads look into one.
#[derive(Debug, Default)]
struct Left {
    directories: Vec<(PathBuf, u64)>,
    busy: usize,
}

/// A file by what is cached of it; its path makes the order definite.
type Ranked = Reverse<(u64, Reverse<PathBuf>)>;

#[derive(Default)]
struct Sums {
    found: Found,
    largest: BinaryHeap<Ranked>,
    kept: std::collections::HashMap<PathBuf, (Metadata, Cached)>,
}

/// Where file systems are mounted whose files are cached, each once.
pub fn mounts() -> Vec<PathBuf> {
    let kinds = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let of_devices: Vec<&str> = kinds.lines().filter(|line| !line.starts_with("nodev")).map(str::trim).collect();
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let (mut seen, mut all) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (words.next(), words.next()) else { continue };
        let point = PathBuf::from(point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"));
        let is_cached = of_devices.contains(&kind) || CACHED.contains(&kind);
        let Some(device) = fs::metadata(&point).ok().map(|data| data.dev()).filter(|_| is_cached) else { continue };
        if !seen.contains(&device) {
            seen.push(device);
            all.push(point);
        }
    }
    all
}

/// Looks at all files below these paths. What cannot be opened is counted, and so is a file that is gone meanwhile.
///
/// # Errors
/// One of the paths is not there.
pub fn scan(scan: &Scan) -> io::Result<Found> {
    let mut left = Left::default();
    let mut sums = Sums::default();
    for path in &scan.paths {
        let data = fs::symlink_metadata(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        match data.is_dir() {
            true => left.directories.push((path.clone(), data.dev())),
            false => look(path, &mut sums, scan.top),
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let (left, more) = (Mutex::new(left), Condvar::new());
    let all: Vec<Sums> = std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..threads).map(|_| scope.spawn(|| walk(&left, &more, scan))).collect();
        walkers.into_iter().filter_map(|walker| walker.join().ok()).collect()
    });
    for part in all {
        sums.join(part, scan.top);
    }
    Ok(sums.ended())
}

fn locked(left: &Mutex<Left>) -> MutexGuard<'_, Left> {
    left.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes directories until none is left and no thread could find more.
fn walk(left: &Mutex<Left>, more: &Condvar, scan: &Scan) -> Sums {
    let mut sums = Sums::default();
    loop {
        let waits = |left: &mut Left| left.directories.is_empty() && left.busy > 0;
        let next = {
            let mut left = more.wait_while(locked(left), waits).unwrap_or_else(PoisonError::into_inner);
            let next = left.directories.pop();
            left.busy += usize::from(next.is_some());
            next
        };
        let Some((directory, device)) = next else { break };
        let below = into(&directory, device, scan, &mut sums);
        let mut left = locked(left);
        left.directories.extend(below.into_iter().map(|path| (path, device)));
        left.busy -= 1;
        more.notify_all();
    }
    more.notify_all();
    sums
}

/// Looks at the files of a directory, and answers the directories in it.
fn into(directory: &Path, device: u64, scan: &Scan, sums: &mut Sums) -> Vec<PathBuf> {
    let mut below = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else {
        sums.found.refused += 1;
        return below;
    };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            let path = entry.path();
            // Of a directory on another file system the number of the device differs.
            let is_here = || fs::symlink_metadata(&path).is_ok_and(|data| data.dev() == device);
            if scan.crosses_mounts || is_here() {
                below.push(path);
            }
        } else if kind.is_file() {
            look(&entry.path(), sums, scan.top);
        }
    }
    below
}

/// Opens a file so that nothing of it changes, neither its time of access.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let open = |flags| fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    match open(flags | libc::O_NOATIME) {
        // Only its owner may ask for that; nothing is read anyway.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => open(flags),
        other => other,
    }
}

fn look(path: &Path, sums: &mut Sums, top: usize) {
    sums.found.files += 1;
    let looked = open(path).and_then(|file| {
        let data = file.metadata()?;
        let cached =
            if data.is_file() && data.len() > 0 { pages::cached(&file, data.len())? } else { (Cached::default(), "") };
        Ok((data, cached))
    });
    match looked {
        Ok((data, (cached, source))) if cached.cached_bytes > 0 => sums.add(path, data, cached, source, top),
        Ok(_) => {}
        Err(_) => sums.found.refused += 1,
    }
}

impl Sums {
    fn add(&mut self, path: &Path, data: Metadata, cached: Cached, source: &'static str, top: usize) {
        self.found.source = source;
        self.found.cached_bytes += cached.cached_bytes;
        self.found.dirty_bytes = cached.dirty_bytes.map(|dirty| self.found.dirty_bytes.unwrap_or(0) + dirty);
        self.rank(path.to_owned(), data, cached, top);
    }

    fn rank(&mut self, path: PathBuf, data: Metadata, cached: Cached, top: usize) {
        let least = self.largest.peek().map_or(0, |least| least.0.0);
        if self.largest.len() >= top && cached.cached_bytes <= least {
            return;
        }
        self.largest.push(Reverse((cached.cached_bytes, Reverse(path.clone()))));
        self.kept.insert(path, (data, cached));
        if self.largest.len() > top
            && let Some(Reverse((_, Reverse(path)))) = self.largest.pop()
        {
            self.kept.remove(&path);
        }
    }

    fn join(&mut self, other: Sums, top: usize) {
        self.found.files += other.found.files;
        self.found.refused += other.found.refused;
        self.found.cached_bytes += other.found.cached_bytes;
        if let Some(dirty) = other.found.dirty_bytes {
            self.found.dirty_bytes = Some(self.found.dirty_bytes.unwrap_or(0) + dirty);
        }
        if self.found.source.is_empty() {
            self.found.source = other.found.source;
        }
        for (path, (data, cached)) in other.kept {
            self.rank(path, data, cached, top);
        }
    }

    fn ended(mut self) -> Found {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let all = self.largest.into_sorted_vec();
        for Reverse((_, Reverse(place))) in all {
            let Some((data, cached)) = self.kept.remove(&place) else { continue };
            let used = data.atime().max(data.mtime()).max(data.ctime());
            self.found.largest.push(CachedFile {
                path: printable(place.as_os_str().as_bytes()),
                size_bytes: data.len(),
                cached,
                age_seconds: now.saturating_sub(u64::try_from(used).unwrap_or(0)),
                groups: Vec::new(),
                place,
            });
        }
        self.found
    }
}
