//! A file with a descriptor of its own, through the kernel's cache, which may be lent to others.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::mem::ManuallyDrop;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use refault::cache::CachedFile;

use super::mode::Mode;

/// The file. Others may have closed its descriptor, and given the number to another file: that is not closed with it.
pub(super) struct Plain {
    file: ManuallyDrop<File>,
    identity: (u64, u64),
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Plain {
    /// Opens a file that is open in a cache, whatever has its name by now; by its path where there is no /proc.
    ///
    /// # Errors
    /// The system's; ESTALE if the path has come to mean another file.
    pub(super) fn open(mode: Mode, cached: &CachedFile, path: &Path) -> io::Result<Plain> {
        let mut options = OpenOptions::new();
        options.read(mode.reads).write(mode.writes && !mode.appends()).append(mode.appends());
        options.custom_flags(libc::O_NONBLOCK);
        let file = match cached.open_again(&options) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => options.open(path)?,
            outcome => outcome?,
        };
        let identity = identity(&file)?;
        if cached.device_and_inode().is_some_and(|wanted| wanted != identity) {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        Ok(Plain { file: ManuallyDrop::new(file), identity })
    }

    /// Where its descriptor stands, if that is its own still.
    pub(super) fn position(&self) -> Option<u64> {
        let is_own = identity(&self.file).is_ok_and(|now| now == self.identity);
        let mut file = self.file();
        if is_own { file.stream_position().ok() } else { None }
    }

    /// Moves its descriptor, which was its own a moment ago.
    pub(super) fn move_to(&self, at: u64) {
        // A regular file can be moved to where a file of Python's can be.
        let mut file = self.file();
        let _ = file.seek(SeekFrom::Start(at));
    }

    /// To be used as `&mut &File`, as reads and writes want it.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if identity(&self.file).is_ok_and(|now| now == self.identity) {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}
