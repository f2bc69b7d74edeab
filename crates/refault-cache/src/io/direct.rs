//! A file of the system, read past the kernel's page cache.
//!
//! It is opened with the rights that were asked for. A caller that only reads has a descriptor for reading alone. So an
//! overlay copies nothing up, a program that is read can run, and no lease is broken. A file that is written on demand
//! gets a descriptor for writing with its first write.
//!
//! Invariant: while the file has a handle none of its descriptors is closed: to close one would take this process's
//! locks of the file with it (fcntl(2)). When it has none, and only its pages are kept, all are closed
//! ([`DirectFile::let_go`]) until the file is opened again. They remain open if something of the file is not durable
//! yet.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use refault_store::PAGE_SIZE;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

use crate::error::OpenError;
use crate::file::buffered::Copies;
use crate::io::backing::Backing;
use crate::io::changes::Changes;
use crate::io::key::Key;

/// What may be done with a file that is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rights {
    /// It is read.
    #[default]
    Read,
    /// It is read, and written from the first write on.
    OnDemand,
    /// It is read and written.
    Write,
}

/// What reads a file.
#[derive(Debug)]
struct Reader {
    file: Arc<File>,
    /// Whether it writes as well.
    is_writable: bool,
    /// It has the flag not to wait, with which it was opened, no more.
    waits: AtomicBool,
}

/// Descriptors of a file.
#[derive(Debug, Default)]
struct Held {
    /// None while only its pages are kept.
    reader: Option<Reader>,
    /// What writes where that does not.
    writer: Option<Arc<File>>,
    /// What writes where the kernel is to gather what is written.
    gatherer: Option<Arc<File>>,
}

/// A file without the kernel's page cache.
#[derive(Debug)]
pub struct DirectFile {
    held: RwLock<Held>,
    /// Held while more of these are opened.
    opening: Mutex<()>,
    /// The kernel is to gather what is written.
    gathers: AtomicBool,
    key: Key,
    /// What the kernel has of the file.
    copies: Copies,
    /// Held while parts of pages are written, past the direct I/O, and while flags of a descriptor change.
    exact: Mutex<()>,
    /// Bytes that it had when it was opened, where that tells the length of what it is.
    bytes: Option<u64>,
    /// Its name, if it may have to be opened again by that.
    path: OnceLock<PathBuf>,
    /// Its length is its own, and no whole number of pages maybe.
    is_device: bool,
    changes: Changes,
}

/// A file that was opened a moment ago, past the kernel's page cache, and a look at it.
pub(crate) struct Fresh<'a> {
    file: File,
    stat: Stat,
    rights: Rights,
    /// The kernel is to gather what is written.
    gathers: bool,
    path: &'a Path,
}

/// A descriptor that a file has no need of: closed with the handle that has opened it, as it would be without a cache,
/// and not before.
#[derive(Default)]
pub(crate) struct Spare(#[expect(dead_code, reason = "what counts is when it is dropped")] Option<Arc<File>>);

impl<'a> Fresh<'a> {
    /// Opens what has bytes at places. By one descriptor, so that where it is refused none is closed.
    pub(crate) fn open(path: &'a Path, rights: Rights, gathers: bool) -> Result<Fresh<'a>, OpenError> {
        let failed = |error| OpenError::Io { path: path.to_owned(), error };
        let mut options = File::options();
        options.read(true).write(rights == Rights::Write);
        let mut open = |flags: OFlags| options.custom_flags(flags.bits() as i32).open(path);
        // A pipe without a writer would keep us waiting. For a call that reads a file the flag means nothing.
        let opened = match open(OFlags::DIRECT | OFlags::NONBLOCK) {
            // Another program has a lease of the file, which it is asked to give up: that is waited for, as by any
            // open(2).
            Err(error) if error.kind() == ErrorKind::WouldBlock && path.is_file() => open(OFlags::DIRECT),
            outcome => outcome,
        };
        match opened {
            Ok(file) => match rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))? {
                stat if is_file(&stat) => Ok(Fresh { file, stat, rights, gathers, path }),
                _ => Err(OpenError::NoFile(path.to_owned())),
            },
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                let is_file = rustix::fs::stat(path).is_ok_and(|stat| is_file(&stat));
                Err(if is_file { OpenError::NoDirect } else { OpenError::NoFile }(path.to_owned()))
            }
            Err(error) => Err(failed(error)),
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key::of(&self.stat)
    }

    pub(crate) fn rights(&self) -> Rights {
        self.rights
    }

    /// Its name, if it may have to be opened again.
    fn kept_path(&self) -> Option<&'a Path> {
        (self.gathers || self.rights == Rights::OnDemand).then_some(self.path)
    }

    fn reader(self) -> Reader {
        let is_writable = self.rights == Rights::Write;
        Reader { file: Arc::new(self.file), is_writable, waits: AtomicBool::new(false) }
    }

    /// The file, of which there is nothing in a cache yet.
    pub(crate) fn direct(self) -> DirectFile {
        let key = self.key();
        let is_device = matches!(key, Key::Device(_));
        DirectFile {
            opening: Mutex::default(),
            gathers: AtomicBool::new(self.gathers),
            key,
            copies: Copies::default(),
            exact: Mutex::default(),
            bytes: (!is_device).then_some(self.stat.st_size as u64),
            path: self.kept_path().map_or_else(OnceLock::new, |path| path.to_owned().into()),
            is_device,
            changes: Changes::new(&self.stat),
            held: RwLock::new(Held { reader: Some(self.reader()), ..Held::default() }),
        }
    }
}

impl DirectFile {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`OpenError::NoFile`] for what has no pages, [`OpenError::NoDirect`] where the file system does not do direct
    /// I/O, and the system's.
    pub fn open(path: &Path) -> Result<DirectFile, OpenError> {
        Fresh::open(path, Rights::Read, false).map(Fresh::direct)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// As of [`DirectFile::open`].
    pub fn open_for_writing(path: &Path) -> Result<DirectFile, OpenError> {
        Fresh::open(path, Rights::Write, false).map(Fresh::direct)
    }

    /// What reads, and what the kernel has of the file.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (Arc<File>, &Copies) {
        (self.file().expect("it is open"), &self.copies)
    }

    fn held(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_mut(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is of what reads, if it is open.
    fn reader<T>(&self, of: impl FnOnce(&Reader) -> T) -> io::Result<T> {
        let of = self.held().reader.as_ref().map(of);
        of.ok_or_else(|| io::Error::other("the file is closed, and its pages alone are kept"))
    }

    fn file(&self) -> io::Result<Arc<File>> {
        self.reader(|reader| reader.file.clone())
    }

    /// The file has no handle any more, but its pages are kept, and nothing is to be written: returns its descriptors,
    /// to be closed.
    pub(crate) fn let_go(&self) -> Vec<Arc<File>> {
        let Held { reader, writer, gatherer } = std::mem::take(&mut *self.held_mut());
        reader.map(|reader| reader.file).into_iter().chain(writer).chain(gatherer).collect()
    }

    /// Sees to it that there is a descriptor for writing.
    pub(crate) fn become_writable(&self) -> io::Result<()> {
        let gathers = self.gathers();
        let is_there = |held: &Held| {
            held.gatherer.is_some()
                || !gathers && (held.writer.is_some() || held.reader.as_ref().is_some_and(|reader| reader.is_writable))
        };
        if is_there(&self.held()) {
            return Ok(());
        }
        let _one = self.opening.lock().expect("invariant: nothing panics under this lock");
        if is_there(&self.held()) {
            return Ok(());
        }
        let mut options = File::options();
        let flags = if gathers { OFlags::empty() } else { OFlags::DIRECT };
        options.read(true).write(true).custom_flags(flags.bits() as i32);
        let writer = Some(Arc::new(self.reopened(&options)?));
        let mut held = self.held_mut();
        *(if gathers { &mut held.gatherer } else { &mut held.writer }) = writer;
        Ok(())
    }

    /// The device that it lies on, or that it is.
    pub(crate) fn device(&self) -> u64 {
        match self.key {
            Key::File(device, _) | Key::Device(device) => device,
        }
    }

    /// Bytes that it had when it was opened; none of what does not say so itself, as a block device.
    pub(crate) fn length_when_opened(&self) -> Option<u64> {
        self.bytes
    }

    fn gathers(&self) -> bool {
        self.gathers.load(Ordering::Relaxed)
    }

    /// Whether the device is waited for by each write of whole pages.
    pub(crate) fn writes_directly(&self) -> bool {
        matches!(self.writer(), Ok((_, false)))
    }

    /// The same file was opened again: takes what that can do and this cannot. Returns the descriptor if it needs none,
    /// and whether others may have changed the file since it was looked at.
    pub(crate) fn join(&self, again: Fresh<'_>) -> (Spare, bool) {
        let may_differ = !self.changes.agrees_with(&again.stat);
        if let Some(path) = again.kept_path() {
            let _ = self.path.set(path.to_owned());
        }
        if again.gathers {
            self.gathers.store(true, Ordering::Relaxed);
        }
        let theirs = again.reader();
        let mut held = self.held_mut();
        let Held { reader, writer, .. } = &mut *held;
        let left = match reader {
            None => {
                *reader = Some(theirs);
                None
            }
            Some(mine) if theirs.is_writable && !mine.is_writable && writer.is_none() => {
                *writer = Some(theirs.file);
                None
            }
            Some(_) => Some(theirs.file),
        };
        drop(held);
        (Spare(left), may_differ)
    }

    /// The same file once more: by the descriptor, so that it is the same whatever has its name by now.
    pub(crate) fn reopened(&self, options: &std::fs::OpenOptions) -> io::Result<File> {
        let file = self.file()?;
        match options.open(format!("/proc/self/fd/{}", file.as_raw_fd())) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            outcome => return outcome,
        }
        // No /proc.
        let again = options.open(self.path.get().ok_or(ErrorKind::NotFound)?)?;
        if Key::of(&rustix::fs::fstat(&again)?) != self.key {
            return Err(io::Error::other("another file has its name by now"));
        }
        Ok(again)
    }

    /// What writes, and whether it is what the kernel gathers by.
    fn writer(&self) -> io::Result<(Arc<File>, bool)> {
        let held = self.held();
        let own = held.reader.as_ref().filter(|reader| reader.is_writable).map(|reader| reader.file.clone());
        let direct = own.or_else(|| held.writer.clone()).map(|file| (file, false));
        let gatherer = held.gatherer.clone().map(|file| (file, true));
        let found = if self.gathers() { gatherer.or(direct) } else { direct.or(gatherer) };
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }
}

impl DirectFile {
    /// Writes bytes that are no whole pages through the kernel's page cache, which changes these alone. Direct I/O
    /// takes whole sectors only; what it would need of their other bytes, another program may be changing.
    ///
    /// The descriptor does no direct I/O meanwhile. What others read or write by it then goes through the kernel's page
    /// cache too: they find and leave the same bytes.
    fn write_exactly(&self, writer: &File, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let _one = self.exact.lock().expect("invariant: nothing panics under this lock");
        let flags = rustix::fs::fcntl_getfl(writer)?;
        if !flags.contains(OFlags::DIRECT) {
            return Ok(rustix::io::pwritev(writer, from, offset)?);
        }
        rustix::fs::fcntl_setfl(writer, flags - OFlags::DIRECT)?;
        let written = rustix::io::pwritev(writer, from, offset);
        rustix::fs::fcntl_setfl(writer, flags)?;
        Ok(written?)
    }
}

/// Whether what is written at a place is whole pages.
fn is_whole(from: &[IoSlice<'_>], offset: u64) -> bool {
    let bytes: usize = from.iter().map(|slice| slice.len()).sum();
    offset.is_multiple_of(PAGE_SIZE as u64) && bytes.is_multiple_of(PAGE_SIZE)
}

/// Whether it has bytes at places.
fn is_file(stat: &Stat) -> bool {
    matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::BlockDevice)
}

/// Pages that the kernel reads ahead of a reader of a file, or of a block device, at most.
fn read_ahead(stat: &Stat) -> Option<u32> {
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
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
        Ok(rustix::io::preadv(self.file()?, into, offset)?)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let (writer, gathers) = self.writer()?;
        let mut by_kernel = gathers || !is_whole(from, offset);
        let bytes = self.changes.during(&*self.file()?, || {
            if gathers {
                return Ok(rustix::io::pwritev(&writer, from, offset)?);
            }
            if !by_kernel {
                match rustix::io::pwritev(&writer, from, offset) {
                    // What a limit of the process's cuts off leaves no whole sectors: the rest goes the other way.
                    Err(Errno::INVAL) => by_kernel = true,
                    outcome => return Ok(outcome?),
                }
            }
            self.write_exactly(&writer, from, offset)
        })?;
        if by_kernel {
            self.copies.written(offset, bytes as u64);
        }
        Ok(bytes)
    }

    fn takes_any_bytes(&self) -> bool {
        true
    }

    fn lengthen(&self, range: Range<u64>) -> io::Result<()> {
        if self.is_device {
            return Err(ErrorKind::StorageFull.into());
        }
        let (writer, _) = self.writer()?;
        self.changes.during(&*self.file()?, || {
            // Unlike ftruncate(2) it never makes a file shorter that another program has made longer.
            let flags = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&writer, flags, range.start, range.end - range.start) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.write_exactly(&writer, &[IoSlice::new(&[0])], range.end - 1).map(drop)
                }
                outcome => Ok(outcome?),
            }
        })
    }

    fn descriptor(&self) -> Option<Arc<File>> {
        let waiting = self.reader(|reader| {
            // io_uring would take the flag for a wish not to wait for the device.
            if !reader.waits.load(Ordering::Acquire) {
                let _one = self.exact.lock().expect("invariant: nothing panics under this lock");
                rustix::fs::fcntl_setfl(&reader.file, OFlags::DIRECT).ok()?;
                reader.waits.store(true, Ordering::Release);
            }
            Some(reader.file.clone())
        });
        waiting.ok().flatten()
    }

    fn read_ahead(&self) -> Option<u32> {
        read_ahead(&rustix::fs::fstat(self.file().ok()?).ok()?)
    }

    fn sync(&self) -> io::Result<()> {
        // By any descriptor: what is durable is the file.
        let file = self.file()?;
        self.copies.sync_by(&file, || file.sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        // Block devices have no length of their own.
        io::Seek::seek(&mut &*self.file()?, io::SeekFrom::End(0))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let (writer, _) = self.writer()?;
        self.changes.during(&*self.file()?, || writer.set_len(bytes))
    }

    fn direct(&self) -> Option<&DirectFile> {
        Some(self)
    }

    fn take_change(&self) -> io::Result<bool> {
        self.changes.take(&*self.file()?)
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
