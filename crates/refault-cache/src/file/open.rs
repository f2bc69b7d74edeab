//! How a file is opened: for reading, unless more is asked for.

use std::io;
use std::path::Path;

use crate::error::OpenError;
use crate::file::{CachedFile, PageCache};
use crate::io::direct::{DirectFile, Fresh, Rights};
use crate::io::key::Key;

/// How a file is opened in a cache; made by [`PageCache::options`]. Without anything else it is opened for reading.
///
/// ```no_run
/// # let cache = refault_cache::PageCache::new(&refault_cache::CacheOptions::default())?;
/// let file = cache.options().write(true).open("data.bin".as_ref())?;
/// file.write_at(b"DATA", 0)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a file is opened by `open`"]
pub struct OpenOptions<'a> {
    cache: &'a PageCache,
    write: bool,
    on_demand: bool,
    buffered: bool,
}

impl OpenOptions<'_> {
    /// For reading and writing: the open fails where writing is not allowed.
    pub fn write(self, write: bool) -> Self {
        OpenOptions { write, ..self }
    }

    /// For reading until the first write, which opens the file for writing, and fails where that is not allowed. So who
    /// writes perhaps does to the system what a reader does until then.
    pub fn write_on_demand(self, on_demand: bool) -> Self {
        OpenOptions { on_demand, ..self }
    }

    /// What is written goes through the kernel's page cache: [`CachedFile::write_at`] returns when the kernel has it,
    /// which writes it to the device when it sees fit, at the latest at [`CachedFile::sync`]. Small writes between two
    /// syncs cost about what they cost without direct I/O. Until a sync the kernel holds a copy, which does not count
    /// in this cache's memory; without a sync it holds it until it wants the memory. A file has two descriptors then,
    /// once it is written.
    pub fn buffered_writes(self, buffered: bool) -> Self {
        OpenOptions { buffered, ..self }
    }

    /// Opens a file, which must exist, with direct I/O. While it is open, only this cache should write to it.
    ///
    /// A file that is open in this cache already, by whatever name, is the same: its handles share pages, length and
    /// what waits to be written; each has its own rights, and each is told once of what the device refuses. Writes are
    /// buffered if one handle has asked for that.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, path: &Path) -> Result<CachedFile, OpenError> {
        let rights = match (self.write, self.on_demand) {
            (true, _) => Rights::Write,
            (false, true) => Rights::OnDemand,
            (false, false) => Rights::Read,
        };
        let failed = |error| OpenError::Io { path: path.to_owned(), error };
        self.cache.check().map_err(failed)?;
        let fresh = Fresh::open(path, rights, self.buffered)?;
        self.cache.open_known(fresh).map_err(failed)
    }
}

impl PageCache {
    /// Opens a file, which must exist, for reading, with direct I/O. While it is open, only this cache should write to
    /// it. [`PageCache::options`] opens for writing.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, path: &Path) -> Result<CachedFile, OpenError> {
        self.options().open(path)
    }

    /// How a file is to be opened: for reading, until something else is said.
    pub fn options(&self) -> OpenOptions<'_> {
        OpenOptions { cache: self, write: false, on_demand: false, buffered: false }
    }
}

impl CachedFile {
    /// Whether it may be written: with [`OpenOptions::write_on_demand`] the first write may still find that it must
    /// not.
    pub fn is_writable(&self) -> bool {
        self.rights != Rights::Read
    }

    /// Device and number of the file, as stat(2) says them. None of a block device, and of what was attached.
    pub fn device_and_inode(&self) -> Option<(u64, u64)> {
        match self.key? {
            Key::File(device, inode) => Some((device, inode)),
            Key::Device(_) => None,
        }
    }

    /// The same file once more, through the kernel's page cache, whatever has its name by now. A caller that closes it
    /// releases this process's locks of the file (fcntl(2)).
    ///
    /// # Errors
    /// The system's; `ENOENT` where there is no /proc, and `EBADF` of what was attached.
    pub fn open_again(&self, options: &std::fs::OpenOptions) -> io::Result<std::fs::File> {
        self.origin.check()?;
        let direct = self.opened.backing.direct().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        direct.reopened(options)
    }

    /// Before it is written.
    pub(crate) fn for_writing(&self) -> io::Result<()> {
        match self.rights {
            Rights::Read => Err(io::Error::from_raw_os_error(libc::EBADF)),
            Rights::OnDemand | Rights::Write => {
                self.opened.backing.direct().map_or(Ok(()), DirectFile::become_writable)
            }
        }
    }
}
