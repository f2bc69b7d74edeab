//! A file that is read past the kernel's page cache and written into it: the kernel gathers what is written, and writes
//! it to the device many pages at a time, at the latest when it is to be durable.
//!
//! For a program that writes many single pages between two syncs, as a database does. When a write returns, the kernel has
//! it: every other program sees it, and it outlives this one, as with a file without direct I/O. A read past the kernel's
//! page cache has the kernel write what it has of the range first, so the cache above finds what was written. What the
//! device refuses is told by the next sync of any descriptor that was open then (fsync(2)); until that sync a page that
//! was evicted here is read as the device has it, where a read through the kernel's page cache still finds what was written.
//!
//! The kernel holds a second copy of what is written. It has to, until that is on the device; at the next sync it is told
//! to drop it, by and by ([`KEPT`]). Cost: a copy of each page, and one system call per [`KEPT`] pages and run of them.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZero;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use refault_store::PAGE_SIZE;

use crate::backing::{Backing, DirectFile, ReadPiece};
use crate::error::OpenError;
use crate::file::{CachedFile, PageCache};
use crate::spans::Spans;

const PAGE: u64 = PAGE_SIZE as u64;

/// Durable pages that the kernel may hold on this file's account, 1 MiB: to ask at each sync costs more than they do.
const KEPT: u64 = 256;

/// Runs of pages that are remembered: beyond these, gaps between them are dropped too.
const MAX_RUNS: usize = 4096;

struct BufferedWrites {
    direct: DirectFile,
    /// None where the file can only be read.
    writes: Option<File>,
    written: Mutex<Written>,
}

/// What the kernel was given since it was last told to drop what it has.
#[derive(Default)]
struct Written {
    runs: Spans,
    pages: u64,
}

impl PageCache {
    /// As [`PageCache::open`], but what is written goes through the kernel's page cache: [`CachedFile::write_at`] returns
    /// when the kernel has it, which writes it to the device when it sees fit, at the latest at [`CachedFile::sync`]. So
    /// many small writes between two syncs cost about what they cost without direct I/O. Until a sync the kernel holds a copy,
    /// which does not count in this cache's memory; without a sync it holds it until it wants the memory.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with_buffered_writes(&self, path: &Path) -> Result<CachedFile, OpenError> {
        let backing = BufferedWrites::open(path)?;
        self.attach(Box::new(backing)).map_err(|error| OpenError::Io { path: path.to_owned(), error })
    }
}

impl BufferedWrites {
    fn open(path: &Path) -> Result<BufferedWrites, OpenError> {
        let direct = DirectFile::open(path)?;
        let failed = |error| OpenError::Io { path: path.to_owned(), error };
        let writes = direct.is_writable().and_then(|is| is.then(|| for_writing(&direct, path)).transpose());
        let writes = writes.map_err(failed)?;
        Ok(BufferedWrites { direct, writes, written: Mutex::default() })
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().expect("invariant: nothing panics under this lock")
    }

    fn sync_by(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // What is written meanwhile belongs to the next one.
        let durable = {
            let mut written = self.written();
            if written.pages < KEPT { None } else { Some(std::mem::take(&mut *written).runs) }
        };
        let outcome = sync();
        let failed = outcome.is_err().then(|| std::mem::take(&mut *self.written()).runs);
        // After a failure all of it: the kernel takes what it could not write for written, and the device has something else.
        durable.into_iter().chain(failed).for_each(|runs| self.drop_copies(runs));
        outcome
    }

    /// Has the kernel drop what it has of pages; what is not on the device yet stays.
    fn drop_copies(&self, mut runs: Spans) {
        runs.coarsen(MAX_RUNS);
        for run in runs.iter() {
            let bytes = NonZero::new((run.end - run.start).saturating_mul(PAGE));
            // Only memory is at stake.
            let _ = rustix::fs::fadvise(self.direct.file(), run.start * PAGE, bytes, rustix::fs::Advice::DontNeed);
        }
    }
}

/// The same file once more, for buffered writes: by the descriptor, so that it is the same whatever has its name by now.
fn for_writing(direct: &DirectFile, path: &Path) -> io::Result<File> {
    let by_descriptor = format!("/proc/self/fd/{}", direct.file().as_raw_fd());
    match File::options().write(true).open(by_descriptor) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        outcome => return outcome,
    }
    // No /proc.
    let writes = File::options().write(true).open(path)?;
    let (one, other) = (writes.metadata()?, direct.file().metadata()?);
    if (one.dev(), one.ino()) != (other.dev(), other.ino()) {
        return Err(io::Error::other("another file got the name while it was opened"));
    }
    Ok(writes)
}

impl Backing for BufferedWrites {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.direct.read(into, offset)
    }

    fn read_many(&self, pieces: &mut [ReadPiece<'_>]) -> Vec<io::Result<usize>> {
        self.direct.read_many(pieces)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let Some(writes) = &self.writes else { return self.direct.write(from, offset) };
        let bytes = self.direct.write_by(writes, from, offset)?;
        let mut written = self.written();
        written.runs.insert(offset / PAGE..(offset + bytes as u64).div_ceil(PAGE));
        written.pages += (bytes as u64).div_ceil(PAGE);
        // Far more than there are in a file that is synced now and then.
        if written.runs.len() > 2 * MAX_RUNS {
            written.runs.coarsen(MAX_RUNS);
        }
        Ok(bytes)
    }

    fn takes_any_length(&self) -> bool {
        self.writes.is_some()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.direct.descriptor()
    }

    fn read_ahead(&self) -> Option<u32> {
        self.direct.read_ahead()
    }

    fn sync(&self) -> io::Result<()> {
        // By any descriptor: what is durable is the file.
        self.sync_by(|| self.direct.sync())
    }

    fn len(&self) -> io::Result<u64> {
        self.direct.len()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.direct.set_len(bytes)
    }

    fn take_change(&self) -> io::Result<bool> {
        self.direct.take_change()
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::*;

    /// Whether the kernel's page cache has a page. It may read it along when it has not.
    fn is_cached(file: &File, page: u64) -> bool {
        let mut byte = [0];
        let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], page * PAGE, ReadWriteFlags::NOWAIT);
        assert!(matches!(read, Ok(1) | Err(Errno::AGAIN)), "{read:?}");
        read == Ok(1)
    }

    #[test]
    fn what_a_sync_could_not_make_durable_is_dropped_however_little_it_is() {
        let directory = tempfile::tempdir_in(std::env::current_exe().expect("it runs").parent().expect("a directory"))
            .expect("a directory");
        let path = directory.path().join("data");
        std::fs::write(&path, vec![1; 300 * PAGE_SIZE]).expect("writes");
        let file = match BufferedWrites::open(&path) {
            Err(OpenError::NoDirect(path)) => {
                return refault_testing::skip(format_args!("no direct I/O at {}", path.display()));
            }
            opened => opened.expect("opens"),
        };
        let other = File::open(&path).expect("opens");
        file.sync().expect("syncs");
        let mut all = Spans::default();
        all.insert(0..300);
        file.drop_copies(all);
        assert!(!is_cached(&other, 200), "the test is to begin without");

        let broken = || Err(io::Error::from_raw_os_error(5));
        for page in [200, 202] {
            file.write(&[IoSlice::new(&[2; PAGE_SIZE])], page * PAGE).expect("writes");
        }
        // They are on the device, so that the kernel may drop them; so few stay.
        file.sync().expect("syncs");
        assert!(is_cached(&other, 200) && is_cached(&other, 202));
        file.sync_by(broken).expect_err("as it is told");
        assert!(!is_cached(&other, 202), "a reader would find what the device may not have");

        // What was written while the sync was under way goes too.
        file.sync_by(|| {
            file.write(&[IoSlice::new(&[3; PAGE_SIZE])], 204 * PAGE).expect("writes");
            file.direct.sync().expect("syncs");
            broken()
        })
        .expect_err("as it is told");
        assert!(!is_cached(&other, 204), "a reader would find what the device may not have");
    }
}
