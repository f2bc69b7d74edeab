//! Open files that the command gives to the agents of its programs.
//!
//! A program may change its user or its root before it executes another, so it is not left to open them: it inherits
//! the descriptors, under high numbers that programs hardly use. The agent's `descriptors.rs` is the other end.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::FdFlags;

use refault_console::Failure;
use refault_paging::settings::Output;

/// A file without a name, which leaves nothing behind however the command ends. Others open it through `/proc` while it
/// lives.
pub struct Unnamed {
    path: PathBuf,
    file: File,
}

impl Unnamed {
    /// An empty one in the directory for temporary files.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Unnamed, Failure> {
        let file = tempfile::tempfile().map_err(|error| Failure::write(std::env::temp_dir().display(), &error))?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        Ok(Unnamed { path, file })
    }

    /// Where it can be opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why something is missing that others would have written to it, as far as writing says so now.
    pub fn no_room(&self) -> Failure {
        let place = format!("a temporary file in {}", std::env::temp_dir().display());
        let end = self.file.metadata().map(|metadata| metadata.len());
        match end.and_then(|end| self.file.write_all_at(&[0; 4096], end)) {
            Err(error) => Failure::write(place, &error),
            Ok(()) => Failure::failed("cannot write", place, "for a while there was no room; name another by TMPDIR"),
        }
    }
}

/// An open file that programs inherit.
pub struct Inherited(OwnedFd);

/// Numbers below are left to programs, which choose small ones.
const FROM: RawFd = 100;

impl Inherited {
    /// Opens a file that exists, to be appended to.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn append(path: &Path) -> Result<Inherited, Failure> {
        let opened = File::options().append(true).open(path).and_then(Inherited::new);
        opened.map_err(|error| Failure::write(path.display(), &error))
    }

    /// Memory that the processes of a tree share: `bytes` of zeros, the first word of which is `word`.
    ///
    /// # Errors
    /// There is no memory or no descriptor for it.
    pub fn segment(name: &str, bytes: u64, word: u64) -> std::io::Result<Inherited> {
        let file = File::from(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?);
        file.set_len(bytes)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &word.to_ne_bytes(), 0)?;
        Inherited::new(file)
    }

    /// Its number.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn new(file: File) -> std::io::Result<Inherited> {
        let inherited = rustix::io::fcntl_dupfd_cloexec(&file, FROM).unwrap_or_else(|_| OwnedFd::from(file));
        rustix::io::fcntl_setfd(&inherited, FdFlags::empty())?;
        Ok(Inherited(inherited))
    }

    /// What the agent is told of it.
    pub fn output(&self, path: &Path) -> Output {
        let (device, inode) = rustix::fs::fstat(&self.0).map_or((0, 0), |stat| (stat.st_dev, stat.st_ino));
        Output { descriptor: self.number(), device, inode, path: path.as_os_str().to_owned() }
    }
}
