//! `malloc` and its family, over mimalloc, whose memory comes from our own `mmap` and so from the pager.
//!
//! Before the agent has started, and while libc allocates for the agent, blocks come from the agent's heap. An address says
//! where a block came from, so blocks are freed where they belong, also those that somebody got past this `malloc`
//! (`__libc_malloc`).

use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, c_void, size_t};
use libmimalloc_sys as mimalloc;

use crate::heap;
use crate::libc_code;
use crate::mappings::ARENA_EXHAUSTED;

// Numbers of `mi_option_t` (mimalloc.h, version 2).
const EAGER_COMMIT: i32 = 3;
const ARENA_EAGER_COMMIT: i32 = 4;
const EAGER_COMMIT_DELAY: i32 = 14;
const PURGE_DELAY: i32 = 15;
const ARENA_RESERVE: i32 = 23;

/// Bytes of mimalloc's own arena, in which what is freed stays for a while. Each process makes tables for all of its pages when it
/// starts, so it is not larger.
const LEAST_RESERVED: u64 = 1 << 30;
const MOST_RESERVED: u64 = 4 << 30;

unsafe extern "C" {
    fn mi_option_set(option: c_int, value: libc::c_long);
    fn mi_calloc(count: size_t, size: size_t) -> *mut c_void;
    fn mi_malloc_usable_size(pointer: *const c_void) -> size_t;
    fn mi_thread_init();
    fn mi_reserve_os_memory_ex(
        size: size_t,
        commit: bool,
        allow_large: bool,
        exclusive: bool,
        arena: *mut c_int,
    ) -> c_int;
}

/// Settings that fit memory that the pager manages.
pub(crate) fn configure() {
    // SAFETY: options may be set at any time.
    unsafe {
        // Reserving without access and opening it later would look like an unmanaged reservation to our `mmap`.
        mi_option_set(EAGER_COMMIT, 1);
        mi_option_set(ARENA_EAGER_COMMIT, 1);
        mi_option_set(EAGER_COMMIT_DELAY, 0);
        // Threads that find the arena full at the same time would reserve one each, of sizes that double, and tables for all
        // of their pages. See `reserve`.
        mi_option_set(ARENA_RESERVE, 0);
        // Freed memory is given back late: it costs a punch and a fault each time.
        mi_option_set(PURGE_DELAY, 500);
    }
}

/// Reserves the only arena: once memory is managed. What does not fit is mapped piece by piece.
pub(crate) fn reserve(memory: u64) {
    let bytes = crate::limits::arena_bytes(memory.clamp(LEAST_RESERVED, MOST_RESERVED) * 2) / 2;
    let mut arena = 0;
    // SAFETY: the arena's number is written to a live variable; what cannot be reserved is mapped when it is needed.
    unsafe {
        mi_thread_init();
        mi_reserve_os_memory_ex(bytes as size_t & !((64 << 20) - 1), true, false, false, &mut arena);
    }
}

/// `free`, `realloc` and `malloc_usable_size` of the library that would be asked if this one were not there.
static NEXT: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// Finds out who would be asked otherwise. Called when the agent starts, because looking it up allocates.
pub(crate) fn find_next() {
    for (next, name) in NEXT.iter().zip([c"free", c"realloc", c"malloc_usable_size"]) {
        // SAFETY: looks up a name.
        next.store(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize, Ordering::Release);
    }
}

/// Whether a block is somebody else's: neither the agent's nor in managed memory, where all of mimalloc's lie until the arena
/// is used up.
fn is_foreign(pointer: *const c_void) -> bool {
    let place = pointer as usize;
    NEXT[0].load(Ordering::Relaxed) != 0
        && !heap::owns(place)
        && !ARENA_EXHAUSTED.load(Ordering::Relaxed)
        && crate::started().is_some_and(|agent| !agent.pager.owns(place))
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

/// A function of C over one of ours that is told, behind the arguments, who calls.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! told_who_calls {
    ($(#[$attribute:meta])* $name:ident($($argument:ident: $kind:ty),*), $x86:literal, $arm:literal, $ours:ident) => {
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> *mut c_void {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(concat!("mov ", $x86, ", [rsp]"), "jmp {}", sym $ours);
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(concat!("mov ", $arm, ", x30"), "b {}", sym $ours);
        }
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! told_who_calls {
    ($(#[$attribute:meta])* $name:ident($($argument:ident: $kind:ty),*), $x86:literal, $arm:literal, $ours:ident) => {
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> *mut c_void {
            // SAFETY: promised by the caller.
            #[allow(unused_unsafe)]
            unsafe {
                $ours($($argument,)* 0)
            }
        }
    };
}

told_who_calls!(
    /// malloc(3).
    ///
    /// # Safety
    /// None is needed.
    malloc(size: size_t), "rsi", "x1", allocate_for
);

told_who_calls!(
    /// calloc(3).
    ///
    /// # Safety
    /// None is needed.
    calloc(count: size_t, size: size_t), "rdx", "x2", allocate_zeros_for
);

told_who_calls!(
    /// realloc(3).
    ///
    /// # Safety
    /// As in C.
    realloc(pointer: *mut c_void, size: size_t), "rdx", "x2", reallocate_for
);

/// Blocks of at least this size that libc allocates for itself are taken for buffers of streams and directories.
const BUFFER: usize = 1024;

/// Whether a block for this caller is to be managed.
fn managed_for(caller: usize, size: usize) -> bool {
    managed() && !libc_code::is_loader(caller) && !(size >= BUFFER && libc_code::holds(caller))
}

/// The same as `malloc`, for the agent's other functions.
pub(crate) fn allocate(size: size_t) -> *mut c_void {
    allocate_for(size, 0)
}

extern "C" fn allocate_for(size: size_t, caller: usize) -> *mut c_void {
    if managed_for(caller, size) {
        // SAFETY: any size may be asked for.
        or_no_memory(unsafe { mimalloc::mi_malloc(size) })
    } else {
        or_no_memory(heap::allocate(size, 16).cast())
    }
}

extern "C" fn allocate_zeros_for(count: size_t, size: size_t, caller: usize) -> *mut c_void {
    if managed() && !libc_code::is_loader(caller) {
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
    unsafe {
        if heap::owns(pointer as usize) {
            heap::free(pointer.cast());
        } else if is_foreign(pointer) {
            let next: unsafe extern "C" fn(*mut c_void) = std::mem::transmute(NEXT[0].load(Ordering::Relaxed));
            next(pointer);
        } else {
            mimalloc::mi_free(pointer);
        }
    }
}

/// # Safety
/// As for realloc(3).
unsafe extern "C" fn reallocate_for(pointer: *mut c_void, size: size_t, caller: usize) -> *mut c_void {
    if pointer.is_null() {
        return allocate_for(size, caller);
    }
    if size == 0 {
        // SAFETY: promised by the caller. glibc frees and returns null.
        unsafe { free(pointer) };
        return std::ptr::null_mut();
    }
    // SAFETY: promised by the caller; the address says whose the block is.
    unsafe {
        if is_foreign(pointer) {
            let next: unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void =
                std::mem::transmute(NEXT[1].load(Ordering::Relaxed));
            return next(pointer, size);
        }
        if !heap::owns(pointer as usize) {
            return or_no_memory(mimalloc::mi_realloc(pointer, size));
        }
        let block = allocate_for(size, caller);
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

/// memalign(3). As in glibc the alignment is rounded up to a power of two.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    let Some(align) = align.checked_next_power_of_two() else {
        set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    };
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
    unsafe {
        if heap::owns(pointer as usize) {
            heap::size(pointer.cast())
        } else if is_foreign(pointer) {
            let next: unsafe extern "C" fn(*mut c_void) -> size_t =
                std::mem::transmute(NEXT[2].load(Ordering::Relaxed));
            next(pointer)
        } else {
            mi_malloc_usable_size(pointer)
        }
    }
}
