//! The file below a file store, as a device that does jobs in batches.
//!
//! [`FileDevice`] is an unlinked file opened with `O_DIRECT` where the file system allows it; batches go through
//! io_uring, or through `pread`/`pwrite` where io_uring is missing (containers often forbid it). Which one is chosen at
//! start and named by [`FileDevice::engine`]. What a ring does not take is written by `pwrite`. A single read never waits
//! for a batch of writes.
//!
//! Invariants: no other process can open the file (mode 0600, unlinked before the first write).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags};

use crate::uring::Uring;

/// A part of a batch: `len` bytes at `buffer` to or from byte `offset` of the device.
pub struct Job {
    /// Byte offset on the device.
    pub offset: u64,
    /// Memory, aligned to a page.
    pub buffer: *mut u8,
    /// Bytes.
    pub len: usize,
    /// Bytes done, or a negative error number, once the batch has returned.
    pub result: i32,
}

/// The result of a job that no kernel has seen: no error's number.
const UNTAKEN: i32 = i32::MIN;

/// What a [`crate::FileStore`] stands on.
pub trait Device: Send + Sync {
    /// Writes all jobs and fills in their results. The memory of the jobs must be valid for reads.
    ///
    /// # Safety
    /// Each job's buffer must be readable for its length until this returns.
    unsafe fn write(&self, jobs: &mut [Job]);

    /// Reads one piece. Returns the bytes read.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Gives the disk space of a range back; failures are harmless.
    fn punch(&self, offset: u64, len: u64);

    /// In a child after a fork, while the parent stands still: goes on with a copy of these pieces of the device.
    fn after_fork(&self, pieces: &mut dyn Iterator<Item = (u64, usize)>) -> io::Result<()>;

    /// One line for people: what does the I/O.
    fn describe(&self) -> String;
}

/// What does the I/O of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring.
    Uring,
    /// One system call a job.
    Psync,
}

/// See the module.
pub struct FileDevice {
    file: File,
    directory: PathBuf,
    direct: bool,
    uring: Option<Uring>,
    /// Why io_uring is not used.
    refusal: Option<String>,
}

impl FileDevice {
    /// Creates an unlinked file in `directory`. `engine` forces one; `None` chooses.
    pub fn create(directory: &Path, engine: Option<IoEngine>) -> io::Result<FileDevice> {
        let (fd, direct) = match open(directory, OFlags::DIRECT) {
            Ok(fd) => (fd, true),
            // Some file systems (tmpfs of older kernels) have no direct I/O.
            Err(_) => (open(directory, OFlags::empty())?, false),
        };
        let file = File::from(fd);
        let (uring, refusal) = match engine {
            Some(IoEngine::Psync) => (None, Some("asked for".to_owned())),
            Some(IoEngine::Uring) => (Some(Uring::new()?), None),
            None => match Uring::new() {
                Ok(uring) => (Some(uring), None),
                Err(error) => (None, Some(error.to_string())),
            },
        };
        Ok(FileDevice { file, directory: directory.to_owned(), direct, uring, refusal })
    }

    /// Which engine was chosen.
    pub fn engine(&self) -> IoEngine {
        if self.uring.is_some() { IoEngine::Uring } else { IoEngine::Psync }
    }
}

/// An unnamed file; where the file system has none, a named one that is unlinked before anything is written.
fn open(directory: &Path, flags: OFlags) -> io::Result<rustix::fd::OwnedFd> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    if let Ok(fd) = rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        return Ok(fd);
    }
    let path = directory.join(format!(".refault-swap-{}", std::process::id()));
    let fd = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    rustix::fs::unlink(&path)?;
    Ok(fd)
}

impl Device for FileDevice {
    unsafe fn write(&self, jobs: &mut [Job]) {
        jobs.iter_mut().for_each(|job| job.result = UNTAKEN);
        if let Some(uring) = &self.uring {
            // SAFETY: the caller keeps the buffers valid until the batch is done; `Uring::write` returns only then.
            unsafe { uring.write(&self.file, jobs) };
        }
        for job in jobs.iter_mut().filter(|job| job.result == UNTAKEN) {
            // SAFETY: the buffer is readable for `len` bytes (promised by the caller).
            let bytes = unsafe { std::slice::from_raw_parts(job.buffer, job.len) };
            job.result = match self.file.write_at(bytes, job.offset) {
                Ok(done) => done as i32,
                Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
            };
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn punch(&self, offset: u64, len: u64) {
        let _ = rustix::fs::fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len);
    }

    fn after_fork(&self, pieces: &mut dyn Iterator<Item = (u64, usize)>) -> io::Result<()> {
        let flags = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        let fresh = File::from(open(&self.directory, flags)?);
        let mut page = crate::Page::ZERO;
        for (offset, len) in pieces {
            for at in (offset..offset + len as u64).step_by(crate::PAGE_SIZE) {
                // A slot that failed to be written may lie beyond the end of the file.
                let read = self.file.read_at(&mut page.0, at)?;
                fresh.write_all_at(&page.0[..read], at)?;
            }
        }
        if let Some(uring) = &self.uring {
            uring.renew()?;
        }
        // Under the old number, so that the file in this device is the child's.
        // SAFETY: both are descriptors of this process; the old one is this device's.
        if unsafe { libc::dup3(fresh.as_raw_fd(), self.file.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let direct = if self.direct { "direct" } else { "buffered" };
        match &self.refusal {
            None => format!("{direct} I/O through io_uring"),
            Some(why) => format!("{direct} I/O through pread/pwrite (io_uring: {why})"),
        }
    }
}

impl FileDevice {
    /// Whether io_uring may be used here, or why not.
    pub fn io_uring_available() -> io::Result<()> {
        Uring::new().map(drop)
    }
}
