//! What tests mount: in a namespace of the test's own thread and its children. So it ends with them however they end,
//! by a failure, a signal or kill(2), and no other program sees it meanwhile.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of an image's file system.
const IMAGE: u64 = 16 << 20;

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread has mounts of its own from now on.
pub fn are_own() -> bool {
    IS_OWN.with(|is_own| {
        if !is_own.get() {
            let (root, none) = (c"/".as_ptr(), std::ptr::null());
            // SAFETY: calls that touch no memory but a constant text; threads that this one has not started keep what
            // they see.
            let made = unsafe {
                libc::unshare(libc::CLONE_NEWNS) == 0
                    && libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0
            };
            is_own.set(made);
        }
        is_own.get()
    })
}

/// Whether a command went well.
pub fn went_well(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// What is mounted, as long as this lives.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts something at a directory, which is made. None, and a skip, where nothing can be mounted.
    pub fn new<T: AsRef<OsStr>>(arguments: &[T], at: &Path) -> Option<Mounted> {
        std::fs::create_dir_all(at).expect("a directory");
        if are_own() && went_well(Command::new("mount").args(arguments).arg(at)) {
            return Some(Mounted(at.to_owned()));
        }
        refault_testing::skip("nothing can be mounted here");
        None
    }

    /// A small ext4 in an image.
    pub fn small(directory: &Path) -> Option<Mounted> {
        let (image, at) = (directory.join("image"), directory.join("mounted"));
        File::create(&image).and_then(|file| file.set_len(IMAGE)).expect("an image");
        if !went_well(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image)) {
            refault_testing::skip("no mkfs.ext4");
            return None;
        }
        Mounted::new(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()], &at)
    }

    /// Leaves no room.
    pub fn fill(&self) {
        let file = File::create(self.0.join("ballast")).expect("creates");
        let mut bytes = 1 << 20;
        while bytes > 0 {
            let at = file.metadata().expect("there").len();
            if file.write_all_at(&vec![1; bytes], at).is_err() {
                bytes /= 2;
            }
        }
        // On a disk that is full this may be refused, and it is full then.
        let _ = file.sync_all();
    }

    /// Gives the room back.
    pub fn empty(&self) {
        std::fs::remove_file(self.0.join("ballast")).expect("removes");
        File::open(&self.0).and_then(|directory| directory.sync_all()).expect("syncs");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A thread of a cache may have a file for a moment still.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
