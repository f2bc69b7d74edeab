//! Where a pool's socket is, and that only one daemon has it.
//!
//! `$XDG_RUNTIME_DIR/refault/NAME.sock`, or `/run/refault` for root, or a directory of the user's own under `/tmp`;
//! closed to others in each case. The daemon holds a lock beside the socket, which ends with it: a socket that a killed
//! daemon left stops no other daemon.
//!
//! ```
//! use refault_pool::shared::place::Place;
//!
//! let place = Place::within("/run/refault".as_ref(), "batch")?;
//! assert_eq!(place.socket().to_str(), Some("/run/refault/batch.sock"));
//! assert!(Place::new("../elsewhere").is_err());
//! # Ok::<(), String>(())
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The name of a pool that has none.
pub const DEFAULT_NAME: &str = "default";

/// The files of a pool.
#[derive(Clone, Debug)]
pub struct Place {
    directory: PathBuf,
    name: String,
}

impl Place {
    /// That of a pool of this user.
    ///
    /// # Errors
    /// The name has other characters than letters, digits, `-` and `_`, or is none.
    pub fn new(name: &str) -> Result<Place, String> {
        Place::within(&own_directory(), name)
    }

    /// The file beside the sockets of this user that holds the window's token; its directory is made.
    ///
    /// # Errors
    /// The directory cannot be made, or is another user's.
    pub fn token_file() -> io::Result<PathBuf> {
        let directory = own_directory();
        close_to_others(&directory)?;
        // No pool's file ends so.
        Ok(directory.join("serve.token"))
    }

    /// The same in a directory.
    ///
    /// # Errors
    /// As [`Place::new`].
    pub fn within(directory: &Path, name: &str) -> Result<Place, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err(format!("'{name}' is not a pool's name: use up to 64 letters, digits, - and _"));
        }
        Ok(Place { directory: directory.to_owned(), name: name.to_owned() })
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(format!("{}.sock", self.name))
    }

    /// What the daemon has granted, for the one after it.
    pub fn state(&self) -> PathBuf {
        self.directory.join(format!("{}.json", self.name))
    }

    /// Names of the pools that there are, or were.
    pub fn all() -> Vec<String> {
        let Ok(place) = Place::new(DEFAULT_NAME) else { return Vec::new() };
        let entries = fs::read_dir(place.directory).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".sock").map(str::to_owned)).collect();
        names.sort_unstable();
        names
    }

    /// Makes the directory, and takes the pool for this process as long as the file lives.
    ///
    /// # Errors
    /// `WouldBlock`: it has a daemon. Others: the directory cannot be made, or is another user's.
    pub fn lock(&self) -> io::Result<File> {
        close_to_others(&self.directory)?;
        let lock = File::create(self.directory.join(format!("{}.lock", self.name)))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => io::Error::from(io::ErrorKind::WouldBlock),
            fs::TryLockError::Error(error) => error,
        })?;
        Ok(lock)
    }
}

/// Where this user's pools are.
fn own_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => PathBuf::from(directory).join("refault"),
        None if rustix::process::geteuid().is_root() => PathBuf::from("/run/refault"),
        None => PathBuf::from(format!("/tmp/refault-{}", rustix::process::geteuid().as_raw())),
    }
}

/// Makes the directory, or sees that it is this user's and that no other may write there.
fn close_to_others(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let metadata = fs::symlink_metadata(directory)?;
    let is_ours = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || metadata.mode() & 0o022 != 0 {
        let words = format!("{} belongs to another user, or others may write there", directory.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_has_a_pool_and_names_stay_in_their_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place::within(&directory.path().join("new"), "web").expect("a name");
        let lock = place.lock().expect("it is free");
        assert_eq!(place.lock().expect_err("we have it").kind(), io::ErrorKind::WouldBlock);
        // A child that another test forks at this moment has the descriptor too, until its exec.
        lock.unlock().expect("it is ours");
        place.lock().expect("it is free again");
        for bad in ["", "../x", "a/b", "a.b", &"x".repeat(65)] {
            assert!(Place::within(directory.path(), bad).is_err(), "{bad}");
        }
    }
}
