//! Where the code of libc and of the dynamic linker is, because what they allocate for themselves must not always be managed.
//!
//! The dynamic linker's records of libraries and of their thread-local variables are read when a thread is created, which a forked child
//! does before its memory is served. And where faults are served in the thread, libc makes system calls with buffers of its own,
//! which nobody can hold; elsewhere libc's range is empty.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A range of code.
struct Code {
    start: AtomicUsize,
    bytes: AtomicUsize,
}

static LIBC: Code = Code::nowhere();
static LOADER: Code = Code::nowhere();

/// Whether an address lies in libc's code.
pub(crate) fn holds(address: usize) -> bool {
    LIBC.holds(address)
}

/// Whether an address lies in the dynamic linker's code.
pub(crate) fn is_loader(address: usize) -> bool {
    LOADER.holds(address)
}

/// Finds libc's code.
pub(crate) fn find() {
    // Any function of libc that is not replaced here.
    LIBC.find(libc::getpid as *const () as usize);
}

/// Finds the dynamic linker's code.
pub(crate) fn find_loader() {
    unsafe extern "C" {
        fn __tls_get_addr();
    }
    LOADER.find(__tls_get_addr as *const () as usize);
}

impl Code {
    const fn nowhere() -> Code {
        Code { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < self.bytes.load(Ordering::Relaxed)
    }

    /// Finds the loaded code around a function.
    fn find(&self, function: usize) {
        let mut found = (function, 0..0);
        // SAFETY: the callback is called with whole structures and a live pair, while it returns 0.
        unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut found).cast()) };
        self.start.store(found.1.start, Ordering::Relaxed);
        self.bytes.store(found.1.len(), Ordering::Relaxed);
    }
}

unsafe extern "C" fn look_at(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    found: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the pair of `find`.
    let (inside, range) = unsafe { &mut *found.cast::<(usize, std::ops::Range<usize>)>() };
    // SAFETY: the dynamic linker passes a whole structure with its headers.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr as usize, std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum as usize))
    };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let start = base + header.p_vaddr as usize;
        let code = start..start + header.p_memsz as usize;
        if code.contains(inside) {
            *range = code;
            return 1;
        }
    }
    0
}
