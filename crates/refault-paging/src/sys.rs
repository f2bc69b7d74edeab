//! System calls by number, without libc: no `errno`, no thread-locals, no cancellation.
//!
//! What is served in a signal handler may interrupt any code of the program, libc's own included, so nothing here may
//! use what that code may hold. Every call returns what the kernel returns: a negative error number or a result.
//! Source: the x86-64 system-call convention.
//!
//! ```
//! use refault_paging::{PAGE, sys};
//!
//! let start = sys::map(PAGE);
//! assert_ne!(start, 0);
//! // SAFETY: the mapping is ours, and nobody else knows of it.
//! unsafe {
//!     *(start as *mut u8) = 1;
//!     assert_eq!(sys::discard(start, PAGE), 0);
//!     assert_eq!(*(start as *const u8), 0);
//!     sys::unmap(start, PAGE);
//! }
//! ```

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

pub use crate::clock::now;

/// Numbers of the calls made here (x86-64).
pub mod nr {
    #![allow(missing_docs)]
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const MINCORE: usize = 27;
    pub const MADVISE: usize = 28;
    pub const NANOSLEEP: usize = 35;
    pub const GETPID: usize = 39;
    pub const FCNTL: usize = 72;
    pub const FTRUNCATE: usize = 77;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const DUP3: usize = 292;
    pub const KCMP: usize = 312;
    pub const USERFAULTFD: usize = 323;
    pub const PROCESS_MADVISE: usize = 440;
}

/// Makes a system call.
///
/// # Safety
/// What the call does to memory must be right for everybody who uses that memory.
#[inline(always)]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the convention's registers; memory is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// A private anonymous mapping of `bytes`, readable and writable, without a reservation of swap; 0 if there is none.
pub fn map(bytes: usize) -> usize {
    // SAFETY: a fresh mapping at an address that the kernel chooses overlaps nothing.
    let at = unsafe { call(nr::MMAP, [0, bytes, 3, 0x4022, usize::MAX, 0]) };
    if at < 0 { 0 } else { at as usize }
}

/// Gives a mapping up.
///
/// # Safety
/// Nobody uses the range any more.
pub unsafe fn unmap(start: usize, bytes: usize) {
    // SAFETY: promised by the caller.
    unsafe { call(nr::MUNMAP, [start, bytes, 0, 0, 0, 0]) };
}

/// Gives the memory of a range back; it reads as zeros afterwards. Returns the kernel's answer.
///
/// # Safety
/// The contents are not needed any more.
pub unsafe fn discard(start: usize, bytes: usize) -> isize {
    // SAFETY: promised by the caller.
    unsafe { call(nr::MADVISE, [start, bytes, 4, 0, 0, 0]) }
}

/// Brings a range in as reads of it would.
pub fn populate(start: usize, bytes: usize) -> isize {
    const POPULATE_READ: usize = 22;
    // SAFETY: changes no contents.
    unsafe { call(nr::MADVISE, [start, bytes, POPULATE_READ, 0, 0, 0]) }
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
    /// `PIDFD_SELF_THREAD_GROUP`.
    const SELF: usize = -10001isize as usize;
    let list = ranges.as_ptr() as usize;
    // SAFETY: the list is a live array of ranges; their contents are promised by the caller.
    let done = unsafe { call(nr::PROCESS_MADVISE, [SELF, list, ranges.len(), 4, 0, 0]) };
    let all: usize = ranges.iter().map(|range| range.bytes).sum();
    if done != all as isize {
        // Not by lists, or not to the end: a range that is empty already stays so.
        for range in ranges {
            // SAFETY: promised by the caller.
            unsafe { discard(range.start, range.bytes) };
        }
    }
}

/// Nanoseconds of the monotonic clock, by the kernel. Cost: a system call; see [`crate::clock`].
pub fn clock() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: writes the two words.
    unsafe { call(nr::CLOCK_GETTIME, [1, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Nanoseconds of processor time that this thread has used. Cost: a system call.
pub fn thread_time() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: writes the two words.
    unsafe { call(nr::CLOCK_GETTIME, [3, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// For how many nanoseconds the threads of a process have run together; nothing if there is no such process.
pub fn time_run(process: i32) -> Option<u64> {
    // What <linux/posix-timers.h> makes of a process and its clock.
    const SCHEDULED: i32 = 2;
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes two words to `time`.
    let answer = unsafe {
        call(nr::CLOCK_GETTIME, [(!process << 3 | SCHEDULED) as usize, time.as_mut_ptr() as usize, 0, 0, 0, 0])
    };
    (answer == 0).then(|| time[0] * 1_000_000_000 + time[1])
}

/// Whether two processes have the same memory, as a child of `vfork` and its parent have until the child executes a program.
/// False too where the kernel does not say: it is built without `kcmp`, or the caller may not look into them.
pub fn shares_memory(process: i32, other: i32) -> bool {
    const KCMP_VM: usize = 1;
    // SAFETY: it compares, and touches no memory.
    unsafe { call(nr::KCMP, [process as usize, other as usize, KCMP_VM, 0, 0, 0]) == 0 }
}

/// Waits so many nanoseconds, or less if a signal comes.
pub fn sleep(nanoseconds: u64) {
    let pause = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    // SAFETY: nanosleep reads two words.
    unsafe { call(nr::NANOSLEEP, [pause.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// A random number.
pub fn random() -> u64 {
    let mut word = clock();
    // SAFETY: getrandom writes 8 bytes.
    unsafe { call(318, [&raw mut word as usize, 8, 0, 0, 0, 0]) };
    word
}

/// Writes a message to a descriptor. The bytes that were written, or a negative error number.
pub fn write(descriptor: i32, text: &[u8]) -> isize {
    // SAFETY: only reads `text`.
    unsafe { call(nr::WRITE, [descriptor as usize, text.as_ptr() as usize, text.len(), 0, 0, 0]) }
}

/// Lengthens the file of a descriptor by so many zeros, which take no room on its disk.
pub fn lengthen(descriptor: i32, bytes: usize) {
    let mut status = [0u64; 18];
    // SAFETY: fstat writes 144 bytes.
    if unsafe { call(nr::FSTAT, [descriptor as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0]) } == 0 {
        // The seventh word is the length.
        let length = status[6] as usize + bytes;
        // SAFETY: touches no memory.
        unsafe { call(nr::FTRUNCATE, [descriptor as usize, length, 0, 0, 0, 0]) };
    }
}

/// This process.
pub fn process_id() -> i32 {
    // SAFETY: touches no memory.
    unsafe { call(nr::GETPID, [0; 6]) as i32 }
}

/// The namespace of process numbers that this process is in; 0 if the kernel does not say.
pub fn pid_namespace() -> u64 {
    const STAT: usize = 4;
    match PID_NAMESPACE.load(Ordering::Relaxed) {
        0 => {}
        known => return known,
    }
    let mut status = [0u64; 18];
    // SAFETY: stat reads a path and writes 144 bytes.
    let error =
        unsafe { call(STAT, [c"/proc/self/ns/pid".as_ptr() as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    // The number of its file.
    let found = if error == 0 { status[1] } else { 0 };
    PID_NAMESPACE.store(found, Ordering::Relaxed);
    found
}

/// What [`pid_namespace`] has found, which stays so: a process never leaves the namespace that it was made in. 0: nothing.
static PID_NAMESPACE: AtomicU64 = AtomicU64::new(0);

/// This is a forked child, which may be in another namespace than its parent, from which it has what was found.
pub fn forget_pid_namespace() {
    PID_NAMESPACE.store(0, Ordering::Relaxed);
}

/// Waits until `word` is no longer `value`, is woken, or for no reason.
pub fn wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    // SAFETY: reads one word that is borrowed.
    unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 128, value as usize, 0, 0, 0]) };
}

/// Wakes one that waits for `word`.
pub fn wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: touches no memory.
    unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 129, 1, 0, 0, 0]) };
}

/// As [`wait`], for a word that several processes share.
pub fn wait_everywhere(word: &core::sync::atomic::AtomicU32, value: u32) {
    // SAFETY: reads one word that is borrowed.
    unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 0, value as usize, 0, 0, 0]) };
}

/// As [`wait_everywhere`], for so many nanoseconds at most.
pub fn wait_everywhere_for(word: &core::sync::atomic::AtomicU32, value: u32, nanoseconds: u64) {
    let most = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    // SAFETY: reads one word that is borrowed, and two here.
    unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 0, value as usize, most.as_ptr() as usize, 0, 0]) };
}

/// Wakes all that wait for `word`, in whatever process.
pub fn wake_everywhere(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: touches no memory.
    unsafe { call(nr::FUTEX, [word.as_ptr() as usize, 1, i32::MAX as usize, 0, 0, 0]) };
}

/// Sleeps for so many nanoseconds, less than a second.
pub fn nap(nanoseconds: u64) {
    let pause = [0u64, nanoseconds];
    // SAFETY: nanosleep reads two words.
    unsafe { call(35, [pause.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// Whether calls can be dispatched to user space (Linux 5.11 and later, x86-64; not where a filter forbids it).
pub fn can_dispatch() -> bool {
    // SAFETY: dispatch with all code exempt changes nothing, and ends at once.
    unsafe {
        let on = call(nr::PRCTL, [59, 1, 0, usize::MAX, 0, 0]) == 0;
        call(nr::PRCTL, [59, 0, 0, 0, 0, 0]);
        on
    }
}
