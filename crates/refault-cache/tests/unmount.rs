//! Nothing outlives the program: when it and its children have ended, however they did, the file system that it used
//! can be unmounted at once. A thousand times: `REFAULT_TEST_UNMOUNTS=1000 cargo test -p refault-cache --test unmount`.

mod common;
mod ring_refused;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::PAGE;
use common::mounts::{Mounted, went_well};
use refault_cache::{CacheOptions, CachedFile, OpenError, PageCache, WriteBack};

/// Names the file in the program that ends.
const FILE: &str = "REFAULT_TEST_UNMOUNT_FILE";
/// How it ends.
const HOW: &str = "REFAULT_TEST_UNMOUNT_HOW";

const PAGES: u64 = 600;
/// Unmounts of all ways to end, unless the environment has another number.
const UNMOUNTS: usize = 144;
/// Names that number.
const HOW_MANY: &str = "REFAULT_TEST_UNMOUNTS";

/// Uses a file in all ways, tells that it has, and ends.
fn uses_and_ends(path: &Path, how: &str) -> ! {
    let write_back = how.contains("back").then(WriteBack::default);
    let options = CacheOptions { memory: 1 << 20, write_back, ..CacheOptions::default() };
    let cache = PageCache::new(&options).expect("a cache");
    let file = match cache.options().write(true).buffered_writes(how.contains("buffered")).open(path) {
        Err(OpenError::NoDirect(_)) => std::process::exit(77),
        file => Arc::new(file.expect("opens")),
    };
    let round = |value: u8| {
        // Scattered, so that many are written together. A full disk refuses some.
        for page in (0..PAGES).step_by(3) {
            let _ = file.write_at(&[value; PAGE], page * PAGE as u64);
            let _ = file.write_at(&[value; 100], (page + 1) * PAGE as u64 + 50);
        }
        let _ = file.sync();
        file.prefetch(0..PAGES * PAGE as u64);
        let futures: Vec<_> =
            (0..64).map(|page| file.read_at_async(vec![0; 3 * PAGE], page * 9 * PAGE as u64)).collect();
        let mut all = vec![0; PAGES as usize * PAGE];
        let _ = file.read_at(&mut all, 0);
        file.prefetch(0..PAGES * PAGE as u64);
        drop(futures);
    };
    round(1);
    // A child has the files open, too, and may use none of them.
    let child = if how.contains("forked") { child(&file, how.contains("killed")) } else { 0 };
    let line = format!("\nready {child}\n");
    std::io::stdout()
        .write_all(line.as_bytes())
        .and_then(|()| std::io::stdout().flush())
        .expect("who started it reads");
    if how.contains("killed") {
        loop {
            (2..=u8::MAX).for_each(round);
        }
    }
    if how.contains("closed") {
        drop(file);
        drop(cache);
    }
    // Whatever is open stays so.
    std::process::exit(0)
}

/// A child of this process, which stays until it is ended if it is to.
fn child(file: &CachedFile, stays: bool) -> i32 {
    // SAFETY: the child asks for what is refused to it, and ends without running anything of its parent's.
    match unsafe { libc::fork() } {
        0 => {
            let told = file.read_at(&mut [0], 0).is_err() && file.sync().is_err();
            if told && stays {
                loop {
                    std::thread::park();
                }
            }
            // SAFETY: it ends the process.
            unsafe { libc::_exit(i32::from(!told)) }
        }
        child => child,
    }
}

/// How the child of a program that has ended did: it is this process's own by then.
fn adopted(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a call that writes to one number of this thread's.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child, "{}", std::io::Error::last_os_error());
    status
}

/// What umount(8) says, if it is not well.
fn unmount(at: &Path) -> Result<(), String> {
    let output = Command::new("umount").arg(at).output().expect("it is there");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Mounts the image again.
fn mount(directory: &Path, at: &Path) -> bool {
    went_well(Command::new("mount").args(["-o", "loop"]).arg(directory.join("image")).arg(at))
}

#[test]
fn a_file_system_is_unmounted_as_soon_as_a_program_has_ended() {
    if let (Some(path), Ok(how)) = (std::env::var_os(FILE), std::env::var(HOW)) {
        uses_and_ends(path.as_ref(), &how);
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let Some(mounted) = Mounted::small(directory.path()) else { return };
    let ways = [
        "closed",
        "closed back",
        "ended",
        "ended back",
        "ended buffered",
        "killed",
        "killed back",
        "ended back full",
        "killed back full",
        "forked ended",
        "forked killed back",
        "forked killed back full",
    ];
    // SAFETY: it touches no memory.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }, 0);
    let rounds = std::env::var(HOW_MANY).map_or(UNMOUNTS, |number| number.parse().expect("a number"));
    let rounds = rounds.div_ceil(ways.len());
    for how in ways {
        for round in 0..rounds {
            let path = mounted.0.join("data");
            std::fs::File::create(&path).and_then(|file| file.set_len(PAGES * PAGE as u64)).expect("creates");
            if how.contains("full") {
                mounted.fill();
            }
            let mut program = Command::new(std::env::current_exe().expect("this"))
                .args(["--exact", "a_file_system_is_unmounted_as_soon_as_a_program_has_ended", "--nocapture"])
                .env(FILE, &path)
                .env(HOW, how)
                .stdout(Stdio::piped())
                .spawn()
                .expect("starts");
            let mut lines = BufReader::new(program.stdout.take().expect("it was asked for")).lines();
            let child = lines.find_map(|line| line.ok()?.strip_prefix("ready ")?.parse().ok());
            if how.contains("killed") {
                program.kill().expect("it goes on");
            }
            let status = program.wait().expect("it has ended");
            if status.code() == Some(77) {
                return refault_testing::skip("no direct I/O there");
            }
            let child: i32 = child.unwrap_or_else(|| panic!("{how}: {status}"));
            if child > 0 {
                let expected = if how.contains("killed") { libc::SIGKILL } else { 0 };
                // SAFETY: the child is this process's own by now, or has ended and is waited for.
                unsafe { libc::kill(child, expected) };
                assert_eq!(adopted(child), expected, "{how}");
            }
            unmount(&mounted.0).unwrap_or_else(|said| panic!("{how}, round {round}: {said}"));
            assert!(mount(directory.path(), &mounted.0), "{how}");
            let _ = std::fs::remove_file(mounted.0.join("ballast"));
        }
    }
    println!("{0} of {0} unmounted at once", rounds * ways.len());
}
