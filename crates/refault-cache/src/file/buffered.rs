//! What the kernel's page cache is given of a file that is read past it: it gathers what is written, and writes
//! it to the device many pages at a time, at the latest when it is to be durable.
//!
//! For a program that writes many single pages between two syncs, as a database does. When a write returns, the kernel
//! has it: every other program sees it, and it outlives this one, as with a file without direct I/O. Before a read past
//! its page cache the kernel writes what it has of the range. So the cache above finds what was written. What the
//! device refuses is told by the next sync of any descriptor that was open then (fsync(2)). Until that sync a page that
//! was evicted here is read as the device has it. A read through the kernel's page cache still finds what was written.
//!
//! The kernel holds a second copy of what is written. It has to, until that is on the device; at the next sync it is
//! told to drop it, by and by ([`KEPT`]). Cost: a copy of each page, and one system call per [`KEPT`] pages and run of
//! them.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard};

use refault_store::PAGE_SIZE;

use crate::writeback::spans::Spans;

const PAGE: u64 = PAGE_SIZE as u64;

/// Durable pages that the kernel may hold on this file's account, 1 MiB: to ask at each sync costs more than they do.
const KEPT: u64 = 256;

/// Runs of pages that are remembered: beyond these, gaps between them are dropped too.
const MAX_RUNS: usize = 4096;

/// What the kernel was given of a file since it was last told to drop what it has.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    runs: Spans,
    pages: u64,
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.lock().expect("invariant: nothing panics under this lock")
    }

    /// The kernel was given a number of bytes from `offset` on.
    pub(crate) fn written(&self, offset: u64, bytes: u64) {
        let mut written = self.lock();
        written.runs.insert(offset / PAGE..(offset + bytes).div_ceil(PAGE));
        written.pages += bytes.div_ceil(PAGE);
        // Far more than there are in a file that is synced now and then.
        if written.runs.len() > 2 * MAX_RUNS {
            written.runs.coarsen(MAX_RUNS);
        }
    }

    /// Has the device make the file durable, and then the kernel drop what it was given.
    pub(crate) fn sync_by(&self, file: &File, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // What is written meanwhile belongs to the next one.
        let durable = {
            let mut written = self.lock();
            if written.pages < KEPT { None } else { Some(std::mem::take(&mut *written).runs) }
        };
        let outcome = sync();
        let failed = outcome.is_err().then(|| std::mem::take(&mut *self.lock()).runs);
        // After a failure all of it: the kernel takes what it could not write for written, and the device has something
        // else.
        durable.into_iter().chain(failed).for_each(|runs| drop_copies(file, runs));
        outcome
    }
}

/// Has the kernel drop what it has of pages; what is not on the device yet stays.
fn drop_copies(file: &File, mut runs: Spans) {
    runs.coarsen(MAX_RUNS);
    for run in runs.iter() {
        let bytes = NonZero::new((run.end - run.start).saturating_mul(PAGE));
        // Only memory is at stake.
        let _ = rustix::fs::fadvise(file, run.start * PAGE, bytes, rustix::fs::Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};

    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::*;
    use crate::error::OpenError;
    use crate::io::backing::Backing;
    use crate::io::direct::{Fresh, Rights};

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
        let file = match Fresh::open(&path, Rights::Write, true) {
            Err(OpenError::NoDirect(path)) => {
                return refault_testing::skip(format_args!("no direct I/O at {}", path.display()));
            }
            opened => opened.expect("opens").direct(),
        };
        file.become_writable().expect("opens");
        let (direct, copies) = file.parts();
        let other = File::open(&path).expect("opens");
        file.sync().expect("syncs");
        let mut all = Spans::default();
        all.insert(0..300);
        drop_copies(&direct, all);
        assert!(!is_cached(&other, 200), "the test is to begin without");

        let broken = || Err(io::Error::from_raw_os_error(5));
        for page in [200, 202] {
            file.write(&[IoSlice::new(&[2; PAGE_SIZE])], page * PAGE).expect("writes");
        }
        // They are on the device, so that the kernel may drop them; so few stay.
        file.sync().expect("syncs");
        assert!(is_cached(&other, 200) && is_cached(&other, 202));
        copies.sync_by(&direct, broken).expect_err("as it is told");
        assert!(!is_cached(&other, 202), "a reader would find what the device may not have");

        // What was written while the sync was under way goes too.
        let sync = || {
            file.write(&[IoSlice::new(&[3; PAGE_SIZE])], 204 * PAGE).expect("writes");
            direct.sync_data().expect("syncs");
            broken()
        };
        copies.sync_by(&direct, sync).expect_err("as it is told");
        assert!(!is_cached(&other, 204), "a reader would find what the device may not have");
    }
}
