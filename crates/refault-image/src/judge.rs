//! What a program's file comes to: through its interpreters to the loader that maps the agent's library.

use core::ffi::CStr;

use refault_linux::calls::{SYS_getegid, SYS_geteuid, SYS_getgid, SYS_getuid, SYS_prctl};
use refault_linux::sys;

use crate::elf::{self, Elf, Kind};
use crate::file::{self, File, Place};
use crate::loader::{self, Arguments};
use crate::obstacle::{EACCES, EMFILE, ENFILE, Obstacle};
use crate::preload;
use crate::text::{Text, base};

/// First bytes of a file that the kernel looks at, and the most that it takes of a script's first line.
const HEAD: usize = 256;
/// Scripts that the kernel follows, one being the interpreter of the other.
const MAX_SCRIPTS: usize = 5;
/// The name by which programs know glibc's loader.
const GLIBC_LOADER: &[u8] = b"ld-linux-x86-64.so.2";
const LIBC: &[u8] = b"libc.so.6";
/// Bytes of the longest path.
const PATH: usize = 4096;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o10;

/// A program that can be managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// The file that is loaded: behind a script its interpreter, behind a loader what that loads.
    pub program: Text,
    /// Its loader.
    pub loader: Text,
    /// The library that has to be preloaded before the agent's: a sanitizer's runtime.
    pub first: Option<Text>,
}

/// [`look_at`] for a path from the present directory on.
///
/// # Errors
/// As there.
pub fn look(path: &CStr, arguments: &Arguments<'_>, agent: Option<&CStr>) -> Result<Image, Obstacle> {
    look_at(Place::of(path), arguments, agent)
}

/// What becomes of a program that is executed now. `arguments` are asked for only if it is a loader; `agent` is the path
/// of the agent's library, which must be readable here.
///
/// # Errors
/// It cannot be managed.
pub fn look_at(place: Place<'_>, arguments: &Arguments<'_>, agent: Option<&CStr>) -> Result<Image, Obstacle> {
    let mut file = File::open(place).map_err(Obstacle::Unreadable)?;
    for scripts in 0..=MAX_SCRIPTS {
        let mut head = [0; HEAD];
        let read = file.read_at(&mut head, 0).map_err(Obstacle::Unreadable)?;
        let Some(line) = head[..read].strip_prefix(b"#!") else {
            let none = |_: usize, _: &mut [u8]| None;
            let arguments: &Arguments<'_> = if scripts == 0 { arguments } else { &none };
            return judge(&file, &head[..read], arguments, agent);
        };
        let mut path = [0; HEAD];
        let interpreter = first_word(line).ok_or(Obstacle::NoInterpreter)?;
        path[..interpreter.len()].copy_from_slice(interpreter);
        let path = CStr::from_bytes_until_nul(&path).expect("invariant: a part of the array");
        file = File::open(Place::of(path)).map_err(Obstacle::Unreadable)?;
    }
    Err(Obstacle::TooManyInterpreters)
}

/// The name of a program's file without directories, as it was given, or as the file has it that was given as a descriptor.
pub fn name_of(place: Place<'_>) -> Text {
    let given = base(place.path.to_bytes());
    if !given.is_empty() {
        return Text::new(given);
    }
    let mut path = [0; PATH];
    let file = File::open(place).ok();
    file.as_ref().and_then(|file| file.path(&mut path)).map_or(Text::EMPTY, |path| Text::new(base(path)))
}

/// Whether the kernel lets this process execute a file; true where it does not say.
pub fn is_executable(place: Place<'_>) -> bool {
    file::may_execute(place)
}

/// The path on the first line of a script.
fn first_word(line: &[u8]) -> Option<&[u8]> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    line.split(|byte| matches!(byte, b' ' | b'\t' | 0)).find(|word| !word.is_empty())
}

/// What a file comes to that is no script.
fn judge(file: &File, head: &[u8], arguments: &Arguments<'_>, agent: Option<&CStr>) -> Result<Image, Obstacle> {
    match elf::kind(head) {
        Kind::Native => {}
        Kind::Bits32 => return Err(Obstacle::Bits32),
        Kind::Other(machine) => return Err(Obstacle::OtherMachine(machine)),
        Kind::None => {
            let is_text = head.iter().all(|byte| !byte.is_ascii_control() || byte.is_ascii_whitespace());
            return Err(if is_text && !head.is_empty() { Obstacle::NoInterpreter } else { Obstacle::NotElf });
        }
    }
    if changes_rights(file).map_err(Obstacle::Unreadable)? {
        return Err(Obstacle::Privileged);
    }
    let elf = open(file, head)?;
    let mut path = [0; PATH];
    let image = match elf.interpreter(&mut path).map_err(Obstacle::Unreadable)? {
        Some(interpreter) => {
            let interpreter = CStr::from_bytes_until_nul(interpreter).map_err(|_| Obstacle::NotElf)?;
            let name = Text::new(interpreter.to_bytes());
            let loader = File::open(Place::of(interpreter)).map_err(|error| Obstacle::no_loader(name, error))?;
            check_loader(&loader, name)?;
            check_libc(&loader)?;
            Image { program: file.name(), loader: name, first: runtime(&elf) }
        }
        None => of_no_interpreter(file, &elf, arguments)?,
    };
    match agent.map(|agent| File::open(Place::of(agent))) {
        Some(Err(_)) => Err(Obstacle::NoAgent),
        _ => Ok(image),
    }
}

fn open<'a>(file: &'a File, head: &[u8]) -> Result<Elf<'a>, Obstacle> {
    let head = head.first_chunk().ok_or(Obstacle::NotElf)?;
    Elf::read(file, head).map_err(Obstacle::Unreadable)
}

/// Reads the first bytes of a file as those of an ELF file of this machine.
fn open_native(file: &File) -> Option<Elf<'_>> {
    let mut head = [0; elf::HEADER];
    let read = file.read_at(&mut head, 0).ok()?;
    (elf::kind(&head[..read]) == Kind::Native).then(|| Elf::read(file, &head).ok())?
}

/// A program without a loader: a static one, or a loader, which is a library.
fn of_no_interpreter(file: &File, elf: &Elf<'_>, arguments: &Arguments<'_>) -> Result<Image, Obstacle> {
    let mut name = [0; 64];
    match elf.name(&mut name) {
        Some(GLIBC_LOADER) => {}
        _ if elf.is_library() => return Err(Obstacle::OtherLibc(file.name())),
        _ => return Err(Obstacle::Static),
    }
    let mut image = Image { program: file.name(), loader: file.name(), first: None };
    // Without a program it says something of itself.
    let Some(told) = loader::read(arguments) else { return Ok(image) };
    let mut path = [0; PATH];
    match told.libraries.and_then(|at| library_in(arguments(at, &mut path)?, &mut path)) {
        Some(libc) => check_version(&libc)?,
        None => check_libc(file)?,
    }
    let named = arguments(told.program, &mut path).filter(|len| *len < PATH && path[..*len].contains(&b'/'));
    // A name without a slash is looked for as a library is.
    let Some(len) = named else { return Ok(image) };
    path[len] = 0;
    let program = CStr::from_bytes_until_nul(&path).ok().and_then(|path| File::open(Place::of(path)).ok());
    if let Some(program) = program {
        image.program = program.name();
        image.first = open_native(&program).and_then(|elf| runtime(&elf));
    }
    Ok(image)
}

/// The C library in the first directory of a list that has one; the list is in the first bytes of `path`.
fn library_in(len: usize, path: &mut [u8; PATH]) -> Option<File> {
    let list = *path;
    list[..len].split(|byte| matches!(byte, b':' | b';')).find_map(|directory| beside(directory, path))
}

/// The C library in a directory.
fn beside(directory: &[u8], path: &mut [u8; PATH]) -> Option<File> {
    let end = directory.len() + 1 + LIBC.len();
    let place = path.get_mut(..=end)?;
    place[..directory.len()].copy_from_slice(directory);
    place[directory.len()] = b'/';
    place[directory.len() + 1..end].copy_from_slice(LIBC);
    place[end] = 0;
    let path = CStr::from_bytes_until_nul(place).ok()?;
    File::open(Place::of(path)).ok()
}

/// Whether a loader is glibc's.
fn check_loader(loader: &File, name: Text) -> Result<(), Obstacle> {
    let mut own = [0; 64];
    let elf = open_native(loader).ok_or(Obstacle::OtherLibc(name))?;
    match elf.name(&mut own) {
        Some(GLIBC_LOADER) => Ok(()),
        _ => Err(Obstacle::OtherLibc(name)),
    }
}

/// Whether the C library that a loader belongs to, which lies beside it, has what the agent's library asks for. One that
/// is not there is taken to be as new as the agent's.
fn check_libc(loader: &File) -> Result<(), Obstacle> {
    let (mut real, mut path) = ([0; PATH], [0; PATH]);
    let Some(real) = loader.path(&mut real) else { return Ok(()) };
    let directory = real.strip_suffix(base(real)).and_then(|front| front.strip_suffix(b"/")).unwrap_or_default();
    beside(directory, &mut path).map_or(Ok(()), |libc| check_version(&libc))
}

fn check_version(libc: &File) -> Result<(), Obstacle> {
    let has = open_native(libc).and_then(|elf| elf.defines(crate::NEEDED_GLIBC.as_bytes()));
    if has == Some(false) { Err(Obstacle::OldGlibc(libc.name())) } else { Ok(()) }
}

/// The sanitizer's runtime that a program asks for and that has to come first.
fn runtime(elf: &Elf<'_>) -> Option<Text> {
    let mut found = None;
    elf.needs(|name| {
        found = preload::is_runtime(name).then(|| Text::new(name));
        found.is_some()
    });
    found
}

/// Whether a program would run with other rights than its caller's: its loader ignores `LD_PRELOAD` then.
fn changes_rights(file: &File) -> Result<bool, i32> {
    let status = file.status()?;
    let may_change = !has_no_new_privileges() && !file.is_on_nosuid();
    let (user, group) = (id(SYS_getuid), id(SYS_getgid));
    let changed = |is_set: bool, owner: u32, effective: usize, own: u32| {
        if is_set && may_change { owner != own } else { id(effective) != own }
    };
    let sets_group = SETGID | GROUP_EXECUTES;
    Ok(changed(status.mode & SETUID != 0, status.user, SYS_geteuid, user)
        || changed(status.mode & sets_group == sets_group, status.group, SYS_getegid, group)
        || user != 0 && may_change && file.has_capabilities())
}

fn id(number: usize) -> u32 {
    // SAFETY: touches no memory.
    unsafe { sys::call(number, [0; 6]) as u32 }
}

fn has_no_new_privileges() -> bool {
    const GET_NO_NEW_PRIVS: usize = 39;
    // SAFETY: touches no memory.
    unsafe { sys::call(SYS_prctl, [GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0]) == 1 }
}

impl Obstacle {
    /// A loader that cannot be opened. By its name it may be another libc's, whether it is there or not.
    fn no_loader(name: Text, error: i32) -> Obstacle {
        // No descriptor is left: that says nothing of the loader.
        if error == EMFILE || error == ENFILE {
            return Obstacle::Unreadable(error);
        }
        let is_glibcs = base(name.as_bytes()) == GLIBC_LOADER && error != EACCES;
        if is_glibcs { Obstacle::NoLoader(name) } else { Obstacle::OtherLibc(name) }
    }
}
