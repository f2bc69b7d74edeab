//! The frames' memory: one mapping, aligned as direct I/O wants it, with a lock a frame.
//!
//! A frame's lock is held while it is copied from or into, and by the filling thread across the I/O. No other thread
//! needs a frame that is being filled, because its page is not resident; so waiting for a lock takes at most a copy of
//! 4 KiB. Cost: 8 bytes per frame. Memory is taken from the system when a frame is first filled.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};
use rustix::mm::{MapFlags, ProtFlags};

const UNBROKEN: &str = "invariant: nothing panics while it holds a frame";

pub(crate) struct Buffers {
    base: *mut Page,
    locks: Vec<RwLock<()>>,
}

// SAFETY: the pages are reached only through the guards below, which the locks make exclusive or shared.
unsafe impl Send for Buffers {}
// SAFETY: as above.
unsafe impl Sync for Buffers {}

/// A frame to read.
pub(crate) struct ReadFrame<'a> {
    page: *const Page,
    _lock: RwLockReadGuard<'a, ()>,
}

/// A frame to write.
pub(crate) struct WriteFrame<'a> {
    page: *mut Page,
    _lock: RwLockWriteGuard<'a, ()>,
}

impl Buffers {
    pub(crate) fn new(frames: usize) -> io::Result<Buffers> {
        // SAFETY: a fresh mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                frames * PAGE_SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        Ok(Buffers { base: base.cast(), locks: (0..frames).map(|_| RwLock::new(())).collect() })
    }

    pub(crate) fn read(&self, frame: Frame) -> ReadFrame<'_> {
        let lock = self.locks[frame as usize].read().expect(UNBROKEN);
        // SAFETY: the frame is inside the mapping, since it has a lock.
        ReadFrame { page: unsafe { self.base.add(frame as usize) }, _lock: lock }
    }

    pub(crate) fn write(&self, frame: Frame) -> WriteFrame<'_> {
        let lock = self.locks[frame as usize].write().expect(UNBROKEN);
        // SAFETY: the frame is inside the mapping, since it has a lock.
        WriteFrame { page: unsafe { self.base.add(frame as usize) }, _lock: lock }
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.locks.capacity() * size_of::<RwLock<()>>()
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no guard is left, since each borrows this value.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.locks.len() * PAGE_SIZE) };
    }
}

impl Deref for ReadFrame<'_> {
    type Target = Page;
    fn deref(&self) -> &Page {
        // SAFETY: the lock is held for reading; any bytes are a page.
        unsafe { &*self.page }
    }
}

impl Deref for WriteFrame<'_> {
    type Target = Page;
    fn deref(&self) -> &Page {
        // SAFETY: the lock is held for writing; any bytes are a page.
        unsafe { &*self.page }
    }
}

impl DerefMut for WriteFrame<'_> {
    fn deref_mut(&mut self) -> &mut Page {
        // SAFETY: as above, exclusively.
        unsafe { &mut *self.page }
    }
}
