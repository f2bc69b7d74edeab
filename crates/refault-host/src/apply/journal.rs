//! What limits were before they were changed, so that they are put back: at the end, or by the next start if this one is
//! killed.
//!
//! A change is noted, and the note is on disk, before the limit is written. A limit is put back if the group is still the same,
//! and the limit is lower than it was: another program that raised it meanwhile has the last word. What another program
//! sets between two changes is what is put back. One program at a time
//! holds a journal.
//!
//! ```
//! use refault_host::apply::journal::limit;
//!
//! assert_eq!((limit("4096\n"), limit("max"), limit("9223372036854771712")), (Some(4096), None, None));
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Where it is unless told otherwise.
pub const FILE: &str = "/run/refault/host-limits.json";
/// Version 1 writes no limit as the largest number of pages, and takes −1 for it.
const NO_LIMIT: u64 = u64::MAX / 4;

/// A limit that is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The group's directory.
    #[serde(with = "any_path")]
    pub directory: PathBuf,
    /// Its inode.
    pub id: u64,
    /// The file of the limit.
    pub file: String,
    /// What it held before.
    pub before: String,
    /// What this program left in it; none if a program that was killed has changed it. What holds something else now was
    /// changed by another program.
    #[serde(skip)]
    pub left: Option<u64>,
}

/// The bytes of a limit's text; none: no limit.
pub fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT)
}

/// A path in JSON: text, or its bytes where it is none.
mod any_path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => Written::Text(text.to_owned()),
            None => Written::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
        .serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Written::deserialize(from)? {
            Written::Text(text) => PathBuf::from(text),
            Written::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

/// A journal, held by this program alone.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    changes: Vec<Change>,
    has_failed: bool,
    /// Locked for as long as it is open.
    _lock: File,
}

impl Journal {
    /// Takes the journal of a path, which holds what a program that was killed had changed.
    ///
    /// # Errors
    /// Another program holds it, it cannot be made, or it holds something else.
    pub fn open(path: &Path) -> io::Result<Journal> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let lock = File::options().create(true).append(true).open(path.with_extension("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            io::Error::new(io::ErrorKind::WouldBlock, "another refault host --apply runs; end it first")
        })?;
        let changes = match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{error}; remove the file if it is none of ours"))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Journal { path: path.to_owned(), changes, has_failed: false, _lock: lock })
    }

    /// How many changes the journal of a path holds of a program that was killed; 0 while one holds it, and if there is none.
    pub fn left(path: &Path) -> usize {
        let lock = File::open(path.with_extension("lock"));
        if lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err()) {
            return 0;
        }
        let changes = fs::read(path).ok().and_then(|text| serde_json::from_slice::<Vec<Change>>(&text).ok());
        changes.map_or(0, |changes| changes.len())
    }

    /// What is to be put back.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether a note could not be written.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Notes what a limit holds before it is changed for the first time; answers that. What another program has set since
    /// takes the place of what was noted.
    ///
    /// # Errors
    /// The limit cannot be read, or the note not written.
    pub fn note(&mut self, mut change: Change) -> io::Result<String> {
        let known = self.changes.iter().position(|one| one.is_of(&change));
        if let Some(known) = known
            && !self.changes[known].is_changed_by_another()
        {
            return Ok(self.changes[known].before.clone());
        }
        change.before = fs::read_to_string(change.directory.join(&change.file))?.trim().to_owned();
        let before = change.before.clone();
        let noted = self.changes.clone();
        match known {
            Some(known) => self.changes[known] = change,
            None => self.changes.push(change),
        }
        if let Err(error) = self.write() {
            self.changes = noted;
            self.has_failed = true;
            return Err(error);
        }
        Ok(before)
    }

    /// Takes up what a limit holds now that it was changed.
    pub fn has_changed(&mut self, change: &Change) {
        if let Some(known) = self.changes.iter_mut().find(|one| one.is_of(change)) {
            known.left = known.now();
        }
    }

    /// Puts back the limits of one group. They stay in the journal: they may be changed again.
    ///
    /// # Errors
    /// A limit cannot be written.
    pub fn lift(&self, directory: &Path, id: u64) -> io::Result<()> {
        let own = self.changes.iter().filter(|change| change.id == id && change.directory == directory);
        own.map(Change::put_back).try_for_each(|done| done.map(drop))
    }

    /// Puts everything back, and removes the journal; answers how many limits were put back.
    ///
    /// # Errors
    /// A limit cannot be written. It stays in the journal, for the next time.
    pub fn put_back(mut self) -> io::Result<usize> {
        let (mut count, mut left, mut trouble) = (0, Vec::new(), None);
        for change in std::mem::take(&mut self.changes) {
            match change.put_back() {
                Ok(done) => count += usize::from(done),
                Err(error) => {
                    left.push(change);
                    trouble = Some(error);
                }
            }
        }
        self.changes = left;
        match trouble {
            Some(error) => self.write().and(Err(error)),
            None => fs::remove_file(&self.path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
        }?;
        Ok(count)
    }

    /// The whole journal, in one step.
    fn write(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&self.changes)?)?;
        file.sync_all()?;
        fs::rename(new, &self.path)
    }
}

impl Change {
    fn is_of(&self, other: &Change) -> bool {
        self.id == other.id && self.file == other.file && self.directory == other.directory
    }

    /// What the limit holds; the largest number if there is no limit, and none if it cannot be read.
    fn now(&self) -> Option<u64> {
        let text = fs::read_to_string(self.directory.join(&self.file)).ok()?;
        Some(limit(&text).unwrap_or(u64::MAX))
    }

    /// Whether it holds something else than this program has left in it.
    fn is_changed_by_another(&self) -> bool {
        self.left.is_some_and(|left| self.now().is_some_and(|now| now != left))
    }

    /// Writes what was before, if this is still to be done.
    fn put_back(&self) -> io::Result<bool> {
        // Only what is a limit's file: the journal may have been written by another program.
        if !self.file.starts_with("memory.") || self.file.contains('/') {
            return Ok(false);
        }
        let path = self.directory.join(&self.file);
        let is_same = fs::metadata(&self.directory).is_ok_and(|data| data.ino() == self.id);
        let Some(now) = self.now().filter(|_| is_same) else { return Ok(false) };
        let before = limit(&self.before);
        if now >= before.unwrap_or(u64::MAX) || self.is_changed_by_another() {
            return Ok(false);
        }
        let none = if self.before.trim() == "max" { "max" } else { "-1" };
        fs::write(path, before.map_or(none.to_owned(), |bytes| bytes.to_string()))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(directory: &Path, limit: &str) -> Change {
        fs::create_dir_all(directory).expect("room");
        fs::write(directory.join("memory.high"), limit).expect("room");
        let id = fs::metadata(directory).expect("it is there").ino();
        Change { directory: directory.to_owned(), id, file: "memory.high".into(), before: String::new(), left: None }
    }

    #[test]
    fn what_another_program_has_changed_since_stays() {
        let root = tempfile::tempdir().expect("a directory");
        let directories = ["one", "two"].map(|name| root.path().join(name));
        let mut journal = Journal::open(&root.path().join("journal.json")).expect("made");
        for directory in &directories {
            let change = group(directory, "9000\n");
            journal.note(change.clone()).expect("noted");
            fs::write(directory.join("memory.high"), "4000\n").expect("room");
            journal.has_changed(&change);
        }
        fs::write(directories[1].join("memory.high"), "5000\n").expect("room");
        assert_eq!(journal.put_back().expect("files"), 1);
        let now = directories.map(|directory| fs::read_to_string(directory.join("memory.high")).expect("text"));
        assert_eq!(now, ["9000", "5000\n"]);
    }

    #[test]
    fn what_another_program_sets_between_two_changes_is_put_back() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("journal.json");
        let directory = root.path().join("one");
        let limit = directory.join("memory.high");
        let change = group(&directory, "9000\n");
        let mut journal = Journal::open(&path).expect("made");
        assert_eq!(journal.note(change.clone()).expect("noted"), "9000");
        fs::write(&limit, "4000\n").expect("room");
        journal.has_changed(&change);
        assert_eq!(journal.note(change.clone()).expect("noted"), "9000", "its own change is none of another's");
        fs::write(&limit, "5000\n").expect("room");
        assert_eq!(journal.note(change.clone()).expect("noted"), "5000");
        fs::write(&limit, "3000\n").expect("room");
        drop(journal); // As a kill does: the next start finds the newer one.
        assert_eq!(Journal::open(&path).expect("made").put_back().expect("files"), 1);
        assert_eq!(fs::read_to_string(&limit).expect("text"), "5000");
    }

    #[test]
    fn groups_whose_names_are_no_text_are_put_back_too() {
        use std::os::unix::ffi::OsStrExt;
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("journal.json");
        let directory = root.path().join(std::ffi::OsStr::from_bytes(b"one\xff\xfe"));
        let mut journal = Journal::open(&path).expect("made");
        journal.note(group(&directory, "9000\n")).expect("noted");
        fs::write(directory.join("memory.high"), "4000").expect("room");
        drop(journal);
        assert_eq!(Journal::left(&path), 1);
        assert_eq!(Journal::open(&path).expect("made").put_back().expect("files"), 1);
        assert_eq!(fs::read_to_string(directory.join("memory.high")).expect("text"), "9000");
    }

    #[test]
    fn limits_are_what_they_were_also_after_a_kill() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("deep/journal.json");
        let (one, two) = (root.path().join("one"), root.path().join("two"));
        let mut journal = Journal::open(&path).expect("made");
        assert_eq!(journal.note(group(&one, "max\n")).expect("noted"), "max");
        assert_eq!(journal.note(group(&two, "9000\n")).expect("noted"), "9000");
        fs::write(one.join("memory.high"), "500").expect("room");
        // What it was is noted once.
        let again = Change { before: String::new(), ..journal.changes()[0].clone() };
        assert_eq!(journal.note(again).expect("noted"), "max");
        assert_eq!(Journal::open(&path).expect_err("held").kind(), io::ErrorKind::WouldBlock);
        assert_eq!(Journal::left(&path), 0, "held");
        drop(journal); // As a kill does, nothing is put back.
        assert_eq!(Journal::left(&path), 2);
        fs::write(two.join("memory.high"), "9500").expect("room");
        let journal = Journal::open(&path).expect("made");
        assert_eq!(journal.changes().len(), 2);
        assert_eq!(journal.put_back().expect("files"), 1);
        let now = |directory: &Path| fs::read_to_string(directory.join("memory.high")).expect("text");
        assert_eq!((now(&one).as_str(), now(&two).as_str()), ("max", "9500"), "another program raised it");
        assert!(!path.exists() && Journal::left(&path) == 0);
    }

    #[test]
    fn groups_that_are_made_anew_and_foreign_files_are_left_alone() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("journal.json");
        let directory = root.path().join("one");
        let mut anew = group(&directory, "500");
        (anew.id, anew.before) = (anew.id + 1, "max".into());
        let foreign = Change { file: "../one/memory.high".into(), id: anew.id - 1, ..anew.clone() };
        fs::write(&path, serde_json::to_vec(&[anew, foreign]).expect("JSON")).expect("room");
        assert_eq!(Journal::open(&path).expect("made").put_back().expect("nothing to do"), 0);
        assert_eq!(fs::read_to_string(directory.join("memory.high")).expect("text"), "500");
        fs::write(&path, "no journal").expect("room");
        assert_eq!(Journal::open(&path).expect_err("foreign").kind(), io::ErrorKind::InvalidData);
    }
}
