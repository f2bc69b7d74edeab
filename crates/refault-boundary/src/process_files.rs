//! Files of `/proc` that speak of this process, read without libc.
//!
//! Cost: what the kernel takes to write them, a microsecond per mapping and some ten for the rest, and two calls more than
//! it needs to hand the text out.

use std::ffi::CStr;

use refault_linux::calls::SYS_open;
use refault_paging::sys::{self, nr};

/// Free bytes before each read: the kernel hands out a page at most at a time, so that what is larger makes more calls.
const MIN_FREE: usize = 4096;

/// What is mapped.
pub(crate) const MAPS: &CStr = c"/proc/self/maps";
/// Who this process is, and who traces it.
pub(crate) const STATUS: &CStr = c"/proc/self/status";
/// What is in memory of what is mapped.
pub(crate) const SMAPS: &CStr = c"/proc/self/smaps";

/// All of a file; `None` if it cannot be opened or read to its end. What is no UTF-8, as names of files may be, is replaced.
pub(crate) fn read(path: &CStr) -> Option<String> {
    const CLOEXEC: usize = 0o2_000_000;
    // SAFETY: opens a file by a path that ends.
    let descriptor = unsafe { sys::call(SYS_open, [path.as_ptr() as usize, CLOEXEC, 0, 0, 0, 0]) };
    if descriptor < 0 {
        return None;
    }
    // No page of it is touched before the kernel writes to it.
    let mut text = Vec::with_capacity(2 * MIN_FREE);
    let is_whole = loop {
        text.reserve(MIN_FREE);
        let free = text.spare_capacity_mut();
        // SAFETY: the kernel writes to bytes that the vector has and nobody uses.
        let read =
            unsafe { sys::call(nr::READ, [descriptor as usize, free.as_mut_ptr() as usize, free.len(), 0, 0, 0]) };
        if read <= 0 {
            break read == 0;
        }
        // SAFETY: so many bytes were written.
        unsafe { text.set_len(text.len() + read as usize) };
    };
    // SAFETY: it was opened here.
    unsafe { sys::call(nr::CLOSE, [descriptor as usize, 0, 0, 0, 0, 0]) };
    let lossy = |error: std::string::FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
    is_whole.then(|| String::from_utf8(text).unwrap_or_else(lossy))
}

/// The process that a thread belongs to, by their numbers here.
pub(crate) fn process_of_thread(thread: i32) -> Option<i32> {
    let path = std::ffi::CString::new(format!("/proc/{thread}/status")).ok()?;
    let text = read(&path)?;
    text.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|number| number.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_to_their_ends() {
        // More than the kernel hands out at once.
        let text = read(SMAPS).expect("it is there");
        assert!(text.len() > 3 * MIN_FREE && text.ends_with('\n') && text.contains("VmFlags"));
        assert_eq!(process_of_thread(crate::entry::thread_id() as i32), Some(sys::process_id()));
        assert!(read(STATUS).is_some_and(|status| status.contains("\nTracerPid:")));
        assert_eq!(read(c"/proc/self/none"), None);
        // It opens and cannot be read.
        assert_eq!(read(c"/proc/self"), None);
    }

    #[test]
    fn names_that_are_no_text_are_no_reason_to_read_nothing() {
        let directory = std::env::temp_dir().join(format!("refault-names-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let path = directory.join("file");
        std::fs::write(&path, b"a\xffb\n").expect("a file");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no zeros");
        assert_eq!(read(&name).as_deref(), Some("a\u{fffd}b\n"));
        std::fs::remove_dir_all(&directory).expect("they are there");
    }
}
