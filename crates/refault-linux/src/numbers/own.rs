//! Numbers of the calls that this crate makes, on the machine that it is built for.

#[cfg(target_arch = "x86_64")]
pub(crate) use crate::calls::*;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;

/// Source: the kernel's generic table of calls, which 64-bit ARM has.
#[cfg(target_arch = "aarch64")]
#[allow(non_upper_case_globals)]
mod aarch64 {
    pub(crate) const SYS_dup3: usize = 24;
    pub(crate) const SYS_fcntl: usize = 25;
    pub(crate) const SYS_ioctl: usize = 29;
    pub(crate) const SYS_fstatfs: usize = 44;
    pub(crate) const SYS_ftruncate: usize = 46;
    pub(crate) const SYS_openat: usize = 56;
    pub(crate) const SYS_close: usize = 57;
    pub(crate) const SYS_read: usize = 63;
    pub(crate) const SYS_write: usize = 64;
    pub(crate) const SYS_pread64: usize = 67;
    pub(crate) const SYS_newfstatat: usize = 79;
    pub(crate) const SYS_fstat: usize = 80;
    pub(crate) const SYS_futex: usize = 98;
    pub(crate) const SYS_nanosleep: usize = 101;
    pub(crate) const SYS_clock_gettime: usize = 113;
    pub(crate) const SYS_getrlimit: usize = 163;
    pub(crate) const SYS_prctl: usize = 167;
    pub(crate) const SYS_getpid: usize = 172;
    pub(crate) const SYS_gettid: usize = 178;
    pub(crate) const SYS_munmap: usize = 215;
    pub(crate) const SYS_mmap: usize = 222;
    pub(crate) const SYS_mincore: usize = 232;
    pub(crate) const SYS_madvise: usize = 233;
    pub(crate) const SYS_kcmp: usize = 272;
    pub(crate) const SYS_getrandom: usize = 278;
    pub(crate) const SYS_userfaultfd: usize = 282;
    pub(crate) const SYS_process_madvise: usize = 440;
}
