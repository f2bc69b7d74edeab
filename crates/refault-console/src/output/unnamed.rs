//! A file without a name that gets one when it is whole (`O_TMPFILE`, `linkat`, `rename`). Where there are no such
//! files, it is one with a name of its own beside its place.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// What a new file may be used for, less the umask.
const NEW_FILE_MODE: u32 = 0o666;
const PERMISSION_BITS: u32 = 0o7777;
/// Tries to find a name that is free.
const MAX_TRIES: u32 = 100;

#[derive(Debug)]
pub(super) enum Unnamed {
    Nameless(File),
    Named(tempfile::NamedTempFile),
}

impl Unnamed {
    /// A file in the directory of `target`, with the permissions of the file that is there.
    pub(super) fn beside(target: &Path) -> io::Result<Unnamed> {
        let there = std::fs::metadata(target).ok();
        if let Some(there) = &there {
            // Renaming asks the directory alone; a file that may not be written must not be replaced either.
            File::options().append(true).open(target)?;
            if there.mode() & PERMISSION_BITS == 0 {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
        }
        let directory = directory_of(target);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(CWD, directory, flags, Mode::from_raw_mode(NEW_FILE_MODE)) {
            Ok(file) => Unnamed::Nameless(File::from(file)),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::INVAL) => {
                let mut builder = tempfile::Builder::new();
                let builder = builder.prefix(".refault-").permissions(PermissionsExt::from_mode(NEW_FILE_MODE));
                Unnamed::Named(builder.tempfile_in(directory)?)
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(there) = there {
            file.file().set_permissions(PermissionsExt::from_mode(there.mode() & PERMISSION_BITS))?;
        }
        Ok(file)
    }

    pub(super) fn file(&self) -> &File {
        match self {
            Unnamed::Nameless(file) => file,
            Unnamed::Named(file) => file.as_file(),
        }
    }

    /// Puts the file in the place of whatever is at `target`.
    pub(super) fn persist(self, target: &Path) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let file = match self {
            Unnamed::Nameless(file) => file,
            Unnamed::Named(file) => return file.persist(target).map(|_| ()).map_err(|error| error.error),
        };
        // A file can only be linked to a name that is free: to one of our own, which is then renamed.
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        let directory = directory_of(target);
        for attempt in 0..MAX_TRIES {
            let name = directory.join(format!(".refault-{}-{attempt}", std::process::id()));
            match rustix::fs::linkat(CWD, source.as_str(), CWD, &name, AtFlags::SYMLINK_FOLLOW) {
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    return std::fs::rename(&name, target).inspect_err(|_| {
                        // What cannot be renamed can rarely be removed; the error that is told is the first.
                        let _ = std::fs::remove_file(&name);
                    });
                }
            }
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists))
    }
}

fn directory_of(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
