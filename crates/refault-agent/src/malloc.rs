//! `malloc` and its family, over mimalloc, whose memory comes from our own `mmap` and so from the pager.
//!
//! Before the agent has started, and while libc allocates for the agent, blocks come from the agent's heap. An address says
//! where a block came from, so blocks are freed where they belong.

use libc::{c_int, c_void, size_t};
use libmimalloc_sys as mimalloc;

use crate::heap;

// Numbers of `mi_option_t` (mimalloc.h, version 2).
const EAGER_COMMIT: i32 = 3;
const ARENA_EAGER_COMMIT: i32 = 4;
const PURGE_DELAY: i32 = 15;

unsafe extern "C" {
    fn mi_option_set(option: c_int, value: libc::c_long);
    fn mi_calloc(count: size_t, size: size_t) -> *mut c_void;
    fn mi_malloc_usable_size(pointer: *const c_void) -> size_t;
}

/// Settings that fit memory that the pager manages.
pub(crate) fn configure() {
    // SAFETY: options may be set at any time.
    unsafe {
        // Reserving without access and opening it later would look like an unmanaged reservation to our `mmap`.
        mi_option_set(EAGER_COMMIT, 1);
        mi_option_set(ARENA_EAGER_COMMIT, 1);
        // Freed memory is given back late: it costs a punch and a fault each time.
        mi_option_set(PURGE_DELAY, 500);
    }
}

fn managed() -> bool {
    crate::agent().is_some() && !heap::is_own_thread()
}

fn set_errno(errno: c_int) {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = errno };
}

fn or_no_memory<T>(pointer: *mut T) -> *mut T {
    if pointer.is_null() {
        set_errno(libc::ENOMEM);
    }
    pointer
}

/// malloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: size_t) -> *mut c_void {
    if managed() {
        // SAFETY: any size may be asked for.
        or_no_memory(unsafe { mimalloc::mi_malloc(size) })
    } else {
        or_no_memory(heap::allocate(size, 16).cast())
    }
}

/// calloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    if managed() {
        // SAFETY: any count and size may be asked for; mimalloc checks the product.
        return or_no_memory(unsafe { mi_calloc(count, size) });
    }
    let Some(bytes) = count.checked_mul(size) else { return or_no_memory(std::ptr::null_mut()) };
    let block = heap::allocate(bytes, 16);
    if !block.is_null() {
        // SAFETY: the block has that many bytes.
        unsafe { block.write_bytes(0, bytes) };
    }
    or_no_memory(block.cast())
}

/// free(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(pointer: *mut c_void) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: promised by the caller; the address says whose the block is.
    unsafe { if heap::owns(pointer as usize) { heap::free(pointer.cast()) } else { mimalloc::mi_free(pointer) } }
}

/// realloc(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(pointer: *mut c_void, size: size_t) -> *mut c_void {
    if pointer.is_null() {
        return malloc(size);
    }
    if size == 0 {
        // SAFETY: promised by the caller. glibc frees and returns null.
        unsafe { free(pointer) };
        return std::ptr::null_mut();
    }
    // SAFETY: promised by the caller; the address says whose the block is.
    unsafe {
        if !heap::owns(pointer as usize) {
            return or_no_memory(mimalloc::mi_realloc(pointer, size));
        }
        let block = malloc(size);
        if !block.is_null() {
            let old = heap::size(pointer.cast());
            std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), block.cast(), old.min(size));
            heap::free(pointer.cast());
        }
        block
    }
}

/// reallocarray(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(pointer: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: promised by the caller.
        Some(bytes) => unsafe { realloc(pointer, bytes) },
        None => or_no_memory(std::ptr::null_mut()),
    }
}

/// memalign(3).
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    }
    if managed() {
        // SAFETY: the alignment is a power of two.
        or_no_memory(unsafe { mimalloc::mi_malloc_aligned(size, align) })
    } else {
        or_no_memory(heap::allocate(size, align).cast())
    }
}

/// aligned_alloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    memalign(align, size)
}

/// posix_memalign(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: size_t, size: size_t) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let block = memalign(align, size);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: promised by the caller.
    unsafe { *out = block };
    0
}

/// valloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: size_t) -> *mut c_void {
    memalign(4096, size)
}

/// pvalloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    memalign(4096, size.next_multiple_of(4096))
}

/// malloc_usable_size(3).
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> size_t {
    if pointer.is_null() {
        return 0;
    }
    // SAFETY: promised by the caller; the address says whose the block is.
    unsafe { if heap::owns(pointer as usize) { heap::size(pointer.cast()) } else { mi_malloc_usable_size(pointer) } }
}
