//! A tree of files for a program in a guest: the program, what it needs to be loaded, and what is named beside it, each
//! at the place that it has here.
//!
//! Which libraries a program needs is asked of its own loader, which lists them without running anything of it. What a
//! program opens by itself later (modules, plug-ins, data) cannot be known, and has to be named.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use refault_lab::LabError;

use crate::own_binary::{self, Needs};

/// More bytes of files than this are a mistake rather than a program.
pub const MAX_BYTES: u64 = 4 << 30;
/// Links that lead from one to the next before the kernel, too, gives up.
const MAX_LINKS: u32 = 40;
/// Interpreters of interpreters of scripts, as many as the kernel follows.
const MAX_INTERPRETERS: u32 = 5;
/// The most of a script's first line that is read.
const MAX_FIRST_LINE: u64 = 256;
/// Small files that the C library reads for names of users and machines and for places of libraries, and the shell, by
/// which programs run others; what of these there is.
const ALWAYS: [&str; 6] =
    ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ld.so.cache", "/bin/sh"];
/// Directories that programs expect.
const DIRECTORIES: [&str; 6] = ["dev", "proc", "sys", "tmp", "var/tmp", "run"];
/// Loaded by the C library itself when a thread ends, so that no program names it.
const UNWINDER: &str = "libgcc_s.so.1";

/// A tree that is being made below a directory.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    seen: BTreeSet<PathBuf>,
    bytes: u64,
    loader: Option<PathBuf>,
}

/// What a file is for: how much of what it needs has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// It is to run, so all of it.
    Running,
    /// It lies in a directory, where some may never be used: what there is.
    Use,
}

impl Tree {
    /// A tree with what programs expect.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(root: &Path) -> Result<Tree, LabError> {
        let mut tree = Tree { root: root.to_owned(), seen: BTreeSet::new(), bytes: 0, loader: None };
        for directory in DIRECTORIES {
            std::fs::create_dir_all(root.join(directory)).map_err(|error| unwritable(root, &error))?;
        }
        for path in ALWAYS.map(Path::new).into_iter().filter(|path| path.exists()) {
            tree.add(path)?;
        }
        Ok(tree)
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes a directory and those above it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn directory(&mut self, path: &Path) -> Result<(), LabError> {
        let place = self.root.join(below_root(path));
        std::fs::create_dir_all(&place).map_err(|error| unwritable(&place, &error))
    }

    /// Adds a file with what it needs, or a directory with all that is in it, by a whole path.
    ///
    /// # Errors
    /// It is not there, cannot be read, or is a program for which something is missing.
    pub fn add(&mut self, path: &Path) -> Result<(), LabError> {
        let found = self.place(path)?;
        if found.is_dir() { self.add_directory(&found) } else { self.file(&found, For::Running, 0) }
    }

    fn add_directory(&mut self, directory: &Path) -> Result<(), LabError> {
        if !self.seen.insert(directory.to_owned()) {
            return Ok(());
        }
        let entries = std::fs::read_dir(directory).map_err(|error| unreadable(directory, &error))?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry.map_err(|error| unreadable(directory, &error))?.path());
        }
        paths.sort();
        for path in paths {
            // A link that leads nowhere is left out; where it leads to a directory elsewhere, the link is enough.
            if !path.exists() {
                continue;
            }
            let is_link = path.is_symlink();
            let found = self.place(&path)?;
            if found.is_file() {
                self.file(&found, For::Use, 0)?;
            } else if found.is_dir() && !is_link {
                self.add_directory(&found)?;
            }
        }
        Ok(())
    }

    /// Makes the directories and links that lead to a path, as they are here; where they lead.
    fn place(&mut self, path: &Path) -> Result<PathBuf, LabError> {
        let mut links = 0;
        let mut left: Vec<PathBuf> = components(path);
        let mut at = PathBuf::from("/");
        while let Some(next) = left.pop() {
            if next.as_os_str() == ".." {
                at.pop();
                continue;
            }
            at.push(next);
            let metadata = at.symlink_metadata().map_err(|error| unreadable(path, &error))?;
            let copy = self.root.join(below_root(&at));
            if metadata.is_symlink() {
                links += 1;
                let target = std::fs::read_link(&at).map_err(|error| unreadable(&at, &error))?;
                if links > MAX_LINKS {
                    return Err(unreadable(path, &std::io::Error::other("too many links")));
                }
                if !copy.is_symlink() && !copy.exists() {
                    symlink(&target, &copy).map_err(|error| unwritable(&copy, &error))?;
                }
                at.pop();
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                left.extend(components(&target));
            } else if metadata.is_dir() && !copy.is_dir() {
                std::fs::create_dir(&copy).map_err(|error| unwritable(&copy, &error))?;
            }
        }
        Ok(at)
    }

    /// Copies a file, whose directories are there, and adds what it needs.
    fn file(&mut self, path: &Path, purpose: For, interpreters: u32) -> Result<(), LabError> {
        let metadata = path.metadata().map_err(|error| unreadable(path, &error))?;
        if !metadata.is_file() || !self.seen.insert(path.to_owned()) {
            return Ok(());
        }
        self.bytes += metadata.len();
        if self.bytes > MAX_BYTES {
            let remedy = "name fewer files by --with";
            return Err(LabError::request("more than 4 GiB of files for the guest", path.display(), remedy));
        }
        let copy = self.root.join(below_root(path));
        std::fs::copy(path, &copy).map_err(|error| {
            LabError::request(
                format!("cannot be copied for the guest: {error}"),
                path.display(),
                "name what can be read, and make room in TMPDIR",
            )
        })?;
        // What only its owner may do, the guest's user may; and what is written over, has to be written.
        let mode = metadata.permissions().mode() & 0o7777 | 0o600;
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(mode)).map_err(|error| unwritable(&copy, &error))?;
        match own_binary::needs(path).map_err(|error| unreadable(path, &error))? {
            Needs::Interpreter(loader) => {
                let loader = PathBuf::from(loader);
                self.loader.get_or_insert_with(|| loader.clone());
                if !loader.exists() {
                    return missing(path, purpose, &loader.display().to_string());
                }
                self.add(&loader)?;
                self.libraries(path, &loader, purpose)
            }
            Needs::Libraries => match self.loader.clone() {
                Some(loader) => self.libraries(path, &loader, purpose),
                None => Ok(()),
            },
            Needs::Nothing => self.script(path, purpose, interpreters),
            Needs::OtherMachine if purpose == For::Running => {
                let remedy = "use one for x86-64";
                Err(LabError::request("a program for another processor", path.display(), remedy))
            }
            Needs::OtherMachine => Ok(()),
        }
    }

    /// Adds what the loader would load for a program or a library.
    fn libraries(&mut self, path: &Path, loader: &Path, purpose: For) -> Result<(), LabError> {
        let listed = Command::new(loader).arg("--list").arg(path).env_remove("LD_PRELOAD").output();
        let listed = listed.map_err(|error| unreadable(loader, &error))?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        for line in text.lines() {
            match library(line) {
                Some(Library::Here(library)) => {
                    let library = self.place(Path::new(library))?;
                    self.file(&library, For::Use, 0)?;
                    let unwinder = library.with_file_name(UNWINDER);
                    if library.file_name() == Some(OsStr::new("libc.so.6")) && unwinder.exists() {
                        self.add(&unwinder)?;
                    }
                }
                Some(Library::Missing(name)) => missing(path, purpose, name)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Adds what a script's first line names.
    fn script(&mut self, path: &Path, purpose: For, interpreters: u32) -> Result<(), LabError> {
        let file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
        let mut line = Vec::new();
        // A file that is no script may have no end of line for long.
        let _ = BufReader::new(file.take(MAX_FIRST_LINE)).read_until(b'\n', &mut line);
        let Some(words) = interpreter(&line) else { return Ok(()) };
        if interpreters >= MAX_INTERPRETERS {
            return Ok(());
        }
        for word in words {
            match find(OsStr::from_bytes(&word)) {
                Some(found) => {
                    let found = self.place(&found)?;
                    self.file(&found, For::Running, interpreters + 1)?;
                }
                None => missing(path, purpose, &String::from_utf8_lossy(&word))?,
            }
        }
        Ok(())
    }
}

fn missing(path: &Path, purpose: For, what: &str) -> Result<(), LabError> {
    match purpose {
        For::Use => Ok(()),
        For::Running => {
            let remedy = "install it here; the guest has only what this machine has";
            Err(LabError::request(format!("needs {what}, which is missing"), path.display(), remedy))
        }
    }
}

/// The parts of a path, the last one first.
fn components(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    let mut parts: Vec<PathBuf> = parts.map(|part| PathBuf::from(part.as_os_str())).collect();
    parts.reverse();
    parts
}

fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn unreadable(path: &Path, error: &std::io::Error) -> LabError {
    let remedy = "name what is there and can be read";
    LabError::request(format!("cannot be read for the guest: {error}"), path.display(), remedy)
}

fn unwritable(path: &Path, error: &std::io::Error) -> LabError {
    LabError::failed(format!("cannot be written: {error}"), path.display(), "make room there, or set TMPDIR")
}

/// A line of a loader's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library<'a> {
    Here(&'a str),
    Missing(&'a str),
}

/// `libz.so.1 => /lib/libz.so.1 (0x7f…)`, `/lib/ld.so (0x7f…)`, `libz.so.1 => not found`; the kernel's own has no path.
fn library(line: &str) -> Option<Library<'_>> {
    let line = line.trim();
    let (name, place) = line.split_once(" => ").unwrap_or((line, line));
    if place.starts_with("not found") {
        return Some(Library::Missing(name));
    }
    let path = place.rsplit_once(" (").map_or(place, |(path, _)| path);
    path.starts_with('/').then_some(Library::Here(path))
}

/// The programs that a script's first line names: its interpreter, and what that is to find if it is `env`.
fn interpreter(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let line = line.strip_prefix(b"#!")?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(<[u8]>::to_vec);
    let first = words.next()?;
    let mut named = vec![first];
    if named[0].ends_with(b"/env") {
        // Options and variables come before the name.
        named.extend(words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')));
    }
    Some(named)
}

/// The file of a program's name, as execvp(3) finds it.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return std::path::absolute(name).ok().filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_loaders_are_read() {
        assert_eq!(
            library("\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)"),
            Some(Library::Here("/lib/x86_64-linux-gnu/libz.so.1"))
        );
        assert_eq!(
            library("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"),
            Some(Library::Here("/lib64/ld-linux-x86-64.so.2"))
        );
        assert_eq!(library("\tlibx (a).so => /opt/libx (a).so (0x1)"), Some(Library::Here("/opt/libx (a).so")));
        assert_eq!(library("\tlibfoo.so.1 => not found"), Some(Library::Missing("libfoo.so.1")));
        assert_eq!((library("\tlinux-vdso.so.1 (0x00007ffd)"), library("\tstatically linked")), (None, None));
    }

    #[test]
    fn first_lines_of_scripts_name_programs() {
        let words = |line: &str| {
            let named = interpreter(line.as_bytes())?;
            Some(named.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>())
        };
        assert_eq!(words("#!/bin/sh -e\n"), Some(vec!["/bin/sh".into()]));
        assert_eq!(words("#! /usr/bin/env -S A=b python3 -u\n"), Some(vec!["/usr/bin/env".into(), "python3".into()]));
        assert_eq!((words("#!\n"), words("echo\n"), words("")), (None, None, None));
    }

    #[test]
    fn a_program_comes_with_its_loader_libraries_and_links() {
        let root = tempfile::tempdir().expect("a directory");
        let own = tempfile::tempdir().expect("a directory");
        let program = own.path().join("program");
        std::fs::copy(std::env::current_exe().expect("a path"), &program).expect("copied");
        let script = own.path().join("tools/run");
        std::fs::create_dir(own.path().join("tools")).expect("made");
        std::fs::write(&script, "#!/usr/bin/env program\n").expect("written");
        symlink("tools/../program", own.path().join("linked")).expect("linked");
        symlink("/nowhere/at/all", own.path().join("tools/dangling")).expect("linked");
        let mut tree = Tree::new(root.path()).expect("a tree");
        tree.add(&own.path().join("linked")).expect("added");
        let copy = |path: &Path| root.path().join(below_root(path));
        assert!(copy(&program).is_file() && copy(&own.path().join("linked")).is_symlink());
        let Needs::Interpreter(loader) = own_binary::needs(&program).expect("read") else {
            panic!("tests are loaded");
        };
        // What the loader and the C library are reached by is there, from link to link.
        for needed in [loader, "/bin/sh".into()] {
            let there = std::fs::canonicalize(&needed).expect("here");
            let bytes = there.metadata().expect("here").len();
            assert_eq!(copy(&there).metadata().expect("copied").len(), bytes, "{needed}");
        }
        let text = Command::new("find").arg(root.path()).args(["-name", "libc.so.6", "-type", "f"]).output();
        assert!(!text.expect("find").stdout.is_empty(), "the C library");
        // A script of a directory is no program of which something could be missing.
        tree.add(&own.path().join("tools")).expect("added");
        assert!(copy(&script).is_file() && !copy(&own.path().join("tools/dangling")).exists());
        let before = tree.bytes();
        tree.add(&program).expect("again");
        assert_eq!(tree.bytes(), before);
    }

    #[test]
    fn what_is_missing_is_said() {
        let root = tempfile::tempdir().expect("a directory");
        let mut tree = Tree::new(&root.path().join("tree")).expect("a tree");
        let script = root.path().join("script");
        std::fs::write(&script, "#!/no/such/interpreter\n").expect("written");
        let said = tree.add(&script).expect_err("missing").to_string();
        assert!(said.contains("needs /no/such/interpreter, which is missing"), "{said}");
        let said = tree.add(Path::new("/no/such/file")).expect_err("absent").to_string();
        assert!(said.contains("cannot be read") && said.contains("/no/such/file"), "{said}");
        let other = root.path().join("other");
        let mut elf = std::fs::read("/proc/self/exe").expect("this program");
        elf[18] = 183;
        std::fs::write(&other, &elf).expect("written");
        let said = tree.add(&other).expect_err("of aarch64").to_string();
        assert!(said.contains("another processor"), "{said}");
    }
}
