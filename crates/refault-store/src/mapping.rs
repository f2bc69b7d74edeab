//! Private anonymous memory that is reserved at once and takes space only where it is touched.
//!
//! Invariants: a mapping is page-aligned, zero where it was never written, and lives until it is dropped.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags};

pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory owned by this value; its users decide which thread touches which part.
unsafe impl Send for Mapping {}
// SAFETY: as above: sharing the value only shares the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes (rounded up to pages).
    pub(crate) fn new(len: usize) -> std::io::Result<Mapping> {
        let len = len.max(1).next_multiple_of(crate::PAGE_SIZE);
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>()).expect("invariant: mmap never returns the zero page");
        crate::noted::note(base.as_ptr() as usize, len);
        // A core dump would look at each page of the reservation, which takes minutes where it is large, and what is
        // compressed says nothing to a debugger.
        // SAFETY: advice on the mapping just made; it changes no contents. A failure costs the dump, nothing else.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontDump) };
        Ok(Mapping { base, len })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Gives the memory of a range back; it reads as zeros afterwards.
    ///
    /// # Safety
    /// Nothing in the range may be in use, and the range must lie inside the mapping on page boundaries.
    pub(crate) unsafe fn discard(&self, offset: usize, len: usize) {
        debug_assert!(offset + len <= self.len);
        // SAFETY: the range lies in this mapping and is unused (promised by the caller). A failure only keeps memory.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().add(offset).cast(), len, Advice::LinuxDontNeed) };
    }

    /// Gives the addresses from `len` on (rounded up to pages) back.
    ///
    /// # Safety
    /// Nothing from there on may be in use, or ever be used again.
    pub(crate) unsafe fn truncate(&mut self, len: usize) {
        let len = len.max(1).next_multiple_of(crate::PAGE_SIZE);
        if len < self.len {
            let end = self.base.as_ptr() as usize + len;
            crate::noted::give_up(end, self.len - len);
            // SAFETY: the range is the end of this mapping and unused (promised by the caller).
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().add(len).cast(), self.len - len) };
            self.len = len;
        }
    }

    /// Keeps the mapping out of core dumps and out of the kernel's swap, as far as the limits allow. What was not
    /// touched takes no memory by that.
    pub(crate) fn keep_secret(&self) {
        // SAFETY: both calls leave the contents of this mapping alone; failures are harmless.
        unsafe {
            let _ = rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxDontDump);
            let _ = rustix::mm::mlock_with(self.base.as_ptr().cast(), self.len, MlockFlags::ONFAULT);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        crate::noted::give_up(self.base.as_ptr() as usize, self.len);
        // SAFETY: the mapping was made with exactly these bounds and nothing borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_reservation_takes_memory_only_where_it_is_touched() {
        let resident_kib = |secret: &Mapping| {
            let start = format!("{:x}-", secret.base().as_ptr() as usize);
            let smaps = std::fs::read_to_string("/proc/self/smaps").expect("the kernel says");
            let lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
            let line = lines.map(str::trim).find_map(|line| line.strip_prefix("Rss:")).expect("the mapping is there");
            line.split_whitespace().next().expect("a number").parse::<u64>().expect("a number")
        };
        let secret = Mapping::new(256 << 20).expect("reserves");
        secret.keep_secret();
        assert_eq!(resident_kib(&secret), 0);
        // SAFETY: inside the mapping.
        unsafe { secret.base().as_ptr().add(128 << 20).write_volatile(1) };
        assert!((4..=2048).contains(&resident_kib(&secret)), "{}", resident_kib(&secret));
    }
}
