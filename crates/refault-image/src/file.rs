//! Files, by system calls alone.

use core::ffi::CStr;

use refault_linux::calls::{
    SYS_close, SYS_faccessat2, SYS_fgetxattr, SYS_fstatfs, SYS_newfstatat, SYS_openat, SYS_pread64, SYS_readlink,
};
use refault_linux::sys;

use crate::text::Text;

/// The present directory as a descriptor (`AT_FDCWD`).
pub(crate) const PRESENT: i32 = -100;
/// The empty path means the descriptor itself.
const AT_EMPTY_PATH: usize = 0x1000;
/// With the rights that count for files, as [`SYS_faccessat2`] takes it.
const AT_EACCESS: usize = 0x200;
const X_OK: usize = 1;
/// `O_CLOEXEC | O_NOCTTY | O_NONBLOCK`: to read, and without effect on what turns out to be a device.
const READ_ONLY: usize = 0o2_000_000 | 0o400 | 0o4000;
const REGULAR: u32 = 0o100_000;
const FORMAT: u32 = 0o170_000;
const EACCES: i32 = 13;

/// Where a program's file is, as `execveat` takes it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// What a relative path begins at; the file itself if the path is empty.
    pub directory: i32,
    /// The path.
    pub path: &'a CStr,
}

impl<'a> Place<'a> {
    /// A path from the present directory on.
    pub fn of(path: &'a CStr) -> Place<'a> {
        Place { directory: PRESENT, path }
    }
}

/// What `stat` says, as far as it is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// A file that is open.
pub(crate) struct File(i32);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it was opened here.
        unsafe { sys::call(SYS_close, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// A result of the kernel's, or its error number.
fn answer(result: isize) -> Result<usize, i32> {
    usize::try_from(result).map_err(|_| -result as i32)
}

/// What the kernel says of a file.
pub(crate) fn status(place: Place<'_>) -> Result<Status, i32> {
    let mut words = [0u32; 36];
    let flags = if place.path.is_empty() { AT_EMPTY_PATH } else { 0 };
    let arguments = [place.directory as usize, place.path.as_ptr() as usize, words.as_mut_ptr() as usize, flags, 0, 0];
    // SAFETY: newfstatat reads a path and writes 144 bytes.
    answer(unsafe { sys::call(SYS_newfstatat, arguments) })?;
    // Device, inode and links take 24 bytes; then come mode, user and group.
    Ok(Status { mode: words[6], user: words[7], group: words[8] })
}

/// Whether this process may execute a file: true where the kernel cannot be asked.
pub(crate) fn may_execute(place: Place<'_>) -> bool {
    let flags = AT_EACCESS | if place.path.is_empty() { AT_EMPTY_PATH } else { 0 };
    // SAFETY: faccessat2 reads a path.
    let said = unsafe {
        sys::call(SYS_faccessat2, [place.directory as usize, place.path.as_ptr() as usize, X_OK, flags, 0, 0])
    };
    said != -(EACCES as isize)
}

/// The path of a descriptor in `/proc`, without an allocator.
struct ProcPath([u8; 32]);

impl ProcPath {
    fn of(descriptor: i32) -> ProcPath {
        const FRONT: &[u8] = b"/proc/self/fd/";
        let mut path = [0; 32];
        path[..FRONT.len()].copy_from_slice(FRONT);
        let (mut digits, mut number, mut count) = ([0u8; 10], descriptor.unsigned_abs(), 0);
        loop {
            digits[count] = b'0' + (number % 10) as u8;
            (number, count) = (number / 10, count + 1);
            if number == 0 {
                break;
            }
        }
        for (place, digit) in digits[..count].iter().rev().enumerate() {
            path[FRONT.len() + place] = *digit;
        }
        ProcPath(path)
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).expect("invariant: shorter than the array")
    }
}

impl File {
    /// Opens a regular file to be read.
    pub(crate) fn open(place: Place<'_>) -> Result<File, i32> {
        if status(place)?.mode & FORMAT != REGULAR {
            return Err(EACCES);
        }
        let own = ProcPath::of(place.directory);
        let path = if place.path.is_empty() { own.as_c_str() } else { place.path };
        // SAFETY: openat reads a path.
        let opened =
            unsafe { sys::call(SYS_openat, [place.directory as usize, path.as_ptr() as usize, READ_ONLY, 0, 0, 0]) };
        answer(opened).map(|descriptor| File(descriptor as i32))
    }

    /// What the kernel says of it.
    pub(crate) fn status(&self) -> Result<Status, i32> {
        status(Place { directory: self.0, path: c"" })
    }

    /// Fills as much of `bytes` from a place in the file on as there is; how much that was.
    pub(crate) fn read_at(&self, bytes: &mut [u8], from: u64) -> Result<usize, i32> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &mut bytes[done..];
            let arguments =
                [self.0 as usize, rest.as_mut_ptr() as usize, rest.len(), (from + done as u64) as usize, 0, 0];
            // SAFETY: the kernel writes to the slice.
            match answer(unsafe { sys::call(SYS_pread64, arguments) })? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    /// Whether it gives its process capabilities.
    pub(crate) fn has_capabilities(&self) -> bool {
        let mut value = [0u8; 64];
        let (name, at) = (c"security.capability".as_ptr() as usize, value.as_mut_ptr() as usize);
        // SAFETY: fgetxattr reads a name and writes 64 bytes at most.
        unsafe { sys::call(SYS_fgetxattr, [self.0 as usize, name, at, value.len(), 0, 0]) > 0 }
    }

    /// Whether its file system lets no program change its rights.
    pub(crate) fn is_on_nosuid(&self) -> bool {
        const NOSUID: u64 = 2;
        let mut words = [0u64; 15];
        // SAFETY: fstatfs writes 120 bytes.
        let said = unsafe { sys::call(SYS_fstatfs, [self.0 as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        // Type, block size, five counts, the number, the length of names, the size of fragments; then the flags.
        said == 0 && words[10] & NOSUID != 0
    }

    /// Its path without links, if it is short enough.
    pub(crate) fn path<'a>(&self, into: &'a mut [u8]) -> Option<&'a [u8]> {
        let own = ProcPath::of(self.0);
        let room = into.len();
        let arguments = [own.as_c_str().as_ptr() as usize, into.as_mut_ptr() as usize, room, 0, 0, 0];
        // SAFETY: readlink reads a path and writes to the slice.
        let read = answer(unsafe { sys::call(SYS_readlink, arguments) }).ok()?;
        (read < room).then(|| &into[..read])
    }

    /// Its name, for people.
    pub(crate) fn name(&self) -> Text {
        let mut path = [0; 512];
        self.path(&mut path).map_or(Text::EMPTY, Text::new)
    }
}
