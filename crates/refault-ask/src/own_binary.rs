//! The running program as a file that a guest can run: without what only debuggers read, with the libraries it needs.

use std::io::Read;
use std::path::{Path, PathBuf};

use refault_lab::LabError;

/// Where names of types, offsets and sizes stand in a 64-bit ELF file and its program headers.
const MAGIC: &[u8] = b"\x7fELF";
const CLASS: usize = 4;
const CLASS_64: u8 = 2;
const HEADERS: usize = 32;
const SECTIONS: usize = 40;
const HEADER_BYTES: usize = 54;
const HEADER_COUNT: usize = 56;
const SECTION_FIELDS: std::ops::Range<usize> = 58..64;
const MACHINE: usize = 18;
const X86_64: u16 = 62;
const LOADED: u32 = libc::PT_LOAD;
const INTERPRETER: u32 = libc::PT_INTERP;
const DYNAMIC: u32 = libc::PT_DYNAMIC;

/// A file of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// Without the leading slash.
    pub path: String,
    /// Its contents.
    pub contents: Vec<u8>,
}

/// What a loader reads of a program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    contents: Vec<u8>,
    interpreter: Option<String>,
    is_dynamic: bool,
}

/// What a file needs before it can be run or loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing, or what its first line says: it is no ELF file, or a whole program.
    Nothing,
    /// The loader of this path, and what that finds.
    Interpreter(String),
    /// What a loader finds: it is a library.
    Libraries,
    /// Another processor.
    OtherMachine,
}

/// What a file needs.
///
/// # Errors
/// It cannot be read.
pub fn needs(path: &Path) -> std::io::Result<Needs> {
    let mut file = std::fs::File::open(path)?;
    let mut start = Vec::new();
    file.by_ref().take(MACHINE as u64 + 2).read_to_end(&mut start)?;
    if !start.starts_with(MAGIC) || start.len() < MACHINE + 2 {
        return Ok(Needs::Nothing);
    }
    if start[CLASS] != CLASS_64 || u16::from_le_bytes([start[MACHINE], start[MACHINE + 1]]) != X86_64 {
        return Ok(Needs::OtherMachine);
    }
    file.read_to_end(&mut start)?;
    Ok(match loaded(start) {
        Some(Image { interpreter: Some(interpreter), .. }) => Needs::Interpreter(interpreter),
        Some(Image { is_dynamic: true, .. }) => Needs::Libraries,
        _ => Needs::Nothing,
    })
}

/// The running program as `init`, its interpreter, and the libraries that are mapped now.
///
/// # Errors
/// It cannot read itself.
pub fn files() -> Result<Vec<GuestFile>, LabError> {
    let path = std::env::current_exe().map_err(|error| unreadable(Path::new("/proc/self/exe"), &error))?;
    let program = image(&path)?;
    let mut files = Vec::new();
    if let Some(interpreter) = &program.interpreter {
        files.push(GuestFile { path: relative(interpreter), contents: image(Path::new(interpreter))?.contents });
        for library in libraries(&path)? {
            files.push(GuestFile { path: relative(&library.to_string_lossy()), contents: image(&library)?.contents });
        }
    }
    files.push(GuestFile { path: "init".into(), contents: program.contents });
    Ok(files)
}

fn relative(path: &str) -> String {
    path.trim_start_matches('/').to_owned()
}

fn unreadable(path: &Path, error: &std::io::Error) -> LabError {
    LabError::failed(format!("cannot read what the guest runs: {error}"), path.display(), "reinstall refault")
}

/// What is mapped to be executed, without the program itself.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, LabError> {
    let maps = Path::new("/proc/self/maps");
    let text = std::fs::read_to_string(maps).map_err(|error| unreadable(maps, &error))?;
    let mut found: Vec<PathBuf> = text.lines().filter_map(executable).map(PathBuf::from).collect();
    found.retain(|path| path != program);
    found.dedup();
    Ok(found)
}

/// The file of a line of a process's mappings, if it is executed from.
fn executable(line: &str) -> Option<&str> {
    let place = line.find('/')?;
    let permissions = line.split_whitespace().nth(1)?;
    permissions.contains('x').then(|| &line[place..])
}

fn image(path: &Path) -> Result<Image, LabError> {
    let contents = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    loaded(contents)
        .ok_or_else(|| LabError::failed("not a program of 64 bits", path.display(), "refault ask works on x86-64 only"))
}

/// A program up to the last byte that is loaded.
fn loaded(mut contents: Vec<u8>) -> Option<Image> {
    if !contents.starts_with(MAGIC) || contents.get(CLASS) != Some(&CLASS_64) {
        return None;
    }
    let number = |at: usize| Some(u64::from_le_bytes(contents.get(at..at + 8)?.try_into().ok()?) as usize);
    let short = |at: usize| Some(u16::from_le_bytes(contents.get(at..at + 2)?.try_into().ok()?) as usize);
    let word = |at: usize| Some(u32::from_le_bytes(contents.get(at..at + 4)?.try_into().ok()?));
    let (headers, bytes, count) = (number(HEADERS)?, short(HEADER_BYTES)?, short(HEADER_COUNT)?);
    let mut end = headers.checked_add(bytes * count)?;
    let (mut interpreter, mut is_dynamic) = (None, false);
    for header in (0..count).map(|index| headers + index * bytes) {
        let (kind, from, length) = (word(header)?, number(header + 8)?, number(header + 32)?);
        if kind == LOADED {
            end = end.max(from.checked_add(length)?);
        } else if kind == DYNAMIC {
            is_dynamic = true;
        } else if kind == INTERPRETER {
            let text = contents.get(from..from.checked_add(length)?)?;
            interpreter = Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
        }
    }
    contents.truncate(end);
    // A file that no part of is loaded, such as a compiler's object, ends before these.
    contents.get_mut(SECTIONS..SECTIONS + 8)?.fill(0);
    contents.get_mut(SECTION_FIELDS)?.fill(0);
    Some(Image { contents, interpreter, is_dynamic })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_and_its_libraries_are_found() {
        let files = files().expect("this program");
        let program = files.last().expect("the program");
        let whole = std::env::current_exe().expect("a path").metadata().expect("a file").len();
        assert!(program.path == "init" && (program.contents.len() as u64) < whole, "debugging is left out");
        assert!(files.iter().any(|file| file.path.contains("libc")), "{:?}", files.iter().map(|f| &f.path));
        assert_eq!(loaded(b"#!/bin/sh".to_vec()), None);
        assert_eq!(loaded(b"\x7fELF\x02 cut off".to_vec()), None);
        let mut object = std::fs::read("/proc/self/exe").expect("this program");
        object[HEADERS..HEADERS + 8].fill(0);
        object[HEADER_COUNT..HEADER_COUNT + 2].fill(0);
        assert_eq!(loaded(object), None);
    }

    #[test]
    fn mappings_that_are_not_executed_are_left_out() {
        assert_eq!(executable("7f00-7f01 r-xp 00 fe:00 12   /usr/lib/libc.so.6"), Some("/usr/lib/libc.so.6"));
        assert_eq!(executable("7f00-7f01 r--p 00 fe:00 12   /usr/lib/libc.so.6"), None);
        assert_eq!(executable("7f00-7f01 r-xp 00 00:00 0    [vdso]"), None);
    }
}
