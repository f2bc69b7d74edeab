//! The frames' memory: one mapping, aligned as direct I/O wants it, and the frames' pins ([`crate::engine::pins`]).
//!
//! Memory is taken from the system when a frame is first filled, 2 MiB at once where it gives huge pages: the processor
//! then finds a page of the cache with fewer looks, and a device gets frames that follow each other as one piece.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use refault_core::frames::Frame;
use refault_store::{PAGE_SIZE, Page};
use rustix::mm::{MapFlags, ProtFlags};

use crate::engine::pins::Pins;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Frames of one.
pub(crate) const FRAMES_PER_HUGE_PAGE: usize = HUGE / PAGE_SIZE;

pub(crate) struct Buffers {
    /// The mapping, in which the first frame begins where a huge page can.
    mapping: (*mut libc::c_void, usize),
    base: *mut Page,
    pub(crate) pins: Pins,
    /// Pages that were read ahead and not read since ([`crate::engine::pins::UNREAD`]).
    pub(crate) unread: AtomicU32,
    /// Where the huge page begins of which a frame went last, in bytes.
    split: AtomicUsize,
}

// SAFETY: pages are reached only as `page` and `page_mut` demand, which makes accesses exclusive or shared.
unsafe impl Send for Buffers {}
// SAFETY: as above.
unsafe impl Sync for Buffers {}

impl Buffers {
    pub(crate) fn new(frames: usize) -> io::Result<Buffers> {
        let bytes = frames * PAGE_SIZE;
        let length = if bytes < HUGE { bytes } else { bytes + HUGE - PAGE_SIZE };
        // SAFETY: a fresh mapping at an address that the kernel chooses overlaps nothing.
        let mapping = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let skipped = if bytes < HUGE { 0 } else { mapping.align_offset(HUGE) };
        let base = mapping.wrapping_byte_add(skipped);
        // SAFETY: inside the fresh mapping. A kernel without huge pages refuses, and frames are taken one by one.
        let _ = unsafe { rustix::mm::madvise(base, bytes, rustix::mm::Advice::LinuxHugepage) };
        Ok(Buffers {
            mapping: (mapping, length),
            base: base.cast(),
            pins: Pins::new(frames),
            unread: AtomicU32::new(0),
            split: AtomicUsize::new(usize::MAX),
        })
    }

    /// The contents of a frame.
    ///
    /// # Safety
    /// The caller has pinned the frame and has seen it named by a page afterwards. Or the caller holds the engine's
    /// lock while no page that is being filled has the frame.
    pub(crate) unsafe fn page(&self, frame: Frame) -> &Page {
        assert!((frame as usize) < self.pins.len());
        // SAFETY: inside the mapping; no thread writes to it (promised), and any bytes are a page.
        unsafe { &*self.base.add(frame as usize) }
    }

    /// Has the processor begin to read a frame at an offset, of whatever is there by then. A number that is no frame's
    /// does nothing.
    #[inline]
    pub(crate) fn fetch(&self, frame: Frame, within: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            let line = self.base.wrapping_add(frame as usize).wrapping_byte_add(within);
            // SAFETY: a hint about any address at all, which can neither fault nor change anything.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (frame, within);
    }

    /// The contents of a frame, to be written.
    ///
    /// # Safety
    /// The frame is that of a busy page which is the caller's. No reader has found it there. The caller makes no second
    /// reference.
    #[expect(clippy::mut_from_ref, reason = "the protocol of busy pages makes it exclusive")]
    pub(crate) unsafe fn page_mut(&self, frame: Frame) -> &mut Page {
        assert!((frame as usize) < self.pins.len());
        // SAFETY: inside the mapping, exclusively (promised).
        unsafe { &mut *self.base.add(frame as usize) }
    }

    /// The system gets the memory of a frame back, which belongs to no page and never will.
    pub(crate) fn give_back(&self, frame: Frame) {
        let at = self.address(frame).cast();
        let chunk = frame as usize * PAGE_SIZE / HUGE * HUGE;
        // Frames mostly go in a row, and it need be said once.
        if self.split.swap(chunk, Ordering::Relaxed) != chunk {
            let bytes = HUGE.min(self.pins.len() * PAGE_SIZE - chunk);
            let start = self.base.cast::<libc::c_void>().wrapping_byte_add(chunk);
            // SAFETY: inside the mapping, whose contents stay. Otherwise the kernel might make a huge page of what is
            // left, and of memory for what has gone.
            let _ = unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxNoHugepage) };
        }
        // SAFETY: inside the mapping, and no thread reads or writes the frame. It is free, and only readers that come
        // too late pin it, which do not look at its bytes. If the kernel refuses, the memory stays.
        let _ = unsafe { rustix::mm::madvise(at, PAGE_SIZE, rustix::mm::Advice::LinuxDontNeed) };
    }

    /// Where a frame is.
    pub(crate) fn address(&self, frame: Frame) -> *mut Page {
        assert!((frame as usize) < self.pins.len());
        self.base.wrapping_add(frame as usize)
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.pins.len() * size_of::<u32>()
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no reference is left, since each borrows this value.
        let _ = unsafe { rustix::mm::munmap(self.mapping.0, self.mapping.1) };
    }
}
