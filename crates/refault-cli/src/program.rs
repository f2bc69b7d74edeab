//! Programs on disk: where they are, and whether a library can be preloaded into them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::embedded;

/// Why a program cannot be managed.
#[derive(Debug)]
pub enum Obstacle {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It has no interpreter.
    Static,
    /// Its interpreter is not glibc's.
    OtherLibc(String),
    /// It runs with other rights than ours, so the loader ignores preloading.
    Privileged,
    /// Neither an ELF program of this machine nor a script.
    NotElf,
    /// A text without the line that names its interpreter.
    NoInterpreter,
}

/// The file that a name on the command line means, as execvp(3) finds it.
pub fn find(name: &Path) -> Option<PathBuf> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return name.is_file().then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| {
        candidate.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

/// The library that is preloaded into programs: named in `REFAULT_AGENT_LIBRARY`, beside the binary, installed in
/// `../lib/refault`, or out of the binary itself.
pub fn agent_library() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("REFAULT_AGENT_LIBRARY") {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    library(AGENT)
}

/// What it is called.
pub const AGENT: &str = "librefault_boundary.so";

fn library(name: &str) -> Option<PathBuf> {
    let binary = std::env::current_exe().ok()?;
    let directory = binary.parent()?;
    let built = [directory.join(name), directory.join("deps").join(name)];
    let newest = built.into_iter().filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max();
    let installed = directory.join("../lib/refault").join(name);
    let found = newest.map(|(_, path)| path).or_else(|| installed.is_file().then_some(installed));
    found.or_else(|| embedded::library(name))
}

/// What keeps a library from being preloaded into a program, if anything does. Scripts are judged by their interpreter.
pub fn obstacle(path: &Path) -> Option<Obstacle> {
    judge(path, 4).err()
}

fn judge(path: &Path, depth: u32) -> Result<(), Obstacle> {
    let mut file = File::open(path).map_err(Obstacle::Unreadable)?;
    let metadata = file.metadata().map_err(Obstacle::Unreadable)?;
    let mut head = [0; 64];
    let mut len = 0;
    while len < head.len() {
        match file.read(&mut head[len..]).map_err(Obstacle::Unreadable)? {
            0 => break,
            read => len += read,
        }
    }
    if let Some(line) = head[..len].strip_prefix(b"#!") {
        let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
        let words = line[..end].split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let interpreter = words.clone().next().ok_or(Obstacle::NotElf)?;
        if depth == 0 {
            return Err(Obstacle::NotElf);
        }
        return judge(Path::new(std::ffi::OsStr::from_bytes(interpreter)), depth - 1);
    }
    let me = rustix::process::getuid().as_raw();
    let set_id = metadata.mode() & 0o4000 != 0 && metadata.uid() != me
        || metadata.mode() & 0o2000 != 0 && metadata.gid() != rustix::process::getgid().as_raw();
    if set_id || (me != 0 && has_capabilities(path)) {
        return Err(Obstacle::Privileged);
    }
    if len > 0 && head[..len].iter().all(|byte| !byte.is_ascii_control() || byte.is_ascii_whitespace()) {
        return Err(Obstacle::NoInterpreter);
    }
    if len < 64 || head[..4] != *b"\x7fELF" || head[4] != 2 || head[5] != 1 {
        return Err(Obstacle::NotElf);
    }
    match interpreter(&file, &head).map_err(Obstacle::Unreadable)? {
        None => Err(Obstacle::Static),
        Some(loader) if loader.contains("ld-linux") => Ok(()),
        Some(loader) => Err(Obstacle::OtherLibc(loader)),
    }
}

fn has_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok_and(|len| len > 0)
}

/// The program interpreter of a 64-bit ELF file (`PT_INTERP`).
fn interpreter(file: &File, head: &[u8; 64]) -> io::Result<Option<String>> {
    const PT_INTERP: u32 = 3;
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("invariant: 8 bytes"));
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (table, entry_len, entries) = (word(head, 32), u64::from(half(54)), u64::from(half(56)));
    for index in 0..entries {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table.saturating_add(index * entry_len))?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == PT_INTERP {
            let mut name = vec![0; word(&entry, 32).min(4096) as usize];
            file.read_exact_at(&mut name, word(&entry, 8))?;
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            return Ok(Some(String::from_utf8_lossy(&name[..end]).into_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_can_be_managed_and_text_cannot() {
        assert!(obstacle(&std::env::current_exe().expect("a path")).is_none());
        assert!(matches!(obstacle(Path::new(env!("CARGO_MANIFEST_PATH"))), Some(Obstacle::NoInterpreter)));
        assert!(matches!(obstacle(Path::new("/nonexistent")), Some(Obstacle::Unreadable(_))));
    }

    #[test]
    fn names_are_found_as_a_shell_finds_them() {
        assert!(find(Path::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find(Path::new("no-such-program-anywhere")), None);
        assert_eq!(find(Path::new("/no/such/program")), None);
    }
}
