//! What is said of files that are made for it, from a copy of this test's own program.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use refault_image::{Image, NEEDED_GLIBC, Obstacle};
use tempfile::TempDir;

const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";

/// A directory whose path is short enough to stand where a loader's name does.
fn directory() -> TempDir {
    tempfile::tempdir_in("/tmp").expect("a directory")
}

fn own_bytes() -> Vec<u8> {
    std::fs::read(std::env::current_exe().expect("a path")).expect("it can be read")
}

fn write(directory: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).expect("it can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permits");
    path
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let places: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, window)| *window == from).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "{} is not there", String::from_utf8_lossy(from));
    for at in places {
        bytes[at..at + from.len()].fill(0);
        bytes[at..at + to.len()].copy_from_slice(to);
    }
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zeros")
}

fn look(path: &Path) -> Result<Image, Obstacle> {
    refault_image::look(&text(path), &|_, _| None, None)
}

/// This test's program with another loader.
fn with_loader(directory: &TempDir, name: &str, loader: &Path) -> PathBuf {
    let mut bytes = own_bytes();
    replace(&mut bytes, LOADER, loader.as_os_str().as_bytes());
    write(directory, name, &bytes)
}

#[test]
fn machines_and_sizes_are_told_apart() {
    let directory = directory();
    let with = |at: usize, value: u8| {
        let mut bytes = own_bytes();
        bytes[at] = value;
        look(&write(&directory, "program", &bytes))
    };
    assert!(with(0, 0x7f).is_ok());
    assert_eq!(with(4, 1), Err(Obstacle::Bits32));
    assert_eq!(with(18, 183), Err(Obstacle::OtherMachine(183)));
    assert_eq!(with(0, 1), Err(Obstacle::NotElf));
    for (contents, obstacle) in [
        (&b""[..], Obstacle::NotElf),
        (b"\x7fELF", Obstacle::NotElf),
        (b"echo on\n", Obstacle::NoInterpreter),
        (b"#!\n", Obstacle::NoInterpreter),
        (b"#! /no/such/interpreter x\n", Obstacle::Unreadable(2)),
    ] {
        assert_eq!(look(&write(&directory, "script", contents)), Err(obstacle), "{contents:?}");
    }
    assert_eq!(look(directory.path()), Err(Obstacle::Unreadable(13)));
}

/// What is cut or contradicts itself is answered, whatever it is.
#[test]
fn cut_files_and_wild_headers_are_answered() {
    let directory = directory();
    let whole = own_bytes();
    for len in [0, 1, 15, 63, 64, 65, 200, 700, 4096] {
        _ = look(&write(&directory, "cut", &whole[..len]));
    }
    let mut random = 1u64;
    for _ in 0..300 {
        let mut bytes = whole[..8192].to_vec();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes[16 + (random >> 33) as usize % 900] = (random >> 24) as u8;
        }
        _ = look(&write(&directory, "wild", &bytes));
    }
}

#[test]
fn loaders_of_other_libcs_and_old_glibcs_are_told_apart() {
    let directory = directory();
    let loader = std::fs::canonicalize("/lib64/ld-linux-x86-64.so.2").expect("glibc's loader");
    let libc = std::fs::read(loader.with_file_name("libc.so.6")).expect("it lies beside its loader");
    let copy = write(&directory, "l", &std::fs::read(&loader).expect("it can be read"));
    let program = with_loader(&directory, "program", &copy);
    assert!(look(&program).is_ok(), "a libc that is not beside its loader is taken for a new one");
    let place = write(&directory, "libc.so.6", &libc);
    assert!(look(&program).is_ok_and(|image| image.loader.as_bytes() == copy.as_os_str().as_bytes()));
    let mut old = libc;
    let version = format!("{NEEDED_GLIBC}\0");
    replace(&mut old, version.as_bytes(), b"GLIBC_2.x\0");
    std::fs::write(&place, &old).expect("it can be written");
    assert!(matches!(look(&program), Err(Obstacle::OldGlibc(_))));
    let words = [copy.clone(), program.clone()];
    let argument = |at: usize, into: &mut [u8]| {
        let word = words.get(at)?.as_os_str().as_bytes();
        into[..word.len()].copy_from_slice(word);
        Some(word.len())
    };
    assert!(matches!(refault_image::look(&text(&copy), &argument, None), Err(Obstacle::OldGlibc(_))));

    let mut other = std::fs::read(&loader).expect("it can be read");
    replace(&mut other, b"ld-linux-x86-64.so.2\0", b"another\0");
    let other = with_loader(&directory, "other", &write(&directory, "o", &other));
    assert!(matches!(look(&other), Err(Obstacle::OtherLibc(_))));
    let missing = with_loader(&directory, "missing", Path::new("/lib/ld-musl-none.so.1"));
    assert!(matches!(look(&missing), Err(Obstacle::OtherLibc(_))));
}

#[test]
fn a_library_that_cannot_be_read_is_no_agent() {
    let own = std::env::current_exe().expect("a path");
    let ask = |agent: &Path| refault_image::look(&text(&own), &|_, _| None, Some(&text(agent)));
    assert!(ask(&own).is_ok());
    assert_eq!(ask(Path::new("/no/such/agent.so")), Err(Obstacle::NoAgent));
}
