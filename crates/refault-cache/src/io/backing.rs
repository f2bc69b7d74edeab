//! What is below a cached file: a file with direct I/O ([`DirectFile`]), or anything else that has bytes in pages.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use crate::io::direct::DirectFile;

/// Buffers that follow each other in a file, and where the first begins.
pub type Piece<'a> = (Vec<IoSlice<'a>>, u64);

/// Buffers that a range of a file is read into, and where it begins.
pub type ReadPiece<'a> = (Vec<IoSliceMut<'a>>, u64);

/// Bytes that can be read and written in whole pages. All offsets are multiples of the page size or, after a short
/// transfer, of 512; those of writes are any where [`Backing::takes_any_bytes`] says so.
pub trait Backing: Send + Sync {
    /// Reads into the buffers from `offset` on. Returns the bytes read, fewer at the end.
    ///
    /// # Errors
    /// The device's.
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize>;

    /// Reads several pieces, in any order and at the same time if that can be. Returns what [`Backing::read`] says of
    /// each. By default they are read one after the other.
    fn read_many(&self, pieces: &mut [ReadPiece<'_>]) -> Vec<io::Result<usize>> {
        pieces.iter_mut().map(|(slices, offset)| self.read(slices, *offset)).collect()
    }

    /// Whether pieces that are wanted at the same time are better read by one [`Backing::read_many`] than each by a
    /// thread of the cache's. So it is where each read is slow and costs much by itself, as a request over a network
    /// does. False by default.
    fn reads_together(&self) -> bool {
        false
    }

    /// Writes the buffers from `offset` on. Returns the bytes written.
    ///
    /// # Errors
    /// The device's.
    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Whether [`Backing::write`] takes bytes at any place and of any number, and changes no others: then exactly what
    /// was written is written, and what others have put beside it stays. False by default: then whole pages are
    /// written, and what is beyond the end is cut off afterwards.
    fn takes_any_bytes(&self) -> bool {
        false
    }

    /// Makes it reach to the end of a range at least, which is beyond its known end and about to be written. By default
    /// it is set to that length; what others may have made longer must not become shorter.
    ///
    /// # Errors
    /// The device's.
    fn lengthen(&self, range: Range<u64>) -> io::Result<()> {
        self.set_len(range.end)
    }

    /// Writes several pieces, in any order and at the same time if that can be. Returns what [`Backing::write`] says of
    /// each. By default they are written one after the other.
    fn write_many(&self, pieces: &[Piece<'_>]) -> Vec<io::Result<usize>> {
        pieces.iter().map(|(slices, offset)| self.write(slices, *offset)).collect()
    }

    /// The file, if reads may go to it through io_uring, past [`Backing::read`]. None by default.
    fn descriptor(&self) -> Option<Arc<File>> {
        None
    }

    /// Pages that a reader's stream is to be read ahead at most, if whatever is below says. None by default.
    fn read_ahead(&self) -> Option<u32> {
        None
    }

    /// Returns when everything written is durable.
    ///
    /// # Errors
    /// The device's; what was written since the last success may not be durable.
    fn sync(&self) -> io::Result<()>;

    /// Bytes.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are no bytes.
    ///
    /// # Errors
    /// The system's.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts off or adds zeros.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// The file of the system that this is, if it is one. None by default.
    fn direct(&self) -> Option<&DirectFile> {
        None
    }

    /// Whether another program has changed it since it was opened or this was last asked. False by default.
    ///
    /// # Errors
    /// The system's.
    fn take_change(&self) -> io::Result<bool> {
        Ok(false)
    }
}
