//! What was made and has to be removed: a file per keeper, written before each thing is used.
//!
//! A keeper that ends removes its file last. One that was killed leaves it, and [`clean`], called by the next keeper and
//! by `refault doctor --clean`, removes what stands in it. A keeper that lives holds a lock of the file beside its own.
//! Others see that also where it runs in another namespace of processes, in which numbers are other ones.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::group::Group;
use crate::places::Places;

/// What the name of the file ends with that a keeper holds locked.
const LOCK: &str = "lock";
/// How long a group may stay busy after its last process has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// What stands in a keeper's file.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The keeper's process.
    pub process: i32,
    /// When it started, in the clock ticks of `/proc/PID/stat`.
    pub started: u64,
    /// Bytes that its group may use.
    pub budget: u64,
    /// The group.
    pub group: Option<Group>,
    /// Numbers of zram devices.
    pub devices: Vec<u32>,
    /// Bytes that a page of the group takes on a device, if the keeper has measured it.
    #[serde(default)]
    pub stored_per_page: Option<u32>,
}

/// A keeper's own file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// What stands in it.
    pub entry: Entry,
    /// Locked for as long as this process is there.
    _lock: File,
}

/// Something that a keeper left.
#[derive(Clone, Debug)]
pub struct Leftover {
    path: PathBuf,
    entry: Entry,
}

/// Where the files are: the same for all runs of a user.
pub fn directory(places: &Places) -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return places.at("/run/refault-kernel");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(own) => Path::new(&own).join("refault-kernel"),
        None => places.at(format!("/tmp/refault-kernel-{}", rustix::process::geteuid().as_raw())),
    }
}

impl Journal {
    /// Begins the file of this process.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(places: &Places) -> io::Result<Journal> {
        let process = std::process::id() as i32;
        let entry = Entry { process, started: started(places, process).unwrap_or(0), ..Entry::default() };
        let directory = directory(places);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let path = directory.join(format!("{process}-{}.json", entry.started));
        let lock = File::create(path.with_extension(LOCK))?;
        lock.lock()?;
        let journal = Journal { path, entry, _lock: lock };
        journal.write()?;
        Ok(journal)
    }

    /// What no other keeper is called.
    pub fn name(&self) -> String {
        format!("{}-{}", self.entry.process, self.entry.started)
    }

    /// Writes what has changed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self) -> io::Result<()> {
        write(&self.path, &self.entry)
    }

    /// Removes everything that stands in it, and then itself. What still runs in the group goes on outside.
    ///
    /// # Errors
    /// Something cannot be removed; the file stays, and says what.
    pub fn end(&mut self, places: &Places) -> io::Result<()> {
        remove(places, &self.path, &mut self.entry)
    }
}

impl Leftover {
    /// Whether its keeper is there.
    fn lives(&self, places: &Places) -> bool {
        match File::open(self.path.with_extension(LOCK)) {
            // Shared, so that two that look at once do not take each other for the keeper.
            Ok(lock) => matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)),
            Err(_) => started(places, self.entry.process) == Some(self.entry.started),
        }
    }

    /// In words.
    pub fn name(&self) -> String {
        let group = self.entry.group.iter().map(|group| group.path().display().to_string());
        let devices = self.entry.devices.iter().map(|number| format!("/dev/zram{number}"));
        let all: Vec<String> = group.chain(devices).collect();
        if all.is_empty() { self.path.display().to_string() } else { all.join(", ") }
    }

    /// Removes it.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn remove(&mut self, places: &Places) -> io::Result<()> {
        remove(places, &self.path, &mut self.entry)
    }
}

/// What keepers left that are no more.
pub fn leftovers(places: &Places) -> Vec<Leftover> {
    all(places).into_iter().filter(|left| !left.lives(places)).collect()
}

/// What other keepers than this process have that live.
pub(crate) fn others(places: &Places) -> Vec<Entry> {
    let process = std::process::id() as i32;
    let own = (process, started(places, process).unwrap_or(0));
    let others = all(places).into_iter().filter(|left| (left.entry.process, left.entry.started) != own);
    others.filter(|left| left.lives(places)).map(|left| left.entry).collect()
}

/// Removes what keepers left that are no more; answers with what was removed, and what could not be.
pub fn clean(places: &Places) -> (Vec<String>, Vec<(String, io::Error)>) {
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    for mut left in leftovers(places) {
        let name = left.name();
        match left.remove(places) {
            Ok(()) => removed.push(name),
            Err(error) => failed.push((name, error)),
        }
    }
    (removed, failed)
}

fn all(places: &Places) -> Vec<Leftover> {
    let entries = std::fs::read_dir(directory(places)).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
    let read = |path: PathBuf| {
        let entry = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        Some(Leftover { path, entry })
    };
    files.filter_map(read).collect()
}

fn write(path: &Path, entry: &Entry) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec(entry)?)?;
    std::fs::rename(new, path)
}

fn remove(places: &Places, path: &Path, entry: &mut Entry) -> io::Result<()> {
    if let Some(group) = &entry.group {
        group.release();
    }
    let mut removed = Ok(());
    for number in entry.devices.clone() {
        // One that cannot be removed yet keeps none of the others.
        match Device::numbered(places, number, 0).remove(places) {
            Ok(()) => entry.devices.retain(|other| *other != number),
            Err(error) => removed = removed.and(Err(error)),
        }
    }
    if removed.is_err() {
        // The number of a removed device is another keeper's soon.
        write(path, entry)?;
    }
    if let Some(group) = &entry.group {
        let begun = Instant::now();
        while let Err(error) = group.remove() {
            if begun.elapsed() > PATIENCE {
                write(path, entry)?;
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(5));
            group.release();
        }
    }
    removed?;
    let _ = std::fs::remove_file(path.with_extension(LOCK));
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// When a process started; none if there is none, or it has ended and was not waited for.
fn started(places: &Places, process: i32) -> Option<u64> {
    /// `starttime` among the fields behind the name, which begin with the state.
    const STARTED: usize = 19;
    let stat = places.read(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    if fields.clone().next() == Some("Z") {
        return None;
    }
    fields.nth(STARTED)?.parse().ok()
}
