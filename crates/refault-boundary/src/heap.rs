//! The agent's own heap: what its Rust code allocates, on mappings of its own.
//!
//! Invariants: nothing in it is managed; it may be used in a signal handler that interrupted the program's `malloc`,
//! because it shares nothing with it. A lock guards it; at a fork the forking thread holds that lock.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use dlmalloc::{Allocator, Dlmalloc};
use refault_paging::lock::Lock;
use refault_paging::sys;
use refault_store::noted;

use crate::report;

/// Bytes mapped.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct Mappings;

// SAFETY: each piece is a fresh private mapping.
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
        noted::give_up(at as usize + new, old - new);
        // SAFETY: dlmalloc gives up what it does not use.
        unsafe { sys::unmap(at as usize + new, old - new) };
        MAPPED.fetch_sub(old - new, Ordering::Relaxed);
        true
    }
    fn free(&self, at: *mut u8, size: usize) -> bool {
        noted::give_up(at as usize, size);
        // SAFETY: as above.
        unsafe { sys::unmap(at as usize, size) };
        MAPPED.fetch_sub(size, Ordering::Relaxed);
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

/// Nobody allocates while the result lives: for the moment of a fork.
pub(crate) fn stand_still() -> impl Sized {
    (HEAP.lock(), SPARE.lock())
}

pub(crate) struct AgentHeap;

/// Blocks from here on have a mapping of their own, so that tables may grow without leaving holes.
const LARGE: usize = 64 << 10;

fn is_large(size: usize, align: usize) -> bool {
    size >= LARGE && align <= 4096
}

fn map(size: usize) -> *mut u8 {
    let size = size.next_multiple_of(4096);
    let at = match sys::map(size) {
        0 => take_spare(size),
        at => at,
    };
    if at == 0 {
        // Nothing of the agent's can go on without, and Rust's own words for it would go through libc.
        report::end(format_args!("no memory is left for the agent: {} bytes of addresses were refused", size));
    }
    MAPPED.fetch_add(size, Ordering::Relaxed);
    noted::note(at, size);
    // Says nothing to a debugger, and may hold keys: MADV_DONTDUMP.
    // SAFETY: advice on a fresh mapping.
    unsafe { sys::call(sys::nr::MADVISE, [at, size, 16, 0, 0, 0]) };
    at as *mut u8
}

/// Makes a block that has a mapping of its own larger or smaller; 0 if there are no addresses for it.
fn move_large(at: usize, old: usize, new: usize) -> usize {
    let (old, new) = (old.next_multiple_of(4096), new.next_multiple_of(4096));
    // Before: once it has moved, somebody else may have its addresses.
    noted::give_up(at, old);
    // SAFETY: the block has a mapping of its own, which may move.
    let moved = unsafe { sys::call(25, [at, old, new, 1, 0, 0]) };
    if moved < 0 {
        noted::note(at, old);
        return 0;
    }
    MAPPED.fetch_add(new, Ordering::Relaxed);
    MAPPED.fetch_sub(old, Ordering::Relaxed);
    noted::note(moved as usize, new);
    moved as usize
}

/// Addresses that are kept for the agent's tables, which grow with what the program maps, for when the program has used up
/// all that it may have. Taken from the end; what was taken is given back to whoever maps next.
static SPARE: Lock<(usize, usize)> = Lock::new((0, 0));

/// Reserves them, once. They take no memory before they are used.
pub(crate) fn keep_spare(bytes: usize) {
    let at = sys::map(bytes & !4095);
    if at != 0 {
        noted::note(at, bytes & !4095);
        *SPARE.lock() = (at, at + (bytes & !4095));
    }
}

/// A part of what is kept. 0 if that is not enough.
fn take_spare(size: usize) -> usize {
    let mut spare = SPARE.lock();
    let (start, end) = *spare;
    if end - start < size {
        return 0;
    }
    *spare = (start, end - size);
    noted::give_up(end - size, size);
    end - size
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
            let size = layout.size().next_multiple_of(4096);
            noted::give_up(at as usize, size);
            // SAFETY: the block has a mapping of its own.
            unsafe { sys::unmap(at as usize, size) };
            MAPPED.fetch_sub(size, Ordering::Relaxed);
            return;
        }
        // SAFETY: as above.
        unsafe { HEAP.lock().0.free(at, layout.size(), layout.align()) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        let (before, after) = (is_large(layout.size(), layout.align()), is_large(new, layout.align()));
        if before && after {
            let moved = move_large(at as usize, layout.size(), new);
            if moved != 0 {
                return moved as *mut u8;
            }
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
