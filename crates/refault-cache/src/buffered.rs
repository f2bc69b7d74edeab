//! A file that is read past the kernel's page cache and written into it: the kernel gathers what is written, and writes
//! it to the device many pages at a time, at the latest when it is to be durable.
//!
//! For a program that writes many single pages between two syncs, as a database does. When a write returns, the kernel has
//! it: every other program sees it, and it outlives this one, as with a file without direct I/O. A read past the kernel's
//! page cache has the kernel write what it has of the range first, so the cache above finds what was written. What the
//! device refuses is told by the next sync of any descriptor that was open then (fsync(2)).
//!
//! The kernel holds a second copy of what is written. It has to, until that is on the device; then it is told to drop it,
//! by and by ([`KEPT`]). Cost: a copy of each page, and one system call per [`KEPT`] pages and run of them.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZero;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

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
    /// many small writes between two syncs cost about what they cost without direct I/O; until they are on the device the
    /// kernel holds a copy, which does not count in this cache's memory.
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
        let writes = if direct.is_writable().map_err(failed)? {
            let writes = File::options().write(true).open(path).map_err(failed)?;
            let [one, other] =
                [&writes, direct.file()].map(|file| file.metadata().map(|meta| (meta.dev(), meta.ino())));
            if one.map_err(failed)? != other.map_err(failed)? {
                return Err(failed(io::Error::other("another file got the name while it was opened")));
            }
            Some(writes)
        } else {
            None
        };
        Ok(BufferedWrites { direct, writes, written: Mutex::default() })
    }

    /// Has the kernel drop what it has of pages that were written, unless they are few or not on the device yet.
    fn drop_copies(&self) {
        let mut written = self.written.lock().expect("invariant: nothing panics under this lock");
        if written.pages < KEPT {
            return;
        }
        let mut runs = std::mem::take(&mut *written).runs;
        drop(written);
        runs.coarsen(MAX_RUNS);
        for run in runs.iter() {
            let bytes = NonZero::new((run.end - run.start).saturating_mul(PAGE));
            // Only memory is at stake.
            let _ = rustix::fs::fadvise(self.direct.file(), run.start * PAGE, bytes, rustix::fs::Advice::DontNeed);
        }
    }
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
        let mut written = self.written.lock().expect("invariant: nothing panics under this lock");
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
        let outcome = self.direct.sync();
        // After a failure, too: what the kernel has may not be what the device has.
        self.drop_copies();
        outcome
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
