//! System calls by number, without libc: no `errno`, no thread-locals, no cancellation.
//!
//! What is served in a signal handler may interrupt any code of the program, libc's own included. So nothing here may
//! use what that code may hold. Every call returns what the kernel returns: a negative error number or a result.
//! Cost: one system call each, unless a function says another. Source: the system-call conventions of x86-64 and of
//! 64-bit ARM.
//!
//! ```
//! use refault_linux::{PAGE, sys};
//!
//! let start = sys::map(PAGE);
//! assert_ne!(start, 0);
//! // SAFETY: the mapping is ours, and no other code knows of it.
//! unsafe {
//!     *(start as *mut u8) = 1;
//!     assert_eq!(sys::discard(start, PAGE), 0);
//!     assert_eq!(*(start as *const u8), 0);
//!     sys::unmap(start, PAGE);
//! }
//! ```

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::advice::{MADV_DONTNEED, MADV_POPULATE_READ};
pub use crate::clock::now;
use crate::files::{Stat, StatFs};
use crate::flags::{
    AT_FDCWD, CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, FUTEX_PRIVATE_FLAG, FUTEX_WAIT, FUTEX_WAKE, MAP_ANONYMOUS,
    MAP_NORESERVE, MAP_PRIVATE, O_CLOEXEC, PIDFD_SELF_THREAD_GROUP, PROT_READ, PROT_WRITE,
};
use crate::numbers::own as number;
use crate::options::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, PR_SYS_DISPATCH_ON};

const SECOND: u64 = 1_000_000_000;

/// Makes a system call of our own.
///
/// # Safety
/// What the call does to memory must be right for all who use that memory.
#[inline(always)]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    #[cfg(debug_assertions)]
    if let Some(error) = crate::faults::of(number, &arguments) {
        return error;
    }
    // SAFETY: promised by the caller.
    unsafe { make(number, arguments) }
}

/// Makes a system call that a program has asked for: as [`call`], but no fault of a test's is injected into it.
///
/// # Safety
/// As for [`call`].
#[inline(always)]
pub unsafe fn make(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the convention's registers; memory is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c, in("x3") d,
            in("x4") e, in("x5") f, options(nostack));
    }
    result
}

/// A private anonymous mapping of `bytes`, readable and writable, without a reservation of swap; 0 if there is none.
pub fn map(bytes: usize) -> usize {
    const FLAGS: usize = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address that the kernel chooses overlaps nothing.
    let at = unsafe { call(number::SYS_mmap, [0, bytes, PROT_READ | PROT_WRITE, FLAGS, usize::MAX, 0]) };
    if at < 0 { 0 } else { at as usize }
}

/// Gives a mapping up.
///
/// # Safety
/// No thread uses the range any more.
pub unsafe fn unmap(start: usize, bytes: usize) {
    // SAFETY: promised by the caller.
    unsafe { call(number::SYS_munmap, [start, bytes, 0, 0, 0, 0]) };
}

/// Gives the memory of a range back; it reads as zeros afterwards. Returns the kernel's answer.
///
/// # Safety
/// The contents are not needed any more.
pub unsafe fn discard(start: usize, bytes: usize) -> isize {
    // SAFETY: promised by the caller.
    unsafe { call(number::SYS_madvise, [start, bytes, MADV_DONTNEED, 0, 0, 0]) }
}

/// Brings a range in as reads of it would.
pub fn populate(start: usize, bytes: usize) -> isize {
    // SAFETY: changes no contents.
    unsafe { call(number::SYS_madvise, [start, bytes, MADV_POPULATE_READ, 0, 0, 0]) }
}

/// A range of memory as the kernel takes it in lists (`struct iovec`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Range {
    /// Its first byte.
    pub start: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// [`discard`] for many ranges. One call where the kernel takes lists, which costs a fifth of one call per
/// range: other processors are told once.
///
/// # Safety
/// The contents are not needed any more.
pub unsafe fn discard_all(ranges: &[Range]) {
    let (this, list) = (PIDFD_SELF_THREAD_GROUP, ranges.as_ptr() as usize);
    // SAFETY: the list is a live array of ranges; their contents are promised by the caller.
    let done = unsafe { call(number::SYS_process_madvise, [this, list, ranges.len(), MADV_DONTNEED, 0, 0]) };
    let all: usize = ranges.iter().map(|range| range.bytes).sum();
    if done != all as isize {
        // Not by lists, or not to the end: a range that is empty already stays so.
        for range in ranges {
            // SAFETY: promised by the caller.
            unsafe { discard(range.start, range.bytes) };
        }
    }
}

/// Nanoseconds of the monotonic clock, by the kernel. See [`crate::clock`], which is cheaper.
pub fn clock() -> u64 {
    time_of(CLOCK_MONOTONIC).unwrap_or(0)
}

/// Nanoseconds of processor time that this thread has used.
pub fn thread_time() -> u64 {
    time_of(CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// For how many nanoseconds the threads of a process have run together; nothing if there is no such process.
pub fn time_run(process: i32) -> Option<u64> {
    // What <linux/posix-timers.h> makes of a process and its clock.
    const SCHEDULED: i32 = 2;
    time_of((!process << 3 | SCHEDULED) as usize)
}

/// Nanoseconds of a clock; nothing if there is no such clock.
#[inline]
fn time_of(clock: usize) -> Option<u64> {
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes two words to `time`.
    let error = unsafe { call(number::SYS_clock_gettime, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (error == 0).then(|| time[0] * SECOND + time[1])
}

/// Whether two processes have the same memory, as a child of `vfork` and its parent have until the child executes a
/// program. False too where the kernel does not say: it is built without `kcmp`, or the caller may not look into them.
pub fn shares_memory(process: i32, other: i32) -> bool {
    const KCMP_VM: usize = 1;
    // SAFETY: it compares, and touches no memory.
    unsafe { call(number::SYS_kcmp, [process as usize, other as usize, KCMP_VM, 0, 0, 0]) == 0 }
}

/// Waits `nanoseconds` nanoseconds, or less if a signal comes.
pub fn sleep(nanoseconds: u64) {
    let pause = [nanoseconds / SECOND, nanoseconds % SECOND];
    // SAFETY: nanosleep reads two words.
    unsafe { call(number::SYS_nanosleep, [pause.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// Opens a file, which a program that is executed does not have. The descriptor, or a negative error number.
pub fn open(path: &core::ffi::CStr, flags: usize) -> isize {
    // SAFETY: reads a path that ends.
    unsafe { call(number::SYS_openat, [AT_FDCWD, path.as_ptr() as usize, flags | O_CLOEXEC, 0, 0, 0]) }
}

/// Reads from where the file is. The bytes that were read, or a negative error number.
pub fn read(descriptor: i32, into: &mut [core::mem::MaybeUninit<u8>]) -> isize {
    // SAFETY: the kernel writes to bytes that are borrowed here.
    unsafe { call(number::SYS_read, [descriptor as usize, into.as_mut_ptr() as usize, into.len(), 0, 0, 0]) }
}

/// Closes a descriptor.
///
/// # Safety
/// It is the caller's, who does not use it any more.
pub unsafe fn close(descriptor: i32) {
    // SAFETY: promised by the caller.
    unsafe { call(number::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
}

/// A random number.
pub fn random() -> u64 {
    let mut word = clock();
    // SAFETY: getrandom writes 8 bytes.
    unsafe { call(number::SYS_getrandom, [&raw mut word as usize, 8, 0, 0, 0, 0]) };
    word
}

/// Writes a message to a descriptor. The bytes that were written, or a negative error number.
pub fn write(descriptor: i32, text: &[u8]) -> isize {
    // SAFETY: only reads `text`.
    unsafe { call(number::SYS_write, [descriptor as usize, text.as_ptr() as usize, text.len(), 0, 0, 0]) }
}

/// What the kernel says of the file of a descriptor.
///
/// # Errors
/// The kernel's, negative: there is no such descriptor.
pub fn status(descriptor: usize) -> Result<Stat, isize> {
    let mut status = Stat::default();
    // SAFETY: fstat writes a structure.
    let error = unsafe { call(number::SYS_fstat, [descriptor, &raw mut status as usize, 0, 0, 0, 0]) };
    if error < 0 { Err(error) } else { Ok(status) }
}

/// What the kernel says of a file by its path, which begins in a directory unless it says otherwise; with
/// [`AT_EMPTY_PATH`](crate::flags::AT_EMPTY_PATH), of the descriptor.
pub fn status_at(directory: usize, path: &core::ffi::CStr, flags: usize) -> Option<Stat> {
    let mut status = Stat::default();
    let arguments = [directory, path.as_ptr() as usize, &raw mut status as usize, flags, 0, 0];
    // SAFETY: newfstatat reads a path that ends, and writes a structure.
    let error = unsafe { call(number::SYS_newfstatat, arguments) };
    (error == 0).then_some(status)
}

/// The file system that the file of a descriptor is on ([`PROC_SUPER_MAGIC`](crate::files::PROC_SUPER_MAGIC)).
pub fn file_system(descriptor: usize) -> Option<u64> {
    let mut status = StatFs::default();
    // SAFETY: fstatfs writes a structure.
    let error = unsafe { call(number::SYS_fstatfs, [descriptor, &raw mut status as usize, 0, 0, 0, 0]) };
    (error == 0).then_some(status.kind)
}

/// Lengthens the file of a descriptor by this many zeros, which take no room on its disk.
pub fn lengthen(descriptor: i32, bytes: usize) {
    if let Ok(status) = status(descriptor as usize) {
        let length = status.bytes as usize + bytes;
        // SAFETY: touches no memory.
        unsafe { call(number::SYS_ftruncate, [descriptor as usize, length, 0, 0, 0, 0]) };
    }
}

/// How much of a resource this process may use, and what it may raise that to (`RLIMIT_` of [`crate::flags`]);
/// `u64::MAX`: as much as it likes.
pub fn limits(which: usize) -> [u64; 2] {
    let mut limits = [u64::MAX; 2];
    // SAFETY: getrlimit writes two words.
    unsafe { call(number::SYS_getrlimit, [which, limits.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    limits
}

/// This process.
pub fn process_id() -> i32 {
    // SAFETY: touches no memory.
    unsafe { call(number::SYS_getpid, [0; 6]) as i32 }
}

/// The thread that calls, by the kernel's number.
pub fn thread_id() -> usize {
    // SAFETY: touches no memory.
    unsafe { call(number::SYS_gettid, [0; 6]) as usize }
}

/// The namespace of process numbers that this process is in; 0 if the kernel does not say.
pub fn pid_namespace() -> u64 {
    match PID_NAMESPACE.load(Ordering::Relaxed) {
        0 => {}
        known => return known,
    }
    // The number of its file.
    let found = status_at(AT_FDCWD, c"/proc/self/ns/pid", 0).map_or(0, |status| status.inode);
    PID_NAMESPACE.store(found, Ordering::Relaxed);
    found
}

/// What [`pid_namespace`] has found, which stays so: a process never leaves the namespace that it was made in. 0:
/// nothing.
static PID_NAMESPACE: AtomicU64 = AtomicU64::new(0);

/// This is a forked child, which may be in another namespace than its parent, from which it has what was found.
pub fn forget_pid_namespace() {
    PID_NAMESPACE.store(0, Ordering::Relaxed);
}

/// Waits until `word` is no longer `value`, is woken, or for no reason.
pub fn wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    // SAFETY: reads one word that is borrowed.
    unsafe {
        call(number::SYS_futex, [word.as_ptr() as usize, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value as usize, 0, 0, 0])
    };
}

/// As [`wait`], for `nanoseconds` at most. Returns the kernel's number: `ETIMEDOUT` if they are over.
pub fn wait_for(word: &core::sync::atomic::AtomicU32, value: u32, nanoseconds: u64) -> isize {
    let limit = [nanoseconds / SECOND, nanoseconds % SECOND];
    // SAFETY: reads one word that is borrowed, and two of the limit.
    unsafe {
        call(
            number::SYS_futex,
            [word.as_ptr() as usize, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value as usize, limit.as_ptr() as usize, 0, 0],
        )
    }
}

/// Wakes one that waits for `word`.
pub fn wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: touches no memory.
    unsafe { call(number::SYS_futex, [word.as_ptr() as usize, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0]) };
}

/// As [`wait`], for a word that several processes share.
pub fn wait_everywhere(word: &core::sync::atomic::AtomicU32, value: u32) {
    // SAFETY: reads one word that is borrowed.
    unsafe { call(number::SYS_futex, [word.as_ptr() as usize, FUTEX_WAIT, value as usize, 0, 0, 0]) };
}

/// As [`wait_everywhere`], for at most `nanoseconds` nanoseconds.
pub fn wait_everywhere_for(word: &core::sync::atomic::AtomicU32, value: u32, nanoseconds: u64) {
    let most = [nanoseconds / SECOND, nanoseconds % SECOND];
    // SAFETY: reads one word that is borrowed, and two here.
    unsafe {
        call(number::SYS_futex, [word.as_ptr() as usize, FUTEX_WAIT, value as usize, most.as_ptr() as usize, 0, 0])
    };
}

/// Wakes all that wait for `word`, in whatever process.
pub fn wake_everywhere(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: touches no memory.
    unsafe { call(number::SYS_futex, [word.as_ptr() as usize, FUTEX_WAKE, i32::MAX as usize, 0, 0, 0]) };
}

/// Whether calls can be dispatched to user space (Linux 5.11 and later, x86-64; not where a filter forbids it).
pub fn can_dispatch() -> bool {
    // SAFETY: dispatch with all code exempt changes nothing, and ends at once.
    unsafe {
        let on = call(number::SYS_prctl, [PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, usize::MAX, 0, 0]) == 0;
        call(number::SYS_prctl, [PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0, 0]);
        on
    }
}
