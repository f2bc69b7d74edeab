//! What is below a cached file: a file with direct I/O, or whatever a test puts there.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use refault_store::PAGE_SIZE;
use rustix::fs::OFlags;

use crate::changes::Changes;
use crate::error::OpenError;
use crate::uring::Uring;

/// Buffers that follow each other in a file, and where the first begins.
pub type Piece<'a> = (Vec<IoSlice<'a>>, u64);

/// Buffers that a range of a file is read into, and where it begins.
pub type ReadPiece<'a> = (Vec<IoSliceMut<'a>>, u64);

/// Bytes that can be read and written in whole pages. All offsets are multiples of the page size or, after a short
/// transfer, of 512.
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

    /// Whether [`Backing::write`] takes what is no whole page, at the end of what it is given: then the end of the file is
    /// written as it is to be, and not in a whole page that is cut off afterwards. False by default.
    fn takes_any_length(&self) -> bool {
        false
    }

    /// Writes several pieces, in any order and at the same time if that can be. Returns what [`Backing::write`] says of
    /// each. By default they are written one after the other.
    fn write_many(&self, pieces: &[Piece<'_>]) -> Vec<io::Result<usize>> {
        pieces.iter().map(|(slices, offset)| self.write(slices, *offset)).collect()
    }

    /// The file, if reads may go to it through io_uring, past [`Backing::read`]. It stays the same as long as the value
    /// lives. None by default.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
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

    /// Whether somebody else has changed it since it was opened or this was last asked. False by default.
    ///
    /// # Errors
    /// The system's.
    fn take_change(&self) -> io::Result<bool> {
        Ok(false)
    }
}

/// A file without the kernel's page cache. Several writes at once, and reads that no call waits for, go
/// through io_uring where the kernel has it.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    /// Its length is its own, and no whole number of pages maybe.
    is_device: bool,
    changes: Changes,
    /// None where the kernel gives none: pieces are written one after the other.
    ring: Option<Uring>,
}

impl DirectFile {
    /// Opens a file for reading and writing, or for reading only where writing is not allowed.
    ///
    /// # Errors
    /// [`OpenError::NoFile`] for what has no pages, [`OpenError::NoDirect`] where the file system does not do direct I/O,
    /// and the system's.
    pub fn open(path: &Path) -> Result<DirectFile, OpenError> {
        let open = |write| {
            // A pipe without a writer would keep us waiting.
            let flags = (OFlags::DIRECT | OFlags::NONBLOCK).bits() as i32;
            File::options().read(true).write(write).custom_flags(flags).open(path)
        };
        // The last where a program is running from the file.
        let denied = |error: &io::Error| {
            use io::ErrorKind::{ExecutableFileBusy, PermissionDenied, ReadOnlyFilesystem};
            matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | ExecutableFileBusy)
        };
        let opened = match open(true) {
            Err(error) if denied(&error) => open(false),
            outcome => outcome,
        };
        match opened {
            Ok(file) => {
                let failed = |error| OpenError::Io { path: path.to_owned(), error };
                let kind = file.metadata().map_err(failed)?.file_type();
                if !is_file(kind) {
                    return Err(OpenError::NoFile(path.to_owned()));
                }
                // io_uring would take it for a wish not to wait for the device.
                let flags = rustix::fs::fcntl_getfl(&file).map_err(|error| failed(error.into()))?;
                let waits = flags - OFlags::NONBLOCK;
                rustix::fs::fcntl_setfl(&file, waits).map_err(|error| failed(error.into()))?;
                let changes = Changes::new(&file).map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
                Ok(DirectFile { file, is_device: kind.is_block_device(), changes, ring: Uring::new().ok() })
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let is_file = std::fs::metadata(path).is_ok_and(|metadata| is_file(metadata.file_type()));
                Err(if is_file { OpenError::NoDirect } else { OpenError::NoFile }(path.to_owned()))
            }
            Err(error) => Err(OpenError::Io { path: path.to_owned(), error }),
        }
    }
}

impl DirectFile {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether writing was allowed.
    pub(crate) fn is_writable(&self) -> io::Result<bool> {
        Ok(rustix::fs::fcntl_getfl(&self.file)?.contains(OFlags::RDWR))
    }

    /// Writes through another descriptor of the same file: an own change, too.
    pub(crate) fn write_by(&self, other: &File, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(self.changes.during(&self.file, || rustix::io::pwritev(other, from, offset))?)
    }
}

/// Whether it has bytes at places.
fn is_file(kind: std::fs::FileType) -> bool {
    kind.is_file() || kind.is_block_device()
}

/// Pages that the kernel reads ahead of a reader of a file, or of a block device, at most.
fn read_ahead(stat: &rustix::fs::Stat) -> Option<u32> {
    let is_device = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::BlockDevice;
    let device = if is_device { stat.st_rdev } else { stat.st_dev };
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has its disk's, and what is no block device a number of its own.
    let places = [
        format!("/sys/class/bdi/{device}/read_ahead_kb"),
        format!("/sys/dev/block/{device}/queue/read_ahead_kb"),
        format!("/sys/dev/block/{device}/../queue/read_ahead_kb"),
    ];
    let text = places.iter().find_map(|place| std::fs::read_to_string(place).ok())?;
    Some((text.trim().parse::<u64>().ok()? * 1024 / PAGE_SIZE as u64).min(u64::from(u32::MAX)) as u32)
}

impl Backing for DirectFile {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::preadv(&self.file, into, offset)?)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.write_by(&self.file, from, offset)
    }

    /// A device takes whole sectors, which its last page may have a few of; a file that is no whole number of sectors long
    /// is written in whole pages.
    fn takes_any_length(&self) -> bool {
        self.is_device
    }

    fn write_many(&self, pieces: &[Piece<'_>]) -> Vec<io::Result<usize>> {
        let one_by_one = || pieces.iter().map(|(slices, offset)| self.write(slices, *offset)).collect();
        match &self.ring {
            Some(ring) if pieces.len() > 1 => {
                let written = self.changes.during(&self.file, || ring.write(self.file.as_fd(), pieces));
                written.unwrap_or_else(one_by_one)
            }
            _ => one_by_one(),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn read_ahead(&self) -> Option<u32> {
        read_ahead(&rustix::fs::fstat(&self.file).ok()?)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        // Block devices have no length of their own.
        io::Seek::seek(&mut &self.file, io::SeekFrom::End(0))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.changes.during(&self.file, || self.file.set_len(bytes))
    }

    fn take_change(&self) -> io::Result<bool> {
        self.changes.take(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_device_is_read_ahead_as_it_says_and_not_as_what_its_node_lies_on() {
        let mut seen = 0;
        for disk in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let (node, queue) = (Path::new("/dev").join(disk.file_name()), disk.path().join("queue/read_ahead_kb"));
            let (Ok(stat), Ok(kib)) = (rustix::fs::stat(&node), std::fs::read_to_string(queue)) else { continue };
            let kib: u32 = kib.trim().parse().expect("a number");
            assert_eq!(read_ahead(&stat), Some(kib * 1024 / PAGE_SIZE as u32), "{}", node.display());
            seen += 1;
        }
        if seen == 0 {
            refault_testing::skip("no block device is to be seen");
        }
    }
}
