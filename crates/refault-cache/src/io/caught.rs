//! What is below a file may panic. It may be the program's code, which runs while pages are busy and in threads of the
//! cache's own. A panic there is an error of that call, like any other, so that pages do not stay busy for ever and no
//! thread goes.
//!
//! Cost: one more call through a table per call of the backing.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::{Deref, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::io::backing::{Backing, Piece, ReadPiece};
use crate::io::direct::DirectFile;

/// A backing whose panics are errors.
pub(crate) struct Caught(pub(crate) Box<dyn Backing>);

/// What is behind it is met through it alone.
impl Deref for Caught {
    type Target = dyn Backing;

    fn deref(&self) -> &(dyn Backing + 'static) {
        self
    }
}

fn panicked() -> io::Error {
    io::Error::other("what is below the file panicked; standard error has the text")
}

/// What a call says, or that it has panicked. Its state is its own: nothing of the cache's is borrowed by it.
fn caught<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(panicked()))
}

/// The same of a call that answers for each of some pieces.
fn each_caught(pieces: usize, call: impl FnOnce() -> Vec<io::Result<usize>>) -> Vec<io::Result<usize>> {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome.unwrap_or_else(|_| (0..pieces).map(|_| Err(panicked())).collect())
}

impl Backing for Caught {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        caught(|| self.0.read(into, offset))
    }

    fn read_many(&self, pieces: &mut [ReadPiece<'_>]) -> Vec<io::Result<usize>> {
        each_caught(pieces.len(), || self.0.read_many(pieces))
    }

    fn reads_together(&self) -> bool {
        self.0.reads_together()
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        caught(|| self.0.write(from, offset))
    }

    fn takes_any_bytes(&self) -> bool {
        self.0.takes_any_bytes()
    }

    fn lengthen(&self, range: Range<u64>) -> io::Result<()> {
        caught(|| self.0.lengthen(range))
    }

    fn write_many(&self, pieces: &[Piece<'_>]) -> Vec<io::Result<usize>> {
        each_caught(pieces.len(), || self.0.write_many(pieces))
    }

    fn descriptor(&self) -> Option<Arc<File>> {
        self.0.descriptor()
    }

    fn read_ahead(&self) -> Option<u32> {
        self.0.read_ahead()
    }

    fn sync(&self) -> io::Result<()> {
        caught(|| self.0.sync())
    }

    fn len(&self) -> io::Result<u64> {
        caught(|| self.0.len())
    }

    fn is_empty(&self) -> io::Result<bool> {
        caught(|| self.0.is_empty())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        caught(|| self.0.set_len(bytes))
    }

    fn direct(&self) -> Option<&DirectFile> {
        self.0.direct()
    }

    fn take_change(&self) -> io::Result<bool> {
        caught(|| self.0.take_change())
    }
}
