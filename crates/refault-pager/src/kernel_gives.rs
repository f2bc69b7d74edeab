//! Calls of newer kernels that a program or this library may use: which of them the running kernel has.
//!
//! Each is asked for with arguments that do nothing, never guessed from a version. Cost: one system call each and one
//! page.

use std::ffi::c_long;
use std::ptr;

/// A call or request of the kernel's, and since when mainline has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// What it is called.
    pub name: &'static str,
    /// The first release that has it.
    pub since: &'static str,
    /// Whether it is here.
    pub is_here: bool,
}

/// What the running kernel has of what is told apart, oldest first.
pub fn kernel_gives() -> Vec<Given> {
    let page = Page::new();
    let advice = |advice| page.as_ref().is_some_and(|page| page.takes(advice));
    let given = |name, since, is_here| Given { name, since, is_here };
    vec![
        given("MADV_POPULATE_WRITE", "5.14", advice(libc::MADV_POPULATE_WRITE)),
        given("cachestat", "6.5", is_call(refault_linux::calls::SYS_cachestat as c_long)),
        given("mseal", "6.10", is_call(refault_linux::calls::SYS_mseal as c_long)),
        given("MADV_GUARD_INSTALL", "6.13", advice(refault_linux::advice::MADV_GUARD_INSTALL as i32)),
        given("process_madvise on oneself", "6.13", page.as_ref().is_some_and(Page::takes_advice_by_descriptor)),
    ]
}

/// Means this process where a descriptor of one is asked for (Linux 6.14); a descriptor does on all kernels.
const NO_DESCRIPTOR: c_long = -1;

/// Whether a call is there: given arguments that none takes, it says something else than that it is not.
fn is_call(number: c_long) -> bool {
    // SAFETY: no call takes a descriptor or address of -1 with a null pointer: it fails before it does anything.
    let result = unsafe { libc::syscall(number, NO_DESCRIPTOR, ptr::null::<u8>(), ptr::null::<u8>(), c_long::MAX) };
    result != 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

/// A page to give advice on.
struct Page(*mut libc::c_void);

impl Page {
    const BYTES: usize = 4096;

    fn new() -> Option<Page> {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: maps a page where there is none.
        let at = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, rights, kind, -1, 0) };
        (at != libc::MAP_FAILED).then_some(Page(at))
    }

    fn takes(&self, advice: i32) -> bool {
        // SAFETY: the page is this value's own, and nothing reads it.
        unsafe { libc::madvise(self.0, Self::BYTES, advice) == 0 }
    }

    /// Older kernels refuse to discard by `process_madvise`, of whatever process.
    fn takes_advice_by_descriptor(&self) -> bool {
        let range = libc::iovec { iov_base: self.0, iov_len: Self::BYTES };
        // SAFETY: opens a descriptor of this process, discards the page that nothing reads, and closes what was opened.
        unsafe {
            let process = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
            if process < 0 {
                return false;
            }
            let advised =
                libc::syscall(libc::SYS_process_madvise, process, &raw const range, 1, libc::MADV_DONTNEED, 0);
            libc::close(process as i32);
            advised == Self::BYTES as c_long
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nothing else knows it.
        unsafe { libc::munmap(self.0, Self::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_here_is_as_old_as_the_kernel() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel says its release");
        let number = |text: &str| -> Vec<u32> { text.split(['.', '-']).take(2).flat_map(str::parse).collect() };
        for given in kernel_gives() {
            // A distribution may take a call over to an older kernel, and none leaves these out.
            if number(&release) >= number(given.since) {
                assert!(given.is_here, "{} is not here, on Linux {release}", given.name);
            }
        }
        assert!(!is_call(9999) && is_call(libc::SYS_close));
    }
}
