//! What is cached of a file, and the groups that its pages are charged to.
//!
//! The groups are found by a sample of the cached pages: they are mapped without being read from disk, their frames are
//! looked up (`pagemap`) and of those the groups (`kpagecgroup`). The mapping is one of random access, whose accesses the kernel
//! does not count, neither when it is unmapped.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;

use refault_linux::calls::SYS_cachestat;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::walk::open;
use super::{Cached, GroupShare};

const PAGE: usize = 4096;
/// Pages of a file whose groups are looked up.
const SAMPLE: usize = 64;
/// Bytes of a file that are mapped at a time.
const WINDOW: u64 = 1 << 30;
/// Bits of a `pagemap` entry: in memory; the frame.
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// The kernel's `struct cachestat_range`: all of the file where the length is 0.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// The kernel's `struct cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// What is cached of an open file of this size, and the call that knew.
///
/// # Errors
/// The kernel does not say it of such a file.
pub fn cached(file: &File, size_bytes: u64) -> io::Result<(Cached, &'static str)> {
    match cachestat(file) {
        Ok(counts) => {
            let bytes = |pages: u64| pages.saturating_mul(PAGE as u64);
            let cached = Cached {
                cached_bytes: bytes(counts.cached),
                dirty_bytes: Some(bytes(counts.dirty.saturating_add(counts.writeback))),
                recently_evicted_bytes: Some(bytes(counts.recently_evicted)),
            };
            Ok((cached, "cachestat"))
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM)) => {
            Ok((by_mincore(file, size_bytes)?, "mincore"))
        }
        Err(error) => Err(error),
    }
}

fn cachestat(file: &File) -> io::Result<Counts> {
    let (range, mut counts) = (Range { offset: 0, length: 0 }, Counts::default());
    // SAFETY: the call reads a range and writes counts, both of the kernel's form and alive until it returns.
    let result = unsafe {
        libc::syscall(
            SYS_cachestat as libc::c_long,
            file.as_raw_fd(),
            std::ptr::from_ref(&range),
            std::ptr::from_mut(&mut counts),
            0,
        )
    };
    if result == 0 { Ok(counts) } else { Err(io::Error::last_os_error()) }
}

/// The same where there is no `cachestat`.
fn by_mincore(file: &File, size_bytes: u64) -> io::Result<Cached> {
    let mut pages = 0;
    let mut from = 0;
    while from < size_bytes {
        let mapping = Mapping::new(file, from, WINDOW.min(size_bytes - from))?;
        pages += mapping.resident()?.iter().filter(|page| **page & 1 == 1).count() as u64;
        from += WINDOW;
    }
    Ok(Cached { cached_bytes: pages * PAGE as u64, dirty_bytes: None, recently_evicted_bytes: None })
}

/// The groups that a file's cached pages are charged to, the most frequent first; `names` has their paths by inode.
///
/// # Errors
/// The file is gone, or this user may not see frames.
pub fn groups(path: &Path, size_bytes: u64, names: &HashMap<u64, &str>) -> io::Result<Vec<GroupShare>> {
    let file = open(path)?;
    let (pagemap, owners) = (File::open("/proc/self/pagemap")?, File::open("/proc/kpagecgroup")?);
    let mapping = Mapping::new(&file, 0, WINDOW.min(size_bytes))?;
    let cached: Vec<usize> =
        mapping.resident()?.iter().enumerate().filter(|(_, page)| **page & 1 == 1).map(|(at, _)| at).collect();
    let step = cached.len().div_ceil(SAMPLE).max(1);
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for at in cached.into_iter().step_by(step) {
        if let Some(owner) = mapping.frame(at, &pagemap).and_then(|frame| entry(&owners, frame)) {
            *counts.entry(owner).or_default() += 1;
        }
    }
    let all: u64 = counts.values().sum();
    let mut shares: Vec<GroupShare> = counts
        .into_iter()
        .map(|(owner, count)| {
            let path = names.get(&owner).map_or_else(|| "(gone)".to_owned(), |path| (*path).to_owned());
            GroupShare { path, percent: count * 100 / all.max(1) }
        })
        .collect();
    shares.sort_by(|one, two| two.percent.cmp(&one.percent).then(one.path.cmp(&two.path)));
    Ok(shares)
}

fn entry(file: &File, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at.checked_mul(8)?).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// A part of a file, mapped; it is never read through.
struct Mapping {
    start: NonNull<libc::c_void>,
    bytes: usize,
}

impl Mapping {
    fn new(file: &File, offset: u64, bytes: u64) -> io::Result<Mapping> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses a free place for the mapping, so no memory of ours is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, offset)? };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { start, bytes };
        // SAFETY: the advice is for the mapping just made, which this value owns.
        unsafe { madvise(start.as_ptr(), bytes, Advice::Random)? };
        Ok(mapping)
    }

    /// For each page whether it is cached, in bit 0.
    fn resident(&self) -> io::Result<Vec<u8>> {
        let mut pages = vec![0; self.bytes.div_ceil(PAGE)];
        // SAFETY: the range is the mapping that this value owns, and the vector has a byte for each of its pages.
        let result = unsafe { libc::mincore(self.start.as_ptr(), self.bytes, pages.as_mut_ptr()) };
        if result == 0 { Ok(pages) } else { Err(io::Error::last_os_error()) }
    }

    /// The frame of a cached page.
    fn frame(&self, page: usize, pagemap: &File) -> Option<u64> {
        let address = self.start.as_ptr() as usize + page * PAGE;
        // SAFETY: the page lies within the mapping that this value owns, and nothing of it is accessed by us: where the
        // file was truncated meanwhile, the kernel answers with an error.
        unsafe { madvise(address as *mut libc::c_void, PAGE, Advice::LinuxPopulateRead).ok()? };
        let entry = entry(pagemap, (address / PAGE) as u64).filter(|entry| entry & PRESENT != 0)?;
        Some(entry & FRAME).filter(|frame| *frame != 0)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping that this value owns, and no reference into it exists.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}

/// Files that stay in the page cache for as long as this value lives.
#[derive(Debug, Default)]
pub struct Kept {
    mappings: Vec<(NonNull<libc::c_void>, usize)>,
}

impl Kept {
    /// Reads a file into the cache and locks it there.
    ///
    /// # Errors
    /// It cannot be opened, or no more may be locked.
    pub fn keep(&mut self, path: &Path) -> io::Result<u64> {
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        if bytes == 0 {
            return Ok(0);
        }
        let mapping = Mapping::new(&file, 0, bytes)?;
        // SAFETY: the range is the mapping just made; locking changes nothing but where its pages are.
        unsafe { rustix::mm::mlock(mapping.start.as_ptr(), mapping.bytes)? };
        self.mappings.push((mapping.start, mapping.bytes));
        std::mem::forget(mapping); // It is unmapped with this value.
        Ok(bytes)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (start, bytes) in self.mappings.drain(..) {
            // SAFETY: the range is a mapping that `keep` made and handed to this value alone.
            let _ = unsafe { munmap(start.as_ptr(), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn both_calls_count_the_same_pages() {
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        file.write_all(&vec![1; 100 * PAGE + 7]).expect("room");
        file.as_file().sync_all().expect("written");
        let size = file.as_file().metadata().expect("open").len();
        let by_mincore = by_mincore(file.as_file(), size).expect("mapped");
        assert_eq!(by_mincore.cached_bytes, 101 * PAGE as u64);
        match cachestat(file.as_file()) {
            Ok(counts) => assert_eq!((counts.cached, counts.dirty), (101, 0)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
    }
}
