//! Where libc's code is, where faults are served in the thread: libc makes system calls with buffers of its own, which
//! nobody can hold, so that these are not managed. Elsewhere the range is empty.

use std::sync::atomic::{AtomicUsize, Ordering};

static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Whether an address lies in libc's code.
pub(crate) fn holds(address: usize) -> bool {
    address.wrapping_sub(START.load(Ordering::Relaxed)) < BYTES.load(Ordering::Relaxed)
}

/// Finds the code.
pub(crate) fn find() {
    // SAFETY: the callback is called with whole structures, while it returns 0.
    unsafe { libc::dl_iterate_phdr(Some(look_at), std::ptr::null_mut()) };
}

unsafe extern "C" fn look_at(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut libc::c_void,
) -> libc::c_int {
    // Any function of libc that is not replaced here.
    let inside = libc::getpid as *const () as usize;
    // SAFETY: the dynamic linker passes a whole structure with its headers.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr as usize, std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum as usize))
    };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let start = base + header.p_vaddr as usize;
        if (start..start + header.p_memsz as usize).contains(&inside) {
            START.store(start, Ordering::Relaxed);
            BYTES.store(header.p_memsz as usize, Ordering::Relaxed);
            return 1;
        }
    }
    0
}
