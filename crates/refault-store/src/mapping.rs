//! Private anonymous memory that is reserved at once and takes space only where it is touched.
//!
//! Invariants: a mapping is page-aligned, zero where it was never written, and lives until it is dropped.

use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags};

/// Where reservations come from that are not to lie wherever the kernel finds room: of a pager that shares its addresses
/// with a program, whose memory may have holes.
#[derive(Debug)]
pub struct Source {
    /// Maps this number of bytes of zeros, whole pages; 0: there are none. They take memory where they are touched and
    /// are in no core dump. Says to [`crate::noted`] what it maps.
    pub take: fn(usize) -> usize,
    /// Takes a range back of which nothing is used any more, whole pages.
    pub give_back: unsafe fn(usize, usize),
}

static SOURCE: OnceLock<Source> = OnceLock::new();

/// Reservations come from here from now on. Only the first call counts.
///
/// ```standalone_crate
/// # fn take(_: usize) -> usize { 0 }
/// # unsafe fn give_back(_: usize, _: usize) {}
/// refault_store::reserve_from(refault_store::Source { take, give_back });
/// assert!(refault_store::CompressedPool::new(1 << 20).is_err());
/// ```
pub fn reserve_from(source: Source) {
    // The first caller has said it.
    let _ = SOURCE.set(source);
}

pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// It came from there.
    source: Option<&'static Source>,
}

// SAFETY: a mapping is plain memory owned by this value; its users decide which thread touches which part.
unsafe impl Send for Mapping {}
// SAFETY: as above: sharing the value only shares the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes (rounded up to pages).
    pub(crate) fn new(len: usize) -> std::io::Result<Mapping> {
        let len = len.max(1).next_multiple_of(crate::PAGE_SIZE);
        if let Some(source) = SOURCE.get() {
            let base = NonNull::new((source.take)(len) as *mut u8).ok_or(std::io::ErrorKind::OutOfMemory)?;
            return Ok(Mapping { base, len, source: Some(source) });
        }
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
        // A core dump would look at each page of the reservation, which takes minutes where it is large. What is
        // compressed says nothing to a debugger.
        // SAFETY: advice on the mapping just made; it changes no contents. A failure costs the dump, nothing else.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontDump) };
        Ok(Mapping { base, len, source: None })
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
            // SAFETY: the range is the end of this mapping and unused (promised by the caller).
            unsafe { self.give_back(len) };
            self.len = len;
        }
    }

    /// Gives back what lies from `len` on.
    ///
    /// # Safety
    /// Nothing from there on may be in use, or ever be used again.
    unsafe fn give_back(&self, len: usize) {
        let (end, bytes) = (self.base.as_ptr() as usize + len, self.len - len);
        if let Some(source) = self.source {
            // SAFETY: it came from there; the rest is promised by the caller.
            return unsafe { (source.give_back)(end, bytes) };
        }
        crate::noted::give_up(end, bytes);
        // SAFETY: this mapping was made with these bounds; the rest is promised by the caller.
        let _ = unsafe { rustix::mm::munmap(end as *mut _, bytes) };
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
        // SAFETY: nothing borrows it any more.
        unsafe { self.give_back(0) };
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
