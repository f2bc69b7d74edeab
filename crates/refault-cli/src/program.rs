//! Programs on disk: where they are, and whether a library can be preloaded into them.

pub mod bench;

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use refault_image::{Image, Obstacle};

use crate::embedded;

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

/// What becomes of a program, given with its arguments, under the agent of this path.
///
/// # Errors
/// Why it cannot be managed.
pub fn look(path: &Path, arguments: &[OsString], agent: Option<&Path>) -> Result<Image, Obstacle> {
    // A path with a zero in it names no file.
    let terminated = |path: &Path| CString::new(path.as_os_str().as_bytes()).ok();
    const ENOENT: i32 = 2;
    let path = terminated(path).ok_or(Obstacle::Unreadable(ENOENT))?;
    let argument = |at: usize, into: &mut [u8]| -> Option<usize> {
        let bytes = arguments.get(at)?.as_bytes();
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
        Some(len)
    };
    refault_image::look(&path, &argument, agent.and_then(terminated).as_deref())
}

/// What to do about a program that cannot be managed, with the reason.
pub fn remedy(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::Unreadable(error) => io::Error::from_raw_os_error(*error).to_string(),
        Obstacle::Static => format!("{obstacle}; use a dynamically linked build"),
        Obstacle::OtherLibc(_) => format!("{obstacle}; use a glibc build"),
        Obstacle::OldGlibc(_) => format!("{obstacle}; use a build for a newer one"),
        Obstacle::Privileged => format!("{obstacle}; run it as its owner"),
        Obstacle::NoInterpreter => format!("{obstacle}; name its interpreter before it"),
        Obstacle::Bits32 | Obstacle::OtherMachine(_) => format!("{obstacle}; use a build for x86-64"),
        Obstacle::NoLoader(_) => format!("{obstacle}; install it"),
        Obstacle::NoAgent => format!("{obstacle}; name a library that can be in REFAULT_AGENT_LIBRARY"),
        Obstacle::NotElf | Obstacle::TooManyInterpreters | Obstacle::OtherEnvironment => obstacle.to_string(),
    }
}

/// Whether the kernel may keep the budget of a program of which this was found: it would execute it all the same.
pub fn is_the_kernels(found: Obstacle) -> bool {
    found.is_executable() && found != Obstacle::NoAgent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_can_be_managed_and_text_cannot() {
        let found = |path: &Path| look(path, &[], None);
        let own = std::env::current_exe().expect("a path");
        assert!(found(&own).is_ok_and(|image| own.as_os_str().as_bytes().starts_with(image.program.as_bytes())));
        assert_eq!(found(Path::new(env!("CARGO_MANIFEST_PATH"))), Err(Obstacle::NoInterpreter));
        assert_eq!(found(Path::new("/nonexistent")), Err(Obstacle::Unreadable(2)));
        assert_eq!(found(own.parent().expect("a directory")), Err(Obstacle::Unreadable(13)));
        assert_eq!(remedy(&Obstacle::Unreadable(2)), "No such file or directory (os error 2)");
    }

    #[test]
    fn names_are_found_as_a_shell_finds_them() {
        assert!(find(Path::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find(Path::new("no-such-program-anywhere")), None);
        assert_eq!(find(Path::new("/no/such/program")), None);
    }
}
