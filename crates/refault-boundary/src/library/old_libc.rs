//! Functions that newer versions of glibc have, for the standard library, which asks for them: so the library can be
//! loaded beside an older one. What it asks of libc itself has been there since 2.3.4 (a test reads its needs).
//!
//! Most are system calls. Destructors of thread-locals are never run: the agent has none that matter, and threads of
//! the program that end do not come here through libc.
//!
//! Invariant: the names are hidden, so the program's own calls never meet them. Not in the crate's tests.

use std::arch::global_asm;
use std::ffi::c_int;

use refault_linux::calls::{SYS_fstat, SYS_getrandom, SYS_gettid, SYS_newfstatat, SYS_prctl, SYS_statx};
use refault_linux::flags::AT_FDCWD;
use refault_linux::options::PR_GET_AUXV;
use refault_linux::{errno, sys};

/// Keys of thread-locals are asked for only where destructors cannot be registered; they can.
const NO_KEY: c_int = -errno::EAGAIN as c_int;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// What libc's functions answer where they say the error in `errno`.
const FAILED: isize = -1;

/// The kernel's answer as libc's functions give it.
fn said(result: isize) -> isize {
    if result < 0 {
        // SAFETY: libc's, of this thread.
        unsafe { *__errno_location() = -result as c_int };
        return FAILED;
    }
    result
}

extern "C" fn stat(path: usize, into: usize) -> c_int {
    // SAFETY: the caller's pointers, as for `stat`.
    said(unsafe { sys::call(SYS_newfstatat, [AT_FDCWD, path, into, 0, 0, 0]) }) as c_int
}

extern "C" fn fstat(descriptor: c_int, into: usize) -> c_int {
    // SAFETY: the caller's pointer, as for `fstat`.
    said(unsafe { sys::call(SYS_fstat, [descriptor as usize, into, 0, 0, 0, 0]) }) as c_int
}

extern "C" fn statx(directory: c_int, path: usize, flags: c_int, mask: u32, into: usize) -> c_int {
    let arguments = [directory as usize, path, flags as usize, mask as usize, into, 0];
    // SAFETY: the caller's pointers, as for `statx`.
    said(unsafe { sys::call(SYS_statx, arguments) }) as c_int
}

extern "C" fn getrandom(into: usize, bytes: usize, flags: u32) -> isize {
    // SAFETY: the caller's buffer, as for `getrandom`.
    said(unsafe { sys::call(SYS_getrandom, [into, bytes, flags as usize, 0, 0, 0]) })
}

extern "C" fn gettid() -> c_int {
    // SAFETY: touches no memory.
    unsafe { sys::call(SYS_gettid, [0; 6]) as c_int }
}

/// What the kernel has left for a program: the value of this kind, or nothing.
extern "C" fn getauxval(kind: u64) -> u64 {
    // Linux has it since 6.4.
    let mut pairs = [[0u64; 2]; 64];
    // SAFETY: writes to the array, as many bytes as it has.
    unsafe { sys::call(SYS_prctl, [PR_GET_AUXV, pairs.as_mut_ptr() as usize, size_of_val(&pairs), 0, 0, 0]) };
    pairs.iter().find(|pair| pair[0] == kind).map_or(0, |pair| pair[1])
}

extern "C" fn no_destructor(_: usize, _: usize, _: usize) -> c_int {
    0
}

extern "C" fn no_key(_: usize, _: usize) -> c_int {
    NO_KEY
}

macro_rules! instead {
    ($($name:literal => $function:ident),* $(,)?) => {
        $(global_asm!(
            ".text",
            ".p2align 4",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "  jmp {function}",
            function = sym $function,
            options(att_syntax),
        );)*
    };
}

instead!(
    "stat64" => stat,
    "fstat64" => fstat,
    "statx" => statx,
    "getrandom" => getrandom,
    "gettid" => gettid,
    "getauxval" => getauxval,
    "__cxa_thread_atexit_impl" => no_destructor,
    "pthread_key_create" => no_key,
    "pthread_key_delete" => no_key,
    "pthread_setspecific" => no_key,
);
