//! The agent's own heap: what its Rust code allocates, in an area of its own ([`crate::memory::area`]).
//!
//! Invariants: nothing in it is managed; it may be used in a signal handler that interrupted the program's `malloc`,
//! because it shares nothing with it. A lock guards it; at a fork the forking thread holds that lock.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use dlmalloc::{Allocator, Dlmalloc};
use refault_linux::lock::Lock;
use refault_linux::sys;
use refault_paging::PAGE;

use crate::library::report;
use crate::memory::area;

/// Bytes mapped.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct Mappings;

// SAFETY: each piece is fresh private memory.
unsafe impl Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(64 << 10);
        let at = map(size);
        (at, size, 0)
    }
    fn remap(&self, _at: *mut u8, _old: usize, _new: usize, _can_move: bool) -> *mut u8 {
        std::ptr::null_mut()
    }
    fn free_part(&self, at: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: dlmalloc gives up what it does not use.
        unsafe { unmap(at as usize + new, old - new) };
        true
    }
    fn free(&self, at: *mut u8, size: usize) -> bool {
        // SAFETY: as above.
        unsafe { unmap(at as usize, size) };
        true
    }
    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }
    fn allocates_zeros(&self) -> bool {
        true
    }
    fn page_size(&self) -> usize {
        4096
    }
}

struct Inner(Dlmalloc<Mappings>);

// SAFETY: its pointers are to mappings of this process, which every thread sees.
unsafe impl Send for Inner {}

static HEAP: Lock<Inner> = Lock::new(Inner(Dlmalloc::new_with_allocator(Mappings)));

/// Bytes that the heap has mapped; those that were never touched cost nothing but are counted.
pub(crate) fn bytes() -> usize {
    MAPPED.load(Ordering::Relaxed)
}

/// No thread allocates while the result lives: for the moment of a fork.
pub(crate) fn stand_still() -> impl Sized {
    (HEAP.lock(), area::stand_still())
}

pub(crate) struct AgentHeap;

/// Blocks from here on have whole pages of their own, so that tables may grow without leaving holes.
const LARGE: usize = 64 << 10;

/// Bytes of a block that are in memory twice for a moment while the block moves.
const PIECE: usize = 64 << 10;

fn is_large(size: usize, align: usize) -> bool {
    size >= LARGE && align <= PAGE
}

fn map(size: usize) -> *mut u8 {
    let size = size.next_multiple_of(PAGE);
    let at = area::take(size);
    if at == 0 {
        // Nothing of the agent's can go on without, and Rust's own words for it would go through libc.
        report::end(format_args!("no memory is left for the agent: {} bytes of addresses were refused", size));
    }
    MAPPED.fetch_add(size, Ordering::Relaxed);
    at as *mut u8
}

/// # Safety
/// A part of what was mapped, which no thread uses any more.
unsafe fn unmap(at: usize, size: usize) {
    let size = size.next_multiple_of(PAGE);
    // SAFETY: promised by the caller.
    unsafe { area::give_back(at, size) };
    MAPPED.fetch_sub(size, Ordering::Relaxed);
}

/// Makes a large block larger or smaller, where it is or elsewhere.
///
/// # Safety
/// It is a large block, and stays one.
unsafe fn resize(at: usize, old: usize, new: usize) -> usize {
    let (old, new) = (old.next_multiple_of(PAGE), new.next_multiple_of(PAGE));
    // SAFETY: promised by the caller.
    if unsafe { area::resize(at, old, new) } {
        MAPPED.fetch_add(new, Ordering::Relaxed);
        MAPPED.fetch_sub(old, Ordering::Relaxed);
        return at;
    }
    let fresh = map(new) as usize;
    for offset in (0..old).step_by(PIECE) {
        let piece = PIECE.min(old - offset);
        // SAFETY: the new block is larger and known here alone; what was copied of the old one is not needed.
        unsafe {
            std::ptr::copy_nonoverlapping((at + offset) as *const u8, (fresh + offset) as *mut u8, piece);
            sys::discard(at + offset, piece);
        }
    }
    // SAFETY: all of it was copied.
    unsafe { unmap(at, old) };
    fresh
}

// SAFETY: dlmalloc under a lock.
unsafe impl GlobalAlloc for AgentHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size(), layout.align()) {
            return map(layout.size());
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { HEAP.lock().0.malloc(layout.size(), layout.align()) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size(), layout.align()) {
            return map(layout.size());
        }
        // SAFETY: as above.
        unsafe { HEAP.lock().0.calloc(layout.size(), layout.align()) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_large(layout.size(), layout.align()) {
            // SAFETY: the block has its pages for itself.
            return unsafe { unmap(at as usize, layout.size()) };
        }
        // SAFETY: as above.
        unsafe { HEAP.lock().0.free(at, layout.size(), layout.align()) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        let (before, after) = (is_large(layout.size(), layout.align()), is_large(new, layout.align()));
        if before && after {
            // SAFETY: just looked.
            return unsafe { resize(at as usize, layout.size(), new) } as *mut u8;
        }
        if before || after {
            // SAFETY: a new block of the new size, the old one's contents, and the old one given up.
            unsafe {
                let fresh = self.alloc(Layout::from_size_align_unchecked(new, layout.align()));
                if !fresh.is_null() {
                    std::ptr::copy_nonoverlapping(at, fresh, layout.size().min(new));
                    self.dealloc(at, layout);
                }
                return fresh;
            }
        }
        // SAFETY: as above.
        unsafe { HEAP.lock().0.realloc(at, layout.size(), layout.align(), new) }
    }
}
