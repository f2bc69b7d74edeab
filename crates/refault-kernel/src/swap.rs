//! Swap on a block device: its header, switched on and off.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::PAGE;

/// Above what systems give their own swap (-2 downwards; zram of distributions 100), below the highest (32767).
pub(crate) const PRIORITY: i32 = 20_000;

/// Flags of swapon(2), which libc does not name.
const SWAP_FLAG_PREFER: i32 = 0x8000;
const SWAP_FLAG_PRIO_MASK: i32 = 0x7fff;

/// The header of version 1 of a swap area (`union swap_header` of the kernel's `swap.h`).
const VERSION: u32 = 1;
const VERSION_AT: usize = 1024;
const LAST_PAGE_AT: usize = VERSION_AT + 4;
const SIGNATURE: &[u8] = b"SWAPSPACE2";

/// The first page of a swap area of this many bytes.
fn header(bytes: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    let last = u32::try_from(bytes / PAGE - 1).unwrap_or(u32::MAX);
    page[VERSION_AT..VERSION_AT + 4].copy_from_slice(&VERSION.to_ne_bytes());
    page[LAST_PAGE_AT..LAST_PAGE_AT + 4].copy_from_slice(&last.to_ne_bytes());
    page[PAGE as usize - SIGNATURE.len()..].copy_from_slice(SIGNATURE);
    page
}

/// Makes a device of this many bytes a swap area, and swaps to it.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn on(device: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).open(device)?;
    file.write_all_at(&header(bytes), 0)?;
    file.sync_all()?;
    drop(file);
    let flags = SWAP_FLAG_PREFER | (PRIORITY & SWAP_FLAG_PRIO_MASK);
    let path = CString::new(device.as_os_str().as_bytes())?;
    #[allow(unsafe_code)]
    // SAFETY: the path ends with a zero and lives until the call returns.
    let answer = unsafe { libc::swapon(path.as_ptr(), flags) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Brings everything back from a device. That it was no swap is no error.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn off(device: &Path) -> io::Result<()> {
    let path = CString::new(device.as_os_str().as_bytes())?;
    #[allow(unsafe_code)]
    // SAFETY: the path ends with a zero and lives until the call returns.
    let answer = unsafe { libc::swapoff(path.as_ptr()) };
    let error = io::Error::last_os_error();
    let is_off = matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT));
    if answer == 0 || is_off { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_the_kernel_looks_for() {
        let page = header(64 << 20);
        assert_eq!((page.len(), &page[4086..]), (4096, &b"SWAPSPACE2"[..]));
        assert_eq!((page[1024], u32::from_ne_bytes(page[1028..1032].try_into().expect("four"))), (1, 16_383));
    }
}
